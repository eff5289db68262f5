"""Carrying approvals out: the grant goes into the Team, and the request says so.

An approval is noted first, then written into the Team under the request's id, then marked as
done. Wherever that breaks off, the next round does the rest: the same grant written twice is
one grant.
"""

import logging
from typing import Any

from spectrum_spawner.audit import Record
from spectrum_spawner.kube import AlreadyExists, Conflict, KubeError, Unreachable
from spectrum_spawner.service import asking
from spectrum_spawner.service.asking import APPROVED, APPROVING, OPEN, Request
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.records import SERVICE
from spectrum_spawner.service.team_writes import create_team, patch_team

_log = logging.getLogger("spectrum.service")


async def carry_out(context: Context, request: Request) -> None:
    """Write the grant of a request whose approval is noted, then mark it; raises Problem."""
    try:
        await _grant(context, request)
    except Unreachable as error:
        raise Problem(
            "The Kubernetes API does not answer: the approval is noted, and carried out by "
            "itself once it does.",
            status=503,
        ) from error
    except KubeError as error:
        await context.ledger.change_request(
            request.id, was=APPROVING, state=OPEN, answer="", decided_by="", decided_at=None
        )
        raise Problem(
            f"The request stays open, since the team was not changed: {error.message}", status=409
        ) from error
    record = _make_grant(context, request, f"user:{request.decided_by}", request.answer)
    await context.ledger.change_request(request.id, was=APPROVING, state=APPROVED, records=[record])


async def finish(context: Context) -> None:
    """Carry out what was approved and broke off, because of a crash or of the API server."""
    for request in await context.ledger.list_requests(states=[APPROVING]):
        try:
            await carry_out(context, request)
        except Problem as problem:
            _log.warning("request %s is not carried out: %s", request.id, problem)


async def find_granted(context: Context) -> None:
    """Close open requests whose grant somebody wrote into the Team by another way."""
    granted = {grant.id: grant for sheet in context.teams for grant in sheet.grants}
    for request in await context.ledger.list_requests(states=[OPEN]):
        if request.id in granted:
            answer = "Granted in the Team object."
            await context.ledger.change_request(
                request.id,
                was=OPEN,
                state=APPROVED,
                answer=answer,
                decided_by=granted[request.id].approved_by,
                decided_at=context.now(),
                records=[_make_grant(context, request, SERVICE, answer)],
            )


def about(request: Request) -> dict[str, Any]:
    """What a record of a request says beside who did what and why."""
    details = {"request": request.id, "kind": request.kind}
    return {"user": request.asked_by, "team": request.team, "details": details}


async def _grant(context: Context, request: Request) -> None:
    """The grant into the Team, or the Team with the grant; raises KubeError."""
    if request.kind != asking.NEW_TEAM:
        sheet = context.teams.get(request.team)
        if sheet is not None and request.team_uid not in ("", sheet.team.uid):
            raise Conflict(
                f"team {request.team} was deleted and made again since then; refuse the request, "
                "and let them ask anew."
            )
        patch = asking.make_grant_patch(request, sheet, context.now())
        await patch_team(context, request.team, patch)
        return
    try:
        manifest = asking.make_team(request, hub_namespace=context.settings.hub_namespace)
        await create_team(context, manifest)
    except AlreadyExists:
        found = await context.client.get(context.team_path(request.team))
        if request.id not in ((found.get("spec") or {}).get("grants") or {}):
            raise  # it is somebody else's, and no earlier try's


def _make_grant(context: Context, request: Request, actor: str, answer: str) -> Record:
    """The one record of what was granted, however often it is written."""
    reason = f"Granted {request.what}{f': {answer}' if answer else '.'}"
    id = f"{request.id}-approved"
    return context.make_record("grant", actor, id=id, reason=reason, **about(request))
