"""What pages and API show of the records: words, bars and plain JSON values. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.asking import APPROVED, APPROVING, OPEN, REFUSED, WITHDRAWN, Request
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.team_sheet import Condition, Grant, TeamSheet
from spectrum_spawner.teams import Team

_STATES = {
    OPEN: "waits for an answer",
    APPROVING: "approved, being written into the team",
    APPROVED: "approved",
    REFUSED: "refused",
    WITHDRAWN: "withdrawn",
}
_CONDITIONS = {
    "Ready": ("Ready for servers", "Not ready for servers yet"),
    "QuotaEnforced": ("The quota counts", "The quota does not count yet"),
}


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Use of one accelerator. `hard` is None where there is no limit, `percent` 0 to 100."""

    resource: str
    used: int
    hard: int | None

    @property
    def percent(self) -> int:
        return min(100, round(100 * self.used / self.hard)) if self.hard else 100

    @property
    def is_full(self) -> bool:
        return self.hard is not None and self.used >= self.hard

    @property
    def text(self) -> str:
        if self.hard is None:
            return f"{self.used} in use, no limit"
        if self.used > self.hard:
            return (
                f"{self.used} in use, {self.hard} allowed: nothing is stopped for that, "
                "and nothing more starts"
            )
        return f"{self.used} of {self.hard} in use"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One server in a table. `leaves_at` is set when its owner left the team."""

    server: Server
    profile: str
    gpus: str
    may_stop: bool = False
    is_own: bool = False
    leaves_at: datetime | None = None


def bars(team: Team) -> list[Bar]:
    """Accelerators that the team may use or does use."""
    used, hard = team.gpus_used or {}, team.gpus_hard or {}
    found = [
        Bar(resource=name, used=used.get(name, 0), hard=hard.get(name))
        for name in sorted({*used, *hard})
    ]
    return [bar for bar in found if bar.used or bar.hard != 0]


def quota_text(sheet: TeamSheet) -> str:
    """One line for a list of teams."""
    shown = bars(sheet.team)
    if shown:
        named = len(shown) > 1
        return ", ".join(f"{bar.text}{f' ({bar.resource})' if named else ''}" for bar in shown)
    if not sheet.gpus_limited:
        return "no limit"
    return "none" if sheet.team.ready else "not counted yet"


def condition_text(condition: Condition) -> str:
    """A condition in words: what it is about, then the controller's own sentence."""
    good, bad = _CONDITIONS.get(condition.kind, (condition.kind, f"Not {condition.kind}"))
    head = good if condition.status == "True" else bad
    return f"{head}: {condition.message}" if condition.message else f"{head}."


def grant_text(grant: Grant, profiles: Mapping[str, Profile]) -> str:
    """What a grant gives, as part of a sentence."""
    gpus = [f"{count} × {resource}" for resource, count in sorted(grant.gpus.items())]
    titles = [f"profile {title_of(name, profiles)}" for name in grant.profiles]
    return " and ".join([*gpus, *titles])


def title_of(profile: str, profiles: Mapping[str, Profile]) -> str:
    """What people call a profile; its name where it is not known any more."""
    known = profiles.get(profile)
    return known.title if known else profile


def gpus_text(server: Server, profiles: Mapping[str, Profile]) -> str:
    profile = profiles.get(server.profile)
    if profile is None:
        return "unknown"
    return f"{profile.gpu} × {profile.gpu_resource}" if profile.gpu else "none"


def state_text(request: Request) -> str:
    return _STATES[request.state]


def team_to_json(sheet: TeamSheet, now: datetime) -> dict[str, Any]:
    """A team for the API."""
    team = sheet.team
    return {
        "name": team.name,
        "displayName": team.display_name,
        "ready": team.ready,
        "conditions": [
            {"type": c.kind, "status": c.status, "message": c.message} for c in sheet.conditions
        ],
        "gpus": {bar.resource: {"used": bar.used, "allowed": bar.hard} for bar in bars(team)},
        "grants": [
            {
                "id": grant.id,
                "gpus": dict(grant.gpus),
                "profiles": list(grant.profiles),
                "until": stamp(grant.until),
                "reason": grant.reason,
                "requestedBy": grant.requested_by,
                "approvedBy": grant.approved_by,
            }
            for grant in sheet.active_grants(now)
        ],
        "defaultProfile": team.default_profile,
        "idleMinutes": team.idle_minutes,
        "problem": sheet.problem,
    }


def server_to_json(row: Row) -> dict[str, Any]:
    """A server for the API."""
    server = row.server
    return {
        "user": server.user,
        "name": server.name,
        "team": server.team,
        "profile": server.profile,
        "gpus": row.gpus,
        "started": _text(server.started),
        "lastActivity": _text(server.last_activity),
        "pending": server.pending,
        "stopsAt": _text(row.leaves_at),
    }


def request_to_json(request: Request) -> dict[str, Any]:
    """A request for the API; what its kind does not have is left out."""
    parts = {
        "resource": request.resource,
        "amount": request.amount,
        "profile": request.profile,
        "group": request.group,
    }
    return {
        "id": request.id,
        "kind": request.kind,
        "team": request.team,
        **{key: value for key, value in parts.items() if value},
        "reason": request.reason,
        "until": stamp(request.until),
        "askedBy": request.asked_by,
        "askedAt": stamp(request.asked_at),
        "state": OPEN if request.state == APPROVING else request.state,
        "answer": request.answer,
        "decidedBy": request.decided_by,
        "decidedAt": _text(request.decided_at),
    }


def list_details(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a record says beside its sentence, in words: the evidence that it stands on first."""
    readings = details.get("evidence") or ()
    found = [
        (str(reading.get("source", "")), _say_reading(reading))
        for reading in (readings if isinstance(readings, list | tuple) else ())
        if isinstance(reading, Mapping)
    ]
    rest = ((key, value) for key, value in details.items() if key != "evidence")
    return [*found, *((key.replace("_", " "), _say(value)) for key, value in rest if value)]


def _say_reading(reading: Mapping[str, Any]) -> str:
    """One kind of evidence: what it said, since when, and when that was measured."""
    text = (
        f"{reading.get('answer', '')}{': ' if reading.get('text') else ''}{reading.get('text', '')}"
    )
    since, at = reading.get("since"), reading.get("at")
    told = (f"since {since}" if since else "", f"measured {at}" if at else "never measured")
    return ", ".join([text, *filter(None, told)])


def _say(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def csv_cells(values: Iterable[str]) -> list[str]:
    """Cells that a spreadsheet takes for text, whatever they begin with."""
    return [
        f"'{value}" if value[:1] in ("=", "+", "-", "@", "\t", "\r") else value for value in values
    ]


def _text(moment: datetime | None) -> str | None:
    return stamp(moment) if moment else None
