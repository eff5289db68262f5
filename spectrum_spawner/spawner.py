"""SpectrumSpawner: JupyterHub's seams, each of which delegates.

Of KubeSpawner it keeps the traits, the environment and the pod manifest. Start, stop, poll and
progress are our own (`lifecycle`, `progress`), and stand on the views that all spawners share.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyterhub.spawner import Spawner
from jupyterhub.utils import fmt_ip_url, maybe_future
from kubespawner import KubeSpawner
from sqlalchemy.orm import object_session
from traitlets import Dict, Unicode, default

from spectrum_spawner import form, names, storage
from spectrum_spawner.admission import admit, find_teams
from spectrum_spawner.choice import Choice, OptionError
from spectrum_spawner.diagnosis import ExitStatus
from spectrum_spawner.lifecycle import Start, find_end
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import GROUP_ID, USER_ID, Pod, make_server_pod
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.profiles import Profile
from spectrum_spawner.progress import Journal
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.server_pod import ServerPod
from spectrum_spawner.teams import Team
from spectrum_spawner.views import Views

SYNC_PATIENCE = 5.0  # seconds that a poll waits for the first list of a view

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

    _known_profiles: dict[str, Profile] | None = None
    _choice: Choice | None = None
    _pod: ServerPod | None = None
    _starting = False
    _ended: ExitStatus | None = None
    _end_watch: asyncio.Task[None] | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._journal = Journal()
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
    def groups(self) -> list[str]:
        """Groups that the owner of the server is in now."""
        return [group.name for group in self.user.groups]

    async def find_teams(self) -> list[Team]:
        """Teams that the owner of the server is in now."""
        return await find_teams(self.views, self.groups)

    async def load_user_options(self) -> None:
        """Authorise what was asked for, for the owner of the server as of now.

        Raises Refusal before anything is created; what JupyterHub stored by then is put back.
        """
        try:
            choice = await admit(
                self.views,
                self.user_options,
                server=self.name,
                groups=self.groups,
                profiles=self.known_profiles,
                last_team=self._accepted.get("team"),
            )
        except Refusal:
            self._store_options(self._accepted)
            raise
        self._accepted = choice.as_options()
        self._store_options(self._accepted)
        self._apply(choice)

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
        self.pvc_name = names.home_claim(self.user.name)
        # JupyterHub tells these to the server by environment variables
        self.image = choice.image.image
        self.mem_limit = profile.memory_limit or 0
        self.mem_guarantee = profile.memory_guarantee or 0
        self.cpu_limit = profile.cpu_limit or 0
        self.cpu_guarantee = profile.cpu_guarantee or 0

    def _owner(self, team: str) -> Owner:
        return Owner(hub=self.hub_namespace, team=team, user=self.user.name, server=self.name)

    async def get_server_manifest(self, *, start_id: str) -> dict[str, Any]:
        """The pod as a plain dict: KubeSpawner's manifest, finished by ours."""
        choice = self._choice
        assert choice is not None
        base = await self.get_pod_manifest()
        if self.modify_pod_hook:
            base = await maybe_future(self.modify_pod_hook(self, base))
        return make_server_pod(
            self.views.client.to_dict(base),
            owner=self._owner(choice.team.name),
            team_uid=choice.team.uid,
            gid=choice.team.gid,
            choice=choice,
            claim=self.pvc_name,
            start_id=start_id,
        )

    def get_home_manifest(self, choice: Choice) -> dict[str, Any]:
        """The claim of the owner's home in the team, as it is made where there is none."""
        return storage.make_home_claim(
            self._owner(choice.team.name),
            team_uid=choice.team.uid,
            size=choice.team.home_size or self.home_size,
            storage_class=choice.team.home_storage_class or self.home_storage_class,
        )

    async def start(self) -> str:
        """Start the pod and return its URL.

        After a failed start JupyterHub calls `stop`, so that it ends with the pod confirmed gone.
        """
        self._starting, self._ended = True, None
        until = asyncio.get_running_loop().time() + self.start_timeout
        try:
            await self.load_user_options()
            return await self._start_pod(until)
        finally:
            self._starting = False
            self._journal.end()

    async def _start_pod(self, until: float) -> str:
        choice = self._choice
        assert choice is not None
        pod = self._pod = self._server_pod(team=choice.team.name, start_id=uuid.uuid4().hex)
        start = Start(
            views=self.views,
            pod=pod,
            choice=choice,
            journal=self._journal,
            find_url=self._find_url,
        )
        manifest = await self.get_server_manifest(start_id=pod.start_id)
        self._save_state()  # a hub that dies now finds the pod again by its start id
        ready = await start.run(
            claim=self.get_home_manifest(choice),
            manifest=manifest,
            until=until,
            http_timeout=self.http_timeout,
        )
        return self._find_url(ready)

    def _find_url(self, pod: Pod) -> str:
        return f"http://{fmt_ip_url(pod.ip)}:{self.port}{self.server.base_url}"

    def _server_pod(
        self, *, team: str, start_id: str, uid: str = "", may_exist: bool = False
    ) -> ServerPod:
        return ServerPod(
            client=self.views.client,
            view=self.views.pods(self.namespace),
            namespace=self.namespace,
            name=self.pod_name,
            owner=self._owner(team),
            start_id=start_id,
            uid=uid,
            may_exist=may_exist,
        )

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
        if self._pod is not None and self._pod.may_exist:
            await self._pod.delete()

    async def poll(self) -> ExitStatus | None:
        """None while the server runs, starts, or nobody knows; else its exit status."""
        pod = self._pod
        if pod is None or not pod.may_exist:
            return ExitStatus(None, "it was not started") if self._ended is None else self._ended
        if self._starting:
            return None
        with suppress(TimeoutError):
            await self.views.pods(pod.namespace).wait_synced(SYNC_PATIENCE)
        if self._ended is None:
            self._ended = await find_end(pod)
        return self._ended

    async def get_url(self) -> str:
        """Where the server is. Of one that a former hub was still starting, its pod will tell."""
        if self._pod is None:
            return self.server.url
        seen = self._pod.seen
        if not self.server.ip:
            with suppress(Refusal):
                seen = await self._pod.wait_ready(timeout=self.start_timeout)
        if seen is None or not seen.ready or seen.ip == self.server.ip:
            return self.server.url
        return self._find_url(seen)

    def start_polling(self) -> None:
        """Look now and then, as JupyterHub does, and at once when the view sees the end."""
        super().start_polling()
        if self._end_watch is None and self._pod is not None:
            self._end_watch = asyncio.create_task(self._notify_end(self._pod))

    def stop_polling(self) -> None:
        super().stop_polling()
        watch, self._end_watch = self._end_watch, None
        # the watch itself may be what leads here
        if watch is not None and watch is not asyncio.current_task():
            watch.cancel()

    async def _notify_end(self, pod: ServerPod) -> None:
        while True:
            await pod.wait_ended()
            if await self.poll_and_notify() is not None:
                return
            await asyncio.sleep(5)

    async def progress(self) -> AsyncIterator[dict[str, Any]]:
        async for percent, sentence in self._journal.follow():
            yield {"progress": percent, "message": sentence}

    def get_state(self) -> dict[str, Any]:
        """What finds the running pod again; it never decides what the next start does."""
        state = Spawner.get_state(self)
        if self._pod is not None:
            state |= {**self._pod.state, "options": self._accepted}
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        Spawner.load_state(self, state)
        if "start_id" not in state:
            return
        self.namespace, self.pod_name = state["namespace"], state["pod_name"]
        self._accepted = state["options"]
        self._pod = self._server_pod(
            team=state["team"], start_id=state["start_id"], uid=state["uid"], may_exist=True
        )

    def clear_state(self) -> None:
        Spawner.clear_state(self)
        self._pod = None
        self._choice = None
        self._journal = Journal()

    async def delete_forever(self) -> None:
        """Keep the home: data is never deleted by name."""


async def _render_form(spawner: SpectrumSpawner) -> str:
    context = form.form_context(
        teams=await spawner.find_teams(),
        profiles=spawner.known_profiles,
        inventory=spawner.views.inventory,
        saved=spawner._accepted,
        contact=spawner.contact,
    )
    return form.render(context)


def _options_from_form(formdata: dict[str, list[str]]) -> dict[str, str]:
    try:
        return form.options_from_form(formdata)
    except OptionError as error:
        raise Refusal(str(error), reason="options", status_code=error.status) from error
