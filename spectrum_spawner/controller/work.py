"""Which team has to be looked at, and when."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from spectrum_spawner.kube import Backoff

_log = logging.getLogger("spectrum.controller")

LONGEST_RETRY = 60.0  # seconds between two tries of a team that keeps failing
SETTLE = 0.05  # seconds in which further changes of the same team join one look


class Work:
    """Calls `do(key)` for every key that was added.

    - At most one call a key at a time; different keys run side by side.
    - Adding a key that already waits changes nothing; adding one whose call is running makes it
      run once more afterwards. So after the last `add` there is always a whole call.
    - A call that raises is repeated, after a pause that doubles up to `LONGEST_RETRY`; adding the
      key again cuts the pause short.
    - A call that returns a number of seconds has its key added again after them, unless another
      call says otherwise in the meantime.
    - Once it is closed, what is added is nobody's any more.
    """

    def __init__(self, do: Callable[[str], Awaitable[float | None]]) -> None:
        self._do = do
        self._wanted: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed = False

    def add(self, key: str) -> None:
        """Have `do(key)` called soon; needs a running event loop."""
        if self._closed:
            return
        self._wanted.setdefault(key, asyncio.Event()).set()
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run(key))

    async def close(self) -> None:
        """Cancel what runs and forget what waits."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, key: str) -> None:
        wanted, backoff = self._wanted[key], Backoff(longest=LONGEST_RETRY)
        try:
            while wanted.is_set():
                await asyncio.sleep(SETTLE)
                wanted.clear()
                if await self._succeeds(key):
                    backoff.reset()
                    continue
                await _wait(wanted, backoff.next())
                wanted.set()
        finally:
            del self._tasks[key], self._wanted[key]

    async def _succeeds(self, key: str) -> bool:
        try:
            again = await self._do(key)
        except Exception as error:
            _log.warning("team %s: %s: %s; will be tried again", key, type(error).__name__, error)
            return False
        self._set_timer(key, again)
        return True

    def _set_timer(self, key: str, seconds: float | None) -> None:
        if timer := self._timers.pop(key, None):
            timer.cancel()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._timers[key] = loop.call_later(seconds, self.add, key)


async def _wait(event: asyncio.Event, timeout: float) -> None:
    try:
        async with asyncio.timeout(timeout):
            await event.wait()
    except TimeoutError:
        pass
