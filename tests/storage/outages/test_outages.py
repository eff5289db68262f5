"""Longer outages: what serves a volume dies, or all of Ceph is away for a while."""

import hashlib
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.ceph import Ceph
from local.csi import list_fuse_servers
from local.kubectl import Kubectl
from local.paths import find_state
from tests.storage.outage import start_what_does_not_run
from tests.storage.volumes import BLOCKS, FILES, MIB, Volumes, try_to, volumes_of
from tests.storage.writing import check_that_nothing_is_lost


@pytest.fixture(scope="module")
def volumes(kubectl: Kubectl, image: str) -> Iterator[Volumes]:
    with volumes_of(kubectl, "spectrum-outages", image) as volumes:
        yield volumes


@pytest.fixture(scope="module")
def both(volumes: Volumes) -> dict[str, str]:
    """A bound claim of each class, by the path at which pods mount it."""
    return volumes.claim_each("both")


def test_nothing_is_lost_when_the_monitor_is_killed_during_writing(
    volumes: Volumes, ceph: Ceph
) -> None:
    check_that_nothing_is_lost(volumes, ceph, "ceph-mon")


def test_a_fuse_process_that_died_is_replaced_for_the_next_pod(
    volumes: Volumes, both: dict[str, str]
) -> None:
    broken = volumes.start_pod("broken", both)
    for path in both:
        broken.run("sh", "-c", f"echo safe > {path}/held; sync {path}/held")
    for claim in both.values():
        os.kill(_find_fuse_server(volumes, claim), signal.SIGKILL)
    assert "Transport endpoint is not connected" in try_to(broken, f"ls /{FILES}")
    volumes.delete_pod("broken")
    # Ceph holds an image for half a minute for a client that may still be there.
    volumes.create_pod("whole", both)
    whole = volumes.wait_running("whole", 120)
    for path in both:
        assert whole.run("cat", f"{path}/held") == "safe\n"
    volumes.delete_pod("whole")


def test_pods_go_on_after_ceph_was_down_and_events_say_that_it_was(
    volumes: Volumes, both: dict[str, str], ceph: Ceph
) -> None:
    pod = volumes.start_pod("patient", both)
    ceph.stop()
    with ThreadPoolExecutor(2) as writers:
        writes = [
            writers.submit(
                pod.run, "dd", "if=/dev/zero", f"of={path}/late", "bs=1M", "count=8", "conv=fsync"
            )
            for path in both
        ]
        try:
            volumes.claim("later", FILES)
            volumes.claim("later-block", BLOCKS)
            for name in ("later", "later-block"):
                volumes.wait_for_event(name, "Ceph does not answer")
            volumes.create_pod("late", {"/data": f"both-{FILES}"})
            volumes.wait_for_event("late", "Ceph is down or slow")
            assert not any(write.done() for write in writes)
        finally:
            start_what_does_not_run()
        for write in writes:
            write.result(timeout=90)
    for path in both:
        assert pod.run("stat", "-c", "%s", f"{path}/late") == f"{8 * MIB}\n"
    volumes.wait_running("late", 150)
    for name in ("later", "later-block"):
        volumes.wait_bound(name)
    for name in ("patient", "late"):
        volumes.delete_pod(name)


def _find_fuse_server(volumes: Volumes, claim: str) -> int:
    """Return the process behind the claim: its command line names the volume."""
    handle = volumes.get_volume(claim)["spec"]["csi"]["volumeHandle"]
    marks = [handle.split(":")[1], hashlib.sha256(handle.encode()).hexdigest()]
    (pid,) = (
        pid
        for pid in list_fuse_servers(find_state())
        if any(mark in Path(f"/proc/{pid}/cmdline").read_text() for mark in marks)
    )
    return pid
