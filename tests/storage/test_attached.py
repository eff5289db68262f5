"""A disk that another machine holds, where nodes attach volumes as they do in a cloud.

The second node is an object without a machine behind it: its kubelet and the driver's attacher are
played by writing what they would write. What refuses the disk is the real controller.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from local.kubectl import Kubectl
from spectrum_spawner import names, storage
from spectrum_spawner.owner import Owner
from tests.cluster.pods import make_pod
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

DISK, NODE = "attached", "elsewhere"
# The controller attaches what has a driver that no CSIDriver object excuses from it.
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "disk-elsewhere"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "csi": {"driver": "disks.csi.test", "volumeHandle": "disk-elsewhere"},
        "persistentVolumeReclaimPolicy": "Retain",
    },
}


def make_node() -> dict[str, Any]:
    """A node on which nothing is scheduled, and whose volumes the controller attaches."""
    marks = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    metadata = {"name": NODE, "annotations": marks}
    spec = {"unschedulable": True}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec}


def make_claim(kubectl: Kubectl, release: InstalledRelease) -> dict[str, Any]:
    """Bob's scratch disk in team ops, of that volume."""
    team = kubectl.get("-n", release.namespace, "team", "ops")
    claim = storage.make_scratch_claim(
        Owner(hub=release.namespace, team="ops", user="bob"),
        DISK,
        team_uid=team["metadata"]["uid"],
        size="1Gi",
        storage_class=None,
    )
    claim["spec"] |= {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "",
        "volumeName": VOLUME["metadata"]["name"],
    }
    return claim


def make_holder(image: str) -> dict[str, Any]:
    """A pod of the other node that has the disk."""
    pod = make_pod("holder", image)
    source = {"claimName": names.scratch_claim("bob", DISK)}
    pod["spec"] |= {
        "nodeName": NODE,
        "volumes": [{"name": "disk", "persistentVolumeClaim": source}],
    }
    (container,) = pod["spec"]["containers"]
    container["volumeMounts"] = [{"name": "disk", "mountPath": "/disk"}]
    return pod


@pytest.fixture
def disk_elsewhere(kubectl: Kubectl, release: InstalledRelease, image: str) -> Iterator[str]:
    """Bob's disk is attached to another node; the claim's name."""
    place = ("-n", f"{release.namespace}-ops")
    claim = names.scratch_claim("bob", DISK)
    for manifest in (make_node(), VOLUME):
        kubectl("create", "-f", "-", text=json.dumps(manifest))
    kubectl(*place, "create", "-f", "-", text=json.dumps(make_claim(kubectl, release)))
    bound = ("--for=jsonpath={.status.phase}=Bound", "--timeout=30s")
    kubectl(*place, "wait", f"pvc/{claim}", *bound)
    kubectl(*place, "create", "-f", "-", text=json.dumps(make_holder(image)))
    attachment = wait_until(lambda: find_attachment(kubectl))
    attached = json.dumps({"status": {"attached": True}})
    patch = ("patch", "volumeattachment", attachment, "--subresource=status", "--type=merge")
    kubectl(*patch, "-p", attached)
    yield claim
    kubectl(*place, "delete", "pod", "holder", "--force", "--grace-period=0")
    kubectl(*place, "delete", "pvc", claim)
    kubectl("delete", "pv", VOLUME["metadata"]["name"])
    kubectl("delete", "node", NODE)
    wait_until(lambda: not find_attachment(kubectl))


def find_attachment(kubectl: Kubectl) -> str:
    """The name of the object by which the volume is attached; "" if there is none."""
    found = kubectl.get("volumeattachments")["items"]
    volume = VOLUME["metadata"]["name"]
    named = (a["metadata"]["name"] for a in found if is_of(a, volume))
    return next(named, "")


def is_of(attachment: dict[str, Any], volume: str) -> bool:
    return bool(attachment["spec"]["source"].get("persistentVolumeName") == volume)


def test_a_disk_that_another_node_has_is_named_with_who_has_it(
    disk_elsewhere: str, bob: Servers
) -> None:
    options = {"user_options": {**OPS_CPU, "scratch": DISK}}
    assert bob.person.call("POST", "users/bob/server", options).status_code == 202
    said = (
        f"Waiting for your scratch disk “{DISK}” (claim {disk_elsewhere}): it is still attached to "
        "another node, for pod holder"
    )
    wait_until(lambda: said in bob.read_progress())
    assert bob.person.call("DELETE", "users/bob/server").status_code in (202, 204)
    wait_until(lambda: not bob.read())
