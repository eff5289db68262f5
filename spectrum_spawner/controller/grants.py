"""Grants: what a team has for a time, beside its quota and its profiles."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Granted:
    """The sum of a team's grants that are in force, until the first of them lapses."""

    gpus: Mapping[str, int] = field(default_factory=dict)
    profiles: tuple[str, ...] = ()
    until: datetime | None = None

    def to_status(self) -> dict[str, Any]:
        """As the Team's status has it, without what is empty."""
        parts = {"gpus": dict(self.gpus), "profiles": list(self.profiles)}
        return {key: value for key, value in parts.items() if value}


def sum_grants(spec: Mapping[str, Any], now: datetime) -> Granted:
    """What `spec.grants` of a Team give at a moment."""
    gpus: Counter[str] = Counter()
    profiles: set[str] = set()
    ends = []
    for end, grant in _find_active(spec, now):
        gpus.update(grant.get("gpus") or {})
        profiles.update(grant.get("profiles") or [])
        ends.append(end)
    return Granted(
        gpus=dict(sorted(gpus.items())),
        profiles=tuple(sorted(profiles)),
        until=min(ends, default=None),
    )


def make_effective_quota(quota: Mapping[str, Any], granted: Granted) -> dict[str, Any]:
    """`spec.quota` with the granted GPUs; where GPUs are not limited there is nothing to add."""
    if "gpus" not in quota:
        return dict(quota)
    gpus = dict(quota["gpus"])
    for resource, count in granted.gpus.items():
        gpus[resource] = gpus.get(resource, 0) + count
    return {**quota, "gpus": gpus}


def _find_active(
    spec: Mapping[str, Any], now: datetime
) -> Iterator[tuple[datetime, Mapping[str, Any]]]:
    for grant in (spec.get("grants") or {}).values():
        end = datetime.fromisoformat(grant["until"])
        if end > now:
            yield end, grant
