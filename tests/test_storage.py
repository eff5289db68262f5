"""Claims of people, whole."""

import shlex
from dataclasses import replace

import pytest

from spectrum_spawner import homes, names, storage
from spectrum_spawner.choice import Choice
from spectrum_spawner.owner import Owner
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.teams import Scratch, Team

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


def test_a_scratch_disk_is_a_persons_and_for_one_server_at_a_time() -> None:
    claim = storage.make_scratch_claim(
        KNOWN, "exp1", team_uid="u-1", size="20Gi", storage_class="rook-ceph-block"
    )
    assert claim == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.scratch_claim("Alice", "exp1"),
            "labels": {**HOME.labels, "app.kubernetes.io/component": "scratch"},
            "annotations": {
                **HOME.annotations,
                "spectrum.dev/owner-team-uid": "u-1",
                "spectrum.dev/volume": "exp1",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "20Gi"}},
            "storageClassName": "rook-ceph-block",
        },
    }
    assert Owner.of(claim) == HOME
    assert storage.title_of(claim) == "your scratch disk “exp1”"
    assert storage.amount_of(claim) == "20Gi of rook-ceph-block"


def make_claims(choice: Choice) -> list[tuple[str, str]]:
    """Title and amount of the claims for a server of alice's."""
    made = storage.make_claims(KNOWN, choice, home_size="10Gi", home_storage_class="")
    return [(storage.title_of(claim), storage.amount_of(claim)) for claim in made]


def test_a_teams_own_sizes_and_classes_come_before_the_releases() -> None:
    team = Team(name="flight", uid="u-1", display_name="Flight", groups=frozenset())
    profile = Profile(name="p", title="p")
    choice = Choice(team=team, profile=profile, image=Image(name="i", title="i", image="i:1"))
    assert make_claims(choice) == [("your home", "10Gi of the default storage class")]
    richer = replace(
        team,
        home_size="50Gi",
        home_storage_class="rook-cephfs",
        scratch=Scratch(size="20Gi", storage_class="rook-ceph-block"),
    )
    assert make_claims(replace(choice, team=richer, scratch="exp1")) == [
        ("your home", "50Gi of rook-cephfs"),
        ("your scratch disk “exp1”", "20Gi of rook-ceph-block"),
    ]


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
def test_a_claim_is_the_subjects_or_without_one_the_names(
    owner: Owner, home: Owner, is_theirs: bool
) -> None:
    assert owner.has_claim(home) is is_theirs


def test_the_command_that_gives_a_claim_survives_a_shell() -> None:
    owner = replace(KNOWN, subject="idp.acme.test|o'neil $(id)")
    command = homes.give_claim("home-alice", owner, namespace="spectrum-flight")
    claim = ["--namespace", "spectrum-flight", "--overwrite", "persistentvolumeclaim", "home-alice"]
    label = f"spectrum.dev/subject={names.slug(owner.subject)}"
    assert shlex.split(command) == [
        *("kubectl", "annotate", *claim, f"spectrum.dev/owner-subject={owner.subject}"),
        "&&",
        *("kubectl", "label", *claim, label),
    ]
