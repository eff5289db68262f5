"""Asking people to release servers: written down, and told to their owners from then on."""

import asyncio
import logging

from spectrum_spawner.service.appeals import LASTS, Appeal, read_appeal
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.ledger import BATCH, LedgerError, Query
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.releases import WRITE_WITHIN, Choice, find_chosen
from spectrum_spawner.service.rights import AuditScope, Viewer

_log = logging.getLogger("spectrum.service")


async def appeal(
    context: Context, viewer: Viewer, chosen: Choice, reason: str
) -> tuple[list[Key], dict[Key, Problem]]:
    """Ask the owners of servers to release them; whose were asked, and why others were not.

    Raises Problem, and nobody is asked then.
    """
    servers, failed = await find_chosen(context, viewer, chosen, verb="asked for")
    now = context.now()
    appeals = [
        Appeal(
            user=server.user,
            server=server.name,
            team=server.team,
            started=server.started,
            by=viewer.actor,
            reason=reason,
            at=now,
        )
        for server in servers
    ]
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            await context.ledger.add(each.as_record() for each in appeals)
    except (LedgerError, TimeoutError) as error:
        _log.error("not in the ledger: %s", error)
        raise Problem(
            "Nobody was asked, since that could not be written down: try again in a minute, or "
            "tell an administrator.",
            status=503,
        ) from error
    for key in [key for key, each in context.appeals.items() if each.at + LASTS <= now]:
        del context.appeals[key]
    context.appeals.update({each.key: each for each in appeals})
    return sorted(each.key for each in appeals), failed


async def load(context: Context) -> None:
    """Know what a service before this one asked. Raises LedgerError."""
    since = context.now() - LASTS
    query = Query(scope=AuditScope(everything=True), action="warn", since=since)
    for entry in reversed(await context.ledger.find(query, limit=BATCH)):
        if found := read_appeal(entry.record):
            context.appeals[found.key] = found
