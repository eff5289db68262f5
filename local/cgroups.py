"""The control groups that hold every pod of the cluster, whatever the version of cgroups."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from local.mounts import list_mounts

NAME = "spectrum"


def prepare_cgroups() -> None:
    """Make the parent group of all pods in each hierarchy; the kubelet wants it to exist."""
    for root in _list_hierarchies():
        controllers = root / "cgroup.controllers"
        if controllers.exists() and (names := controllers.read_text().split()):
            enabled = " ".join(f"+{name}" for name in names)
            (root / "cgroup.subtree_control").write_text(enabled)
        group = root / NAME
        group.mkdir(exist_ok=True)
        # A new cpuset group of version 1 is empty, and nothing can be put in it.
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (root / setting).exists() and not (group / setting).read_text().strip():
                (group / setting).write_text((root / setting).read_text())


def list_pod_processes() -> set[int]:
    """List the processes of all containers of all pods."""
    return {pid for root in _list_hierarchies() for pid in list_processes(root / NAME)}


def list_processes(group: Path) -> set[int]:
    """List the processes of a group and of all below it; groups may vanish meanwhile."""
    pids: set[int] = set()
    for directory, _, files in os.walk(group):
        if "cgroup.procs" in files:
            pids.update(_read_processes(Path(directory) / "cgroup.procs"))
    return pids


def remove_cgroups() -> None:
    """Remove the groups, which must hold no process any more."""
    for root in _list_hierarchies():
        for directory, _, _ in os.walk(root / NAME, topdown=False):
            with suppress(FileNotFoundError):
                os.rmdir(directory)


def _read_processes(file: Path) -> list[int]:
    try:
        return [int(pid) for pid in file.read_text().split()]
    except OSError as error:
        # The second is the answer of a group that was removed after the file was opened.
        if error.errno in (errno.ENOENT, errno.ENODEV):
            return []
        raise


def _list_hierarchies() -> list[Path]:
    return [path for path, kind in list_mounts() if kind in ("cgroup", "cgroup2")]
