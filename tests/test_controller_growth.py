"""Which claims grow, which stay, and what is said of them."""

from decimal import Decimal
from typing import Any

import pytest

from spectrum_spawner.controller.growth import (
    Plan,
    Step,
    judge_steps,
    name_some,
    plan_growth,
    room_of,
)
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.volumes import StorageClass, VolumeClaim

GI = Decimal(2**30)
CLASSES = [
    StorageClass(name="rook-cephfs", expandable=True),
    StorageClass(name="fixed"),
]
SIZES = {"home": "20Gi", "share": "50Gi"}


def make_claim(name: str = "home-alice", **fields: Any) -> VolumeClaim:
    """A home of 10Gi, bound and at rest."""
    standard: dict[str, Any] = {
        "namespace": "spectrum-flight",
        "uid": f"uid-{name}",
        "component": "home",
        "size": "10Gi",
        "capacity": "10Gi",
        "storage_class": "rook-cephfs",
        "phase": "Bound",
    }
    return VolumeClaim(name=name, **{**standard, **fields})


def plan(*claims: VolumeClaim, room: dict[str, Decimal] | None = None) -> Plan:
    return plan_growth(claims, SIZES, classes=CLASSES, room=room or {})


def problem(reason: str, message: str) -> Plan:
    return Plan(steps=(), findings=(Finding(reason=reason, message=message),))


def note(reason: str, message: str) -> Plan:
    found = Finding(reason=reason, message=message, is_problem=False)
    return Plan(steps=(), findings=(found,))


NOTHING = Plan(steps=(), findings=())


def test_a_claim_that_is_smaller_than_wanted_grows() -> None:
    claim = make_claim()
    assert plan(claim) == Plan(steps=(Step(claim=claim, size="20Gi"),), findings=())


def test_sizes_are_compared_by_value() -> None:
    assert plan(make_claim(size="20480Mi", capacity="20Gi")) == NOTHING


LEFT_ALONE = {
    "a home of the wanted size": make_claim(size="20Gi", capacity="20Gi"),
    "a home that got more than it asked for": make_claim(size="20Gi", capacity="21Gi"),
    "a claim that is not bound, which cannot change": make_claim(phase="Pending", capacity=""),
    "a claim that is being deleted": make_claim(deleting=True),
    "a dataset": make_claim(component="dataset"),
    "a scratch disk where none are offered": make_claim(component="scratch"),
}


@pytest.mark.parametrize("what", LEFT_ALONE)
def test_nothing_is_done_about(what: str) -> None:
    assert plan(LEFT_ALONE[what]) == NOTHING


SAID = {
    "a size that is on its way": (
        make_claim(size="20Gi"),
        note("Growing", "home-alice is growing to 20Gi."),
    ),
    "a file system that waits for a server": (
        make_claim(size="20Gi", waits_for_mount=True),
        note(
            "Growing",
            "home-alice is growing to 20Gi, with the next server that mounts what has grown.",
        ),
    ),
    "a larger one": (
        make_claim(size="30Gi", capacity="30Gi"),
        note("Smaller", "1 home is larger than 20Gi and stays as it is."),
    ),
    "a class that lets nothing grow": (
        make_claim(storage_class="fixed"),
        problem(
            "NotExpandable",
            "StorageClass fixed does not let volumes grow to 20Gi: home-alice stays as it is.",
        ),
    ),
    "a class that is gone": (
        make_claim(storage_class="was-here"),
        problem(
            "NotExpandable",
            "StorageClass was-here does not let volumes grow to 20Gi: home-alice stays as it is.",
        ),
    ),
    "a volume that is lost": (
        make_claim(phase="Lost"),
        problem("Lost", "home-alice has lost the volume behind."),
    ),
    "a size that the storage will never give": (
        make_claim(size="20Gi", infeasible=True),
        problem(
            "Infeasible",
            "The storage cannot give home-alice the size that was asked for, 20Gi.",
        ),
    ),
}


@pytest.mark.parametrize("what", SAID)
def test_it_is_said_of(what: str) -> None:
    claim, said = SAID[what]
    assert plan(claim) == said


def test_one_sentence_speaks_of_all_of_a_kind() -> None:
    large = [make_claim(f"home-{n}", size="30Gi", capacity="30Gi") for n in range(3)]
    fixed = [make_claim(f"home-x{n}", storage_class="fixed") for n in range(5)]
    assert [finding.message for finding in plan(*large, *fixed).findings] == [
        "3 homes are larger than 20Gi and stay as they are.",
        "StorageClass fixed does not let volumes grow to 20Gi: "
        "home-x0, home-x1, home-x2 and 2 more stay as they are.",
    ]


def test_a_quota_lets_grow_what_it_has_room_for_and_names_the_others() -> None:
    share = make_claim("share", component="share")
    homes = [make_claim("home-alice"), make_claim("home-bob", size="15Gi", capacity="15Gi")]
    found = plan(share, *homes, room={"rook-cephfs": 9 * GI})
    assert found == Plan(
        steps=(Step(claim=homes[1], size="20Gi"),),
        findings=(
            Finding(
                reason="QuotaExceeded",
                message="The quota of StorageClass rook-cephfs has no room to grow to 20Gi: "
                "home-alice stays as it is.",
            ),
            Finding(
                reason="QuotaExceeded",
                message="The quota of StorageClass rook-cephfs has no room to grow to 50Gi: "
                "share stays as it is.",
            ),
        ),
    )


def test_room_is_given_away_once() -> None:
    homes = [make_claim(f"home-{n}") for n in range(3)]
    found = plan(*homes, room={"rook-cephfs": 25 * GI})
    assert [step.claim.name for step in found.steps] == ["home-0", "home-1"]


def test_a_size_that_was_a_mistake_is_taken_back_where_it_was_never_given() -> None:
    claim = make_claim(size="10Ti", infeasible=True)
    assert plan(claim) == Plan(steps=(Step(claim=claim, size="20Gi"),), findings=())


def test_a_size_is_never_taken_back_below_what_is_there() -> None:
    claim = make_claim(size="10Ti", capacity="30Gi", infeasible=True)
    least = str(30 * 2**30 + 2**20)
    assert plan(claim) == Plan(steps=(Step(claim=claim, size=least),), findings=())
    settled = make_claim(size=least, capacity="30Gi", infeasible=True)
    assert plan(settled).steps == ()


def test_taking_back_needs_neither_room_nor_a_class_that_expands() -> None:
    claim = make_claim(size="10Ti", storage_class="fixed", infeasible=True)
    assert plan(claim, room={"fixed": Decimal(0)}).steps == (Step(claim=claim, size="20Gi"),)


def test_steps_that_were_taken_are_told_together() -> None:
    steps = [Step(claim=make_claim(name), size="20Gi") for name in ("home-alice", "home-bob")]
    assert list(judge_steps(steps)) == [
        Finding(
            reason="Growing",
            message="home-alice, home-bob are growing to 20Gi.",
            is_problem=False,
        )
    ]


def test_room_is_what_kubernetes_counts() -> None:
    key = "rook-cephfs.storageclass.storage.k8s.io/requests.storage"
    claims = "rook-cephfs.storageclass.storage.k8s.io/persistentvolumeclaims"
    uncounted = "fixed.storageclass.storage.k8s.io/requests.storage"
    status = {"hard": {key: "1Ti", claims: "5", uncounted: "1Gi"}, "used": {key: "1000Gi"}}
    assert room_of({"status": status}) == {"rook-cephfs": 24 * GI}
    assert room_of({}) == {}


@pytest.mark.parametrize(("number", "text"), [(1, "a"), (3, "a, b, c"), (4, "a, b, c and 1 more")])
def test_a_sentence_names_three_at_most(number: int, text: str) -> None:
    assert name_some(["a", "b", "c", "d"][:number]) == text
