"""What the team controller does for storage, against a real kube-apiserver.

kube-controller-manager binds claims, counts quotas and protects what is in use. Of a storage
driver there is only what it writes: volumes, capacities, and how far it got.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.control_plane import ControlPlane, control_plane
from spectrum_spawner import names, storage
from spectrum_spawner.controller.reconcile import Reconciler
from spectrum_spawner.controller.storage_settings import (
    CephFSSettings,
    DatasetSettings,
    StorageSettings,
    VolumeSettings,
)
from spectrum_spawner.owner import Owner
from tests.hub.clock import wait_until
from tests.hub.cluster import ApiError, Cluster, connect, serve_teams
from tests.hub.controller import Controller, Teams, running_reconciler
from tests.hub.metrics import read_writes

HUB = "spectrum"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
STORAGE = {
    "home": {"size": "1Gi", "storageClass": "rook-cephfs"},
    "share": {"enabled": True, "size": "2Gi", "storageClass": "rook-cephfs"},
    "scratch": {"enabled": True, "size": "1Gi", "storageClass": "rook-ceph-block"},
    "cephfs": {
        "driver": "rook-ceph.cephfs.csi.ceph.com",
        "clusterID": "rook-ceph",
        "fsName": "myfs",
        "nodeSecret": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
    },
    "datasets": {
        "imagenet": {
            "title": "ImageNet",
            "path": "/volumes/datasets/imagenet",
            "size": "150Gi",
            "teams": ["readers"],
        }
    },
}
QUOTA_KEY = "rook-cephfs.storageclass.storage.k8s.io/requests.storage"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with control_plane() as plane:
        plane.start_controller_manager()
        asyncio.run(prepare(plane))
        yield plane


async def prepare(plane: ControlPlane) -> None:
    """Teams, a hub's namespace, and classes as Rook names them; `fixed` lets nothing grow."""
    async with connect(plane) as admin:
        await serve_teams(admin)
        for namespace in (HUB, "alone"):
            await admin.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for name in ("rook-cephfs", "rook-ceph-block", "fixed"):
            await create_class(admin, name, expandable=name != "fixed")


async def create_class(
    admin: Cluster, name: str, *, expandable: bool = True, waits: bool = False
) -> None:
    """`waits`: its claims get their volumes when a pod is to mount them."""
    manifest = {
        "metadata": {"name": name},
        "provisioner": "rook-ceph.cephfs.csi.ceph.com",
        "allowVolumeExpansion": expandable,
        "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate",
    }
    await admin.create(CLASSES, manifest)


@pytest.fixture(scope="module")
def controller(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    directory = tmp_path_factory.mktemp("controller")
    with Controller(plane, HUB, directory, storage=STORAGE) as controller:
        asyncio.run(controller.wait_until_healthy())
        yield controller


@pytest_asyncio.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with connect(plane) as admin:
        yield admin


@pytest.fixture
def teams(admin: Cluster, controller: Controller) -> Teams:
    return Teams(admin, HUB)


@pytest.fixture
def alone(admin: Cluster) -> Teams:
    """Teams of a hub that has no controller."""
    return Teams(admin, "alone")


# What people and drivers do.


def claims_of(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"


async def make_home(
    teams: Teams, team: str, user: str, *, size: str = "1Gi", storage_class: str = "rook-cephfs"
) -> str:
    """A home as the hub makes it, with the volume that a driver would give it; its path."""
    owner = Owner(hub=teams.settings.hub_namespace, team=team, user=user)
    manifest = storage.make_home_claim(owner, team_uid="", size=size, storage_class=storage_class)
    namespace = teams.namespace(team)
    await teams.cluster.create(claims_of(namespace), manifest)
    path = f"{claims_of(namespace)}/{manifest['metadata']['name']}"
    await give_volume(teams.cluster, path)
    return path


async def give_volume(cluster: Cluster, path: str) -> None:
    """Do for a claim what a provisioner does, and wait until it is bound."""
    claim = await cluster.get(path)
    metadata, spec = claim["metadata"], claim["spec"]
    name = f"pv-{metadata['uid']}"
    source = {"driver": "rook-ceph.cephfs.csi.ceph.com", "volumeHandle": name}
    volume = {
        "metadata": {"name": name},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": {key: metadata[key] for key in ("namespace", "name", "uid")},
            "csi": source,
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": spec["storageClassName"],
        },
    }
    await cluster.create(VOLUMES, volume)
    await wait_until(lambda: is_bound(cluster, path), within=20, what="binding")


async def is_bound(cluster: Cluster, path: str) -> bool:
    claim = await cluster.find(path)
    return claim is not None and claim["status"]["phase"] == "Bound"


async def is_gone(cluster: Cluster, path: str) -> bool:
    return await cluster.find(path) is None


async def give_capacity(cluster: Cluster, path: str) -> None:
    """Tell, as a driver does, that a claim has what it asks for."""
    claim = await cluster.get(path)
    capacity = claim["spec"]["resources"]["requests"]
    await cluster.patch(f"{path}/status", {"status": {"capacity": capacity}})


async def size_of(cluster: Cluster, path: str) -> str:
    return (await cluster.get(path))["spec"]["resources"]["requests"]["storage"]


async def wait_for_size(cluster: Cluster, path: str, size: str) -> None:
    async def has_size() -> bool:
        return await size_of(cluster, path) == size

    await wait_until(has_size, within=10, what=f"a size of {size}")


async def set_size(teams: Teams, team: str, kind: str, size: str) -> None:
    """Have a team's Team ask for another size, as an administrator does."""
    changes = {"spec": {"storage": {kind: {"size": size}}}}
    await teams.cluster.patch(teams.path(team), changes)


async def wait_for_storage(teams: Teams, team: str, reason: str) -> dict[str, Any]:
    """The Storage condition of a Team once it has that reason."""

    async def find() -> dict[str, Any] | None:
        condition = await find_condition(teams, team)
        return condition if condition["reason"] == reason else None

    return await wait_until(find, within=15, what=f"storage {reason} of team {team}")


async def find_condition(teams: Teams, team: str) -> dict[str, Any]:
    found = await teams.get(team)
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "Storage"), {"reason": ""})


async def wait_for_status(teams: Teams, team: str, expected: dict[str, Any]) -> None:
    """Wait until `status.storage` has exactly these parts beside the scratch disks on offer.

    Nothing is withheld from servers then.
    """

    async def is_so() -> bool:
        found = dict((await teams.get(team))["status"].get("storage") or {})
        found.pop("scratch", None)
        return found == expected

    await wait_until(is_so, within=15, what=f"status of team {team}")


def make_pod(
    team: str, name: str, claim: str, *, node: str = "", prepares: bool = False
) -> dict[str, Any]:
    """A server's pod that mounts one claim; it passes `restricted`."""
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {"image": "busybox", "securityContext": security}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    spec: dict[str, Any] = {
        "containers": [{**container, "name": "notebook"}],
        "volumes": [volume],
    }
    if prepares:
        spec["initContainers"] = [{**container, "name": names.SHARE_CONTAINER}]
    if node:
        spec["nodeName"] = node
    metadata = {
        "name": name,
        "labels": {names.LABEL_COMPONENT: names.COMPONENT_SERVER},
        "annotations": {names.ANNOTATION_HUB: HUB, names.ANNOTATION_TEAM: team},
    }
    return {"metadata": metadata, "spec": spec}


async def start_pod(teams: Teams, team: str, manifest: dict[str, Any]) -> str:
    """Create a pod once its namespace is ready for one; its path."""
    path = f"/api/v1/namespaces/{teams.namespace(team)}/pods"

    async def is_made() -> bool:
        try:
            await teams.cluster.create(path, manifest)
        except ApiError as error:
            if error.status != 403:
                raise
            return False
        return True

    await wait_until(is_made, within=15, what="a pod")
    return f"{path}/{manifest['metadata']['name']}"


async def stop_pod(teams: Teams, path: str) -> None:
    await teams.cluster.delete(path, {"gracePeriodSeconds": 0})


async def purge(teams: Teams, path: str, value: str, *, by: str = "kubectl-annotate") -> None:
    mark = {"metadata": {"annotations": {names.ANNOTATION_PURGE: value}}}
    await teams.cluster.patch(f"{path}?fieldManager={by}", mark)


# The share.


async def test_servers_start_without_a_share_until_it_has_its_volume(teams: Teams) -> None:
    ready = await teams.create_ready("flight")
    pending = await wait_for_storage(teams, "flight", "Pending")
    assert pending["status"] == "False"
    assert "describe persistentvolumeclaim share" in pending["message"]
    assert ready["status"]["storage"] == {
        "scratch": {"size": "1Gi", "storageClass": "rook-ceph-block"},
        "withheld": [{"kind": "share", "name": "", "why": pending["message"]}],
    }
    await give_volume(teams.cluster, f"{claims_of('spectrum-flight')}/share")
    await wait_for_storage(teams, "flight", "Provided")
    share = {"claim": "share", "size": "2Gi", "phase": "Bound", "prepared": False}
    await wait_for_status(teams, "flight", {"share": share})


async def test_a_share_that_lost_its_volume_is_mounted_no_more(teams: Teams) -> None:
    await teams.create_ready("unlucky")
    path = f"{claims_of('spectrum-unlucky')}/share"
    await give_volume(teams.cluster, path)
    share = {"claim": "share", "size": "2Gi", "phase": "Bound", "prepared": False}
    await wait_for_status(teams, "unlucky", {"share": share})
    volume = (await teams.cluster.get(path))["spec"]["volumeName"]
    await teams.cluster.delete(f"{VOLUMES}/{volume}")
    # only of what is deleted already: Kubernetes would set it again
    await teams.cluster.patch(f"{VOLUMES}/{volume}", {"metadata": {"finalizers": None}})
    lost = await wait_for_storage(teams, "unlucky", "Lost")
    assert lost["message"] == "share has lost the volume behind."
    why = {"kind": "share", "name": "", "why": lost["message"]}
    await wait_for_status(teams, "unlucky", {"withheld": [why]})


async def test_a_share_whose_volume_waits_for_a_server_is_mounted(teams: Teams) -> None:
    await create_class(teams.cluster, "patient", waits=True)
    await teams.create_ready("first-come", storage={"share": {"storageClass": "patient"}})
    waiting = await wait_for_storage(teams, "first-come", "Waiting")
    assert (waiting["status"], waiting["message"]) == (
        "True",
        "share gets its volume when the first server mounts it.",
    )
    share = {"claim": "share", "size": "2Gi", "phase": "Pending", "prepared": False}
    await wait_for_status(teams, "first-come", {"share": share})


async def test_classes_that_do_not_exist_are_named_for_the_hub_until_they_do(
    teams: Teams,
) -> None:
    storage = {
        "home": {"storageClass": "typing"},
        "share": {"enabled": False},
        "scratch": {"storageClass": "error"},
    }
    await teams.create_ready("mistyped", storage=storage)
    missing = await wait_for_storage(teams, "mistyped", "ClassMissing")
    assert missing["message"] == (
        "There is no StorageClass typing, which each home asks for. "
        "There is no StorageClass error, which each scratch disk asks for."
    )
    await wait_for_status(teams, "mistyped", {"missingClasses": ["error", "typing"]})
    for name in ("error", "typing"):
        await create_class(teams.cluster, name)
    await wait_for_status(teams, "mistyped", {})


async def test_a_team_has_its_own_idea_of_its_share(teams: Teams) -> None:
    await teams.create_ready("own", storage={"share": {"size": "3Gi"}})
    claim = await teams.cluster.get(f"{claims_of('spectrum-own')}/share")
    assert claim["spec"]["resources"]["requests"] == {"storage": "3Gi"}
    none = await teams.create_ready("none", storage={"share": {"enabled": False}})
    assert "share" not in none["status"]["storage"]
    assert await teams.cluster.list(claims_of("spectrum-none")) == []


async def test_a_share_waits_for_its_class_and_no_longer(teams: Teams) -> None:
    team = await teams.create_ready("typo", storage={"share": {"storageClass": "late"}})
    assert "share" not in team["status"]["storage"]
    missing = await wait_for_storage(teams, "typo", "ClassMissing")
    assert missing["message"] == "There is no StorageClass late, which share asks for."
    await create_class(teams.cluster, "late")
    await wait_for_storage(teams, "typo", "Pending")
    claim = await teams.cluster.get(f"{claims_of('spectrum-typo')}/share")
    assert claim["spec"]["storageClassName"] == "late"


async def test_a_foreign_claim_named_share_is_said_and_untouched(teams: Teams) -> None:
    await teams.create_ready("taken", storage={"share": {"enabled": False}})
    marks = {"labels": {names.LABEL_HUB: HUB, names.LABEL_COMPONENT: names.COMPONENT_SHARE}}
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "rook-cephfs",
    }
    foreign = {"metadata": {"name": "share", **marks}, "spec": spec}
    path = claims_of("spectrum-taken")
    made = await teams.cluster.create(path, foreign)
    changes = {"spec": {"storage": {"share": {"enabled": True}}}}
    await teams.cluster.patch(teams.path("taken"), changes)
    taken = await wait_for_storage(teams, "taken", "Taken")
    assert "A claim share is there that says it belongs to somebody else" in taken["message"]
    live = await teams.cluster.get(f"{path}/share")
    assert live["metadata"]["labels"] == made["metadata"]["labels"]
    assert "annotations" not in live["metadata"] or not any(
        key.startswith("spectrum.dev/") for key in live["metadata"]["annotations"]
    )


async def test_a_share_is_known_by_its_owner_marks_whatever_its_name_and_class(
    teams: Teams,
) -> None:
    await teams.create_ready("restored")
    path = claims_of("spectrum-restored")
    share = await teams.cluster.get(f"{path}/share")
    copy = {
        "metadata": {
            "name": "share-of-last-week",
            "labels": share["metadata"]["labels"],
            "annotations": {
                key: value
                for key, value in share["metadata"]["annotations"].items()
                if key.startswith("spectrum.dev/owner")
            },
        },
        "spec": {**share["spec"], "storageClassName": "fixed"},
    }
    await teams.cluster.create(path, copy)
    await teams.cluster.delete(f"{path}/share")

    await give_volume(teams.cluster, f"{path}/share-of-last-week")

    async def is_taken_over() -> bool:
        team = await teams.get("restored")
        share = team["status"]["storage"].get("share") or {}
        return share.get("claim") == "share-of-last-week"

    await wait_until(is_taken_over, within=10, what="the other claim")
    await wait_until(lambda: is_gone(teams.cluster, f"{path}/share"), within=10, what="the end")
    await teams.cluster.patch(teams.path("restored"), {"spec": {"quota": {"pods": 9}}})
    await teams.wait_for("restored", "Reconciled")
    assert [c["metadata"]["name"] for c in await teams.cluster.list(path)] == ["share-of-last-week"]


async def test_a_share_that_lost_our_label_is_still_ours(teams: Teams) -> None:
    await teams.create_ready("unlabelled")
    path = f"{claims_of('spectrum-unlabelled')}/share"
    before = await teams.cluster.get(path)
    await teams.cluster.patch(path, {"metadata": {"labels": {names.LABEL_HUB: None}}})

    async def is_labelled() -> bool:
        return (await teams.cluster.get(path))["metadata"]["labels"].get(names.LABEL_HUB) == HUB

    await wait_until(is_labelled, within=10, what="our label")
    assert (await teams.cluster.get(path))["metadata"]["uid"] == before["metadata"]["uid"]


async def test_a_share_beyond_the_quota_is_said_and_made_once_there_is_room(teams: Teams) -> None:
    await teams.create_ready("poor", storage={"share": {"enabled": False}})
    await set_quota(teams, "poor", "1Gi")
    changes = {"spec": {"storage": {"share": {"enabled": True}}}}
    await teams.cluster.patch(teams.path("poor"), changes)
    full = await wait_for_storage(teams, "poor", "QuotaExceeded")
    assert "share is not made" in full["message"]
    assert (await teams.get("poor"))["status"]["conditions"][0]["reason"] == "Reconciled"
    await set_quota(teams, "poor", "2Gi")
    await wait_for_storage(teams, "poor", "Pending")


async def set_quota(teams: Teams, team: str, size: str) -> None:
    """Limit what a team's claims of one class may ask for, and wait until that counts."""
    quota = {"spec": {"quota": {"storage": {"rook-cephfs": {"size": size}}}}}
    await teams.cluster.patch(teams.path(team), quota)
    path = f"/api/v1/namespaces/{teams.namespace(team)}/resourcequotas/spectrum"

    async def counts() -> bool:
        found = await teams.cluster.find(path)
        return ((found or {}).get("status") or {}).get("hard", {}).get(QUOTA_KEY) == size

    await wait_until(counts, within=15, what="the quota")


async def test_a_share_is_prepared_once_a_pod_has_said_so(teams: Teams) -> None:
    await teams.create_ready("first")
    path = f"{claims_of('spectrum-first')}/share"
    await give_volume(teams.cluster, path)
    pod = await start_pod(
        teams, "first", make_pod("first", "jupyter-alice", "share", node="node", prepares=True)
    )

    container = {
        "name": names.SHARE_CONTAINER,
        "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}},
        "ready": True,
        "image": "busybox",
        "imageID": "",
        "restartCount": 0,
    }
    ended = {"phase": "Pending", "initContainerStatuses": [container]}
    await teams.cluster.patch(f"{pod}/status", {"status": ended})
    share = {"claim": "share", "size": "2Gi", "phase": "Bound", "prepared": True}
    await wait_for_status(teams, "first", {"share": share})
    claim = await teams.cluster.get(path)
    assert claim["metadata"]["annotations"][names.ANNOTATION_PREPARED] == "true"


# Growth.


async def test_claims_grow_with_what_their_team_asks_for_and_it_is_written_down(
    teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("growing", storage={"home": {"size": "1Gi"}})
    share = f"{claims_of('spectrum-growing')}/share"
    await give_volume(teams.cluster, share)
    alice = await make_home(teams, "growing", "alice")
    bob = await make_home(teams, "growing", "bob", size="4Gi")
    dave = await make_home(teams, "growing", "dave", storage_class="fixed")
    await set_size(teams, "growing", "home", "3Gi")
    await wait_for_size(teams.cluster, alice, "3Gi")
    condition = await wait_for_storage(teams, "growing", "NotExpandable")
    assert condition["status"] == "False"

    async def says(*sentences: str) -> bool:
        found = (await find_condition(teams, "growing"))["message"]
        return found == " ".join(sentences)

    fixed = "StorageClass fixed does not let volumes grow to 3Gi: home-dave stays as it is."
    larger = "1 home is larger than 3Gi and stays as it is."
    growing = "home-alice is growing to 3Gi."
    await wait_until(lambda: says(fixed, growing, larger), within=10, what="all sentences")
    await give_capacity(teams.cluster, alice)
    await wait_until(lambda: says(fixed, larger), within=10, what="the end of growth")
    sizes = [await size_of(teams.cluster, path) for path in (alice, bob, dave, share)]
    assert sizes == ["3Gi", "4Gi", "1Gi", "2Gi"]
    grown = "Other sizes for claims of team growing: home-alice from 1Gi to 3Gi."
    assert controller.read_reasons("growing").count(("controller", grown)) == 1


async def test_claims_grow_as_far_as_the_quota_goes(teams: Teams) -> None:
    await teams.create_ready("bounded", storage={"share": {"enabled": False}})
    paths = [await make_home(teams, "bounded", user) for user in ("alice", "bob")]
    await set_quota(teams, "bounded", "3Gi")
    await set_size(teams, "bounded", "home", "2Gi")
    full = await wait_for_storage(teams, "bounded", "QuotaExceeded")
    assert "home-bob stays as it is." in full["message"]
    assert [await size_of(teams.cluster, path) for path in paths] == ["2Gi", "1Gi"]
    await set_quota(teams, "bounded", "4Gi")
    await wait_for_size(teams.cluster, paths[1], "2Gi")


async def test_a_size_that_the_storage_cannot_give_is_taken_back(teams: Teams) -> None:
    await teams.create_ready("mistaken", storage={"share": {"enabled": False}})
    home = await make_home(teams, "mistaken", "alice")
    await set_size(teams, "mistaken", "home", "900Ti")
    await wait_for_size(teams.cluster, home, "900Ti")
    resizing = {"allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"}}
    await teams.cluster.patch(f"{home}/status", {"status": resizing})
    said = await wait_for_storage(teams, "mistaken", "Infeasible")
    assert said["message"] == (
        "The storage cannot give home-alice the size that was asked for, 900Ti."
    )
    # a Team's size cannot be lowered, but taken out of it
    await teams.cluster.patch(teams.path("mistaken"), {"spec": {"storage": {"home": None}}})
    least = str(2**30 + 2**20)  # the release's 1Gi is there already
    await wait_for_size(teams.cluster, home, least)


# Datasets.


async def test_a_dataset_is_bound_for_the_teams_that_may_read_it(teams: Teams) -> None:
    await teams.create_ready("others", storage={"share": {"enabled": False}})
    await teams.create_ready("readers", storage={"share": {"enabled": False}})
    entry = {
        "name": "imagenet",
        "title": "ImageNet",
        "claim": "dataset-imagenet",
        "size": "150Gi",
    }
    await wait_for_status(teams, "readers", {"datasets": [entry]})
    claim = f"{claims_of('spectrum-readers')}/dataset-imagenet"
    await wait_until(lambda: is_bound(teams.cluster, claim), within=15, what="binding")
    volume = await teams.cluster.get(f"{VOLUMES}/spectrum-readers-dataset-imagenet")
    assert volume["spec"]["claimRef"]["uid"] == (await teams.cluster.get(claim))["metadata"]["uid"]
    assert await teams.cluster.list(claims_of("spectrum-others")) == []


MNIST = DatasetSettings(name="mnist", title="MNIST", path="/volumes/datasets/mnist", size="1Gi")
CEPHFS = CephFSSettings(
    driver="rook-ceph.cephfs.csi.ceph.com",
    cluster_id="rook-ceph",
    fs_name="myfs",
    secret_name="rook-csi-cephfs-node",
    secret_namespace="rook-ceph",
)


async def look(
    plane: ControlPlane, directory: Path, team: str, *datasets: DatasetSettings
) -> float | None:
    """One look at a team of a release with these datasets."""
    home = VolumeSettings(enabled=True, storage_class="rook-cephfs")
    settings = StorageSettings(home=home, cephfs=CEPHFS, datasets=datasets)
    async with running_reconciler(plane, "alone", directory, storage=settings) as reconciler:
        return await reconciler.reconcile(team)


async def test_a_dataset_that_is_wanted_no_more_goes_when_nobody_mounts_it(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("flight")
    await look(plane, tmp_path, "flight", MNIST)
    claim = f"{claims_of('alone-flight')}/dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    pod = await start_pod(alone, "flight", make_pod("flight", "jupyter-alice", "dataset-mnist"))
    pause = await look(plane, tmp_path, "flight")
    status = (await alone.get("flight"))["status"]
    assert pause is not None
    assert "storage" not in status
    assert status["conditions"][-1]["message"] == (
        "Dataset mnist is offered no more: it goes once no pod mounts it; now it is mounted by "
        "jupyter-alice."
    )
    assert await alone.cluster.find(claim) is not None
    await stop_pod(alone, pod)
    await look(plane, tmp_path, "flight")
    await wait_until(lambda: is_gone(alone.cluster, claim), within=15, what="the claim's end")
    volume = f"{VOLUMES}/alone-flight-dataset-mnist"
    await wait_until(lambda: is_gone(alone.cluster, volume), within=15, what="the volume's end")


async def test_a_dataset_that_moves_gets_another_volume(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("moving")
    await look(plane, tmp_path, "moving", MNIST)
    claim = f"{claims_of('alone-moving')}/dataset-mnist"
    volume = f"{VOLUMES}/alone-moving-dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    # somebody else's idea of what becomes of the data; nothing of it may happen
    policy = {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}
    before = await alone.cluster.patch(volume, policy)
    moved = replace(MNIST, path="/volumes/datasets/mnist-2")

    async def has_moved() -> bool:
        await look(plane, tmp_path, "moving", moved)
        live = await alone.cluster.find(volume)
        source = (live or before)["spec"]["csi"]
        return source["volumeAttributes"]["rootPath"] == moved.path

    await wait_until(has_moved, within=30, what="the other volume")
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    live = await alone.cluster.get(volume)
    assert live["spec"]["csi"]["volumeHandle"] != before["spec"]["csi"]["volumeHandle"]
    assert live["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


async def test_a_dataset_that_moves_is_offered_as_it_was_while_a_server_has_it(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("busy")
    await look(plane, tmp_path, "busy", MNIST)
    claim = f"{claims_of('alone-busy')}/dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    pod = await start_pod(alone, "busy", make_pod("busy", "jupyter-alice", "dataset-mnist"))
    moved = replace(MNIST, path="/volumes/datasets/mnist-2", title="MNIST 2")
    await look(plane, tmp_path, "busy", moved)
    status = (await alone.get("busy"))["status"]
    entry = {"name": "mnist", "title": "MNIST 2", "claim": "dataset-mnist", "size": "1Gi"}
    assert (status["storage"], status["conditions"][-1]["message"]) == (
        {"datasets": [entry]},
        "Dataset mnist is offered as it was: it changes once no pod mounts it; now it is mounted "
        "by jupyter-alice.",
    )
    await stop_pod(alone, pod)
    await look(plane, tmp_path, "busy", moved)
    await wait_until(lambda: is_gone(alone.cluster, claim), within=15, what="the claim's end")


async def test_a_dataset_that_is_said_to_be_larger_is_the_same(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("larger")
    await look(plane, tmp_path, "larger", MNIST)
    claim = f"{claims_of('alone-larger')}/dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    before = await alone.cluster.get(claim)
    await look(plane, tmp_path, "larger", replace(MNIST, size="2Gi"))
    entry = {"name": "mnist", "title": "MNIST", "claim": "dataset-mnist", "size": "2Gi"}
    assert (await alone.get("larger"))["status"]["storage"] == {"datasets": [entry]}
    assert await alone.cluster.get(claim) == before


async def test_a_claim_that_only_looks_like_one_of_a_dataset_is_said_and_untouched(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("lookalike")
    await look(plane, tmp_path, "lookalike", MNIST)
    path = claims_of("alone-lookalike")
    claim = await alone.cluster.get(f"{path}/dataset-mnist")
    mine = {
        "name": "dataset-iris",
        "labels": claim["metadata"]["labels"],
        "annotations": {
            **{
                key: value
                for key, value in claim["metadata"]["annotations"].items()
                if "dev/" in key
            },
            names.ANNOTATION_VOLUME: "iris",
        },
    }
    holding = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "rook-cephfs",
    }
    await alone.cluster.create(path, {"metadata": mine, "spec": holding})
    await look(plane, tmp_path, "lookalike", MNIST, replace(MNIST, name="iris"))
    message = (await alone.get("lookalike"))["status"]["conditions"][-1]["message"]
    assert "Dataset iris is not offered, since dataset-iris is there and is not" in message
    await look(plane, tmp_path, "lookalike")
    assert "deletionTimestamp" not in (await alone.cluster.get(f"{path}/dataset-iris"))["metadata"]


async def test_a_dataset_whose_claim_somebody_deleted_comes_back(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("mended")
    await look(plane, tmp_path, "mended", MNIST)
    claim = f"{claims_of('alone-mended')}/dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    before = (await alone.cluster.get(claim))["metadata"]["uid"]
    await alone.cluster.delete(claim)

    async def is_back() -> bool:
        await look(plane, tmp_path, "mended", MNIST)
        live = await alone.cluster.find(claim)
        return live is not None and live["metadata"]["uid"] != before

    await wait_until(is_back, within=30, what="another claim")
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")


async def test_volumes_of_datasets_go_with_the_namespace_of_a_team_that_is_gone(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    await alone.create("over")
    await look(plane, tmp_path, "over", MNIST)
    claim, volume = f"{claims_of('alone-over')}/dataset-mnist", "alone-over-dataset-mnist"
    await wait_until(lambda: is_bound(alone.cluster, claim), within=15, what="binding")
    await alone.delete("over")
    await look(plane, tmp_path, "over", MNIST)
    assert await is_bound(alone.cluster, claim)
    await alone.annotate("over", purge="alone-over")
    await look(plane, tmp_path, "over", MNIST)
    namespace = "/api/v1/namespaces/alone-over"
    await wait_until(lambda: is_gone(alone.cluster, namespace), within=30, what="the namespace")

    async def has_gone() -> bool:
        await look(plane, tmp_path, "over", MNIST)
        return await is_gone(alone.cluster, f"{VOLUMES}/{volume}")

    await wait_until(has_gone, within=15, what="the volume's end")


async def test_a_volume_of_somebody_else_is_said_and_untouched(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    source = {"driver": "other.example.org", "volumeHandle": "precious"}
    foreign = {
        "metadata": {"name": "alone-late-dataset-mnist"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": "1Gi"},
            "csi": source,
            "storageClassName": "precious",
        },
    }
    await alone.cluster.create(VOLUMES, foreign)
    await alone.create("late")
    pause = await look(plane, tmp_path, "late", MNIST)
    status = (await alone.get("late"))["status"]
    assert pause is not None
    why = (
        "Dataset mnist is not offered, since alone-late-dataset-mnist is there and is not this "
        "team's; it is not touched."
    )
    assert status["storage"] == {"withheld": [{"kind": "dataset", "name": "mnist", "why": why}]}
    assert why in status["conditions"][-1]["message"]
    await look(plane, tmp_path, "late")
    live = await alone.cluster.get(f"{VOLUMES}/alone-late-dataset-mnist")
    assert (live["spec"]["csi"], live["metadata"].get("labels")) == (source, None)


# Purges, and everything else, which purges nothing.


async def test_a_claim_is_purged_by_its_own_name_once_nothing_mounts_it(
    teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("leaving", storage={"share": {"enabled": False}})
    alice = await make_home(teams, "leaving", "alice")
    bob = await make_home(teams, "leaving", "bob")
    pod = await start_pod(teams, "leaving", make_pod("leaving", "jupyter-alice", "home-alice"))
    await purge(teams, alice, "home-alice", by="kubectl-annotate")
    waiting = await wait_for_storage(teams, "leaving", "Purging")
    assert waiting["message"] == ("home-alice is deleted once it is not mounted by jupyter-alice.")
    assert "deletionTimestamp" not in (await teams.cluster.get(alice))["metadata"]
    await stop_pod(teams, pod)
    # a pod that never ran is not watched; another change of the team asks again at once
    await teams.cluster.patch(teams.path("leaving"), {"spec": {"quota": {"pods": 9}}})
    await wait_until(lambda: is_gone(teams.cluster, alice), within=15, what="the purge")
    assert await teams.cluster.find(bob) is not None
    reason = (
        "Claim home-alice of team leaving, the home of alice, is deleted for good, as its "
        "annotation spectrum.dev/purge asks."
    )
    records = [r for r in controller.read_records("leaving") if r["user"] == "alice"]
    assert [(r["actor"], r["reason"]) for r in records] == [("manager:kubectl-annotate", reason)]


async def test_a_purge_by_another_name_is_said_written_down_and_not_done(
    teams: Teams, controller: Controller
) -> None:
    await teams.create_ready("careful", storage={"share": {"enabled": False}})
    paths = [await make_home(teams, "careful", user) for user in ("alice", "bob")]
    await purge(teams, paths[0], "home-bob")
    refused = await wait_for_storage(teams, "careful", "PurgeRefused")
    assert refused["message"].startswith("home-alice is not deleted: its annotation")
    await teams.cluster.patch(teams.path("careful"), {"spec": {"quota": {"pods": 3}}})
    await teams.wait_for("careful", "Reconciled")
    for path in paths:
        assert "deletionTimestamp" not in (await teams.cluster.get(path))["metadata"]
    told = [r for r in controller.read_records("careful") if "stays" in r["reason"]]
    assert [r["actor"] for r in told] == ["manager:kubectl-annotate"]


async def test_the_claims_of_a_team_that_is_gone_stay_until_one_is_purged(teams: Teams) -> None:
    await teams.create_ready("gone")
    share = f"{claims_of('spectrum-gone')}/share"
    alice = await make_home(teams, "gone", "alice")
    bob = await make_home(teams, "gone", "bob")
    await teams.delete("gone")

    async def is_orphaned() -> bool:
        return "spectrum.dev/orphaned-at" in await teams.annotations("gone")

    await wait_until(is_orphaned, within=10, what="the mark")
    await purge(teams, alice, "home-bob")
    await purge(teams, bob, "home-bob")
    await wait_until(lambda: is_gone(teams.cluster, bob), within=15, what="the purge")
    for path in (share, alice):
        assert "deletionTimestamp" not in (await teams.cluster.get(path))["metadata"]


async def test_a_share_that_is_purged_is_made_anew_and_empty(teams: Teams) -> None:
    await teams.create_ready("anew")
    share = f"{claims_of('spectrum-anew')}/share"
    before = (await teams.cluster.get(share))["metadata"]["uid"]
    await teams.cluster.patch(
        share, {"metadata": {"annotations": {names.ANNOTATION_PREPARED: "true"}}}
    )
    await purge(teams, share, "share")

    async def is_new() -> bool:
        live = await teams.cluster.find(share)
        return live is not None and live["metadata"]["uid"] != before

    await wait_until(is_new, within=15, what="another share")
    await give_volume(teams.cluster, share)
    state = {"claim": "share", "size": "2Gi", "phase": "Bound", "prepared": False}
    await wait_for_status(teams, "anew", {"share": state})


async def test_claims_outlive_what_their_team_asks_for(teams: Teams) -> None:
    await teams.create_ready("changing")
    share = f"{claims_of('spectrum-changing')}/share"
    before = (await teams.cluster.get(share))["metadata"]["uid"]
    changes = {"spec": {"storage": {"share": {"enabled": False, "storageClass": "fixed"}}}}
    await teams.cluster.patch(teams.path("changing"), changes)
    await wait_for_status(teams, "changing", {})
    back = {"spec": {"storage": {"share": {"enabled": True}}}}
    await teams.cluster.patch(teams.path("changing"), back)
    await wait_for_storage(teams, "changing", "Pending")
    live = await teams.cluster.get(share)
    assert (live["metadata"]["uid"], live["spec"]["storageClassName"]) == (before, "rook-cephfs")


# What it costs.


async def test_a_look_at_storage_that_is_as_wanted_writes_nothing(
    plane: ControlPlane, alone: Teams, tmp_path: Path
) -> None:
    offered = replace(
        StorageSettings(cephfs=CEPHFS, datasets=(MNIST,)),
        share=replace(StorageSettings().share, enabled=True, storage_class="rook-cephfs"),
    )
    await alone.create("calm")
    async with running_reconciler(plane, "alone", tmp_path, storage=offered) as reconciler:
        await reconciler.reconcile("calm")
        share, dataset = (
            f"{claims_of('alone-calm')}/{name}" for name in ("share", "dataset-mnist")
        )
        await give_volume(alone.cluster, share)
        await wait_until(lambda: is_bound(alone.cluster, dataset), within=15, what="binding")
        await settle(reconciler, alone, "calm")
        before = await read_writes(alone.cluster)
        await reconciler.reconcile("calm")
        written = await read_writes(alone.cluster) - before
    # kube-controller-manager's own: it says again and again which claims wait
    others = ("leases", "events")
    assert {key: n for key, n in written.items() if not key.endswith(others)} == {}


async def settle(reconciler: Reconciler, teams: Teams, team: str) -> None:
    """Look until a look leaves the Team as it was."""

    async def is_settled() -> bool:
        before = (await teams.get(team))["metadata"]["resourceVersion"]
        await reconciler.reconcile(team)
        return (await teams.get(team))["metadata"]["resourceVersion"] == before

    await wait_until(is_settled, within=20, what="calm")
