"""Mount record: a claim in a server's pod, and where the server sees it. Pure builders."""

import json
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.teams import Team

HOME = "/home/jovyan"
DATASETS = f"{HOME}/datasets"
SHARED_MEMORY = "/dev/shm"
TEMPORARY = "/tmp"
# directory in a share: the root of a volume is everybody's
TEAM_DIRECTORY = "team"

_SCRATCH = f"{HOME}/scratch"
_SHARE = f"{HOME}/team"


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One claim of a pod. `kind` is home, share, scratch or dataset; of the latter two there may
    be several, told apart by `name`, which is "" for the others.
    """

    kind: str
    claim: str
    path: str
    name: str = ""

    @property
    def volume(self) -> str:
        """Name of the volume in the pod."""
        return names.dataset_claim(self.name) if self.kind == "dataset" else self.kind

    @property
    def title(self) -> str:
        """What a sentence calls it, with the claim by which an administrator finds it."""
        titles = {
            "home": "your home",
            "share": "the team volume",
            "scratch": f"your scratch disk “{self.name}”",
            "dataset": f"dataset “{self.name}”",
        }
        return f"{titles[self.kind]} (claim {self.claim})"

    @property
    def entry(self) -> dict[str, str]:
        """What the server is told of it, in SPECTRUM_VOLUMES."""
        return {"kind": self.kind, "name": self.name, "path": self.path}


def mounts_of(
    team: Team,
    *,
    home: str,
    scratch: str = "",
    disk: str = "",
    left_out: Container[str] = (),
) -> list[Mount]:
    """The claims that a server in a team mounts, outer paths first.

    `home` is a claim, and so is `scratch`, of the disk that its owner calls `disk`; "" is none.
    `left_out` are claims of datasets without which it starts for now.
    """
    mounts = [Mount(kind="home", claim=home, path=HOME)]
    # without a group of the team there is nobody to share with
    if team.share is not None and team.gid is not None:
        mounts.append(Mount(kind="share", claim=team.share.claim, path=_SHARE))
    if scratch:
        mounts.append(Mount(kind="scratch", claim=scratch, path=_SCRATCH, name=disk))
    mounts += [
        Mount(kind="dataset", claim=each.claim, path=f"{DATASETS}/{each.name}", name=each.name)
        for each in team.datasets
        if each.claim not in left_out
    ]
    return mounts


def make_volumes(
    mounts: Sequence[Mount], *, shared_memory: int, keep_share_free: bool = False
) -> list[dict[str, Any]]:
    """Volumes of a pod: claims, a place for temporary files, and shared memory.

    Shared memory is in bytes, and counted in the memory limit. With `keep_share_free` nobody can
    write where the share would be: it would be hidden once that is there.
    """
    volumes: list[dict[str, Any]] = [
        {"name": mount.volume, "persistentVolumeClaim": _make_source(mount)} for mount in mounts
    ]
    # Sockets, sqlite stores and the like: they neither need a home with room nor one that locks.
    volumes.append({"name": "temporary", "emptyDir": {}})
    if _has_datasets(mounts):
        # Their mount points are not made in the home; too small for data that would be lost.
        volumes.append({"name": "datasets", "emptyDir": _in_memory("1Mi")})
    if keep_share_free:
        volumes.append({"name": "no-share", "emptyDir": _in_memory("1Mi")})
    if shared_memory:
        volumes.append({"name": "shared-memory", "emptyDir": _in_memory(str(shared_memory))})
    return volumes


def make_mounts(
    mounts: Sequence[Mount], *, shared_memory: int, keep_share_free: bool = False
) -> list[dict[str, Any]]:
    """Where a container sees what `make_volumes` gave the pod."""
    made: list[dict[str, Any]] = [_make_mount(mount) for mount in mounts if mount.kind != "dataset"]
    made.append({"name": "temporary", "mountPath": TEMPORARY})
    if _has_datasets(mounts):
        made.append({"name": "datasets", "mountPath": DATASETS})
    made += [_make_mount(mount) for mount in mounts if mount.kind == "dataset"]
    if keep_share_free:
        made.append({"name": "no-share", "mountPath": _SHARE, "readOnly": True})
    if shared_memory:
        made.append({"name": "shared-memory", "mountPath": SHARED_MEMORY})
    return made


def list_entries(mounts: Sequence[Mount]) -> str:
    """The value of SPECTRUM_VOLUMES: a JSON list of what is mounted where."""
    return json.dumps([mount.entry for mount in mounts])


def _make_source(mount: Mount) -> dict[str, Any]:
    # of what is mounted read-only, the kubelet also leaves the owners alone
    return {"claimName": mount.claim, **({"readOnly": True} if mount.kind == "dataset" else {})}


def _make_mount(mount: Mount) -> dict[str, Any]:
    parts: dict[str, Any] = {"name": mount.volume, "mountPath": mount.path}
    if mount.kind == "share":
        parts["subPath"] = TEAM_DIRECTORY
    if mount.kind == "dataset":
        parts["readOnly"] = True
    return parts


def _has_datasets(mounts: Sequence[Mount]) -> bool:
    return any(mount.kind == "dataset" for mount in mounts)


def _in_memory(size: str) -> dict[str, str]:
    return {"medium": "Memory", "sizeLimit": size}
