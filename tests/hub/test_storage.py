"""What servers mount, and what people are told when a volume is in the way."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
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


async def wait_known(hub: Hub, **fields: Any) -> None:
    """Until the hub knows the team with these fields."""
    views = hub.find_spawner("alice").views

    def is_known() -> bool:
        team = views.teams.get("flight")
        return team is not None and replace(team, **fields) == team

    await wait_until(is_known, within=10, what=str(fields))


async def test_what_servers_cannot_mount_is_left_out_and_said(
    hub: Hub, flight: Team, cluster: Cluster, hub_namespace: str
) -> None:
    withheld = [
        {"kind": "share", "name": "", "why": "share has no volume yet."},
        {"kind": "dataset", "name": "imagenet", "why": "Dataset imagenet is not bound."},
    ]
    await offer_storage(
        cluster, hub_namespace, "flight", share=None, datasets=None, withheld=withheld
    )
    await wait_known(hub, share=None, datasets=())
    assert (await hub.start_server("alice", FLIGHT)).status == 201
    spec = (await cluster.get(flight.find_pod("alice")))["spec"]
    claims = [v["persistentVolumeClaim"]["claimName"] for v in spec["volumes"][:1]]
    assert claims == [names.home_claim("alice")]
    assert "initContainers" not in spec
    told = [step["message"] async for step in hub.find_spawner("alice").progress()]
    assert [sentence for sentence in told if "Starting without" in sentence] == [
        "Starting without the team volume, which is not ready: share has no volume yet.",
        "Starting without dataset “imagenet”, which is not ready: Dataset imagenet is not bound.",
    ]


async def test_nothing_is_made_of_a_class_that_does_not_exist_and_what_there_is_is_used(
    hub: Hub, flight: Team, cluster: Cluster, hub_namespace: str
) -> None:
    async def lack(*classes: str) -> None:
        await offer_storage(cluster, hub_namespace, "flight", missingClasses=list(classes))
        await wait_known(hub, missing_classes=frozenset(classes))

    await lack("", "rook-ceph-block")
    answer = await hub.start_server("alice", FLIGHT)
    assert (answer.status, answer.message) == (
        409,
        "Your home cannot be made: the cluster has no default storage class. Ask a cluster "
        "administrator to set storage.home.storageClass right, in the release's values or in the "
        "Team.",
    )
    assert await list_claims(cluster, flight) == {}
    await lack("rook-ceph-block")
    answer = await hub.start_server("alice", EXP1)
    assert (answer.status, answer.message) == (
        409,
        "Your scratch disk “exp1” cannot be made: storage class “rook-ceph-block” does not exist. "
        "Start your server without a scratch disk, and ask a cluster administrator to set "
        "storage.scratch.storageClass right, in the release's values or in the Team.",
    )
    assert (await list_claims(cluster, flight), hub.failures) == ({}, 0)
    await lack()
    assert (await hub.start_server("alice", EXP1)).status == 201
    await stop(hub)
    await lack("", "rook-ceph-block")
    assert (await hub.start_server("alice", EXP1)).status == 201


async def test_a_disk_of_somebody_else_is_not_said_to_be_ones_own(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    assert (await hub.start_server("bob", FLIGHT)).status == 201
    pod = await cluster.get(flight.find_pod("bob"))
    metadata = {
        "name": "jupyter-dave",
        **{k: pod["metadata"][k] for k in ("labels", "annotations")},
    }
    metadata["annotations"] |= {names.ANNOTATION_USER: "dave"}
    disk = {"name": "scratch", "persistentVolumeClaim": {"claimName": DISK}}
    spec = {**pod["spec"], "nodeName": None, "volumes": [*pod["spec"]["volumes"], disk]}
    await cluster.create(flight.pods, {"metadata": metadata, "spec": spec})
    view = hub.find_spawner("alice").views.pods(flight.namespace)
    await wait_until(lambda: view.get("jupyter-dave"), within=10, what="dave's server")
    assert (await hub.start_server("alice", EXP1)).status == 201


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
