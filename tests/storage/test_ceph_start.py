"""A Ceph of its own, from killed starts to its end, in the order of the tests."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.commands import run
from local.packages import ensure_packages
from local.progress import Progress
from tests.storage.ceph_place import CephPlace, make_place

BYTES = 700 * 10**6  # of memory, all its processes together


@pytest.fixture(scope="module")
def place() -> Iterator[CephPlace]:
    ensure_packages("debian-ceph", Progress())
    # A short path: that of a socket may have 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="ceph-") as directory:
        place = make_place(Path(directory))
        yield place
        place.kill()
        place.ceph.stop()


def test_a_start_goes_on_where_a_killed_one_stopped(place: CephPlace) -> None:
    for mark in ("keys.json", "mon-new-*", "mon", "osd-new-*", "osd", "pools-made", "admin-made"):
        place.start_until(mark)
    place.start()
    assert place.ceph.ceph("health").strip() == "HEALTH_OK"
    assert place.ceph.list_gateway_users() == ["spectrum-admin"]
    groups = place.ceph.ceph("fs", "subvolumegroup", "ls", "myfs")
    assert '"name": "csi"' in groups
    assert not list(place.ceph.directory.glob("*-new-*"))


def test_a_second_start_changes_nothing(place: CephPlace) -> None:
    records = {
        name: place.ceph.daemons.find_record(name) for name in place.ceph.daemons.list_names()
    }
    place.start()
    again = {name: place.ceph.daemons.find_record(name) for name in place.ceph.daemons.list_names()}
    assert again == records


def test_all_of_it_fits_a_laptop(place: CephPlace) -> None:
    assert place.measure_memory() < BYTES


def test_what_was_written_is_there_after_a_power_cut(place: CephPlace, tmp_path: Path) -> None:
    rados = ["rados", "-c", str(place.ceph.conf), "-p", "replicapool"]
    (tmp_path / "written").write_bytes(bytes(range(256)) * 4096)
    run([*rados, "put", "object", tmp_path / "written"])
    place.kill()
    place.start()
    run([*rados, "get", "object", tmp_path / "read"])
    assert (tmp_path / "read").read_bytes() == (tmp_path / "written").read_bytes()
    assert '"name": "csi"' in place.ceph.ceph("fs", "subvolumegroup", "ls", "myfs")
    assert place.ceph.list_gateway_users() == ["spectrum-admin"]


def test_nothing_of_it_runs_once_it_is_stopped(place: CephPlace) -> None:
    place.ceph.stop()
    assert place.count_processes() == 0
    place.start()
    assert place.ceph.serves_volumes()
