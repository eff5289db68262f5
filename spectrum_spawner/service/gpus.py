"""What somebody may see of the GPUs now: the board, one server, and what its owner is told."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.gpu_rows import (
    GpuRow,
    Product,
    can_extend,
    hold_to_json,
    list_products,
    make_row,
)
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, may_keep_or_release, may_see_server
from spectrum_spawner.service.servers import Server


@dataclass(frozen=True, kw_only=True)
class Board:
    """The servers with GPUs that somebody may see, and of all others how many GPUs they hold."""

    rows: list[GpuRow]
    products: list[Product]
    round: Round


async def read_board(context: Context, viewer: Viewer) -> Board:
    """Rows in no order; raises Problem while nobody knows the teams."""
    await context.snapshot.refresh()
    round = context.culler.round
    leaving = await _list_leaving(context)
    everybody = [
        _make_row(context, viewer, server, round, leaving) for server in list_holders(context)
    ]
    return Board(
        rows=[row for row in everybody if may_see_server(viewer, row.server)],
        products=list_products(everybody, await context.stock.read(), context.settings.profiles),
        round=round,
    )


async def find_row(context: Context, viewer: Viewer, *, user: str, server: str) -> GpuRow:
    """One server, with GPUs or without; raises Problem."""
    await context.snapshot.refresh()
    found = next((s for s in context.snapshot if (s.user, s.name) == (user, server)), None)
    if found is None or not may_see_server(viewer, found):
        raise Problem("There is no such server running: it may have ended already.", status=404)
    leaving = await _list_leaving(context)
    return _make_row(context, viewer, found, context.culler.round, leaving)


def list_holders(context: Context) -> Iterator[Server]:
    """The servers with GPUs that are active now, whoever they belong to."""
    subjects = context.culler.round.subjects
    for server in context.snapshot:
        profile = context.settings.profiles.get(server.profile)
        subject = subjects.get((server.user, server.name))
        if profile.gpu if profile else subject and subject.run.gpus:
            yield server


def list_idle_notices(context: Context) -> list[dict[str, Any]]:
    """What owners are told of ends that are near, for the hub's pages."""
    round = context.culler.round
    return [
        {
            "user": user,
            "server": server,
            "team": round.subjects[user, server].team,
            "kind": "idle",
            "text": round.verdicts[user, server].text,
            "at": stamp(standing.warned_at),
            "ends_at": stamp(standing.ends_at),
            "keep": can_extend(standing, round.verdicts[user, server].rule),
        }
        for (user, server), standing in round.standings.items()
        if round.enabled
        and standing.warned_at
        and standing.ends_at
        and (user, server) in round.verdicts
    ]


def list_own_notices(context: Context, server: tuple[str, str]) -> list[dict[str, Any]]:
    """What a server is told of its own end; `server` is owner and name."""
    kept = ("kind", "text", "ends_at", "keep")
    return [
        {key: notice[key] for key in kept}
        for notice in list_idle_notices(context)
        if (notice["user"], notice["server"]) == server
    ]


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


async def _list_leaving(context: Context) -> dict[tuple[object, ...], datetime]:
    """When servers end whose owners left the team, by run."""
    grace = timedelta(seconds=context.settings.leaving_grace)
    return {d.run: d.ends_at(grace) for d in await context.ledger.list_departures()}


def _make_row(
    context: Context,
    viewer: Viewer,
    server: Server,
    round: Round,
    leaving: dict[tuple[object, ...], datetime],
) -> GpuRow:
    subject = round.subjects.get((server.user, server.name))
    return make_row(
        server,
        round,
        profile=context.settings.profiles.get(server.profile),
        team_title=context.title_of(server.team),
        history=context.culler.history.of(subject, context.now()) if subject else (),
        may_act=may_keep_or_release(viewer, server),
        is_own=server.user == viewer.name,
        leaves_at=leaving.get((server.user, server.name, server.team, server.started)),
    )
