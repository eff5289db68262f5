"""Pod record: what is kept of a server's pod that the API server shows. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.owner import Owner

CONTAINER = "notebook"
SHARE_FAILED = "ShareNotPrepared"  # reason of a pod that ended before its server could begin


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What hub and progress page need of a pod.

    `ended` tells that the server's container will not run again, with `exit_code` and
    `exit_reason` (e.g. `OOMKilled`, `Evicted`). `waiting` is why the container does not run
    yet (e.g. `ImagePullBackOff`), `unschedulable` the scheduler's own explanation, `disruption`
    that of whoever evicts the pod. `gpus` counts accelerators by resource name, `created` is
    the API server's time, `started` the node's since when the server's container runs, `profile` a
    name, `claims` those that it mounts. `mounting` says that its node has neither mounted its
    volumes yet nor set up its network, and `share_prepared` that it has made the team's directory
    in the share.
    """

    name: str
    uid: str
    owner: Owner
    start_id: str
    phase: str
    profile: str = ""
    created: str = ""
    started: str = ""
    gpus: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    share_prepared: bool = False
    ip: str = ""
    deleting: bool = False
    scheduled: bool = False
    mounting: bool = False
    ready: bool = False
    unschedulable: str = ""
    waiting: str = ""
    waiting_message: str = ""
    ended: bool = False
    exit_code: int | None = None
    exit_reason: str = ""
    exit_message: str = ""
    disruption: str = ""

    @property
    def holds_quota(self) -> bool:
        """Whether it counts against its namespace's quota, as all do until they are over."""
        return self.phase not in ("Succeeded", "Failed")


def trim(obj: Mapping[str, Any]) -> Pod:
    """The record of a pod as the API server gives it."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    annotations = metadata.get("annotations") or {}
    spec = obj.get("spec") or {}
    container = _find_container(status.get("containerStatuses"), CONTAINER)
    waiting, ended = _find_states(container)
    share = _find_container(status.get("initContainerStatuses"), names.SHARE_CONTAINER)
    share_waiting, share_ended = _find_states(share)
    if share_ended.get("exitCode"):
        ended = {**share_ended, "reason": SHARE_FAILED}
    scheduled = find_condition(status, "PodScheduled")
    phase = status.get("phase") or "Pending"
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        owner=Owner.of(obj),
        start_id=annotations.get(names.ANNOTATION_START_ID, ""),
        phase=phase,
        profile=annotations.get(names.ANNOTATION_PROFILE, ""),
        created=metadata.get("creationTimestamp") or "",
        started=((container.get("state") or {}).get("running") or {}).get("startedAt") or "",
        gpus=_count_gpus(spec),
        claims=_find_claims(spec),
        share_prepared=share_ended.get("exitCode") == 0,
        ip=status.get("podIP") or "",
        deleting="deletionTimestamp" in metadata,
        scheduled=scheduled.get("status") == "True",
        mounting=find_condition(status, "PodReadyToStartContainers").get("status") == "False",
        ready=bool(container.get("ready")),
        unschedulable=_text(scheduled) if scheduled.get("reason") == "Unschedulable" else "",
        # the container itself only says that it waits for the other
        waiting=(share_waiting or waiting).get("reason") or "",
        waiting_message=_text(share_waiting or waiting),
        ended=bool(ended) or phase in ("Succeeded", "Failed"),
        exit_code=ended.get("exitCode"),
        exit_reason=status.get("reason") or ended.get("reason") or "",
        exit_message=_text(status) or _text(ended),
        disruption=_text(find_condition(status, "DisruptionTarget")),
    )


def _find_container(statuses: Iterable[Mapping[str, Any]] | None, name: str) -> Mapping[str, Any]:
    return next((status for status in statuses or [] if status.get("name") == name), {})


def _find_states(
    container: Mapping[str, Any],
) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What it waits for and how it ended: both empty while it runs."""
    state = container.get("state") or {}
    return state.get("waiting") or {}, state.get("terminated") or {}


def _find_claims(spec: Mapping[str, Any]) -> tuple[str, ...]:
    sources = (volume.get("persistentVolumeClaim") for volume in spec.get("volumes") or [])
    return tuple(source["claimName"] for source in sources if source)


def _count_gpus(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod's containers hold of extended resources, which have a domain in their names."""
    found: Counter[str] = Counter()
    for container in spec.get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        found.update({key: int(n) for key, n in limits.items() if "/" in key and n.isdecimal()})
    return dict(found)


def _text(part: Mapping[str, Any], *, longest: int = 800) -> str:
    return (part.get("message") or "")[:longest]
