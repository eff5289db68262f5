"""GPU hours as somebody may see them: of a month, added up by team, profile, person or day."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hours import Account, Hours, month_of
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, may_see_hours

COLUMNS = ("team", "profile", "user", "day")
HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class HourRow:
    """Hours of one GPU. Of the columns that were not asked for, the text is empty.

    `measured` is how many of the `reserved` ones somebody measured, `used` how many of those the
    GPU worked.
    """

    team: str = ""
    profile: str = ""
    user: str = ""
    day: str = ""
    reserved: float
    used: float
    measured: float

    @property
    def use_text(self) -> str:
        """How much of what was measured was used."""
        if not self.measured:
            return "not measured"
        return f"{min(100, round(100 * self.used / self.measured))} %"


async def list_hours(
    context: Context, viewer: Viewer, *, month: str = "", team: str = "", by: Iterable[str] = ()
) -> list[HourRow]:
    """Hours of a month (unless set, of this one) that somebody may see; raises Problem."""
    columns = list(by) or list(COLUMNS)
    if extra := set(columns) - set(COLUMNS):
        raise Problem(f"Hours cannot be added up by {', '.join(sorted(extra))}: choose others.")
    found = await context.meter.list_month(read_month(context, month), teams=[team] if team else ())
    seen = {
        account: hours
        for account, hours in found.items()
        if may_see_hours(viewer, user=account.user, team=account.team)
    }
    return add_up(seen, columns)


def read_month(context: Context, text: str) -> str:
    """A month such as `2026-01`; raises Problem."""
    if text and not re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", text, re.ASCII):
        raise Problem("That is no month such as 2026-01: please correct it.")
    return text or month_of(context.now())


def add_up(hours: Mapping[Account, Hours], columns: Iterable[str]) -> list[HourRow]:
    """One row for each of what the columns tell apart, those that held most first."""
    sums: dict[tuple[tuple[str, str], ...], Hours] = {}
    for account, each in hours.items():
        place = tuple((column, getattr(account, column)) for column in columns)
        sums[place] = sums.get(place, Hours()) + each
    rows = [
        HourRow(
            **dict(place),
            reserved=each.reserved / HOUR,
            used=each.used / HOUR,
            measured=each.measured / HOUR,
        )
        for place, each in sums.items()
    ]
    return sorted(rows, key=lambda row: (-row.reserved, row.team, row.profile, row.user, row.day))


def row_to_json(row: HourRow, columns: Iterable[str]) -> dict[str, Any]:
    figures = {key: round(getattr(row, key), 3) for key in ("reserved", "used", "measured")}
    return {**{column: getattr(row, column) for column in columns}, **figures}
