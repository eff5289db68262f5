"""Volumes on the home page: which claims are shown, and what is said of their state."""

from typing import Any

import pytest

from spectrum_spawner import names
from spectrum_spawner.figures import Figures, read_figures
from spectrum_spawner.owner import Owner
from spectrum_spawner.storage import make_home_claim, make_scratch_claim
from spectrum_spawner.teams import Bucket, Dataset, Team, Withheld
from spectrum_spawner.volumes import Volume, list_volumes

ALICE = Owner(hub="spectrum", team="flight", user="alice", subject="idp|1")
FLIGHT = Team(name="flight", uid="u", display_name="Flight", groups=frozenset({"flight"}))


def bound(claim: dict[str, Any], **status: Any) -> dict[str, Any]:
    size = claim["spec"]["resources"]["requests"]
    return {**claim, "status": {"phase": "Bound", "capacity": size, **status}}


def make_home(owner: Owner = ALICE, **status: Any) -> dict[str, Any]:
    claim = make_home_claim(owner, team_uid="u", size="2Gi", storage_class="rook-cephfs")
    return bound(claim, **status)


def make_disk(name: str, owner: Owner = ALICE) -> dict[str, Any]:
    return bound(
        make_scratch_claim(owner, name, team_uid="u", size="1Gi", storage_class="rook-ceph-block")
    )


def make_common(name: str, component: str, **marks: str) -> dict[str, Any]:
    annotations = {names.ANNOTATION_HUB: "spectrum", names.ANNOTATION_TEAM: "flight", **marks}
    metadata = {"name": name, "labels": {names.LABEL_COMPONENT: component}}
    spec = {"resources": {"requests": {"storage": "5Gi"}}}
    return bound({"metadata": {**metadata, "annotations": annotations}, "spec": spec})


def show(*claims: Any, team: Team = FLIGHT, **rest: Any) -> list[Volume]:
    return list_volumes(team, ALICE, claims, **{"figures": {}, "left_out": {}, **rest})


def test_ones_own_comes_first_then_what_is_common() -> None:
    team = Team(
        name="flight",
        uid="u",
        display_name="Flight",
        groups=frozenset({"flight"}),
        datasets=(Dataset(name="imagenet", title="ImageNet", claim="dataset-imagenet"),),
        bucket=Bucket(name="bucket-of-flight", ready=True),
    )
    shown = show(
        make_common("dataset-imagenet", names.COMPONENT_DATASET),
        make_common("share", names.COMPONENT_SHARE),
        make_disk("envs"),
        make_disk("default"),
        make_home(),
        team=team,
    )
    assert [(v.kind, v.name, v.title, v.mount) for v in shown] == [
        ("home", "", "Home", "~"),
        ("scratch", "default", "Scratch disk “default”", "~/scratch"),
        ("scratch", "envs", "Scratch disk “envs”", "~/scratch"),
        ("share", "", "Team volume", "~/team"),
        ("dataset", "imagenet", "ImageNet", "~/datasets/imagenet"),
        ("bucket", "bucket-of-flight", "Bucket", "s3://bucket-of-flight"),
    ]


def test_what_is_others_is_not_shown() -> None:
    renamed = Owner(hub="spectrum", team="flight", user="al", subject="idp|1")
    others = [
        make_home(Owner(hub="spectrum", team="flight", user="bob", subject="idp|2")),
        # another person who had the name before
        make_home(Owner(hub="spectrum", team="flight", user="alice", subject="idp|3")),
        make_home(Owner(hub="other", team="flight", user="alice", subject="idp|1")),
        make_common("share", names.COMPONENT_SHARE, **{names.ANNOTATION_HUB: "other"}),
        make_common("dataset-coco", names.COMPONENT_DATASET),
        {"metadata": {"name": "anybody's"}, "spec": {"resources": {"requests": {"storage": "1"}}}},
    ]
    assert show(*others) == []
    assert [v.claim for v in show(make_home(renamed))] == ["home-al"]


def test_figures_are_found_by_team_kind_and_name() -> None:
    told = {
        ("flight", "home", ""): Figures(total=7),
        ("flight", "scratch", "envs"): Figures(total=8),
        ("ops", "home", ""): Figures(total=9),
    }
    shown = show(make_home(), make_disk("envs"), make_disk("default"), figures=told)
    assert [(v.title, v.figures.total) for v in shown] == [
        ("Home", 7),
        ("Scratch disk “default”", None),
        ("Scratch disk “envs”", 8),
    ]


def condition(kind: str, message: str = "") -> list[dict[str, str]]:
    return [{"type": kind, "status": "True", "message": message}]


SMALLER = {"capacity": {"storage": "1Gi"}}
STATES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "ready", ""),
    ({"capacity": {"storage": "2048Mi"}}, "ready", ""),
    ({"capacity": {"storage": "3Gi"}}, "ready", ""),
    (SMALLER, "growing", ""),
    ({**SMALLER, "conditions": condition("Resizing")}, "growing", ""),
    (
        {**SMALLER, "conditions": condition("FileSystemResizePending")},
        "growing",
        "The next server that mounts it sees it grown.",
    ),
    (
        {**SMALLER, "conditions": condition("ControllerResizeError", "rpc: no room left.")},
        "failed",
        "It cannot grow to 2Gi: rpc: no room left.",
    ),
    ({"phase": "Pending", "capacity": None}, "pending", "It is being made."),
    ({"phase": "Lost"}, "failed", "The disk behind it is gone: ask a cluster administrator."),
]


@pytest.mark.parametrize(("status", "state", "message"), STATES)
def test_the_state_of_a_claim_in_a_word_and_a_sentence(
    status: dict[str, Any], state: str, message: str
) -> None:
    (home,) = show(make_home(**status))
    assert (home.state, home.message) == (state, message)


def test_a_claim_that_is_being_deleted_says_so() -> None:
    home = make_home()
    home["metadata"]["deletionTimestamp"] = "2026-01-31T09:14:00Z"
    (shown,) = show(home)
    assert (shown.state, shown.message) == (
        "failed",
        "It is being deleted: ask a cluster administrator.",
    )


def event(reason: str, message: str, at: str) -> dict[str, Any]:
    about = {"kind": "PersistentVolumeClaim", "name": "home-alice"}
    return {
        "metadata": {"creationTimestamp": "2026-01-31T09:00:00Z"},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


def test_the_last_event_says_why_a_claim_waits() -> None:
    waits = event("WaitForFirstConsumer", "waiting for first consumer", "2026-01-31T09:01:00Z")
    fails = event("ProvisioningFailed", "rpc error: DeadlineExceeded", "2026-01-31T09:02:00Z")
    home = make_home(phase="Pending", capacity=None)
    told = [
        show(home, events=events)[0].message for events in ([waits], [fails, waits], [waits, fails])
    ]
    silent = "It cannot be made yet: Ceph does not answer."
    assert told == ["It is made when the first server uses it.", silent, silent]


def make_flight(**parts: Any) -> Team:
    return Team(name="flight", uid="u", display_name="F", groups=frozenset(), **parts)


def tell(volume: Volume) -> tuple[str, str, str, str]:
    return volume.kind, volume.title, volume.state, volume.message


def test_what_servers_start_without_is_said() -> None:
    team = make_flight(
        withheld=(
            Withheld(kind="share", why="share has no volume yet."),
            Withheld(kind="dataset", name="coco", why="Dataset coco is not bound."),
        )
    )
    coco = (
        *("dataset", "coco", "pending"),
        "It is not ready: Dataset coco is not bound. Servers start without it.",
    )
    share = make_common("share", names.COMPONENT_SHARE)
    waiting = {**share, "status": {"phase": "Pending"}}
    lost = {**share, "status": {"phase": "Lost"}}
    told = [[tell(each) for each in show(*claims, team=team)] for claims in ([], [waiting], [lost])]
    gone = "The disk behind it is gone: ask a cluster administrator."
    assert told == [
        [("share", "Team volume", state, f"{message} Servers start without it."), coco]
        for state, message in (
            ("pending", "It is not ready: share has no volume yet."),
            ("pending", "It is being made."),
            ("failed", gone),
        )
    ]


def test_a_dataset_that_nodes_cannot_mount_is_said_and_has_the_size_of_the_values() -> None:
    dataset = Dataset(name="coco", title="COCO", claim="dataset-coco", size="7Gi")
    claim = make_common("dataset-coco", names.COMPONENT_DATASET)
    team, why = make_flight(datasets=(dataset,)), "Ceph does not answer"
    (found,) = show(claim, team=team, left_out={"dataset-coco": why})
    message = "It could not be mounted: Ceph does not answer. Servers start without it."
    assert tell(found) == ("dataset", "COCO", "failed", message)
    (well,) = show(claim, team=team)
    assert (well.state, well.size, well.wanted) == ("ready", "7Gi", "7Gi")


def test_a_bucket_that_is_not_ready_waits() -> None:
    team = Team(
        name="flight", uid="u", display_name="F", groups=frozenset(), bucket=Bucket(name="b")
    )
    (bucket,) = show(team=team)
    assert (bucket.state, bucket.message) == ("pending", "It is being made.")


def test_an_answer_of_the_service_is_read() -> None:
    keys = ("total", "used", "files_total", "files_used", "read_only", "error", "at", "server")
    entry = {"team": "flight", "kind": "home", "name": "", "user": "alice", **dict.fromkeys(keys)}
    found = read_figures({"volumes": [{**entry, "used": 3, "later": "x"}]})
    assert list(found) == [("flight", "home", "")]
    assert found["flight", "home", ""].used == 3


@pytest.mark.parametrize("answer", [None, [], {}, {"volumes": 7}, {"volumes": [{}]}, "x"])
def test_an_answer_that_is_none_has_no_figures(answer: Any) -> None:
    with pytest.raises(ValueError, match="not a list of figures"):
        read_figures(answer)
