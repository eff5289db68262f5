"""A real kube-apiserver and etcd for the session; namespaces, hub and stubs for each test."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import kubespawner.clients
import pytest
import pytest_asyncio
from traitlets.config import Config, PyFileConfigLoader

from local.control_plane import ControlPlane, control_plane
from spectrum_spawner import admittance
from tests.hub.clock import Clock
from tests.hub.cluster import Cluster, connect, serve_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, ServerStub
from tests.hub.spawners import Setup, make_spectrum
from tests.hub.team import Team, create_hub_namespace, create_hub_token, create_team
from tests.test_hub_config import CONFIG, SECRETS, VALUES

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """etcd and kube-apiserver with the Team kind; nothing else of a cluster runs."""

    async def prepare() -> None:
        async with connect(plane) as cluster:
            await serve_teams(cluster)

    with control_plane() as plane:
        asyncio.run(prepare())
        yield plane


@pytest.fixture
async def clock() -> Clock:
    """The clock of the test's event loop."""
    return Clock(asyncio.get_running_loop())


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look at who may be in whose servers but after a change: it would hide what is missed."""
    monkeypatch.setattr(admittance, "SWEEP", 3600.0)


@pytest_asyncio.fixture
async def cluster(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with connect(plane) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def hub_namespace(cluster: Cluster) -> str:
    """A hub's namespace of this test's own; it goes with the control plane."""
    namespace = f"hub{next(_numbers)}"
    await create_hub_namespace(cluster, namespace)
    return namespace


@pytest_asyncio.fixture
async def make_team(cluster: Cluster, hub_namespace: str) -> Callable[..., Awaitable[Team]]:
    """Makes a team of that hub, ready for servers: `await make_team("flight", quota={...})`."""
    gids = itertools.count(100000)

    async def make(name: str, **rest: Any) -> Team:
        return await create_team(cluster, hub_namespace, name, gid=next(gids), **rest)

    return make


@pytest_asyncio.fixture
async def flight(make_team: Callable[..., Awaitable[Team]]) -> Team:
    """The team of group `flight`."""
    return await make_team("flight")


@pytest_asyncio.fixture
async def ops(make_team: Callable[..., Awaitable[Team]]) -> Team:
    """The team of group `ops`."""
    return await make_team("ops")


@pytest_asyncio.fixture
async def node(cluster: Cluster, hub_namespace: str) -> AsyncIterator[NodeStub]:
    """Runs the pods of the hub's teams."""
    async with NodeStub(cluster, f"{hub_namespace}-") as node:
        yield node


@pytest_asyncio.fixture
async def fault_proxy(
    plane: ControlPlane,
    cluster: Cluster,
    hub_namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[FaultProxy]:
    """Stands between the hub and the API server; the hub's kubeconfig knows no other way."""
    token = await create_hub_token(cluster, hub_namespace)
    async with FaultProxy(plane.server, plane.authority.certificate) as proxy:
        use_kubeconfig(tmp_path / "hub.kubeconfig", proxy.server, token, monkeypatch)
        yield proxy


@pytest_asyncio.fixture
async def server_stub() -> AsyncIterator[ServerStub]:
    """What answers inside every pod that runs."""
    async with ServerStub() as stub:
        yield stub


@pytest_asyncio.fixture
async def start_hub(
    fault_proxy: FaultProxy, node: NodeStub, server_stub: ServerStub, tmp_path: Path
) -> AsyncIterator[Callable[[Setup], Awaitable[Hub]]]:
    """Starts a hub: `await start_hub(make_spectrum(hub_namespace))`; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(setup: Setup) -> Hub:
            setup.config.Spawner.port = server_stub.port
            hub = Hub(tmp_path, setup)
            await hub.start()
            stack.push_async_callback(hub.kill)
            return hub

        yield start


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    """A hub with our spawner."""
    return await start_hub(make_spectrum(hub_namespace))


def use_kubeconfig(path: Path, server: str, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a kubeconfig to `path` that this process knows alone from now on."""
    path.write_text(json.dumps(_make_kubeconfig(server, token)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(path))
    # The client library reads the variable when it is imported, and that was long ago.
    default = "kubernetes_asyncio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(default, str(path))
    kubespawner.clients.load_config.cache_clear()


def _make_kubeconfig(server: str, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "plane", "cluster": {"server": server}}],
        "users": [{"name": "hub", "user": {"token": token}}],
        "contexts": [{"name": "hub", "context": {"cluster": "plane", "user": "hub"}}],
        "current-context": "hub",
    }


@pytest.fixture
def release_config(hub_namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The hub's configuration as in a release."""
    for key, text in SECRETS.items():
        (tmp_path / key).write_text(text)
    (tmp_path / "values.json").write_text(json.dumps(VALUES))
    monkeypatch.setenv("POD_NAMESPACE", hub_namespace)
    monkeypatch.setenv("SPECTRUM_VALUES", str(tmp_path / "values.json"))
    monkeypatch.setenv("SPECTRUM_SECRETS", str(tmp_path))
    return PyFileConfigLoader(str(CONFIG)).load_config()
