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
from traitlets import Dict, Unicode, default

from spectrum_spawner import form, names, storage
from spectrum_spawner.answering import wait_for_answer
from spectrum_spawner.diagnosis import ExitStatus, why_ended, why_never_fits
from spectrum_spawner.homes import ensure_home
from spectrum_spawner.lifecycle import ServerPod
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import GROUP_ID, USER_ID, Pod, make_server_pod
from spectrum_spawner.profiles import Choice, OptionError, Profile, choose, read_profiles
from spectrum_spawner.progress import Journal, narrate
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.teams import Team, teams_of
from spectrum_spawner.views import Views

VIEW_PATIENCE = 8.0  # seconds to wait for a view or a team, below JupyterHub's slow_spawn_timeout
CLEANUP_TIME = 10.0  # seconds before start_timeout at which a start gives up by itself
MAX_SERVER_NAME = 253

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

    async def my_teams(self) -> list[Team]:
        """Teams that the owner of the server is in now; raises Refusal if nobody knows."""
        views = self.views
        with suppress(TimeoutError):
            await views.teams.wait_synced(VIEW_PATIENCE)
        if not views.teams.synced:
            raise Refusal(
                "The hub cannot read the teams from the cluster right now: try again in a minute.",
                reason="unreachable",
                status_code=503,
                log_message=views.teams.error,
            )
        return teams_of((group.name for group in self.user.groups), views.teams)

    async def load_user_options(self) -> None:
        """Authorise what was asked for, for the owner of the server as of now.

        Raises Refusal before anything is created; what JupyterHub stored by then is put back.
        """
        try:
            _check_server_name(self.name)
            choice = choose(
                self.user_options,
                teams=await self.my_teams(),
                profiles=self.known_profiles,
                last_team=self._accepted.get("team"),
            )
        except OptionError as error:
            self._store_options(self._accepted)
            raise Refusal(str(error), reason="options", status_code=error.status) from error
        except Refusal:
            self._store_options(self._accepted)
            raise
        self._accepted = choice.as_options()
        self._store_options(self._accepted)
        if never := why_never_fits(choice.profile, self.views.inventory):
            raise Refusal(never, reason="capacity", status_code=409)
        self._apply(await self._prepared(choice))

    def _store_options(self, options: dict[str, Any]) -> None:
        self.user_options = options
        self.orm_spawner.user_options = options
        self.db.commit()

    async def _prepared(self, choice: Choice) -> Choice:
        """The choice with its team once the controller has prepared it."""
        view, name = self.views.teams, choice.team.name

        def prepared() -> Team | None:
            team = view.get(name)
            return team if team is not None and team.ready and team.namespace else None

        try:
            team = await view.wait(prepared, key=name, timeout=VIEW_PATIENCE)
        except TimeoutError:
            known = view.get(name)
            why = f" ({known.message})" if known is not None and known.message else ""
            raise Refusal(
                f"Team {choice.team.display_name} is not ready yet{why}: try again in a moment, "
                "and ask a cluster administrator if this stays.",
                reason="team",
                status_code=409,
            ) from None
        assert team is not None
        return Choice(team=team, profile=choice.profile, image=choice.image)

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

    async def start(self) -> str:
        """Start the pod and return its URL; a failed start ends with the pod confirmed gone."""
        self._starting, self._ended = True, None
        try:
            await self.load_user_options()
            return await self._start_pod()
        finally:
            self._starting = False
            self._journal.end()

    async def _start_pod(self) -> str:
        timeout = max(self.start_timeout - CLEANUP_TIME, self.start_timeout / 2)
        choice = self._choice
        assert choice is not None
        pod = self._pod = self._server_pod(team=choice.team.name, start_id=uuid.uuid4().hex)
        try:
            async with asyncio.timeout(timeout) as whole:
                await self._create(pod, choice)
                until = whole.when()
                assert until is not None
                # a little before the whole, so that the better sentence wins
                left = until - asyncio.get_running_loop().time() - 0.5
                ready = await self._wait_ready(pod, choice, timeout=left)
                url = f"http://{fmt_ip_url(ready.ip)}:{self.port}"
                await self._wait_answering(pod, url + self.server.base_url)
        except TimeoutError:
            await self._give_up(pod)
            raise Refusal(
                f"The cluster did not answer within {timeout:.0f} seconds: try again later.",
                reason="unreachable",
                status_code=503,
            ) from None
        except Exception:
            await self._give_up(pod)
            raise
        return url

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

    async def _create(self, pod: ServerPod, choice: Choice) -> None:
        tell = self._journal.tell
        tell(5, f"Preparing your home in team {choice.team.display_name}")
        claim = storage.make_home_claim(
            pod.owner,
            team_uid=choice.team.uid,
            size=choice.team.home_size or self.home_size,
            storage_class=choice.team.home_storage_class or self.home_storage_class,
        )
        await ensure_home(self.views.client, claim, namespace=pod.namespace)
        manifest = await self.get_server_manifest(start_id=pod.start_id)
        self._save_state()  # a hub that dies now finds the pod again by its start id
        await pod.create(manifest, tell=tell)
        self._save_state()

    def _save_state(self) -> None:
        self.orm_spawner.state = self.get_state()
        self.db.commit()

    async def _wait_ready(self, pod: ServerPod, choice: Choice, *, timeout: float) -> Pod:
        telling = asyncio.create_task(
            narrate(
                self.views,
                namespace=pod.namespace,
                pod_name=pod.name,
                claim=self.pvc_name,
                seen=lambda: pod.seen,
                choice=choice,
                tell=self._journal.tell,
            )
        )
        try:
            return await pod.wait_ready(timeout=timeout)
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _wait_answering(self, pod: ServerPod, url: str) -> None:
        self._journal.tell(90, "Starting JupyterLab")
        answer = asyncio.create_task(wait_for_answer(self.views.http, f"{url}api"))
        ended = asyncio.create_task(pod.wait_ended())
        try:
            await asyncio.wait(
                {answer, ended}, timeout=self.http_timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)
        if not ended.cancelled():
            seen = pod.seen
            why = why_ended(seen) if seen is not None else "its pod was deleted"
            raise Refusal(
                f"Your server ended while it was starting: {why}.", reason="pod", status_code=409
            )
        if answer.cancelled():
            raise Refusal(
                f"Your server runs but did not answer within {self.http_timeout} seconds: "
                "try again, and ask a cluster administrator if this stays.",
                reason="http",
                status_code=409,
                log_message=url,
            )

    async def _give_up(self, pod: ServerPod) -> None:
        if pod.may_exist:
            self._journal.tell(95, "Cleaning up")
            await pod.delete()
        self._pod = None

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
            return (
                self._ended if self._ended is not None else ExitStatus(None, "it was not started")
            )
        if self._starting:
            return None
        with suppress(TimeoutError):
            await self.views.pods(pod.namespace).wait_synced(VIEW_PATIENCE)
        seen = pod.seen
        if self._ended is None and seen is not None and seen.ended:
            self._ended = ExitStatus(seen.exit_code, why_ended(seen))
            await pod.discard()
        elif self._ended is None and await pod.is_gone():
            self._ended = ExitStatus(None, "its pod was deleted")
        return self._ended

    async def get_url(self) -> str:
        """Where the server is, which only its pod knows if the hub ended while it started."""
        seen = self._pod.seen if self._pod is not None else None
        if seen is None or not seen.ready or seen.ip == self.server.ip:
            return self.server.url
        return f"http://{fmt_ip_url(seen.ip)}:{self.port}{self.server.base_url}"

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
        if self._pod is not None and self._pod.may_exist:
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
        teams=await spawner.my_teams(),
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


def _check_server_name(name: str) -> None:
    """A server's name goes into annotations and URLs: printable, and of bounded length."""
    if len(name) > MAX_SERVER_NAME or not all(c.isprintable() for c in name):
        raise OptionError(
            f"The name of a server has at most {MAX_SERVER_NAME} characters, all of them printable."
        )
