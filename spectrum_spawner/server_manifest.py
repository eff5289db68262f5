"""A server's pod as it is made: the whole manifest, from records. Pure."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from spectrum_spawner import accounts, mounts, names
from spectrum_spawner.choice import Choice
from spectrum_spawner.mounts import Mount
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import CONTAINER
from spectrum_spawner.profiles import TENSORBOARD, Profile
from spectrum_spawner.share import make_share_container
from spectrum_spawner.teams import Team

USER_ID = 1000
GROUP_ID = 1000
GRACE = 30  # seconds that a server may take to end; Jupyter needs about one
GPU_TAINT = "nvidia.com/gpu"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
POD_UID = "SPECTRUM_POD_UID"
COLLABORATIVE = "SPECTRUM_COLLABORATIVE"
TENSORBOARD_COMMAND = "spectrum-tensorboard"  # of our images


def make_server_pod(
    base: Mapping[str, Any],
    *,
    owner: Owner,
    choice: Choice,
    mounted: Sequence[Mount],
    service_url: str,
    start_id: str,
) -> dict[str, Any]:
    """The whole manifest from KubeSpawner's `base` (name, image, command, environment).

    Passes pod security `restricted`. The team's group is the only supplemental one. `service_url`
    is where the server finds the service, "" for nowhere.
    """
    pod = copy.deepcopy(dict(base))
    profile, team = choice.profile, choice.team
    memory, keep_free = profile.shared_memory, team.lacks_share
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
        names.ANNOTATION_TEAM_UID: team.uid,
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
                **make_groups(team.gid),
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                *(spec.get("volumes") or []),
                *mounts.make_volumes(mounted, shared_memory=memory, keep_share_free=keep_free),
            ],
            **make_placement(profile),
        }
    )
    container = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    container.update(
        {
            "image": choice.image.image,
            **({"args": [TENSORBOARD_COMMAND]} if profile.kind == TENSORBOARD else {}),
            "imagePullPolicy": choice.image.pull_policy,
            "env": make_environment(
                container.get("env") or [],
                mounted,
                service_url=service_url,
                gpu=profile.gpu,
                collaborative=accounts.is_account(owner.user),
            ),
            "envFrom": [*(container.get("envFrom") or []), *make_bucket_keys(team)],
            "resources": make_resources(profile),
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                *(container.get("volumeMounts") or []),
                *mounts.make_mounts(mounted, shared_memory=memory, keep_share_free=keep_free),
            ],
        }
    )
    if needs_share(mounted, team):
        assert team.gid is not None
        spec["initContainers"] = [
            *(spec.get("initContainers") or []),
            make_share_container(container, gid=team.gid),
        ]
    return pod


def make_groups(gid: int | None) -> dict[str, Any]:
    """Parts of a pod's security context: whom its processes and new volumes belong to.

    Drivers make a volume's root for root alone, hence a group for it. Only a root that has
    another one is changed: else each start would walk through every file.
    """
    if gid is None:
        return {"supplementalGroups": []}
    return {
        "supplementalGroups": [gid],
        "fsGroup": gid,
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def make_bucket_keys(team: Team) -> list[dict[str, Any]]:
    """Where the environment gets the keys of the team's bucket, if it has one.

    A Secret of that name that is not of our making stays out of servers: the team's status knows
    no bucket then.
    """
    if team.bucket is None:
        return []
    return [{"secretRef": {"name": names.BUCKET_SECRET, "optional": True}}]


def needs_share(mounted: Sequence[Mount], team: Team) -> bool:
    """Whether the server mounts a share in which nobody has made the team's directory yet."""
    is_prepared = team.share is not None and team.share.prepared
    return not is_prepared and any(mount.kind == "share" for mount in mounted)


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


def make_environment(
    env: list[dict[str, Any]],
    mounted: Sequence[Mount],
    *,
    service_url: str,
    gpu: int,
    collaborative: bool = False,
) -> list[dict[str, Any]]:
    """The container's environment: ours replaces any other source of the same variables.

    GPUs are visible only to those who asked for some: images and configuration may set the
    variable to `all`, and then the NVIDIA runtime hands out every GPU of the node unasked.
    """
    ours = {"NB_UMASK": "002", "SPECTRUM_VOLUMES": mounts.list_entries(mounted)}
    if collaborative:
        ours[COLLABORATIVE] = "1"  # people edit documents together
    if service_url:
        ours["SPECTRUM_URL"] = service_url
    if not gpu:
        ours[VISIBLE_DEVICES] = "void"
    replaced = {VISIBLE_DEVICES, POD_UID, COLLABORATIVE, *ours}
    kept = [entry for entry in env if entry["name"] not in replaced]
    # of which run of the server its reports are
    uid = {"name": POD_UID, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    return [*kept, *({"name": name, "value": value} for name, value in ours.items()), uid]


def _quantities(cpu: float | None, memory: int | None) -> dict[str, str]:
    found = {}
    if cpu is not None:
        found["cpu"] = f"{round(cpu * 1000)}m" if cpu % 1 else str(int(cpu))
    if memory is not None:
        found["memory"] = str(memory)
    return found
