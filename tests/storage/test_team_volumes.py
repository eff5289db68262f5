"""Volumes of a team by the controller on the cluster's Ceph: they grow, are offered, and go."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from local.kubectl import Kubectl
from spectrum_spawner import names
from spectrum_spawner.quantities import quantity
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

GROWING = {**OPS_CPU, "scratch": "growing"}
PLACES = {
    "home": ("home-bob", "/home/jovyan"),
    "share": ("share", "/home/jovyan/team"),
    "scratch": (names.scratch_claim("bob", "growing"), "/home/jovyan/scratch"),
}
GI = 2**30


class Ops:
    """The team Ops as an administrator sees it."""

    def __init__(self, kubectl: Kubectl, release: InstalledRelease) -> None:
        self._kubectl = kubectl
        self._hub_namespace = release.namespace
        self._namespace = f"{release.namespace}-ops"

    def patch(self, spec: dict[str, Any]) -> None:
        place = ("-n", self._hub_namespace, "patch", "team", "ops", "--type=merge")
        self._kubectl(*place, "-p", json.dumps({"spec": spec}))

    def find_storage(self) -> tuple[str, str]:
        """Reason and message of the condition."""
        team: dict[str, Any] = self._kubectl.get("-n", self._hub_namespace, "team", "ops")
        conditions = team["status"]["conditions"]
        return next((c["reason"], c["message"]) for c in conditions if c["type"] == "Storage")

    def find_claim(self, name: str) -> dict[str, Any]:
        """The claim; empty if there is none."""
        text = self._kubectl(
            *("-n", self._namespace, "get", "persistentvolumeclaim", name),
            *("-o", "json", "--ignore-not-found"),
        )
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def find_size(self, name: str) -> int:
        """What a claim asks for, in GiB."""
        asked = self.find_claim(name)["spec"]["resources"]["requests"]["storage"]
        return int(quantity(asked) / GI)

    def find_capacity(self, name: str) -> int:
        """What a claim has, in GiB."""
        return int(quantity(self.find_claim(name)["status"]["capacity"]["storage"]) / GI)

    def purge(self, claim: str, value: str) -> None:
        mark = f"{names.ANNOTATION_PURGE}={value}"
        place = ("-n", self._namespace, "annotate", "--overwrite", "persistentvolumeclaim")
        self._kubectl(*place, claim, mark)


@pytest.fixture
def ops(kubectl: Kubectl, release: InstalledRelease) -> Iterator[Ops]:
    """The team; afterwards it has the release's sizes again, though its claims have not."""
    ops = Ops(kubectl, release)
    yield ops
    ops.patch({"storage": None})


def read_gib(servers: Servers, path: str) -> float:
    """What `df` in a server says of the size."""
    text = servers.run("ops", "df", "--output=size", "-B1", path)
    return int(text.split()[-1]) / GI


def test_volumes_grow_under_a_running_server_when_their_team_asks_for_more(
    ops: Ops, bob: Servers
) -> None:
    bob.start(GROWING)
    bob.run("ops", "sh", "-c", "for p in ~ ~/team ~/scratch; do echo kept > $p/note.txt; done")
    sizes = {kind: ops.find_size(claim) + 1 for kind, (claim, _) in PLACES.items()}
    ops.patch({"storage": {kind: {"size": f"{size}Gi"} for kind, size in sizes.items()}})
    for kind, (_, path) in PLACES.items():
        # xfs takes some of it; the kubelet looks at a pod's volumes once in half a minute or so
        least = sizes[kind] - 0.1
        wait_until(lambda path=path, least=least: read_gib(bob, path) > least)
        assert bob.run("ops", "cat", f"{path}/note.txt") == "kept\n"
    for kind, (claim, _) in PLACES.items():
        wait_until(lambda c=claim, size=sizes[kind]: ops.find_capacity(c) == size)


def test_datasets_can_be_read_and_not_written(bob: Servers) -> None:
    bob.start(OPS_CPU)
    mounts = bob.run("ops", "sh", "-c", "grep ' /home/jovyan/datasets/samples ' /proc/mounts")
    assert mounts.split()[3].split(",")[0] == "ro"
    said = bob.run("ops", "sh", "-c", "touch ~/datasets/samples/x 2>&1 || true")
    assert "Read-only file system" in said


def test_a_disk_goes_by_its_own_name_once_its_server_has_stopped(ops: Ops, bob: Servers) -> None:
    claim = names.scratch_claim("bob", "old")
    bob.start({**OPS_CPU, "scratch": "old"})
    ops.purge(claim, "true")
    wait_until(lambda: ops.find_storage()[0] == "PurgeRefused")
    ops.purge(claim, claim)
    wait_until(lambda: "is deleted once it is not mounted" in ops.find_storage()[1])
    assert "deletionTimestamp" not in ops.find_claim(claim)["metadata"]
    bob.stop()
    wait_until(lambda: not ops.find_claim(claim))
    assert ops.find_claim("home-bob")
