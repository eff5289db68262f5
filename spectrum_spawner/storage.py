"""Claims of a person in a team: the home, and scratch disks. Pure builders."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.choice import Choice
from spectrum_spawner.owner import Owner


def make_claims(
    owner: Owner, choice: Choice, *, home_size: str, home_storage_class: str
) -> list[dict[str, Any]]:
    """The claims that a server of the owner's needs: the home, then the scratch disk if any.

    Size and class of a home are the release's; the team may have its own.
    """
    team = choice.team
    claims = [
        make_home_claim(
            owner,
            team_uid=team.uid,
            size=team.home_size or home_size,
            storage_class=team.home_storage_class or home_storage_class,
        )
    ]
    if choice.scratch:
        assert team.scratch is not None
        claims.append(
            make_scratch_claim(
                owner,
                choice.scratch,
                team_uid=team.uid,
                size=team.scratch.size,
                storage_class=team.scratch.storage_class,
            )
        )
    return claims


def make_home_claim(
    owner: Owner, *, team_uid: str, size: str, storage_class: str | None
) -> dict[str, Any]:
    """Claim of the home that a person has in one team; several servers may mount it at once.

    `size` is a quantity such as `10Gi`; without a storage class the cluster's default serves.
    """
    return _make_claim(
        owner,
        names.home_claim(owner.user),
        component=names.COMPONENT_HOME,
        annotations={names.ANNOTATION_TEAM_UID: team_uid},
        access_mode="ReadWriteMany",
        size=size,
        storage_class=storage_class,
    )


def make_scratch_claim(
    owner: Owner, volume: str, *, team_uid: str, size: str, storage_class: str | None
) -> dict[str, Any]:
    """Claim of the scratch disk that a person calls `volume`; for one server at a time.

    It is the person's like the home: a server that is deleted leaves it to the next.
    """
    return _make_claim(
        owner,
        names.scratch_claim(owner.user, volume),
        component=names.COMPONENT_SCRATCH,
        annotations={names.ANNOTATION_TEAM_UID: team_uid, names.ANNOTATION_VOLUME: volume},
        # with ReadWriteOnce two pods on one node would write to one file system
        access_mode="ReadWriteOncePod",
        size=size,
        storage_class=storage_class,
    )


def _make_claim(
    owner: Owner,
    name: str,
    *,
    component: str,
    annotations: dict[str, str],
    access_mode: str,
    size: str,
    storage_class: str | None,
) -> dict[str, Any]:
    owner = replace(owner, server=None)
    spec: dict[str, Any] = {
        "accessModes": [access_mode],
        "resources": {"requests": {"storage": size}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": name,
            "labels": {**owner.labels, names.LABEL_COMPONENT: component},
            "annotations": {**owner.annotations, **annotations},
        },
        "spec": spec,
    }


def disk_of(claim: Mapping[str, Any]) -> str:
    """What its owner calls a scratch disk, "" of a home."""
    return (claim["metadata"].get("annotations") or {}).get(names.ANNOTATION_VOLUME, "")


def title_of(claim: Mapping[str, Any]) -> str:
    """What a sentence to its owner calls a claim."""
    disk = disk_of(claim)
    return f"your scratch disk “{disk}”" if disk else "your home"


def amount_of(claim: Mapping[str, Any]) -> str:
    """What a claim asks for: `20Gi of rook-ceph-block`."""
    spec = claim["spec"]
    size = spec["resources"]["requests"]["storage"]
    return f"{size} of {spec.get('storageClassName') or 'the default storage class'}"
