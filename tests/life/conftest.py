"""A cluster with directories of its own, in the place of the machine's one cluster."""

from collections.abc import Iterator

import pytest

from local.cgroups import remove_cgroups
from local.images import build_all
from local.network import remove_network
from local.paths import find_cache, find_state
from local.processes import Daemons
from tests.life.machine import Place, link_tree, read_kernel


@pytest.fixture(scope="session")
def vacant_machine() -> Iterator[None]:
    """Takes the machine's cluster down for the session; one that was up is started again.

    So that the machine is as if there had never been one, what `down` leaves for the next `up` is
    taken away too; `up` makes it again.
    """
    own = Place(find_state(), find_cache())
    was_up = Daemons(own.state).is_alive("kube-apiserver")
    if was_up:
        own.run("down")
    remove_network(own.state)
    remove_cgroups()
    yield
    if was_up:
        # Its releases run again by themselves: they are objects of the cluster.
        own.run("up", "--cluster-only")


@pytest.fixture(scope="session")
def place(vacant_machine: None) -> Iterator[Place]:
    """Directories of a new cluster; the cache has all builds, as links to the real one's files."""
    state, cache = find_state(), find_cache()
    place = Place(state.with_name(f"{state.name}-life"), cache.with_name(f"{cache.name}-life"))
    place.run("down", "--purge")  # of a run that was killed
    archives = build_all(cache, print)
    link_tree(cache / "bin", place.cache / "bin")
    (place.cache / "images").mkdir()
    for archive in archives.values():
        (place.cache / "images" / archive.name).hardlink_to(archive)
    yield place
    place.run("down", "--purge")


@pytest.fixture(scope="session")
def vacant_kernel(place: Place) -> dict[str, object]:
    """The kernel's networking before the cluster's first start."""
    return read_kernel()
