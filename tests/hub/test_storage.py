"""What servers mount, and what people are told when a volume is in the way."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest_asyncio

from spectrum_spawner import names
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, run
from tests.hub.spawners import FLIGHT, make_spectrum
from tests.hub.team import Team
from tests.hub.volumes import find_claims, list_claims, offer_storage, set_unschedulable

MakeTeam = Callable[..., Awaitable[Team]]
StartHub = Callable[..., Awaitable[Hub]]

EXP1 = {**FLIGHT, "scratch": "exp1"}
DISK = names.scratch_claim("alice", "exp1")


@pytest_asyncio.fixture
async def hub(start_hub: StartHub, flight: Team, cluster: Cluster, hub_namespace: str) -> Hub:
    """A hub, and a team that is offered a share, scratch disks and a dataset."""
    await offer_storage(cluster, hub_namespace, "flight")
    return await start_hub(make_spectrum(hub_namespace))


async def stop(hub: Hub, user: str = "alice", server: str = "") -> None:
    await hub.stop_server(user, server)
    await hub.wait_absent(user, server, within=10)


async def test_a_server_mounts_all_that_its_team_has(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    assert (await hub.start_server("alice", EXP1)).status == 201
    # the namespace admits it: pod security `restricted` is enforced there
    spec = (await cluster.get(flight.find_pod("alice")))["spec"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"][:4]]
    assert claims == [names.home_claim("alice"), "share", DISK, "dataset-imagenet"]
    assert [container["name"] for container in spec["initContainers"]] == ["share"]
    made = await list_claims(cluster, flight)
    assert sorted(made) == [names.home_claim("alice"), DISK]
    assert (
        made[DISK]
        | {
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "20Gi"}},
            "storageClassName": "rook-ceph-block",
        }
        == made[DISK]
    )
    assert hub.read_options("alice") == {**EXP1, "image": "tensorflow"}


async def test_claims_are_their_owners_and_outlive_servers_and_people(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    assert (await hub.start_server("alice", EXP1, "first")).status == 201
    await stop(hub, server="first")
    await hub.call("DELETE", "/users/alice/servers/first", {"remove": True})
    assert (await hub.start_server("bob", EXP1)).status == 201
    assert (await hub.start_server("alice", EXP1, "second")).status == 201
    await stop(hub, "bob")
    assert (await hub.call("DELETE", "/users/bob")).status == 204
    assert sorted(await list_claims(cluster, flight)) == sorted(
        [
            *(names.home_claim("alice"), names.home_claim("bob")),
            *(DISK, names.scratch_claim("bob", "exp1")),
        ]
    )


async def test_with_all_claims_there_a_start_asks_once_for_them(
    hub: Hub, flight: Team, fault_proxy: FaultProxy
) -> None:
    assert (await hub.start_server("alice", EXP1)).status == 201
    await stop(hub)
    fault_proxy.calls.clear()
    assert (await hub.start_server("alice", EXP1)).status == 201
    await stop(hub)
    path = find_claims(flight)
    asked = [call for call in fault_proxy.calls if call.path.startswith(path)]
    assert [(call.method, call.path) for call in asked] == [("GET", path)]


async def test_a_disk_in_use_is_refused_before_anything_is_made(
    hub: Hub, flight: Team, cluster: Cluster, fault_proxy: FaultProxy
) -> None:
    assert (await hub.start_server("alice", EXP1, "first")).status == 201
    before = await cluster.list_everything()
    fault_proxy.calls.clear()
    answer = await hub.start_server("alice", EXP1)
    assert (answer.status, answer.message) == (
        409,
        "Your scratch disk “exp1” is in use by your server “first”, and only one server at a time "
        "can use it: stop that one, or start this one with another disk or with none.",
    )
    assert (fault_proxy.writes, hub.failures) == ([], 0)
    assert await cluster.list_everything() == before
    assert (await hub.start_server("alice", {**FLIGHT, "scratch": "exp2"})).status == 201


async def hold_disks(node: NodeStub, pod: dict[str, Any]) -> None:
    """The first server runs; the scheduler keeps others from its disk."""
    if pod["metadata"]["annotations"][names.ANNOTATION_SERVER] == "first":
        return await run(node, pod)
    message = (
        "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name "
        "and ReadWriteOncePod access mode."
    )
    await set_unschedulable(node, pod, message)


async def test_of_two_servers_that_start_at_once_with_a_disk_one_is_refused(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub, fault_proxy: FaultProxy
) -> None:
    # both answers are waited for, however long a busy machine takes
    hub.app.tornado_application.settings["slow_spawn_timeout"] = 60
    assert (await hub.start_server("alice", FLIGHT)).status == 201  # the home is there
    await stop(hub)
    node.play = hold_disks
    fault_proxy.silence_watches()  # so that the hub does not see either in time
    starts = [
        asyncio.create_task(hub.start_server("alice", EXP1, name)) for name in ("first", "second")
    ]
    await wait_until(lambda: has_pods(cluster, flight, 2), within=10)
    fault_proxy.cut_watches()
    first, second = await asyncio.gather(*starts)
    assert (first.status, second.status) == (201, 409)
    assert "exp1” is in use by your server “first”" in second.message
    pods = [pod["metadata"]["name"] for pod in await cluster.list(flight.pods)]
    assert pods == [names.server_name("alice", "first")]


async def has_pods(cluster: Cluster, team: Team, count: int) -> bool:
    return len(await cluster.list(team.pods)) == count


async def test_a_disk_that_the_quota_leaves_no_room_for_is_named(
    start_hub: StartHub, make_team: MakeTeam, cluster: Cluster, hub_namespace: str
) -> None:
    flight = await make_team("flight", quota={"persistentvolumeclaims": "1"})
    await offer_storage(cluster, hub_namespace, "flight")
    hub = await start_hub(make_spectrum(hub_namespace))
    answer = await hub.start_server("alice", EXP1)
    assert (answer.status, answer.message) == (
        409,
        "There is no room for your scratch disk “exp1” (20Gi of rook-ceph-block): the storage "
        "quota of team flight is used up, 1 of 1 volumes in use, 1 more needed. Ask a cluster "
        "administrator for more.",
    )
    # the home was there first, and is used however full the quota is
    assert list(await list_claims(cluster, flight)) == [names.home_claim("alice")]
    assert (await hub.start_server("alice", FLIGHT)).status == 201
