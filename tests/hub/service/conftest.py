"""The service on a real hub and a real API server, with time that a test can move.

The hub is the module's, service and ledger are the test's own.
"""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import async_playwright, expect

from local.control_plane import ControlPlane
from spectrum_spawner.kube import Configuration
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.service.app import serve
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.ledger import Query
from spectrum_spawner.service.rights import AuditScope
from spectrum_spawner.service.settings import Settings
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX, Browser
from tests.hub.service.front import Front
from tests.hub.service.place import HUB_TOKEN, SERVICE_TOKEN, Place, make_place
from tests.hub.service.postgresql import PostgreSQL, running_postgresql
from tests.hub.spawners import IMAGES, PROFILES
from tests.hub.team import Team

expect.set_options(timeout=30_000)  # ms: a busy machine takes its time to draw a page
NEVER = 10**6  # seconds between looks, where the test looks by itself


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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Place]:
    """What the tests of a module share."""
    name = request.path.stem.removeprefix("test_").replace("_", "-")
    directory = tmp_path_factory.mktemp(name)
    with pytest.MonkeyPatch.context() as monkeypatch:
        async with make_place(plane, directory, f"service-{name}", monkeypatch) as place:
            yield place


@pytest_asyncio.fixture(loop_scope="module")
async def hub(place: Place) -> AsyncIterator[Hub]:
    """The module's hub as at its start."""
    yield place.hub
    await place.tidy()


@pytest.fixture
def cluster(place: Place) -> Cluster:
    return place.cluster


@pytest.fixture
def hub_namespace(place: Place) -> str:
    return place.namespace


@pytest.fixture
def teams(place: Place) -> dict[str, Team]:
    return place.teams


@pytest_asyncio.fixture(loop_scope="module")
async def fault_proxy(plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    """Stands between the service and the API server; the hub has a way of its own."""
    async with FaultProxy(plane.server, plane.authority.certificate) as proxy:
        yield proxy


@pytest.fixture
def settings(place: Place, hub: Hub, tmp_path: Path) -> Settings:
    return Settings(
        hub_namespace=place.namespace,
        prefix=PREFIX,
        base_url="/",
        api_url=f"{_find_hub(hub)}/hub/api",
        client_id="service-spectrum",
        api_token=SERVICE_TOKEN,
        cookie_secret=b"\0" * 32,
        writers={"hub": HUB_TOKEN, "controller": "controller-token"},
        database=f"sqlite:///{tmp_path / 'ledger.sqlite'}",
        port=place.port,
        contact="the test's administrators",
        profiles=read_profiles(PROFILES, IMAGES),
    )


@pytest.fixture
def configuration(place: Place, fault_proxy: FaultProxy) -> Configuration:
    """The way of the service's own account to the API server, through the fault proxy."""
    configuration = Configuration(host=fault_proxy.server)
    configuration.api_key = {"BearerToken": f"Bearer {place.token}"}
    return configuration


@pytest_asyncio.fixture(loop_scope="module")
async def start_service(
    hub: Hub, settings: Settings, configuration: Configuration
) -> AsyncIterator[Callable[..., Awaitable[Running]]]:
    """Starts the service: `await start_service(leaving_grace=60)`; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def start(look_every: float = NEVER, **changes: Any) -> Running:
            wall = Wall()
            told = replace(settings, **changes)
            serving = serve(
                told, configuration, now=wall, look_every=look_every, cull_every=look_every
            )
            context = await stack.enter_async_context(serving)
            await context.teams.wait_synced(timeout=10)
            front = Front(_find_hub(hub), f"http://127.0.0.1:{told.port}", PREFIX)
            await stack.enter_async_context(front)
            return Running(context=context, url=front.url, wall=wall)

        yield start


@pytest_asyncio.fixture(loop_scope="module")
async def service(start_service: Callable[..., Awaitable[Running]]) -> Running:
    return await start_service()


@pytest_asyncio.fixture(loop_scope="module")
async def sign_in(service: Running) -> AsyncIterator[Callable[[str], Awaitable[Browser]]]:
    """A person at a browser of their own: `alice = await sign_in("alice")`."""
    async with AsyncExitStack() as stack:

        async def sign_in(name: str) -> Browser:
            browser = await stack.enter_async_context(Browser(service.url))
            shown = await browser.sign_in(name)
            assert (shown.status, shown.path) == (200, PREFIX), shown
            return browser

        yield sign_in


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Chromium]:
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        await chromium.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database; a test that asks for it runs once on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    return request.getfixturevalue("postgresql").make_database()


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
