"""Many servers that end for their GPUs at once: written down together, then ended one by one."""

import asyncio
import logging
from collections.abc import Callable, Collection

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.gpu_rows import list_holders
from spectrum_spawner.service.hub import HubError
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.rights import Viewer, may_release_team
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.stops import RELEASE, check_mine, make_end, stop, tell_failure

MOST = 1000  # servers that one request may name
Choice = Collection[Key] | Callable[[Server], bool]  # named, or some of those that hold GPUs
WRITE_WITHIN = 10.0  # seconds that the ledger may take for all of them

_log = logging.getLogger("spectrum.service")


async def release_many(
    context: Context, viewer: Viewer, chosen: Choice, reason: str
) -> tuple[list[Key], dict[Key, Problem]]:
    """End the servers that are chosen.

    Returns those that end from now on, and why others do not: they end after the answer, as many
    at once as the culler ends. Raises Problem.
    """
    servers, failed = await find_chosen(context, viewer, chosen, verb="stopped")
    await _write_down(context, viewer, servers, reason)
    if servers:
        context.background.begin(_end_all(context, viewer, servers, reason))
    return sorted((server.user, server.name) for server in servers), failed


async def find_chosen(
    context: Context, viewer: Viewer, chosen: Choice, *, verb: str
) -> tuple[list[Server], dict[Key, Problem]]:
    """Those of the chosen ones that somebody may keep and end, and why others are not theirs.

    `verb` is what is to be done to them, as part of a sentence. Raises Problem.
    """
    servers: list[Server] = []
    failed: dict[Key, Problem] = {}
    for key, server in (await _find(context, chosen)).items():
        try:
            servers.append(check_mine(viewer, server, verb=verb))
        except Problem as problem:
            failed[key] = problem
    return servers, failed


def of_person(name: str) -> Choice:
    """All of one's own."""
    return lambda server: server.user == name


def of_team(viewer: Viewer, team: str) -> Choice:
    """All of a team; raises Problem for who does not answer for it."""
    if not may_release_team(viewer, team):
        raise Problem(
            f"All servers of team {quoted(team)} are released by its leads and by administrators: "
            "ask one of them.",
            status=403,
        )
    return lambda server: server.team == team


def read_keys(names: Collection[object]) -> list[Key]:
    """Servers as forms and API name them, `user/server`; raises Problem."""
    if len(names) > MOST:
        raise Problem(f"That is more than {MOST} servers: choose fewer.")
    if not all(isinstance(name, str) and "/" in name for name in names):
        raise Problem("A server is named as user/server, an unnamed one as user/: correct it.")
    parts = [str(name).rpartition("/") for name in names]
    return [(user, server) for user, _, server in parts]


async def _find(context: Context, chosen: Choice) -> dict[Key, Server | None]:
    """The servers as the hub knows them now; None for one that it does not know."""
    snapshot = context.snapshot
    snapshot.forget()  # one that was started a second ago is meant as well
    await snapshot.refresh()
    if snapshot.error:
        raise Problem("JupyterHub does not answer: try again in a minute.", status=503)
    if callable(chosen):
        holders = list_holders(snapshot, context.culler.round, context.settings.profiles)
        return {(s.user, s.name): s for s in holders if chosen(s)}
    return {key: snapshot.find(*key) for key in chosen}


async def _write_down(
    context: Context, viewer: Viewer, servers: Collection[Server], reason: str
) -> None:
    """Nobody else's server ends without a record; one's own do."""
    records = [make_end(context, viewer, RELEASE, server, reason) for server in servers]
    try:
        async with asyncio.timeout(WRITE_WITHIN):
            await context.ledger.add(records)
    except (LedgerError, TimeoutError) as error:
        _log.error("not in the ledger: %s: %r", error, records)
        if any(server.user != viewer.name for server in servers):
            raise Problem(
                "No server was stopped, since that could not be written down: try again in a "
                "minute, or tell an administrator.",
                status=503,
            ) from error


async def _end_all(
    context: Context, viewer: Viewer, servers: Collection[Server], reason: str
) -> None:
    """Also one that fails leaves the others be; of each that does not end that is written down."""
    slots = asyncio.Semaphore(context.settings.culling.concurrency)
    waiting = set(servers)

    async def end(server: Server) -> None:
        try:
            async with slots:
                waiting.discard(server)
                # what somebody started in its place meanwhile is another server
                if await _is_still_there(context, server):
                    await stop(context, server, by=viewer.actor, reason=reason)
        except Problem as problem:
            _log.warning("server of %s not released: %s", server.title, problem.sentence)
        finally:
            context.releasing.discard((server.user, server.name))

    context.releasing.update((server.user, server.name) for server in servers)
    try:
        await asyncio.gather(*map(end, servers))
    except asyncio.CancelledError:
        # the service ends
        for server in waiting:
            await tell_failure(context, server, "The service ended before it was stopped.")
        raise


async def _is_still_there(context: Context, server: Server) -> bool:
    """Whether it is that very run; if nobody knows it is not ended, and that is written down."""
    try:
        now = await context.hub.find_server(server.user, server.name)
    except HubError as error:
        await tell_failure(context, server, f"The hub did not stop it: {error}.")
        return False
    return now is not None and (now.team, now.started) == (server.team, server.started)
