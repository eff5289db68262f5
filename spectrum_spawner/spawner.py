"""SpectrumSpawner: JupyterHub's seams, each of which delegates.

Of KubeSpawner it keeps the traits, the environment and the pod manifest. Start, stop, poll and
progress are our own (`lifecycle`, `progress`), and stand on the views that all spawners share.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import fmt_ip_url, maybe_future
from kubespawner import KubeSpawner
from sqlalchemy.orm import object_session
from traitlets import Dict, Unicode, default

from spectrum_spawner import accounts, actor, form, identity, names, sharing, storage, trail
from spectrum_spawner.admission import admit, find_teams, refusal_of_options
from spectrum_spawner.audit import make_record
from spectrum_spawner.choice import Choice, OptionError
from spectrum_spawner.diagnosis import ExitStatus
from spectrum_spawner.end import End
from spectrum_spawner.lifecycle import Start
from spectrum_spawner.mounting import Mounting
from spectrum_spawner.mounts import Mount
from spectrum_spawner.notices import Notice, Notices, notice_of_leaving
from spectrum_spawner.outbox import Outbox
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.profiles import Profile, cpu_profiles
from spectrum_spawner.progress import Journal
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.run import Run
from spectrum_spawner.server_manifest import GROUP_ID, USER_ID, make_server_pod
from spectrum_spawner.teams import Team
from spectrum_spawner.views import Views

NOTIFY_AGAIN = 5.0  # seconds until an end that could not be confirmed is looked at again

_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SpectrumSpawner(KubeSpawner):
    """Runs a person's server as a pod in the namespace of the team that they chose."""

    profiles = Dict(
        config=True,
        help="""
        Sizes of server that teams may start: a table of name to record, as in the chart's
        `profiles` (title, description, gpu, gpuResource, gpuProduct, cpu, memory, sharedMemory,
        images, nodeSelector, tolerations, teams, default). CPU in cores, memory as `2Gi`.
        Each profile names its images by their key in `images`.
        """,
    )
    images = Dict(
        config=True,
        help="""
        Images that profiles refer to: a table of name to record, as in the chart's `images`
        (title, image, python, pullPolicy).
        """,
    )
    hub_namespace = Unicode(
        config=True,
        help="""
        Namespace in which the hub runs, where Team objects and the GPU inventory are read. It
        also marks every object as this hub's, so that two hubs on one cluster never meet.
        Default: $POD_NAMESPACE, else the namespace of the hub's service account.
        """,
    )
    contact = Unicode(
        "your cluster administrators",
        config=True,
        help="Whom the spawn page tells a person in no team to ask; plain text.",
    )
    home_size = Unicode(
        "10Gi",
        config=True,
        help="""
        Size of a new home, unless the Team says otherwise (`spec.storage.home.size`). Homes that
        exist keep theirs.
        """,
    )
    home_storage_class = Unicode(
        "",
        config=True,
        help="""
        Storage class of a new home, unless the Team says otherwise. It must offer ReadWriteMany.
        Default: the cluster's default class.
        """,
    )
    proxy_url = Unicode(
        config=True,
        help="""
        Where servers reach the proxy, without a path, such as `http://proxy-public.spectrum`.
        Default: nowhere, and servers are not told of the service.
        """,
    )
    audit_file = Unicode(
        "audit.sqlite",
        config=True,
        help="File in which audit records wait for the ledger; it must survive the hub.",
    )
    audit_url = Unicode(
        config=True,
        help="Where audit records are sent. Default: nowhere, they stay in `audit_file`.",
    )
    audit_token = Unicode(
        config=True,
        help="Bearer token of the hub for all that it sends to the service or reads there.",
    )
    notices_url = Unicode(
        config=True,
        help="Where the notices for the home page are read. Default: nowhere, there are none.",
    )
    keep_url = Unicode(
        config=True,
        help="Where one click on the home page keeps an idle server. Default: nowhere, none ends.",
    )
    continue_url = Unicode(
        config=True,
        help="Where one click on the home page restarts a server without a GPU. Default: nowhere.",
    )
    volumes_url = Unicode(
        config=True,
        help="Where the home page's figures of volumes are read. Default: nowhere, there are none.",
    )

    _known_profiles: dict[str, Profile] | None = None
    _choice: Choice | None = None
    _run: Run | None = None
    _subject = ""
    _last_end: End | None = None
    _is_starting = False
    # JupyterHub's task for a stop that a request asked for; its own stops have none
    _stop_future: asyncio.Future[None] | None = None
    _end_watch: asyncio.Task[None] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.oauth_client_id = names.oauth_client(self.user.name, self.name)
        self._journal = Journal()
        # both begin with the first server that a hub knows, whoever's it is
        self._outbox = Outbox.shared(self.audit_file, self.audit_url, self.audit_token)
        self._notices = Notices.shared(self.notices_url, self.audit_token)
        # what JupyterHub stored before anybody asked for anything else
        self._accepted: dict[str, Any] = dict(self.user_options)

    @default("hub_namespace")
    def _hub_namespace_default(self) -> str:
        return os.environ.get("POD_NAMESPACE") or _NAMESPACE_FILE.read_text().strip()

    @default("cmd")
    def _cmd_default(self) -> list[str]:
        return ["spectrum-singleuser"]

    @default("uid")
    def _uid_default(self) -> int:
        return USER_ID

    @default("gid")
    def _gid_default(self) -> int:
        return GROUP_ID

    @default("apply_user_options")
    def _apply_user_options_default(self) -> Any:
        # start() authorises and applies them: JupyterHub logs a traceback for whatever is
        # raised in this hook, and a refusal is no fault
        return lambda spawner, options: None

    @default("options_form")
    def _options_form_default(self) -> Any:
        return _render_form

    @default("options_from_form")
    def _options_from_form_default(self) -> Any:
        return _options_from_form

    @property
    def views(self) -> Views:
        return Views.shared(self.hub_namespace)

    @property
    def known_profiles(self) -> dict[str, Profile]:
        if self._known_profiles is None:
            self._known_profiles = read_profiles(self.profiles, self.images)
        return self._known_profiles

    @property
    def facts(self) -> dict[str, Any]:
        """What the server is, for the home page (see `form.server_facts`)."""
        return form.server_facts(
            self._accepted, teams=self.views.teams, profiles=self.known_profiles
        )

    @property
    def may_continue(self) -> bool:
        """Whether the server holds GPUs, and its team may have it without."""
        profile, team = self.known_profiles.get(self._accepted.get("profile", "")), self.team
        if not self.continue_url or profile is None or not profile.gpu or team is None:
            return False
        return bool(cpu_profiles(team, self.known_profiles))

    @property
    def notices(self) -> list[Notice]:
        """What the home page tells about the server: by the service, else by the hub itself."""
        told = self._notices.of(self.user.name, self.name)
        return told or notice_of_leaving(self.team, self.user.name, self.groups)

    def forget_notices(self) -> None:
        """What the service told is no longer so; it is asked again soon."""
        self._notices.forget(self.user.name, self.name)

    @property
    def end(self) -> End | None:
        """What the home page tells of the last end; nobody is told of their own stop."""
        end = self._find_end()
        return None if end is None or end.by == f"user:{self.user.name}" else end

    def _find_end(self) -> End | None:
        told = None if self._run is None else self._run.trail.last
        return told or self._last_end

    @property
    def again(self) -> dict[str, str] | None:
        """What starts the server as it was, where the home page tells of its end."""
        return dict(self._accepted) if self._accepted and self.end is not None else None

    @property
    def team(self) -> Team | None:
        """The team in which the server was started last; None while nobody knows it."""
        return self.views.teams.get(self._accepted.get("team", ""))

    @property
    def guests(self) -> dict[str, datetime]:
        """With whom the owner shares the server until when."""
        return sharing.list_guests(self.orm_spawner)

    @property
    def lent(self) -> "list[tuple[SpectrumSpawner, datetime]]":
        """Servers that others share with the owner, each until when; for the home page."""
        users = self.user.settings["users"]
        return [
            (users[share.owner_id].spawners[share.spawner.name], until)
            for share, until in sharing.list_lent(self.user.orm_user)
        ]

    @property
    def teammates(self) -> list[str]:
        """With whom the owner may share the server."""
        session = object_session(self.orm_spawner)
        if self.team is None or session is None:
            return []
        return sharing.list_teammates(session, self.user.name, self.team)

    def tell(self, action: str, *, actor: str, reason: str, **details: str) -> None:
        """Have the audit hear of something that was done to the server."""
        self._outbox.append(
            make_record(
                writer="hub",
                action=action,
                actor=actor,
                user=self.user.name,
                server=self.name,
                team=self._accepted.get("team", ""),
                reason=reason,
                details=details,
            )
        )

    @property
    def team_servers(self) -> "list[SpectrumSpawner]":
        """Servers of the owner's teams, which they may start, open and stop; for the home page."""
        users = self.user.settings["users"]
        found = [
            users[share.owner_id].spawners[share.spawner.name]
            for share in self.user.shared_with_me
            if accounts.is_account(share.owner.name)
        ]
        return sorted(found, key=lambda each: (each.team_title.casefold(), each.name))

    @property
    def team_title(self) -> str:
        """What people call the team of a team's account; its name while the team is not known."""
        team = self.views.teams.get(self.team_name)
        return team.display_name if team else self.team_name

    @property
    def team_name(self) -> str:
        """The team whose account has this server, "" for a person's."""
        return accounts.team_of(self.user.name) or ""

    @property
    def requests_url(self) -> str:
        """Page of the service where quota, profiles and teams are asked for."""
        return f"{self._service_path}requests"

    @property
    def _service_path(self) -> str:
        return f"{self.hub.base_url.removesuffix('hub/')}services/spectrum/"

    @property
    def groups(self) -> list[str]:
        """Groups that the owner of the server is in now."""
        return [group.name for group in self.user.groups]

    @property
    def last_team(self) -> object:
        """Team of the server's last start, else of the owner's last used other server."""
        if self._accepted:
            return self._accepted.get("team")
        used = [s for s in self.user.orm_spawners.values() if s.user_options and s.last_activity]
        last = max(used, key=lambda spawner: spawner.last_activity, default=None)
        return last and last.user_options.get("team")

    async def find_teams(self) -> list[Team]:
        """Teams that the owner of the server is in now."""
        return await find_teams(self.views, self.user.name, self.groups)

    async def load_user_options(self) -> None:
        """Authorise what was asked for, for the owner of the server as of now.

        Raises Refusal before anything is created; what JupyterHub stored by then is put back.
        """
        asked = self.user_options
        try:
            await identity.check_known(self.user)
            subject = await identity.subject_of(self.user)
            choice = await admit(
                self.views,
                asked,
                user=self.user.name,
                subject=subject,
                server=self.name,
                groups=self.groups,
                profiles=self.known_profiles,
                last_team=self.last_team,
            )
        except Refusal as refusal:
            self._store_options(self._accepted)
            self._tell_refusal(refusal, asked, by=actor.current())
            if actor.errand():
                # whom the service asks for reads no answer of the hub
                self._last_end = trail.end_of_refusal(refusal.jupyterhub_message)
            raise
        self._subject = subject
        self._accepted = choice.as_options()
        self._store_options(self._accepted)
        self._apply(choice)

    def _tell_refusal(self, refusal: Refusal, asked: Any, *, by: str) -> None:
        refusal.link(self.requests_url, asked)
        trail.tell_refusal(
            self._outbox,
            actor=by,
            user=self.user.name,
            server=self.name,
            asked=asked,
            sentence=refusal.jupyterhub_message,
            reason=refusal.reason,
        )

    def _store_options(self, options: dict[str, Any]) -> None:
        self.user_options = options
        self.orm_spawner.user_options = options
        self._commit()

    def _apply(self, choice: Choice) -> None:
        """Set everything that depends on the choice, anew at each start."""
        team, profile = choice.team, choice.profile
        assert team.namespace is not None
        self._choice = choice
        self.namespace = team.namespace
        self.pod_name = names.server_name(self.user.name, self.name)
        self.dns_name = self.dns_name_template.format(namespace=self.namespace, name=self.pod_name)
        # JupyterHub tells these to the server by environment variables
        self.image = choice.image.image
        self.mem_limit = profile.memory_limit or 0
        self.mem_guarantee = profile.memory_guarantee or 0
        self.cpu_limit = profile.cpu_limit or 0
        self.cpu_guarantee = profile.cpu_guarantee or 0

    def _owner(self, team: str) -> Owner:
        return Owner(
            hub=self.hub_namespace,
            team=team,
            user=self.user.name,
            server=self.name,
            subject=self._subject,
        )

    async def get_server_manifest(
        self, mounts: Sequence[Mount], *, start_id: str
    ) -> dict[str, Any]:
        """The pod as a plain dict: KubeSpawner's manifest, finished by ours."""
        choice = self._choice
        assert choice is not None
        base = await self.get_pod_manifest()
        if self.modify_pod_hook:
            base = await maybe_future(self.modify_pod_hook(self, base))
        return make_server_pod(
            self.views.client.to_dict(base),
            owner=self._owner(choice.team.name),
            choice=choice,
            mounted=mounts,
            service_url=self.proxy_url and f"{self.proxy_url}{self._service_path}",
            start_id=start_id,
        )

    def get_claim_manifests(self, choice: Choice) -> list[dict[str, Any]]:
        """The claims that the server needs of its owner, as they are made where there are none."""
        return storage.make_claims(
            self._owner(choice.team.name),
            choice,
            home_size=self.home_size,
            home_storage_class=self.home_storage_class,
        )

    async def start(self) -> str:
        """Start the pod and return its URL.

        After a failed start JupyterHub calls `stop`, so that it ends with the pod confirmed gone.
        """
        self._is_starting, self._run = True, None
        until = asyncio.get_running_loop().time() + self.start_timeout
        try:
            await self.load_user_options()
            return await self._start_pod(until)
        finally:
            self._is_starting = False
            self._journal.end()

    async def _start_pod(self, until: float) -> str:
        choice = self._choice
        assert choice is not None
        self._last_end = None
        run = self._run = Run(
            self.views,
            self._outbox,
            self._owner(choice.team.name),
            namespace=self.namespace,
            pod_name=self.pod_name,
            start_id=uuid.uuid4().hex,
        )
        start = Start(
            views=self.views,
            pod=run.pod,
            choice=choice,
            journal=self._journal,
            trail=run.trail,
            actor=actor.current(),
            find_url=self._find_url,
        )
        run.trail.ask(choice, actor=start.actor, errand=actor.errand())
        try:
            self._save_state()  # a hub that dies now finds the pod again by its start id
            ready = await start.run(
                claims=self.get_claim_manifests(choice),
                make_manifest=partial(self.get_server_manifest, start_id=run.pod.start_id),
                until=until,
                http_timeout=self.http_timeout,
            )
        except Exception as error:
            if isinstance(error, Refusal):
                error.link(self.requests_url, choice.as_options())
            run.trail.refuse(f"The start failed: {error}", actor=start.actor)  # if still untold
            raise
        run.is_up = True
        return self._find_url(ready)

    def _find_url(self, pod: Pod) -> str:
        return f"http://{fmt_ip_url(pod.ip)}:{self.port}{self.server.base_url}"

    def _save_state(self) -> None:
        self.orm_spawner.state = self.get_state()
        self._commit()

    def _commit(self) -> None:
        session = object_session(self.orm_spawner)
        assert session is not None
        session.commit()

    async def stop(self, now: bool = False) -> None:
        """Return once the pod is confirmed gone, however long that takes.

        `now` changes nothing: a server always has the time to end that its pod grants it.
        """
        run = self._run
        if run is None or not run.pod.may_exist:
            return
        try:
            run.tell_end(asked_by=self._asked_by, errand=actor.errand())
            run.is_stopping = True
            self._save_state()  # the next hub finishes what this one may not
        except Exception:
            # raised, it would make JupyterHub forget a server that runs
            self.log.exception("The stop of %s was not noted down", self._log_name)
        await run.stop()

    @property
    def _asked_by(self) -> str:
        """Who asked for the stop under way, "" if it is the hub's own doing."""
        return "" if self._stop_future is None else actor.current()

    @property
    def server(self) -> Any:
        """JupyterHub's record of where the server is: that there is one is its record of it."""
        return Spawner.server.fget(self)

    @server.setter
    def server(self, server: Any) -> None:
        # JupyterHub takes any end of `stop` for the end of the server, and wipes what it knows.
        # After a stop that only ended with the hub itself, that is left to the next hub.
        if server is None and self._run is not None and self._run.is_cut_off:
            raise asyncio.CancelledError(f"the stop of {self._log_name} was cut off")
        Spawner.server.fset(self, server)

    async def poll(self) -> ExitStatus | None:
        """None while the server runs, starts, or nobody knows; else its exit status."""
        if self._run is None:
            return ExitStatus(None, "it was not started")
        if self._is_starting and self._run.pod.may_exist:
            return None
        return await self._run.poll()

    async def get_url(self) -> str:
        """Where the server is. Of one that a former hub was still starting, its pod will tell."""
        if self._run is None or self._run.is_stopping:
            return self.server.url
        seen = self._run.pod.seen
        if not self.server.ip:
            try:
                seen = await self._run.pod.wait_ready(
                    timeout=self.start_timeout, mounting=Mounting()
                )
            except Refusal as refusal:
                self._run.failure = refusal.jupyterhub_message
        if seen is None or not seen.ready or seen.ip == self.server.ip:
            return self.server.url
        return self._find_url(seen)

    def start_polling(self) -> None:
        """Look now and then, as JupyterHub does, and at once when the view sees the end."""
        super().start_polling()
        if self._run is not None and self._run.is_stopping:
            self._stop_pending = True  # shown as what it is
        if self._end_watch is None and self._run is not None:
            self._end_watch = asyncio.create_task(self._notify_end(self._run))

    def stop_polling(self) -> None:
        super().stop_polling()
        watch, self._end_watch = self._end_watch, None
        # the watch itself may be what leads here
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    async def _notify_end(self, run: Run) -> None:
        while True:
            await run.wait_over()
            if await self.poll_and_notify() is not None:
                return
            await asyncio.sleep(NOTIFY_AGAIN)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        async for percent, sentence in self._journal.follow():
            yield {"progress": percent, "message": sentence}

    def get_state(self) -> dict[str, Any]:
        """What finds the running pod again, and how the last one ended.

        It never decides what the next start does.
        """
        state = Spawner.get_state(self)
        if self._run is not None:
            state |= {**self._run.state, "options": self._accepted, "subject": self._subject}
        end = self._find_end()
        return state | end.state if end is not None else state

    def load_state(self, state: dict[str, Any]) -> None:
        Spawner.load_state(self, state)
        self._last_end = End.from_state(state)
        if "start_id" not in state:
            return
        self.namespace, self.pod_name = state["namespace"], state["pod_name"]
        self._accepted = state["options"]
        self._subject = state.get("subject", "")
        self._run = Run.from_state(self.views, self._outbox, self._owner(state["team"]), state)

    def clear_state(self) -> None:
        Spawner.clear_state(self)
        if self._run is not None and not self._run.trail.is_over:
            # before there was a pod to stop
            self._run.tell_end(asked_by=self._asked_by, errand=actor.errand())
        self._last_end = self._find_end()
        self._run = None
        self._choice = None
        self._journal = Journal()

    async def delete_forever(self) -> None:
        """Keep the home: data is never deleted by name."""


async def _render_form(spawner: SpectrumSpawner) -> str:
    context = form.form_context(
        teams=await spawner.find_teams(),
        profiles=spawner.known_profiles,
        inventory=spawner.views.inventory,
        saved=spawner._accepted or {"team": spawner.last_team},
        server=spawner.name,
        contact=spawner.contact,
        requests_url=spawner.requests_url,
    )
    return form.render(context)


def _options_from_form(formdata: dict[str, list[str]], spawner: SpectrumSpawner) -> dict[str, str]:
    try:
        return form.options_from_form(formdata)
    except OptionError as error:
        refusal = refusal_of_options(error)
        spawner._tell_refusal(refusal, formdata, by=actor.of(spawner.handler))
        raise refusal from error
