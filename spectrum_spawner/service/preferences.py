"""What a lead sets for the team, within the limits that administrators set."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner.kube import KubeError, Unreachable
from spectrum_spawner.profiles import Profile, allowed_profiles
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.rights import Viewer, may_set_preferences
from spectrum_spawner.service.team_writes import patch_team
from spectrum_spawner.teams import Team

_log = logging.getLogger("spectrum.service")


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """None leaves it to the administrators' settings. `idle_minutes` is in minutes."""

    default_profile: str | None
    idle_minutes: int | None


async def set_preferences(
    context: Context, viewer: Viewer, name: str, fields: Mapping[str, Any]
) -> None:
    """Write a team's preferences into its Team object; raises Problem.

    Nothing is changed that is not written down first.
    """
    team = context.find_team(viewer, name).team
    if not may_set_preferences(viewer, name):
        raise Problem(
            f"The settings of team {quoted(name)} are its leads' to change: ask one of them.",
            status=403,
        )
    wanted = read_preferences(
        fields, team=team, profiles=context.settings.profiles, limits=context.settings.idle_minutes
    )
    await _write_down(context, viewer, name, wanted)
    idle = None if wanted.idle_minutes is None else {"minutes": wanted.idle_minutes}
    changes = {"spec": {"defaultProfile": wanted.default_profile, "idle": idle}}
    try:
        await patch_team(context, name, changes)
    except Unreachable as error:
        raise Problem(
            "The Kubernetes API does not answer: try again in a minute.", status=503
        ) from error
    except KubeError as error:
        raise Problem(f"The team was not changed: {error.message}", status=409) from error


async def _write_down(context: Context, viewer: Viewer, name: str, wanted: Preferences) -> None:
    """Who set what; where the Team is then not changed, it is one record too many."""
    record = context.make_record(
        "preference",
        viewer.actor,
        team=name,
        reason=f"Default profile: {wanted.default_profile or 'none'}; idle after: "
        f"{f'{wanted.idle_minutes} minutes' if wanted.idle_minutes else 'not set'}.",
        details={"defaultProfile": wanted.default_profile, "idleMinutes": wanted.idle_minutes},
    )
    try:
        await context.ledger.add([record])
    except LedgerError as error:
        _log.error("not in the ledger: %s: %r", error, record)
        raise Problem(
            "The settings were not saved, since that could not be written down: try again in a "
            "minute, or tell an administrator.",
            status=503,
        ) from error


def read_preferences(
    fields: Mapping[str, Any],
    *,
    team: Team,
    profiles: Mapping[str, Profile],
    limits: tuple[int, int],
) -> Preferences:
    """Both settings from what a person sent; what is absent or empty is unset. Raises Problem."""
    if extra := sorted(fields.keys() - {"defaultProfile", "idleMinutes"}):
        raise Problem(f"A team has no setting {quoted(', '.join(extra))}: leave it out.")
    return Preferences(
        default_profile=_read_profile(fields.get("defaultProfile"), team, profiles),
        idle_minutes=_read_minutes(fields.get("idleMinutes"), limits),
    )


def _read_profile(value: object, team: Team, profiles: Mapping[str, Profile]) -> str | None:
    if value is None or value == "":
        return None
    allowed = [profile.name for profile in allowed_profiles(team, profiles)]
    if not isinstance(value, str) or value not in allowed:
        raise Problem(
            f"The default must be a profile that the team may use: {', '.join(allowed) or 'none'}."
        )
    return value


def _read_minutes(value: object, limits: tuple[int, int]) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value, re.ASCII):
        value = int(value)
    least, most = limits
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Problem(f"Idle minutes are a whole number from {least} to {most}: please correct it.")
    return value
