"""Volume record: what a person has of storage, as their home page shows it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.failures import say_reason
from spectrum_spawner.figures import Figures, FiguresByVolume
from spectrum_spawner.owner import Owner
from spectrum_spawner.quantities import quantity
from spectrum_spawner.teams import Team

READY, PENDING, GROWING, FAILED = "ready", "pending", "growing", "failed"

_ORDER = (names.COMPONENT_HOME, names.COMPONENT_SCRATCH, names.COMPONENT_SHARE)
_COMPONENTS = {
    names.COMPONENT_HOME: ("Home", "~"),
    names.COMPONENT_SCRATCH: ("Scratch disk", "~/scratch"),
    names.COMPONENT_SHARE: ("Team volume", "~/team"),
}
_WHY_PENDING = ("ProvisioningFailed", "FailedBinding")
_RESIZE_ERRORS = ("ControllerResizeError", "NodeResizeError")


@dataclass(frozen=True, kw_only=True)
class Volume:
    """One volume of a person or of a team of theirs.

    `kind` is home, scratch, share, dataset or bucket; `mount` is where servers see it. `size` is
    what it has and `wanted` what it is to have, as quantities. `state` is ready, pending, growing
    or failed, `message` a sentence about it or "". `claim` is what an administrator looks for.
    """

    kind: str
    name: str
    title: str
    mount: str
    claim: str = ""
    size: str = ""
    wanted: str = ""
    state: str = READY
    message: str = ""
    figures: Figures = field(default_factory=Figures)

    def as_dict(self, team: Team) -> dict[str, Any]:
        record = {key: value for key, value in asdict(self).items() if key != "figures"}
        named = {"team": team.name, "team_title": team.display_name}
        return {**named, **record, **asdict(self.figures)}


def list_volumes(
    team: Team,
    owner: Owner,
    claims: Iterable[Mapping[str, Any]],
    *,
    events: Iterable[Mapping[str, Any]] = (),
    figures: FiguresByVolume,
) -> list[Volume]:
    """The volumes of a person in a team: their own, then what the team has in common.

    `owner` is the person in that team, `claims` are those of the team's namespace, `events` are
    about any of them.
    """
    told = {event["involvedObject"]["name"]: event for event in sorted(events, key=_last_seen)}
    datasets = {dataset.claim: dataset for dataset in team.datasets}
    found = []
    for claim in claims:
        name = claim["metadata"]["name"]
        component = (claim["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT)
        if name in datasets:
            kind, called = "dataset", datasets[name].name
            title, mount = datasets[name].title, f"~/datasets/{called}"
        elif component in _COMPONENTS and _is_theirs(claim, component, team, owner):
            kind, called = component, _annotations(claim).get(names.ANNOTATION_VOLUME, "")
            title, mount = _COMPONENTS[component]
            title = f"{title} “{called}”" if called else title
        else:
            continue
        state, message = _find_state(claim, told.get(name, {}))
        found.append(
            Volume(
                kind=kind,
                name=called,
                title=title,
                mount=mount,
                claim=name,
                size=_capacity(claim),
                wanted=_wanted(claim),
                state=state,
                message=message,
                figures=figures.get((team.name, kind, called), Figures()),
            )
        )
    return [*sorted(found, key=_place), *_list_buckets(team)]


def is_pending(claim: Mapping[str, Any]) -> bool:
    return ((claim.get("status") or {}).get("phase") or "Pending") == "Pending"


def _is_theirs(claim: Mapping[str, Any], component: str, team: Team, owner: Owner) -> bool:
    found = Owner.of(claim)
    if component == names.COMPONENT_SHARE:
        return (found.hub, found.team) == (owner.hub, team.name)
    return owner.has_claim(found)


def _list_buckets(team: Team) -> list[Volume]:
    if team.bucket is None:
        return []
    name, ready = team.bucket.name, team.bucket.ready
    message = "" if ready else "It is being made."
    state = READY if ready else PENDING
    mount = f"s3://{name}"
    return [
        Volume(kind="bucket", name=name, title="Bucket", mount=mount, state=state, message=message)
    ]


def _find_state(claim: Mapping[str, Any], event: Mapping[str, Any]) -> tuple[str, str]:
    """State and message of a claim; `event` is the last one about it, or empty."""
    status = claim.get("status") or {}
    if "deletionTimestamp" in claim["metadata"]:
        return FAILED, "It is being deleted: ask a cluster administrator."
    if status.get("phase") == "Lost":
        return FAILED, "The disk behind it is gone: ask a cluster administrator."
    if is_pending(claim):
        return PENDING, _why_pending(claim, event)
    if "FileSystemResizePending" in _conditions(status):
        return GROWING, "The next server that mounts it sees it grown."
    if quantity(_capacity(claim) or "0") < quantity(_wanted(claim)):
        return _growing(claim, status)
    return READY, ""


def _growing(claim: Mapping[str, Any], status: Mapping[str, Any]) -> tuple[str, str]:
    for kind in _RESIZE_ERRORS:
        if kind in _conditions(status):
            why = find_condition(status, kind).get("message") or ""
            return FAILED, f"It cannot grow to {_wanted(claim)}: {_say(claim, why)}."
    return GROWING, ""


def _why_pending(claim: Mapping[str, Any], event: Mapping[str, Any]) -> str:
    if event.get("reason") in _WHY_PENDING:
        return f"It cannot be made yet: {_say(claim, event.get('message') or '')}."
    if event.get("reason") == "WaitForFirstConsumer":
        return "It is made when the first server uses it."
    return "It is being made."


def _say(claim: Mapping[str, Any], message: str) -> str:
    storage_class = claim["spec"].get("storageClassName") or ""
    said = say_reason(message, is_ceph="ceph" in f"{storage_class} {message}")
    return said.rstrip(".")


def _conditions(status: Mapping[str, Any]) -> set[str]:
    conditions = status.get("conditions") or []
    return {each["type"] for each in conditions if each.get("status") == "True"}


def _capacity(claim: Mapping[str, Any]) -> str:
    return ((claim.get("status") or {}).get("capacity") or {}).get("storage", "")


def _wanted(claim: Mapping[str, Any]) -> str:
    return claim["spec"]["resources"]["requests"]["storage"]


def _annotations(claim: Mapping[str, Any]) -> Mapping[str, str]:
    return claim["metadata"].get("annotations") or {}


def _last_seen(event: Mapping[str, Any]) -> str:
    return event.get("lastTimestamp") or event["metadata"].get("creationTimestamp") or ""


def _place(volume: Volume) -> tuple[int, str]:
    place = _ORDER.index(volume.kind) if volume.kind in _ORDER else len(_ORDER)
    return place, volume.title.casefold()
