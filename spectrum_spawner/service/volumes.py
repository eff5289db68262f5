"""How full volumes are, as servers last told: kept in memory, and soon in the ledger's database.

They are no records: each new figure takes the place of the one before, and what the last seconds
brought may be lost with the service. So they are written all at once now and then.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from spectrum_spawner.service import tables
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.moments import read_moment, stamp
from spectrum_spawner.service.recent import find_last
from spectrum_spawner.service.reports import Figures, Report, Volume, read_report
from spectrum_spawner.service.servers import Server

FORGET_AFTER = timedelta(days=90)
MOST_DISKS = 50  # scratch disks of a person in a team of which figures are kept
MOST_SHOWN = 1000  # volumes of a person and their teams, those first that were told last

_KEY = tuple(tables.figures.primary_key.columns)


def keep_report(context: Context, server: Server, body: dict[str, Any]) -> None:
    """Keep what a server tells of its volumes; raises Problem."""
    sheet = context.sheets.get(server.team)
    offered = {dataset.name for dataset in sheet.team.datasets} if sheet else set()
    report = read_report(
        body,
        team=server.team,
        user=server.user,
        server=server.name,
        datasets=offered,
        now=context.now(),
    )
    context.figures.keep(report)


async def list_volumes(
    context: Context, *, user: str, teams: Collection[str]
) -> list[dict[str, Any]]:
    """The figures of a person's volumes in any team, and of what these teams have in common."""
    written = await context.ledger.work(_find, user, teams)
    # those of now, which may have been written down meanwhile
    recent = context.figures.find(user=user, teams=teams)
    found = {each.volume: each for each in written} | recent
    return [{**asdict(found[key]), "at": stamp(found[key].at)} for key in sorted(found)]


async def write_down(context: Context) -> None:
    """Put what servers told into the ledger's database; what cannot be put there stays.

    Raises LedgerError.
    """
    reports = context.figures.list_reports()
    if reports:
        await context.ledger.work(_write, reports)
        context.figures.drop(reports)


async def forget_old(context: Context) -> None:
    """Drop the figures of volumes of which nobody has told for long. Raises LedgerError."""
    await context.ledger.work(_forget, context.now() - FORGET_AFTER)


def _write(connection: sa.Connection, reports: Sequence[Report]) -> None:
    figures = find_last(reports)
    if figures:
        _upsert(connection, figures)
    _delete(connection, _find_untold(connection, reports))
    people = {(each.team, each.user) for each in figures if each.kind == "scratch"}
    for team, user in sorted(people):
        _delete(connection, _find_surplus(connection, team, user))


def _upsert(connection: sa.Connection, found: Iterable[Figures]) -> None:
    is_postgresql = connection.dialect.name == "postgresql"
    insert = postgresql.insert(tables.figures) if is_postgresql else sqlite.insert(tables.figures)
    key = {column.name for column in _KEY}
    news = {column.name: column for column in insert.excluded if column.name not in key}
    rows = [{**asdict(each), "at": stamp(each.at)} for each in found]
    connection.execute(insert.on_conflict_do_update(index_elements=_KEY, set_=news), rows)


def _find_untold(connection: sa.Connection, reports: Sequence[Report]) -> list[Volume]:
    """What servers told once and tell no more in the same team; disks outlive their mounting."""
    columns = tables.figures.c
    told = {(each.team, each.server): {f.volume for f in each.figures} for each in reports}
    servers = sorted({each.server for each in reports})
    select = sa.select(*_KEY, columns.server).where(
        columns.server.in_(servers), columns.kind != "scratch"
    )
    rows = [((team, *rest), server) for team, *rest, server in connection.execute(select)]
    return [
        volume
        for volume, server in rows
        if (key := (volume[0], server)) in told and volume not in told[key]
    ]


def _find_surplus(connection: sa.Connection, team: str, user: str) -> list[Volume]:
    """Of a person's scratch disks those beyond MOST_DISKS, the ones told longest ago."""
    columns = tables.figures.c
    mine = (columns.team == team) & (columns.kind == "scratch") & (columns.user == user)
    newest = columns.at.desc(), columns.name
    select = sa.select(*_KEY).where(mine).order_by(*newest)
    return [tuple(row) for row in connection.execute(select.offset(MOST_DISKS).limit(MOST_SHOWN))]


def _delete(connection: sa.Connection, volumes: Iterable[Volume]) -> None:
    for volume in volumes:
        wanted = (column == value for column, value in zip(_KEY, volume, strict=True))
        connection.execute(tables.figures.delete().where(*wanted))


def _find(connection: sa.Connection, user: str, teams: Collection[str]) -> list[Figures]:
    columns = tables.figures.c
    common = (columns.user == "") & columns.team.in_(sorted(teams))
    mine = (columns.user == user) & (columns.user != "")
    select = sa.select(tables.figures).where(common | mine)
    rows = connection.execute(select.order_by(columns.at.desc()).limit(MOST_SHOWN)).mappings()
    return [Figures(**{**row, "at": read_moment(row["at"])}) for row in rows]


def _forget(connection: sa.Connection, before: datetime) -> None:
    connection.execute(tables.figures.delete().where(tables.figures.c.at < stamp(before)))
