"""What somebody may see now: teams, servers and records. For pages and API alike."""

import re
from collections.abc import Mapping
from datetime import datetime

from spectrum_spawner.audit import ACTIONS
from spectrum_spawner.service import departures, presentation
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.ledger import Query
from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.service.presentation import Row
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.rights import (
    Viewer,
    audit_scope,
    may_see_server,
    may_see_team,
    may_stop,
)
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.team_sheet import TeamSheet

FILTERS = ("team", "person", "server", "action", "since", "until", "before")
MAX_NAME = 300  # characters of a name that is looked for


def list_teams(context: Context, viewer: Viewer) -> list[TeamSheet]:
    """The teams that somebody may see, by the names that people call them."""
    seen = [sheet for name, sheet in context.sheets.items() if may_see_team(viewer, name)]
    return sorted(seen, key=lambda sheet: (sheet.team.display_name.casefold(), sheet.name))


async def list_servers(context: Context, viewer: Viewer, *, team: str = "") -> list[Row]:
    """The servers that somebody may see, of one team or of all, by owner and name."""
    await context.snapshot.refresh()
    leaving = await departures.list_ends(context)
    rows = []
    for server in context.snapshot:
        if not may_see_server(viewer, server) or (team and server.team != team):
            continue
        leaves_at = leaving.get((server.user, server.name, server.team, server.started))
        rows.append(_make_row(context, viewer, server, leaves_at))
    return sorted(rows, key=lambda row: (row.server.user, row.server.name))


def read_query(viewer: Viewer, fields: Mapping[str, str]) -> Query:
    """Which records somebody asks for, among those that they may read; raises Problem."""
    if extra := sorted(fields.keys() - set(FILTERS)):
        raise Problem(f"Records cannot be filtered by {quoted(', '.join(extra))}: leave it out.")
    action, before = fields.get("action", ""), fields.get("before", "")
    if action and action not in ACTIONS:
        raise Problem(f"There is no action {quoted(action)}: choose one of the list.")
    if before and not re.fullmatch(r"[0-9TZ:.-]{27},[0-9]{1,18}", before, re.ASCII):
        raise Problem("That page of records does not exist: begin with the first.")
    return Query(
        scope=audit_scope(viewer),
        team=_read_name(fields.get("team", "")),
        person=_read_name(fields.get("person", "")),
        server=_read_server(fields.get("server", "")),
        action=action,
        since=_read_time("The beginning", fields.get("since", "")),
        until=_read_time("The end", fields.get("until", "")),
        before=before,
    )


def _make_row(context: Context, viewer: Viewer, server: Server, leaves_at: datetime | None) -> Row:
    profiles = context.settings.profiles
    return Row(
        server=server,
        profile=presentation.title_of(server.profile, profiles),
        gpus=presentation.gpus_text(server, profiles),
        may_stop=may_stop(viewer, server),
        is_own=server.user == viewer.name,
        leaves_at=leaves_at,
    )


def _read_name(text: str) -> str:
    if len(text) > MAX_NAME or not text.isprintable():
        raise Problem("Nobody and no team has such a name: please check it.")
    return text


def _read_server(text: str) -> tuple[str, str] | None:
    if not text:
        return None
    user, slash, name = _read_name(text).rpartition("/")
    if not slash:
        raise Problem(
            "A server is named as user/server, an unnamed one as user/: please correct it."
        )
    return user, name


def _read_time(what: str, text: str) -> datetime | None:
    try:
        return read_moment(text) if text else None
    except ValueError as error:
        raise Problem(f"{what} is no time such as 2026-03-31T18:00: please correct it.") from error
