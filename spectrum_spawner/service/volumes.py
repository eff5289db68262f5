"""How full volumes are, as servers last told: kept in the ledger's database, for a while.

They are no records: each new figure takes the place of the one before.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from spectrum_spawner.service import tables
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.moments import read_moment, stamp
from spectrum_spawner.service.reports import Figures

FORGET_AFTER = timedelta(days=90)


async def keep(context: Context, figures: Sequence[Figures]) -> None:
    """Keep figures in place of those before. Raises LedgerError."""
    await context.ledger.work(_keep, figures)


async def list_volumes(
    context: Context, *, user: str, teams: Collection[str]
) -> list[dict[str, Any]]:
    """The figures of a person's volumes in any team, and of what these teams have in common."""
    found = await context.ledger.work(_find, user, teams)
    return [{**asdict(each), "at": stamp(each.at)} for each in found]


async def forget_old(context: Context) -> None:
    """Drop the figures of volumes of which nobody has told for long. Raises LedgerError."""
    await context.ledger.work(_forget, context.now() - FORGET_AFTER)


def _keep(connection: sa.Connection, found: Sequence[Figures]) -> None:
    if not found:
        return
    is_postgresql = connection.dialect.name == "postgresql"
    insert = postgresql.insert(tables.figures) if is_postgresql else sqlite.insert(tables.figures)
    key = tables.figures.primary_key.columns.keys()
    news = {column.name: column for column in insert.excluded if column.name not in key}
    rows = [{**asdict(each), "at": stamp(each.at)} for each in found]
    connection.execute(insert.on_conflict_do_update(index_elements=key, set_=news), rows)


def _find(connection: sa.Connection, user: str, teams: Collection[str]) -> list[Figures]:
    columns = tables.figures.c
    common = (columns.user == "") & columns.team.in_(sorted(teams))
    mine = (columns.user == user) & (columns.user != "")
    select = sa.select(tables.figures).where(common | mine)
    order = columns.team, columns.kind, columns.name
    rows = connection.execute(select.order_by(*order)).mappings()
    return [Figures(**{**row, "at": read_moment(row["at"])}) for row in rows]


def _forget(connection: sa.Connection, before: datetime) -> None:
    connection.execute(tables.figures.delete().where(tables.figures.c.at < stamp(before)))
