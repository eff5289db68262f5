"""Volumes of the cluster's Ceph through the CSI drivers, in pods of a namespace of their own."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from local.binaries import GO_SOURCES
from local.ceph import Ceph
from local.ceph_config import BLOCK_POOL, FILE_SYSTEM
from local.cluster import make_ceph
from local.commands import run
from local.csi import CLUSTER_ID, DRIVERS, find_loops, release_mounts
from local.kubectl import Kubectl
from local.paths import find_state
from local.processes import Daemons
from tests.cluster.waiting import wait_until
from tests.storage.outage import start_what_does_not_run
from tests.storage.volumes import (
    BLOCKS,
    CLASSES,
    FILES,
    MIB,
    Volumes,
    read_size,
    try_to,
    volumes_of,
)

NAMESPACE = "spectrum-volumes"
WRITE_AGAIN = "echo room > /data/again && cat /data/again"


@pytest.fixture(scope="module")
def volumes(kubectl: Kubectl, image: str) -> Iterator[Volumes]:
    with volumes_of(kubectl, NAMESPACE, image) as volumes:
        yield volumes


@pytest.fixture(scope="module")
def ceph() -> Ceph:
    return make_ceph(find_state(), Daemons(find_state()))


@pytest.fixture(scope="module")
def both(volumes: Volumes) -> dict[str, str]:
    """A bound claim of each class, by the path at which pods mount it."""
    return volumes.claim_each("both")


def test_the_driver_passes_its_own_tests() -> None:
    sources = GO_SOURCES / "csi"
    assert run(["gofmt", "-l", "."], directory=sources) == ""
    environment = {"CGO_ENABLED": "0", "GOWORK": "off"}
    for words in (["vet", "."], ["test", "."]):
        run(["go", *words], directory=sources, environment=environment)


def test_a_block_volume_is_let_go_of_when_the_cluster_goes_down(tmp_path: Path) -> None:
    image, staged = tmp_path / "csi" / "rbd" / "image", tmp_path / "kubelet" / "staged"
    image.parent.mkdir(parents=True)
    staged.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(300 * MIB)
    device = run(["losetup", "--find", "--show", image]).strip()
    run(["mkfs.xfs", "-q", device])
    run(["mount", device, staged])
    release_mounts(tmp_path)
    assert not os.path.ismount(staged)
    assert find_loops(tmp_path) == []


def test_uid_1000_writes_to_both_classes_and_the_next_pod_reads(
    volumes: Volumes, both: dict[str, str]
) -> None:
    first = volumes.start_pod("first", both, groups=[70002])
    for path in both:
        assert 940 <= read_size(first, path) <= 1024
        first.run("sh", "-c", f"echo kept > {path}/note; chgrp 70002 {path}/note; sync {path}/note")
    volumes.delete_pod("first")
    second = volumes.start_pod("second", both)
    for path in both:
        assert second.run("cat", f"{path}/note") == "kept\n"
        # The kubelet has looked at the root alone: what is in it was not walked.
        assert second.run("stat", "-c", "%g", path, f"{path}/note").split() == ["70001", "70002"]
    volumes.delete_pod("second")


def test_both_classes_grow_under_a_running_pod(volumes: Volumes, both: dict[str, str]) -> None:
    pod = volumes.start_pod("growing", both)
    for path, claim in both.items():
        pod.run("sh", "-c", f"echo grown > {path}/growth")
        volumes.grow(claim, "2Gi")
    for path, claim in both.items():
        # The kubelet looks at a pod's volumes once in half a minute or so.
        wait_until(lambda path=path: read_size(pod, path) > 1900)
        wait_until(
            lambda claim=claim: volumes.get_claim(claim)["status"]["capacity"]["storage"] == "2Gi",
        )
        assert pod.run("cat", f"{path}/growth") == "grown\n"
    volumes.delete_pod("growing")


def test_pods_with_other_uids_share_files(volumes: Volumes) -> None:
    claim = volumes.claim_bound("shared", FILES)
    one = volumes.start_pod("one", {"/data": claim})
    two = volumes.start_pod("two", {"/data": claim}, user=2000)
    one.run("sh", "-c", "umask 002; mkdir /data/team; echo one > /data/team/book")
    two.run("sh", "-c", "umask 002; echo two >> /data/team/book; mv /data/team/book /data/team/b2")
    assert one.run("cat", "/data/team/b2") == "one\ntwo\n"
    assert one.run("stat", "-c", "%u %g", "/data/team/b2") == "1000 70001\n"
    for pod in ("one", "two"):
        volumes.delete_pod(pod)


@pytest.mark.parametrize(
    ("storage_class", "complaint"), [(FILES, "Disk quota exceeded"), (BLOCKS, "No space left")]
)
def test_a_full_volume_takes_no_more(volumes: Volumes, storage_class: str, complaint: str) -> None:
    claim = volumes.claim_bound(f"full-{storage_class}", storage_class, "300Mi")
    pod = volumes.start_pod(f"full-{storage_class}", {"/data": claim})
    assert complaint in try_to(pod, "dd if=/dev/zero of=/data/all bs=1M count=600 conv=fsync")
    # A client of CephFS may write on for what it has not yet sent.
    assert int(pod.run("stat", "-c", "%s", "/data/all")) < 450 * MIB
    pod.run("rm", "/data/all")
    # CephFS takes some seconds to count what a directory holds anew.
    wait_until(lambda: "room" in pod.run("sh", "-c", f"{WRITE_AGAIN} || true"))
    volumes.delete_pod(f"full-{storage_class}")


def test_a_block_volume_is_one_pods_alone(volumes: Volumes) -> None:
    claim = volumes.claim_bound("single", BLOCKS)
    volumes.start_pod("holder", {"/data": claim})
    volumes.create_pod("rival", {"/data": claim})
    volumes.wait_for_event("rival", "ReadWriteOncePod")
    volumes.delete_pod("holder")
    volumes.wait_running("rival")
    volumes.delete_pod("rival")


def test_an_image_that_is_open_elsewhere_is_not_mounted(volumes: Volumes, ceph: Ceph) -> None:
    claim = volumes.claim_bound("open", BLOCKS)
    image = volumes.get_volume(claim)["spec"]["csi"]["volumeAttributes"]["imageName"]
    words = ["rbd", "-c", str(ceph.conf), "watch", f"{BLOCK_POOL}/{image}"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other_node:
        assert other_node.stdout is not None
        assert other_node.stdout.readline()  # it watches
        volumes.create_pod("waiting", {"/data": claim})
        volumes.wait_for_event("waiting", f"image {BLOCK_POOL}/{image} is in use by")
        other_node.communicate(b"\n")
    volumes.wait_running("waiting", 120)
    volumes.delete_pod("waiting")


def test_a_claim_that_cannot_be_met_says_why(volumes: Volumes) -> None:
    volumes.claim("classless", "no-such-class")
    volumes.claim("many-writers", BLOCKS, accessModes=["ReadWriteMany"])
    with _class_like(volumes, BLOCKS, "lost-pool", pool="no-such-pool"):
        volumes.claim("poolless", "lost-pool")
        volumes.wait_for_event("poolless", 'Ceph has no pool "no-such-pool"')
    with _class_like(volumes, FILES, "other-cluster", clusterID="elsewhere"):
        volumes.claim("elsewhere", "other-cluster")
        volumes.wait_for_event("elsewhere", 'no Ceph cluster with clusterID "elsewhere"')
    secret = {"csi.storage.k8s.io/provisioner-secret-name": "no-such-secret"}
    with _class_like(volumes, FILES, "lost-secret", **secret):
        volumes.claim("secretless", "lost-secret")
        volumes.wait_for_event("secretless", 'secrets "no-such-secret" not found')
    volumes.wait_for_event("classless", '"no-such-class" not found')
    volumes.wait_for_event("many-writers", "ReadWriteMany needs CephFS")
    for name in ("classless", "many-writers", "poolless", "elsewhere", "secretless"):
        assert volumes.get_claim(name)["status"]["phase"] == "Pending"


def test_a_directory_of_ceph_is_read_by_many_and_written_by_none(volumes: Volumes) -> None:
    with _static_volume(volumes, "samples", "/volumes/datasets/samples"):
        pods = [
            volumes.start_pod(f"reader-{user}", {"/data": "samples"}, user=user, read_only=True)
            for user in (1000, 2000)
        ]
        for pod in pods:
            assert pod.run("ls", "/data").split() == ["README.md"]
            assert "Read-only file system" in try_to(pod, "touch /data/mine")
            assert pod.run("stat", "-c", "%g", "/data") == "0\n"
            volumes.delete_pod(pod.name)


def test_a_directory_that_is_not_there_is_named(volumes: Volumes) -> None:
    with _static_volume(volumes, "gone", "/volumes/datasets/gone"):
        volumes.create_pod("hopeful", {"/data": "gone"}, read_only=True)
        volumes.wait_for_event("hopeful", "no directory /volumes/datasets/gone in file system myfs")
        volumes.delete_pod("hopeful")


def test_a_driver_that_is_started_again_finds_its_mounts(
    volumes: Volumes, both: dict[str, str]
) -> None:
    pod = volumes.start_pod("before", both)
    Daemons(find_state()).stop("csi-driver")
    start_what_does_not_run()
    for path in both:
        pod.run("sh", "-c", f"echo on > {path}/life; sync {path}/life")
    # What one life of the driver has mounted, another unmounts.
    volumes.delete_pod("before")
    after = volumes.start_pod("after", both)
    for path in both:
        assert after.run("cat", f"{path}/life") == "on\n"
    volumes.delete_pod("after")


def test_a_deleted_claim_leaves_nothing_in_ceph(volumes: Volumes, ceph: Ceph) -> None:
    made = set()
    for storage_class in CLASSES:
        claim = volumes.claim_bound(f"short-{storage_class}", storage_class)
        # myfs:csi-vol-…, replicapool:csi-vol-…
        made.add(volumes.get_volume(claim)["spec"]["csi"]["volumeHandle"].split(":")[1])
    assert made <= _list_volumes(ceph)
    for storage_class in CLASSES:
        volumes("delete", "pvc", f"short-{storage_class}")
    wait_until(lambda: not made & _list_volumes(ceph))


def _list_volumes(ceph: Ceph) -> set[str]:
    files = json.loads(ceph.ceph("fs", "subvolume", "ls", FILE_SYSTEM, "csi"))
    blocks = run(["rbd", "-c", ceph.conf, "ls", BLOCK_POOL]).split()
    return {one["name"] for one in files} | set(blocks)


@contextmanager
def _class_like(volumes: Volumes, known: str, name: str, **parameters: str) -> Iterator[None]:
    """Within this context there is one more class, with other parameters."""
    storage_class = volumes.kubectl.get("storageclass", known)
    storage_class["metadata"] = {"name": name}
    storage_class["parameters"] |= parameters
    volumes.create(storage_class)
    try:
        yield
    finally:
        volumes.kubectl("delete", "storageclass", name)


@contextmanager
def _static_volume(volumes: Volumes, name: str, path: str) -> Iterator[None]:
    """Within this context there is a claim bound to a directory of CephFS."""
    csi = {
        "driver": DRIVERS["cephfs"],
        "volumeHandle": f"{NAMESPACE}-{name}",
        "nodeStageSecretRef": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
        "volumeAttributes": {
            "clusterID": CLUSTER_ID,
            "fsName": FILE_SYSTEM,
            "staticVolume": "true",
            "rootPath": path,
        },
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{NAMESPACE}-{name}"},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "capacity": {"storage": "1Gi"},
            "claimRef": {"namespace": NAMESPACE, "name": name},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "csi": csi,
        },
    }
    volumes.create(volume)
    try:
        volumes.claim(name, "", accessModes=["ReadOnlyMany"], volumeName=f"{NAMESPACE}-{name}")
        volumes.wait_bound(name)
        yield
    finally:
        volumes("delete", "pvc", name, "--ignore-not-found")
        volumes.kubectl("delete", "pv", f"{NAMESPACE}-{name}")
