"""Requests from the asking to the answer: open → approved, refused or withdrawn."""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from spectrum_spawner.audit import Record
from spectrum_spawner.service import asking
from spectrum_spawner.service.approvals import about, carry_out
from spectrum_spawner.service.asking import APPROVED, APPROVING, OPEN, REFUSED, WITHDRAWN, Request
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import (
    Viewer,
    may_ask,
    may_decide,
    may_see_request,
    may_withdraw,
)

MAX_OPEN = 20  # requests that one person may have open
MAX_A_DAY = 50  # requests that one person may make in a day, withdrawn ones among them
DAY = timedelta(days=1)
MAX_QUEUE = 1000  # requests that are shown to be answered
WAITING = (OPEN, APPROVING)


async def list_visible(context: Context, viewer: Viewer) -> list[Request]:
    """One's own requests, everybody's for administrators; the newest first."""
    if not viewer.may_act:
        return []
    return await context.ledger.list_requests(asked_by=None if viewer.admin else viewer.name)


async def list_own(context: Context, viewer: Viewer) -> list[Request]:
    """The newest of what one asked for oneself."""
    return await context.ledger.list_requests(asked_by=viewer.name) if viewer.may_act else []


async def list_queue(context: Context, viewer: Viewer) -> list[Request]:
    """What waits for an answer of an administrator, the oldest first."""
    if not may_decide(viewer):
        return []
    waiting = await context.ledger.list_requests(states=WAITING, limit=MAX_QUEUE)
    return waiting[::-1]


async def list_decided(context: Context, viewer: Viewer) -> list[Request]:
    """What was answered or withdrawn lately, for administrators."""
    if not may_decide(viewer):
        return []
    return await context.ledger.list_requests(states=[APPROVED, REFUSED, WITHDRAWN])


async def ask(context: Context, viewer: Viewer, fields: Mapping[str, Any]) -> Request:
    """Put a request into the queue; raises Problem."""
    kind, team = fields.get("kind"), fields.get("team")
    if kind in asking.KINDS and isinstance(team, str) and not may_ask(viewer, kind, team):
        raise Problem(
            "You can ask for the teams that you are in, or for a new one: choose one of those.",
            status=403,
        )
    request = asking.read_request(
        fields,
        id=f"r-{secrets.token_hex(8)}",
        asked_by=viewer.name,
        now=context.now(),
        teams=context.sheets,
        profiles=context.settings.profiles,
    )
    record = _record(context, "request", viewer, request, f"Asks for {request.what}: ")
    async with context.asking:
        await _check_others(context, request)
        await context.ledger.add_request(request, record)
    return request


async def withdraw(context: Context, viewer: Viewer, id: str) -> None:
    """Take one's own open request back; raises Problem."""
    request = await _find(context, viewer, id)
    if not may_withdraw(viewer, request):
        raise Problem("Only who asked can withdraw a request: refuse it instead.", status=403)
    record = _record(context, "request", viewer, request, "Withdrawn: ")
    await _settle(context, viewer, request, WITHDRAWN, answer="", records=[record])


async def decide(context: Context, viewer: Viewer, id: str, fields: Mapping[str, Any]) -> None:
    """Approve or refuse an open request; raises Problem."""
    if not may_decide(viewer):
        raise Problem("Requests are decided by administrators: wait for their answer.", status=403)
    request = await _find(context, viewer, id)
    decision = fields.get("decision")
    if decision not in ("approve", "refuse") or fields.keys() - {"decision", "answer"}:
        raise Problem("A decision is approve or refuse, and an answer: choose one.")
    refused = decision == "refuse"
    answer = asking.read_sentence("An answer", fields.get("answer"), needed=refused)
    if refused:
        record = _record(context, "decide", viewer, request, f"Refused {request.what}: ", answer)
        await _settle(context, viewer, request, REFUSED, answer=answer, records=[record])
        return
    if request.until <= context.now():
        raise Problem("The end date of the request has passed: refuse it, and say so.", status=409)
    await _settle(context, viewer, request, APPROVING, answer=answer)
    await carry_out(context, await _find(context, viewer, id))


async def _settle(
    context: Context, viewer: Viewer, request: Request, state: str, **changes: Any
) -> None:
    """Bring an open request into another state, unless somebody else was first."""
    if not await context.ledger.change_request(
        request.id,
        was=OPEN,
        state=state,
        decided_by=viewer.name,
        decided_at=context.now(),
        **changes,
    ):
        current = await _find(context, viewer, request.id)
        raise Problem(f"The request is {current.state} already: look at it again.", status=409)


async def _find(context: Context, viewer: Viewer, id: str) -> Request:
    request = await context.ledger.find_request(id)
    if request is None or not may_see_request(viewer, request):
        raise Problem("There is no such request: look at the list again.", status=404)
    return request


async def _check_others(context: Context, request: Request) -> None:
    """Refuse the same thing twice, and more than anybody could answer or the ledger hold."""
    mine = await context.ledger.list_requests(asked_by=request.asked_by, states=WAITING)
    if any(other.what == request.what for other in mine):
        raise Problem("You asked for that already: withdraw the other request first.", status=409)
    if len(mine) >= MAX_OPEN:
        raise Problem(f"You have {MAX_OPEN} open requests: withdraw one first.", status=429)
    lately = await context.ledger.list_requests(
        asked_by=request.asked_by, since=request.asked_at - DAY, limit=MAX_A_DAY
    )
    if len(lately) >= MAX_A_DAY:
        raise Problem(
            f"You made {MAX_A_DAY} requests in the last 24 hours: ask again later.", status=429
        )


def _record(
    context: Context, action: str, viewer: Viewer, request: Request, what: str, why: str = ""
) -> Record:
    return context.make_record(
        action, viewer.actor, **about(request), reason=f"{what}{why or request.reason}"
    )
