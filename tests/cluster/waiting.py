"""Waiting for what a cluster does in its own time."""

import time
from collections.abc import Callable
from typing import Any

# Seconds: a server tells of its volumes once a minute, and one telling may be lost.
PATIENCE = 150


def wait_until(condition: Callable[[], Any], *, within: float = PATIENCE) -> Any:
    """The first true answer; asking costs little, and there is nothing to watch."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {within} s"
        time.sleep(0.2)
    return answer
