"""People and their servers, as in the cluster's tests; and the cluster's Ceph, to be broken."""

from collections.abc import Iterator

import pytest

from local.ceph import Ceph
from local.cluster import make_ceph
from local.paths import find_state
from local.processes import Daemons
from tests.cluster.conftest import alice, bob, enter, image, kubectl
from tests.storage.outage import start_what_does_not_run

__all__ = ["alice", "bob", "enter", "image", "kubectl"]


@pytest.fixture
def ceph() -> Iterator[Ceph]:
    """The cluster's Ceph, which runs again afterwards."""
    yield make_ceph(find_state(), Daemons(find_state()))
    start_what_does_not_run()
