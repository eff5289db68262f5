"""Work that goes on after whoever asked for it was answered."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

LAST = 10.0  # seconds that work which is under way has when the service ends

_log = logging.getLogger("spectrum.service")


class Background:
    """Holds such work until it is done; ended by `close`."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it from now on; what fails is for the log, since nobody waits for it."""
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._note_end)

    async def close(self) -> None:
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=LAST)
        left = list(self.tasks)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            _log.error("work that went on by itself failed", exc_info=error)
