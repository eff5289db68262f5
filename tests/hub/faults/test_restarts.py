"""A hub that dies while a server starts, and the next one on the same database."""

import asyncio

from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.node import NodeStub
from tests.hub.team import Team


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


async def test_a_stop_that_a_hub_could_not_finish_is_finished_by_the_next(
    hub: Hub, flight: Team, cluster: Cluster, fault_proxy: FaultProxy, clock: Clock
) -> None:
    await hub.start_server("alice")
    await fault_proxy.go_down()
    asking = asyncio.create_task(hub.stop_server("alice"))
    await wait_until(lambda: hub.find_spawner("alice").get_state()["stopping"], within=10)
    await hub.kill()
    await asyncio.gather(asking, return_exceptions=True)
    assert await cluster.find(flight.find_pod("alice")) is not None
    await fault_proxy.come_up()
    with clock.hurry(5):
        await hub.start()
        await hub.wait_absent("alice", within=60)
    assert await cluster.list(flight.pods) == []


async def test_a_stop_goes_on_while_the_next_hub_cannot_see_the_pod(
    hub: Hub, flight: Team, cluster: Cluster, fault_proxy: FaultProxy, clock: Clock
) -> None:
    await hub.start_server("alice")
    await fault_proxy.go_down()
    asking = asyncio.create_task(hub.stop_server("alice"))
    await wait_until(lambda: hub.find_spawner("alice").get_state()["stopping"], within=10)
    await hub.kill()
    await asyncio.gather(asking, return_exceptions=True)
    with clock.hurry(20):
        await hub.start()
        await asyncio.sleep(60)
        server = await hub.find_server("alice")
        assert server is not None
        assert server["pending"] == "stop"
        await fault_proxy.come_up()
        await hub.wait_absent("alice", within=60)
    assert await cluster.list(flight.pods) == []


async def _has_pod(cluster: Cluster, team: Team) -> bool:
    return bool(await cluster.list(team.pods))
