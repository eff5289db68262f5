"""Claims and volumes, whole."""

import shlex
from dataclasses import replace

import pytest

from spectrum_spawner import homes, names, storage
from spectrum_spawner.owner import Owner

ALICE = Owner(hub="spectrum", team="ML Vision", user="Alice", server="two")
KNOWN = replace(ALICE, subject="idp.acme.test|8f2c")
HOME = replace(KNOWN, server=None)


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


def test_a_subject_is_written_on_the_claim_beside_the_name() -> None:
    claim = storage.make_home_claim(KNOWN, team_uid="u-1", size="10Gi", storage_class=None)
    metadata = claim["metadata"]
    assert metadata["name"] == names.home_claim("Alice")
    assert metadata["annotations"]["spectrum.dev/owner-subject"] == "idp.acme.test|8f2c"
    assert metadata["labels"]["spectrum.dev/subject"] == names.slug("idp.acme.test|8f2c")
    assert Owner.of(claim) == HOME


@pytest.mark.parametrize(
    ("owner", "home", "is_theirs"),
    [
        (KNOWN, HOME, True),
        (KNOWN, replace(HOME, user="former-name"), True),
        (KNOWN, replace(HOME, subject="idp.acme.test|other"), False),
        (KNOWN, replace(HOME, subject=""), False),
        (KNOWN, replace(HOME, team="ops"), False),
        (KNOWN, replace(HOME, hub="other"), False),
        (KNOWN, KNOWN, False),
        (ALICE, replace(ALICE, server=None), True),
        (ALICE, replace(ALICE, server=None, user="Bob"), False),
        (ALICE, HOME, True),
        (KNOWN, Owner(hub="", team="", user=""), False),
        (ALICE, Owner(hub="", team="", user=""), False),
    ],
)
def test_a_home_is_the_subjects_or_without_one_the_names(
    owner: Owner, home: Owner, is_theirs: bool
) -> None:
    assert owner.has_home(home) is is_theirs


def test_a_pod_is_given_another_claim_and_nothing_else_changes() -> None:
    volumes = storage.make_volumes("home-alice", shared_memory=2**28)
    pod = {"metadata": {"name": "p"}, "spec": {"volumes": volumes, "containers": []}}
    given = storage.with_home(pod, "home-former")
    assert given == {
        "metadata": {"name": "p"},
        "spec": {
            "volumes": storage.make_volumes("home-former", shared_memory=2**28),
            "containers": [],
        },
    }
    assert volumes == storage.make_volumes("home-alice", shared_memory=2**28)


def test_the_command_that_gives_a_home_survives_a_shell() -> None:
    owner = replace(KNOWN, subject="idp.acme.test|o'neil $(id)")
    command = homes.give_home("home-alice", owner, namespace="spectrum-flight")
    claim = ["--namespace", "spectrum-flight", "--overwrite", "persistentvolumeclaim", "home-alice"]
    label = f"spectrum.dev/subject={names.slug(owner.subject)}"
    assert shlex.split(command) == [
        *("kubectl", "annotate", *claim, f"spectrum.dev/owner-subject={owner.subject}"),
        "&&",
        *("kubectl", "label", *claim, label),
    ]
