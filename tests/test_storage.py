"""Claims and volumes, whole."""

from spectrum_spawner import storage
from spectrum_spawner.owner import Owner

ALICE = Owner(hub="spectrum", team="ML Vision", user="Alice", server="two")


def test_a_home_belongs_to_a_person_in_a_team_and_to_no_single_server() -> None:
    claim = storage.make_home_claim(ALICE, team_uid="u-1", size="10Gi", storage_class="standard")
    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "home-alice--hpcrayuxhrcy2wtp",
            "labels": {
                "app.kubernetes.io/name": "spectrum",
                "app.kubernetes.io/managed-by": "spectrum",
                "app.kubernetes.io/component": "home",
                "spectrum.dev/hub": "spectrum",
                "spectrum.dev/team": "ml-vision--ro5pw4uuw7jal23t",
                "spectrum.dev/user": "alice--hpcrayuxhrcy2wtp",
            },
            "annotations": {
                "spectrum.dev/owner-hub": "spectrum",
                "spectrum.dev/owner-team": "ML Vision",
                "spectrum.dev/owner-team-uid": "u-1",
                "spectrum.dev/owner-user": "Alice",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "10Gi"}},
            "storageClassName": "standard",
        },
    }
    assert Owner.of(claim) == Owner(hub="spectrum", team="ML Vision", user="Alice")


def test_without_a_storage_class_the_clusters_default_serves() -> None:
    claim = storage.make_home_claim(ALICE, team_uid="u-1", size="10Gi", storage_class="")
    assert "storageClassName" not in claim["spec"]


def test_shared_memory_is_a_bounded_volume_in_memory() -> None:
    assert storage.make_volumes("home-alice", shared_memory=2**28) == [
        {"name": "home", "persistentVolumeClaim": {"claimName": "home-alice"}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "268435456"}},
    ]
    assert storage.make_mounts(shared_memory=2**28) == [
        {"name": "home", "mountPath": "/home/jovyan"},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]


def test_without_shared_memory_the_runtimes_own_stays() -> None:
    assert [v["name"] for v in storage.make_volumes("home-alice", shared_memory=0)] == ["home"]
    assert [m["name"] for m in storage.make_mounts(shared_memory=0)] == ["home"]


def test_an_object_without_our_annotations_belongs_to_nobody() -> None:
    assert Owner.of({"metadata": {"name": "x"}}) == Owner(hub="", team="", user="")
