"""Processes of the cluster's Ceph that are killed while a pod writes to its volumes."""

from collections.abc import Iterator

import pytest

from local.ceph import Ceph
from local.kubectl import Kubectl
from tests.storage.volumes import Volumes, volumes_of
from tests.storage.writing import check_that_nothing_is_lost


@pytest.fixture
def volumes(kubectl: Kubectl, image: str) -> Iterator[Volumes]:
    with volumes_of(kubectl, "spectrum-kills", image) as volumes:
        yield volumes


def test_nothing_is_lost_when_processes_of_ceph_are_killed_during_writing(
    volumes: Volumes, ceph: Ceph
) -> None:
    check_that_nothing_is_lost(volumes, ceph, "ceph-mds", "ceph-osd")
