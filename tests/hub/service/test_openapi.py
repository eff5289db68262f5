"""The API as it is described: what it takes and answers is what its description says."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import jsonschema
import pytest
import pytest_asyncio

from tests.hub.cluster import Cluster
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser, Shown
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.floor import RULES, Floor, start_floor
from tests.hub.service.measuring import PrometheusStub
from tests.hub.service.tokens import Token, read_server_token
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINUTE = timedelta(minutes=1)
GPU = {"team": "flight", "profile": "gpu-1"}


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: Callable[..., Awaitable[Running]],
    hub: Hub,
    teams: dict[str, Team],
    each_database: str,
) -> AsyncIterator[Floor]:
    """Alice's server with a GPU, of whose end she was warned."""
    assert (await hub.start_server("alice", GPU)).status == 201
    start = partial(start_service, database=each_database)
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start, stub, hub, teams["flight"])
        floor.idle()
        await floor.look()
        await floor.pass_idle(56 * MINUTE)
        yield floor


class Api:
    """Somebody who checks whatever they send and get against the description of it."""

    def __init__(self, caller: Browser | Token, document: dict[str, Any]) -> None:
        self._caller = caller
        self._document = document
        self.used: set[str] = set()

    async def call(self, method: str, path: str, body: Any = None) -> Shown:
        described = self._find_path(path.partition("?")[0])
        operation = self._document["paths"][described][method.lower()]
        shown = await self._caller.call(method, path, body)
        self.used.add(f"{method} {described}")
        responses = operation["responses"]
        response = self._resolve(responses.get(str(shown.status), responses["default"]))
        if "content" in response:
            self._check(shown.body, response)
        else:
            assert shown.text == ""
        if shown.status < 400 and "requestBody" in operation:
            self._check(body or {}, self._resolve(operation["requestBody"]))
        return shown

    def list_all(self) -> set[str]:
        return {
            f"{method.upper()} {path}"
            for path, record in self._document["paths"].items()
            for method in record.keys() - {"parameters"}
        }

    def _find_path(self, path: str) -> str:
        """The described path that this one is; one without parameters comes first."""
        for described in sorted(self._document["paths"], key=lambda each: each.count("{")):
            pattern = re.sub(r"\\\{[^}]*\\\}", "[^/]*", re.escape(described))
            if re.fullmatch(pattern, f"/{path}"):
                return described
        raise AssertionError(f"{path} is not described")

    def _resolve(self, part: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in part:
            return part
        found = self._document
        for key in part["$ref"].removeprefix("#/").split("/"):
            found = found[key]
        return found

    def _check(self, value: Any, part: dict[str, Any]) -> None:
        schema = part["content"]["application/json"]["schema"]
        whole = {**schema, "components": self._document["components"]}
        jsonschema.Draft202012Validator(whole).validate(value)


async def test_every_operation_takes_and_answers_what_its_description_says(
    floor: Floor, hub: Hub, cluster: Cluster, teams: dict[str, Team]
) -> None:
    token = Token(floor.running.url, await read_server_token(cluster, teams["flight"], "alice"))
    async with Browser(floor.running.url) as browser, Browser(floor.running.url) as other:
        await browser.sign_in("alice")
        await other.sign_in("admin")
        document = (await browser.call("GET", "openapi.json")).body
        alice, admin, server = (Api(each, document) for each in (browser, other, token))
        await walk_reading(alice, server)
        await walk_requests(alice, admin)
        await walk_reports(floor, server)
        await walk_policies(alice, admin)
        await walk_keeping(floor, alice, server)
        audit = await admin.call("GET", "audit?team=flight")
        assert {"warn", "extend", "hold", "release"} <= {r["action"] for r in audit.body["records"]}
        assert alice.used | admin.used | server.used == alice.list_all()


async def walk_reading(alice: Api, server: Api) -> None:
    for path in ("openapi.json", "teams", "teams/flight", "teams/nowhere", "servers", "requests"):
        await alice.call("GET", path)
    assert (await alice.call("GET", "hours?by=team,profile")).body["hours"]
    await alice.call("GET", "servers?team=flight")
    (row,) = (await alice.call("GET", "gpus?state=ending")).body["gpus"]
    assert row["user"] == "alice"
    assert (await alice.call("GET", "gpus?colour=red")).status == 400
    assert (await server.call("GET", "servers/self")).body["notices"]
    assert (await alice.call("GET", "servers/self")).status == 404


async def walk_requests(alice: Api, admin: Api) -> None:
    asked = {
        "kind": "quota",
        "team": "flight",
        "resource": "nvidia.com/gpu",
        "amount": 1,
        "reason": "The fair.",
        "until": "2026-12-31",
    }
    first = (await alice.call("POST", "requests", asked)).body["id"]
    assert (await alice.call("POST", f"requests/{first}/withdraw")).status == 204
    second = (await alice.call("POST", "requests", asked)).body["id"]
    refusal = {"decision": "refuse", "answer": "No."}
    assert (await admin.call("POST", f"requests/{second}/decide", refusal)).status == 204
    found = (await alice.call("GET", "requests")).body["requests"]
    assert {each["state"] for each in found} == {"withdrawn", "refused"}
    wishes = {"defaultProfile": "gpu-1", "idleMinutes": 60}
    assert (await admin.call("PUT", "teams/flight/preferences", wishes)).status == 204


async def walk_reports(floor: Floor, server: Api) -> None:
    at = floor.now.isoformat()
    told = {
        "at": at,
        "watched_since": (floor.now - 60 * MINUTE).isoformat(),
        "kernels": [{"state": "idle", "last_activity": at}],
        "terminals": [],
        "processes": [{"name": "python", "cpu": 0.0, "works": False}],
        "processes_last_worked": None,
    }
    volume = {"kind": "home", "name": "", "total": 2**30, "used": 5, "read_only": False, "at": at}
    report = {"volumes": [volume], "activity": told}
    assert (await server.call("POST", "report", report)).body["notices"]


async def walk_policies(alice: Api, admin: Api) -> None:
    for culling in (None, {"rules": RULES}):
        tried = await admin.call("POST", "cull/dry-run", culling and {"culling": culling})
        assert [each["user"] for each in tried.body["servers"]] == ["alice"]
    assert (await admin.call("POST", "cull/dry-run", {"culling": {"rules": []}})).status == 400
    assert (await alice.call("POST", "cull/dry-run")).status == 403


async def walk_keeping(floor: Floor, alice: Api, server: Api) -> None:
    assert (await server.call("POST", "servers/alice//keep")).status == 204
    hold = {"until": (floor.now + 60 * MINUTE).isoformat(), "reason": "training"}
    assert (await server.call("POST", "servers/alice//hold", hold)).status == 204
    assert (await alice.call("GET", "gpus")).body["gpus"][0]["hold"]
    assert (await alice.call("DELETE", "servers/alice//hold")).status == 204
    assert (await alice.call("DELETE", "servers/bob/", {"reason": "x"})).status == 404
    assert (await alice.call("POST", "gpus/release", {"servers": ["bob/"]})).body["failed"]
    wanted = {"servers": ["alice/"], "reason": "For the demo."}
    assert (await alice.call("POST", "gpus/appeal", wanted)).body["asked"]
    assert (await server.call("GET", "servers/self")).body["notices"]
    assert (await alice.call("POST", "servers/bob//continue", {"profile": "x"})).status == 404
    released = await alice.call("POST", "servers/alice//release", {"reason": "done"})
    assert released.status == 202
