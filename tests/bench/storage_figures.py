"""What volumes of the local cluster's Ceph take: to come, to be mounted, and to be filled.

    local/test bench, or: python -m tests.bench.storage_figures [--rounds N]

For each class: seconds from a new claim to Bound; from a new pod that mounts it to Ready, the first
time and again, beside a pod without a volume; 10,000 files of 1 KiB written one
after the other, listed and removed; 1 GiB written in order with a final sync, and read again from
a fresh mount.

Ceph's one disk here is a sparse file on the machine's own, its clients are FUSE processes beside
it, and all share the machine's cores: the figures show the way that data takes, not what a cluster
of disks and a kernel client do. Prints a table and one JSON line.
"""

import argparse
import json
import statistics
import time
from collections.abc import Mapping

from local.kubectl import Kubectl
from local.progress import Progress
from local.trial import trial_release
from tests.cluster.waiting import wait_until
from tests.storage.volumes import CLASSES, FILES, Volumes, volumes_of

NAMESPACE = "spectrum-storage-bench"
FILE_COUNT, FILE_BYTES = 10_000, 1024
SEQUENTIAL_MIB = 1024
# Prints the seconds that each step took.
SMALL_FILES = f"""
import json, os, shutil, time
times, at = {{}}, time.perf_counter()
def take(what):
    global at
    times[what], at = time.perf_counter() - at, time.perf_counter()
os.mkdir("/data/small")
for i in range({FILE_COUNT}):
    with open(f"/data/small/{{i}}", "wb") as file:
        file.write(bytes({FILE_BYTES}))
os.sync()
take("write")
assert sum(entry.stat().st_size for entry in os.scandir("/data/small")) == {FILE_COUNT * FILE_BYTES}
take("list")
shutil.rmtree("/data/small")
take("remove")
print(json.dumps(times))
"""
SEQUENTIAL = f"""
import os, sys, time
piece, begun = os.urandom(2**20), time.perf_counter()
with open("/data/large", "wb" if sys.argv[1] == "write" else "rb") as file:
    for _ in range({SEQUENTIAL_MIB}):
        file.write(piece) if sys.argv[1] == "write" else file.read(2**20)
    os.fsync(file.fileno())
print(time.perf_counter() - begun)
"""


def measure_claim(volumes: Volumes, name: str, storage_class: str) -> float:
    """Seconds from the claim's creation to Bound, seen by asking often."""
    begun = time.perf_counter()
    volumes.claim(name, storage_class, "3Gi")
    wait_until(lambda: volumes.get_claim(name)["status"]["phase"] == "Bound")
    return time.perf_counter() - begun


def measure_start(volumes: Volumes, claims: Mapping[str, str]) -> float:
    """Seconds from a pod's creation until it is ready; the pod is gone afterwards."""
    begun = time.perf_counter()
    volumes.start_pod("starting", claims)
    seconds = time.perf_counter() - begun
    volumes.delete_pod("starting")
    return seconds


def measure_class(volumes: Volumes, storage_class: str, rounds: int) -> dict[str, float]:
    """All figures of one class, in seconds and MiB/s."""
    bound, first, again = [], [], []
    for i in range(rounds):
        claim = f"{storage_class}-{i}"
        bound.append(measure_claim(volumes, claim, storage_class))
        first.append(measure_start(volumes, {"/data": claim}))
        again.append(measure_start(volumes, {"/data": claim}))
    pod = volumes.start_pod("writer", {"/data": claim})
    small = json.loads(pod.run("python3", "-c", SMALL_FILES))
    written = float(pod.run("python3", "-c", SEQUENTIAL, "write"))
    volumes.delete_pod("writer")
    read = float(
        volumes.start_pod("reader", {"/data": claim}).run("python3", "-c", SEQUENTIAL, "read")
    )
    volumes.delete_pod("reader")
    return {
        "bound": statistics.median(bound),
        "first start": statistics.median(first),
        "later start": statistics.median(again),
        **{f"10,000 files, {what}": seconds for what, seconds in small.items()},
        "1 GiB written, MiB/s": SEQUENTIAL_MIB / written,
        "1 GiB read, MiB/s": SEQUENTIAL_MIB / read,
    }


def measure(kubectl: Kubectl, image: str, rounds: int) -> dict[str, dict[str, float]]:
    with volumes_of(kubectl, NAMESPACE, image) as volumes:
        figures = {name: measure_class(volumes, name, rounds) for name in CLASSES}
        bare = [measure_start(volumes, {}) for _ in range(rounds)]
    return {**figures, "no volume": {"later start": statistics.median(bare)}}


def print_table(figures: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':<26}" + "".join(f"{name:>18}" for name in figures))
    for what in figures[FILES]:
        row = [f"{of[what]:.2f}" if what in of else "" for of in figures.values()]
        print(f"{what:<26}" + "".join(f"{value:>18}" for value in row))
    print(json.dumps({"what": "storage", "figures": figures}))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure volumes of both classes.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    with trial_release(Progress()) as release:
        images = release.read_values()["images"]
        image = str(next(iter(images.values()))["image"])
        print_table(measure(release.kubectl, image, rounds))


if __name__ == "__main__":
    main()
