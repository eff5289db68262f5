"""Asking what may hang, such as a network file system, without hanging with it."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

PATIENCE = 5.0  # seconds that an answer may take

Answer = TypeVar("Answer")


class Patient(Generic[Answer]):
    """Asks in a thread of its own, of which there is never a second one while the first is stuck.

    `ask` is a function that does not raise, and that may hang.
    """

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._asking: asyncio.Future[Answer] | None = None

    async def answer(self) -> Answer:
        """The answer; TimeoutError if there is none within PATIENCE seconds."""
        if self._asking is None:
            asking = asyncio.get_running_loop().create_future()
            # a daemon: a stuck one must not keep the server from ending
            threading.Thread(target=self._run, args=[asking], daemon=True).start()
            self._asking = asking  # only now: without a thread nobody would ever answer
        answer = await asyncio.wait_for(asyncio.shield(self._asking), PATIENCE)
        self._asking = None
        return answer

    def _run(self, asking: "asyncio.Future[Answer]") -> None:
        answer = self._ask()
        with suppress(RuntimeError):  # the server has ended meanwhile
            asking.get_loop().call_soon_threadsafe(asking.set_result, answer)
