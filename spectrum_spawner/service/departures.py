"""People who left a team in which their server runs: warned, and stopped after a time of grace."""

import logging
import uuid
from datetime import datetime, timedelta

from spectrum_spawner.audit import Record
from spectrum_spawner.service import leaving
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hub import HubError
from spectrum_spawner.service.leaving import Departure, Run
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.records import SERVICE
from spectrum_spawner.teams import Team, teams_of

_log = logging.getLogger("spectrum.service")


async def look(context: Context) -> None:
    """One look: who left, who came back, whose time is over.

    While the hub does not answer or the teams cannot be read, nothing is known and nothing
    happens. Raises LedgerError.
    """
    await context.snapshot.refresh()
    if context.snapshot.error or not _are_teams_known(context):
        return
    teams = _teams(context)
    steps = leaving.decide(
        context.snapshot.people,
        teams,
        await context.ledger.list_departures(),
        now=context.now(),
        grace=_grace(context),
    )
    for departure in steps.warn:
        title, has_bucket = context.title_of(departure.team), bool(teams[departure.team].bucket)
        text = leaving.explanation(departure, title, _grace(context), has_bucket=has_bucket)
        await context.ledger.add_departure(departure, _record(context, departure, "notice", text))
    for departure in steps.back:
        text = f"{departure.user} is in the team again: the server stays."
        await context.ledger.remove_departure(
            departure, _record(context, departure, "notice", text)
        )
    for departure in steps.gone:
        await context.ledger.remove_departure(departure)
    for departure in steps.stop:
        await _stop(context, departure)


async def list_ends(context: Context) -> dict[Run, datetime]:
    """When servers end whose owners left the team, by run."""
    grace = _grace(context)
    return {each.run: each.ends_at(grace) for each in await context.ledger.list_departures()}


async def list_notices(context: Context) -> list[dict[str, str]]:
    """What the owners of such servers are told, for the hub's pages."""
    grace = _grace(context)
    return [
        {
            "user": departure.user,
            "server": departure.server,
            "team": departure.team,
            "text": leaving.warning(context.title_of(departure.team)),
            "at": stamp(departure.seen_at),
            "ends_at": stamp(departure.ends_at(grace)),
        }
        for departure in await context.ledger.list_departures()
    ]


async def _stop(context: Context, departure: Departure) -> None:
    """Stop a server whose time is over; asked again at each look until it is gone."""
    try:
        if not await _is_still_outside(context, departure):
            return  # the next look sees why
        text = f"{departure.user} is no longer in team {context.title_of(departure.team)}."
        record = _record(context, departure, "stop-request", text)
        await context.ledger.add([record])
        await context.hub.stop(departure.user, departure.server, by=SERVICE, reason=text)
    except HubError as error:
        _log.warning("server of %s not stopped yet: %s", departure.user, error)
    finally:
        context.snapshot.forget()


async def _is_still_outside(context: Context, departure: Departure) -> bool:
    """Whether that very run of the server is still there, and its owner still outside."""
    person = await context.hub.find_person(departure.user)
    team = _teams(context).get(departure.team)
    if person is None or team is None or not _are_teams_known(context):
        return False
    runs = {(s.user, s.name, s.team, s.started) for s in person.servers}
    return departure.run in runs and not teams_of(person.name, person.groups, [team])


def _record(context: Context, departure: Departure, action: str, text: str) -> Record:
    """One record for one event, however often it is written."""
    began = f"{action}/{departure.user}/{departure.server}/{stamp(departure.seen_at)}"
    return context.make_record(
        action,
        SERVICE,
        id=uuid.uuid5(uuid.NAMESPACE_OID, began).hex if action == "stop-request" else "",
        user=departure.user,
        server=departure.server,
        team=departure.team,
        reason=text,
    )


def _are_teams_known(context: Context) -> bool:
    return context.teams.synced and context.teams.stale_since is None


def _teams(context: Context) -> dict[str, Team]:
    return {name: sheet.team for name, sheet in context.teams.items() if sheet.is_known}


def _grace(context: Context) -> timedelta:
    return timedelta(seconds=context.settings.leaving_grace)
