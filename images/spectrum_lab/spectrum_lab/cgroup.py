"""How much CPU the container has used, as its control group of version 1 or 2 counts it."""

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def read_cpu_seconds(root: Path = ROOT, membership: Path = MEMBERSHIP) -> float | None:
    """Seconds of CPU since the container began, None where nothing counts them for it alone."""
    for folder, version in _list_folders(root, membership):
        try:
            # the machine's own group counts the work of everybody
            if version == 1 and not (folder / "release_agent").exists():
                return int((folder / "cpuacct.usage").read_text()) / 1e9
            if version == 2 and (folder / "cgroup.events").exists():
                lines = (folder / "cpu.stat").read_text().splitlines()
                return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6
        except (OSError, ValueError, LookupError):
            continue
    return None


def _list_folders(root: Path, membership: Path) -> Iterator[tuple[Path, int]]:
    """Where the group may be, and the version there.

    In a container it is mounted as the root, in a namespace of the machine it is below that.
    """
    try:
        entries = [line.split(":", 2) for line in membership.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in (entry for entry in entries if len(entry) == 3):
        version = 1 if controllers else 2
        if version == 1 and "cpuacct" not in controllers.split(","):
            continue
        for mount in (root / controllers, root / "cpuacct") if version == 1 else (root,):
            yield mount / path.lstrip("/"), version
            yield mount, version
