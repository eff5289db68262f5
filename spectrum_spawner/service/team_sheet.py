"""Team sheet record: a `Team` object with what its page shows beside the team itself."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.teams import Team

_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_log = logging.getLogger("spectrum.service")


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

    `accelerators` are the resource names that it names. `problem` is a sentence on what of the
    object cannot be read, and is left out here. While `is_known` is False that is all of it but
    the name.
    """

    team: Team
    grants: tuple[Grant, ...]
    conditions: tuple[Condition, ...]
    gpus_limited: bool
    accelerators: frozenset[str]
    problem: str = ""
    is_known: bool = True

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> "TeamSheet":
        """Read a `Team` object as the API server gives it.

        It may be older than the rules for such objects: one that cannot be read must not take
        the others away, so that nothing is raised for it.
        """
        try:
            return cls._read(obj)
        except _UNREADABLE as error:
            _log.error("team %s cannot be read: %r", obj["metadata"]["name"], error)
            return cls._of_name(obj["metadata"]["name"], obj["metadata"]["uid"])

    @classmethod
    def _read(cls, obj: Mapping[str, Any]) -> "TeamSheet":
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        gpus = (spec.get("quota") or {}).get("gpus")
        grants, unreadable = _read_grants(spec.get("grants") or {})
        return cls(
            team=Team.from_object(obj),
            grants=grants,
            conditions=tuple(map(_read_condition, status.get("conditions") or [])),
            gpus_limited=gpus is not None,
            accelerators=frozenset(gpus or {}),
            problem=_say_unreadable(unreadable),
        )

    @classmethod
    def _of_name(cls, name: str, uid: str) -> "TeamSheet":
        return cls(
            team=Team(name=name, uid=uid, display_name=name, groups=frozenset()),
            grants=(),
            conditions=(),
            gpus_limited=True,
            accelerators=frozenset(),
            problem="The Team object cannot be read: an administrator should correct it.",
            is_known=False,
        )

    @property
    def name(self) -> str:
        return self.team.name

    def active_grants(self, now: datetime) -> list[Grant]:
        """Those that have not lapsed, the first to do so first."""
        ahead = [grant for grant in self.grants if grant.until > now]
        return sorted(ahead, key=lambda grant: grant.until)


def _read_grants(records: Mapping[str, Any]) -> tuple[tuple[Grant, ...], list[str]]:
    """Grants by id, and the ids of those that cannot be read."""
    grants, unreadable = [], []
    for id, record in sorted(records.items()):
        try:
            grants.append(_read_grant(id, record))
        except _UNREADABLE as error:
            _log.error("grant %s cannot be read: %r", id, error)
            unreadable.append(id)
    return tuple(grants), unreadable


def _say_unreadable(grants: list[str]) -> str:
    if not grants:
        return ""
    return (
        f"What is granted by {', '.join(grants)} cannot be read, and is not shown: an "
        "administrator should correct it in the Team object."
    )


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
