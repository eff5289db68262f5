"""Keeping, holding and releasing servers for people: who may is checked here, then it is done."""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from spectrum_spawner.service.asking import read_sentence
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.gpus import list_holders
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.rights import Viewer, may_keep_or_release
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.stops import find_running, release_server

AT_ONCE = 10  # servers of many that are ended at the same time
MOST = 1000  # servers that one request may name

Key = tuple[str, str]


async def keep_server(context: Context, viewer: Viewer, *, user: str, server: str) -> None:
    """One click: the end that is near comes later; raises Problem."""
    found = await _find(context, viewer, user, server)
    await context.culler.extend((found.user, found.name), by=viewer.actor)


async def hold_server(
    context: Context, viewer: Viewer, *, user: str, server: str, fields: Mapping[str, Any]
) -> None:
    """Keep a server until a time, whatever is measured of it; raises Problem."""
    until = read_until(fields.get("until"))
    reason = read_sentence("A reason", fields.get("reason"), needed=False)
    found = await _find(context, viewer, user, server)
    await context.culler.hold((found.user, found.name), by=viewer.actor, until=until, reason=reason)


async def end_hold(context: Context, viewer: Viewer, *, user: str, server: str) -> None:
    """Let what is measured count again; raises Problem."""
    found = await _find(context, viewer, user, server)
    await context.culler.end_hold((found.user, found.name), by=viewer.actor)


async def release_many(
    context: Context, viewer: Viewer, keys: Iterable[Key], *, reason: str
) -> tuple[list[Key], dict[Key, Problem]]:
    """End servers for their GPUs: those that end, and why others do not."""
    limit = asyncio.Semaphore(AT_ONCE)
    ended: list[Key] = []
    failed: dict[Key, Problem] = {}

    async def release(key: Key) -> None:
        user, server = key
        async with limit:
            try:
                await release_server(context, viewer, user=user, server=server, reason=reason)
            except Problem as problem:
                failed[key] = problem
            else:
                ended.append(key)

    await asyncio.gather(*(release(key) for key in dict.fromkeys(keys)))
    return sorted(ended), failed


async def list_own(context: Context, viewer: Viewer) -> list[Key]:
    """One's own servers that hold GPUs now."""
    context.snapshot.forget()  # one that was started a second ago is meant as well
    await context.snapshot.refresh()
    return [(s.user, s.name) for s in list_holders(context) if s.user == viewer.name]


def read_keys(names: Iterable[object]) -> list[Key]:
    """Servers as forms and API name them, `user/server`; raises Problem."""
    named = list(names)
    if len(named) > MOST:
        raise Problem(f"That is more than {MOST} servers: choose fewer.")
    if not all(isinstance(name, str) and "/" in name for name in named):
        raise Problem("A server is named as user/server, an unnamed one as user/: correct it.")
    parts = [str(name).rpartition("/") for name in named]
    return [(user, server) for user, _, server in parts]


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


async def _find(context: Context, viewer: Viewer, user: str, server: str) -> Server:
    found = await find_running(context, viewer, user, server)
    if not may_keep_or_release(viewer, found):
        raise Problem(
            f"The server of {quoted(found.title)} can be kept by its owner, by a lead of team "
            f"{quoted(found.team)} or by an administrator: ask one of them.",
            status=403,
        )
    return found
