"""Request record: what somebody asks for, how it is read, and what granting it writes. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.profiles import Profile, is_allowed
from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.team_sheet import TeamSheet

QUOTA, PROFILE, NEW_TEAM = "quota", "profile", "team"
KINDS = (QUOTA, PROFILE, NEW_TEAM)
OPEN, APPROVING, APPROVED, REFUSED, WITHDRAWN = (
    "open",
    "approving",  # decided, and not yet written into the Team
    "approved",
    "refused",
    "withdrawn",
)
MAX_REASON = 500  # characters
MAX_GPUS = 1000
LONGEST = timedelta(days=366)

FIELDS = {
    QUOTA: {"kind", "team", "resource", "amount", "reason", "until"},
    PROFILE: {"kind", "team", "profile", "reason", "until"},
    NEW_TEAM: {"kind", "team", "group", "resource", "amount", "reason", "until"},
}


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request and its answer.

    `team` is the team that asks, or the name of the new one. `team_uid` says which of the teams
    that had that name one after another; it is empty in what an earlier release wrote. `group`
    is the identity provider's group that a new team is made of. `amount` is of accelerators of
    `resource`, beside what the team has, until `until`.
    """

    id: str
    kind: str
    team: str
    reason: str
    until: datetime
    asked_by: str
    asked_at: datetime
    team_uid: str = ""
    resource: str = ""
    amount: int = 0
    profile: str = ""
    group: str = ""
    state: str = OPEN
    answer: str = ""
    decided_by: str = ""
    decided_at: datetime | None = None

    @property
    def what(self) -> str:
        """What is asked for, as part of a sentence."""
        if self.kind == PROFILE:
            return f"profile {self.profile} for team {self.team}"
        gpus = f"{self.amount} × {self.resource}"
        if self.kind == QUOTA:
            return f"{gpus} for team {self.team}"
        return f"a new team {self.team} of group {self.group} with {gpus}"


def read_request(
    fields: Mapping[str, Any],
    *,
    id: str,
    asked_by: str,
    now: datetime,
    teams: Mapping[str, TeamSheet],
    profiles: Mapping[str, Profile],
) -> Request:
    """A request from what a person sent, checked against what there is; raises Problem."""
    kind = fields.get("kind")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise Problem(f"A request is of kind {', '.join(KINDS)}: choose one.")
    if extra := sorted(str(key) for key in fields.keys() - FIELDS[kind]):
        raise Problem(f"A request of kind {kind} has no {quoted(', '.join(extra))}: leave it out.")
    team = _read_team(kind, fields.get("team"), teams)
    asked = Request(
        id=id,
        kind=kind,
        team=team,
        team_uid="" if kind == NEW_TEAM else teams[team].team.uid,
        reason=read_sentence("A reason", fields.get("reason")),
        until=_read_until(fields.get("until"), now),
        asked_by=asked_by,
        asked_at=now,
        resource="" if kind == PROFILE else _read_resource(fields.get("resource"), teams, profiles),
        amount=0 if kind == PROFILE else _read_amount(fields.get("amount")),
        profile=_read_profile(fields.get("profile"), profiles) if kind == PROFILE else "",
        group=_read_group(fields) if kind == NEW_TEAM else "",
    )
    _check_need(asked, teams, profiles)
    return asked


def read_sentence(what: str, value: object, *, needed: bool = True) -> str:
    """One line of text; blanks of any kind become one space. `what` begins a sentence."""
    if not isinstance(value, str | None):
        raise Problem(f"{what} must be a text, not {type(value).__name__}.")
    text = " ".join((value or "")[: MAX_REASON * 8].split())
    if len(value or "") > MAX_REASON * 8 or len(text) > MAX_REASON:
        raise Problem(f"{what} may be {MAX_REASON} characters long: please shorten it.")
    if not text.isprintable():
        raise Problem(f"{what} holds characters that cannot be shown: please take them out.")
    if needed and not text:
        raise Problem(f"{what} is needed: one sentence is enough.")
    return text


def accelerators(teams: Mapping[str, TeamSheet], profiles: Mapping[str, Profile]) -> list[str]:
    """Resource names that can be asked for: those of the profiles and of any team's quota."""
    found = {profile.gpu_resource for profile in profiles.values() if profile.gpu}
    return sorted(found.union(*(sheet.accelerators for sheet in teams.values())))


def make_grant(request: Request, *, approved_by: str) -> dict[str, Any]:
    """What stands under `spec.grants.<id>` of the Team."""
    grant: dict[str, Any] = {
        "until": request.until.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "reason": request.reason,
        "requestedBy": request.asked_by,
        "approvedBy": approved_by,
    }
    if request.kind == PROFILE:
        return {"profiles": [request.profile], **grant}
    return {"gpus": {request.resource: request.amount}, **grant}


def make_grant_patch(request: Request, sheet: TeamSheet | None, now: datetime) -> dict[str, Any]:
    """Merge patch that grants a request, and takes out grants that have lapsed.

    They have no effect any more, and a Team holds 64; the ledger remembers them. Another team
    that has the name by now does not take the patch.
    """
    lapsed = {grant.id: None for grant in sheet.grants if grant.until <= now} if sheet else {}
    grants = {**lapsed, request.id: make_grant(request, approved_by=request.decided_by)}
    precondition = {"metadata": {"uid": request.team_uid}} if request.team_uid else {}
    return {**precondition, "spec": {"grants": grants}}


def make_team(request: Request, *, hub_namespace: str) -> dict[str, Any]:
    """The Team that a request for a new one asks for; its GPUs are the grant's alone."""
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.TEAM_KIND,
        "metadata": {"name": request.team, "namespace": hub_namespace},
        "spec": {
            "groups": [request.group],
            "quota": {"gpus": {request.resource: 0}},
            "grants": {request.id: make_grant(request, approved_by=request.decided_by)},
        },
    }


def _read_team(kind: str, value: object, teams: Mapping[str, TeamSheet]) -> str:
    if not isinstance(value, str) or not value:
        raise Problem("A team is needed: give its name.")
    if kind != NEW_TEAM:
        if value not in teams:
            raise Problem(f"There is no team {quoted(value)}: choose one of yours.", status=404)
        return value
    if names.slug(value) != value:
        raise Problem(
            f"{quoted(value)} cannot be a team's name: use lower-case letters, digits and single "
            "dashes, beginning with a letter and ending with a letter or digit, 63 at most."
        )
    if value in teams:
        raise Problem(f"There is a team {quoted(value)} already: choose another name.", status=409)
    return value


def _read_group(fields: Mapping[str, Any]) -> str:
    group = read_sentence("A group", fields.get("group"), needed=False).strip("/")
    if len(group) > 255:
        raise Problem("A group's name may be 255 characters long: please check it.")
    return group or fields["team"]


def _read_resource(
    value: object, teams: Mapping[str, TeamSheet], profiles: Mapping[str, Profile]
) -> str:
    known = accelerators(teams, profiles)
    if not isinstance(value, str) or value not in known:
        shown = ", ".join(known) or "none on this cluster"
        raise Problem(f"Choose the accelerator that is asked for: there is {shown}.")
    return value


def _read_amount(value: object) -> int:
    """A whole number; a form sends it as text."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value, re.ASCII):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_GPUS:
        raise Problem(f"How many is a whole number from 1 to {MAX_GPUS}: please correct it.")
    return value


def _read_profile(value: object, profiles: Mapping[str, Profile]) -> str:
    if not isinstance(value, str) or value not in profiles:
        raise Problem("There is no such profile: choose one from the list.")
    return value


def _read_until(value: object, now: datetime) -> datetime:
    """A moment, or a day, which is included."""
    if not isinstance(value, str) or not value:
        raise Problem("An end date is needed: what is granted ends with that day.")
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII):
            until = datetime.combine(date.fromisoformat(value), time(23, 59, 59), UTC)
        else:
            until = read_moment(value[:40])
    except ValueError as error:
        raise Problem("The end date is no date such as 2027-03-31: please correct it.") from error
    if until <= now:
        raise Problem("The end date is past: choose one that lies ahead.")
    if until - now > LONGEST:
        raise Problem(
            "The end date is more than a year ahead: choose an earlier one, and ask again then."
        )
    return until.replace(microsecond=0)


def _check_need(
    asked: Request, teams: Mapping[str, TeamSheet], profiles: Mapping[str, Profile]
) -> None:
    """Refuse what the team has without asking."""
    if asked.kind == QUOTA and not teams[asked.team].gpus_limited:
        raise Problem(
            f"Team {quoted(asked.team)} has no limit on accelerators, so there is nothing to ask "
            "for: just start a server.",
            status=409,
        )
    if asked.kind == PROFILE and is_allowed(teams[asked.team].team, profiles[asked.profile]):
        raise Problem(
            f"Team {quoted(asked.team)} may use profile {quoted(asked.profile)} already: "
            "just start a server.",
            status=409,
        )
