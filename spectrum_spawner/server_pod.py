"""One server's pod from the request to make it until it is confirmed gone.

What holds throughout: a pod is only touched once its owner was compared; nothing is deleted
without its uid and never with grace 0; "gone" is only said when the API server says so; and
what nobody knows is waited for.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from spectrum_spawner import kube
from spectrum_spawner.diagnosis import WAS_DELETED, why_hopeless, why_stuck, why_waiting
from spectrum_spawner.kube import (
    AlreadyExists,
    Backoff,
    Client,
    Conflict,
    KubeError,
    NotFound,
    Object,
    Refused,
    Unreachable,
)
from spectrum_spawner.mounting import Mounting
from spectrum_spawner.owner import Owner
from spectrum_spawner.patience import Patience
from spectrum_spawner.pods import Pod, trim
from spectrum_spawner.refusals import Refusal
from spectrum_spawner.watch import View

POST_TIMEOUT = 60.0  # seconds; a slow answer is no reason to ask twice, the view tells earlier
STUCK_PATIENCE = 25.0  # seconds that a failing pull and the like may still turn out well
LATE_POST = 10.0  # seconds in which a request without an answer may still take effect
VOLUMES_AGAIN = 5.0  # seconds between two looks at what was said of volumes, not of the pod
CONFIRM = 5.0  # seconds to wait for the view before the API server is asked again

Tell = Callable[[int, str], None]  # percent, sentence
OnLeftOver = Callable[[str], None]  # gets the start id of a pod that is about to be deleted

_log = logging.getLogger("spectrum.server_pod")


class ServerPod:
    """The pod of one start of one server. `start_id` tells it from the pods of other starts."""

    def __init__(
        self,
        *,
        client: Client,
        view: View[Pod],
        namespace: str,
        name: str,
        owner: Owner,
        start_id: str,
        uid: str = "",
        may_exist: bool = False,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.owner = owner
        self.start_id = start_id
        self.uid = uid
        self.last_seen: Pod | None = None
        self._client = client
        self._view = view
        self._unanswered = may_exist
        self._is_to_go = False
        self._is_gone = False

    @property
    def may_exist(self) -> bool:
        """Whether there is anything to poll or delete: a pod, or a request without an answer."""
        return not self._is_gone and (bool(self.uid) or self._unanswered)

    @property
    def state(self) -> dict[str, str]:
        """What finds the pod again after a restart of the hub: the arguments of the constructor."""
        return {
            "namespace": self.namespace,
            "pod_name": self.name,
            "team": self.owner.team,
            "start_id": self.start_id,
            "uid": self.uid,
        }

    @property
    def seen(self) -> Pod | None:
        """The pod as the view has it; None also while the view does not know."""
        pod = self._view.get(self.name)
        if pod is None or not self._is_ours(pod):
            return None
        self.last_seen = pod
        return pod

    @property
    def is_ending(self) -> bool:
        """Whether its deletion was asked for: from then on its end is that it is gone."""
        return self._is_to_go or ((pod := self.seen) is not None and pod.deleting)

    @property
    def _has_vanished(self) -> bool:
        """Whether the view had the pod and lost it; one that never had it proves nothing."""
        return self._view.synced and self.seen is None and self.last_seen is not None

    def _is_ours(self, pod: Pod) -> bool:
        if self.uid:
            return pod.uid == self.uid
        return pod.owner == self.owner and pod.start_id == self.start_id

    @property
    def _path(self) -> str:
        return kube.item("v1", "pods", self.name, namespace=self.namespace)

    async def create(self, manifest: Object, *, tell: Tell, on_left_over: OnLeftOver) -> None:
        """Make the pod, exactly once; afterwards `uid` is known.

        Raises Refused or NotFound for what the API server says, Refusal if a pod is in the way.
        """
        patience = Patience()
        while not self.uid:
            await self._try_to_create(manifest, patience, tell, on_left_over)

    async def _try_to_create(
        self, manifest: Object, patience: Patience, tell: Tell, on_left_over: OnLeftOver
    ) -> None:
        try:
            await self._post(manifest)
        except AlreadyExists as error:
            if not await self._settle_existing(tell, on_left_over):
                await patience.wait(error)
        except Unreachable as error:
            _log.warning("pod %s/%s: no answer, trying on: %s", self.namespace, self.name, error)
            tell(15, "The cluster does not answer; trying again")
            await patience.wait(error)
            await self._find_after_silence()
        except KubeError as error:
            await patience.wait(error)

    async def _post(self, manifest: Object) -> None:
        """One POST. Its answer or the view tells that the pod is there, whichever is first."""
        path = kube.collection("v1", "pods", namespace=self.namespace)
        post = asyncio.ensure_future(self._client.create(path, manifest, timeout=POST_TIMEOUT))
        shown = asyncio.ensure_future(self._view.wait(lambda: self.seen, key=self.name))
        before, self._unanswered = self._unanswered, True
        try:
            await asyncio.wait({post, shown}, return_when=asyncio.FIRST_COMPLETED)
            if post.done():
                self.uid = post.result()["metadata"]["uid"]
            else:
                pod = shown.result()
                assert pod is not None
                self.uid = pod.uid
        except (Refused, Conflict, NotFound):
            self._unanswered = before
            raise
        finally:
            post.cancel()
            shown.cancel()
            await asyncio.gather(post, shown, return_exceptions=True)

    async def _find_after_silence(self) -> None:
        """After a request without an answer: the pod may be there, and is then this start's."""
        pod = self.seen or await self._read()
        if pod is not None and self._is_ours(pod):
            self.uid = pod.uid

    async def _read(self) -> Pod | None:
        """The pod of this name as the API server has it now, None if there is none or no answer."""
        try:
            return trim(await self._client.get(self._path))
        except KubeError:
            return None

    async def _settle_existing(self, tell: Tell, on_left_over: OnLeftOver) -> bool:
        """A pod of our name is there: adopt it, wait until it is gone, or refuse to touch it.

        False if nothing could be found out about it.
        """
        pod = await self._read()
        if pod is None:
            return False
        if pod.owner != self.owner:
            raise Refusal(
                f"A pod named {self.name} that belongs to somebody else is in the way: "
                "ask a cluster administrator.",
                reason="foreign-pod",
                status_code=409,
                log_message=f"{self.namespace}/{self.name} has owner {pod.owner}",
            )
        if pod.start_id == self.start_id:
            self.uid = pod.uid
            return True
        # Left over from an earlier start: its API token is not this start's, so nobody can use it.
        tell(12, "Waiting for the last server to stop")
        on_left_over(pod.start_id)
        await self._sibling(pod).delete()
        return True

    def _sibling(self, pod: Pod) -> "ServerPod":
        return ServerPod(
            client=self._client,
            view=self._view,
            namespace=self.namespace,
            name=self.name,
            owner=self.owner,
            start_id=pod.start_id,
            uid=pod.uid,
        )

    async def wait_ready(self, *, timeout: float, mounting: Mounting) -> Pod:
        """The pod once its container runs; raises Refusal when that cannot come about.

        `mounting` is what is known to be in the way of its volumes.
        """
        until, stuck_until, was_seen = _now() + timeout, None, False
        while True:
            pod = self.seen
            was_seen = was_seen or pod is not None
            if pod is not None and pod.ready and pod.ip and not pod.deleting:
                return pod
            if pod is None and was_seen:
                raise self._refuse(pod, WAS_DELETED, reason="pod")
            if hopeless := pod and (why_hopeless(pod) or mounting.why_refused(pod)):
                raise self._refuse(pod, hopeless, reason="pod")
            stuck = pod and (why_stuck(pod) or mounting.why_stuck(pod))
            stuck_until = (stuck_until or _now() + STUCK_PATIENCE) if stuck else None
            if stuck and stuck_until is not None and _now() >= stuck_until:
                raise self._refuse(pod, stuck, reason="pod")
            if _now() >= until:
                sentence = f"Your server did not start within {timeout:.0f} seconds"
                volume = mounting.why(pod)
                why = f"it waited for {volume}" if volume else why_waiting(pod)
                raise self._refuse(pod, f"{sentence}: {why}.", reason="timeout")
            # what is said of its volumes does not show on the pod
            is_pending = pod is not None and pod.phase == "Pending"
            again = _now() + VOLUMES_AGAIN if is_pending else until
            await self._wait_change(pod, min(until, stuck_until or until, again))

    def _refuse(self, pod: Pod | None, sentence: str, *, reason: str) -> Refusal:
        log_message = f"{pod.waiting}: {pod.waiting_message}" if pod and pod.waiting else ""
        return Refusal(sentence, reason=reason, status_code=409, log_message=log_message)

    async def _wait_change(self, known: Pod | None, until: float) -> None:
        with suppress(TimeoutError):
            await self._view.wait(
                lambda: self.seen != known, key=self.name, timeout=max(0.0, until - _now())
            )

    async def is_gone(self) -> bool:
        """Whether the API server said that the pod does not exist; False whenever in doubt."""
        if not self._view.synced or self.seen is not None:
            return False
        try:
            return await self._ask_gone()
        except Refused:  # a namespace that is purged takes the hub's rights in it along
            return self._has_vanished
        except KubeError as error:
            _log.warning("pod %s/%s: state unknown: %s", self.namespace, self.name, error)
            return False

    async def _ask_gone(self) -> bool:
        """Whether no pod, or another one, has the name now; raises KubeError in doubt."""
        try:
            return not self._is_ours(trim(await self._client.get(self._path)))
        except NotFound:
            return True

    async def wait_ended(self) -> None:
        """Return once the view has the pod ended or no longer has it."""
        await self._view.wait(
            lambda: self._view.synced and ((pod := self.seen) is None or pod.ended), key=self.name
        )

    async def discard(self, pod: Pod) -> None:
        """Ask once for the deletion of what ended; if that fails, the next start does it."""
        try:
            await self._client.delete(self._path, uid=pod.uid)
        except KubeError as error:
            _log.warning("pod %s/%s: not discarded: %s", self.namespace, self.name, error)

    async def delete(self) -> None:
        """Return once the pod is confirmed gone, however long the API server is away."""
        self._is_to_go = True
        backoff, late_until = Backoff(), _now() + LATE_POST
        while not self._is_gone:
            asked = 0.0
            try:
                if not self.uid:
                    await self._find_to_delete()
                if self.uid:
                    self._is_gone = await self._delete_once()
                else:
                    self._is_gone = _now() > late_until
            except KubeError as error:
                _log.warning(
                    "pod %s/%s: not confirmed gone yet: %s", self.namespace, self.name, error
                )
                asked = getattr(error, "retry_after", 0.0)
            if not self._is_gone:
                await asyncio.sleep(backoff.next(at_least=asked))

    async def _find_to_delete(self) -> None:
        """The uid of the pod that a request without an answer may have made."""
        try:
            pod = await self._view.wait(lambda: self.seen, key=self.name, timeout=1.0)
        except TimeoutError:
            try:
                pod = trim(await self._client.get(self._path))
            except NotFound:
                return
        if pod is not None and self._is_ours(pod):
            self.uid = pod.uid

    async def _delete_once(self) -> bool:
        """One DELETE, and whether the pod is gone by then or soon after."""
        try:
            if not await self._client.delete(self._path, uid=self.uid):
                return True
        except Conflict:  # mostly: the name belongs to another pod already
            return await self._ask_gone()
        except Refused:
            if self._has_vanished:
                return True
            raise
        with suppress(TimeoutError):
            await self._view.wait(
                lambda: self._view.synced and self.seen is None, key=self.name, timeout=CONFIRM
            )
        return self._has_vanished


def _now() -> float:
    return asyncio.get_running_loop().time()
