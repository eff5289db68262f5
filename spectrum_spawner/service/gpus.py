"""What somebody may see of the GPUs now: the board, one server, and what its owner is told."""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from spectrum_spawner.service import departures
from spectrum_spawner.service.appeals import Appeal
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.policy import Cause
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.gpu_rows import (
    GpuRow,
    Product,
    can_extend,
    hold_to_json,
    select_rows,
    sort_rows,
)
from spectrum_spawner.service.gpu_table import GpuTable, Parts, can_continue, make_one
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, may_see_server

TOLD = ("kind", "text", "ends_at", "keep")  # what a server hears of its own end


@dataclass(frozen=True, kw_only=True)
class Board:
    """The servers with GPUs, as `viewer` may see them; of others only how many GPUs they hold.

    `version` is another one whenever a page of this looks different.
    """

    viewer: Viewer
    everybody: tuple[GpuRow, ...]
    products: tuple[Product, ...]
    round: Round
    problems: tuple[str, ...]
    version: str

    @cached_property
    def rows(self) -> list[GpuRow]:
        """In no order."""
        viewer = self.viewer
        return [
            row.as_seen_by(viewer) for row in self.everybody if may_see_server(viewer, row.server)
        ]


async def read_table(context: Context) -> GpuTable:
    """The rows of all, as of now."""
    await context.table.refresh(await _find_parts(context), context.culler.history)
    return context.table


async def read_board(context: Context, viewer: Viewer) -> Board:
    await context.snapshot.refresh()
    table = await read_table(context)
    problems = context.culler.problems
    seen = (table.version, viewer, problems, context.snapshot.error)
    return Board(
        viewer=viewer,
        everybody=table.rows,
        products=table.products,
        round=context.culler.round,
        problems=problems,
        version=hashlib.sha256(repr(seen).encode()).hexdigest(),
    )


async def choose_rows(board: Board, *, sort: str = "", **chosen: str) -> list[GpuRow]:
    """Rows as `select_rows` takes them, in order; in a thread, since of thousands it takes long."""

    def choose() -> list[GpuRow]:
        return sort_rows(select_rows(board.rows, **chosen), sort)

    return await asyncio.to_thread(choose)


async def find_row(context: Context, viewer: Viewer, *, user: str, server: str) -> GpuRow:
    """One server, with GPUs or without; raises Problem."""
    await context.snapshot.refresh()
    found = context.snapshot.find(user, server)
    if found is None or not may_see_server(viewer, found):
        raise Problem("There is no such server running: it may have ended already.", status=404)
    row = make_one(found, await _find_parts(context), context.culler.history)
    return row.as_seen_by(viewer)


def list_notices(context: Context) -> list[dict[str, Any]]:
    """What owners are told of ends that are near and of appeals, for the hub's pages."""
    round = context.culler.round
    ends = [notice for key in round.standings if (notice := _make_notice(round, key))]
    return [*ends, *(each.as_notice() for key in context.appeals for each in _appeal(context, key))]


def list_own_notices(context: Context, key: Key) -> list[dict[str, Any]]:
    """What a server is told of its own end, and of appeals."""
    end = _make_notice(context.culler.round, key)
    notices = [*([end] if end else []), *(each.as_notice() for each in _appeal(context, key))]
    if not notices or (server := context.snapshot.find(*key)) is None:
        return []
    profiles = context.settings.profiles
    profile, sheet = profiles.get(server.profile), context.teams.get(server.team)
    more = {"continue": can_continue(profile, sheet, profiles)}
    return [{**{part: notice[part] for part in TOLD}, **more} for notice in notices]


async def describe_self(context: Context, viewer: Viewer) -> dict[str, Any]:
    """What a server may tell the person in it, by its own token; raises Problem."""
    if viewer.server is None:
        raise Problem("Only a server's own token has a server: name one instead.", status=404)
    user, name = viewer.server
    row = await find_row(context, viewer, user=user, server=name)
    return {
        "user": user,
        "server": name,
        "state": row.state,
        "decision": str(row.verdict.decision) if row.verdict else "",
        "sentence": row.sentence,
        "idle_since": row.idle_since and stamp(row.idle_since),
        "ends_at": row.ends_at and stamp(row.ends_at),
        "extensions_left": row.extensions_left,
        "hold": hold_to_json(row.hold),
        "may": list(row.may),
        "notices": list_own_notices(context, viewer.server),
    }


def _appeal(context: Context, key: Key) -> Iterator[Appeal]:
    """What was asked last of the owner of a server, while that still holds."""
    appeal = context.appeals.get(key)
    if appeal and appeal.holds(context.snapshot.find(*key), context.now()):
        yield appeal


def _make_notice(round: Round, key: Key) -> dict[str, Any] | None:
    """The end of a server that is near; None while there is none, or nobody knows any more."""
    standing, verdict = round.standings.get(key), round.verdicts.get(key)
    subject = round.subjects.get(key)
    if not round.enabled or standing is None or verdict is None or subject is None:
        return None
    if not standing.warned_at or not standing.ends_at or verdict.cause is Cause.UNKNOWN:
        return None
    user, server = key
    return {
        "user": user,
        "server": server,
        "team": subject.team,
        "kind": "idle",
        "text": verdict.text,
        "at": stamp(standing.warned_at),
        "ends_at": stamp(standing.ends_at),
        "keep": can_extend(standing, verdict.rule),
    }


async def _find_parts(context: Context) -> Parts:
    return Parts(
        round=context.culler.round,
        people=context.snapshot.people,
        sheets=dict(context.teams.items()),
        leaving=await departures.list_ends(context),
        releasing=frozenset(context.releasing),
        inventory=await context.stock.read(),
        profiles=context.settings.profiles,
    )
