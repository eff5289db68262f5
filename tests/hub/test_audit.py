"""What the audit hears from the hub: who asked for what, and one cause for the end of each pod."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from spectrum_spawner import names
from spectrum_spawner.audit import Record
from spectrum_spawner.trail import LEFT_OVER
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, ServerStub, crash, find_no_room
from tests.hub.spawners import FLIGHT, Setup, make_signed
from tests.hub.team import Team

AT_ONCE = {"gracePeriodSeconds": 0}


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> AsyncIterator[Hub]:
    """A hub that knows who asks; afterwards each start has exactly one end in the audit."""
    hub = await start_hub(make_signed(hub_namespace))
    yield hub
    records = hub.read_audit()
    assert [Record.from_dict(record).as_dict() for record in records] == records
    asked = [r["details"]["start"] for r in records if r["action"] == "start"]
    over = [r["details"]["start"] for r in records if r["id"].endswith("-over")]
    assert [over.count(start) for start in asked] == [1] * len(asked)
    assert len(over) == len(set(over))


@pytest.fixture
def tokens(hub: Hub) -> dict[str, str]:
    return {name: hub.make_token(name) for name in ("alice", "bob", "admin")}


async def start(hub: Hub, token: str, options: dict[str, str] = FLIGHT) -> int:
    """Ask for alice's server; the status of the answer."""
    body = {"user_options": options}
    return (await hub.call("POST", "/users/alice/server", body, token=token)).status


async def stop(hub: Hub, **by: str) -> None:
    """Ask for the end of alice's server, by default as a service, and wait for it."""
    assert (await hub.call("DELETE", "/users/alice/server", **by)).status in (202, 204)
    await hub.wait_absent("alice", within=20)


def tell(hub: Hub) -> list[tuple[str, str, str]]:
    """What there is in the audit about alice's server: action, actor, reason."""
    return [(r["action"], r["actor"], r["reason"]) for r in hub.read_audit()]


STARTED = ("start", "user:alice", "")


async def test_a_start_and_a_stop_say_what_and_whose_it_was(
    hub: Hub, tokens: dict[str, str], flight: Team
) -> None:
    assert await start(hub, tokens["alice"]) == 201
    await stop(hub, token=tokens["alice"])
    asked, stopped = hub.read_audit()
    start_id = asked["details"]["start"]
    common = {"writer": "hub", "actor": "user:alice", "user": "alice", "team": "flight"}
    assert asked == {
        **common,
        "id": f"{start_id}-start",
        "at": asked["at"],
        "action": "start",
        "server": "",
        "reason": "",
        "details": {
            "profile": "cpu-small",
            "image": "tensorflow",
            "namespace": flight.namespace,
            "start": start_id,
        },
    }
    assert stopped == {
        **common,
        "id": f"{start_id}-over",
        "at": stopped["at"],
        "action": "stop",
        "server": "",
        "reason": "alice stopped it.",
        "details": {"start": start_id},
    }


async def test_somebody_elses_start_and_stop_are_theirs(hub: Hub, tokens: dict[str, str]) -> None:
    assert await start(hub, tokens["admin"]) == 201
    await stop(hub, token=tokens["admin"])
    assert await start(hub, tokens["alice"]) == 201
    await stop(hub)
    assert tell(hub) == [
        ("start", "user:admin", ""),
        ("stop", "user:admin", "admin stopped it."),
        STARTED,
        ("stop", "service:test", "Service test stopped it."),
    ]


async def test_a_refused_start_says_what_was_asked_and_answered(
    hub: Hub, tokens: dict[str, str]
) -> None:
    assert await start(hub, tokens["alice"], {"team": "ops", "profile": "x" * 5000}) == 403
    (refused,) = hub.read_audit()
    assert refused | {"id": "", "at": "", "details": {}} == {
        "id": "",
        "at": "",
        "writer": "hub",
        "action": "refuse",
        "actor": "user:alice",
        "user": "alice",
        "team": "ops",
        "server": "",
        "reason": "You are not in a team called “ops”: yours are “flight”.",
        "details": {},
    }
    assert refused["details"]["why"] == "options"
    assert refused["details"]["asked"].startswith('{"team": "ops", "profile": "xxx')
    assert len(refused["details"]["asked"]) == 1000


async def test_a_start_that_failed_says_why(
    hub: Hub, tokens: dict[str, str], node: NodeStub
) -> None:
    node.play = crash
    await start(hub, tokens["alice"])
    await hub.wait_absent("alice", within=20)
    why = "Your server ended while it was starting: Error, exit code 1."
    assert tell(hub) == [STARTED, ("end", "hub", why)]


async def test_a_start_that_is_cancelled_was_stopped(
    hub: Hub, tokens: dict[str, str], node: NodeStub, cluster: Cluster, flight: Team
) -> None:
    node.play = find_no_room
    hub.answer_after(0.1)
    assert await start(hub, tokens["alice"]) == 202
    await wait_until(lambda: cluster.find(flight.find_pod("alice")), within=10, what="the pod")
    await stop(hub, token=tokens["alice"])
    assert tell(hub) == [STARTED, ("stop", "user:alice", "alice cancelled the start.")]


async def test_a_server_that_ran_out_of_memory_ended_by_itself(
    hub: Hub, tokens: dict[str, str], node: NodeStub, cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    await node.end(await cluster.get(flight.find_pod("alice")), "OOMKilled", 137)
    await hub.wait_absent("alice", within=5)
    why = "It used more memory than its profile allows (OOMKilled), exit code 137."
    assert tell(hub) == [STARTED, ("end", "hub", why)]


async def test_a_pod_that_somebody_deleted_was_not_stopped_by_spectrum(
    hub: Hub, tokens: dict[str, str], cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    await cluster.delete(flight.find_pod("alice"))
    await hub.wait_absent("alice", within=10)
    assert tell(hub) == [STARTED, ("end", "hub", "Its pod was deleted, not by Spectrum.")]


async def test_whoever_stops_a_server_whose_pod_is_being_deleted_is_not_the_cause(
    hub: Hub, tokens: dict[str, str], node: NodeStub, cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    node.stop_seconds = 3
    await cluster.delete(flight.find_pod("alice"))
    await wait_until(lambda: hub.find_spawner("alice")._run.pod.is_ending, within=5)
    await stop(hub, token=tokens["alice"])
    assert tell(hub) == [STARTED, ("end", "hub", "Its pod was deleted, not by Spectrum.")]


async def test_a_pod_that_was_evicted_says_by_what(
    hub: Hub, tokens: dict[str, str], cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    path = flight.find_pod("alice")
    pod = await cluster.get(path)
    drained = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    conditions = [*pod["status"]["conditions"], drained]
    await cluster.patch(f"{path}/status", {"status": {"conditions": conditions}})
    await cluster.delete(path)
    await hub.wait_absent("alice", within=10)
    why = "Its pod was evicted: Eviction API: evicting."
    assert tell(hub) == [STARTED, ("end", "hub", why)]


async def test_a_stop_that_outlives_its_hub_is_told_once(
    hub: Hub, tokens: dict[str, str], fault_proxy: FaultProxy, clock: Clock
) -> None:
    await start(hub, tokens["alice"])
    await fault_proxy.go_down()
    asking = asyncio.create_task(hub.call("DELETE", "/users/alice/server", token=tokens["alice"]))
    await wait_until(lambda: len(tell(hub)) == 2, within=10)
    await hub.kill()
    await asyncio.gather(asking, return_exceptions=True)
    await fault_proxy.come_up()
    with clock.hurry(5):
        await hub.start()
        await hub.wait_absent("alice", within=60)
    assert tell(hub) == [STARTED, ("stop", "user:alice", "alice stopped it.")]


async def test_an_end_while_the_hub_was_away_is_told_by_the_next_one(
    hub: Hub, tokens: dict[str, str], cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    await hub.kill()
    await cluster.delete(flight.find_pod("alice"), AT_ONCE)
    await hub.start()
    await hub.wait_absent("alice", within=20)
    assert tell(hub) == [STARTED, ("end", "hub", "Its pod was deleted, not by Spectrum.")]


async def test_a_server_that_stopped_answering_is_the_hubs_to_stop(
    hub: Hub, tokens: dict[str, str], server_stub: ServerStub, clock: Clock
) -> None:
    await start(hub, tokens["alice"])
    await hub.kill()
    await server_stub.go_silent()
    hub.config.Spawner.http_timeout = 1
    with clock.hurry(5):
        await hub.start()
        await hub.wait_absent("alice", within=60)
    assert tell(hub) == [STARTED, ("end", "hub", "It did not answer the hub.")]


async def test_a_pod_that_was_left_over_is_replaced_and_that_is_told(
    hub: Hub, tokens: dict[str, str], cluster: Cluster, flight: Team
) -> None:
    await start(hub, tokens["alice"])
    pod = await cluster.get(flight.find_pod("alice"))
    await stop(hub, token=tokens["alice"])
    meta = {key: pod["metadata"][key] for key in ("name", "labels", "annotations")}
    meta["annotations"][names.ANNOTATION_START_ID] = "an-earlier-start"
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    await cluster.create(flight.pods, {"metadata": meta, "spec": spec})
    assert await start(hub, tokens["alice"]) == 201
    assert tell(hub)[2:] == [STARTED, ("end", "hub", LEFT_OVER)]
    assert hub.read_audit()[-1]["id"] == "an-earlier-start-over"
    await stop(hub, token=tokens["alice"])


@pytest_asyncio.fixture
async def unaudited(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    """A hub that has no place for its records."""
    setup = make_signed(hub_namespace)
    setup.config.SpectrumSpawner.audit_file = "/absent/audit.sqlite"
    return await start_hub(setup)


async def test_nobody_is_kept_from_stopping_by_an_audit_that_fails(
    unaudited: Hub, flight: Team, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    alice = unaudited.make_token("alice")
    assert await start(unaudited, alice) == 201
    await stop(unaudited, token=alice)
    assert await cluster.list(flight.pods) == []
    assert caplog.text.count("audit record not stored") == 2
    assert "alice stopped it." in caplog.text


async def test_nobody_notices_that_the_file_of_the_audit_is_damaged(
    start_hub: Callable[[Setup], Awaitable[Hub]],
    flight: Team,
    hub_namespace: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "audit.sqlite").write_bytes(b"no database" * 1000)
    hub = await start_hub(make_signed(hub_namespace))
    alice = hub.make_token("alice")
    assert await start(hub, alice) == 201
    await stop(hub, token=alice)
    assert tell(hub) == [STARTED, ("stop", "user:alice", "alice stopped it.")]
    assert len([name for name in os.listdir(tmp_path) if ".damaged-" in name]) == 1


async def test_refusals_in_a_loop_are_a_record_a_minute(hub: Hub, tokens: dict[str, str]) -> None:
    for number in range(20):
        assert await start(hub, tokens["alice"], {"team": f"t-{number}"}) == 403
    assert len(tell(hub)) in (1, 2)  # the minute may have ended meanwhile
