"""Which claims are to grow, and what there is to say of those that do not. Pure.

Sizes follow what is wanted only upwards: no file system of ours shrinks. What can be taken back
is a size that the storage never gave.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.volumes import StorageClass, VolumeClaim
from spectrum_spawner.quantities import quantity

SHOWN = 3  # names in a sentence; of more there is a number
# A size that is taken back has to stay above the one that is there.
TAKE_BACK_STEP = 2**20
NAMES = {
    names.COMPONENT_HOME: ("home", "homes"),
    names.COMPONENT_SHARE: ("share", "shares"),
    names.COMPONENT_SCRATCH: ("scratch disk", "scratch disks"),
}
_QUOTA_SUFFIX = names.storage_quota_key("", "requests.storage")


@dataclass(frozen=True, kw_only=True)
class Step:
    """A claim that is to ask for another size, such as `20Gi`."""

    claim: VolumeClaim
    size: str

    @property
    def more(self) -> Decimal:
        """Bytes that it asks for beyond what it asked for before."""
        return quantity(self.size) - quantity(self.claim.size)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Steps to take, and what is to be said of the claims, those of the steps apart."""

    steps: tuple[Step, ...]
    findings: tuple[Finding, ...]


def plan_growth(
    claims: Iterable[VolumeClaim],
    sizes: Mapping[str, str],
    *,
    classes: Iterable[StorageClass],
    room: Mapping[str, Decimal],
) -> Plan:
    """What to do about a team's own claims. `sizes` are those that are wanted, by component;
    `room` is what the team's quota leaves, in bytes by storage class.

    A class that `room` does not name has no limit. What is not bound cannot change.
    """
    expandable = {c.name for c in classes if c.expandable}
    left = dict(room)
    steps, said = [], _Said()
    for claim in sorted(claims, key=lambda claim: claim.name):
        size = sizes.get(claim.component)
        if size is None or claim.deleting:
            continue
        # of a share it is said where it is offered
        if claim.phase == "Lost" and claim.component != names.COMPONENT_SHARE:
            said.add("Lost", claim)
        if claim.phase != "Bound":
            continue
        step = _plan(claim, size)
        if step is None:
            if what := _judge(claim, size):
                said.add(what, claim, size if what == "Smaller" else claim.size)
        elif step.more > 0 and claim.storage_class not in expandable:
            said.add("NotExpandable", claim, size)
        elif step.more > left.get(claim.storage_class, step.more):
            said.add("QuotaExceeded", claim, size)
        else:
            steps.append(step)
            if claim.storage_class in left:
                left[claim.storage_class] -= step.more
    return Plan(steps=tuple(steps), findings=tuple(said.findings()))


def room_of(quota: Mapping[str, Any]) -> dict[str, Decimal]:
    """Bytes that a ResourceQuota leaves for claims, by storage class, as it counts now."""
    status = quota.get("status") or {}
    used = status.get("used") or {}
    return {
        key.removesuffix(_QUOTA_SUFFIX): quantity(hard) - quantity(used[key])
        for key, hard in (status.get("hard") or {}).items()
        if key.endswith(_QUOTA_SUFFIX) and key in used
    }


def judge_steps(steps: Iterable[Step]) -> Iterator[Finding]:
    """What is to be said of steps that were taken."""
    said = _Said()
    for step in steps:
        said.add("Growing", step.claim, step.size)
    return said.findings()


def _plan(claim: VolumeClaim, size: str) -> Step | None:
    """Upwards to the size that is wanted; downwards only from one that there will never be."""
    asked, wanted = quantity(claim.size), quantity(size)
    if asked < wanted:
        return Step(claim=claim, size=size)
    if not claim.infeasible or asked == wanted:
        return None
    least = quantity(claim.capacity or "0") + TAKE_BACK_STEP
    if wanted >= least:
        return Step(claim=claim, size=size)
    return Step(claim=claim, size=str(int(least))) if least < asked else None


def _judge(claim: VolumeClaim, size: str) -> str:
    """What is worth saying of a claim that stays as it is, "" if nothing."""
    asked = quantity(claim.size)
    if claim.infeasible:
        return "Infeasible"
    if claim.waits_for_mount:
        return "WaitingForMount"
    if quantity(claim.capacity or "0") < asked:
        return "Growing"
    return "Smaller" if asked > quantity(size) else ""


class _Said:
    """Claims by what is to be said of them: one sentence for all of a kind."""

    def __init__(self) -> None:
        self._claims: defaultdict[tuple[str, str, str, str], list[str]] = defaultdict(list)

    def add(self, what: str, claim: VolumeClaim, size: str = "") -> None:
        self._claims[what, claim.component, claim.storage_class, size].append(claim.name)

    def findings(self) -> Iterator[Finding]:
        for (what, component, storage_class, size), claims in self._claims.items():
            reason, is_problem, sentence = _SENTENCES[what]
            is_one = len(claims) == 1
            text = sentence.format(
                claims=name_some(claims),
                number=len(claims),
                kind=NAMES[component][not is_one],
                size=size,
                storage_class=storage_class or "of no name",
                are="is" if is_one else "are",
                have="has" if is_one else "have",
                stay="stays as it is" if is_one else "stay as they are",
            )
            yield Finding(reason=reason, message=text, is_problem=is_problem)


def name_some(claims: list[str]) -> str:
    """`a`, `a, b` or `a, b, c and 4 more`."""
    shown = ", ".join(claims[:SHOWN])
    return f"{shown} and {len(claims) - SHOWN} more" if len(claims) > SHOWN else shown


# what -> (reason, whether it is a problem, sentence)
_SENTENCES = {
    "Lost": ("Lost", True, "{claims} {have} lost the volume behind."),
    "NotExpandable": (
        "NotExpandable",
        True,
        "StorageClass {storage_class} does not let volumes grow to {size}: {claims} {stay}.",
    ),
    "QuotaExceeded": (
        "QuotaExceeded",
        True,
        "The quota of StorageClass {storage_class} has no room to grow to {size}: {claims} {stay}.",
    ),
    "Infeasible": (
        "Infeasible",
        True,
        "The storage cannot give {claims} the size that was asked for, {size}.",
    ),
    "Growing": ("Growing", False, "{claims} {are} growing to {size}."),
    "WaitingForMount": (
        "Growing",
        False,
        "{claims} {are} growing to {size}, with the next server that mounts what has grown.",
    ),
    "Smaller": ("Smaller", False, "{number} {kind} {are} larger than {size} and {stay}."),
}
