"""One run of a server, from its start until its pod is gone: what the next hub finds again."""

import asyncio
from contextlib import suppress
from typing import Any

from spectrum_spawner.actor import Errand
from spectrum_spawner.diagnosis import ExitStatus, why_gone
from spectrum_spawner.lifecycle import find_end
from spectrum_spawner.outbox import Outbox
from spectrum_spawner.owner import Owner
from spectrum_spawner.server_pod import ServerPod
from spectrum_spawner.trail import Trail, say_stop
from spectrum_spawner.views import Views

SYNC_PATIENCE = 5.0  # seconds that a poll waits for the first list of a view


class Run:
    """The pod of one start, its trail, and how it ended.

    `is_up` says that the start is over and went well. `is_stopping` says that a stop has begun:
    it is kept in the saved state, and a hub that takes over finishes it. `is_cut_off` says that
    this hub ended before the stop did. `failure` is what the hub itself holds against the
    server.
    """

    def __init__(
        self,
        views: Views,
        outbox: Outbox,
        owner: Owner,
        *,
        namespace: str,
        pod_name: str,
        start_id: str,
        uid: str = "",
        may_exist: bool = False,
        is_stopping: bool = False,
    ) -> None:
        self._view = views.pods(namespace)
        self.pod = ServerPod(
            client=views.client,
            view=self._view,
            namespace=namespace,
            name=pod_name,
            owner=owner,
            start_id=start_id,
            uid=uid,
            may_exist=may_exist,
        )
        self.trail = Trail(outbox, owner, start_id=start_id, is_over=is_stopping)
        self.is_up = may_exist
        self.is_stopping = is_stopping
        self.is_cut_off = False
        self.failure = ""
        self._ended: ExitStatus | None = None

    @classmethod
    def from_state(cls, views: Views, outbox: Outbox, owner: Owner, state: dict[str, Any]) -> "Run":
        """The run that `state` was the state of."""
        return cls(
            views,
            outbox,
            owner,
            namespace=state["namespace"],
            pod_name=state["pod_name"],
            start_id=state["start_id"],
            uid=state["uid"],
            may_exist=True,
            is_stopping=state.get("stopping", False),
        )

    @property
    def state(self) -> dict[str, Any]:
        """What finds it again after a restart of the hub."""
        return {**self.pod.state, "stopping": self.is_stopping}

    def tell_end(self, *, asked_by: str, errand: Errand | None) -> None:
        """Tell why it ends: somebody asks for it or else ("") the hub has something against it.

        A pod that is on its way out already has another cause. The `errand` is of who asks.
        """
        if self.pod.is_ending:
            self.trail.end(why_gone(self.pod.last_seen))
        elif asked_by:
            reason = say_stop(asked_by, cancelled=not self.is_up)
            self.trail.stop(reason, actor=asked_by, errand=errand)
        else:
            self.trail.end(self.failure or "it did not answer the hub")

    async def poll(self) -> ExitStatus | None:
        """None while the server runs and whenever nobody knows; else its exit status."""
        if self._ended is None and not self.pod.may_exist:
            why = "it was stopped" if self.is_stopping else "it was not started"
            return ExitStatus(None, why)
        with suppress(TimeoutError):
            await self._view.wait_synced(SYNC_PATIENCE)
        if self._ended is None:
            self._ended = await find_end(self.pod, self.trail)
        return self._ended

    async def stop(self) -> None:
        """Return once the pod is confirmed gone, however long that takes."""
        try:
            await self.pod.delete()
        except asyncio.CancelledError:
            self.is_cut_off = True
            raise

    async def wait_over(self) -> None:
        """Return when there may be an end to tell; finishes a stop that a former hub began."""
        if self.is_stopping:
            await self.pod.delete()
        else:
            await self.pod.wait_ended()
