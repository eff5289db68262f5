"""Processes of the cluster's Ceph that are killed while a pod writes to its volumes."""

from collections.abc import Iterator

import pytest

from local.ceph import Ceph
from local.cluster import make_ceph
from local.kubectl import Kubectl
from local.paths import find_state
from local.processes import Daemons
from tests.storage.outage import start_what_does_not_run
from tests.storage.volumes import Volumes, volumes_of
from tests.storage.writing import check_that_nothing_is_lost


@pytest.fixture
def volumes(kubectl: Kubectl, image: str) -> Iterator[Volumes]:
    with volumes_of(kubectl, "spectrum-kills", image) as volumes:
        yield volumes


@pytest.fixture
def ceph() -> Iterator[Ceph]:
    """The cluster's Ceph, which runs again afterwards."""
    yield make_ceph(find_state(), Daemons(find_state()))
    start_what_does_not_run()


def test_nothing_is_lost_when_processes_of_ceph_are_killed_during_writing(
    volumes: Volumes, ceph: Ceph
) -> None:
    check_that_nothing_is_lost(volumes, ceph, "ceph-mds", "ceph-osd")
