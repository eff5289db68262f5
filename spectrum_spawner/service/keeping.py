"""Keeping and holding servers for people: who may is checked here, then it is done."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer
from spectrum_spawner.service.stops import find_mine


async def keep_server(context: Context, viewer: Viewer, *, user: str, server: str) -> None:
    """One click: the end that is near comes later; raises Problem."""
    found = await find_mine(context, viewer, user, server, verb="kept")
    await context.culler.extend((found.user, found.name), by=viewer.actor)


async def hold_server(
    context: Context, viewer: Viewer, *, user: str, server: str, fields: Mapping[str, Any]
) -> None:
    """Keep a server until a time, whatever is measured of it; raises Problem."""
    until = read_until(fields.get("until"))
    reason = read_sentence("A reason", fields.get("reason"), needed=False)
    found = await find_mine(context, viewer, user, server, verb="held")
    await context.culler.hold((found.user, found.name), by=viewer.actor, until=until, reason=reason)


async def end_hold(context: Context, viewer: Viewer, *, user: str, server: str) -> None:
    """Let what is measured count again; raises Problem."""
    found = await find_mine(context, viewer, user, server, verb="held")
    await context.culler.end_hold((found.user, found.name), by=viewer.actor)


def read_until(value: object) -> datetime:
    """The end of a hold, a time with its zone; raises Problem."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) and value else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise Problem(
            "A hold needs its end, a time with a zone such as 2026-03-31T18:00:00+02:00: please "
            "add it."
        )
    return moment
