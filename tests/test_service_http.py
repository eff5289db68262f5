"""The service by HTTP without a cluster and without a hub: its inside, and what it says then."""

import json
import sqlite3
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime

import aiohttp
import pytest
import pytest_asyncio
from kubernetes_asyncio.client import Configuration
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port

from spectrum_spawner.audit import make_record
from spectrum_spawner.service.app import make_app, open_context
from spectrum_spawner.service.leaving import Departure
from spectrum_spawner.service.ledger import Query
from spectrum_spawner.service.rights import AuditScope
from spectrum_spawner.service.settings import Settings

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOWHERE = "http://127.0.0.1:9/hub/api"
SETTINGS = Settings(
    hub_namespace="hub",
    prefix="/services/spectrum/",
    base_url="/",
    api_url=NOWHERE,
    client_id="service-spectrum",
    api_token="service-token",
    cookie_secret=b"\0" * 32,
    writers={"hub": "hub-token", "controller": "controller-token"},
)


@pytest_asyncio.fixture
async def context(tmp_path):
    """A service of which only the ledger is there."""
    settings = replace(SETTINGS, database=f"sqlite:///{tmp_path / 'ledger.sqlite'}")
    async with AsyncExitStack() as stack:
        nowhere = Configuration(host="http://127.0.0.1:9")
        yield await open_context(stack, settings, nowhere, lambda: NOON)


@pytest_asyncio.fixture
async def url(context):
    socket, port = bind_unused_port()
    server = HTTPServer(make_app(context))
    server.add_sockets([socket])
    yield f"http://127.0.0.1:{port}"
    server.stop()
    await server.close_all_connections()


async def call(method: str, url: str, *, token: str = "hub-token", data=None):
    """Status and parsed body (or text) of a request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, data=data, allow_redirects=False) as answer,
    ):
        text = await answer.text()
        is_json = answer.content_type == "application/json"
        return answer.status, json.loads(text) if is_json else text


def make(writer: str = "hub", id: str = "1", **rest) -> dict:
    record = make_record(writer=writer, action="start", actor="user:alice", id=id, **rest)
    return record.as_dict()


async def count(context) -> int:
    return len(await context.ledger.find(Query(scope=AuditScope(everything=True))))


async def test_records_are_taken_once(context, url) -> None:
    data = json.dumps({"records": [make(id="1"), make(id="2")]})
    assert await call("POST", f"{url}/internal/audit", data=data) == (204, "")
    assert await call("POST", f"{url}/internal/audit", data=data) == (204, "")
    assert await count(context) == 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("", "must hold a list records"),
        ("[]", "must be a JSON object"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ('{"records": NaN}', "is no JSON"),
        ('{"records": {}}', "must hold a list records"),
        ('{"records": [], "more": 1}', "must hold a list records"),
        (json.dumps({"records": [make(id=str(i)) for i in range(501)]}), "of 500 at most"),
        (json.dumps({"records": [make(), 7]}), "A record is an object"),
        (json.dumps({"records": [make(), make("controller", "2")]}), "may not write for others"),
        (json.dumps({"records": [make(), {**make(), "action": "dance"}]}), "action is one of"),
        (json.dumps({"records": [{**make(), "user": "x" * 501}]}), "at most 500"),
        (json.dumps({"records": [{**make(), "reason": "\ud800"}]}), "cannot be kept"),
    ],
)
async def test_a_malformed_batch_is_refused_whole(context, url, body, sentence) -> None:
    status, answer = await call("POST", f"{url}/internal/audit", data=body)
    assert status == 400
    assert sentence in answer["message"]
    assert await count(context) == 0


@pytest.mark.parametrize("token", ["", "wrong", "service-token", "hub-tokenx", "ü"])
async def test_the_inside_needs_a_token_of_its_own(context, url, token) -> None:
    data = json.dumps({"records": [make()]})
    status, answer = await call("POST", f"{url}/internal/audit", token=token, data=data)
    assert (status, answer["status"]) == (403, 403)
    assert (await call("GET", f"{url}/internal/notices", token=token))[0] == 403
    assert await count(context) == 0


async def test_the_hub_reads_notices(context, url) -> None:
    departure = Departure(user="alice", server="gpu", team="ops", started=NOON, seen_at=NOON)
    record = make_record(writer="service", action="notice", actor="service:spectrum")
    await context.ledger.add_departure(departure, record)
    expected = {
        "user": "alice",
        "server": "gpu",
        "team": "ops",
        "text": "You are no longer in team ops: this server will be stopped unless you are added "
        "again. Save your work.",
        "at": "2026-01-31T12:00:00.000000Z",
        "ends_at": "2026-01-31T13:00:00.000000Z",
    }
    assert await call("GET", f"{url}/internal/notices") == (200, {"notices": [expected]})
    assert (await call("GET", f"{url}/internal/notices", token="controller-token"))[0] == 403


async def test_a_ledger_that_fails_is_no_reason_to_drop_a_record(context, url, tmp_path) -> None:
    with sqlite3.connect(tmp_path / "ledger.sqlite") as database:
        database.execute("DROP TABLE records")
    database.close()
    data = json.dumps({"records": [make()]})
    status, answer = await call("POST", f"{url}/internal/audit", data=data)
    assert status == 503
    assert answer["message"] == "The ledger cannot be read or written now: try again in a minute."


async def test_health_needs_nobody(url) -> None:
    culling = {"enabled": False, "at": None, "servers": 0, "problems": []}
    assert await call("GET", f"{url}/healthz", token="") == (200, {"culling": culling})


async def test_without_a_sign_in_a_page_leads_to_it(url) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{url}/services/spectrum/requests", allow_redirects=False) as answer,
    ):
        assert answer.status == 302
        location = answer.headers["Location"]
    assert location.startswith("/hub/api/oauth2/authorize?client_id=service-spectrum&")
    assert "code_challenge=" in location


@pytest.mark.parametrize("path", ["teams", "servers", "requests", "audit", "else", "teams/ops"])
async def test_without_a_sign_in_the_api_says_so(url, path) -> None:
    status, answer = await call("GET", f"{url}/services/spectrum/api/{path}", token="")
    assert status == 403
    assert answer["message"].startswith("You are not signed in")


async def test_a_form_that_is_sent_without_a_sign_in_says_so(url) -> None:
    status, text = await call("POST", f"{url}/services/spectrum/requests", token="", data="a=b")
    assert status == 403
    assert "You are not signed in, or the page was open for too long" in text
    assert "What you typed is still there" not in text


async def test_while_the_hub_is_away_pages_and_api_say_so(url) -> None:
    for path in ("", "teams/ops", "api/teams"):
        status, answer = await call("GET", f"{url}/services/spectrum/{path}", token="t")
        assert status == 503
        assert "JupyterHub does not answer" in str(answer)


async def test_jupyterhubs_own_style_is_there_without_the_hub(url) -> None:
    prefix = f"{url}/services/spectrum"
    for path in ("static/css/style.min.css", "static/js/darkmode.js", "files/pages.js"):
        assert (await call("GET", f"{prefix}/{path}", token=""))[0] == 200
    for path in ("static/../templates/page.html", "static/%2e%2e/templates/page.html"):
        assert (await call("GET", f"{prefix}/{path}", token=""))[0] in (302, 403, 404)


@pytest.mark.parametrize("path", ["/", "/internal", "/internal/else", "/services/else/"])
async def test_there_is_nothing_else(url, path) -> None:
    status, answer = await call("GET", f"{url}{path}")
    assert (status, answer["message"]) == (404, "There is nothing at this address.")


@pytest.mark.parametrize("path", ["?done=%ff", "teams/%ff", "audit?team=%ff", "<script>alert()"])
async def test_addresses_that_are_no_text_do_no_harm(url, path) -> None:
    status, text = await call("GET", f"{url}/services/spectrum/{path}", token="")
    assert status in (302, 400, 403, 404)
    assert "<script>alert" not in text


async def test_a_person_may_not_send_megabytes(url) -> None:
    status, text = await call("POST", f"{url}/services/spectrum/requests", data=b"x" * 10**6)
    assert status == 413
    assert "more than 65536 bytes" in text


async def test_pages_say_what_a_browser_may_do_with_them(url) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{url}/services/spectrum/requests") as answer,
    ):
        assert answer.headers["Content-Security-Policy"] == (
            "frame-ancestors 'none'; base-uri 'none'; object-src 'none'; form-action 'self'; "
            "report-uri /hub/security/csp-report"
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
