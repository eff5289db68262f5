"""Nonsense by form and by API: one sentence, and nothing half-made."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.hub.cluster import Cluster, find_teams
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running
from tests.hub.service.place import GPU

pytestmark = pytest.mark.asyncio(loop_scope="module")

MEGABYTE = "x" * 10**6
MARKUP = "<script>alert(1)</script>{{7*7}}{0.__class__}"
MORE = {
    "kind": "quota",
    "team": "flight",
    "resource": GPU,
    "amount": 1,
    "reason": "The spring model.",
    "until": "2999-01-01",
}
NONSENSE: list[Any] = [MEGABYTE, MARKUP, -1, 0.5, 10**400, True, None, [], {}, "\ud800", "\0", ""]
CALLS = [
    *(("POST", "requests", {**MORE, field: value}) for field in MORE for value in NONSENSE),
    *(("POST", "requests", body) for body in ([], 7, "x", None, {**MORE, "state": "approved"})),
    *(("POST", "requests/nope/decide", {"decision": value}) for value in NONSENSE),
    ("POST", f"requests/{'x' * 5000}/withdraw", {}),
    ("POST", "requests/%3Cscript%3E/withdraw", {}),
    *(("PUT", "teams/flight/preferences", {"idleMinutes": value}) for value in NONSENSE if value),
    *(("PUT", "teams/flight/preferences", {"defaultProfile": v}) for v in NONSENSE if v),
    ("PUT", "teams/flight/preferences", {"quota": {"gpus": {GPU: 9}}}),
    ("PUT", "teams/nope/preferences", {}),
    *(("DELETE", "servers/alice/", {"reason": value}) for value in NONSENSE[:8]),
    ("DELETE", "servers/alice/", {"force": True}),
    ("DELETE", f"servers/{'x' * 5000}/", {}),
    *(("GET", f"audit?{query}", None) for query in ("sort=1", "action=x", "before=1", "since=x")),
    ("GET", "audit?since=0001-01-01T00:00:00%2B23:59", None),
    ("GET", f"audit?team={'x' * 5000}", None),
    ("GET", "audit?team=%ff", None),
    ("PATCH", "teams/flight", {}),
    ("GET", "nowhere", None),
]


async def test_nonsense_is_answered_in_one_sentence_and_makes_nothing(
    service: Running,
    sign_in: Callable[[str], Awaitable[Browser]],
    cluster: Cluster,
    hub_namespace: str,
) -> None:
    bob = await sign_in("bob")
    before = await cluster.list(find_teams(hub_namespace))
    for call in CALLS:
        shown = await bob.call(*call)
        short = str(call)[:200]
        assert 400 <= shown.status < 500, (short, shown)
        assert shown.problem.endswith((".", "?")), (short, shown)
        assert len(shown.problem) < 500, short
    assert await cluster.list(find_teams(hub_namespace)) == before
    assert await service.context.ledger.list_requests() == []
    assert await service.read_audit() == []


async def test_a_body_that_is_no_json_is_told_so(
    service: Running, sign_in: Callable[[str], Awaitable[Browser]]
) -> None:
    bob = await sign_in("bob")
    url = f"{service.url}/services/spectrum/api/requests"
    for body in ("{", "NaN", '{"amount": NaN}', "[" * 10_000, "\xff", '{"a": 1' + "0" * 9999 + "}"):
        shown = await bob._ask("POST", url, body.encode("latin-1"), bob._xsrf())
        assert (shown.status, shown.problem) == (400, "The body is no JSON: please check it.")
