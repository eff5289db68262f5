"""Four known weaknesses of the plain stack: each scenario is played on both spawners.

The plain half shows that the scenario bites and with what outcome; ours has to live through the
same one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A hub with the running server of alice, and what may go wrong around it."""

    hub: Hub
    team: Team
    proxy: FaultProxy
    cluster: Cluster
    clock: Clock

    @property
    def path(self) -> str:
        """Path of alice's pod."""
        return self.team.find_pod("alice")

    async def find_pod(self) -> dict[str, Any] | None:
        return await self.cluster.find(self.path)

    async def restart_while_first_list_fails(self, fail: Fail) -> None:
        """The hub restarts, and its first LIST of the team's pods fails: once, and never again."""
        await self.hub.kill()
        fail(self.proxy, lambda call: call.is_list(self.team.pods))
        self.proxy.calls.clear()
        await self.hub.start()

    async def lose_pod_after_outage(self) -> None:
        """The API server is away for two minutes; half a minute later the server's pod dies."""
        with self.clock.hurry(20):
            await self.proxy.go_down()
            await asyncio.sleep(120)
            await self.proxy.come_up()
            await asyncio.sleep(30)
        await self.cluster.delete(self.path, {"gracePeriodSeconds": 0})

    async def start_while_answer_is_late(self) -> list[tuple[str, int | None]]:
        """The API server commits bob's pod at once and says so 4 s later; returns the writes."""
        self.proxy.delay_answer(lambda call: call.is_create(self.team.pods), 4.0)
        self.proxy.calls.clear()
        with self.clock.hurry(5):
            await self.hub.start_server("bob")
            await wait_until(lambda: self.hub.is_ready("bob"), within=30, what="the start")
        return [(c.method, c.grace) for c in self.proxy.writes if c.path.startswith(self.team.pods)]

    async def stop_during_outage(self) -> None:
        """A person stops a server while the API server is away for 5 min."""
        await self.proxy.go_down()
        with self.clock.hurry(100):
            await self.hub.stop_server("alice")
            await asyncio.sleep(300)


@pytest_asyncio.fixture
async def set_scene(
    start_hub: Callable[..., Awaitable[Hub]],
    flight: Team,
    fault_proxy: FaultProxy,
    cluster: Cluster,
    clock: Clock,
) -> Callable[[Setup], Awaitable[Scene]]:
    async def set_scene(setup: Setup) -> Scene:
        hub = await start_hub(setup)
        answer = await hub.start_server("alice")
        assert answer.status == 201, answer
        return Scene(hub=hub, team=flight, proxy=fault_proxy, cluster=cluster, clock=clock)

    return set_scene


@pytest_asyncio.fixture
async def plain(set_scene: Callable[[Setup], Awaitable[Scene]], flight: Team) -> Scene:
    """With unmodified KubeSpawner."""
    return await set_scene(make_plain(flight))


@pytest_asyncio.fixture
async def spectrum(set_scene: Callable[[Setup], Awaitable[Scene]], hub_namespace: str) -> Scene:
    """With our spawner."""
    return await set_scene(make_spectrum(hub_namespace))


class TestOneFailedList:
    @failures
    async def test_makes_plain_kubespawner_forget_a_running_server(
        self, plain: Scene, fail: Fail
    ) -> None:
        await plain.restart_while_first_list_fails(fail)
        assert await plain.hub.find_server("alice") is None
        assert await plain.find_pod() is not None

    @failures
    async def test_costs_spectrum_no_server(self, spectrum: Scene, fail: Fail) -> None:
        before = await spectrum.find_pod()
        await spectrum.restart_while_first_list_fails(fail)
        await wait_until(lambda: spectrum.hub.is_ready("alice"), within=20)
        assert await spectrum.find_pod() == before
        assert spectrum.proxy.writes == []


class TestAnOutageOfTwoMinutes:
    async def test_leaves_plain_kubespawner_blind_for_ever(self, plain: Scene) -> None:
        await plain.lose_pod_after_outage()
        with plain.clock.hurry(20):
            await asyncio.sleep(60)
        assert await plain.find_pod() is None
        assert await plain.hub.find_spawner("alice").poll() is None

    async def test_leaves_spectrum_seeing(self, spectrum: Scene) -> None:
        await spectrum.lose_pod_after_outage()
        await spectrum.hub.wait_absent("alice", within=5)
        answer = await spectrum.hub.start_server("bob")
        assert answer.status == 201


class TestALateAnswer:
    async def test_makes_plain_kubespawner_kill_its_own_pod(self, plain: Scene) -> None:
        writes = await plain.start_while_answer_is_late()
        assert writes == [("POST", None), ("POST", None), ("DELETE", 0), ("POST", None)]

    async def test_makes_spectrum_adopt_its_own_pod(self, spectrum: Scene) -> None:
        assert await spectrum.start_while_answer_is_late() == [("POST", None)]


class TestAStopDuringAnOutage:
    async def test_makes_plain_kubespawner_forget_a_running_pod(self, plain: Scene) -> None:
        await plain.stop_during_outage()
        await plain.proxy.come_up()
        with plain.clock.hurry(20):
            await asyncio.sleep(60)
        assert await plain.hub.find_server("alice") is None
        pod = await plain.find_pod()
        assert pod is not None
        assert "deletionTimestamp" not in pod["metadata"]

    async def test_is_carried_out_by_spectrum_once_the_api_server_is_back(
        self, spectrum: Scene
    ) -> None:
        await spectrum.stop_during_outage()
        server = await spectrum.hub.find_server("alice")
        assert server is not None
        assert server["pending"] == "stop"
        assert await spectrum.find_pod() is not None
        await spectrum.proxy.come_up()
        with spectrum.clock.hurry(5):
            await spectrum.hub.wait_absent("alice", within=30)
        assert await spectrum.cluster.list(spectrum.team.pods) == []
