"""What servers tell of themselves each minute: kept in place of what they told before."""

from typing import Any

from spectrum_spawner.service import volumes
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling import report
from spectrum_spawner.service.culling.report import ReportError
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.reports import read_report
from spectrum_spawner.service.rights import Viewer, may_report


async def keep_report(context: Context, viewer: Viewer, body: dict[str, Any]) -> Key:
    """Keep what a server's own token tells of that server, and say which one; raises Problem.

    Figures of volumes go into the ledger's database, activity stays in memory: a server tells it
    again within a minute. Either is kept also if the other cannot be.
    """
    if not may_report(viewer):
        raise Problem("Only a server reports how it is, by its own token.", status=403)
    server = next(s for s in context.snapshot if (s.user, s.name) == viewer.server)
    key = (server.user, server.name)
    activity = _keep_activity(context, key, body.get("activity"))
    found = read_report(
        body, team=server.team, user=server.user, server=server.name, now=context.now()
    )
    await volumes.keep(context, found)
    if activity:
        raise Problem(activity)
    return key


async def forget_ended(context: Context) -> None:
    """Drop what servers told that run no more, as far as the hub tells that."""
    await context.snapshot.refresh()
    if context.snapshot.error or context.snapshot.as_of is None:
        return
    running = {(server.user, server.name) for server in context.snapshot}
    for key in context.told.keys() - running:
        del context.told[key]


def _keep_activity(context: Context, key: Key, value: object) -> str:
    """Keep it, or say why it cannot be read: then the last word stays, and soon is too old."""
    if value is None:
        return ""  # an older image
    try:
        context.told[key] = report.read_report(value, now=context.now())
    except ReportError as error:
        return str(error)
    return ""
