"""The team controller as a process of its own, and what a test wants to know of its teams."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration

from local.control_plane import ControlPlane
from local.listeners import find_free_port
from spectrum_spawner import kube, names
from spectrum_spawner.controller import cluster as controller_cluster
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace, make_children, make_namespace
from spectrum_spawner.controller.reconcile import Reconciler
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.storage_settings import StorageSettings
from spectrum_spawner.outbox import Outbox
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
CHECKOUT = Path(__file__).resolve().parents[2]
PATHS = {
    "Namespace": "/api/v1/namespaces/{}",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas/{}",
    "LimitRange": "/api/v1/namespaces/{}/limitranges/{}",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts/{}",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies/{}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings/{}",
}
NO_STORAGE = StorageSettings()
PATIENCE = 120  # seconds that a controller may take to start on a busy machine


class Controller:
    """One controller process; it may be stopped and started again.

    `templates` are the release's teamTemplates, `storage` its table of that name,
    `environment` what else it is told. Audit records stay in its outbox.
    """

    def __init__(
        self,
        plane: ControlPlane,
        hub_namespace: str,
        directory: Path,
        templates: Mapping[str, Any] | None = None,
        storage: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        port = find_free_port()
        self.hub_namespace = hub_namespace
        self.health = f"http://127.0.0.1:{port}/healthz"
        self._outbox = directory / f"audit-{hub_namespace}.sqlite"
        self._log = directory / f"controller-{hub_namespace}.log"
        self._environment = {
            **{name: value for name, value in os.environ.items() if "KUBE" not in name},
            "PYTHONPATH": str(CHECKOUT),
            "KUBECONFIG": str(plane.kubeconfig),
            "HUB_NAMESPACE": hub_namespace,
            "ACCELERATORS": json.dumps([GPU, SLICE]),
            "TEAM_TEMPLATES": json.dumps(templates or {}),
            "STORAGE": json.dumps(storage or {}),
            "AUDIT_OUTBOX": str(self._outbox),
            "HEALTH_PORT": str(port),
            **(environment or {}),
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

    async def wait_until_healthy(self) -> None:
        await wait_until(self.is_healthy, within=PATIENCE, what="the start of a controller")

    def read_log(self) -> str:
        return self._log.read_text()

    def read_records(self, team: str) -> list[dict[str, Any]]:
        """The audit records about a team, in their order."""
        with closing(sqlite3.connect(self._outbox)) as database:
            rows = database.execute("SELECT body FROM pending ORDER BY place").fetchall()
        records = [json.loads(body) for (body,) in rows]
        return [record for record in records if record["team"] == team]

    def read_reasons(self, team: str) -> list[tuple[str, str]]:
        """Actor and reason of each audit record about a team."""
        return [(record["actor"], record["reason"]) for record in self.read_records(team)]


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

    async def create(
        self, name: str, *, adopt: str = "", field_manager: str = "", **spec: Any
    ) -> dict[str, Any]:
        metadata = {"name": name}
        if adopt:
            metadata["annotations"] = {"spectrum.dev/adopt-orphan": adopt}  # type: ignore[assignment]
        team = {"metadata": metadata, "spec": spec}
        kind = {"apiVersion": "spectrum.dev/v1alpha1", "kind": "Team"}
        query = f"?fieldManager={field_manager}" if field_manager else ""
        return await self.cluster.create(self._path + query, {**kind, **team})

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


@asynccontextmanager
async def connected_client(plane: ControlPlane) -> AsyncIterator[kube.Client]:
    """The package's own client, as the cluster's administrator."""
    configuration = Configuration()
    await config.load_kube_config(str(plane.kubeconfig), client_configuration=configuration)
    client = kube.Client(configuration)
    yield client
    await client.close()


@asynccontextmanager
async def running_reconciler(
    plane: ControlPlane,
    hub_namespace: str,
    directory: Path,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    storage: StorageSettings = NO_STORAGE,
) -> AsyncIterator[Reconciler]:
    """The reconciler of a hub that has no controller; it looks when it is told to."""
    settings = Settings(
        hub_namespace=hub_namespace,
        prefix=f"{hub_namespace}-",
        accelerators=(GPU, SLICE),
        storage=storage,
    )
    outbox = Outbox(directory / "audit.sqlite", "", "")
    async with connected_client(plane) as client:
        seen = controller_cluster.Cluster(client, hub_namespace, on_team=lambda _: None)
        seen.start()
        reconciler = Reconciler(
            client,
            seen,
            Journal(outbox),
            settings,
            again=lambda _: None,
            count_servers=lambda _: 0,
            prepared_at=lambda _: "",
            clock=clock,
        )
        yield reconciler
        await reconciler.buckets.close()
        await seen.close()
    await outbox.close()
