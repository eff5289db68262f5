"""A start from the home to the first answer, and whether a server still runs."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from spectrum_spawner import names
from spectrum_spawner.answering import wait_for_answer
from spectrum_spawner.choice import Choice
from spectrum_spawner.diagnosis import ExitStatus, why_ended, why_gone
from spectrum_spawner.disks import why_in_use
from spectrum_spawner.homes import ensure_claims
from spectrum_spawner.kube import NotFound, Object, Refused
from spectrum_spawner.mounting import Mounting
from spectrum_spawner.mounts import Mount, mounts_of
from spectrum_spawner.pods import Pod
from spectrum_spawner.progress import Journal, narrate
from spectrum_spawner.quota import find_holders, quota_sentence
from spectrum_spawner.refusals import Refusal, find_exceeded, refusal_of
from spectrum_spawner.server_pod import ServerPod
from spectrum_spawner.trail import Trail
from spectrum_spawner.views import Views

CLEANUP_TIME = 10.0  # seconds of a start that are kept for its end, should it fail
CATCH_UP = 1.0  # seconds that the view may take to show who was quicker


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of one server, by `actor`. `find_url` gives the address of a ready pod."""

    views: Views
    pod: ServerPod
    choice: Choice
    journal: Journal
    trail: Trail
    actor: str
    find_url: Callable[[Pod], str]

    async def run(
        self,
        *,
        claims: Sequence[Object],
        make_manifest: Callable[[Sequence[Mount]], Awaitable[Object]],
        until: float,
        http_timeout: float,
    ) -> Pod:
        """The pod once the server answers. Raises Refusal, with the pod gone or being deleted.

        `claims` are the person's, as they are made where there are none: a home, and maybe a
        scratch disk. `make_manifest` makes the pod that mounts what was found.

        It returns or raises before `until` (of the loop's clock). A pod that is not gone by then
        is left to whoever gets the Refusal: `ServerPod.delete` waits for the rest. Cancelled, it
        leaves the pod to the same.
        """
        left = until - asyncio.get_running_loop().time()
        timeout = max(left - CLEANUP_TIME, left / 2)
        try:
            async with asyncio.timeout(timeout) as whole:
                mounting = await self._prepare_mounts(claims)
                await self._create(await make_manifest(mounting.mounts))
                # a little before the whole, so that the better sentence wins
                left = (whole.when() or 0.0) - asyncio.get_running_loop().time() - 0.5
                ready = await self._wait_ready(mounting, timeout=left)
                await self._wait_answering(ready, http_timeout)
                return ready
        except TimeoutError:
            late = f"The cluster did not answer within {timeout:.0f} seconds: try again later."
            await self._give_up(until, late)
            raise Refusal(late, reason="unreachable", status_code=503) from None
        except Refusal as refusal:
            await self._give_up(until, refusal.jupyterhub_message)
            raise
        except Exception as error:
            await self._give_up(until, f"The start failed: {error}")
            raise

    async def _prepare_mounts(self, claims: Sequence[Object]) -> Mounting:
        team, disk, namespace = self.choice.team, self.choice.scratch, self.pod.namespace
        self.journal.tell(5, f"Preparing your home in team {team.display_name}")
        found = await ensure_claims(self.views.client, claims, namespace=namespace, team=team)
        home, *others = (claim["metadata"]["name"] for claim in found)
        scratch = others[0] if others else ""
        view = self.views.pods(namespace)
        # of somebody who was renamed, admission did not know the claim
        if disk and (in_use := why_in_use(disk, scratch, view, own=self.pod.owner)):
            raise Refusal(in_use, reason="in-use", status_code=409)
        left_out = self.views.outages.find(namespace, now=asyncio.get_running_loop().time())
        self._tell_left_out(left_out)
        mounts = mounts_of(team, home=home, scratch=scratch, disk=disk, left_out=left_out)
        mounting = Mounting(mounts, namespace=namespace, pods=view)
        for claim in found:
            mounting.note_claim(claim)
        return mounting

    def _tell_left_out(self, claims: Mapping[str, str]) -> None:
        """Say without what the server starts; `claims` are the datasets that nodes cannot mount."""
        team = self.choice.team
        missing = [(each.title, each.why) for each in team.withheld]
        missing += [
            (f"dataset “{each.name}”", f"It could not be mounted: {claims[each.claim]}.")
            for each in team.datasets
            if each.claim in claims
        ]
        for title, why in missing:
            self.journal.tell(8, f"Starting without {title}, which is not ready: {why}")

    async def _create(self, manifest: Object) -> None:
        try:
            await self.pod.create(manifest, tell=self.journal.tell, on_left_over=self.trail.replace)
        except (Refused, NotFound) as error:
            raise await self._say_refused(error) from error

    async def _say_refused(self, error: Refused | NotFound) -> Refusal:
        refusal = refusal_of(error, team=self.choice.team.display_name, what="your server")
        key = names.gpu_quota_key(self.choice.profile.gpu_resource)
        exceeded = find_exceeded(error)
        if exceeded is None or not exceeded.counts(key):
            return refusal
        return Refusal(
            await self._say_gpus(used=int(exceeded.used[key]), hard=int(exceeded.limited[key])),
            reason=refusal.reason,
            status_code=refusal.status_code,
            log_message=str(error),
            request=refusal.request,
        )

    async def _say_gpus(self, *, used: int, hard: int) -> str:
        """Who has the GPUs, as admission would have said it had it come a moment later."""
        resource = self.choice.profile.gpu_resource
        view = self.views.pods(self.pod.namespace)

        def are_known() -> bool:
            return sum(pod.gpus[resource] for pod in find_holders(view, resource)) >= used

        with suppress(TimeoutError):
            await view.wait(are_known, timeout=CATCH_UP)
        holders, user = find_holders(view, resource), self.pod.owner.user
        now = datetime.now(UTC)
        return quota_sentence(self.choice, holders, used=used, hard=hard, user=user, now=now)

    async def _wait_ready(self, mounting: Mounting, *, timeout: float) -> Pod:
        telling = asyncio.create_task(
            narrate(
                self.views,
                namespace=self.pod.namespace,
                pod_name=self.pod.name,
                owner=self.pod.owner,
                mounting=mounting,
                seen=lambda: self.pod.seen,
                choice=self.choice,
                tell=self.journal.tell,
            )
        )
        try:
            return await self.pod.wait_ready(timeout=timeout, mounting=mounting)
        except Refusal:
            failed = mounting.find_unmountable(self.pod.seen)
            now = asyncio.get_running_loop().time()
            self.views.outages.note(self.pod.namespace, failed, now=now)
            raise
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _wait_answering(self, ready: Pod, timeout: float) -> None:
        self.journal.tell(90, "Starting JupyterLab")
        url = self.find_url(ready)
        answer = asyncio.create_task(wait_for_answer(self.views.http, f"{url}api"))
        ended = asyncio.create_task(self.pod.wait_ended())
        try:
            await asyncio.wait(
                {answer, ended}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            answer.cancel()
            ended.cancel()
            await asyncio.gather(answer, ended, return_exceptions=True)
        if not ended.cancelled():
            raise Refusal(
                f"Your server ended while it was starting: {self._say_end()}.",
                reason="pod",
                status_code=409,
            )
        if answer.cancelled():
            raise Refusal(
                f"Your server runs but did not answer within {timeout:.0f} seconds: "
                "try again, and ask a cluster administrator if this stays.",
                reason="http",
                status_code=409,
                log_message=url,
            )

    def _say_end(self) -> str:
        seen = self.pod.seen
        return why_ended(seen) if seen is not None else why_gone(self.pod.last_seen)

    async def _give_up(self, until: float, why: str) -> None:
        """End the pod, but not at any price: too late nobody would be told why."""
        if not self.pod.may_exist:
            self.trail.refuse(why, actor=self.actor)
            return
        self.trail.end(why)
        self.journal.tell(95, "Cleaning up")
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until - 1):
                await self.pod.delete()


async def find_end(pod: ServerPod, trail: Trail) -> ExitStatus | None:
    """How a server ended; None while it runs and whenever nobody knows."""
    seen = pod.seen
    if seen is not None and seen.ended and not pod.is_ending:
        cause = why_ended(seen)
        trail.end(cause)
        await pod.discard(seen)
        return ExitStatus(seen.exit_code, cause)
    if not await pod.is_gone():
        return None
    cause = why_gone(pod.last_seen)
    trail.end(cause)
    return ExitStatus(None, cause)
