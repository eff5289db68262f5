"""Idle servers: people are told, may keep them, and then they are stopped; what works stays."""

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from spectrum_spawner import names
from spectrum_spawner.activity import Answer
from spectrum_spawner.service.culling.policy import Cause, Decision
from spectrum_spawner.service.hub import HubRefused
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.servers import Person
from spectrum_spawner.service.settings import Settings
from spectrum_spawner.service.team_sheet import TeamSheet
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.service.conftest import Wall
from tests.hub.service.floor import (
    ALICE,
    GPU,
    HOUR,
    MINUTE,
    Floor,
    StartService,
    start_floor,
)
from tests.hub.service.measuring import UTILISATION, Meter, PrometheusStub
from tests.hub.service.place import Place
from tests.hub.service.tokens import Token
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

RACES = 30


@pytest_asyncio.fixture(loop_scope="module")
async def stub() -> AsyncIterator[PrometheusStub]:
    async with PrometheusStub(Wall()) as stub:
        yield stub


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: StartService, stub: PrometheusStub, hub: Hub, teams: dict[str, Team]
) -> Floor:
    """Alice's server with a GPU in flight, of which nothing is told yet."""
    assert (await hub.start_server("alice", GPU)).status == 201
    return await start_floor(start_service, stub, hub, teams["flight"])


async def test_who_does_nothing_is_warned_then_stopped_and_everybody_sees_why(
    floor: Floor, hub: Hub
) -> None:
    floor.idle()
    await floor.look()
    assert floor.culler.round.verdicts[ALICE].cause is Cause.IDLE
    assert await floor.actions() == []

    await floor.pass_idle(56 * MINUTE)
    ends_at = floor.culler.round.standings[ALICE].ends_at
    assert 9 * MINUTE < ends_at - floor.now <= 10 * MINUTE + MINUTE / 60
    await floor.pass_idle(5 * MINUTE)
    assert await floor.actions() == ["warn"]
    assert await hub.is_ready("alice")

    await floor.pass_idle(5 * MINUTE)
    await hub.wait_absent("alice", within=10)
    (warned, culled) = await floor.read()
    assert warned[:2] == ("warn", "service:spectrum")
    assert culled[:2] == ("cull", "service:spectrum")
    assert "rule gpu ends what is idle for 1 h" in culled[2]
    details = await floor.details("cull")
    assert (details["rule"], details["cause"]) == ("gpu", "idle")
    assert {each["source"]: each["answer"] for each in details["evidence"]} == dict.fromkeys(
        ("gpu", "kernels", "processes", "cpu"), "idle"
    )


async def warn(floor: Floor) -> None:
    """Alice's server is idle for so long that she is told."""
    floor.idle()
    await floor.look()
    await floor.pass_idle(56 * MINUTE)
    assert await floor.actions() == ["warn"]


async def test_one_click_keeps_it_and_the_next_end_is_told_again(floor: Floor, hub: Hub) -> None:
    await warn(floor)
    clicked = floor.now
    await floor.culler.extend(ALICE, by="user:alice")
    assert floor.culler.round.standings[ALICE].ends_at is None
    assert floor.culler.round.verdicts[ALICE].decision is Decision.KEEP
    with pytest.raises(Problem, match="No end of this server is near"):
        await floor.culler.extend(ALICE, by="user:alice")
    await floor.pass_idle(30 * MINUTE)
    told = floor.culler.round.standings[ALICE]
    assert told.ends_at - clicked >= 30 * MINUTE
    with pytest.raises(Problem, match="allows 1 extensions, and this server had them"):
        await floor.culler.extend(ALICE, by="user:alice")
    assert await hub.is_ready("alice")
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    assert await floor.actions() == ["warn", "extend", "warn", "cull"]
    assert (await floor.read("extend"))[0][1] == "user:alice"


async def test_a_gpu_that_works_without_a_browser_stays_for_days(floor: Floor, hub: Hub) -> None:
    floor.idle()
    for _ in range(20):
        floor.measure("alice", Meter(value=85.0))
        await floor.pass_idle(6 * HOUR)
    assert floor.culler.round.verdicts[ALICE].cause is Cause.BUSY
    assert await floor.actions() == []
    assert await hub.is_ready("alice")


async def test_a_training_that_waits_for_data_stays(floor: Floor, hub: Hub) -> None:
    floor.idle()
    for _ in range(10):
        floor.running.wall.ahead += HOUR
        process = {"name": "python train.py", "cpu": 0.0, "works": True}
        floor.tell("alice", watched_since=floor.now - 10 * HOUR, processes=[process])
        await floor.culler.look()
    assert "python train.py works" in floor.culler.round.verdicts[ALICE].text
    assert await floor.actions() == []


async def test_who_works_again_hears_that_the_end_is_off(floor: Floor, hub: Hub) -> None:
    await warn(floor)
    floor.measure("alice", Meter(value=50.0))
    await floor.pass_idle(MINUTE)
    assert floor.culler.round.standings[ALICE].ends_at is None
    (_, told) = await floor.read()
    assert told[0] == "notice"
    assert told[2].startswith("The end is off. This server works (gpu: 50 %")


@pytest.mark.parametrize("how", ["away", "slow", "refuses", "nonsense", "NaN", "stale", "101 %"])
async def test_without_a_sound_measure_of_the_gpu_nothing_is_stopped(
    floor: Floor, hub: Hub, how: str
) -> None:
    await warn(floor)
    told = floor.culler.round.standings[ALICE].ends_at
    if how == "away":
        await floor.stub.go_away()
    elif how == "slow":
        floor.stub.pause = 30
        floor.culler._gatherer._prometheus._timeout = 0.2
    elif how == "refuses":
        floor.stub.answer = web.json_response(
            {"status": "error", "error": "too many samples"}, status=422
        )
    elif how == "nonsense":
        floor.stub.answer = web.Response(text="<html>")
    else:
        bad = {
            "NaN": Meter(value="NaN"),
            "stale": Meter(at=floor.now),
            "101 %": Meter(value=101.0),
        }
        floor.measure("alice", bad[how])
    await floor.pass_idle(20 * MINUTE)
    found = floor.culler.round
    assert (found.verdicts[ALICE].cause, found.standings[ALICE].ends_at) == (Cause.UNKNOWN, told)
    if how in ("away", "slow", "refuses", "nonsense"):
        assert floor.culler.problems[0].startswith("Prometheus does not tell metric")
    assert await floor.actions() == ["warn"]
    assert await hub.is_ready("alice")


async def test_without_a_prometheus_nothing_is_stopped_and_that_is_said(
    start_service: StartService, stub: PrometheusStub, hub: Hub, teams: dict[str, Team]
) -> None:
    assert (await hub.start_server("alice", GPU)).status == 201
    floor = await start_floor(start_service, stub, hub, teams["flight"], prometheus_url="")
    floor.idle()
    await floor.look()
    await floor.pass_idle(70 * MINUTE)
    sentence = "What GPUs do is not measured here, so no server with a GPU ends as idle."
    assert floor.culler.problems == (sentence,)
    assert floor.culler.health()["problems"] == [f"{sentence} metrics.prometheusUrl is not set."]
    assert floor.culler.round.verdicts[ALICE].cause is Cause.UNKNOWN
    # nor is that told again and again of each server
    await floor.pass_idle(5 * HOUR)
    assert (stub.queries, await floor.actions()) == (0, [])


async def test_what_is_not_known_for_long_is_told_and_ends_nothing(floor: Floor) -> None:
    await floor.look()
    await floor.look(later=3 * HOUR)
    await floor.look(later=3 * HOUR)
    assert floor.culler.round.verdicts[ALICE].decision is Decision.UNKNOWN_LONG
    (told,) = await floor.read()
    assert told[0] == "notice"
    assert told[2].startswith("Nobody knows whether this server works (")


async def test_the_series_of_a_former_pod_counts_for_nothing(floor: Floor) -> None:
    floor.idle()
    before = floor.now - HOUR
    floor.measure("alice", Meter(value=0.0, below_since=before, at=before))
    await floor.look()
    readings = floor.culler.round.verdicts[ALICE].evidence
    assert readings[0].answer is Answer.UNKNOWN


async def test_while_the_hub_is_away_nothing_is_stopped(
    start_service: StartService, stub: PrometheusStub, hub: Hub, teams: dict[str, Team]
) -> None:
    assert (await hub.start_server("alice", GPU)).status == 201
    floor = await start_floor(start_service, stub, hub, teams["flight"])
    await warn(floor)
    url = floor.running.context.hub._url
    floor.running.context.hub._url = "http://127.0.0.1:9/hub/api"
    await floor.pass_idle(11 * MINUTE)
    assert floor.culler.problems == ("The hub does not answer, so nothing is stopped.",)
    assert await floor.actions() == ["warn"]
    # nobody's time is over any more, so that the hub is in nobody's way
    floor.measure("alice", Meter(value=50.0))
    await floor.pass_idle(MINUTE)
    assert floor.culler.problems == ()
    floor.running.context.hub._url = url
    floor.idle(since=floor.now)
    await floor.pass_idle(56 * MINUTE)
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    assert floor.culler.problems == ()


async def test_nothing_is_told_or_stopped_that_cannot_be_written_down(
    floor: Floor, hub: Hub, break_ledger: Callable[[], None]
) -> None:
    await warn(floor)
    break_ledger()
    await floor.pass_idle(11 * MINUTE)
    sentence = "The ledger does not answer, so nothing is stopped."
    assert floor.culler.problems == (sentence,)
    (told,) = floor.culler.health()["problems"]
    assert told == f"{sentence} It says: database or disk is full."
    with pytest.raises(Problem, match="That could not be written down") as error:
        await floor.culler.extend(ALICE, by="user:alice")
    assert error.value.status == 503
    assert floor.culler.round.standings[ALICE].ends_at is not None
    assert await hub.is_ready("alice")


async def test_a_service_that_starts_anew_knows_what_people_were_told(
    floor: Floor, hub: Hub
) -> None:
    await warn(floor)
    told = floor.culler.round.standings[ALICE]
    await floor.restart()
    await floor.look()
    after = floor.culler.round.standings[ALICE]
    assert (after.warned_at, after.ends_at, after.cause) == (
        told.warned_at,
        told.ends_at,
        Cause.IDLE,
    )
    # nobody knows yet what works in there
    assert floor.culler.round.verdicts[ALICE].cause is Cause.UNKNOWN
    assert await floor.actions() == ["warn"]
    floor.idle(since=floor.now - HOUR)
    await floor.culler.extend(ALICE, by="user:alice")
    await floor.restart()
    floor.idle(since=floor.now - HOUR)
    await floor.look()
    kept = floor.culler.round.standings[ALICE]
    assert (kept.extensions, kept.ends_at) == (1, None)
    assert kept.memory.extended_until is not None


async def test_a_hold_keeps_a_server_until_its_end_and_over_a_restart(
    floor: Floor, hub: Hub
) -> None:
    await warn(floor)
    until = floor.now + 3 * HOUR
    with pytest.raises(Problem, match="allows a hold until"):
        await floor.culler.hold(ALICE, by="user:alice", until=floor.now + 9 * HOUR, reason="")
    await floor.culler.hold(ALICE, by="user:alice", until=until, reason="a training")
    assert floor.culler.round.standings[ALICE].ends_at is None
    assert floor.culler.round.verdicts[ALICE].text.startswith("alice holds this server until ")
    assert await floor.actions() == ["warn", "hold", "notice"]
    await floor.restart()
    floor.idle(since=floor.now - HOUR)
    await floor.pass_idle(2 * HOUR)
    assert floor.culler.round.verdicts[ALICE].cause is Cause.HELD
    await floor.culler.end_hold(ALICE, by="user:bob")
    with pytest.raises(Problem, match="Nobody holds this server"):
        await floor.culler.end_hold(ALICE, by="user:bob")
    assert floor.culler.round.verdicts[ALICE].cause is Cause.IDLE
    # a warning of the rule's whole time comes first
    await floor.pass_idle(MINUTE)
    assert await hub.is_ready("alice")
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    assert await floor.actions() == ["warn", "hold", "notice", "hold", "warn", "cull"]


async def test_the_next_run_of_a_server_is_not_ended_for_the_former(floor: Floor, hub: Hub) -> None:
    await warn(floor)
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    uid = floor.culler.round.subjects[ALICE].run.pod_uid
    assert (await hub.start_server("alice", GPU)).status == 201
    await floor.wait_seen()
    await floor.pass_idle(11 * MINUTE)
    assert floor.culler.round.subjects[ALICE].run.pod_uid != uid
    assert floor.culler.round.standings[ALICE].ends_at is None or (
        floor.culler.round.standings[ALICE].ends_at > floor.now
    )
    assert await hub.is_ready("alice")


async def test_what_runs_since_the_last_look_can_be_held_at_once(floor: Floor, hub: Hub) -> None:
    await floor.look()
    assert (await hub.start_server("bob", GPU)).status == 201
    await floor.wait_seen("bob")
    bob = ("bob", "")
    await floor.culler.hold(bob, by="user:bob", until=floor.now + HOUR, reason="")
    assert floor.culler.round.verdicts[bob].cause is Cause.HELD
    await floor.look()
    assert floor.culler.round.verdicts[bob].cause is Cause.HELD
    with pytest.raises(Problem, match="There is no such server running"):
        await floor.culler.hold(("erin", ""), by="user:bob", until=floor.now + HOUR, reason="")


async def test_while_the_api_server_is_away_nothing_is_stopped(
    floor: Floor, hub: Hub, fault_proxy: FaultProxy
) -> None:
    await warn(floor)
    await fault_proxy.go_down()
    await wait_until(lambda: floor.culler._pods.unknown, within=10)
    await floor.pass_idle(11 * MINUTE)
    assert floor.culler.problems
    assert floor.culler.round.verdicts[ALICE].cause is Cause.IDLE  # of before
    assert await hub.is_ready("alice")
    await fault_proxy.come_up()
    await wait_until(lambda: not floor.culler._pods.unknown, within=20)
    await wait_until(lambda: floor.running.context.teams.stale_since is None, within=20)
    await floor.pass_idle(MINUTE)
    await hub.wait_absent("alice", within=10)


async def reach_the_stop(
    floor: Floor, settings: Settings
) -> tuple[asyncio.Task[None], sqlite3.Connection]:
    """Alice's server is about to be stopped, and that waits for a ledger that is locked."""
    await warn(floor)
    floor.running.wall.ahead += 11 * MINUTE
    await floor.tell_again()
    await floor.culler.look()
    database = sqlite3.connect(settings.database.removeprefix("sqlite:///"))
    database.execute("BEGIN IMMEDIATE")
    asked = floor.stub.queries
    ending = asyncio.create_task(floor.settle())
    # of the last look
    await wait_until(lambda: floor.stub.queries == asked + 3, within=10)
    return ending, database


async def test_a_click_while_the_stop_is_written_down_wins(
    floor: Floor, hub: Hub, settings: Settings
) -> None:
    look, database = await reach_the_stop(floor, settings)
    with closing(database):
        click = asyncio.create_task(floor.culler.extend(ALICE, by="user:alice"))
        await asyncio.sleep(0)
        database.rollback()
    await asyncio.gather(look, click)
    assert await hub.is_ready("alice")
    assert floor.culler.round.standings[ALICE].extensions == 1


async def test_work_that_begins_while_the_stop_is_written_down_wins(
    floor: Floor, hub: Hub, settings: Settings
) -> None:
    look, database = await reach_the_stop(floor, settings)
    with closing(database):
        busy = [{"state": "busy", "last_activity": floor.now.isoformat()}]
        floor.tell("alice", watched_since=floor.now - HOUR, kernels=busy)
        database.rollback()
    await look
    assert await hub.is_ready("alice")
    await floor.look()
    assert (await floor.read())[-1][2].startswith("The end is off. This server works")


async def test_in_a_race_of_clicks_and_stops_no_click_that_counted_was_in_vain(
    floor: Floor, hub: Hub
) -> None:
    dice, outcomes = random.Random(1), Counter[str]()
    # Seconds within which the click comes: about as long as a stop takes on this machine.
    reach = 0.1
    for _ in range(RACES):
        floor.idle()
        await floor.pass_idle(56 * MINUTE)
        floor.running.wall.ahead += 11 * MINUTE
        await floor.tell_again()
        look = asyncio.create_task(floor.look())
        await asyncio.sleep(dice.uniform(0, reach))
        with suppress(Problem):
            await floor.culler.extend(ALICE, by="user:alice")
            outcomes["kept"] += 1
            reach *= 1.5
            await look
            assert await hub.is_ready("alice")
            # it works, so that the next click counts again
            floor.measure("alice", Meter(value=50.0))
            await floor.pass_idle(MINUTE)
            continue
        outcomes["too late"] += 1
        reach /= 1.5
        await look
        await hub.wait_absent("alice", within=10)
        assert (await hub.start_server("alice", GPU)).status == 201
        await floor.wait_seen()
    assert outcomes["kept"] > RACES / 5
    assert outcomes["too late"] > RACES / 5


async def test_as_many_are_stopped_at_once_as_was_said(
    start_service: StartService,
    stub: PrometheusStub,
    hub: Hub,
    teams: dict[str, Team],
    place: Place,
) -> None:
    users = [f"user-{number}" for number in range(5)]
    answer = await hub.call("POST", "/users", {"usernames": users})
    assert answer.status == 201, answer
    assert (await hub.call("POST", "/groups/flight/users", {"users": users})).status == 200
    for user in users:
        assert (await hub.start_server(user, GPU)).status == 201
    floor = await start_floor(start_service, stub, hub, teams["flight"], concurrency=2)
    for user in users:
        floor.idle(user)
    await floor.look()
    for later in (56 * MINUTE, 11 * MINUTE):
        floor.running.wall.ahead += later
        for user in users:
            await floor.tell_again(user)
        place.node.stop_seconds = 0.3
        look = asyncio.create_task(floor.look())
        most = 0
        while not look.done():
            people = (await hub.call("GET", "/users")).body
            servers = [each for person in people for each in person["servers"].values()]
            most = max(most, sum(server["pending"] == "stop" for server in servers))
        await look
    place.node.stop_seconds = 0.0
    assert most == 2
    assert (await floor.actions()).count("cull") == 5


async def test_switched_off_it_judges_and_does_nothing(
    start_service: StartService, stub: PrometheusStub, hub: Hub, teams: dict[str, Team]
) -> None:
    assert (await hub.start_server("alice", GPU)).status == 201
    floor = await start_floor(start_service, stub, hub, teams["flight"], enabled=False)
    floor.idle()
    await floor.look()
    await floor.pass_idle(2 * HOUR)
    assert floor.culler.round.verdicts[ALICE].decision is Decision.STOP
    assert (await floor.actions(), floor.culler.round.standings) == ([], {})
    assert await hub.is_ready("alice")


async def test_switched_off_for_a_while_it_forgets_no_hold(floor: Floor) -> None:
    await warn(floor)
    await floor.culler.hold(ALICE, by="user:alice", until=floor.now + 7 * HOUR, reason="")
    await floor.restart(enabled=False)
    floor.idle()
    await floor.look()
    assert floor.culler.round.standings[ALICE].ends_at is None
    # and people may hold what the rules will end once they are switched on
    until = floor.now + 6 * HOUR
    await floor.culler.hold(ALICE, by="user:alice", until=until, reason="a training")
    assert floor.culler.round.verdicts[ALICE].cause is Cause.HELD
    await floor.restart()
    floor.idle(since=floor.now - HOUR)
    await floor.pass_idle(2 * HOUR)
    held = floor.culler.round.verdicts[ALICE]
    assert (held.cause, held.until) == (Cause.HELD, until)


@pytest.mark.parametrize("how", ["without a namespace", "unreadable"])
async def test_while_a_team_cannot_be_read_its_servers_keep_what_people_said(
    floor: Floor,
    hub: Hub,
    cluster: Cluster,
    hub_namespace: str,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    floor.idle()
    await floor.look()
    await floor.culler.hold(ALICE, by="user:alice", until=floor.now + 7 * HOUR, reason="")
    teams = floor.running.context.teams
    sheet = teams.get("flight")
    assert sheet
    bad = {
        "without a namespace": replace(sheet, team=replace(sheet.team, namespace="")),
        "unreadable": TeamSheet.from_object(
            {"metadata": {"name": "flight", "uid": sheet.team.uid}, "spec": 7}
        ),
    }[how]
    monkeypatch.setitem(teams._objects, "flight", bad)
    await floor.pass_idle(2 * HOUR)
    (problem,) = floor.culler.problems
    assert problem == "Teams of which nobody knows what they run, so that none of it is judged: 1."
    # names of teams are for the operator
    assert floor.team.namespace not in problem
    assert floor.team.namespace in floor.culler.health()["problems"][0]
    assert floor.culler.round.verdicts[ALICE].cause is Cause.HELD  # of before
    monkeypatch.setitem(teams._objects, "flight", sheet)
    await floor.pass_idle(MINUTE)
    assert floor.culler.round.verdicts[ALICE].cause is Cause.HELD
    assert floor.culler.problems == ()


async def test_what_was_said_of_a_server_goes_once_the_hub_knows_it_no_more(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    floor.idle()
    await floor.look()
    await floor.culler.hold(ALICE, by="user:alice", until=floor.now + 7 * HOUR, reason="")
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    await wait_until(lambda: not floor.culler._pods.list_subjects()[0], within=10)
    with monkeypatch.context() as patched:
        patched.setattr(floor.running.context.hub, "_url", "http://127.0.0.1:9/hub")
        await floor.look()
    assert floor.culler._standings.holds.keys() == {ALICE}
    await floor.look()
    assert floor.culler._standings.list_keys() == set()


async def test_a_look_that_fails_is_told_and_the_next_one_comes(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warn(floor)

    async def fail(*_: object) -> None:
        raise ValueError("something of the third kind")

    with monkeypatch.context() as patched:
        patched.setattr(floor.culler._gatherer, "gather", fail)
        await floor.pass_idle(11 * MINUTE)
    failed = "The last look at all servers failed, so nothing is ended."
    assert floor.culler.problems[0] == failed
    assert "something of the third kind" in floor.culler.health()["problems"][0]
    assert floor.culler.problems[1].startswith("Nobody has looked at the servers since ")
    assert await hub.is_ready("alice")
    await floor.pass_idle(MINUTE)
    assert floor.culler.problems == ()
    await hub.wait_absent("alice", within=10)


async def test_one_server_that_cannot_be_read_or_judged_stops_no_other(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hub.call("POST", "/users/carol")).status in (201, 409)
    assert (await hub.call("POST", "/groups/flight/users", {"users": ["carol"]})).status == 200
    for user in ("bob", "carol"):
        assert (await hub.start_server(user, GPU)).status == 201
        await floor.wait_seen(user)
    view = floor.culler._pods._views[floor.team.namespace]
    pod = view.get(names.server_name("bob", ""))
    assert pod
    monkeypatch.setitem(view._objects, pod.name, replace(pod, started="the day before"))
    floor.idle()
    await floor.look()
    evidence = replace(floor.culler.round.evidence["carol", ""], kernels=7)
    renew = floor.culler._gatherer._renew
    monkeypatch.setattr(
        floor.culler._gatherer,
        "_renew",
        lambda subject, found: evidence if subject.user == "carol" else renew(subject, found),
    )
    await floor.pass_idle(56 * MINUTE)
    assert floor.culler.problems == (
        "Servers that cannot be read, so that they are not judged: 1.",
        "Servers that could not be judged, so that nothing ends them: 1.",
    )
    assert await floor.actions() == ["warn"]
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)


async def test_a_report_of_which_the_hub_does_not_say_whose_it_is_keeps_every_server(
    floor: Floor, hub: Hub
) -> None:
    await warn(floor)
    floor.running.wall.ahead += 11 * MINUTE
    await floor.tell_again()
    sign_in = floor.running.context.sign_in
    server = Token(floor.running.url, hub.find_spawner("alice").api_token)
    asked, sign_in.api_url = sign_in.api_url, "http://127.0.0.1:9/hub/api"
    assert (await server.call("POST", "report", {"volumes": []})).status == 503
    sign_in.api_url = asked
    await floor.look()
    assert await hub.is_ready("alice")
    await floor.pass_idle(MINUTE)
    await hub.wait_absent("alice", within=10)


async def test_one_person_of_whom_the_hub_does_not_tell_keeps_nobody_elses_server(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await hub.start_server("bob", GPU)).status == 201
    await floor.wait_seen("bob")
    for user in ("alice", "bob"):
        floor.idle(user)
    await floor.look()
    read = Person.from_model

    def read_some(model: dict[str, Any]) -> Person:
        if model["name"] == "bob":
            raise ValueError("no such time")
        return read(model)

    monkeypatch.setattr(Person, "from_model", read_some)
    for later in (56 * MINUTE, 11 * MINUTE):
        floor.running.wall.ahead += later
        await floor.tell_again("bob")
        await floor.tell_again("alice")
        await floor.look()
    await hub.wait_absent("alice", within=10)
    assert await hub.is_ready("bob")
    assert floor.culler.problems == (
        "People of whom the hub does not tell, so that their servers stay: 1.",
    )


async def test_a_stop_that_the_hub_did_not_do_is_written_down_as_such_once(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    await warn(floor)

    async def stop(*_: object, **__: object) -> None:
        raise HubRefused("the server is pending")

    with monkeypatch.context() as patched:
        patched.setattr(floor.running.context.hub, "stop", stop)
        await floor.pass_idle(11 * MINUTE)
        await floor.pass_idle(MINUTE)
    assert await floor.actions() == ["warn", "cull", "notice"]
    (told,) = await floor.read("notice")
    assert told[1:] == (
        "service:spectrum",
        "The hub did not stop it: the server is pending. It is asked again while that fits.",
    )
    assert floor.culler.problems == (
        "Servers that the hub did not stop, though their time is over: 1.",
    )
    await floor.pass_idle(MINUTE)
    await hub.wait_absent("alice", within=10)


async def test_the_server_that_is_started_after_an_end_may_be_held_at_once(
    floor: Floor, hub: Hub
) -> None:
    await warn(floor)
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    assert (await hub.start_server("alice", GPU)).status == 201
    await floor.wait_seen()
    await floor.culler.hold(ALICE, by="user:alice", until=floor.now + HOUR, reason="")
    assert floor.culler.round.verdicts[ALICE].cause is Cause.HELD


async def test_looks_go_on_while_servers_are_stopped(floor: Floor, hub: Hub, place: Place) -> None:
    assert (await hub.start_server("bob", GPU)).status == 201
    await floor.wait_seen("bob")
    await warn(floor)
    floor.idle("bob")
    floor.running.wall.ahead += 11 * MINUTE
    await floor.tell_again()
    place.node.stop_seconds = 2.0
    try:
        await floor.culler.look()
        await wait_until(lambda: floor.culler._ends._ending, within=10)
        floor.running.wall.ahead += 45 * MINUTE
        await floor.tell_again("bob")
        await floor.culler.look()
        assert [each[0] for each in await floor.read()] == ["warn", "cull", "warn"]
        assert floor.culler._ends.handled == {ALICE}
        await floor.settle()
    finally:
        place.node.stop_seconds = 0.0
    await hub.wait_absent("alice", within=10)
    assert await hub.is_ready("bob")


async def test_at_the_last_moment_a_server_must_just_have_told_that_nothing_works(
    floor: Floor, hub: Hub
) -> None:
    await warn(floor)
    floor.running.wall.ahead += 11 * MINUTE
    await floor.tell_again()
    floor.running.wall.ahead += 2 * MINUTE
    await floor.look()
    assert await hub.is_ready("alice")
    assert floor.culler.round.standings[ALICE].ends_at is not None
    await floor.tell_again()
    await floor.look()
    await hub.wait_absent("alice", within=10)


async def test_while_a_word_of_anybody_was_lost_what_was_told_before_counts_no_more(
    floor: Floor, hub: Hub
) -> None:
    """The hub did not say whose it was, and it may have been that something works."""
    await warn(floor)
    floor.running.wall.ahead += 11 * MINUTE
    await floor.tell_again()
    floor.running.context.told.missed_at = floor.now
    await floor.look()
    assert await hub.is_ready("alice")
    floor.running.wall.ahead += MINUTE / 6
    await floor.tell_again()
    await floor.look()
    await hub.wait_absent("alice", within=10)


async def test_an_end_that_should_be_long_past_is_told_again_for_its_whole_time(
    floor: Floor, hub: Hub
) -> None:
    """Reports were away for hours; the GPU was measured all the time."""
    await warn(floor)
    floor.running.wall.ahead += 3 * HOUR
    await floor.look()
    assert floor.culler.round.verdicts[ALICE].cause is Cause.UNKNOWN
    await floor.tell_again()
    await floor.look()
    assert await hub.is_ready("alice")
    left = floor.culler.round.standings[ALICE].ends_at - floor.now
    assert 9 * MINUTE < left <= 10 * MINUTE
    await floor.pass_idle(11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    assert await floor.actions() == ["warn", "warn", "cull"]


async def test_idleness_is_known_for_longer_than_it_is_measured(floor: Floor) -> None:
    """An extension, a window of the week or a hold may keep an idle server for days."""
    floor.idle()
    began = floor.now
    held = [replace(rule, idle=100 * HOUR) for rule in floor.culler.round.policy.rules]
    floor.culler._policy = replace(floor.culler.round.policy, rules=tuple(held))
    for _ in range(10):
        # what is measured reaches back two hours, the server itself tells of an hour
        floor.running.wall.ahead += HOUR
        floor.idle(since=floor.now - 1.5 * HOUR)
        await floor.look()
    assert abs(floor.culler.round.verdicts[ALICE].idle_since - began) < HOUR
    await floor.restart()
    floor.culler._policy = replace(floor.culler.round.policy, rules=tuple(held))
    floor.idle(since=floor.now - HOUR)
    await floor.look()
    assert abs(floor.culler.round.verdicts[ALICE].idle_since - began) < HOUR


async def test_gpus_that_are_measured_too_seldom_are_told(floor: Floor) -> None:
    floor.idle()
    floor.stub.counts[UTILISATION] = 4  # within four minutes
    await floor.look()
    sentence = "GPUs are measured too seldom to know that they do nothing."
    assert floor.culler.problems == (sentence,)
    assert floor.culler.health()["problems"] == [
        f"{sentence} Metric utilisation comes every 60 seconds: set metrics.scrapeSeconds to that."
    ]
    floor.stub.counts[UTILISATION] = 8
    await floor.look()
    assert floor.culler.problems == ()
