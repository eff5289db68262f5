"""A hub that dies while a server starts, and the next one on the same database."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest_asyncio

from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub
from tests.hub.spawners import make_spectrum
from tests.hub.team import Team


@pytest_asyncio.fixture
async def hub(start_hub: Callable[..., Awaitable[Hub]], flight: Team, hub_namespace: str) -> Hub:
    return await start_hub(make_spectrum(hub_namespace))


async def test_a_server_that_was_starting_is_found_again(
    hub: Hub, flight: Team, cluster: Cluster, node: NodeStub, fault_proxy: FaultProxy
) -> None:
    node.start_seconds = 3
    asking = asyncio.create_task(hub.start_server("alice"))
    await wait_until(lambda: _has_pod(cluster, flight), within=10)
    (before,) = await cluster.list(flight.pods)
    await hub.kill()
    await asyncio.gather(asking, return_exceptions=True)
    fault_proxy.calls.clear()
    await hub.start()
    await wait_until(lambda: hub.is_ready("alice"), within=15)
    (after,) = await cluster.list(flight.pods)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert fault_proxy.writes == []


async def _has_pod(cluster: Cluster, team: Team) -> bool:
    return bool(await cluster.list(team.pods))
