"""Soft budgets of GPU hours: whoever leads a team hears of them, and nothing is ever stopped."""

import uuid
from collections.abc import Mapping

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hours import Budget, month_of
from spectrum_spawner.service.records import SERVICE, make_record
from spectrum_spawner.service.rights import Viewer, may_see_team


async def look(context: Context) -> None:
    """Keep what was counted, and tell of budgets that are near their end; raises LedgerError."""
    now, given = context.now(), context.settings.budgets
    if not await context.meter.keep(now):
        return
    month = month_of(now)
    held = await _sum_teams(context, month) if given else {}
    found = [
        Budget(
            team=team,
            title=context.title_of(team),
            month=month,
            held=held.get(team, 0.0) / 3600,
            budget=budget,
        )
        for team, budget in given.items()
    ]
    # once a month and mark, however often the service looks or begins
    records = [
        make_record(
            "notice",
            SERVICE,
            at=now,
            id=uuid.uuid5(uuid.NAMESPACE_OID, f"budget/{each.team}/{month}/{each.mark}").hex,
            team=each.team,
            reason=each.text,
            details={"budget": each.budget, "mark": each.mark, "month": month},
        )
        for each in found
        if each.mark
    ]
    if records:
        await context.ledger.add(records)
    context.near_budgets[:] = [each for each in found if each.mark]


def list_near(context: Context, viewer: Viewer) -> list[str]:
    """Sentences on budgets near their end, of the teams that somebody may see."""
    return [each.text for each in context.near_budgets if may_see_team(viewer, each.team)]


async def _sum_teams(context: Context, month: str) -> Mapping[str, float]:
    found: dict[str, float] = {}
    teams = sorted(context.settings.budgets)
    for account, hours in (await context.meter.list_month(month, teams=teams)).items():
        found[account.team] = found.get(account.team, 0.0) + hours.reserved
    return found
