"""What servers live through, and what a person is told, when the cluster misbehaves."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from spectrum_spawner import names
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.views import Views
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, crash, fail_to_pull, find_no_room
from tests.hub.spawners import FLIGHT, OPS, OPS_GPU, make_spectrum
from tests.hub.team import Team, admit_hub, revoke_hub

MakeTeam = Callable[..., Awaitable[Team]]


async def test_a_server_counts_as_running_until_its_team_was_listed(
    hub: Hub, flight: Team, fault_proxy: FaultProxy, cluster: Cluster, clock: Clock
) -> None:
    await hub.start_server("alice")
    await hub.kill()
    mend = fault_proxy.refuse(lambda call: call.is_list(flight.pods), status=500, times=None)
    with clock.hurry(20):
        await hub.start()
        assert await hub.find_spawner("alice").poll() is None
        await cluster.delete(flight.find_pod("alice"), {"gracePeriodSeconds": 0})
        await asyncio.sleep(60)
        assert await hub.find_spawner("alice").poll() is None
    mend()
    await wait_until(lambda: _has_ended(hub, "alice"), within=10)


async def test_a_failed_list_of_one_team_touches_no_other(
    hub: Hub, flight: Team, ops: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    await hub.start_server("alice")
    await hub.start_server("bob", OPS)
    await hub.kill()
    fault_proxy.refuse(lambda call: call.is_list(flight.pods), status=500, times=None)
    with clock.hurry(10):
        await hub.start()
        await wait_until(lambda: hub.is_ready("bob"), within=10)
        assert (await hub.stop_server("bob")).status in (202, 204)
        await hub.wait_absent("bob", within=20)
        assert await hub.find_spawner("alice").poll() is None
    assert fault_proxy.count(lambda call: call.is_delete(ops.pods)) == 1


async def test_rights_revoked_for_one_team_stop_no_server_and_heal(
    hub: Hub,
    flight: Team,
    ops: Team,
    fault_proxy: FaultProxy,
    cluster: Cluster,
    clock: Clock,
    hub_namespace: str,
) -> None:
    await hub.start_server("alice")
    await revoke_hub(cluster, flight)
    view = Views.shared(hub_namespace).pods(flight.namespace)

    def is_refused() -> bool:
        fault_proxy.cut_watches()  # again, until the API server has heard of the change
        return "403" in view.error

    await wait_until(is_refused, within=60)
    with clock.hurry(30):
        await asyncio.sleep(40)
    assert await hub.find_spawner("alice").poll() is None
    assert (await hub.start_server("bob", OPS)).status == 201
    with clock.hurry(5):
        assert (await hub.start_server("bob", FLIGHT, "second")).status in range(400, 600)
    await admit_hub(cluster, flight, hub_namespace)
    await cluster.delete(flight.find_pod("alice"), {"gracePeriodSeconds": 0})
    with clock.hurry(10):
        await wait_until(lambda: _has_ended(hub, "alice"), within=60)
        assert (await hub.start_server("bob", FLIGHT, "second")).status == 201


async def test_a_foreign_pod_of_the_same_name_is_refused_and_left_alone(
    hub: Hub, flight: Team, cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    made = await _read_stopped_pod(hub, cluster, flight)
    before = await _create_pod_like(
        cluster, flight, made, {names.ANNOTATION_USER: "alice-with-the-same-hash"}
    )
    fault_proxy.calls.clear()
    answer = await hub.start_server("alice")
    assert answer.status in range(400, 500)
    _check_sentence(answer.message)
    assert fault_proxy.count(lambda call: call.is_delete(flight.pods)) == 0
    after = await cluster.get(flight.find_pod("alice"))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after["metadata"]


async def test_a_forgotten_pod_of_the_same_server_is_ended_gracefully(
    hub: Hub, flight: Team, cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    made = await _read_stopped_pod(hub, cluster, flight)
    forgotten = await _create_pod_like(
        cluster, flight, made, {names.ANNOTATION_START_ID: "an-earlier-start"}
    )
    fault_proxy.calls.clear()
    assert (await hub.start_server("alice")).status == 201
    deletes = [call for call in fault_proxy.writes if call.is_delete(flight.pods)]
    assert len(deletes) == 1
    assert deletes[0].grace != 0
    pod = await cluster.get(flight.find_pod("alice"))
    assert pod["metadata"]["uid"] != forgotten["metadata"]["uid"]


async def test_a_full_quota_is_one_sentence_and_leaves_no_pod(
    hub: Hub, make_team: MakeTeam, cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    ops = await make_team("ops", quota={"pods": "1"})
    assert (await hub.start_server("bob", OPS)).status == 201
    before = await cluster.list(ops.pods)
    fault_proxy.calls.clear()
    answer = await hub.start_server("bob", OPS, "second")
    assert answer.status in range(400, 500)
    _check_sentence(answer.message)
    assert "1" in answer.message
    assert await cluster.list(ops.pods) == before
    assert fault_proxy.count(lambda call: call.is_create(ops.pods)) <= 3
    assert hub.failures == 0


async def test_of_two_starts_for_the_last_gpu_one_is_told_who_was_quicker(
    hub: Hub, make_team: MakeTeam, cluster: Cluster
) -> None:
    ops = await make_team("ops", quota={"requests.nvidia.com/gpu": "1"})
    answers = await asyncio.gather(
        hub.start_server("bob", OPS_GPU), hub.start_server("admin", OPS_GPU)
    )
    won, lost = sorted(answers, key=lambda answer: answer.status)
    assert (won.status, lost.status) == (201, 409)
    (pod,) = await cluster.list(ops.pods)
    winner = pod["metadata"]["annotations"][names.ANNOTATION_USER]
    assert re.fullmatch(
        rf"Team ops has 1 of 1 GPU in use \({winner}: gpu-1 since \d\d:\d\d UTC\)\. "
        r"Stop one, or request more\.",
        lost.message,
    )
    assert hub.failures == 0


async def test_a_late_service_account_is_waited_for(hub: Hub, ops: Team, cluster: Cluster) -> None:
    accounts = f"/api/v1/namespaces/{ops.namespace}/serviceaccounts"
    await cluster.delete(f"{accounts}/{names.SERVER_SERVICE_ACCOUNT}")
    start = asyncio.create_task(hub.start_server("bob", OPS))
    await asyncio.sleep(1)
    await cluster.create(accounts, {"metadata": {"name": names.SERVER_SERVICE_ACCOUNT}})
    assert (await start).status == 201


async def test_an_image_that_cannot_be_pulled_is_named_within_30_seconds(
    hub: Hub, flight: Team, node: NodeStub, cluster: Cluster, clock: Clock
) -> None:
    node.play = fail_to_pull
    hub.answer_after(10)
    with clock.hurry(10):
        answer = await hub.start_server("alice")
        assert answer.status == 202
        await asyncio.sleep(20)
        await hub.wait_absent("alice", within=10)
    message = hub.read_failure("alice")
    _check_sentence(message)
    assert "image" in message
    assert await cluster.list(flight.pods) == []
    assert hub.failures == 0


async def test_a_start_without_room_waits_says_so_and_can_be_cancelled(
    hub: Hub, flight: Team, node: NodeStub, cluster: Cluster, clock: Clock, hub_namespace: str
) -> None:
    await _publish_gpus(hub, cluster, hub_namespace, total=4, free=0)
    node.play = find_no_room
    hub.answer_after(10)
    with clock.hurry(10):
        assert (await hub.start_server("alice", {**FLIGHT, "profile": "gpu-1"})).status == 202
    with clock.hurry(50):
        await asyncio.sleep(60)
    with clock.hurry(10):
        told = await hub.read_progress("alice")
        assert told[-1] == "Waiting for a GPU: 0 of 4 GPUs are free"
        server = await hub.find_server("alice")
        assert server is not None
        assert server["pending"] == "spawn"
        await hub.stop_server("alice")
        await hub.wait_absent("alice", within=20)
    assert await cluster.find(flight.find_pod("alice")) is None


async def test_a_profile_that_no_cluster_of_this_size_can_hold_is_refused_at_once(
    hub: Hub, cluster: Cluster, fault_proxy: FaultProxy, hub_namespace: str
) -> None:
    await _publish_gpus(hub, cluster, hub_namespace, total=0, free=0)
    fault_proxy.calls.clear()
    answer = await hub.start_server("alice", {**FLIGHT, "profile": "gpu-1"})
    assert answer.status in range(400, 500)
    _check_sentence(answer.message)
    assert "the cluster has 0" in answer.message
    assert fault_proxy.writes == []


async def test_a_start_that_finds_no_room_in_time_says_why_and_leaves_no_pod(
    hub: Hub, flight: Team, node: NodeStub, cluster: Cluster, clock: Clock
) -> None:
    node.play = find_no_room
    hub.answer_after(10)
    with clock.hurry(50):
        assert (await hub.start_server("alice")).status == 202
        await asyncio.sleep(290)
        await hub.wait_absent("alice", within=30)
    message = hub.read_failure("alice")
    _check_sentence(message)
    assert "Insufficient nvidia.com/gpu" in message
    assert await cluster.list(flight.pods) == []
    assert hub.failures == 0


async def test_a_server_that_ran_out_of_memory_says_so(
    hub: Hub,
    flight: Team,
    node: NodeStub,
    cluster: Cluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await hub.start_server("alice")
    await node.end(await cluster.get(flight.find_pod("alice")), "OOMKilled", 137)
    await hub.wait_absent("alice", within=5)
    assert "it used more memory than its profile allows (OOMKilled), exit code 137" in caplog.text
    assert "User alice server stopped, with exit code: 137" in caplog.text


async def test_a_busy_api_server_delays_a_start_and_fails_none(
    hub: Hub, flight: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    mend = fault_proxy.refuse(
        lambda call: call.is_create(flight.pods), status=429, times=None, retry_after=5
    )
    with clock.hurry(10):
        start = asyncio.create_task(hub.start_server("alice"))
        await asyncio.sleep(30)
        mend()
        assert (await start).status in (201, 202)
        await wait_until(lambda: hub.is_ready("alice"), within=20)
    assert fault_proxy.count(lambda call: call.is_create(flight.pods)) <= 9


async def test_two_homes_that_meet_on_the_quotas_counter_are_both_made(
    hub: Hub, flight: Team, fault_proxy: FaultProxy, cluster: Cluster
) -> None:
    claims = f"/api/v1/namespaces/{flight.namespace}/persistentvolumeclaims"
    fault_proxy.refuse(lambda call: call.is_create(claims), status=409, times=2)
    assert (await hub.start_server("alice")).status == 201
    assert [claim["metadata"]["name"] for claim in await cluster.list(claims)] == [
        names.home_claim("alice")
    ]


async def test_a_conflict_about_another_pod_is_no_proof_that_this_one_is_gone(
    hub: Hub, flight: Team, fault_proxy: FaultProxy, cluster: Cluster
) -> None:
    await hub.start_server("alice")
    fault_proxy.refuse(lambda call: call.is_delete(flight.pods), status=409)
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    assert await cluster.list(flight.pods) == []


async def test_a_start_has_failed_only_once_its_pod_is_gone(
    start_hub: Callable[..., Awaitable[Hub]],
    flight: Team,
    hub_namespace: str,
    node: NodeStub,
    fault_proxy: FaultProxy,
    cluster: Cluster,
    clock: Clock,
) -> None:
    setup = make_spectrum(hub_namespace)
    setup.config.Spawner.start_timeout = 30
    hub = await start_hub(setup)
    node.play = crash
    mend = fault_proxy.refuse(lambda call: call.is_delete(flight.pods), status=500, times=None)
    with clock.hurry(10):
        # 201 says that it waits no more for the start: what fails is being ended by then
        assert (await hub.start_server("alice")).status in (201, 202)
        await asyncio.sleep(30)
        assert await hub.find_server("alice") is not None
        mend()
        await asyncio.sleep(10)
        await hub.wait_absent("alice", within=10)
    assert await cluster.list(flight.pods) == []
    assert "Your server ended while it was starting" in hub.read_failure("alice")


async def test_a_failed_start_whose_container_will_not_end_still_says_why(
    start_hub: Callable[..., Awaitable[Hub]],
    flight: Team,
    hub_namespace: str,
    node: NodeStub,
    cluster: Cluster,
    clock: Clock,
) -> None:
    setup = make_spectrum(hub_namespace)
    setup.config.Spawner.start_timeout = 40
    hub = await start_hub(setup)
    hub.answer_after(10)
    node.play, node.stop_seconds = fail_to_pull, 40
    with clock.hurry(10):
        assert (await hub.start_server("alice")).status == 202
        await asyncio.sleep(35)
        assert len(await cluster.list(flight.pods)) == 1
        await asyncio.sleep(20)
        await hub.wait_absent("alice", within=30)
    assert "its image cannot be pulled" in hub.read_failure("alice")
    assert await cluster.list(flight.pods) == []
    assert hub.failures == 0


async def test_a_namespace_that_is_purged_ends_its_servers_and_is_forgotten(
    hub: Hub,
    ops: Team,
    fault_proxy: FaultProxy,
    cluster: Cluster,
    clock: Clock,
    hub_namespace: str,
) -> None:
    await hub.start_server("bob", OPS)
    await cluster.delete(f"{find_teams(hub_namespace)}/ops")
    await revoke_hub(cluster, ops)
    await cluster.delete(ops.find_pod("bob"), {"gracePeriodSeconds": 0})
    await hub.wait_absent("bob", within=10)
    fault_proxy.cut_watches()
    await asyncio.sleep(1)
    fault_proxy.calls.clear()
    with clock.hurry(30):
        await asyncio.sleep(90)
    assert fault_proxy.count(lambda call: call.path == ops.pods) == 0


async def _read_stopped_pod(hub: Hub, cluster: Cluster, team: Team) -> dict[str, Any]:
    """The pod of alice's server as it was while it ran; the server has stopped since."""
    await hub.start_server("alice")
    made = await cluster.get(team.find_pod("alice"))
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    return made


async def _create_pod_like(
    cluster: Cluster, team: Team, pod: dict[str, Any], annotations: dict[str, str]
) -> dict[str, Any]:
    meta = pod["metadata"]
    copy = {
        "name": meta["name"],
        "labels": meta["labels"],
        "annotations": {**meta["annotations"], **annotations},
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    made = await cluster.create(team.pods, {"metadata": copy, "spec": spec})
    await wait_until(lambda: _runs(cluster, team.find_pod("alice")), within=10)
    return made


async def _runs(cluster: Cluster, path: str) -> bool:
    return (await cluster.get(path))["status"]["phase"] == "Running"


async def _has_ended(hub: Hub, user: str) -> bool:
    server = await hub.find_server(user)
    return server is None or await hub.find_spawner(user).poll() is not None


async def _publish_gpus(
    hub: Hub, cluster: Cluster, hub_namespace: str, *, total: int, free: int
) -> None:
    await hub.start_server("bob")  # from the first start on the hub has views
    gpus = GPUs(resource="nvidia.com/gpu", product="", total=total, free=free)
    data = {names.INVENTORY_KEY: Inventory(gpus=(gpus,)).to_json()}
    path = f"/api/v1/namespaces/{hub_namespace}/configmaps"
    await cluster.create(path, {"metadata": {"name": names.INVENTORY}, "data": data})
    await wait_until(
        lambda: Views.shared(hub_namespace).inventory.known, within=10, what="the inventory"
    )


def _check_sentence(message: str) -> None:
    assert message.strip() == message
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 500
