"""A hub with its teams that the tests of a module share, put in order after each of them.

To start a hub takes seconds, to put one in order a tenth: nobody's server runs any more, the
people, groups and teams are those of the beginning. Ledger and service are each test's own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from local.control_plane import ControlPlane
from local.listeners import find_free_port
from spectrum_spawner import hub_pages, names
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, find_teams
from tests.hub.conftest import use_kubeconfig
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import TEST_ROLE, TEST_SERVICE, Hub
from tests.hub.node import NodeStub, ServerStub
from tests.hub.spawners import GROUPS, Setup, make_spectrum
from tests.hub.team import RBAC, Team, create_hub_namespace, create_hub_token, create_team

GPU = "nvidia.com/gpu"
SERVICE_TOKEN = "test-spectrum-token"
HUB_TOKEN = "hub-token"  # of the hub at the service's inside
POOR_TOKEN = "test-poor-token"  # of a service that may get in, and nothing else
ACCESS = "access:services!service=spectrum"
ACT = "custom:spectrum:act"
REPORT = "custom:spectrum:report"
ROLES = [
    TEST_ROLE,
    {"name": "user", "scopes": ["self", ACCESS, ACT, f"{REPORT}!user"]},
    {"name": "server", "scopes": ["users:activity!user", f"{REPORT}!server", ACCESS]},
    {
        "name": "spectrum-service",
        "services": ["spectrum"],
        "scopes": [
            *("list:users", "read:users:name", "read:users:groups"),
            *("read:servers", "delete:servers", "start:servers", "read:shares"),
        ],
    },
    {"name": "poor", "services": ["poor"], "scopes": [ACCESS]},
]
PEOPLE = {name for group in GROUPS.values() for name in group["users"]}


@dataclass(frozen=True, kw_only=True)
class Place:
    """`port` is where the hub expects the service, `token` the service's at the API server.

    `objects` are the Team objects of the beginning, by name; `way` is the hub's to the API server.
    """

    cluster: Cluster
    hub: Hub
    way: FaultProxy
    node: NodeStub
    namespace: str
    teams: dict[str, Team]
    port: int
    token: str
    objects: dict[str, dict[str, Any]]

    async def tidy(self) -> None:
        """Bring everything back to how it was."""
        users = (await self.hub.call("GET", "/users")).body
        await asyncio.gather(
            *(
                self._end_server(user["name"], server)
                for user in users
                for server in user["servers"]
            )
        )
        for user in users:
            if user["name"] not in PEOPLE:
                answer = await self.hub.call("DELETE", f"/users/{user['name']}")
                assert answer.status == 204, answer
        await self._restore_groups()
        await self._restore_teams()

    async def _end_server(self, user: str, server: str) -> None:
        await wait_until(lambda: self._is_settled(user, server), within=30, what="a settled server")
        await self.hub.stop_server(user, server)
        await self.hub.wait_absent(user, server, within=30)

    async def _is_settled(self, user: str, server: str) -> bool:
        found = await self.hub.find_server(user, server)
        return found is None or not found["pending"]

    async def _restore_groups(self) -> None:
        for group in (await self.hub.call("GET", "/groups")).body:
            wanted, path = set(GROUPS[group["name"]]["users"]), f"/groups/{group['name']}/users"
            for method, users in (
                ("DELETE", set(group["users"]) - wanted),
                ("POST", wanted - set(group["users"])),
            ):
                if users:
                    answer = await self.hub.call(method, path, {"users": sorted(users)})
                    assert answer.status in (200, 204), answer

    async def _restore_teams(self) -> None:
        path = find_teams(self.namespace)
        found = {each["metadata"]["name"]: each for each in await self.cluster.list(path)}
        for name in found.keys() - self.objects.keys():
            await self.cluster.delete(f"{path}/{name}")
        for name, wanted in self.objects.items():
            if name not in found:
                parts = {key: wanted[key] for key in ("apiVersion", "kind", "spec")}
                found[name] = await self.cluster.create(path, {**parts, "metadata": {"name": name}})
            if (now := found[name]["spec"]) != wanted["spec"]:
                spec = {**dict.fromkeys(now), **wanted["spec"]}
                await self.cluster.patch(f"{path}/{name}", {"spec": spec})
            if found[name].get("status") != wanted["status"]:
                await self.cluster.patch(f"{path}/{name}/status", {"status": wanted["status"]})
        uids = {each["metadata"]["uid"] for each in await self.cluster.list(path)}
        views = self.hub.find_spawner("alice").views
        await wait_until(
            lambda: {team.uid for team in views.teams if team.ready} == uids,
            within=20,
            what="the hub's sight of its teams",
        )


@asynccontextmanager
async def make_place(
    plane: ControlPlane, directory: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    """A hub's namespace with teams flight (led by bob) and ops, a node, and the hub itself."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(connect(plane))
        await create_hub_namespace(cluster, namespace)
        teams = await _create_teams(cluster, namespace)
        objects = {
            each["metadata"]["name"]: each for each in await cluster.list(find_teams(namespace))
        }
        proxy = await stack.enter_async_context(
            FaultProxy(plane.server, plane.authority.certificate)
        )
        token = await create_hub_token(cluster, namespace)
        use_kubeconfig(directory / "hub.kubeconfig", proxy.server, token, monkeypatch)
        node = await stack.enter_async_context(NodeStub(cluster, f"{namespace}-"))
        stub = await stack.enter_async_context(ServerStub())
        port = find_free_port()
        setup = _make_setup(namespace, port)
        setup.config.Spawner.port = stub.port
        hub = Hub(directory, setup)
        await hub.start()
        stack.push_async_callback(hub.kill)
        yield Place(
            cluster=cluster,
            hub=hub,
            way=proxy,
            node=node,
            namespace=namespace,
            teams=teams,
            port=port,
            token=await _create_account(cluster, namespace),
            objects=objects,
        )


async def _create_teams(cluster: Cluster, namespace: str) -> dict[str, Team]:
    """Flight (alice, bob, who leads it) and ops (bob, admin), with a GPU each."""
    ops = {"quota": {"gpus": {GPU: 1}}}
    flight = {"leads": ["bob"], "displayName": "Flight", **ops}
    return {
        "flight": await create_team(cluster, namespace, "flight", gid=100000, spec=flight),
        "ops": await create_team(cluster, namespace, "ops", gid=100001, spec=ops),
    }


def _make_setup(namespace: str, port: int) -> Setup:
    """A hub that knows the service, as the chart makes it."""
    setup = make_spectrum(namespace)
    hub = setup.config.JupyterHub
    hub.update(hub_pages.SETTINGS)
    spawner = setup.config.SpectrumSpawner
    spawner.volumes_url = f"http://127.0.0.1:{port}/internal/volumes"
    spawner.notices_url = f"http://127.0.0.1:{port}/internal/notices"
    spawner.keep_url = f"http://127.0.0.1:{port}/internal/keep"
    spawner.continue_url = f"http://127.0.0.1:{port}/internal/continue"
    spawner.audit_token = HUB_TOKEN
    hub.custom_scopes = {
        ACT: {"description": "Ask for, decide and stop things in Spectrum for oneself."},
        REPORT: {"description": "Tell Spectrum about one's own servers, as they do."},
    }
    hub.load_roles = ROLES
    hub.services = [
        TEST_SERVICE,
        {"name": "poor", "api_token": POOR_TOKEN},
        {
            "name": "spectrum",
            "url": f"http://127.0.0.1:{port}",
            "api_token": SERVICE_TOKEN,
            "timeout": 1,
            "oauth_client_id": "service-spectrum",
            "oauth_no_confirm": True,
            "oauth_client_allowed_scopes": [ACCESS, ACT],
        },
    ]
    return setup


async def _create_account(cluster: Cluster, namespace: str) -> str:
    """The service's account with the rights that the chart gives it; returns its token."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await cluster.create(accounts, {"metadata": {"name": "service"}})
    teams = {
        "apiGroups": [names.API_GROUP],
        "resources": [names.TEAM_PLURAL],
        "verbs": ["get", "list", "watch", "create", "patch"],
    }
    inventory = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [names.INVENTORY],
        "verbs": ["get"],
    }
    role = {"metadata": {"name": "service"}, "rules": [teams, inventory]}
    await cluster.create(f"{RBAC}/namespaces/{namespace}/roles", role)
    binding = {
        "metadata": {"name": "service"},
        "subjects": [{"kind": "ServiceAccount", "name": "service", "namespace": namespace}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "service"},
    }
    await cluster.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    answer = await cluster.create(
        f"{accounts}/service/token", {"spec": {"expirationSeconds": 3600}}
    )
    return answer["status"]["token"]
