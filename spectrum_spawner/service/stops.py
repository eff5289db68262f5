"""Ending a server for somebody: who may is checked, and written down before it is done."""

import asyncio
import logging

from spectrum_spawner.audit import Record
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hub import HubError, HubRefused
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.records import SERVICE, name_of
from spectrum_spawner.service.rights import Viewer, may_keep_or_release, may_see_server
from spectrum_spawner.service.servers import Server

WRITE_WITHIN = 3.0  # seconds that a stop waits for the ledger
STOP, RELEASE = "stop-request", "release"  # actions: for any reason, and for its GPUs
_DONE = {STOP: "stopped it", RELEASE: "released its GPUs"}

_log = logging.getLogger("spectrum.service")


async def end_server(
    context: Context, viewer: Viewer, action: str, *, user: str, server: str, reason: str
) -> None:
    """End a server by its owner and name, as STOP or RELEASE; raises Problem.

    Nobody's own stop waits for the ledger; anybody else's is only done once it is written down.
    """
    found = await find_mine(context, viewer, user, server, verb="stopped")
    if viewer.server is not None:
        await refuse_shared(context, found)
    record = make_end(context, viewer, action, found, reason)
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            await context.ledger.add([record])
    except (LedgerError, TimeoutError) as error:
        _log.error("not in the ledger: %s: %r", error, record)
        if found.user != viewer.name:
            raise Problem(
                "The server was not stopped, since that could not be written down: try again "
                "in a minute, or tell an administrator.",
                status=503,
            ) from error
    await stop(context, found, by=viewer.actor, reason=reason)


async def find_mine(
    context: Context, viewer: Viewer, user: str, server: str, *, verb: str
) -> Server:
    """A server as the hub knows it at this moment: its team decides who may do what to it.

    `verb` is what is to be done to it, as part of a sentence. Raises Problem.
    """
    try:
        found = await context.hub.find_server(user, server)
    except HubError as error:
        raise _hub_away(error) from error
    return check_mine(viewer, found, verb=verb)


def check_mine(viewer: Viewer, server: Server | None, *, verb: str) -> Server:
    """The server, if somebody may keep and end it; raises Problem."""
    if server is None or not may_see_server(viewer, server):
        raise Problem("There is no such server running: it may have ended already.", status=404)
    if not may_keep_or_release(viewer, server):
        raise Problem(
            f"The server of {quoted(server.title)} can be {verb} by its owner, by a lead of team "
            f"{quoted(server.team)} or by an administrator: ask one of them.",
            status=403,
        )
    return server


async def refuse_shared(context: Context, server: Server) -> None:
    """Raises Problem for a server in which others are, too: all of them have its token."""
    try:
        is_shared = await context.hub.is_shared(server.user, server.name)
    except HubError as error:
        raise _hub_away(error) from error
    if is_shared:
        raise Problem(
            "This server is shared, so its own token does not end it: end it on its page, where "
            "you are signed in yourself.",
            status=409,
        )


def make_end(context: Context, viewer: Viewer, action: str, server: Server, reason: str) -> Record:
    """The record of an end that somebody asks for."""
    return context.make_record(
        action,
        viewer.actor,
        user=server.user,
        server=server.name,
        team=server.team,
        reason=reason or f"{name_of(viewer.actor)} {_DONE[action]}.",
    )


async def stop(context: Context, server: Server, *, by: str, reason: str) -> None:
    """Ask the hub for the end of a server; raises Problem, and writes down that it did not end."""
    try:
        await context.hub.stop(server.user, server.name, by=by, reason=reason)
    except HubError as error:
        await tell_failure(context, server, f"The hub did not stop it: {error}.")
        if isinstance(error, HubRefused):
            raise Problem(f"The hub does not stop the server now: {error}", status=409) from error
        raise _hub_away(error) from error
    finally:
        context.snapshot.forget()


async def tell_failure(context: Context, server: Server, text: str) -> None:
    """Write down that what was written down before was not done."""
    record = context.make_record(
        "notice", SERVICE, user=server.user, server=server.name, team=server.team, reason=text
    )
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            await context.ledger.add([record])
    except (LedgerError, TimeoutError) as error:
        _log.error("not in the ledger: %s: %r", error, record)


def _hub_away(error: HubError) -> Problem:
    _log.warning("the hub does not answer: %s", error)
    return Problem("JupyterHub does not answer: try again in a minute.", status=503)
