"""Stopping a server for somebody: who may is checked, and written down before it is done."""

import asyncio
import logging

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.hub import HubError, HubRefused
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.rights import (
    Viewer,
    may_keep_or_release,
    may_see_server,
    may_stop,
)
from spectrum_spawner.service.servers import Server

WRITE_WITHIN = 3.0  # seconds that a stop waits for the ledger

_log = logging.getLogger("spectrum.service")


async def stop_server(
    context: Context, viewer: Viewer, *, user: str, server: str, reason: str
) -> None:
    """Stop a server by its owner and name; raises Problem.

    Nobody's own stop waits for the ledger; anybody else's is only done once it is written down.
    """
    found = await find_running(context, viewer, user, server)
    if not may_stop(viewer, found):
        raise _not_theirs(found)
    await _end(context, viewer, found, "stop-request", reason, f"{viewer.name} stopped it.")


async def release_server(
    context: Context, viewer: Viewer, *, user: str, server: str, reason: str
) -> None:
    """End a server for its GPUs, as `stop_server` does; its own token may, too."""
    found = await find_running(context, viewer, user, server)
    if not may_keep_or_release(viewer, found):
        raise _not_theirs(found)
    await _end(context, viewer, found, "release", reason, f"{viewer.name} released its GPUs.")


async def find_running(context: Context, viewer: Viewer, user: str, server: str) -> Server:
    """The server as the hub knows it at this moment: its team decides who may do what to it."""
    try:
        person = await context.hub.find_person(user)
    except HubError as error:
        raise _hub_away(error) from error
    servers = person.servers if person else ()
    found = next((each for each in servers if each.name == server), None)
    if found is None or not may_see_server(viewer, found):
        raise Problem("There is no such server running: it may have ended already.", status=404)
    return found


async def _end(
    context: Context, viewer: Viewer, found: Server, action: str, reason: str, otherwise: str
) -> None:
    """Write it down, then do it; `otherwise` is the reason in the ledger where nobody gave one."""
    record = context.make_record(
        action,
        viewer.actor,
        user=found.user,
        server=found.name,
        team=found.team,
        reason=reason or otherwise,
    )
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
    await _stop(context, found, by=viewer.actor, reason=reason)


def _not_theirs(server: Server) -> Problem:
    return Problem(
        f"The server of {quoted(server.title)} can be stopped by its owner, by a lead of team "
        f"{quoted(server.team)} or by an administrator: ask one of them.",
        status=403,
    )


async def _stop(context: Context, server: Server, *, by: str, reason: str) -> None:
    try:
        await context.hub.stop(server.user, server.name, by=by, reason=reason)
    except HubRefused as error:
        raise Problem(f"The hub does not stop the server now: {error}", status=409) from error
    except HubError as error:
        raise _hub_away(error) from error
    finally:
        context.snapshot.forget()


def _hub_away(error: HubError) -> Problem:
    _log.warning("the hub does not answer: %s", error)
    return Problem("JupyterHub does not answer: try again in a minute.", status=503)
