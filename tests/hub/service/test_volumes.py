"""What servers tell the service: figures of volumes, which the hub reads for the home page, and
activity, which the culler reads."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from spectrum_spawner.activity import Kernels, Process, Processes
from spectrum_spawner.service import telling, volumes
from spectrum_spawner.service.culling.report import Report
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX, Shown
from tests.hub.service.conftest import Running
from tests.hub.service.place import HUB_TOKEN
from tests.hub.spawners import FLIGHT, OPS

pytestmark = pytest.mark.asyncio(loop_scope="module")

AT = "2026-01-31T09:14:00Z"
GIB = 2**30
HOME = {
    "kind": "home",
    "name": "",
    "total": 10 * GIB,
    "used": 3 * GIB,
    "files_total": None,
    "files_used": None,
    "read_only": False,
    "error": "",
    "at": AT,
}
SHARE = {**HOME, "kind": "share", "used": 9 * GIB}
KEPT = {"at": "2026-01-31T09:14:00.000000Z"}


@dataclass(frozen=True)
class Servers:
    """Alice's and bob's servers in flight, and bob's server `second` in ops."""

    hub: Hub
    service: Running

    async def report(self, user: str, *entries: Any, server: str = "") -> Shown:
        return await self.send(user, {"volumes": list(entries)}, server=server)

    async def send(self, user: str, body: Any, *, server: str = "") -> Shown:
        token = self.hub.find_spawner(user, server).api_token
        data = body if isinstance(body, bytes) else json.dumps(body)
        return await self._ask("POST", f"{PREFIX}api/report", f"token {token}", data=data)

    async def read(self, query: str, *, token: str = HUB_TOKEN) -> Shown:
        """What the hub reads, of the service's own port."""
        return await self._ask("GET", f"/internal/volumes?{query}", f"Bearer {token}", inside=True)

    async def list(self, query: str) -> list[dict[str, Any]]:
        shown = await self.read(query)
        assert shown.status == 200, shown
        return shown.body["volumes"]

    async def _ask(
        self, method: str, path: str, authorization: str, *, data: Any = None, inside: bool = False
    ) -> Shown:
        port = self.service.context.settings.port
        base = f"http://127.0.0.1:{port}" if inside else self.service.url
        async with (
            aiohttp.ClientSession(headers={"Authorization": authorization}) as session,
            session.request(method, URL(base + path, encoded=True), data=data) as answer,
        ):
            return Shown(answer.status, answer.url.path, await answer.text())


@pytest_asyncio.fixture(loop_scope="module")
async def servers(hub: Hub, service: Running) -> AsyncIterator[Servers]:
    for user, options, server in (
        ("alice", FLIGHT, ""),
        ("bob", FLIGHT, ""),
        ("bob", OPS, "second"),
    ):
        assert (await hub.start_server(user, options, server)).status == 201
    service.context.snapshot.forget()  # the list that the service read when it began
    yield Servers(hub, service)


async def test_a_server_tells_of_its_own_person_and_team(servers: Servers) -> None:
    assert (await servers.report("alice", HOME, SHARE)).status == 200
    told = {"team": "flight", "server": "alice"}
    home = {**HOME, **told, **KEPT, "user": "alice"}
    share = {**SHARE, **told, **KEPT, "user": ""}
    assert await servers.list("user=alice&team=flight") == [home, share]
    assert await servers.list("user=alice") == [home]
    assert await servers.list("user=bob&team=flight&team=ops") == [share]
    assert await servers.list("user=bob&team=ops") == []
    assert await servers.list("user=&team=") == []


async def test_the_last_word_holds_whichever_server_has_it(servers: Servers) -> None:
    await servers.report("alice", SHARE)
    gone = dict.fromkeys(("total", "used", "read_only"))
    silent = {**SHARE, **gone, "error": "does not answer", "at": "2026-01-31T09:15:00Z"}
    assert (await servers.report("bob", silent, HOME)).status == 200
    assert (await servers.report("bob", {**HOME, "used": 0}, server="second")).status == 200
    found = await servers.list("user=bob&team=flight")
    assert [(v["team"], v["kind"], v["server"], v["used"], v["error"]) for v in found] == [
        ("flight", "home", "bob", 3 * GIB, ""),
        ("flight", "share", "bob", None, "does not answer"),
        ("ops", "home", "bob/second", 0, ""),
    ]


async def test_volumes_of_one_kind_are_told_apart_by_name(servers: Servers) -> None:
    scratch = {**HOME, "kind": "scratch"}
    await servers.report("alice", {**scratch, "name": "default"}, {**scratch, "name": "Größe"})
    found = await servers.list("user=alice")
    assert [(v["kind"], v["name"], v["user"]) for v in found] == [
        ("scratch", "Größe", "alice"),
        ("scratch", "default", "alice"),
    ]


async def test_what_a_later_image_tells_beside_is_left_alone(servers: Servers) -> None:
    body = {"kernels": [{"busy": True}], "volumes": [{**HOME, "speed": 7}]}
    assert (await servers.send("alice", body)).status == 200
    assert [each["used"] for each in await servers.list("user=alice")] == [3 * GIB]


NONSENSE: list[Any] = [
    {},
    {"volumes": {}},
    {"volumes": [HOME] * 2},
    {"volumes": [{**HOME, "name": str(i)} for i in range(101)]},
    {"volumes": ["home"]},
    *({"volumes": [{**HOME, "kind": kind}]} for kind in ("", "bucket", "<b>", 7, None, [])),
    *({"volumes": [{**HOME, "name": name}]} for name in ("x" * 256, 7, "\ud800", "a\0b", {})),
    *({"volumes": [{**HOME, "used": used}]} for used in (-1, 0.5, "1", True, 2**63, 10**400, [])),
    *({"volumes": [{**HOME, "read_only": flag}]} for flag in (0, "no", [])),
    *({"volumes": [{**HOME, "error": error}]} for error in (7, ["x"])),
    *({"volumes": [{**HOME, "at": at}]} for at in (None, 7, "", "now", "0001-01-01T00:00+23:59")),
    b'{"volumes": [{"kind": "home", "at": "2026-01-31T09:14:00Z", "used": NaN}]}',
    b"[",
]


async def test_nonsense_is_refused_in_one_sentence_and_nothing_of_it_kept(
    servers: Servers,
) -> None:
    for body in NONSENSE:
        shown = await servers.send("alice", body)
        assert (shown.status, shown.problem[-1:]) == (400, "."), (str(body)[:200], shown)
        assert len(shown.problem) < 300
    half = await servers.report("alice", HOME, {**SHARE, "used": -1})
    assert half.status == 400
    assert await servers.list("user=alice&team=flight") == []


async def test_a_clock_that_is_ahead_is_not_believed(servers: Servers) -> None:
    await servers.report("alice", {**HOME, "at": "2999-01-01T00:00:00Z"})
    (home,) = await servers.list("user=alice")
    assert home["at"] < "2999"


async def test_of_what_nobody_tells_for_90_days_nothing_is_kept(servers: Servers) -> None:
    now = servers.service.wall()
    await servers.report("alice", {**HOME, "at": (now - timedelta(days=89)).isoformat()})
    await servers.report("bob", {**HOME, "at": (now - timedelta(days=91)).isoformat()})
    await volumes.forget_old(servers.service.context)
    assert len(await servers.list("user=alice")) == 1
    assert await servers.list("user=bob") == []


async def test_only_the_hub_reads_the_figures(servers: Servers) -> None:
    for token in ("controller-token", "nonsense", ""):
        shown = await servers.read("user=alice", token=token)
        assert (shown.status, shown.problem[-1:]) == (403, ".")
    assert (await servers.read("team=flight")).status == 400


def make_activity(servers: Servers, **parts: Any) -> dict[str, Any]:
    at = servers.service.wall().isoformat()
    return {"at": at, "watched_since": at, "pod_uid": "uid", **parts}


async def test_the_last_activity_that_a_server_told_is_at_hand(servers: Servers) -> None:
    told = servers.service.context.told
    kernel = {"state": "busy", "last_activity": AT}
    activity = make_activity(servers, kernels=[kernel], processes=[])
    body = {"volumes": [HOME], "activity": activity}
    assert (await servers.send("bob", body, server="second")).status == 200
    work = {"name": "python train.py", "cpu": 0.9, "works": True}
    later = make_activity(servers, processes=[work])
    assert (await servers.send("bob", {**body, "activity": later}, server="second")).status == 200
    assert (await servers.report("alice", HOME)).status == 200  # by an older image
    at = datetime.fromisoformat(later["at"])
    found = Process(name="python train.py", cpu=0.9, works=True)
    processes = Processes(at=at, watched_since=at, found=(found,), pod_uid="uid")
    assert told == {("bob", "second"): Report(processes=processes)}
    assert (await servers.send("bob", body, server="")).status == 200
    at = datetime.fromisoformat(activity["at"])
    last = datetime.fromisoformat(AT)
    kernels = Kernels(at=at, watched_since=at, busy=1, last_activity=last, pod_uid="uid")
    assert told[("bob", "")].kernels == kernels


async def test_activity_and_volumes_are_each_kept_when_the_other_cannot_be_read(
    servers: Servers,
) -> None:
    ahead = (servers.service.wall() + timedelta(hours=1)).isoformat()
    shown = await servers.send(
        "alice", {"volumes": [HOME], "activity": {"at": ahead, "watched_since": ahead}}
    )
    assert (shown.status, shown.problem) == (400, "activity is of a time that is still to come.")
    assert len(await servers.list("user=alice")) == 1
    for activity in (7, [], {}, {"at": AT}, {"at": "now", "watched_since": AT}):
        shown = await servers.send("alice", {"volumes": [HOME], "activity": activity})
        assert (shown.status, shown.problem[-1:]) == (400, "."), activity
    assert servers.service.context.told == {}
    body = {"volumes": "none", "activity": make_activity(servers)}
    assert (await servers.send("bob", body)).status == 400
    assert servers.service.context.told == {("bob", ""): Report()}


async def test_what_ended_servers_told_is_forgotten_once_the_hub_says_so(
    servers: Servers, hub: Hub
) -> None:
    context = servers.service.context
    for user in ("alice", "bob"):
        body = {"volumes": [HOME], "activity": make_activity(servers)}
        assert (await servers.send(user, body)).status == 200
    await telling.forget_ended(context)
    assert context.told.keys() == {("alice", ""), ("bob", "")}
    await hub.stop_server("bob")
    await hub.wait_absent("bob", within=30)
    context.snapshot.forget()
    await telling.forget_ended(context)
    assert context.told.keys() == {("alice", "")}
