"""How the team controller bears many teams: time, writes, and what it does when nothing happens.

    python -m tests.bench.team_scale [--teams N] [--groups N] [--quiet SECONDS]

etcd, kube-apiserver and, because quotas are counted by it, kube-controller-manager run beside the
controller on this machine. There is no kubelet. All teams exist when the controller starts; they
are counted as ready once the quota of each is in force. Writes are counted by kube-apiserver; of
those that Kubernetes' own controllers make too, theirs are known and taken off.

The requests of a controller at rest are those that a window without any change shows, and what
comes more seldom than that: watches that are renewed, and all teams being looked at again.

Prints one JSON line for each part, and a table at the end.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import mean
from typing import Any

from local.control_plane import ControlPlane, control_plane
from spectrum_spawner.controller.cluster import CHILDREN, CLAIMS, CLASSES
from spectrum_spawner.controller.handlers import RESYNC, TEAM_WATCH_SECONDS
from spectrum_spawner.kube import collection
from spectrum_spawner.watch import WATCH_SECONDS
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, find_teams, serve_teams
from tests.hub.controller import GPU, Controller, Teams
from tests.hub.metrics import read_requests, read_writes

HUB_NAMESPACE = "spectrum-bench"
# What one team needs: an object of each kind, but two network policies; the claim is its share.
OBJECTS = {
    "POST namespaces": 1,
    "POST resourcequotas": 1,
    "POST limitranges": 1,
    "POST networkpolicies": 2,
    "POST serviceaccounts": 1,
    "POST rolebindings": 1,
    "POST persistentvolumeclaims": 1,
}
# Nobody provides volumes here, so claims are to wait for a pod; homes and shares have this class.
CLASS = {
    "metadata": {"name": "rook-cephfs"},
    "provisioner": "rook-ceph.cephfs.csi.ceph.com",
    "allowVolumeExpansion": True,
    "volumeBindingMode": "WaitForFirstConsumer",
}
STORAGE = {
    "home": {"size": "10Gi", "storageClass": "rook-cephfs"},
    "share": {"enabled": True, "size": "50Gi", "storageClass": "rook-cephfs"},
}
KUBERNETES_OWN = {"POST serviceaccounts": 1}  # `default`, in each namespace
BARS = {"seconds": 120.0, "writes an object": 1.0, "more a team": 4.0, "requests a second": 1.0}


class Bench:
    """One controller and its teams on a control plane of their own."""

    def __init__(self, plane: ControlPlane, cluster: Cluster, directory: Path, size: int) -> None:
        self.cluster = cluster
        self.size = size
        self.teams = Teams(cluster, HUB_NAMESPACE)
        self.names = [f"team-{number:03}" for number in range(size)]
        self._plane = plane
        self._controller = Controller(plane, HUB_NAMESPACE, directory, storage=STORAGE)

    async def make_teams(self, groups: int) -> None:
        for name in self.names:
            spec: dict[str, Any] = {"quota": {"pods": 50, "gpus": {GPU: 4}}}
            spec["groups"] = [f"{name}/{number}" for number in range(groups)]
            await self.teams.create(name, **spec)

    async def measure_convergence(self) -> dict[str, Any]:
        """From nothing but Team objects to all of them ready."""
        await self._wait_until_quiet()  # Kubernetes itself has much to do at first
        before = await read_writes(self.cluster)
        began = time.perf_counter()
        self._controller.start()
        await wait_until(self._are_ready, within=600, what="all teams being ready")
        seconds = time.perf_counter() - began
        await self._wait_until_quiet()
        written = await read_writes(self.cluster) - before
        objects = {key: written[key] / self.size - KUBERNETES_OWN.get(key, 0) for key in OBJECTS}
        more = {key: n / self.size for key, n in written.items() if key.startswith("PATCH")}
        return {
            "seconds": round(seconds, 1),
            "writes an object": round(sum(objects.values()) / sum(OBJECTS.values()), 3),
            "more a team": round(sum(more.values()), 3),
            "objects": objects,
            "more": more,
        }

    async def measure_change(self) -> dict[str, Any]:
        """One team's quota is changed."""
        before, versions = await read_writes(self.cluster), await self._read_versions()
        await self.teams.cluster.patch(
            self.teams.path(self.names[0]), {"spec": {"quota": {"gpus": {GPU: 5}}}}
        )
        await wait_until(lambda: self._shows("0/5"), within=30, what="the new quota")
        await self._wait_until_quiet()
        after = await self._read_versions()
        touched = {key.partition("/")[0] for key in after if after[key] != versions.get(key)}
        written = await read_writes(self.cluster) - before
        patches = {key: n for key, n in written.items() if key.startswith("PATCH")}
        return {"namespaces touched": sorted(touched), "patches": patches}

    async def measure_rest(self, seconds: float) -> dict[str, Any]:
        """Nothing happens; then the controller is stopped, to see what is not its own.

        Kubernetes' own controllers are stopped already, since they never rest.
        """
        both = await self._count_requests(seconds)
        self._controller.stop()
        seen = both - await self._count_requests(seconds)
        # of the cluster: namespaces, claims, volumes, classes and Secrets of buckets; of the
        # publisher: nodes, pods and the inventory
        views = len(CHILDREN) + 5 + 3
        renewals = views / mean(WATCH_SECONDS) + 1 / TEAM_WATCH_SECONDS
        looks = (2 * self.size + 2) / RESYNC
        return {
            "requests a second": round(seen.total() / seconds + renewals + looks, 3),
            "seen": dict(seen),
            "renewals a second": round(renewals, 3),
            "looks a second": round(looks, 3),
        }

    async def measure_restart(self) -> dict[str, Any]:
        """The controller starts again and finds everything as it should be."""
        before, writes = await read_requests(self.cluster), await read_writes(self.cluster)
        began = time.perf_counter()
        self._controller.start()
        await wait_until(lambda: self._has_looked(before), within=300, what="a look at every team")
        seconds = time.perf_counter() - began
        await self._wait_until_quiet()
        written = await read_writes(self.cluster) - writes
        ours = {key: n for key, n in written.items() if key != "PUT leases"}
        return {"seconds": round(seconds, 1), "writes": ours}

    async def stop_kubernetes(self) -> None:
        """Stop Kubernetes' own controllers, and what they still had to do."""
        await asyncio.to_thread(self._plane.daemons.stop, "kube-controller-manager")
        await self._wait_until_quiet()

    def close(self) -> None:
        self._controller.stop()

    async def _count_requests(self, seconds: float) -> Counter[str]:
        before = await read_requests(self.cluster)
        await asyncio.sleep(seconds)
        return await read_requests(self.cluster) - before

    async def _are_ready(self) -> bool:
        await asyncio.sleep(0.5)  # such a question is a burden of its own
        found = await self.cluster.list(find_teams(HUB_NAMESPACE))
        return sum(map(_is_ready, found)) == self.size

    async def _shows(self, gpus: str) -> bool:
        return (await self.teams.get(self.names[0]))["status"].get("gpus") == gpus

    async def _has_looked(self, before: Counter[str]) -> bool:
        await asyncio.sleep(0.5)
        return (await read_requests(self.cluster) - before)["GET teams"] >= self.size

    async def _wait_until_quiet(self) -> None:
        async def is_quiet() -> bool:
            before = await read_writes(self.cluster)
            await asyncio.sleep(3)
            return not (await read_writes(self.cluster) - before).keys() - {"PUT leases"}

        await wait_until(is_quiet, within=120, what="a quiet cluster")

    async def _read_versions(self) -> dict[str, str]:
        """Resource versions by `namespace/kind/name` of everything that the controller makes."""
        found = {}
        others = {"Namespace": ("v1", "namespaces"), "PersistentVolumeClaim": CLAIMS}
        for kind, resource in {**others, **CHILDREN}.items():
            for one in await self.cluster.list(collection(*resource)):
                metadata = one["metadata"]
                namespace = metadata.get("namespace", metadata["name"])
                found[f"{namespace}/{kind}/{metadata['name']}"] = metadata["resourceVersion"]
        return found


def _is_ready(team: dict[str, Any]) -> bool:
    conditions = (team.get("status") or {}).get("conditions") or []
    return len(conditions) == 3 and all(c["status"] == "True" for c in conditions)


async def measure(*, teams: int, groups: int, quiet: float) -> dict[str, dict[str, Any]]:
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(control_plane())
        plane.start_controller_manager()
        cluster = await stack.enter_async_context(connect(plane))
        await serve_teams(cluster)
        await cluster.create("/api/v1/namespaces", {"metadata": {"name": HUB_NAMESPACE}})
        await cluster.create(collection(*CLASSES), CLASS)
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bench = Bench(plane, cluster, directory, teams)
        await bench.make_teams(groups)
        stack.callback(bench.close)
        results = {"convergence": await bench.measure_convergence()}
        _print_line("convergence", results)
        results["change"] = await bench.measure_change()
        _print_line("change", results)
        await bench.stop_kubernetes()
        results["rest"] = await bench.measure_rest(quiet)
        _print_line("rest", results)
        results["restart"] = await bench.measure_restart()
        _print_line("restart", results)
        return results


def _print_line(part: str, results: dict[str, dict[str, Any]]) -> None:
    print(json.dumps({"part": part, **results[part]}), flush=True)


def _print_table(results: dict[str, dict[str, Any]]) -> None:
    convergence, rest = results["convergence"], results["rest"]
    figures = {key: {**convergence, **rest}[key] for key in BARS}
    print(f"{'':<24}{'figure':>10}{'bar':>10}")
    for what, figure in figures.items():
        print(f"{what:<24}{figure:>10.3f}{BARS[what]:>10.1f}")
    touched = len(results["change"]["namespaces touched"])
    print(f"{'namespaces a change':<24}{touched:>10}{1:>10}")
    writes = sum(results["restart"]["writes"].values())
    print(f"{'writes a restart':<24}{writes:>10}{0:>10}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the team controller with many teams.")
    parser.add_argument("--teams", type=int, default=200)
    parser.add_argument("--groups", type=int, default=25)
    parser.add_argument("--quiet", type=float, default=60)
    arguments = parser.parse_args()
    results = asyncio.run(
        measure(teams=arguments.teams, groups=arguments.groups, quiet=arguments.quiet)
    )
    _print_table(results)


if __name__ == "__main__":
    main()
