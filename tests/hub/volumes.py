"""What a team's controller, provisioner and scheduler do about volumes, done by hand."""

from typing import Any

from spectrum_spawner import names
from tests.hub.cluster import Cluster, find_pods, find_teams
from tests.hub.node import NodeStub
from tests.hub.team import Team

STORAGE = {
    "share": {"claim": "share", "phase": "Bound", "prepared": False},
    "scratch": {"size": "20Gi", "storageClass": "rook-ceph-block"},
    "datasets": [{"name": "imagenet", "title": "ImageNet", "claim": "dataset-imagenet"}],
}


async def offer_storage(cluster: Cluster, hub_namespace: str, team: str, **changes: Any) -> None:
    """Offer a team all of STORAGE but for `changes`, as its controller does by the Team's status.

    What is None there is not offered.
    """
    path = f"{find_teams(hub_namespace)}/{team}/status"
    await cluster.patch(path, {"status": {"storage": {**STORAGE, **changes}}})


def find_claims(team: Team) -> str:
    """Path of the claims of the team's namespace."""
    return f"/api/v1/namespaces/{team.namespace}/persistentvolumeclaims"


async def list_claims(cluster: Cluster, team: Team) -> dict[str, dict[str, Any]]:
    """The spec of each claim by its name."""
    return {c["metadata"]["name"]: c["spec"] for c in await cluster.list(find_claims(team))}


async def create_share(cluster: Cluster, team: Team, *, volume: str = "") -> None:
    """The claim of STORAGE's share, bound to a volume or ("") not yet."""
    await _create_common(cluster, team, "share", names.COMPONENT_SHARE, volume)


async def create_dataset(cluster: Cluster, team: Team, *, volume: str) -> None:
    """The claim of STORAGE's dataset, bound to a volume."""
    await _create_common(cluster, team, "dataset-imagenet", names.COMPONENT_DATASET, volume)


async def _create_common(
    cluster: Cluster, team: Team, name: str, component: str, volume: str
) -> None:
    labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: component}
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "50Gi"}},
        "storageClassName": "rook-cephfs",
        "volumeName": volume,
    }
    manifest = {"metadata": {"name": name, "labels": labels}, "spec": spec}
    await cluster.create(find_claims(team), manifest)
    if volume:
        path = f"{find_claims(team)}/{name}/status"
        await cluster.patch(path, {"status": {"phase": "Bound"}})


async def tell_event(
    cluster: Cluster, team: Team, about: dict[str, str], reason: str, message: str
) -> None:
    """An event about an object, such as provisioners and kubelets tell."""
    event = {
        "metadata": {"generateName": f"{about['name']}."},
        "involvedObject": {"apiVersion": "v1", "namespace": team.namespace, **about},
        "type": "Warning",
        "reason": reason,
        "message": message,
    }
    await cluster.create(f"/api/v1/namespaces/{team.namespace}/events", event)


async def set_unschedulable(node: NodeStub, pod: dict[str, Any], message: str) -> None:
    """The scheduler finds no node, and says why."""
    metadata = pod["metadata"]
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    path = f"{find_pods(metadata['namespace'])}/{metadata['name']}/status"
    await node.cluster.patch(path, {"status": {"conditions": [{**condition, "message": message}]}})
