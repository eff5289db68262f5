"""The control groups that hold every pod of the cluster, whatever the version of cgroups."""

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
    return {
        int(pid)
        for root in _list_hierarchies()
        for file in (root / NAME).rglob("cgroup.procs")
        for pid in file.read_text().split()
    }


def remove_cgroups() -> None:
    """Remove the groups, which must hold no process any more."""
    for root in _list_hierarchies():
        groups = [path for path in (root / NAME).rglob("*") if path.is_dir()]
        for group in sorted(groups, key=lambda path: len(path.parts), reverse=True):
            group.rmdir()
        if (root / NAME).exists():
            (root / NAME).rmdir()


def _list_hierarchies() -> list[Path]:
    return [path for path, kind in list_mounts() if kind in ("cgroup", "cgroup2")]
