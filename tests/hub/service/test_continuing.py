"""Going on without a GPU: one click restarts the same server on a profile that has none."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

from spectrum_spawner.service.hub import HubError
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running
from tests.hub.service.place import HUB_TOKEN, Place
from tests.hub.service.tokens import Token, read_server_token
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

GPU = {"team": "flight", "profile": "gpu-1"}
CHOSEN = "It goes on without a GPU, on profile Small."
SignIn = Callable[[str], Awaitable[Browser]]


@pytest_asyncio.fixture(loop_scope="module")
async def running(service: Running, hub: Hub) -> Running:
    """The service, and alice's server with a GPU in flight."""
    assert (await hub.start_server("alice", GPU, "wide")).status == 201
    service.context.snapshot.forget()  # the list that the service read when it began
    return service


@pytest_asyncio.fixture(loop_scope="module")
async def only_gpus(place: Place, running: Running) -> AsyncIterator[None]:
    """Flight may use no profile without a GPU any more."""
    path = f"{find_teams(place.namespace)}/flight"
    await place.cluster.patch(path, {"spec": {"profiles": ["gpu-1"]}})
    sheets = running.context.teams
    await wait_until(lambda: sheets.get("flight").team.profiles == {"gpu-1"}, within=10)
    yield
    await place.cluster.patch(path, {"spec": {"profiles": None}})


async def wait_profile(hub: Hub, profile: str) -> dict[str, Any]:
    """Alice's server once it runs on a profile."""

    async def find() -> dict[str, Any] | None:
        found = await hub.find_server("alice", "wide")
        return (
            found
            if found and found["ready"] and found["user_options"]["profile"] == profile
            else None
        )

    await wait_until(find, within=20, what=f"alice's server on {profile}")
    found = await find()
    assert found
    return found


async def test_the_same_server_starts_again_with_everything_but_the_gpu(
    running: Running, hub: Hub, sign_in: SignIn, cluster: Cluster, teams: dict[str, Team]
) -> None:
    alice = await sign_in("alice")
    (row,) = (await alice.call("GET", "gpus")).body["gpus"]
    assert row["may"] == ["continue", "release"]
    shown = await alice.call("POST", "servers/alice/wide/continue")
    assert (shown.status, shown.body) == (202, {"profile": "cpu-small"})
    found = await wait_profile(hub, "cpu-small")
    assert found["user_options"] == {
        "team": "flight",
        "profile": "cpu-small",
        "image": "tensorflow",
        "scratch": "",
    }
    assert await running.read_audit() == [("continue", "user:alice", "alice", CHOSEN)]
    pod = await cluster.get(teams["flight"].find_pod("alice", "wide"))
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"]["limits"]
    # whoever has no GPU has nothing to go on without
    shown = await alice.call("POST", "servers/alice/wide/continue")
    assert (shown.status, shown.problem) == (
        409,
        "This server has no GPU, so there is nothing to go on without.",
    )


async def test_a_lead_does_it_for_a_member_and_nobody_else(
    running: Running, hub: Hub, sign_in: SignIn
) -> None:
    carol = await sign_in("carol")
    assert (await carol.call("POST", "servers/alice/wide/continue")).status == 404
    bob = await sign_in("bob")
    shown = await bob.send("gpus", **{"continue": "alice/wide"})
    assert "The server stops, and starts again without a GPU." in shown.text
    await wait_profile(hub, "cpu-small")
    assert await running.read_audit() == [("continue", "user:bob", "alice", CHOSEN)]


async def test_a_servers_own_token_does_it_for_that_server(
    running: Running, hub: Hub, cluster: Cluster, teams: dict[str, Team]
) -> None:
    token = await read_server_token(cluster, teams["flight"], "alice", "wide")
    server = Token(running.url, token)
    assert (await server.call("POST", "servers/alice/wide/continue")).status == 202
    await wait_profile(hub, "cpu-small")


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"profile": "gpu-1"}, 409, "Of the profiles that team “Flight” may use there is no pro"),
        ({"profile": "ops-only"}, 409, "Of the profiles that team “Flight” may use there is no"),
        ({"profile": 7}, 400, "A profile is named by a text"),
        ({"reason": "x"}, 400, "The body has no place for “reason”"),
    ],
)
async def test_what_cannot_be_meant_changes_nothing(
    running: Running, hub: Hub, sign_in: SignIn, body: dict[str, Any], status: int, sentence: str
) -> None:
    shown = await (await sign_in("alice")).call("POST", "servers/alice/wide/continue", body)
    assert (shown.status, shown.problem[: len(sentence)]) == (status, sentence)
    assert await hub.is_ready("alice", "wide")
    assert await running.read_audit() == []


async def test_a_team_without_such_a_profile_is_refused_with_a_sentence(
    running: Running, hub: Hub, sign_in: SignIn, only_gpus: None
) -> None:
    alice = await sign_in("alice")
    (row,) = (await alice.call("GET", "gpus")).body["gpus"]
    assert row["may"] == ["release"]
    shown = await alice.call("POST", "servers/alice/wide/continue")
    assert (shown.status, shown.problem) == (
        409,
        "Of the profiles that team “Flight” may use there is none without a GPU: ask an "
        "administrator for one, or stop the server.",
    )
    assert await hub.is_ready("alice", "wide")


async def test_nothing_is_stopped_that_cannot_be_written_down(
    running: Running, hub: Hub, sign_in: SignIn, break_ledger: Callable[[], None]
) -> None:
    alice = await sign_in("alice")
    break_ledger()
    shown = await alice.call("POST", "servers/alice/wide/continue")
    assert shown.status == 503
    assert shown.problem.startswith("The server runs on as it is, since the restart could not be")
    assert (await hub.find_server("alice", "wide"))["user_options"]["profile"] == "gpu-1"


async def test_a_start_that_fails_leaves_a_stopped_server_and_a_record_that_says_so(
    running: Running, hub: Hub, sign_in: SignIn
) -> None:
    alice = await sign_in("alice")
    # who left the team starts nothing there any more
    left = await hub.call("DELETE", "/groups/flight/users", {"users": ["alice"]})
    assert left.status in (200, 204)
    assert (await alice.call("POST", "servers/alice/wide/continue")).status == 202
    await wait_until(lambda: not running.context.background.tasks, within=20, what="the start")
    assert await hub.find_server("alice", "wide") is None
    assert await running.read_audit() == [
        ("continue", "user:alice", "alice", CHOSEN),
        (
            "notice",
            "service:spectrum",
            "alice",
            "It is stopped, its files are there, and it did not start: You are in no team, so "
            "there is no place to start a server: ask a cluster administrator to add you to one, "
            "or ask for a team.",
        ),
    ]


async def test_a_hub_that_does_not_stop_it_leaves_it_as_it_is(
    running: Running, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def be_away(*_: object, **__: object) -> None:
        raise HubError("away")

    monkeypatch.setattr(running.context.hub, "stop", be_away)
    shown = await (await sign_in("alice")).call("POST", "servers/alice/wide/continue")
    assert (shown.status, shown.problem) == (
        503,
        "JupyterHub does not answer: try again in a minute.",
    )
    assert await hub.is_ready("alice", "wide")
    assert [action for action, *_ in await running.read_audit()] == ["continue", "notice"]


async def test_somebody_who_starts_it_first_is_not_started_over(
    running: Running, hub: Hub, sign_in: SignIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = running.context.hub.stop

    async def stop_and_be_slow(*args: Any, **kwargs: Any) -> None:
        await stop(*args, **kwargs)
        await hub.wait_absent("alice", "wide", within=20)
        assert (await hub.start_server("alice", GPU, "wide")).status == 201

    monkeypatch.setattr(running.context.hub, "stop", stop_and_be_slow)
    assert (
        await (await sign_in("alice")).call("POST", "servers/alice/wide/continue")
    ).status == 202
    await wait_until(lambda: not running.context.background.tasks, within=10, what="its end")
    assert (await hub.find_server("alice", "wide"))["user_options"]["profile"] == "gpu-1"
    assert [action for action, *_ in await running.read_audit()] == ["continue"]


async def visit_home(hub: Hub, chromium: Chromium) -> Page:
    """Alice's home page."""
    page = await (await chromium.new_context()).new_page()
    url = hub.url.removesuffix("/api")
    await page.goto(f"{url}/login")
    await page.get_by_label("Username").fill("alice")
    await page.get_by_label("Password").fill("any")
    await page.get_by_role("button", name="Sign in").click()
    await page.goto(f"{url}/home")
    return page


async def click_at_hub(hub: Hub, token: str, server: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as session,
        session.post(
            f"{hub.url.removesuffix('/api')}/spectrum/continue", json={"server": server}
        ) as answer,
    ):
        return answer.status, await answer.text()


async def test_one_click_on_the_home_page(running: Running, hub: Hub, chromium: Chromium) -> None:
    page = await visit_home(hub, chromium)
    await page.get_by_role("button", name="Continue without GPU").click()
    await wait_profile(hub, "cpu-small")
    assert await running.read_audit() == [("continue", "user:alice", "alice", CHOSEN)]
    await page.goto(f"{hub.url.removesuffix('/api')}/home")
    await page.get_by_text("Small in team Flight").wait_for()
    assert await page.get_by_role("button", name="Continue without GPU").count() == 0
    await page.context.close()


async def test_one_click_on_the_home_page_starts_again_what_somebody_else_ended(
    running: Running, hub: Hub, chromium: Chromium
) -> None:
    """Also of a server that has a name."""
    assert (await hub.stop_server("alice", "wide")).status in (202, 204)
    await hub.wait_absent("alice", "wide", within=20)
    page = await visit_home(hub, chromium)
    kept = page.get_by_text("Your files are kept: home and team volume.")
    await kept.wait_for()
    evidence = page.get_by_role("link", name="What happened, with the evidence")
    assert await evidence.get_attribute("href") == "/services/spectrum/audit?server=alice/wide"
    await page.get_by_role("button", name="Start again: One GPU in team Flight").click()
    found = await wait_profile(hub, "gpu-1")
    assert found["user_options"] == {**GPU, "image": "tensorflow", "scratch": ""}
    await page.goto(f"{hub.url.removesuffix('/api')}/home")
    await page.get_by_text("One GPU in team Flight").wait_for()
    assert await kept.count() == 0
    await page.context.close()


async def test_the_hub_asks_for_the_owner_alone(running: Running, hub: Hub) -> None:
    status, _ = await click_at_hub(hub, hub.make_token("bob"), "wide")
    assert status == 404
    inside = f"http://127.0.0.1:{running.context.settings.port}/internal"
    nope = {"user": "alice", "server": "nope"}
    async with aiohttp.ClientSession() as session:
        for path, token, body, status in (
            ("continue", "controller-token", nope, 403),
            ("continue", HUB_TOKEN, {"user": "alice"}, 400),
            ("continue", HUB_TOKEN, {"user": "alice", "server": 7}, 400),
            ("continue", HUB_TOKEN, {**nope, "by": "bob"}, 400),
            ("continue", HUB_TOKEN, nope, 404),
            ("keep", "controller-token", {**nope, "by": "bob"}, 403),
            ("keep", HUB_TOKEN, nope, 400),
            ("keep", HUB_TOKEN, {**nope, "by": "bob"}, 404),
        ):
            headers = {"Authorization": f"Bearer {token}"}
            async with session.post(f"{inside}/{path}", json=body, headers=headers) as answer:
                assert answer.status == status, (path, body)
    assert await hub.is_ready("alice", "wide")
