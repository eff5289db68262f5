"""Volume record: what a person has of storage, as their home page shows it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.failures import say_reason
from spectrum_spawner.figures import Figures, FiguresByVolume
from spectrum_spawner.owner import Owner
from spectrum_spawner.quantities import quantity
from spectrum_spawner.teams import Dataset, Team, Withheld

READY, PENDING, GROWING, FAILED = "ready", "pending", "growing", "failed"

_ORDER = (
    names.COMPONENT_HOME,
    names.COMPONENT_SCRATCH,
    names.COMPONENT_SHARE,
    names.COMPONENT_DATASET,
)
_COMPONENTS = {
    names.COMPONENT_HOME: ("Home", "~"),
    names.COMPONENT_SCRATCH: ("Scratch disk", "~/scratch"),
    names.COMPONENT_SHARE: ("Team volume", "~/team"),
}
_WITHOUT = "Servers start without it."
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
    left_out: Mapping[str, str],
) -> list[Volume]:
    """The volumes of a person in a team: their own, then what the team has in common.

    `owner` is the person in that team, `claims` are those of the team's namespace, `events` are
    about any of them. `left_out` are claims that nodes could not mount, and why.
    """
    told = {event["involvedObject"]["name"]: event for event in sorted(events, key=_last_seen)}
    datasets = {dataset.claim: dataset for dataset in team.datasets}
    found = []
    for claim in claims:
        name = claim["metadata"]["name"]
        component = (claim["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT)
        if name in datasets:
            dataset = datasets[name]
            told_of = figures.get((team.name, "dataset", dataset.name), Figures())
            found.append(_make_dataset(dataset, claim, told_of, why=left_out.get(name, "")))
            continue
        if component not in _COMPONENTS or not _is_theirs(claim, component, team, owner):
            continue
        called = _annotations(claim).get(names.ANNOTATION_VOLUME, "")
        title, mount = _COMPONENTS[component]
        state, message = _find_state(claim, told.get(name, {}))
        found.append(
            Volume(
                kind=component,
                name=called,
                title=f"{title} “{called}”" if called else title,
                mount=mount,
                claim=name,
                size=_capacity(claim),
                wanted=_wanted(claim),
                state=state,
                message=message,
                figures=figures.get((team.name, component, called), Figures()),
            )
        )
    found = [*_tell_withheld(found, team.withheld), *_list_buckets(team)]
    return sorted(found, key=_place)


def _make_dataset(
    dataset: Dataset, claim: Mapping[str, Any], figures: Figures, *, why: str
) -> Volume:
    """`why` nodes could not mount it, "" if they can."""
    state, message = _find_state(claim, {})
    if why:
        state, message = FAILED, f"It could not be mounted: {why}. {_WITHOUT}"
    size = dataset.size or _capacity(claim)
    return Volume(
        kind="dataset",
        name=dataset.name,
        title=dataset.title,
        mount=f"~/datasets/{dataset.name}",
        claim=dataset.claim,
        size=size,
        wanted=size,
        state=state,
        message=message,
        figures=figures,
    )


def _tell_withheld(found: Iterable[Volume], withheld: Iterable[Withheld]) -> list[Volume]:
    """The volumes, with what servers start without: it may be there, though of no use."""
    volumes = {(volume.kind, volume.name): volume for volume in found}
    for each in withheld:
        key = (each.kind, each.name)
        known = volumes.get(key)
        if known is None:
            title, mount = (
                (each.name, f"~/datasets/{each.name}")
                if each.kind == "dataset"
                else _COMPONENTS[names.COMPONENT_SHARE]
            )
            known = Volume(kind=each.kind, name=each.name, title=title, mount=mount, state=PENDING)
        message = f"{known.message or f'It is not ready: {each.why}'} {_WITHOUT}"
        state = PENDING if known.state == READY else known.state
        volumes[key] = replace(known, state=state, message=message)
    return list(volumes.values())


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
