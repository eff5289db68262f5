"""A start from the home to the first answer, and whether a server still runs."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from spectrum_spawner.answering import wait_for_answer
from spectrum_spawner.choice import Choice
from spectrum_spawner.diagnosis import ExitStatus, why_ended
from spectrum_spawner.homes import ensure_home
from spectrum_spawner.kube import Object
from spectrum_spawner.pods import Pod
from spectrum_spawner.progress import Journal, narrate
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.server_pod import ServerPod
from spectrum_spawner.views import Views

CLEANUP_TIME = 10.0  # seconds of a start that are kept for its end, should it fail


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of one server. `find_url` gives the address of a pod that is ready."""

    views: Views
    pod: ServerPod
    choice: Choice
    journal: Journal
    find_url: Callable[[Pod], str]

    async def run(
        self,
        *,
        claim: Object,
        manifest: Object,
        until: float,
        http_timeout: float,
    ) -> Pod:
        """The pod once the server answers. Raises Refusal, with the pod gone or being deleted.

        It returns or raises before `until` (of the loop's clock). A pod that is not gone by then
        is left to whoever gets the Refusal: `ServerPod.delete` waits for the rest. Cancelled, it
        leaves the pod to the same.
        """
        left = until - asyncio.get_running_loop().time()
        timeout = max(left - CLEANUP_TIME, left / 2)
        try:
            async with asyncio.timeout(timeout) as whole:
                self._tell_home()
                await ensure_home(self.views.client, claim, namespace=self.pod.namespace)
                await self.pod.create(manifest, tell=self.journal.tell)
                # a little before the whole, so that the better sentence wins
                left = (whole.when() or 0.0) - asyncio.get_running_loop().time() - 0.5
                ready = await self._wait_ready(claim, timeout=left)
                await self._wait_answering(ready, http_timeout)
                return ready
        except TimeoutError:
            await self._give_up(until)
            raise Refusal(
                f"The cluster did not answer within {timeout:.0f} seconds: try again later.",
                reason="unreachable",
                status_code=503,
            ) from None
        except Exception:
            await self._give_up(until)
            raise

    def _tell_home(self) -> None:
        self.journal.tell(5, f"Preparing your home in team {self.choice.team.display_name}")

    async def _wait_ready(self, claim: Object, *, timeout: float) -> Pod:
        telling = asyncio.create_task(
            narrate(
                self.views,
                namespace=self.pod.namespace,
                pod_name=self.pod.name,
                claim=claim["metadata"]["name"],
                seen=lambda: self.pod.seen,
                choice=self.choice,
                tell=self.journal.tell,
            )
        )
        try:
            return await self.pod.wait_ready(timeout=timeout)
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
        return why_ended(seen) if seen is not None else "its pod was deleted"

    async def _give_up(self, until: float) -> None:
        """End the pod, but not at any price: too late nobody would be told why."""
        if self.pod.may_exist:
            self.journal.tell(95, "Cleaning up")
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until - 1):
                    await self.pod.delete()


async def find_end(pod: ServerPod) -> ExitStatus | None:
    """How a server ended; None while it runs and whenever nobody knows."""
    seen = pod.seen
    if seen is not None and seen.ended and not pod.is_ending:
        await pod.discard(seen)
        return ExitStatus(seen.exit_code, why_ended(seen))
    return ExitStatus(None, "its pod was deleted") if await pod.is_gone() else None
