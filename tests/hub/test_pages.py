"""What the hub's pages tell a person: notices, and where to ask for what is missing."""

import html
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest_asyncio
from aiohttp import web

from spectrum_spawner import hub_pages
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.hub import TEST_ROLE, TEST_SERVICE, Hub
from tests.hub.spawners import FLIGHT, OPS, Setup, make_spectrum
from tests.hub.team import Team

ACCESS = "access:services!service=spectrum"
LEFT = "You are no longer in team flight, where this server runs."


@pytest_asyncio.fixture
async def notices() -> AsyncIterator[list[dict[str, Any]]]:
    """What the service tells. The first entry is about nobody and holds the service's address."""
    told: list[dict[str, Any]] = []

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"notices": told})

    app = web.Application()
    app.router.add_get("/internal/notices", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    told.append({"user": "", "server": "", "text": url})
    yield told
    await runner.cleanup()


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]],
    flight: Team,
    ops: Team,
    hub_namespace: str,
    notices: list[dict[str, Any]],
) -> Hub:
    """A hub with our pages and the service, as far as the hub sees it."""
    setup = make_spectrum(hub_namespace)
    config = setup.config
    config.JupyterHub.update(hub_pages.SETTINGS)
    url = notices[0]["text"]
    service = {"name": "spectrum", "url": url, "api_token": "v" * 64}
    config.JupyterHub.services = [TEST_SERVICE, {**service, "oauth_client_id": "service-spectrum"}]
    config.JupyterHub.load_roles = [TEST_ROLE, {"name": "user", "scopes": ["self", ACCESS]}]
    config.SpectrumSpawner.notices_url = f"{url}/internal/notices"
    return await start_hub(setup)


async def test_the_services_pages_stand_beside_the_hubs(hub: Hub) -> None:
    async with hub.sign_in("alice") as pages:
        for path in ("/home", "/spawn", "/token", "/nowhere"):
            page = await pages.read(path)
            links = [f"/services/spectrum/{name}" for name in ("", "teams", "requests", "audit")]
            assert [f'class="nav-link" href="{link}"' in page for link in links] == [True] * 4


async def test_the_home_page_says_what_the_services_pages_are_for(hub: Hub) -> None:
    async with hub.sign_in("alice") as pages:
        page = await pages.read("/home")
    assert '<a href="/services/spectrum/">Who in your teams uses which GPUs</a>' in page
    assert 'href="/services/spectrum/requests">Ask for GPUs, a profile or a team</a>' in page


async def test_a_notice_of_the_service_is_shown_with_its_server(
    hub: Hub, notices: list[dict[str, Any]]
) -> None:
    ends = "2026-01-31T10:14:00Z"
    text = "<b>This server</b> will be stopped."
    notices.append({"user": "alice", "server": "second", "text": text, "ends_at": ends})
    assert (await hub.start_server("alice", FLIGHT, "second")).status == 201
    spawner = hub.find_spawner("alice", "second")
    await wait_until(lambda: spawner.notices, within=15)
    async with hub.sign_in("alice") as pages:
        page = await pages.read("/home")
    assert html.escape(text) in page
    assert f'<time class="spectrum-clock" datetime="{ends}">' in page
    async with hub.sign_in("bob") as pages:
        assert "will be stopped" not in await pages.read("/home")


async def test_the_hub_tells_by_itself_who_has_left_a_team(hub: Hub) -> None:
    assert (await hub.start_server("alice")).status == 201
    async with hub.sign_in("alice") as pages:
        assert LEFT not in await pages.read("/home")
        await hub.call("DELETE", "/groups/flight/users", {"users": ["alice"]})
        assert LEFT in await pages.read("/home")
        await hub.call("POST", "/groups/flight/users", {"users": ["alice"]})
        assert LEFT not in await pages.read("/home")


async def test_a_used_up_quota_is_told_with_a_link_to_the_request(
    hub: Hub, cluster: Cluster, hub_namespace: str, clock: Clock
) -> None:
    gpu = {**OPS, "profile": "gpu-1"}
    await hub.start_server("bob", gpu)
    usage = {"gpus": {"nvidia.com/gpu": {"used": 1, "hard": 1}}}
    path = f"{find_teams(hub_namespace)}/ops/status"
    await cluster.patch(path, {"status": {"usage": usage}})
    teams = hub.find_spawner("bob").views.teams
    await wait_until(lambda: teams.get("ops").gpus_hard, within=10)
    async with hub.sign_in("admin") as pages:
        await pages.read("/spawn")
        # the form says why for a second only; on a busy machine that has to last
        with clock.hurry(0.1):
            page = await pages.send("/spawn/admin", {**gpu, "image": "tensorflow"})
    assert "Team ops has 1 of 1 GPU in use (bob: gpu-1 since " in page
    link = "/services/spectrum/requests?kind=quota&amp;team=ops&amp;profile=gpu-1"
    assert f'<a href="{link}">Request more</a>' in page


async def test_somebody_in_no_team_may_ask_for_one(hub: Hub) -> None:
    async with hub.sign_in("carol") as pages:
        page = await pages.read("/spawn")
    assert "Please ask the test&#39;s administrators to add you to a team" in page
    assert 'href="/services/spectrum/requests?kind=team">Ask for a team</a>' in page
