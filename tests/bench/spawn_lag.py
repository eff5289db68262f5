"""How long a start and a stop take: SpectrumSpawner and plain KubeSpawner in turns.

    python -m tests.bench.spawn_lag [--rounds N] [--pod-seconds S]
    python -m tests.bench.spawn_lag --kubeconfig FILE --hub-address IP [--rounds N]

Both hubs run in this process and start the same image, each in a namespace of its own; which goes
first changes each round. A start lasts from the POST until the server is ready, a stop from the
DELETE until the server is gone and the pod with it.

Without `--kubeconfig` a kube-apiserver is started whose pods run `--pod-seconds` after they were
bound: what is left is the hub's own share. With it, pods are real: run it where pods can reach
`--hub-address` and this machine can reach pods.

Prints one JSON line for each start and stop, and a table at the end.
"""

import argparse
import asyncio
import json
import logging
import math
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from traitlets.config import Config

from local.control_plane import control_plane
from spectrum_spawner import names
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, connect_as, find_teams, serve_teams
from tests.hub.hub import Hub
from tests.hub.node import NodeStub, ServerStub
from tests.hub.spawners import make_plain, make_spectrum
from tests.hub.team import RBAC, Team, create_hub_namespace, create_team

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


async def measure(arguments: argparse.Namespace) -> list[Contender]:
    """Play all rounds; the first of each contender is warm-up and does not count."""
    async with AsyncExitStack() as stack:
        kubeconfig, cluster = await stack.enter_async_context(_open_cluster(arguments))
        os.environ["KUBECONFIG"] = str(kubeconfig)
        await create_hub_namespace(cluster, HUB_NAMESPACE)
        flight = await create_team(cluster, HUB_NAMESPACE, "flight")
        beside = await create_team(cluster, HUB_NAMESPACE, "beside", spec={"groups": ["nobody"]})
        stack.push_async_callback(_remove, cluster, [flight, beside])
        port = 8888
        if arguments.kubeconfig is None:
            node = NodeStub(cluster, f"{HUB_NAMESPACE}-")
            node.start_seconds = arguments.pod_seconds
            await stack.enter_async_context(node)
            port = (await stack.enter_async_context(ServerStub())).port
        contenders = []
        for name, team, setup in (
            ("SpectrumSpawner", flight, make_spectrum(HUB_NAMESPACE)),
            ("KubeSpawner", beside, make_plain(beside)),
        ):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            _extend(setup.config, arguments, port)
            hub = Hub(directory, setup)
            await hub.start()
            stack.push_async_callback(hub.kill)
            contenders.append(Contender(name, hub, team))
        for number in range(arguments.rounds + 1):
            order = contenders if number % 2 else contenders[::-1]
            for contender in order:
                await contender.play(cluster)
                _print_round(number, contender)
    return contenders


@asynccontextmanager
async def _open_cluster(arguments: argparse.Namespace) -> AsyncIterator[tuple[Path, Cluster]]:
    if arguments.kubeconfig is not None:
        async with connect_as(arguments.kubeconfig) as cluster:
            yield arguments.kubeconfig, cluster
        return
    with control_plane() as plane:
        async with connect(plane) as cluster:
            await serve_teams(cluster)
            yield plane.kubeconfig, cluster


async def _remove(cluster: Cluster, teams: list[Team]) -> None:
    """Leave a cluster as it was found."""
    for team in teams:
        await cluster.delete(f"{find_teams(HUB_NAMESPACE)}/{team.name}")
        await cluster.delete(f"/api/v1/namespaces/{team.namespace}")
    await cluster.delete(f"/api/v1/namespaces/{HUB_NAMESPACE}")
    await cluster.delete(f"{RBAC}/clusterroles/{names.hub_role_in_team(HUB_NAMESPACE)}")


def _extend(config: Config, arguments: argparse.Namespace, port: int) -> None:
    config.Spawner.port = port
    if arguments.hub_address:
        config.JupyterHub.hub_ip = "0.0.0.0"
        config.JupyterHub.hub_connect_ip = arguments.hub_address
        config.KubeSpawner.cmd = ["spectrum-singleuser"]


def _print_round(number: int, contender: Contender) -> None:
    for what, seconds in (("start", contender.starts[-1]), ("stop", contender.stops[-1])):
        line = {"spawner": contender.name, "round": number, what: round(seconds, 4)}
        print(json.dumps(line), flush=True)


def _print_table(contenders: list[Contender]) -> None:
    print(f"{'seconds':<18}{'':<7}{'p50':>8}{'p95':>8}{'max':>8}")
    for contender in contenders:
        for what, times in (("start", contender.starts[1:]), ("stop", contender.stops[1:])):
            middle, high = statistics.median(times), _find_percentile(times, 95)
            figures = f"{middle:>8.3f}{high:>8.3f}{max(times):>8.3f}"
            print(f"{contender.name:<18}{what:<7}{figures}")


def _find_percentile(values: list[float], percent: int) -> float:
    """The smallest value that `percent` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * percent / 100) - 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pod-seconds", type=float, default=0.5)
    parser.add_argument("--kubeconfig", type=Path)
    parser.add_argument("--hub-address", help="this machine's address as pods reach it")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    _print_table(asyncio.run(measure(arguments)))


if __name__ == "__main__":
    main()
