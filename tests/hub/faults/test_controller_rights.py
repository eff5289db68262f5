"""A controller's whole life with the rights that the chart gives it, and with no others.

It runs as its own account under the chart's roles and policy, on a real kube-apiserver with
kube-controller-manager; at first under an earlier prefix of team namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.control_plane import ControlPlane, control_plane
from spectrum_spawner import names
from tests.hub.account import ADMISSION, install, wait_until_in_force, write_kubeconfig
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, serve_teams
from tests.hub.controller import PATHS, Controller, Teams

HUB = "spectrum"
EARLIER = "teams-"
IMAGENET = {"title": "ImageNet", "path": "/volumes/imagenet", "size": "1Gi", "teams": ["ops"]}
MNIST = {"title": "MNIST", "path": "/volumes/mnist", "size": "1Gi", "teams": []}
STORAGE: dict[str, Any] = {
    "share": {"enabled": True, "size": "2Gi", "storageClass": "rook-cephfs"},
    "cephfs": {
        "driver": "rook-ceph.cephfs.csi.ceph.com",
        "clusterID": "rook-ceph",
        "fsName": "myfs",
        "nodeSecret": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
    },
    "datasets": {"imagenet": IMAGENET},
}


@dataclass(frozen=True)
class Release:
    """A plane with the release's rights installed, and where its controllers write."""

    plane: ControlPlane
    directory: Path

    async def run(self, *, prefix: str = "", storage: dict[str, Any] = STORAGE) -> Controller:
        """A controller under the policy of that prefix and of those datasets."""
        values = {"teamNamespacePrefix": prefix, "storage": {"datasets": storage["datasets"]}}
        install(self.plane, HUB, values)
        async with connect(self.plane) as admin:
            kubeconfig = await write_kubeconfig(self.plane, admin, HUB, self.directory)
        await wait_until_in_force(kubeconfig, HUB, prefix or f"{HUB}-")
        environment = {"KUBECONFIG": str(kubeconfig), "TEAM_NAMESPACE_PREFIX": prefix}
        return Controller(self.plane, HUB, self.directory, storage=storage, environment=environment)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    with control_plane() as plane:
        plane.start_controller_manager()
        asyncio.run(prepare(plane))
        yield Release(plane, tmp_path_factory.mktemp("release"))


async def prepare(plane: ControlPlane) -> None:
    async with connect(plane) as admin:
        await serve_teams(admin)
        await admin.create("/api/v1/namespaces", {"metadata": {"name": HUB}})
        storage_class = {
            "metadata": {"name": "rook-cephfs"},
            "provisioner": "rook-ceph.cephfs.csi.ceph.com",
            "allowVolumeExpansion": True,
        }
        await admin.create("/apis/storage.k8s.io/v1/storageclasses", storage_class)


@pytest_asyncio.fixture
async def admin(release: Release) -> AsyncIterator[Cluster]:
    async with connect(release.plane) as admin:
        yield admin


@pytest.fixture
def teams(admin: Cluster) -> Teams:
    return Teams(admin, HUB)


def claims_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


async def wait_for_storage(teams: Teams, team: str, datasets: list[str]) -> None:
    """Return once a team has the claim of its share, and its servers are offered these datasets."""

    async def is_there() -> bool:
        status = (await teams.get(team)).get("status", {})
        found = (status.get("storage") or {}).get("datasets", [])
        if [dataset["name"] for dataset in found] != datasets:
            return False
        return not await is_gone(teams.cluster, f"{claims_of(status['namespace'])}/share")

    await wait_until(is_there, within=60, what=f"storage of team {team}")


async def is_gone(cluster: Cluster, path: str) -> bool:
    return await cluster.find(path) is None


async def has_mark(cluster: Cluster, path: str, key: str) -> bool:
    return key in (await cluster.get(path))["metadata"]["annotations"]


async def test_a_controller_lives_and_its_teams_move_with_a_changed_prefix(
    release: Release, teams: Teams
) -> None:
    with await release.run(prefix=EARLIER) as controller:
        await controller.wait_until_healthy()
        ready = await teams.create_ready("ops", quota={"pods": 1})
        assert ready["status"]["namespace"] == "teams-ops"
        await wait_for_storage(teams, "ops", ["imagenet"])
        assert controller.stop() == 0
    storage = {**STORAGE, "datasets": {"mnist": MNIST}}
    with await release.run(storage=storage) as controller:
        await controller.wait_until_healthy()
        ready = await teams.create_ready("flight", quota={"pods": 1})
        assert ready["status"]["namespace"] == "spectrum-flight"
        await wait_for_storage(teams, "flight", ["mnist"])
        # the older team stays where it is, with the datasets of now
        await wait_for_storage(teams, "ops", ["mnist"])
        namespaces = ("teams-ops", "spectrum-flight")
        for check in (check_mending, check_growth, check_purges):
            await asyncio.gather(*(check(teams, namespace) for namespace in namespaces))
        assert "is forbidden" not in controller.read_log()
        assert "ValidatingAdmissionPolicy" not in controller.read_log()


async def check_mending(teams: Teams, namespace: str) -> None:
    """What others delete or alter is put back, the role of the hub's binding included."""
    cluster = teams.cluster
    quota = PATHS["ResourceQuota"].format(namespace, names.QUOTA)
    policy = PATHS["NetworkPolicy"].format(namespace, names.POLICY_DENY)
    binding = PATHS["RoleBinding"].format(namespace, names.HUB_ROLE_BINDING)
    of_service = PATHS["RoleBinding"].format(namespace, names.SERVICE_ROLE_BINDING)
    place = f"/api/v1/namespaces/{namespace}"
    wanted = await cluster.get(binding)
    for path in (quota, policy, of_service):
        await cluster.delete(path)
    level = {"pod-security.kubernetes.io/enforce": "privileged"}
    await cluster.patch(place, {"metadata": {"labels": level}})
    await cluster.delete(binding)
    role = {**wanted["roleRef"], "name": "view"}
    metadata = {key: wanted["metadata"][key] for key in ("name", "labels", "annotations")}
    await cluster.create(
        binding.rpartition("/")[0], {**wanted, "metadata": metadata, "roleRef": role}
    )

    async def is_mended() -> bool:
        for path in (quota, policy, of_service):
            if await is_gone(cluster, path):
                return False
        live = await cluster.find(binding)
        labels = (await cluster.get(place))["metadata"]["labels"]
        level = labels["pod-security.kubernetes.io/enforce"]
        return live is not None and (live["roleRef"], level) == (wanted["roleRef"], "restricted")

    await wait_until(is_mended, within=15, what="mending")


async def check_growth(teams: Teams, namespace: str) -> None:
    """A share that is bound gets the size that its Team asks for."""
    share = f"{claims_of(namespace)}/share"
    claim = await teams.cluster.get(share)
    volume = {
        "metadata": {"name": f"pv-{namespace}"},
        "spec": {
            "accessModes": claim["spec"]["accessModes"],
            "capacity": {"storage": "2Gi"},
            "claimRef": {key: claim["metadata"][key] for key in ("namespace", "name", "uid")},
            "csi": {"driver": "rook-ceph.cephfs.csi.ceph.com", "volumeHandle": namespace},
            "storageClassName": "rook-cephfs",
        },
    }
    await teams.cluster.create("/api/v1/persistentvolumes", volume)
    team = namespace.partition("-")[2]
    size = {"spec": {"storage": {"share": {"size": "3Gi"}}}}
    await teams.cluster.patch(teams.path(team), size)

    async def has_grown() -> bool:
        live = await teams.cluster.get(share)
        return live["spec"]["resources"]["requests"] == {"storage": "3Gi"}

    await wait_until(has_grown, within=15, what="growth")


async def check_purges(teams: Teams, namespace: str) -> None:
    """A claim goes by its name while its team lives; without its team the namespace, and all."""
    cluster, team = teams.cluster, namespace.partition("-")[2]
    place, share = f"/api/v1/namespaces/{namespace}", f"{claims_of(namespace)}/share"
    before = (await cluster.get(share))["metadata"]["uid"]
    purge = {"metadata": {"annotations": {names.ANNOTATION_PURGE: "share"}}}
    await cluster.patch(f"{share}?fieldManager=kubectl-annotate", purge)

    async def is_new() -> bool:
        live = await cluster.find(share)
        return live is not None and live["metadata"]["uid"] != before

    await wait_until(is_new, within=20, what="the purge of a share")
    await teams.delete(team)
    orphaned = names.ANNOTATION_ORPHANED_AT
    await wait_until(lambda: has_mark(cluster, place, orphaned), within=15, what="the mark")
    await cluster.patch(place, {"metadata": {"annotations": {names.ANNOTATION_PURGE: namespace}}})
    await wait_until(lambda: is_gone(cluster, place), within=40, what="the purge")
    volume = f"/api/v1/persistentvolumes/{names.dataset_volume(namespace, 'mnist')}"
    await wait_until(lambda: is_gone(cluster, volume), within=40, what="the volume's end")


async def test_kubernetes_finds_nothing_to_say_of_the_policy(
    release: Release, admin: Cluster
) -> None:
    await release.run()
    path = f"{ADMISSION}/validatingadmissionpolicies/{HUB}-controller"

    async def find_status() -> dict[str, Any] | None:
        """What the check of types said, once it is about the policy as it is."""
        policy = await admin.get(path)
        status = policy.get("status") or {}
        observed = status.get("observedGeneration") == policy["metadata"]["generation"]
        return status if observed and "typeChecking" in status else None

    status = await wait_until(find_status, within=20, what="the check")
    assert status["typeChecking"] == {}
