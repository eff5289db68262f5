"""What servers tell the service: figures of volumes, which the hub reads for the home page, and
activity, which the culler reads."""

import json
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from spectrum_spawner.activity import Kernels, Process, Processes
from spectrum_spawner.kube import Configuration
from spectrum_spawner.service import hub as hub_module
from spectrum_spawner.service import reporting, volumes
from spectrum_spawner.service.app import serve
from spectrum_spawner.service.culling.report import Report
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.settings import Settings
from tests.hub.clock import wait_until
from tests.hub.cluster import find_teams
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX, Shown
from tests.hub.service.conftest import NEVER, Running
from tests.hub.service.place import HUB_TOKEN, Place
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
SCRATCH = {**HOME, "kind": "scratch"}
DATASET = {**HOME, "kind": "dataset", "name": "imagenet"}
KEPT = {"at": "2026-01-31T09:14:00.000000Z"}
A_TURN = timedelta(seconds=20)  # after which a server may report again for sure


@dataclass(frozen=True)
class Servers:
    """Alice's and bob's servers in flight, and bob's server `second` in ops."""

    hub: Hub
    service: Running
    waits: list[str] = field(default_factory=list)  # how long the last answer asked for

    async def report(self, user: str, *entries: Any, server: str = "") -> Shown:
        return await self.send(user, {"volumes": list(entries)}, server=server)

    async def send(self, user: str, body: Any, *, server: str = "") -> Shown:
        self.service.wall.ahead += A_TURN
        return await self.send_now(self.find_token(user, server), body)

    async def send_now(self, token: str, body: Any) -> Shown:
        data = body if isinstance(body, bytes) else json.dumps(body)
        return await self._ask("POST", f"{PREFIX}api/report", f"token {token}", data=data)

    def find_token(self, user: str, server: str = "") -> str:
        return self.hub.find_spawner(user, server).api_token

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
            text, self.waits[:] = await answer.text(), [answer.headers.get("Retry-After", "")]
            return Shown(answer.status, answer.url.path, text)


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
    await servers.report("alice", *({**SCRATCH, "name": name} for name in ("default", "Envs.2")))
    found = await servers.list("user=alice")
    assert [(v["kind"], v["name"], v["user"]) for v in found] == [
        ("scratch", "Envs.2", "alice"),
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
    *({"volumes": [{**HOME, "name": name}]} for name in ("mine", 7, "\ud800", "a\0b", {})),
    *({"volumes": [{**SHARE, "name": name}]} for name in ("ours", [])),
    *({"volumes": [{**SCRATCH, "name": name}]} for name in ("", "a b", "../x", "x" * 64, "Größe")),
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
    await volumes.write_down(servers.service.context)
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
    await reporting.forget_ended(context)
    assert context.told.keys() == {("alice", ""), ("bob", "")}
    await hub.stop_server("bob")
    await hub.wait_absent("bob", within=30)
    context.snapshot.forget()
    await context.snapshot.refresh()
    await reporting.forget_ended(context)
    assert context.told.keys() == {("alice", "")}


@pytest_asyncio.fixture(loop_scope="module")
async def offer(place: Place, service: Running) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Offers datasets to flight, as the controller tells of them."""
    path, teams = f"{find_teams(place.namespace)}/flight/status", service.context.teams

    async def offer(*datasets: str) -> None:
        offered = [{"name": name, "title": name, "claim": f"dataset-{name}"} for name in datasets]
        await place.cluster.patch(path, {"status": {"storage": {"datasets": offered}}})
        await wait_until(
            lambda: {each.name for each in teams.get("flight").team.datasets} == {*datasets},
            within=10,
        )

    yield offer
    await place.cluster.patch(path, {"status": {"storage": None}})


async def test_of_datasets_those_are_kept_that_the_team_is_offered(
    servers: Servers, offer: Callable[..., Awaitable[None]]
) -> None:
    await offer("imagenet", "coco")
    coco = {**DATASET, "name": "coco"}
    assert (await servers.report("alice", DATASET, coco, {**DATASET, "name": "mine"})).status == 200
    await volumes.write_down(servers.service.context)
    assert [v["name"] for v in await servers.list("user=bob&team=flight")] == ["coco", "imagenet"]
    await offer("imagenet")
    assert (await servers.report("alice", HOME, DATASET, coco)).status == 200
    await volumes.write_down(servers.service.context)
    found = await servers.list("user=alice&team=flight")
    assert [(v["kind"], v["name"]) for v in found] == [("dataset", "imagenet"), ("home", "")]


async def test_a_report_takes_the_place_of_the_servers_former_one(servers: Servers) -> None:
    await servers.report("alice", HOME, SHARE, {**SCRATCH, "name": "default"})
    await servers.report("bob", HOME)
    await volumes.write_down(servers.service.context)
    await servers.report("alice", HOME)
    await volumes.write_down(servers.service.context)
    found = await servers.list("user=alice&team=flight")
    # a disk is there still while no server has it
    assert [v["kind"] for v in found] == ["home", "scratch"]
    assert [v["kind"] for v in await servers.list("user=bob")] == ["home"]


async def test_of_a_persons_scratch_disks_the_last_fifty_are_kept(service: Running) -> None:
    begun = service.wall() - timedelta(days=1)

    def tell(user: str, number: int) -> None:
        server = Server(user=user, name=f"with-{number}", team="flight", profile="cpu-small")
        told = {"name": f"disk-{number}", "at": (begun + timedelta(minutes=number)).isoformat()}
        volumes.keep_report(service.context, server, {"volumes": [{**SCRATCH, **told}]})

    for number in range(55):
        tell("alice", number)
        tell("bob", number % 2)
    await volumes.write_down(service.context)
    found = await volumes.list_volumes(service.context, user="alice", teams=[])
    assert {each["name"] for each in found} == {f"disk-{number}" for number in range(5, 55)}
    found = await volumes.list_volumes(service.context, user="bob", teams=[])
    assert [each["name"] for each in found] == ["disk-0", "disk-1"]


async def test_nobody_puts_words_of_their_own_on_a_teammates_page(servers: Servers) -> None:
    gone = dict.fromkeys(("total", "used", "read_only"))
    words = {"Stale file handle": "Stale file handle", "Call me at 555!": "unknown reason"}
    for told, shown in words.items():
        assert (await servers.report("alice", {**SHARE, **gone, "error": told})).status == 200
        (share,) = await servers.list("user=bob&team=flight")
        assert share["error"] == shown


async def test_a_server_in_a_loop_is_told_to_wait_and_the_others_are_heard(
    servers: Servers,
) -> None:
    token, body = servers.find_token("alice"), {"volumes": [HOME]}
    for _ in range(4):
        assert (await servers.send_now(token, body)).status == 200
    refused = await servers.send_now(token, {"volumes": [{**HOME, "used": 0}]})
    (wait,) = servers.waits
    assert (refused.status, refused.problem) == (
        429,
        f"A server reports a few times a minute at most: wait for {wait} seconds.",
    )
    assert [each["used"] for each in await servers.list("user=alice")] == [3 * GIB]
    assert (await servers.send_now(servers.find_token("bob"), body)).status == 200
    servers.service.wall.ahead += timedelta(seconds=int(wait))
    assert (await servers.send_now(token, body)).status == 200


async def test_what_a_server_told_before_its_restart_does_not_count(servers: Servers) -> None:
    for _ in range(4):
        assert (
            await servers.send_now(servers.find_token("bob"), {"volumes": [HOME]})
        ).status == 200
    await servers.hub.stop_server("bob")
    await servers.hub.wait_absent("bob", within=30)
    assert (await servers.hub.start_server("bob", FLIGHT)).status == 201
    servers.service.context.snapshot._tried -= 30  # the list that the service has is of before
    assert (await servers.send_now(servers.find_token("bob"), {"volumes": [HOME]})).status == 200


@dataclass
class Questions:
    """How often the service asked the hub who somebody is, and who runs what."""

    identities: int = 0
    lists: int = 0


@pytest.fixture
def questions(service: Running, monkeypatch: pytest.MonkeyPatch) -> Questions:
    asked = Questions()
    identify, read_list = service.context.sign_in.user_for_token, hub_module.Hub.list_active

    def count_identity(*args: Any, **options: Any) -> Any:
        asked.identities += 1
        return identify(*args, **options)

    async def count_list(hub: hub_module.Hub) -> Any:
        asked.lists += 1
        return await read_list(hub)

    monkeypatch.setattr(service.context.sign_in, "user_for_token", count_identity)
    monkeypatch.setattr(hub_module.Hub, "list_active", count_list)
    return asked


async def test_servers_that_report_each_minute_leave_the_hub_alone(
    servers: Servers, questions: Questions, monkeypatch: pytest.MonkeyPatch
) -> None:
    await servers.report("alice", HOME)
    await servers.report("bob", HOME)
    begun = Questions(questions.identities, questions.lists)
    loop = servers.service.context.snapshot
    monkeypatch.setattr(loop, "_tried", loop._tried - 30)  # older than a page wants it
    for _ in range(10):
        await servers.report("alice", HOME)
        await servers.report("bob", HOME)
    assert questions == begun
    servers.service.wall.ahead += timedelta(minutes=10)
    await servers.report("alice", HOME)
    assert (questions.identities, questions.lists) == (begun.identities + 1, begun.lists)


async def test_a_server_that_began_a_moment_ago_is_heard_in_its_new_team(
    servers: Servers, questions: Questions
) -> None:
    await servers.report("bob", HOME)
    old = servers.find_token("bob")
    await servers.hub.stop_server("bob")
    await servers.hub.wait_absent("bob", within=30)
    assert (await servers.hub.start_server("bob", OPS)).status == 201
    # the list that the service has is of before
    servers.service.context.snapshot._tried -= 30
    assert (await servers.report("bob", HOME)).status == 200
    found = await servers.list("user=bob")
    assert [(v["team"], v["server"]) for v in found] == [("flight", "bob"), ("ops", "bob")]
    refused = await servers.send_now(old, {"volumes": [SHARE]})
    assert (refused.status, refused.problem[-1:]) == (403, ".")


async def test_what_was_told_of_a_server_that_ended_is_forgotten(servers: Servers) -> None:
    context = servers.service.context
    await servers.report("alice", HOME)
    await servers.report("bob", HOME)
    token = servers.find_token("alice")
    assert context.reporters.find(token) is not None
    await servers.hub.stop_server("alice")
    await servers.hub.wait_absent("alice", within=30)
    context.snapshot.forget()
    assert (await servers.send_now(token, {"volumes": [HOME]})).status == 403
    await servers.report("bob", HOME)
    await reporting.forget_ended(context)
    assert context.reporters.find(token) is None
    assert context.reporters.find(servers.find_token("bob")) is not None


def read_written(settings: Settings) -> list[str]:
    """The kinds of volumes in the ledger's database."""
    with closing(sqlite3.connect(settings.database.removeprefix("sqlite:///"))) as database:
        return [kind for (kind,) in database.execute("SELECT kind FROM figures ORDER BY kind")]


async def test_figures_are_written_now_and_then_and_at_the_end(
    settings: Settings,
    configuration: Configuration,
    start_service: Callable[..., Awaitable[Running]],
) -> None:
    # figures of last winter would be forgotten in the round that writes them
    home, share = ({**each, "at": datetime.now(UTC).isoformat()} for each in (HOME, SHARE))
    server = Server(user="alice", name="", team="flight", profile="cpu-small")
    async with serve(settings, configuration, look_every=NEVER) as context:
        await context.teams.wait_synced(timeout=10)
        volumes.keep_report(context, server, {"volumes": [home]})
        assert read_written(settings) == []
    assert read_written(settings) == ["home"]
    service = await start_service(look_every=0.2)
    volumes.keep_report(service.context, server, {"volumes": [home, share]})
    await wait_until(lambda: read_written(settings) == ["home", "share"], within=10)


async def test_what_the_ledger_does_not_take_is_shown_and_written_later(
    servers: Servers, settings: Settings
) -> None:
    context = servers.service.context
    with closing(sqlite3.connect(settings.database.removeprefix("sqlite:///"))) as database:
        database.execute(
            "CREATE TRIGGER full BEFORE INSERT ON figures "
            "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
        )
        assert (await servers.report("alice", HOME)).status == 200
        with pytest.raises(LedgerError):
            await volumes.write_down(context)
        assert [each["kind"] for each in await servers.list("user=alice")] == ["home"]
        database.execute("DROP TRIGGER full")
        database.commit()
    await volumes.write_down(context)
    assert read_written(settings) == ["home"]
    await volumes.write_down(context)
    assert context.figures.list_reports() == []
