"""What Kubernetes knows of Ceph, under the names that Rook gives: drivers, classes, secrets."""

import base64
from collections.abc import Mapping
from typing import Any

from local.api import Api
from local.ceph import Ceph
from local.ceph_config import BLOCK_POOL, DATA_POOL, FILE_SYSTEM
from local.objects import apply_namespace, apply_object, make_node_service

NAMESPACE = "rook-ceph"
FILES_CLASS = "rook-cephfs"
BLOCKS_CLASS = "rook-ceph-block"
FILES_DRIVER = f"{NAMESPACE}.cephfs.csi.ceph.com"
BLOCKS_DRIVER = f"{NAMESPACE}.rbd.csi.ceph.com"
# How pods reach the object gateway: http://rook-ceph-rgw-my-store.rook-ceph.svc:7480
GATEWAY = "rook-ceph-rgw-my-store"
GATEWAY_SECRET = "rgw-admin"

_SECRETS = {
    f"rook-csi-{kind}-{role}": f"csi-{kind}-{role}"
    for kind in ("cephfs", "rbd")
    for role in ("node", "provisioner")
}


def make_driver(name: str) -> dict[str, Any]:
    """Build a CSIDriver with ceph-csi's settings, but for one.

    There a block volume is attached to a node before it is mounted. On one node it can be attached
    nowhere else.
    """
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {
            "attachRequired": False,
            "podInfoOnMount": False,
            "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent"],
        },
    }


def make_classes() -> list[dict[str, Any]]:
    """Build the StorageClasses of file and of block volumes; both let claims grow."""
    files = {"fsName": FILE_SYSTEM, "pool": DATA_POOL}
    # Of the two file systems that grow while they are mounted, xfs needs no further right for it.
    blocks = {
        "pool": BLOCK_POOL,
        "imageFormat": "2",
        "imageFeatures": "layering",
        "csi.storage.k8s.io/fstype": "xfs",
    }
    return [
        _make_class(FILES_CLASS, FILES_DRIVER, "cephfs", files),
        _make_class(BLOCKS_CLASS, BLOCKS_DRIVER, "rbd", blocks),
    ]


def make_csi_secret(name: str, user: str, key: str) -> dict[str, Any]:
    """Build a secret of the CSI driver; `user` is the entity without `client.`."""
    return _make_secret(NAMESPACE, name, {"userID": user, "userKey": key})


def make_gateway_service(address: str, port: int) -> list[dict[str, Any]]:
    """Build the gateway's Service, and the slice that leads it to an address outside of pods.

    Network policies know the port that the gateway listens on, so the Service has no other.
    """
    return make_node_service(NAMESPACE, GATEWAY, port=port, address=address, target=port)


def apply_ceph_objects(api: Api, ceph: Ceph) -> None:
    """Write the objects; what is unchanged is left alone."""
    apply_namespace(api, NAMESPACE)
    for name, user in _SECRETS.items():
        apply_object(api, make_csi_secret(name, user, ceph.find_key(f"client.{user}")))
    for one in make_gateway_service(ceph.address, ceph.ports.gateway):
        apply_object(api, one)
    for one in (*map(make_driver, (FILES_DRIVER, BLOCKS_DRIVER)), *make_classes()):
        apply_object(api, one)


def apply_gateway_secret(api: Api, ceph: Ceph, namespace: str) -> None:
    """Give the release in the namespace the keys of the gateway's administrator."""
    apply_namespace(api, namespace)
    apply_object(api, _make_secret(namespace, GATEWAY_SECRET, ceph.find_admin()))


def _make_class(name: str, driver: str, kind: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    roles = {"provisioner": "provisioner", "controller-expand": "provisioner", "node-stage": "node"}
    secrets = {}
    for use, role in roles.items():
        secrets[f"csi.storage.k8s.io/{use}-secret-name"] = f"rook-csi-{kind}-{role}"
        secrets[f"csi.storage.k8s.io/{use}-secret-namespace"] = NAMESPACE
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": driver,
        "parameters": {"clusterID": NAMESPACE, **parameters, **secrets},
        "reclaimPolicy": "Delete",
        "allowVolumeExpansion": True,
        "volumeBindingMode": "Immediate",
    }


def _make_secret(namespace: str, name: str, data: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }
