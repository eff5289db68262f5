"""What servers tell of themselves each minute: kept in place of what they told before."""

from typing import Any

from spectrum_spawner.service import volumes
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling import report
from spectrum_spawner.service.culling.report import ReportError
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.servers import Server


def keep_report(context: Context, server: Server, body: dict[str, Any]) -> None:
    """Keep what a server tells of itself; raises Problem.

    Figures of volumes go into the ledger's database soon, activity stays in memory: a server tells
    it again within a minute. Either is kept also if the other cannot be.
    """
    activity = _keep_activity(context, server, body.get("activity"))
    volumes.keep_report(context, server, body)
    context.documents.keep(server, body.get("documents"), now=context.now())
    if activity:
        raise Problem(activity)


def _keep_activity(context: Context, server: Server, value: object) -> str:
    """Keep it, or say why it cannot be read: then the last word stays, and soon is too old."""
    if value is None:
        return ""  # an older image
    try:
        told = report.read_report(value, now=context.now())
    except ReportError as error:
        return str(error)
    context.told[server.user, server.name] = told
    return ""
