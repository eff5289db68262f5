"""The service on a real hub and a real API server, with time that a test can move."""

import copy
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jupyterhub.utils import random_port

from spectrum_spawner import names
from spectrum_spawner.kube import Configuration, load_configuration
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.service.app import serve
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.ledger import Query
from spectrum_spawner.service.rights import AuditScope
from spectrum_spawner.service.settings import Settings
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import TEST_ROLE, TEST_SERVICE, Hub
from tests.hub.service.browser import PREFIX, Browser
from tests.hub.service.front import Front
from tests.hub.spawners import IMAGES, PROFILES, make_spectrum
from tests.hub.team import RBAC, Team

GPU = "nvidia.com/gpu"
NEVER = 10**6  # seconds between looks, where the test looks by itself
SERVICE_TOKEN = "test-spectrum-token"
POOR_TOKEN = "test-poor-token"  # of a service that may get in, and nothing else
ACCESS = "access:services!service=spectrum"
ACT = "custom:spectrum:act"
ROLES = [
    TEST_ROLE,
    {"name": "user", "scopes": ["self", ACCESS, ACT]},
    {"name": "server", "scopes": ["users:activity!user", "access:servers!server", ACCESS]},
    {
        "name": "spectrum-service",
        "services": ["spectrum"],
        "scopes": [
            *("list:users", "read:users:name", "read:users:groups"),
            *("read:servers", "delete:servers"),
        ],
    },
    {"name": "poor", "services": ["poor"], "scopes": [ACCESS]},
]


@dataclass
class Wall:
    """The time that the service tells, as far ahead as a test wants it."""

    ahead: timedelta = field(default_factory=timedelta)

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass(frozen=True, kw_only=True)
class Running:
    """A service, and the one address where people find it and the hub."""

    context: Context
    url: str
    wall: Wall

    async def read_audit(self) -> list[tuple[str, str, str, str]]:
        """Action, actor, person and reason of each record, the first one first."""
        found = await self.context.ledger.find(Query(scope=AuditScope(everything=True)))
        records = [entry.record for entry in reversed(found)]
        return [(r.action, r.actor, r.user, r.reason) for r in records]


@pytest_asyncio.fixture
async def teams(make_team: Callable[..., Awaitable[Team]]) -> dict[str, Team]:
    """Flight (alice, bob, who leads it) and ops (bob, admin), with a GPU each."""
    quota = {"quota": {"gpus": {GPU: 1}}}
    flight = await make_team("flight", spec={"leads": ["bob"], "displayName": "Flight", **quota})
    return {"flight": flight, "ops": await make_team("ops", spec=quota)}


@pytest_asyncio.fixture
async def port() -> int:
    """Where the service listens."""
    return random_port()


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[..., Awaitable[Hub]],
    teams: dict[str, Team],
    hub_namespace: str,
    port: int,
) -> Hub:
    """A hub that knows the service, as the chart makes it."""
    setup = make_spectrum(hub_namespace)
    hub = setup.config.JupyterHub
    hub.custom_scopes = {ACT: {"description": "Act in Spectrum on one's own behalf"}}
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
    return await start_hub(setup)


@pytest_asyncio.fixture
async def settings(hub: Hub, hub_namespace: str, port: int, tmp_path: Path) -> Settings:
    return Settings(
        hub_namespace=hub_namespace,
        prefix=PREFIX,
        base_url="/",
        api_url=f"{_find_hub(hub)}/hub/api",
        client_id="service-spectrum",
        api_token=SERVICE_TOKEN,
        cookie_secret=b"\0" * 32,
        writers={"hub": "hub-token", "controller": "controller-token"},
        database=f"sqlite:///{tmp_path / 'ledger.sqlite'}",
        port=port,
        contact="the test's administrators",
        profiles=read_profiles(PROFILES, IMAGES),
    )


@pytest_asyncio.fixture
async def configuration(
    cluster: Cluster, hub_namespace: str, fault_proxy: FaultProxy
) -> Configuration:
    """The way of the service's own account to the API server, through the fault proxy."""
    token = await _create_account(cluster, hub_namespace)
    configuration = copy.deepcopy(await load_configuration())
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    return configuration


@pytest_asyncio.fixture
async def start_service(
    hub: Hub, settings: Settings, configuration: Configuration
) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """Starts the service: `await start_service(leaving_grace=60)`; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(look_every: float = NEVER, **changes: Any) -> Running:
            wall = Wall()
            told = replace(settings, **changes)
            serving = serve(told, configuration, now=wall, look_every=look_every)
            context = await stack.enter_async_context(serving)
            await context.teams.wait_synced(timeout=10)
            front = Front(_find_hub(hub), f"http://127.0.0.1:{told.port}", PREFIX)
            await stack.enter_async_context(front)
            return Running(context=context, url=front.url, wall=wall)

        yield start


@pytest_asyncio.fixture
async def service(start_service: Callable[..., Awaitable[Running]]) -> Running:
    return await start_service()


@pytest_asyncio.fixture
async def sign_in(service: Running) -> AsyncIterator[Callable[[str], Awaitable[Browser]]]:
    """A person at a browser of their own: `alice = await sign_in("alice")`."""
    async with AsyncExitStack() as stack:

        async def sign_in(name: str) -> Browser:
            browser = await stack.enter_async_context(Browser(service.url))
            shown = await browser.sign_in(name)
            assert (shown.status, shown.path) == (200, PREFIX), shown
            return browser

        yield sign_in


@pytest.fixture
def break_ledger(settings: Settings) -> Callable[[], None]:
    """Makes the ledger take no more records."""

    def break_it() -> None:
        path = settings.database.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path)) as database:
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON records "
                "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            )

    return break_it


def _find_hub(hub: Hub) -> str:
    return f"http://127.0.0.1:{hub.app.hub.port}"


async def _create_account(cluster: Cluster, namespace: str) -> str:
    """The service's account with the rights that the chart gives it; returns its token."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    await cluster.create(accounts, {"metadata": {"name": "service"}})
    rule = {
        "apiGroups": [names.API_GROUP],
        "resources": [names.TEAM_PLURAL],
        "verbs": ["get", "list", "watch", "create", "patch"],
    }
    role = {"metadata": {"name": "service"}, "rules": [rule]}
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
