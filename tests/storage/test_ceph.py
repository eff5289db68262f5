"""Processes of the cluster's Ceph that are killed while pods write to its volumes."""

import textwrap
from collections.abc import Iterator

import pytest

from local.ceph import Ceph
from local.cluster import make_ceph
from local.kubectl import Kubectl
from local.paths import find_state
from local.processes import Daemons
from local.progress import Progress
from tests.cluster.pods import Pod
from tests.cluster.waiting import wait_until
from tests.storage.volumes import BLOCKS, FILES, Volumes

NAMESPACE = "spectrum-kills"
PATHS = {f"/{name}": name for name in (FILES, BLOCKS)}

# Writes numbered files and a numbered line for each, and notes outside of the volume how many it
# was told are stored. Arguments: the volume's path, the note's.
WRITER = textwrap.dedent("""
    import itertools, os, sys
    place, note = sys.argv[1:]
    os.makedirs(f"{place}/files", exist_ok=True)
    with open(f"{place}/lines", "a") as lines:
        for number in itertools.count(1):
            with open(f"{place}/files/{number}", "w") as file:
                file.write(str(number))
                os.fsync(file.fileno())
            lines.write(f"{number}\\n")
            lines.flush()
            os.fsync(lines.fileno())
            with open(f"{note}.new", "w") as told:
                told.write(str(number))
            os.replace(f"{note}.new", note)
""")
# Prints the number of the last line, once every line and file up to it is found whole.
READER = textwrap.dedent("""
    import sys
    place = sys.argv[1]
    numbers = [int(line) for line in open(f"{place}/lines")]
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    assert all(open(f"{place}/files/{n}").read() == str(n) for n in numbers)
    print(len(numbers))
""")


@pytest.fixture(scope="module")
def volumes(kubectl: Kubectl, image: str) -> Iterator[Volumes]:
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")  # of a run that was killed
    kubectl("create", "namespace", NAMESPACE)
    yield Volumes(kubectl, NAMESPACE, image)
    kubectl("delete", "namespace", NAMESPACE)


@pytest.fixture
def ceph() -> Iterator[Ceph]:
    ceph = make_ceph(find_state(), Daemons(find_state()))
    yield ceph
    start(ceph)


@pytest.mark.parametrize("process", ["ceph-mds", "ceph-osd", "ceph-mon"])
def test_nothing_is_lost_when_a_process_of_ceph_is_killed_during_writing(
    volumes: Volumes, ceph: Ceph, process: str
) -> None:
    claims = {path: f"{process}-{name}" for path, name in PATHS.items()}
    for path, claim in claims.items():
        volumes.claim(claim, PATHS[path])
    writer = volumes.start_pod(f"{process}-writer", claims)
    for path in claims:
        command = f"python3 -c '{WRITER}' {path} /dev/shm{path} >/dev/shm{path}.out 2>&1 &"
        writer.run("sh", "-c", f"nohup {command}")
    wait_until(lambda: all(count_told(writer, path) >= 20 for path in claims), within=60)

    ceph.daemons.stop(process, kill=True)
    before = {path: count_told(writer, path) for path in claims}
    start(ceph)

    def go_on() -> bool:
        return all(count_told(writer, path) >= before[path] + 20 for path in claims)

    wait_until(go_on, within=60)
    told = {path: count_told(writer, path) for path in claims}
    volumes.delete_pod(f"{process}-writer")
    reader = volumes.start_pod(f"{process}-reader", claims)
    for path in claims:
        assert int(reader.run("python3", "-c", READER, path)) >= told[path]
    volumes.delete_pod(f"{process}-reader")


def start(ceph: Ceph) -> None:
    """Start what of Ceph does not run, as local/up does."""
    with Progress().step("starting Ceph") as step:
        ceph.start(step)


def count_told(pod: Pod, path: str) -> int:
    return int(pod.run("sh", "-c", f"cat /dev/shm{path} 2>/dev/null || echo 0"))
