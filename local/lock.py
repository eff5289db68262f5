"""One command at a time changes the cluster, and one at a time tests on it."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from local.progress import Progress


@contextmanager
def hold_lock(file: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock for the block; that of a killed command is free at once."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step("waiting for another command of local/ to end"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
