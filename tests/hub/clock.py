"""Time of one event loop, which a test may let pass faster than the wall's."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from inspect import isawaitable
from typing import Any

# Seconds.
PATIENCE = 60
LATE = 0.005  # by which a machine that is not busy wakes a loop


class Clock:
    """Everything that the loop times (sleeps, timeouts, backoffs) follows this clock alike.

    While the loop has work, time passes as ever; while it waits, `speed` times as fast. Nobody's
    code is patched and nothing is skipped: an outage of a minute at speed 30 is one of two
    seconds in which everybody waits a thirtieth. What the loop waits for from other processes
    seems `speed` times as slow, so timeouts of calls to the API server need a small speed. That a
    busy machine wakes the loop late passes as ever: no timer but the next is missed by it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._speed = 1.0
        self._ahead = 0.0
        self._select = loop._selector.select  # type: ignore[attr-defined]
        loop._selector.select = self._select_sooner  # type: ignore[attr-defined]
        loop.time = self.time  # type: ignore[method-assign]

    def time(self) -> float:
        """Seconds on this clock."""
        return time.monotonic() + self._ahead

    @contextmanager
    def hurry(self, speed: float) -> Iterator[None]:
        """Let waiting pass `speed` times as fast inside the block."""
        before, self._speed = self._speed, speed
        try:
            yield
        finally:
            self._speed = before

    def _select_sooner(self, timeout: float | None = None) -> Any:
        begun = time.monotonic()
        asked = math.inf if timeout is None else max(timeout, 0) / self._speed
        try:
            return self._select(timeout if timeout is None else asked)
        finally:
            waited = min(time.monotonic() - begun, asked + LATE)
            self._ahead += waited * (self._speed - 1)


async def wait_until(
    condition: Callable[[], Any | Awaitable[Any]], *, within: float, what: str = "it"
) -> Any:
    """The first true answer of `condition`; fails after `within` seconds of the loop's clock.

    It does not fail before PATIENCE seconds of the wall's: a machine may be busy elsewhere for some
    of them, and a hurried clock passes any `within` meanwhile. The longer it lasts, the more seldom
    it asks: the answer is late by a fiftieth at most, and between two questions there is a wait
    that can be hurried.
    """
    loop = asyncio.get_running_loop()
    begun = loop.time()
    deadline, patience = begun + within, time.monotonic() + PATIENCE
    while True:
        answer = condition()
        if isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if loop.time() > deadline and time.monotonic() > patience:
            raise AssertionError(f"{what} has not happened within {within:g} s")
        await asyncio.sleep(max(0.01, (loop.time() - begun) / 50))
