"""Work on very many objects at once, without looking through them again and again."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, for what has no cycles.

    Of ten thousand servers it is so much that looking through it takes longer than making it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
