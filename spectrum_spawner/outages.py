"""Datasets that could not be mounted lately. Servers start without them for a while.

Only a server that mounts a dataset shows whether that can be done, and nobody's work should wait
until data that they may not even need are mended.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

LEAVE_OUT = 15 * 60.0  # seconds until a server tries again

_log = logging.getLogger("spectrum.outages")


@dataclass(frozen=True)
class _Outage:
    until: float
    reason: str


class Outages:
    """What is known of datasets' claims, by namespace. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], _Outage] = {}

    def note(self, namespace: str, claims: Mapping[str, str], *, now: float) -> None:
        """Remember that nodes could not mount these claims, and the reason of each in words."""
        for claim, reason in claims.items():
            _log.warning("%s: servers start without %s for now: %s", namespace, claim, reason)
            self._known[namespace, claim] = _Outage(now + LEAVE_OUT, reason)

    def find(self, namespace: str, *, now: float) -> dict[str, str]:
        """The claims that are left out in a namespace now, and why."""
        self._known = {key: known for key, known in self._known.items() if known.until > now}
        return {
            claim: known.reason
            for (place, claim), known in self._known.items()
            if place == namespace
        }
