"""Claims and volumes: what is kept of those that are there, and manifests of new ones. Pure."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.controller.objects import Manifest, TeamSpace, make_metadata
from spectrum_spawner.controller.ownership import annotation
from spectrum_spawner.controller.storage_settings import (
    CephFSSettings,
    DatasetSettings,
    VolumeSettings,
)

LONGEST_HANDLE = 128  # bytes that CSI allows a volume's handle
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
# What the storage says of a size that it will never give.
_INFEASIBLE = ("ControllerResizeInfeasible", "NodeResizeInfeasible")


@dataclass(frozen=True, kw_only=True)
class VolumeClaim:
    """What is kept of a PersistentVolumeClaim.

    `hub`, `team`, `user` and `volume` are full names from its owner marks, `component` is from
    its label. `size` is the quantity asked for, `capacity` the one that is there ("" while it is
    not bound); `waits_for_mount` tells that a larger file system waits for a server to mount it,
    `infeasible` that the storage will never give that size. `purge` is what
    the claim's annotation names for deletion, `created` the API server's time.
    """

    name: str
    namespace: str
    uid: str
    component: str = ""
    hub: str = ""
    team: str = ""
    user: str = ""
    volume: str = ""
    size: str = "0"
    capacity: str = ""
    storage_class: str = ""
    volume_name: str = ""
    phase: str = "Pending"
    created: str = ""
    waits_for_mount: bool = False
    infeasible: bool = False
    prepared: bool = False
    purge: str = ""
    deleting: bool = False

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def is_of(self, space: TeamSpace) -> bool:
        """Whether its owner marks are those of this team in its own namespace."""
        owner = (self.namespace, self.hub, self.team)
        return owner == (space.namespace, space.hub_namespace, space.team)


@dataclass(frozen=True, kw_only=True)
class StorageClass:
    """What is kept of a StorageClass. `waits`: claims are bound when a pod is to mount them."""

    name: str
    expandable: bool = False
    is_default: bool = False
    waits: bool = False


def trim_claim(obj: Mapping[str, Any]) -> VolumeClaim:
    metadata, spec, status = obj["metadata"], obj["spec"], obj.get("status") or {}
    waiting = find_condition(status, "FileSystemResizePending")
    resizing = (status.get("allocatedResourceStatuses") or {}).get("storage")
    return VolumeClaim(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        component=(metadata.get("labels") or {}).get(names.LABEL_COMPONENT, ""),
        hub=annotation(obj, names.ANNOTATION_HUB),
        team=annotation(obj, names.ANNOTATION_TEAM),
        user=annotation(obj, names.ANNOTATION_USER),
        volume=annotation(obj, names.ANNOTATION_VOLUME),
        size=((spec.get("resources") or {}).get("requests") or {}).get("storage", "0"),
        capacity=(status.get("capacity") or {}).get("storage", ""),
        storage_class=spec.get("storageClassName") or "",
        volume_name=spec.get("volumeName") or "",
        phase=status.get("phase") or "Pending",
        created=metadata.get("creationTimestamp") or "",
        waits_for_mount=waiting.get("status") == "True" or resizing == "NodeResizePending",
        infeasible=resizing in _INFEASIBLE,
        prepared=annotation(obj, names.ANNOTATION_PREPARED) == "true",
        purge=annotation(obj, names.ANNOTATION_PURGE),
        deleting="deletionTimestamp" in metadata,
    )


def trim_class(obj: Mapping[str, Any]) -> StorageClass:
    return StorageClass(
        name=obj["metadata"]["name"],
        expandable=bool(obj.get("allowVolumeExpansion")),
        is_default=annotation(obj, DEFAULT_CLASS) == "true",
        waits=obj.get("volumeBindingMode") == "WaitForFirstConsumer",
    )


def find_class(classes: Iterable[StorageClass], name: str) -> StorageClass | None:
    """The class that a claim with that class name gets; of no name it is the cluster's default."""
    return next((c for c in classes if (c.name == name if name else c.is_default)), None)


def make_share_claim(space: TeamSpace, wanted: VolumeSettings) -> Manifest:
    """The claim that all servers of a team mount at once."""
    spec: Manifest = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": wanted.size}},
    }
    if wanted.storage_class:
        spec["storageClassName"] = wanted.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.SHARE_CLAIM,
            "namespace": space.namespace,
            **_make_marks(space, names.COMPONENT_SHARE),
        },
        "spec": spec,
    }


def make_dataset_claim(space: TeamSpace, dataset: DatasetSettings) -> Manifest:
    """The claim by which a team's servers mount a dataset: bound to one volume from the start."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.dataset_claim(dataset.name),
            "namespace": space.namespace,
            **_make_marks(space, names.COMPONENT_DATASET, volume=dataset.name),
        },
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": dataset.size}},
            "storageClassName": "",
            "volumeName": names.dataset_volume(space.namespace, dataset.name),
        },
    }


def make_dataset_volume(
    space: TeamSpace, dataset: DatasetSettings, cephfs: CephFSSettings
) -> Manifest:
    """The volume behind that claim: a directory that exists already, and outlives the volume.

    Its handle is another one for whatever else it is to point at, since a node takes two volumes
    of one handle for the same, and a volume's source can never be changed. The size is only told.
    """
    name = names.dataset_volume(space.namespace, dataset.name)
    csi: Manifest = {
        "driver": cephfs.driver,
        "readOnly": True,
        "nodeStageSecretRef": {
            "name": cephfs.secret_name,
            "namespace": cephfs.secret_namespace,
        },
        "volumeAttributes": {
            "clusterID": cephfs.cluster_id,
            "fsName": cephfs.fs_name,
            "rootPath": dataset.path,
            "staticVolume": "true",
        },
    }
    csi["volumeHandle"] = _make_handle(name, csi)
    spec = {
        "accessModes": ["ReadOnlyMany"],
        "capacity": {"storage": dataset.size},
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": space.namespace,
            "name": names.dataset_claim(dataset.name),
        },
        "csi": csi,
        "persistentVolumeReclaimPolicy": "Retain",
        "volumeMode": "Filesystem",
    }
    marks = _make_marks(space, names.COMPONENT_DATASET, volume=dataset.name)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, **marks},
        "spec": spec,
    }


def _make_handle(name: str, source: Manifest) -> str:
    digest = hashlib.sha256(json.dumps([name, source], sort_keys=True).encode()).hexdigest()[:20]
    return f"{name[: LONGEST_HANDLE - 1 - len(digest)]}-{digest}"


def _make_marks(space: TeamSpace, component: str, *, volume: str = "") -> dict[str, dict[str, str]]:
    marks = make_metadata(space)
    marks["labels"][names.LABEL_NAME] = "spectrum"
    marks["labels"][names.LABEL_COMPONENT] = component
    if volume:
        marks["annotations"][names.ANNOTATION_VOLUME] = volume
    return marks
