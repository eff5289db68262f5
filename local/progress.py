"""Lines that tell a person what happens now, for how long, and what is being waited for."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from local.errors import Refusal

HEARTBEAT_SECONDS = 10.0


def format_elapsed(seconds: float) -> str:
    """Format a duration: 4.2s, 3m10s, 1h02m."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    return f"{minutes // 60}h{minutes % 60:02d}m"


class Step:
    """One titled piece of work; `awaited` is what its heartbeat lines name."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.awaited = ""
        self.began = time.monotonic()

    @property
    def elapsed(self) -> str:
        return format_elapsed(time.monotonic() - self.began)

    def wait_for(
        self,
        awaited: str,
        is_done: Callable[[], object],
        *,
        timeout: float,
        hint: Callable[[], str] = lambda: "",
    ) -> None:
        """Ask `is_done` until it answers truth; after `timeout` seconds refuse, with the hint."""
        self.wait_while(lambda: "" if is_done() else awaited, timeout=timeout, hint=hint)

    def wait_while(
        self,
        name_awaited: Callable[[], str],
        *,
        timeout: float,
        hint: Callable[[], str] = lambda: "",
    ) -> None:
        """Wait until nothing is named any more; after `timeout` seconds refuse, with the hint."""
        deadline = time.monotonic() + timeout
        pause = 0.05
        while awaited := name_awaited():
            self.awaited = awaited
            if time.monotonic() > deadline:
                late = f"{self.title}: {awaited} did not come within {timeout:.0f} s"
                raise Refusal(". ".join(filter(None, [late, hint()])))
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        self.awaited = ""


class Progress:
    """Prints each line behind the time since the command began."""

    def __init__(self, out: TextIO | None = None, *, heartbeat: float = HEARTBEAT_SECONDS) -> None:
        self._out = out or sys.stdout
        self._heartbeat = heartbeat
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        elapsed = format_elapsed(time.monotonic() - self._began)
        print(f"[{elapsed:>6}] {text}", file=self._out, flush=True)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Announce the work, repeat every few seconds that it goes on, and say how long it took."""
        step = Step(title)
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(self._heartbeat):
                awaited = f", waiting for {step.awaited}" if step.awaited else ""
                self.say(f"{title} … {step.elapsed}{awaited}")

        self.say(f"{title} …")
        ticker = threading.Thread(target=repeat, daemon=True)
        ticker.start()
        try:
            yield step
        finally:
            ended.set()
            ticker.join()
        self.say(f"{title}: done in {step.elapsed}")
