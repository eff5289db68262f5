"""What stands in the way of the culler now: told to people, and to the operator once each."""

import logging
from collections.abc import Mapping

_log = logging.getLogger("spectrum.culler")

# by sentence for everybody, the same with names and causes for the operator
Found = Mapping[str, str]


class Troubles:
    """Those of the last time that something was tried; `put` puts others in their place."""

    def __init__(self) -> None:
        self._now: Found = {}

    def put(self, found: Found) -> None:
        """Note what stood in the way this time; each is logged once, as long as it lasts."""
        for sentence, details in found.items():
            if sentence not in self._now:
                _log.warning("%s", details)
        if self._now and not found:
            _log.info("nothing stands in the way any more")
        self._now = dict(found)

    @property
    def sentences(self) -> tuple[str, ...]:
        """For everybody: no names of teams, servers or machines."""
        return tuple(self._now)

    @property
    def details(self) -> tuple[str, ...]:
        return tuple(self._now.values())


def same(sentence: str) -> Found:
    """A trouble that hides nothing."""
    return {sentence: sentence}
