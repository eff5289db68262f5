"""The team controller as a process of its own, and what a test wants to know of its teams."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp

from local.control_plane import ControlPlane, find_free_ports
from spectrum_spawner import names
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.objects import TeamSpace, make_children, make_namespace
from spectrum_spawner.controller.settings import Settings
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = {
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas/{}",
    "LimitRange": "/api/v1/namespaces/{}/limitranges/{}",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/{}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
}


class Controller:
    """One controller process; it may be stopped and started again."""

    def __init__(self, plane: ControlPlane, hub_namespace: str, directory: Path) -> None:
        port = find_free_ports().apiserver
        self.hub_namespace = hub_namespace
        self.health = f"http://127.0.0.1:{port}/healthz"
        self._log = directory / f"controller-{hub_namespace}.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if "KUBE" not in name},
            "PYTHONPATH": str(CHECKOUT),
            "KUBECONFIG": str(plane.kubeconfig),
            "HUB_NAMESPACE": hub_namespace,
            "ACCELERATORS": json.dumps([GPU, SLICE]),
            "HEALTH_PORT": str(port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spectrum_spawner.controller"],
                env=self._environment,
                stdout=log,
                stderr=log,
            )

    def stop(self, *, kill: bool = False) -> int:
        """End it, by SIGTERM or at once; returns the exit status."""
        assert self._process is not None
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        return self._process.wait(20)

    def __enter__(self) -> "Controller":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def is_healthy(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self.health) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    def read_log(self) -> str:
        return self._log.read_text()


class Teams:
    """Teams of one hub: made as an administrator makes them, and looked at."""

    def __init__(self, cluster: Cluster, hub_namespace: str) -> None:
        self.cluster = cluster
        self.settings = Settings(
            hub_namespace=hub_namespace,
            prefix=f"{hub_namespace}-",
            accelerators=(GPU, SLICE),
        )
        self._path = find_teams(hub_namespace)

    def path(self, team: str) -> str:
        return f"{self._path}/{team}"

    def namespace(self, team: str) -> str:
        return names.team_namespace(team, prefix=self.settings.prefix)

    async def create(self, name: str, *, adopt: str = "", **spec: Any) -> dict[str, Any]:
        metadata = {"name": name}
        if adopt:
            metadata["annotations"] = {"spectrum.dev/adopt-orphan": adopt}  # type: ignore[assignment]
        team = {"metadata": metadata, "spec": spec}
        kind = {"apiVersion": "spectrum.dev/v1alpha1", "kind": "Team"}
        return await self.cluster.create(self._path, {**kind, **team})

    async def create_ready(self, name: str, **rest: Any) -> dict[str, Any]:
        await self.create(name, **rest)
        return await self.wait_for(name, "Reconciled")

    async def get(self, name: str) -> dict[str, Any]:
        return await self.cluster.get(self.path(name))

    async def delete(self, name: str) -> None:
        await self.cluster.delete(self.path(name))

    async def wait_for(self, name: str, reason: str, *, within: float = 10) -> dict[str, Any]:
        """The Team once its Ready condition has that reason for the present generation."""

        async def find() -> dict[str, Any] | None:
            team = await self.get(name)
            return team if self.reason(team) == reason else None

        return await wait_until(find, within=within, what=f"{reason} of team {name}")

    def reason(self, team: dict[str, Any]) -> str:
        status = team.get("status") or {}
        if status.get("observedGeneration") != team["metadata"]["generation"]:
            return ""
        return next(c["reason"] for c in status["conditions"] if c["type"] == "Ready")

    async def find_namespace(self, team: str) -> dict[str, Any] | None:
        return await self.cluster.find(f"/api/v1/namespaces/{self.namespace(team)}")

    async def annotations(self, team: str) -> dict[str, str]:
        """Annotations of a team's namespace."""
        namespace = await self.cluster.get(f"/api/v1/namespaces/{self.namespace(team)}")
        return namespace["metadata"]["annotations"]

    async def annotate(self, team: str, **annotations: str) -> None:
        """Annotate a team's namespace with `spectrum.dev/<name>`."""
        marks = {f"spectrum.dev/{name}": value for name, value in annotations.items()}
        path = f"/api/v1/namespaces/{self.namespace(team)}"
        await self.cluster.patch(path, {"metadata": {"annotations": marks}})

    async def live_objects(self, team: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
        """(wanted, live) for the namespace and all that has to be in it."""
        record = await self.get(team)
        space = TeamSpace(
            hub_namespace=self.settings.hub_namespace,
            team=team,
            uid=record["metadata"]["uid"],
            namespace=self.namespace(team),
            gid=record["status"]["gid"],
        )
        pairs = [(make_namespace(space), await self.find_namespace(team))]
        for wanted in make_children(space, record["spec"].get("quota", {}), self.settings):
            path = PATHS[wanted["kind"]].format(space.namespace, wanted["metadata"]["name"])
            pairs.append((wanted, await self.cluster.find(path)))
        return pairs

    async def is_as_wanted(self, team: str) -> bool:
        pairs = await self.live_objects(team)
        return all(live is not None and not mending_patch(live, wanted) for wanted, live in pairs)

    async def versions(self, team: str) -> dict[str, str]:
        """Resource version of the Team and of everything that belongs to it."""
        pairs = await self.live_objects(team)
        found = {w["metadata"]["name"] + w["kind"]: live for w, live in pairs if live is not None}
        found["team"] = await self.get(team)
        return {key: live["metadata"]["resourceVersion"] for key, live in found.items()}
