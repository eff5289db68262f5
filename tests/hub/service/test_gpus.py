"""The GPU board by the API and without a script: who sees, keeps, holds and releases what."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from html import unescape

import aiohttp
import pytest
import pytest_asyncio
from jupyterhub import orm

from spectrum_spawner.service import dry_runs, gpus
from spectrum_spawner.service.hub import HubError
from spectrum_spawner.service.releases import of_person, release_many
from spectrum_spawner.service.rights import Viewer
from spectrum_spawner.service.servers import Person
from tests.hub.cluster import Cluster
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser, Shown
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.floor import RULES, Floor, start_floor
from tests.hub.service.measuring import Meter, PrometheusStub
from tests.hub.service.place import HUB_TOKEN
from tests.hub.service.tokens import Token, read_server_token
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINUTE = timedelta(minutes=1)
GPU = {"team": "flight", "profile": "gpu-1"}
SignIn = Callable[[str], Awaitable[Browser]]


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: Callable[..., Awaitable[Running]], hub: Hub, teams: dict[str, Team]
) -> AsyncIterator[Floor]:
    """Alice's server with a GPU in flight, whose GPU does nothing and everybody tells so."""
    assert (await hub.start_server("alice", GPU)).status == 201
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start_service, stub, hub, teams["flight"])
        floor.idle()
        await floor.look()
        yield floor


@pytest_asyncio.fixture(loop_scope="module")
async def sign_in(floor: Floor) -> AsyncIterator[SignIn]:
    people: list[Browser] = []

    async def sign_in(name: str) -> Browser:
        people.append(Browser(floor.running.url))
        shown = await people[-1].sign_in(name)
        assert shown.status == 200, shown
        return people[-1]

    yield sign_in
    for person in people:
        await person.__aexit__()


@pytest_asyncio.fixture(loop_scope="module")
async def warned(floor: Floor) -> Floor:
    """Alice's server has ten minutes left."""
    await floor.pass_idle(56 * MINUTE)
    assert await floor.actions() == ["warn"]
    return floor


async def test_a_member_sees_the_rows_of_the_team_and_everybody_the_numbers(
    warned: Floor, sign_in: SignIn
) -> None:
    (row,) = (await (await sign_in("bob")).call("GET", "gpus")).body["gpus"]
    assert (row["user"], row["team"], row["product"], row["gpus"]) == ("alice", "flight", "GPU", 1)
    assert (row["state"], row["rule"], row["utilisation"]) == ("ending", "gpu", 0.0)
    assert row["ends_at"] > row["warn_at"] > row["idle_since"]
    assert "has done nothing since" in row["sentence"]
    assert row["last_hour"][-1] == 0.0
    assert row["may"] == ["keep", "hold", "continue", "release"]
    other = (await (await sign_in("carol")).call("GET", "gpus")).body
    assert other["gpus"] == []
    assert [(p["product"], p["held"], p["idle"]) for p in other["products"]] == [("GPU", 1, 1)]


async def test_the_memory_of_gpus_is_shown_where_it_is_measured_and_decides_nothing(
    warned: Floor, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    before = (await bob.call("GET", "gpus")).body["gpus"][0]
    assert before["memory"] is None
    assert "GPU memory" not in (await bob.open("gpus/alice/")).text
    warned.measure_memory("alice", Meter(value=12288.0, free=69632.0))
    asked = warned.stub.queries
    await warned.look()
    assert warned.stub.queries - asked == 4  # use by two metrics, CPU and memory
    row = (await bob.call("GET", "gpus")).body["gpus"][0]
    assert row == {**before, "memory": {"used": 12 * 2**30, "total": 80 * 2**30}}
    assert 'title="12 of 80 GiB of GPU memory in use"' in (await bob.open()).text
    assert "<dt>GPU memory</dt><dd>12 of 80 GiB in use</dd>" in (await bob.open("gpus/alice/")).text
    # so the exporter says that it does not know
    warned.measure_memory("alice", Meter(value=9223372036854775794.0, free=0.0))
    await warned.look()
    assert (await bob.call("GET", "gpus")).body["gpus"][0] == before


async def test_one_click_keeps_a_server_and_no_more_clicks_than_the_rule_allows(
    warned: Floor, sign_in: SignIn
) -> None:
    alice = await sign_in("alice")
    before = (await alice.call("GET", "gpus")).body["gpus"][0]["ends_at"]
    shown = await alice.send("gpus", keep="alice/")
    assert "The server is kept for now." in shown.text
    row = (await alice.call("GET", "gpus")).body["gpus"][0]
    assert row["ends_at"] > before
    assert (row["state"], row["extensions_left"]) == ("idle", 0)
    await warned.pass_idle(31 * MINUTE)
    shown = await alice.call("POST", "servers/alice//keep")
    assert shown.status == 409
    assert shown.problem.startswith("Rule gpu allows 1 extensions")
    extends = [by for _, by, _ in await warned.read("extend")]
    assert extends == ["user:alice"]


async def test_a_hold_keeps_a_server_until_its_end_and_is_seen(
    warned: Floor, sign_in: SignIn
) -> None:
    alice = await sign_in("alice")
    until = (warned.now + 2 * 60 * MINUTE).isoformat()
    hold = {"until": until, "reason": "training"}
    assert (await alice.call("POST", "servers/alice//hold", hold)).status == 204
    (row,) = (await (await sign_in("bob")).call("GET", "gpus")).body["gpus"]
    assert (row["state"], row["ends_at"]) == ("held", None)
    assert (row["hold"]["by"], row["hold"]["reason"]) == ("alice", "training")
    assert row["may"] == ["end-hold", "continue", "release"]
    assert (await alice.call("DELETE", "servers/alice//hold")).status == 204
    assert (await alice.call("GET", "gpus")).body["gpus"][0]["hold"] is None
    assert (await alice.call("DELETE", "servers/alice//hold")).status == 409


@pytest.mark.parametrize(
    ("fields", "status", "sentence"),
    [
        ({}, 400, "A hold needs its end, a time with a zone"),
        ({"until": "2999-01-01T00:00:00"}, 400, "A hold needs its end, a time with a zone"),
        ({"until": 7}, 400, "A hold needs its end, a time with a zone"),
        ({"until": "2020-01-01T00:00:00Z"}, 400, "The end of the hold is past"),
        ({"until": "2999-01-01T00:00:00Z"}, 409, "Rule gpu allows a hold until"),
        ({"until": "2999-01-01T00:00:00Z", "reason": 7}, 400, "A reason must be a text"),
        ({"for": "ever"}, 400, "The body has no place for “for”"),
    ],
)
async def test_a_hold_that_cannot_be_meant_is_refused(
    floor: Floor, sign_in: SignIn, fields: dict[str, object], status: int, sentence: str
) -> None:
    shown = await (await sign_in("alice")).call("POST", "servers/alice//hold", fields)
    assert (shown.status, shown.problem[: len(sentence)]) == (status, sentence)


async def test_a_servers_own_token_keeps_holds_and_releases_that_server_alone(
    warned: Floor, hub: Hub, cluster: Cluster, teams: dict[str, Team]
) -> None:
    assert (await hub.start_server("bob", GPU)).status == 201
    warned.running.context.snapshot.forget()
    token = await read_server_token(cluster, teams["flight"], "alice")
    server = Token(warned.running.url, token)
    (notice,) = (shown := (await server.call("GET", "servers/self")).body)["notices"]
    assert (notice["kind"], notice["keep"], shown["state"]) == ("idle", True, "ending")
    assert shown["may"] == ["keep", "hold", "continue", "release"]
    assert (await server.call("POST", "servers/alice//keep")).status == 204
    assert (await server.call("GET", "servers/self")).body["notices"] == []
    for path in ("servers/bob//keep", "servers/bob//hold", "servers/bob//release"):
        body = {"until": "2999-01-01T00:00:00Z"} if path.endswith("hold") else None
        assert (await server.call("POST", path, body)).status == 404
    assert (await server.call("POST", "gpus/release", {"mine": True})).status == 403
    shown = await server.call("POST", "servers/alice//release", {"reason": "Training is done."})
    assert shown.status == 202
    await hub.wait_absent("alice", within=10)
    # guests of a server have its token too, so nobody can say that it was alice
    assert await warned.read("extend", "release") == [
        ("extend", "server:alice/", (await warned.read("extend"))[0][2]),
        ("release", "server:alice/", "Training is done."),
    ]
    assert await hub.is_ready("bob")


async def test_a_shared_server_is_not_ended_by_whoever_is_in_it(
    floor: Floor, hub: Hub, cluster: Cluster, teams: dict[str, Team]
) -> None:
    orm_spawner = hub.find_spawner("alice").orm_spawner
    bob = orm.User.find(hub.app.db, "bob")
    orm.Share.grant(hub.app.db, orm_spawner, bob)
    server = Token(floor.running.url, await read_server_token(cluster, teams["flight"], "alice"))
    shown = await server.call("POST", "servers/alice//release")
    assert (shown.status, shown.problem) == (
        409,
        "This server is shared, so its own token does not end it: end it on its page, where you "
        "are signed in yourself.",
    )
    assert await floor.actions() == []
    until = (floor.now + 60 * MINUTE).isoformat()
    assert (await server.call("POST", "servers/alice//hold", {"until": until})).status == 204
    assert await hub.is_ready("alice")


async def test_a_lead_releases_everything_of_a_team(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    assert (await hub.start_server("alice", GPU, "second")).status == 201
    assert (await hub.start_server("bob", {"team": "ops", "profile": "gpu-1"})).status == 201
    shown = await (await sign_in("alice")).call("POST", "gpus/release", {"team": "flight"})
    assert (shown.status, shown.problem) == (
        403,
        "All servers of team “flight” are released by its leads and by administrators: ask one of "
        "them.",
    )
    bob = await sign_in("bob")
    assert "Release everything of this team" not in (await bob.open("?team=ops")).text
    assert "Release everything of this team" in (await bob.open("?team=flight")).text
    shown = await bob.send("gpus", all="team", team="flight", reason="For the demo.")
    assert "What you released is being stopped." in shown.text
    for server in ("", "second"):
        await hub.wait_absent("alice", server, within=10)
    assert await hub.is_ready("bob")
    assert [by for _, by, _ in await floor.read("release")] == ["user:bob", "user:bob"]


async def test_many_are_written_down_at_once_and_end_after_the_answer(
    floor: Floor, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hub.start_server("alice", GPU, "second")).status == 201
    context, go_on = floor.running.context, asyncio.Event()
    stop = context.hub.stop

    async def stop_later(user: str, server: str, **rest: str) -> None:
        await go_on.wait()
        if server == "second":
            raise HubError("away")
        await stop(user, server, **rest)

    monkeypatch.setattr(context.hub, "stop", stop_later)
    alice = await sign_in("alice")
    shown = await alice.call("POST", "gpus/release", {"mine": True})
    assert (shown.status, len(shown.body["released"])) == (202, 2)
    assert await floor.actions() == ["release", "release"]
    rows = (await alice.call("GET", "gpus")).body["gpus"]
    assert [(row["state"], row["may"]) for row in rows] == [("stopping", [])] * 2
    go_on.set()
    await floor.settle()
    await hub.wait_absent("alice", within=10)
    (told,) = await floor.read("notice")
    assert told[1:] == ("service:spectrum", "The hub did not stop it: away.")
    rows = (await alice.call("GET", "gpus")).body["gpus"]
    assert [row["server"] for row in rows] == ["second"]
    assert "release" in rows[0]["may"]


async def test_what_somebody_started_in_place_of_what_was_released_stays(
    floor: Floor, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = floor.running.context
    find = context.hub.find_person

    async def find_next_run(name: str) -> Person | None:
        person = await find(name)
        later = [replace(s, started=floor.now) for s in person.servers] if person else []
        return person and replace(person, servers=tuple(later))

    monkeypatch.setattr(context.hub, "find_person", find_next_run)
    shown = await (await sign_in("alice")).call("POST", "gpus/release", {"mine": True})
    assert shown.status == 202
    await floor.settle()
    assert await hub.is_ready("alice")


async def test_what_the_hub_does_not_tell_of_is_not_ended_by_its_name(
    floor: Floor, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def be_away(_: str) -> None:
        raise HubError("away")

    monkeypatch.setattr(floor.running.context.hub, "find_person", be_away)
    shown = await (await sign_in("alice")).call("POST", "gpus/release", {"mine": True})
    assert shown.status == 202
    await floor.settle()
    assert await hub.is_ready("alice")
    assert (await floor.read("notice"))[0][2] == "The hub did not stop it: away."


async def test_a_service_that_ends_meanwhile_tells_what_it_did_not_stop(
    floor: Floor, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hub.start_server("alice", GPU, "second")).status == 201
    context, asked = floor.running.context, asyncio.Event()

    async def wait(_: str) -> None:
        asked.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr(context.hub, "find_person", wait)
    settings = replace(context.settings, culling=replace(context.settings.culling, concurrency=1))
    shown = await release_many(
        replace(context, settings=settings),
        Viewer(name="alice"),
        of_person("alice"),
        "Done.",
    )
    assert len(shown[0]) == 2
    await asked.wait()
    (work,) = context.background.tasks
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    (told,) = await floor.read("notice")
    assert told[2] == "The service ended before it was stopped."
    assert await hub.is_ready("alice")
    assert await hub.is_ready("alice", "second")


async def test_without_a_record_nobody_elses_servers_end(
    floor: Floor, hub: Hub, sign_in: SignIn, break_ledger: Callable[[], None]
) -> None:
    break_ledger()
    shown = await (await sign_in("bob")).call("POST", "gpus/release", {"servers": ["alice/"]})
    assert shown.status == 503
    assert shown.problem.startswith("No server was stopped, since that could not be written down")
    assert await hub.is_ready("alice")
    shown = await (await sign_in("alice")).call("POST", "gpus/release", {"mine": True})
    assert shown.status == 202
    await hub.wait_absent("alice", within=10)


async def test_everything_of_mine_is_released_and_nobody_elses(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    assert (await hub.start_server("alice", GPU, "second")).status == 201
    cpu = {"team": "flight", "profile": "cpu-small"}
    assert (await hub.start_server("alice", cpu, "third")).status == 201
    assert (await hub.start_server("bob", GPU)).status == 201
    shown = await (await sign_in("alice")).call("POST", "gpus/release", {"mine": True})
    assert shown.body == {
        "released": [{"user": "alice", "server": ""}, {"user": "alice", "server": "second"}],
        "failed": [],
    }
    for server in ("", "second"):
        await hub.wait_absent("alice", server, within=10)
    assert await hub.is_ready("bob")
    assert await hub.is_ready("alice", "third")


async def test_a_lead_releases_those_that_are_selected_with_a_reason(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    shown = await bob.send("gpus", all="picked", reason="Typed.")
    assert (shown.status, shown.problem) == (
        400,
        "No server is selected: tick those that you mean.",
    )
    assert 'value="Typed."' in shown.text
    shown = await bob.send(
        "gpus", all="picked", pick="alice/", reason="For the demo.", team="flight"
    )
    assert "What you released is being stopped." in shown.text
    await hub.wait_absent("alice", within=10)
    assert await floor.read("release") == [("release", "user:bob", "For the demo.")]


async def test_a_lead_asks_owners_to_release_and_nothing_ends_by_that(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    shown = await bob.send("gpus", all="asked", pick="alice/")
    assert (shown.status, shown.problem) == (400, "A reason is needed: one sentence is enough.")
    shown = await bob.send("gpus", all="asked", pick="alice/", reason="Carol waits.")
    assert "The owners are asked" in shown.text
    text = "bob asks you to release this server: Carol waits."
    (notice,) = (await Inside(floor).call("GET", "notices")).body["notices"]
    assert (notice["kind"], notice["text"], notice["ends_at"]) == ("asked", text, "")
    assert await floor.read() == [("warn", "user:bob", "Asked to release it: Carol waits.")]
    await floor.restart()
    context = floor.running.context
    await context.snapshot.refresh()
    (told,) = gpus.list_own_notices(context, ("alice", ""))
    assert (told["kind"], told["text"], told["keep"]) == ("asked", text, False)
    assert await hub.is_ready("alice")
    floor.running.wall.ahead += timedelta(days=1)
    assert gpus.list_notices(context) == []


async def test_nobody_asks_where_they_may_not_release(floor: Floor, sign_in: SignIn) -> None:
    carol = await sign_in("carol")
    body = {"servers": ["alice/"], "reason": "Mine."}
    shown = await carol.call("POST", "gpus/appeal", body)
    assert (shown.status, shown.body["asked"]) == (202, [])
    assert (
        await carol.call("POST", "gpus/appeal", {"team": "flight", "reason": "x"})
    ).status == 403
    assert (await carol.call("POST", "gpus/appeal", {"mine": True, "reason": "x"})).status == 400
    assert await floor.actions() == []


async def test_what_of_many_was_not_released_is_told_one_by_one(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    shown = await bob.call("POST", "gpus/release", {"servers": ["alice/", "nobody/", "alice/x"]})
    missing = "There is no such server running: it may have ended already."
    assert shown.body == {
        "released": [{"user": "alice", "server": ""}],
        "failed": [
            {"user": "alice", "server": "x", "message": missing},
            {"user": "nobody", "server": "", "message": missing},
        ],
    }


@pytest.mark.parametrize(
    "body",
    [{}, {"servers": []}, {"servers": "alice/"}, {"servers": ["alice"]}, {"servers": [7]},
     {"mine": False}, {"mine": True, "servers": ["alice/"]}, {"servers": ["a/"] * 1001},
     {"team": ""}, {"team": 7}, {"team": "flight", "mine": True}],
)  # fmt: skip
async def test_servers_that_are_named_badly_are_refused(
    floor: Floor, sign_in: SignIn, body: dict[str, object]
) -> None:
    shown = await (await sign_in("alice")).call("POST", "gpus/release", body)
    assert shown.status == 400
    assert await floor.hub.is_ready("alice")


async def test_the_page_of_a_server_tells_its_evidence_and_holds_it(
    warned: Floor, sign_in: SignIn
) -> None:
    alice = await sign_in("alice")
    page = unescape((await alice.open("gpus/alice/")).text)
    for text in ("has done nothing since", "0 busy", "Keep it", "Release 1 GPU now"):
        assert text in page
    until = (warned.now + 60 * MINUTE).strftime("%Y-%m-%dT%H:%M")
    shown = await alice.send("gpus/alice//hold", until=until, reason="training")
    assert "The server is held." in shown.text
    assert shown.path == "/services/spectrum/gpus/alice/"
    shown = await alice.send("gpus/alice//hold", until="2999-01-01T00:00", reason="more")
    assert shown.status == 409
    assert 'value="more"' not in shown.text  # what is held offers no second hold
    assert "The server is held no more" in (await alice.send("gpus/alice//end-hold")).text


@pytest.mark.parametrize("path", ["gpus/alice/nope", "gpus/nobody/", "gpus/%3Cb%3E/x"])
async def test_a_server_that_does_not_run_has_no_page(
    floor: Floor, sign_in: SignIn, path: str
) -> None:
    assert (await (await sign_in("alice")).open(path)).status == 404


async def test_nothing_new_is_an_empty_answer(floor: Floor, sign_in: SignIn) -> None:
    alice = await sign_in("alice")
    url = f"{floor.running.url}/services/spectrum/"
    async with alice._session.get(url) as answer:
        version = answer.headers["Etag"]
    for later, status in ((timedelta(), 304), (MINUTE, 200)):
        if later:
            await floor.pass_idle(later)
        async with alice._session.get(url, headers={"If-None-Match": version}) as answer:
            assert answer.status == status


async def test_a_dry_run_tells_what_the_rules_of_now_and_edited_ones_would_end(
    floor: Floor, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    await floor.pass_idle(20 * MINUTE)
    assert (await bob.call("POST", "cull/dry-run")).body["servers"] == []
    sooner = {"gpu": {**RULES["gpu"], "idleMinutes": 12}}
    run = (await bob.call("POST", "cull/dry-run", {"culling": {"rules": sooner}})).body
    assert run["counts"] == {"stop": 1, "warn": 0, "unknown-long": 0, "keep": 0}
    (server,) = run["servers"]
    assert (server["user"], server["current"], server["decision"]) == ("alice", "keep", "stop")
    assert "ends what is idle for 12 minutes" in server["text"]
    assert await floor.actions() == []
    assert await floor.hub.is_ready("alice")


async def test_other_floors_are_measured_for_a_dry_run(floor: Floor, sign_in: SignIn) -> None:
    floor.measure("alice", Meter(value=3.0, below_since=floor.now))
    await floor.pass_idle(20 * MINUTE)
    bob = await sign_in("bob")
    edited = {"gpu": {**RULES["gpu"], "idleMinutes": 12, "gpuFloor": 5}}
    run = (await bob.call("POST", "cull/dry-run", {"culling": {"rules": edited}})).body
    assert [each["decision"] for each in run["servers"]] == ["stop"]


async def test_a_policy_that_contradicts_itself_is_refused_with_its_place(
    floor: Floor, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    bad = {"gpu": {**RULES["gpu"], "idleMinutes": 5}}
    shown = await bob.call("POST", "cull/dry-run", {"culling": {"rules": bad}})
    assert (shown.status, shown.problem) == (
        400,
        "This policy cannot be used: culling.rules.gpu.idleMinutes: must be above warnMinutes.",
    )
    for typed in (
        *("rules: [", "- a", "rules: {gpu: 7}", "!!python/object:os.system {}"),
        "a: &a [1]\nrules: {b: *a}",
    ):
        shown = await bob.send("dry-run", policy=typed)
        assert shown.status == 400
        assert unescape(typed) in unescape(shown.text)
    shown = await bob.send("dry-run", policy="culling: {rules: {}}")
    assert "The edited rules" in shown.text


async def test_a_dry_run_is_for_administrators_and_leads_of_their_teams(
    floor: Floor, hub: Hub, sign_in: SignIn
) -> None:
    alice = await sign_in("alice")
    assert (await alice.call("POST", "cull/dry-run")).status == 403
    # the form shows the policy that holds, people whom it exempts included
    for shown in (await alice.open("dry-run"), await alice.send("dry-run", policy="- a")):
        assert (shown.status, "idleMinutes" in shown.text) == (403, False)
    assert (await hub.start_server("bob", {"team": "ops", "profile": "gpu-1"})).status == 201
    await floor.look()
    counted = []
    for name in ("bob", "admin"):
        run = (await (await sign_in(name)).call("POST", "cull/dry-run")).body
        counted.append(sum(run["counts"].values()))
    assert counted == [1, 2]


async def test_policies_are_tried_one_at_a_time(
    floor: Floor, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_runs, "TURN_WITHIN", 0.1)
    bob = await sign_in("bob")
    async with floor.running.context.trying:
        shown = await bob.call("POST", "cull/dry-run", {"culling": {"rules": {}}})
    assert (shown.status, shown.problem) == (
        503,
        "Others try policies just now: try again in a minute.",
    )
    assert (await bob.call("POST", "cull/dry-run", {"culling": {"rules": {}}})).status == 200


async def test_the_hub_hears_of_ends_and_of_clicks_on_its_home_page(
    warned: Floor, hub: Hub
) -> None:
    inside = Inside(warned)
    (notice,) = (await inside.call("GET", "notices")).body["notices"]
    assert (notice["user"], notice["kind"], notice["keep"]) == ("alice", "idle", True)
    assert notice["ends_at"] > notice["at"]
    assert (
        await inside.call("POST", "keep", {"user": "alice", "server": "", "by": "alice"})
    ).status == 204
    assert (await inside.call("GET", "notices")).body["notices"] == []
    for body in ({"user": "alice", "server": ""}, {"user": 7, "server": "", "by": "bob"}, {}):
        assert (await inside.call("POST", "keep", body)).status == 400
    shown = await inside.call("POST", "keep", {"user": "alice", "server": "nope", "by": "alice"})
    assert shown.status == 404
    assert (await Inside(warned, "controller-token").call("POST", "keep", {})).status == 403


async def test_the_hub_keeps_a_server_for_its_owner_alone(warned: Floor, hub: Hub) -> None:
    assert (await keep_at_hub(hub, hub.make_token("bob"), ""))[0] == 404
    assert (await keep_at_hub(hub, "nonsense", ""))[0] == 403
    server = hub.find_spawner("alice").api_token
    assert (await keep_at_hub(hub, server, ""))[0] == 403
    token = hub.make_token("alice")
    assert await keep_at_hub(hub, token, "nope") == (404, "You have no such server.")
    assert (await keep_at_hub(hub, token, ""))[0] == 204
    status, sentence = await keep_at_hub(hub, token, "")
    assert (status, sentence[:33]) == (409, "No end of this server is near, so")
    assert [by for _, by, _ in await warned.read("extend")] == ["user:alice"]


async def test_while_the_service_is_away_nothing_is_kept(hub: Hub) -> None:
    assert (await hub.start_server("alice", GPU)).status == 201
    assert await keep_at_hub(hub, hub.make_token("alice"), "") == (
        503,
        "The service does not answer, so nothing was changed: try again in a minute.",
    )


async def test_while_the_hub_is_away_the_board_shows_what_was_known(
    warned: Floor, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = await sign_in("alice")

    async def be_away() -> None:
        raise HubError("away")

    context = warned.running.context
    monkeypatch.setattr(context.hub, "list_active", be_away)
    context.snapshot.forget()
    page = (await alice.open()).text
    assert "JupyterHub does not answer." in page
    assert 'href="/services/spectrum/gpus/alice/"' in page


class Inside:
    """A process of Spectrum's that asks the service inside the cluster, by default the hub."""

    def __init__(self, floor: Floor, token: str = HUB_TOKEN) -> None:
        self._url = f"http://127.0.0.1:{floor.running.context.settings.port}/internal"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def call(self, method: str, path: str, body: object = None) -> Shown:
        async with (
            aiohttp.ClientSession(headers=self._headers) as session,
            session.request(method, f"{self._url}/{path}", json=body) as answer,
        ):
            return Shown(answer.status, answer.url.path, await answer.text())


async def keep_at_hub(
    hub: Hub, token: str, server: str, *, owner: str = "alice"
) -> tuple[int, str]:
    """Status and sentence of the home page's button, as whoever has a token."""
    url = f"{hub.url.removesuffix('/api')}/spectrum/keep"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as session,
        session.post(url, json={"user": owner, "server": server}) as answer,
    ):
        return answer.status, (await answer.json())["message"] if answer.status >= 300 else ""
