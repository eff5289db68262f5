"""What an idle cluster with Spectrum takes of a machine's memory.

    local/test bench, or, with the demo up and no server running: python -m tests.bench.idle_memory

Counts the daemons that `local/up` started, the container shims, and everything in pods. RSS counts
shared pages once for each process that maps them; PSS shares them out, and is what would be free
without us. Prints a table and one JSON line, with what is left without Ceph and its drivers: the
bar is one for a cluster of `local/up --no-ceph`.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from local.cgroups import list_pod_processes
from local.csi import list_fuse_servers
from local.paths import find_state
from local.processes import Daemons

BAR = 2.0  # GiB of RSS, without Ceph


def list_processes() -> dict[int, str]:
    """Names by pid of all that the local cluster runs."""
    daemons = Daemons(find_state())
    records = {name: daemons.find_record(name) for name in daemons.list_names()}
    found = {record.pid: name for name, record in records.items() if record and record.is_alive()}
    for pid in list_pod_processes():
        found[pid] = _read(pid, "comm")
    for pid in list_fuse_servers(find_state()):
        found[pid] = "ceph-fuse and rbd-fuse"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _read(int(entry.name), "comm").startswith("containerd-shim"):
            found[int(entry.name)] = "containerd-shim"
    return found


def read_memory(pid: int) -> tuple[int, int]:
    """RSS and PSS of one process, in bytes; nothing of one that has ended."""
    sizes = {"Rss": 0, "Pss": 0}
    for line in _read(pid, "smaps_rollup").splitlines():
        key, _, value = line.partition(":")
        if key in sizes:
            sizes[key] = int(value.split()[0]) * 1024
    return sizes["Rss"], sizes["Pss"]


def add_up(rows: Mapping[str, tuple[int, int]]) -> dict[str, float]:
    """RSS and PSS of all, in GiB."""
    rss, pss = (round(sum(row[i] for row in rows.values()) / 2**30, 2) for i in (0, 1))
    return {"rss_gib": rss, "pss_gib": pss}


def _read(pid: int, file: str) -> str:
    try:
        return Path("/proc", str(pid), file).read_text().strip()
    except OSError:
        return ""


def main() -> None:
    totals: dict[str, tuple[int, int]] = {}
    for pid, name in list_processes().items():
        rss, pss = read_memory(pid)
        before = totals.get(name, (0, 0))
        totals[name] = before[0] + rss, before[1] + pss
    print(f"{'MiB':<28}{'RSS':>8}{'PSS':>8}")
    for name, (rss, pss) in sorted(totals.items(), key=lambda row: -row[1][0]):
        print(f"{name:<28}{rss / 2**20:>8.0f}{pss / 2**20:>8.0f}")
    rest = {name: row for name, row in totals.items() if not name.startswith(("ceph-", "csi-"))}
    line = {"all": add_up(totals), "without_ceph": add_up(rest), "bar": BAR}
    met = line["without_ceph"]["rss_gib"] <= BAR
    print(json.dumps({"what": "idle memory", **line, "met": met}))


if __name__ == "__main__":
    main()
