"""Four known weaknesses of the plain stack: each scenario is played on both spawners.

The plain half shows that the scenario bites and with what outcome; ours has to live through the
same one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy, Match
from tests.hub.hub import Hub
from tests.hub.spawners import Setup, make_plain, make_spectrum
from tests.hub.team import Team

Fail = Callable[[FaultProxy, Match], Any]


def answer_500(proxy: FaultProxy, match: Match) -> None:
    proxy.refuse(match, status=500)


def answer_403(proxy: FaultProxy, match: Match) -> None:
    proxy.refuse(match, status=403)


def close_connection(proxy: FaultProxy, match: Match) -> None:
    proxy.reset(match, times=2)  # the HTTP library repeats a GET once by itself


failures = pytest.mark.parametrize("fail", [answer_500, answer_403, close_connection])


@pytest_asyncio.fixture
async def plain_hub(start_hub: Callable[..., Awaitable[Hub]], flight: Team) -> Hub:
    """A hub with unmodified KubeSpawner and the running server of alice."""
    return await _start_with_server(start_hub, make_plain(flight))


@pytest_asyncio.fixture
async def spectrum_hub(
    start_hub: Callable[..., Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    """A hub with our spawner and the running server of alice."""
    return await _start_with_server(start_hub, make_spectrum(hub_namespace))


async def _start_with_server(start_hub: Callable[..., Awaitable[Hub]], setup: Setup) -> Hub:
    hub = await start_hub(setup)
    answer = await hub.start_server("alice")
    assert answer.status == 201, answer
    return hub


async def restart_while_first_list_fails(
    hub: Hub, team: Team, proxy: FaultProxy, fail: Fail
) -> None:
    """The hub restarts, and its first LIST of the team's pods fails: once, and never again."""
    await hub.kill()
    fail(proxy, lambda call: call.is_list(team.pods))
    proxy.calls.clear()
    await hub.start()


async def lose_pod_after_outage(
    team: Team, proxy: FaultProxy, cluster: Cluster, clock: Clock
) -> None:
    """The API server is away for a minute; half a minute later the server's pod dies."""
    with clock.hurry(20):
        await proxy.go_down()
        await asyncio.sleep(60)
        await proxy.come_up()
        await asyncio.sleep(30)
    await cluster.delete(team.find_pod("alice"), {"gracePeriodSeconds": 0})


async def start_while_answer_is_late(hub: Hub, team: Team, proxy: FaultProxy, clock: Clock) -> Any:
    """The API server commits bob's pod at once and says so 4 s later; returns what was written."""
    proxy.delay_answer(lambda call: call.is_create(team.pods), 4.0)
    proxy.calls.clear()
    with clock.hurry(5):
        await hub.start_server("bob")
        await wait_until(lambda: hub.is_ready("bob"), within=30, what="the start")
    return [(c.method, c.grace) for c in proxy.writes if c.path.startswith(team.pods)]


async def stop_during_outage(hub: Hub, proxy: FaultProxy, clock: Clock) -> None:
    """A person stops a server while the API server is away for 5 min."""
    await proxy.go_down()
    with clock.hurry(100):
        await hub.stop_server("alice")
        await asyncio.sleep(300)


class TestOneFailedList:
    @failures
    async def test_makes_plain_kubespawner_forget_a_running_server(
        self, plain_hub: Hub, flight: Team, fault_proxy: FaultProxy, cluster: Cluster, fail: Fail
    ) -> None:
        await restart_while_first_list_fails(plain_hub, flight, fault_proxy, fail)
        assert await plain_hub.find_server("alice") is None
        assert await cluster.find(flight.find_pod("alice")) is not None

    @failures
    async def test_costs_spectrum_no_server(
        self, spectrum_hub: Hub, flight: Team, fault_proxy: FaultProxy, cluster: Cluster, fail: Fail
    ) -> None:
        before = await cluster.get(flight.find_pod("alice"))
        await restart_while_first_list_fails(spectrum_hub, flight, fault_proxy, fail)
        await wait_until(lambda: spectrum_hub.is_ready("alice"), within=20)
        assert await cluster.get(flight.find_pod("alice")) == before
        assert fault_proxy.writes == []


class TestAnOutageOfAMinute:
    async def test_leaves_plain_kubespawner_blind_for_ever(
        self,
        plain_hub: Hub,
        flight: Team,
        fault_proxy: FaultProxy,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        await lose_pod_after_outage(flight, fault_proxy, cluster, clock)
        with clock.hurry(20):
            await asyncio.sleep(60)
        assert await cluster.find(flight.find_pod("alice")) is None
        assert await plain_hub.find_spawner("alice").poll() is None

    async def test_leaves_spectrum_seeing(
        self,
        spectrum_hub: Hub,
        flight: Team,
        fault_proxy: FaultProxy,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        await lose_pod_after_outage(flight, fault_proxy, cluster, clock)
        spawner = spectrum_hub.find_spawner("alice")
        await wait_until(lambda: _is_gone(spawner), within=5)
        answer = await spectrum_hub.start_server("bob")
        assert answer.status == 201


class TestALateAnswer:
    async def test_makes_plain_kubespawner_kill_its_own_pod(
        self, plain_hub: Hub, flight: Team, fault_proxy: FaultProxy, clock: Clock
    ) -> None:
        writes = await start_while_answer_is_late(plain_hub, flight, fault_proxy, clock)
        assert writes == [("POST", None), ("POST", None), ("DELETE", 0), ("POST", None)]

    async def test_makes_spectrum_adopt_its_own_pod(
        self, spectrum_hub: Hub, flight: Team, fault_proxy: FaultProxy, clock: Clock
    ) -> None:
        writes = await start_while_answer_is_late(spectrum_hub, flight, fault_proxy, clock)
        assert writes == [("POST", None)]


class TestAStopDuringAnOutage:
    async def test_makes_plain_kubespawner_forget_a_running_pod(
        self,
        plain_hub: Hub,
        flight: Team,
        fault_proxy: FaultProxy,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        await stop_during_outage(plain_hub, fault_proxy, clock)
        await fault_proxy.come_up()
        with clock.hurry(20):
            await asyncio.sleep(60)
        assert await plain_hub.find_server("alice") is None
        pod = await cluster.get(flight.find_pod("alice"))
        assert "deletionTimestamp" not in pod["metadata"]

    async def test_is_carried_out_by_spectrum_once_the_api_server_is_back(
        self,
        spectrum_hub: Hub,
        flight: Team,
        fault_proxy: FaultProxy,
        cluster: Cluster,
        clock: Clock,
    ) -> None:
        await stop_during_outage(spectrum_hub, fault_proxy, clock)
        server = await spectrum_hub.find_server("alice")
        assert server is not None
        assert server["pending"] == "stop"
        assert await cluster.find(flight.find_pod("alice")) is not None
        await fault_proxy.come_up()
        with clock.hurry(5):
            await wait_until(lambda: _is_absent(spectrum_hub, "alice"), within=30)
        assert await cluster.list(flight.pods) == []


async def _is_gone(spawner: Any) -> bool:
    return await spawner.poll() is not None


async def _is_absent(hub: Hub, user: str) -> bool:
    return await hub.find_server(user) is None
