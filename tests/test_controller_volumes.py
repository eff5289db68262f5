"""Manifests of shares and datasets, and what is kept of claims and classes."""

from dataclasses import replace
from typing import Any

from spectrum_spawner.controller.adoption import is_of_same_owner
from spectrum_spawner.controller.datasets import Offer
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.purges import explain_refusal
from spectrum_spawner.controller.status import Finding, make_storage_condition
from spectrum_spawner.controller.storage import make_sizes, make_storage_status
from spectrum_spawner.controller.storage_settings import (
    CephFSSettings,
    DatasetSettings,
    StorageSettings,
    VolumeSettings,
)
from spectrum_spawner.controller.volumes import (
    LONGEST_HANDLE,
    StorageClass,
    VolumeClaim,
    find_class,
    make_dataset_claim,
    make_dataset_volume,
    make_share_claim,
    trim_claim,
    trim_class,
)

SPACE = TeamSpace(
    hub_namespace="spectrum", team="flight", uid="uid-1", namespace="spectrum-flight", gid=100003
)
CEPHFS = CephFSSettings(
    driver="rook-ceph.cephfs.csi.ceph.com",
    cluster_id="rook-ceph",
    fs_name="myfs",
    secret_name="rook-csi-cephfs-node",
    secret_namespace="rook-ceph",
)
IMAGENET = DatasetSettings(
    name="imagenet", title="ImageNet", path="/volumes/datasets/imagenet", size="150Gi"
)
OWNER = {
    "spectrum.dev/owner-hub": "spectrum",
    "spectrum.dev/owner-team": "flight",
    "spectrum.dev/owner-team-uid": "uid-1",
}


def labels(component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "spectrum",
        "app.kubernetes.io/managed-by": "spectrum",
        "app.kubernetes.io/component": component,
        "spectrum.dev/hub": "spectrum",
        "spectrum.dev/team": "flight",
    }


def test_a_share_is_one_claim_for_many_pods() -> None:
    wanted = VolumeSettings(enabled=True, size="50Gi", storage_class="rook-cephfs")
    assert make_share_claim(SPACE, wanted) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "share",
            "namespace": "spectrum-flight",
            "labels": labels("share"),
            "annotations": OWNER,
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "50Gi"}},
            "storageClassName": "rook-cephfs",
        },
    }


def test_a_share_without_a_class_leaves_the_choice_to_the_cluster() -> None:
    claim = make_share_claim(SPACE, VolumeSettings(enabled=True, size="50Gi"))
    assert "storageClassName" not in claim["spec"]


def test_a_dataset_is_a_volume_and_a_claim_that_belong_together_and_cannot_be_written() -> None:
    volume = make_dataset_volume(SPACE, IMAGENET, CEPHFS)
    handle = volume["spec"]["csi"].pop("volumeHandle")
    marks = {
        "labels": labels("dataset"),
        "annotations": {**OWNER, "spectrum.dev/volume": "imagenet"},
    }
    assert volume == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "spectrum-flight-dataset-imagenet", **marks},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "capacity": {"storage": "150Gi"},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "spectrum-flight",
                "name": "dataset-imagenet",
            },
            "csi": {
                "driver": "rook-ceph.cephfs.csi.ceph.com",
                "readOnly": True,
                "nodeStageSecretRef": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
                "volumeAttributes": {
                    "clusterID": "rook-ceph",
                    "fsName": "myfs",
                    "rootPath": "/volumes/datasets/imagenet",
                    "staticVolume": "true",
                },
            },
            "persistentVolumeReclaimPolicy": "Retain",
            "volumeMode": "Filesystem",
        },
    }
    assert handle.startswith("spectrum-flight-dataset-imagenet-")
    assert make_dataset_claim(SPACE, IMAGENET) == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "dataset-imagenet", "namespace": "spectrum-flight", **marks},
        "spec": {
            "accessModes": ["ReadOnlyMany"],
            "resources": {"requests": {"storage": "150Gi"}},
            "storageClassName": "",
            "volumeName": "spectrum-flight-dataset-imagenet",
        },
    }


def handle_of(space: TeamSpace, dataset: DatasetSettings, cephfs: CephFSSettings = CEPHFS) -> str:
    return make_dataset_volume(space, dataset, cephfs)["spec"]["csi"]["volumeHandle"]


def test_a_handle_is_that_of_one_team_and_one_directory_and_never_too_long() -> None:
    handles = [
        handle_of(SPACE, IMAGENET),
        handle_of(replace(SPACE, namespace="spectrum-ops"), IMAGENET),
        handle_of(SPACE, replace(IMAGENET, path="/volumes/datasets/imagenet-2")),
        handle_of(SPACE, IMAGENET, replace(CEPHFS, fs_name="other")),
        handle_of(replace(SPACE, namespace="n" * 63), replace(IMAGENET, name="d" * 63)),
    ]
    assert len(set(handles)) == len(handles)
    assert max(map(len, handles)) == LONGEST_HANDLE
    assert handle_of(SPACE, replace(IMAGENET, title="Pictures", size="200Gi")) == handles[0]


def test_only_what_names_the_same_team_dataset_and_claim_is_ours() -> None:
    wanted = make_dataset_volume(SPACE, IMAGENET, CEPHFS)
    assert is_of_same_owner(wanted, wanted)
    for path, value in (
        (("metadata", "annotations", "spectrum.dev/owner-team"), "ops"),
        (("metadata", "annotations", "spectrum.dev/owner-hub"), "other"),
        (("metadata", "annotations", "spectrum.dev/volume"), "mnist"),
        (("metadata", "annotations"), None),
        (("spec", "claimRef", "namespace"), "spectrum-ops"),
        (("spec", "claimRef"), None),
    ):
        assert not is_of_same_owner(altered(wanted, path, value), wanted), path


def altered(obj: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    key, *rest = path
    return {**obj, key: altered(obj[key], tuple(rest), value) if rest else value}


def test_what_is_kept_of_a_claim() -> None:
    claim = {
        "metadata": {
            "name": "scratch-alice-big--x",
            "namespace": "spectrum-flight",
            "uid": "uid-9",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-02T00:00:00Z",
            "labels": labels("scratch"),
            "annotations": {
                **OWNER,
                "spectrum.dev/owner-user": "alice",
                "spectrum.dev/volume": "big",
                "spectrum.dev/prepared": "true",
                "spectrum.dev/purge": "scratch-alice-big--x",
            },
        },
        "spec": {
            "resources": {"requests": {"storage": "20Gi"}},
            "storageClassName": "rook-ceph-block",
            "volumeName": "pvc-1",
        },
        "status": {
            "phase": "Bound",
            "capacity": {"storage": "10Gi"},
            "conditions": [{"type": "FileSystemResizePending", "status": "True"}],
            "allocatedResourceStatuses": {"storage": "NodeResizeInfeasible"},
        },
    }
    assert trim_claim(claim) == VolumeClaim(
        name="scratch-alice-big--x",
        namespace="spectrum-flight",
        uid="uid-9",
        component="scratch",
        hub="spectrum",
        team="flight",
        user="alice",
        volume="big",
        size="20Gi",
        capacity="10Gi",
        storage_class="rook-ceph-block",
        volume_name="pvc-1",
        phase="Bound",
        created="2026-01-01T00:00:00Z",
        waits_for_mount=True,
        infeasible=True,
        prepared=True,
        purge="scratch-alice-big--x",
        deleting=True,
    )


def test_a_claim_without_marks_is_nobodys() -> None:
    claim = {"metadata": {"name": "x", "namespace": "y", "uid": "z"}, "spec": {}}
    kept = trim_claim(claim)
    assert kept == VolumeClaim(name="x", namespace="y", uid="z")
    assert not kept.is_of(SPACE)


def test_a_claim_is_a_teams_in_its_own_namespace_alone() -> None:
    claim = VolumeClaim(
        name="share", namespace="spectrum-flight", uid="1", hub="spectrum", team="flight"
    )
    assert claim.is_of(SPACE)
    assert not replace(claim, namespace="spectrum-ops").is_of(SPACE)
    assert not replace(claim, hub="other").is_of(SPACE)


def test_a_class_is_found_by_name_or_as_the_default() -> None:
    plain = trim_class({"metadata": {"name": "plain"}})
    default = trim_class(
        {
            "metadata": {
                "name": "rook-cephfs",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
            },
            "allowVolumeExpansion": True,
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    assert plain == StorageClass(name="plain")
    assert default == StorageClass(name="rook-cephfs", expandable=True, is_default=True, waits=True)
    assert find_class([plain, default], "plain") == plain
    assert find_class([plain, default], "") == default
    assert find_class([plain, default], "other") is None
    assert find_class([plain], "") is None


def test_the_status_tells_what_servers_can_mount() -> None:
    wanted = StorageSettings(
        scratch=VolumeSettings(enabled=True, size="20Gi", storage_class="rook-ceph-block")
    )
    share = VolumeClaim(
        name="share", namespace="spectrum-flight", uid="1", size="60Gi", capacity="50Gi"
    )
    assert make_storage_status(wanted, share, Offer(datasets=(IMAGENET,), withheld={})) == {
        "share": {"claim": "share", "size": "50Gi", "phase": "Pending", "prepared": False},
        "scratch": {"size": "20Gi", "storageClass": "rook-ceph-block"},
        "datasets": [
            {
                "name": "imagenet",
                "title": "ImageNet",
                "claim": "dataset-imagenet",
                "size": "150Gi",
            }
        ],
    }
    assert make_storage_status(StorageSettings(), None, Offer(withheld={})) == {}


def test_the_status_tells_without_what_servers_start_and_what_cannot_be_made() -> None:
    unbound = Finding(reason="Pending", message="Dataset imagenet is not bound.")
    assert make_storage_status(
        StorageSettings(),
        None,
        Offer(withheld={"imagenet": unbound}),
        why_no_share="share has no volume yet.",
        missing_classes=["typo", "", "typo"],
    ) == {
        "withheld": [
            {"kind": "share", "name": "", "why": "share has no volume yet."},
            {"kind": "dataset", "name": "imagenet", "why": "Dataset imagenet is not bound."},
        ],
        "missingClasses": ["", "typo"],
    }


def test_only_what_is_offered_has_a_size() -> None:
    wanted = StorageSettings(scratch=VolumeSettings(enabled=True, size="20Gi"))
    assert make_sizes(wanted) == {"home": "10Gi", "scratch": "20Gi"}


def test_the_condition_names_the_first_problem_and_says_all() -> None:
    growing = Finding(reason="Growing", message="home-alice is growing.", is_problem=False)
    missing = Finding(reason="ClassMissing", message="There is no StorageClass x.")
    full = Finding(reason="QuotaExceeded", message="No room.")
    assert make_storage_condition([growing, missing, full]) == {
        "type": "Storage",
        "status": "False",
        "reason": "ClassMissing",
        "message": "There is no StorageClass x. No room. home-alice is growing.",
    }
    assert make_storage_condition([growing])["status"] == "True"
    assert make_storage_condition([]) == {
        "type": "Storage",
        "status": "True",
        "reason": "Provided",
        "message": "All volumes are as they are wanted.",
    }


def test_a_purge_needs_the_claims_own_name_and_data_of_the_teams_own() -> None:
    home = VolumeClaim(name="home-alice", namespace="n", uid="u", component="home")
    assert explain_refusal(replace(home, purge="home-alice")) == ""
    assert explain_refusal(replace(home, purge="true")) == (
        "home-alice is not deleted: its annotation spectrum.dev/purge is 'true', and must be "
        "the claim's own name."
    )
    dataset = replace(home, component="dataset", name="dataset-a", purge="dataset-a")
    assert "holds no data of the team's own" in explain_refusal(dataset)
    other = replace(home, component="", purge="home-alice")
    assert "holds no data of the team's own" in explain_refusal(other)
