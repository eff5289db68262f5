from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.kubectl import Kubectl
from tests.cluster.people import Person
from tests.cluster.servers import Servers
from tests.conftest import InstalledRelease


@pytest.fixture(scope="session")
def kubectl(release: InstalledRelease) -> Kubectl:
    return release.kubectl


@pytest.fixture(scope="session")
def image(release: InstalledRelease) -> str:
    """An image that servers may run; it has a Python."""
    values: dict[str, Any] = release.chart.read_values()
    return str(next(iter(values["images"].values()))["image"])


@pytest.fixture
def enter(release: InstalledRelease) -> Iterator[Callable[[str], Servers]]:
    """Sign somebody in; their servers are stopped afterwards."""
    entered: list[Servers] = []

    def sign_in(name: str) -> Servers:
        servers = Servers(release, Person(release.url, name))
        is_admin = name == "admin"
        assert servers.person.sign_in(release.admin_password if is_admin else release.user_password)
        entered.append(servers)
        return servers

    yield sign_in
    for servers in entered:
        with servers.person:
            servers.stop_all()


@pytest.fixture
def alice(enter: Callable[[str], Servers]) -> Servers:
    return enter("alice")


@pytest.fixture
def bob(enter: Callable[[str], Servers]) -> Servers:
    return enter("bob")
