"""Which refusals of a creation pass by themselves, and how long they are waited for."""

import asyncio
import re

from spectrum_spawner.kube import Backoff, Conflict, KubeError, Refused, Unreachable

PATIENCE = 20.0  # seconds that a new namespace may take to be complete

# A namespace that was made a moment ago: each of these passes by itself.
_PASSING = (
    re.compile(r"error looking up service account|serviceaccount .* not found"),
    re.compile(r"status unknown for quota|unable to get quota|quota evaluation timed out"),
)


class Patience:
    """Pauses between the tries to create one object, begun with the first.

    The namespace is given PATIENCE seconds to be complete. A Conflict, which says that two
    creations met on the quota's counter, and an API server that does not answer are waited for
    without end: the caller bounds the whole.
    """

    def __init__(self) -> None:
        self._backoff = Backoff()
        self._until = asyncio.get_running_loop().time() + PATIENCE

    async def wait(self, error: KubeError) -> None:
        """Pause before the next try, or raise the error if another try is of no use."""
        if isinstance(error, Unreachable):
            await asyncio.sleep(self._backoff.next(at_least=error.retry_after))
        elif isinstance(error, Conflict) or (is_passing(error) and not self._is_over()):
            await asyncio.sleep(self._backoff.next())
        else:
            raise error

    def _is_over(self) -> bool:
        return asyncio.get_running_loop().time() > self._until


def is_passing(error: KubeError) -> bool:
    """Whether a refusal says that a new namespace is not complete yet."""
    return (
        isinstance(error, Refused)
        and error.status == 403
        and any(found.search(error.message) for found in _PASSING)
    )
