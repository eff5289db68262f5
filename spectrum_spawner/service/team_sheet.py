"""Team sheet record: a `Team` object with what its page shows beside the team itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.teams import Team


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a team has for a time; `id` is that of the request that it answers."""

    id: str
    until: datetime
    gpus: Mapping[str, int]
    profiles: tuple[str, ...] = ()
    reason: str = ""
    requested_by: str = ""
    approved_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """What the controller says of one thing about a team."""

    kind: str
    status: str
    message: str


@dataclass(frozen=True, kw_only=True)
class TeamSheet:
    """`gpus_limited` tells whether the team's quota names accelerators at all.

    `accelerators` are the resource names that it names.
    """

    team: Team
    grants: tuple[Grant, ...]
    conditions: tuple[Condition, ...]
    gpus_limited: bool
    accelerators: frozenset[str]

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> "TeamSheet":
        """Read a `Team` object as the API server gives it."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        gpus = (spec.get("quota") or {}).get("gpus")
        grants = (spec.get("grants") or {}).items()
        return cls(
            team=Team.from_object(obj),
            grants=tuple(_read_grant(id, record) for id, record in sorted(grants)),
            conditions=tuple(map(_read_condition, status.get("conditions") or [])),
            gpus_limited=gpus is not None,
            accelerators=frozenset(gpus or {}),
        )

    @property
    def name(self) -> str:
        return self.team.name

    def active_grants(self, now: datetime) -> list[Grant]:
        """Those that have not lapsed, the first to do so first."""
        ahead = [grant for grant in self.grants if grant.until > now]
        return sorted(ahead, key=lambda grant: grant.until)


def _read_grant(id: str, record: Mapping[str, Any]) -> Grant:
    return Grant(
        id=id,
        until=read_moment(record["until"]),
        gpus=dict(record.get("gpus") or {}),
        profiles=tuple(record.get("profiles") or []),
        reason=record.get("reason") or "",
        requested_by=record.get("requestedBy") or "",
        approved_by=record.get("approvedBy") or "",
    )


def _read_condition(record: Mapping[str, Any]) -> Condition:
    return Condition(
        kind=record["type"], status=record["status"], message=record.get("message") or ""
    )
