"""Volumes of a server: the claim of a home, and what a pod mounts. Pure builders."""

from dataclasses import replace
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.owner import Owner

HOME = "/home/jovyan"
SHARED_MEMORY = "/dev/shm"


def make_home_claim(
    owner: Owner, *, team_uid: str, size: str, storage_class: str | None
) -> dict[str, Any]:
    """Claim of the home that a person has in one team; several servers may mount it at once.

    `size` is a quantity such as `10Gi`; without a storage class the cluster's default serves.
    """
    owner = replace(owner, server=None)
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": size}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.home_claim(owner.user),
            "labels": {**owner.labels, names.LABEL_COMPONENT: names.COMPONENT_HOME},
            "annotations": {**owner.annotations, names.ANNOTATION_TEAM_UID: team_uid},
        },
        "spec": spec,
    }


def make_volumes(claim: str, *, shared_memory: int) -> list[dict[str, Any]]:
    """Volumes of a pod: the home, and shared memory in bytes (counted in the memory limit)."""
    volumes: list[dict[str, Any]] = [
        {"name": "home", "persistentVolumeClaim": {"claimName": claim}}
    ]
    if shared_memory:
        volumes.append(
            {
                "name": "shared-memory",
                "emptyDir": {"medium": "Memory", "sizeLimit": str(shared_memory)},
            }
        )
    return volumes


def with_home(pod: dict[str, Any], claim: str) -> dict[str, Any]:
    """The pod with another claim as its home: a person who was renamed keeps the one they had."""
    volumes = [
        {**volume, "persistentVolumeClaim": {"claimName": claim}}
        if volume["name"] == "home"
        else volume
        for volume in pod["spec"]["volumes"]
    ]
    return {**pod, "spec": {**pod["spec"], "volumes": volumes}}


def make_mounts(*, shared_memory: int) -> list[dict[str, Any]]:
    """Where a container sees what `make_volumes` gave the pod."""
    mounts = [{"name": "home", "mountPath": HOME}]
    if shared_memory:
        mounts.append({"name": "shared-memory", "mountPath": SHARED_MEMORY})
    return mounts
