"""The hub's own share of a start and a stop: SpectrumSpawner and plain KubeSpawner in turns.

    python -m tests.bench.spawn_lag [--rounds N] [--pod-seconds S]

Both hubs run in this process against one kube-apiserver, each in a namespace of its own; which
goes first changes each round. There is no kubelet: a pod runs `--pod-seconds` after it was bound,
and its server answers at once. A start lasts from the POST until the server is ready, a stop from
the DELETE until the server is gone and the pod with it.

Prints one JSON line for each start and stop, and a table at the end.
"""

import argparse
import asyncio
import json
import logging
import math
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kubernetes_asyncio.config import kube_config

from local.control_plane import control_plane
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, serve_teams
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, ServerStub
from tests.hub.spawners import make_plain, make_spectrum
from tests.hub.team import Team, create_hub_namespace, create_team

HUB_NAMESPACE = "spectrum-bench"
USER = "alice"


@dataclass
class Contender:
    """One hub, the team whose namespace its servers run in, and the seconds it took."""

    name: str
    hub: Hub
    team: Team
    starts: list[float] = field(default_factory=list)
    stops: list[float] = field(default_factory=list)

    async def play(self, cluster: Cluster) -> None:
        """One start and one stop."""
        begun = time.perf_counter()
        answer = await self.hub.start_server(USER)
        if answer.status not in (201, 202):
            raise SystemExit(f"{self.name}: the start was answered with {answer}")
        await wait_until(lambda: self.hub.is_ready(USER), within=300)
        self.starts.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        await self.hub.stop_server(USER)
        await wait_until(lambda: self._is_over(cluster), within=300)
        self.stops.append(time.perf_counter() - begun)

    async def _is_over(self, cluster: Cluster) -> bool:
        return not await self.hub.find_server(USER) and not await cluster.list(self.team.pods)


async def measure(*, rounds: int, pod_seconds: float) -> list[Contender]:
    """Play all rounds; the first of each contender is warm-up and does not count."""
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(control_plane())
        # The library has read $KUBECONFIG by now, when it was imported.
        kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(plane.kubeconfig)
        cluster = await stack.enter_async_context(connect(plane))
        await serve_teams(cluster)
        await create_hub_namespace(cluster, HUB_NAMESPACE)
        node = await stack.enter_async_context(NodeStub(cluster, f"{HUB_NAMESPACE}-"))
        node.start_seconds = pod_seconds
        stub = await stack.enter_async_context(ServerStub())
        flight = await create_team(cluster, HUB_NAMESPACE, "flight")
        beside = await create_team(cluster, HUB_NAMESPACE, "beside")
        contenders = []
        for name, team, setup in (
            ("SpectrumSpawner", flight, make_spectrum(HUB_NAMESPACE)),
            ("KubeSpawner", beside, make_plain(beside)),
        ):
            setup.config.Spawner.port = stub.port
            hub = Hub(Path(stack.enter_context(tempfile.TemporaryDirectory())), setup)
            await hub.start()
            stack.push_async_callback(hub.kill)
            contenders.append(Contender(name, hub, team))
        for number in range(rounds + 1):
            for contender in contenders if number % 2 else contenders[::-1]:
                await contender.play(cluster)
                _print_round(number, contender)
    return contenders


def _print_round(number: int, contender: Contender) -> None:
    for what, seconds in (("start", contender.starts[-1]), ("stop", contender.stops[-1])):
        line = {"spawner": contender.name, "round": number, what: round(seconds, 4)}
        print(json.dumps(line), flush=True)


def _print_table(contenders: list[Contender]) -> None:
    print(f"{'seconds':<18}{'':<7}{'p50':>8}{'p95':>8}{'max':>8}")
    for contender in contenders:
        for what, times in (("start", contender.starts[1:]), ("stop", contender.stops[1:])):
            middle, high = statistics.median(times), find_percentile(times, 95)
            figures = f"{middle:>8.3f}{high:>8.3f}{max(times):>8.3f}"
            print(f"{contender.name:<18}{what:<7}{figures}")


def find_percentile(values: list[float], percent: int) -> float:
    """The smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the lag of starts and stops.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pod-seconds", type=float, default=0.5)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    contenders = asyncio.run(measure(rounds=arguments.rounds, pod_seconds=arguments.pod_seconds))
    _print_table(contenders)


if __name__ == "__main__":
    main()
