"""One command at a time changes the cluster."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.errors import Refusal


@contextmanager
def hold_lock(state: Path) -> Iterator[None]:
    """Hold the cluster's lock for the block; that of a killed command is free at once."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refusal("another local/up, local/down or local/test is at work") from None
        yield
