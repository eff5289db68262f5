"""A server's pod: how it is made, and what is kept of one that runs. Pure."""

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names, storage
from spectrum_spawner.choice import Choice
from spectrum_spawner.conditions import find_condition
from spectrum_spawner.owner import Owner
from spectrum_spawner.profiles import Profile

CONTAINER = "notebook"
USER_ID = 1000
GROUP_ID = 1000
GRACE = 30  # seconds that a server may take to end; Jupyter needs about one
GPU_TAINT = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """What hub and progress page need of a pod.

    `ended` tells that the server's container will not run again, with `exit_code` and
    `exit_reason` (e.g. `OOMKilled`, `Evicted`). `waiting` is why the container does not run
    yet (e.g. `ImagePullBackOff`), `unschedulable` the scheduler's own explanation, `disruption`
    that of whoever evicts the pod. `gpus` counts accelerators by resource name, `created` is
    the API server's time, `profile` a name.
    """

    name: str
    uid: str
    owner: Owner
    start_id: str
    phase: str
    profile: str = ""
    created: str = ""
    gpus: Mapping[str, int] = field(default_factory=dict)
    ip: str = ""
    deleting: bool = False
    scheduled: bool = False
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
    container: Mapping[str, Any] = next(
        (c for c in status.get("containerStatuses") or [] if c.get("name") == CONTAINER), {}
    )
    state = container.get("state") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
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
        gpus=_count_gpus(obj.get("spec") or {}),
        ip=status.get("podIP") or "",
        deleting="deletionTimestamp" in metadata,
        scheduled=scheduled.get("status") == "True",
        ready=bool(container.get("ready")),
        unschedulable=_text(scheduled) if scheduled.get("reason") == "Unschedulable" else "",
        waiting=waiting.get("reason") or "",
        waiting_message=_text(waiting),
        ended=bool(ended) or phase in ("Succeeded", "Failed"),
        exit_code=ended.get("exitCode"),
        exit_reason=status.get("reason") or ended.get("reason") or "",
        exit_message=_text(status) or _text(ended),
        disruption=_text(find_condition(status, "DisruptionTarget")),
    )


def _count_gpus(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod's containers hold of extended resources, which have a domain in their names."""
    found: Counter[str] = Counter()
    for container in spec.get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        found.update({key: int(n) for key, n in limits.items() if "/" in key and n.isdecimal()})
    return dict(found)


def make_server_pod(
    base: Mapping[str, Any],
    *,
    owner: Owner,
    team_uid: str,
    gid: int | None,
    choice: Choice,
    claim: str,
    start_id: str,
) -> dict[str, Any]:
    """The whole manifest from KubeSpawner's `base` (name, image, command, environment).

    Passes pod security `restricted`. `gid` is the team's group, the only supplemental one.
    """
    pod = copy.deepcopy(dict(base))
    profile = choice.profile
    metadata, spec = pod["metadata"], pod["spec"]
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        **owner.labels,
        names.LABEL_COMPONENT: names.COMPONENT_SERVER,
        names.LABEL_PROFILE: names.slug(profile.name),
    }
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        **owner.annotations,
        names.ANNOTATION_TEAM_UID: team_uid,
        names.ANNOTATION_PROFILE: profile.name,
        names.ANNOTATION_START_ID: start_id,
    }
    spec.update(
        {
            # a server that ended is over: restarted in place it would have lost its kernels
            # and nobody would be told why
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": GRACE,
            "serviceAccountName": names.SERVER_SERVICE_ACCOUNT,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": GROUP_ID,
                "supplementalGroups": [] if gid is None else [gid],
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                *(spec.get("volumes") or []),
                *storage.make_volumes(claim, shared_memory=profile.shared_memory),
            ],
            **make_placement(profile),
        }
    )
    container = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    container.update(
        {
            "image": choice.image.image,
            "imagePullPolicy": choice.image.pull_policy,
            "env": make_environment(container.get("env") or [], gpu=profile.gpu),
            "resources": make_resources(profile),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                *(container.get("volumeMounts") or []),
                *storage.make_mounts(shared_memory=profile.shared_memory),
            ],
        }
    )
    return pod


def make_resources(profile: Profile) -> dict[str, dict[str, str]]:
    """Requests and limits as quantities; accelerators only ever as a limit."""
    requests = _quantities(profile.cpu_guarantee, profile.memory_guarantee)
    limits = _quantities(profile.cpu_limit, profile.memory_limit)
    if profile.gpu:
        limits[profile.gpu_resource] = str(profile.gpu)
    return {"requests": requests, "limits": limits}


def make_placement(profile: Profile) -> dict[str, Any]:
    """On which nodes the pod may run: parts of a pod's spec, left out where there is nothing."""
    placement: dict[str, Any] = {}
    if profile.node_selector:
        placement["nodeSelector"] = dict(profile.node_selector)
    tolerations = [dict(toleration) for toleration in profile.tolerations]
    if profile.gpu:
        # clusters often keep GPU nodes free from other work by this taint
        tolerations.append({"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"})
    if tolerations:
        placement["tolerations"] = tolerations
    if profile.gpu and profile.gpu_product:
        wanted = {
            "key": names.GPU_PRODUCT_LABEL,
            "operator": "In",
            "values": [profile.gpu_product],
        }
        placement["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [wanted]}]
                }
            }
        }
    return placement


def make_environment(env: list[dict[str, Any]], *, gpu: int) -> list[dict[str, Any]]:
    """The container's environment, in which GPUs are visible only to those who asked for some.

    The variable comes last and replaces any other source, since images and configuration may
    set it to `all`, and then the NVIDIA runtime hands out every GPU of the node unasked.
    """
    kept = [entry for entry in env if entry["name"] not in (VISIBLE_DEVICES, "NB_UMASK")]
    kept.append({"name": "NB_UMASK", "value": "002"})
    if not gpu:
        kept.append({"name": VISIBLE_DEVICES, "value": "void"})
    return kept


def _quantities(cpu: float | None, memory: int | None) -> dict[str, str]:
    found = {}
    if cpu is not None:
        found["cpu"] = f"{round(cpu * 1000)}m" if cpu % 1 else str(int(cpu))
    if memory is not None:
        found["memory"] = str(memory)
    return found


def _text(part: Mapping[str, Any], *, longest: int = 400) -> str:
    return (part.get("message") or "")[:longest]
