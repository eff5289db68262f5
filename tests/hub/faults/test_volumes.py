"""Volumes that are in the way of a start: what people read, and that their data stays."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest_asyncio

from spectrum_spawner import names
from spectrum_spawner.storage_page import find_volumes
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, run
from tests.hub.spawners import FLIGHT, make_spectrum
from tests.hub.team import Team
from tests.hub.volumes import (
    create_dataset,
    create_share,
    find_claims,
    list_claims,
    offer_storage,
    set_unschedulable,
    tell_event,
)

EXP1 = {**FLIGHT, "scratch": "exp1"}
DISK = names.scratch_claim("alice", "exp1")
HOME = names.home_claim("alice")
SILENT = "rpc error: code = DeadlineExceeded desc = context deadline exceeded"


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[..., Awaitable[Hub]], flight: Team, cluster: Cluster, hub_namespace: str
) -> Hub:
    """A hub that gives starts half a minute, and a team that is offered all kinds of volumes."""
    setup = make_spectrum(hub_namespace)
    setup.config.Spawner.start_timeout = 30
    await offer_storage(cluster, hub_namespace, "flight")
    return await start_hub(setup)


async def wait_told(hub: Hub, sentence: str) -> None:
    """Until the progress page of alice's start shows a sentence."""

    async def is_told() -> bool:
        return sentence in await hub.read_progress("alice")

    await wait_until(is_told, within=20, what=sentence)


async def wait_for_volumes(node: NodeStub, pod: dict[str, Any]) -> None:
    """Claims of the pod have no volume yet."""
    await set_unschedulable(node, pod, "pod has unbound immediate PersistentVolumeClaims.")


async def wait_for_mounts(node: NodeStub, pod: dict[str, Any]) -> None:
    """The node has the pod and tries to mount what it needs."""
    await node.bind(pod)
    await node.report(pod, "Pending", {"waiting": {"reason": "ContainerCreating"}})


async def test_a_volume_that_cannot_be_made_is_named_and_what_there_is_is_used_again(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub, clock: Clock
) -> None:
    await create_share(cluster, flight)
    node.play = wait_for_volumes
    start = asyncio.create_task(hub.start_server("alice", EXP1))
    await wait_told(hub, f"Waiting for your home (claim {HOME}): it has not been made yet")
    about = {"kind": "PersistentVolumeClaim", "name": HOME}
    missing = 'storageclass.storage.k8s.io "x" not found'
    await tell_event(cluster, flight, about, "ProvisioningFailed", missing)
    why = f"your home (claim {HOME}): storage class “x” does not exist"
    await wait_told(hub, f"Waiting for {why}")
    with clock.hurry(3):
        await start
        await hub.wait_absent("alice", within=60)
    assert hub.read_failure("alice").partition(" seconds: ")[2] == f"it waited for {why}."
    claims = await list_claims(cluster, flight)
    assert sorted(claims) == sorted([HOME, "share", DISK])
    node.play = run
    assert (await hub.start_server("alice", EXP1)).status == 201
    assert await list_claims(cluster, flight) == claims


async def test_a_volume_that_cannot_be_mounted_is_named_and_a_start_goes_on_when_it_can(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub
) -> None:
    await create_share(cluster, flight, volume="pvc-1")
    node.play = wait_for_mounts
    start = asyncio.create_task(hub.start_server("alice", EXP1))
    pod = await wait_until(lambda: cluster.find(flight.find_pod("alice")), within=10)
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    attached = 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one'
    await tell_event(cluster, flight, about, "FailedAttachVolume", attached)
    share = "the team volume (claim share)"
    await wait_told(hub, f"Waiting for {share}: it is still attached to another node")
    silent = f'MountVolume.MountDevice failed for volume "pvc-1" : {SILENT}'
    await tell_event(cluster, flight, about, "FailedMount", silent)
    await wait_told(hub, f"Waiting for {share}: Ceph does not answer")
    await node.report(pod, "Running", {"running": {}})
    assert (await start).status in (201, 202)
    await wait_until(lambda: hub.is_ready("alice"), within=10)
    # servers that run are left alone, whatever is said of their volumes
    await tell_event(cluster, flight, about, "FailedMount", silent)
    assert await hub.find_spawner("alice").poll() is None


async def test_a_dataset_that_cannot_be_mounted_keeps_nobody_from_starting_again(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub, clock: Clock
) -> None:
    hub.find_spawner("alice").start_timeout = 300  # as in a release
    hub.answer_after(10)
    await create_dataset(cluster, flight, volume="pv-imagenet")
    node.play = wait_for_mounts
    start = asyncio.create_task(hub.start_server("alice", FLIGHT))
    pod = await wait_until(lambda: cluster.find(flight.find_pod("alice")), within=10)
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    gone = "rpc error: code = Internal desc = no such directory in the file system"
    failed = f'MountVolume.MountDevice failed for volume "pv-imagenet" : {gone}'
    await tell_event(cluster, flight, about, "FailedMount", failed)
    reason = "no such directory in the file system"
    await wait_told(hub, f"Waiting for dataset “imagenet” (claim dataset-imagenet): {reason}")
    with clock.hurry(10):
        await start
        await hub.wait_absent("alice", within=60)
    assert hub.read_failure("alice") == (
        f"Dataset “imagenet” (claim dataset-imagenet) cannot be mounted: {reason}. Start your "
        "server again, and for now it starts without that dataset. Ask a cluster administrator to "
        "look at it."
    )
    node.play = run
    assert (await hub.start_server("alice", FLIGHT)).status == 201
    spec = (await cluster.get(flight.find_pod("alice")))["spec"]
    volumes = [volume["name"] for volume in spec["volumes"]]
    assert volumes == ["home", "share", "temporary", "shared-memory"]
    told = [step["message"] async for step in hub.find_spawner("alice").progress()]
    without = "Starting without dataset “imagenet”, which is not ready"
    assert f"{without}: It could not be mounted: {reason}." in told
    shown = (await find_volumes(hub.find_spawner("alice").user))["volumes"]
    assert [(v["state"], v["message"]) for v in shown if v["kind"] == "dataset"] == [
        ("failed", f"It could not be mounted: {reason}. Servers start without it.")
    ]


async def test_however_much_is_said_of_volumes_claims_are_seldom_asked_for(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub, fault_proxy: FaultProxy
) -> None:
    await create_share(cluster, flight, volume="pvc-1")
    node.play = wait_for_mounts
    start = asyncio.create_task(hub.start_server("alice", EXP1))
    pod = await wait_until(lambda: cluster.find(flight.find_pod("alice")), within=10)
    about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    fault_proxy.calls.clear()
    for number in range(20):
        no = f"rpc error: code = Internal desc = no, for the {number:02}th time"
        failed = f'MountVolume.MountDevice failed for volume "pvc-1" : {no}'
        await tell_event(cluster, flight, about, "FailedMount", failed)
    await wait_told(hub, "Waiting for the team volume (claim share): no, for the 19th time")
    asked = [call.path for call in fault_proxy.calls if "persistentvolumeclaim" in call.path]
    # a look is one list of alice's own and one of the team's
    assert set(asked) == {find_claims(flight)}
    assert len(asked) <= 2 * 2
    await node.report(pod, "Running", {"running": {}})
    assert (await start).status in (201, 202)
    await wait_until(lambda: hub.is_ready("alice"), within=10)


async def test_a_file_where_a_volume_goes_is_said(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub
) -> None:
    said = (
        "failed to create containerd task: runc create failed: error mounting "
        '"/var/lib/kubelet/x" to rootfs at "/home/jovyan/scratch": not a directory'
    )

    async def fail_to_mount(node: NodeStub, pod: dict[str, Any]) -> None:
        await node.bind(pod)
        ended = {"reason": "StartError", "exitCode": 128, "message": said}
        await node.report(pod, "Failed", {"terminated": ended})

    node.play = fail_to_mount
    answer = await hub.start_server("alice", EXP1)
    assert (answer.status, answer.message) == (
        409,
        "Your server cannot start: “scratch” in your home is a file, and a volume is to be mounted "
        "there. Start it without a scratch disk and rename it.",
    )
