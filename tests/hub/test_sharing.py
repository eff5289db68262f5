"""A personal server that is shared for a time: with whom, until when, and who may do it."""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from jupyterhub import orm

from spectrum_spawner import hub_pages
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.hub import Answer, Hub
from tests.hub.service.tokens import read_server_token
from tests.hub.spawners import ADMIN_PASSWORD, FLIGHT, USER_PASSWORD, Setup, make_signed
from tests.hub.team import Team

SHARED = "access:servers!server=alice/"


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, ops: Team, hub_namespace: str
) -> Hub:
    """A hub in which alice's server runs in flight, where bob is too."""
    setup = make_signed(hub_namespace)
    setup.config.JupyterHub.update(hub_pages.SETTINGS)
    setup.config.Authenticator.auth_refresh_age = 1
    hub = await start_hub(setup)
    for name in ("bob", "admin"):  # whoever was never here is nobody's teammate
        await hub.call("GET", "/user", token=hub.make_token(name))
    assert (await hub.start_server("alice", FLIGHT)).status == 201
    return hub


async def ask(hub: Hub, method: str, token: str, **body: Any) -> Answer:
    """What the home page asks for: its address is beside the REST API."""
    url = f"{hub.url.removesuffix('/api')}/spectrum/share"
    headers = {"Authorization": f"token {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request(method, url, json={"server": "", **body}) as answer,
    ):
        text = await answer.text()
        return Answer(answer.status, json.loads(text) if text else None)


async def scopes_of(hub: Hub, user: str) -> list[str]:
    return (await hub.call("GET", "/user", token=hub.make_token(user))).body["scopes"]


def is_out(hub: Hub, user: str) -> Callable[[], Awaitable[bool]]:
    async def find() -> bool:
        return SHARED not in await scopes_of(hub, user)

    return find


async def test_a_teammate_is_let_in_for_a_time_and_the_audit_says_so(hub: Hub) -> None:
    alice = hub.make_token("alice")
    shown = await ask(hub, "POST", alice, user="bob", hours=1)
    assert shown.status == 200
    assert SHARED in await scopes_of(hub, "bob")
    # and nowhere else
    assert not any("servers!server=alice" in scope for scope in await scopes_of(hub, "admin"))
    assert [s for s in await scopes_of(hub, "bob") if "server=alice" in s] == [SHARED]
    (record,) = [each for each in hub.read_audit() if each["action"] == "share"]
    assert (record["actor"], record["user"], record["team"]) == ("user:alice", "alice", "flight")
    assert record["details"] == {"guest": "bob", "until": shown.body["until"]}

    assert (await ask(hub, "DELETE", alice, user="bob")).status == 204
    assert await is_out(hub, "bob")()
    assert (await ask(hub, "DELETE", alice, user="bob")).status == 404


async def test_it_ends_by_itself(hub: Hub) -> None:
    assert (await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=1)).status == 200
    # the later word counts
    await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=1 / 3600)
    await wait_until(is_out(hub, "bob"), within=10)


async def test_options_that_nobody_can_read_keep_no_guest_in(hub: Hub) -> None:
    assert (await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=1)).status == 200
    assert (await hub.start_server("alice", FLIGHT, "second")).status == 201
    second = {"user": "bob", "hours": 1, "server": "second"}
    assert (await ask(hub, "POST", hub.make_token("alice"), **second)).status == 200
    hub.find_spawner("alice", "second").orm_spawner.user_options = {"team": []}
    hub.app.db.commit()
    hub.app.authenticator.members = {"flight": ["alice"], "ops": ["bob"]}
    await wait_until(is_out(hub, "bob"), within=10)


async def test_who_leaves_the_team_is_let_in_no_more(hub: Hub) -> None:
    assert (await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=1)).status == 200
    hub.app.authenticator.members = {"flight": ["alice"], "ops": ["bob"]}
    await wait_until(is_out(hub, "bob"), within=10)


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ({"user": "admin", "hours": 1}, 400, "“admin” is not in the team in which this server"),
        ({"user": "nobody", "hours": 1}, 400, "“nobody” is not in the team in which this server"),
        ({"user": "alice", "hours": 1}, 400, "“alice” is not in the team in which this server"),
        ({"user": "bob", "hours": 25}, 400, "A server is shared for 24 hours at most"),
        ({"user": "bob", "hours": 0}, 400, "A server is shared for 24 hours at most"),
        ({"user": "bob", "hours": float("nan")}, 400, "A server is shared for 24 hours at most"),
        ({"user": "bob", "hours": "1"}, 400, "hours must be a number"),
        ({"user": 7, "hours": 1}, 400, "user must be a text"),
        ({"user": "bob", "hours": 1, "server": "nope"}, 404, "You have no such server"),
    ],
)
async def test_what_cannot_be_meant_lets_nobody_in(
    hub: Hub, body: dict[str, Any], status: int, sentence: str
) -> None:
    shown = await ask(hub, "POST", hub.make_token("alice"), **body)
    assert (shown.status, shown.message[: len(sentence)]) == (status, sentence)
    assert [s for s in hub.app.db.query(orm.Share).all() if s.owner.name == "alice"] == []


async def test_only_the_owner_shares_it_and_not_by_the_servers_own_token(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    inside = await read_server_token(cluster, flight, "alice")
    assert (await ask(hub, "POST", inside, user="bob", hours=1)).status == 403
    assert (await ask(hub, "POST", hub.make_token("bob"), user="bob", hours=1)).status == 409


async def test_pages_of_a_server_say_to_each_whose_it_is_and_what_they_may_do(hub: Hub) -> None:
    assert (await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=1)).status == 200
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=20)
    told = {}
    for visitor in ("alice", "bob", "admin"):
        password = ADMIN_PASSWORD if visitor == "admin" else USER_PASSWORD
        async with hub.sign_in(visitor, password) as pages:
            page = await pages.read("/user/alice/")
        heading = re.search(r"<h1[^>]*>(.*?)</h1>", page)
        name = re.search(r'id="login_widget">\s*<span[^>]*>([^<]*)<', page)
        assert heading
        assert name
        told[visitor] = (name[1], heading[1], 'id="start"' in page)
        sentence = "Your home page offers it once alice has started it."
        assert (sentence in page) is (visitor == "bob")
    assert told == {
        "alice": ("alice", "Your server is not running", True),
        "bob": ("bob", "The server of alice is not running", False),
        "admin": ("admin", "The server of alice is not running", True),
    }


async def test_the_home_page_offers_teammates_and_shows_guests(hub: Hub) -> None:
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        home = await pages.read("/home")
        assert "<option>bob</option>" in home
        assert "<option>admin</option>" not in home
        await ask(hub, "POST", hub.make_token("alice"), user="bob", hours=4)
        assert "Shared with bob until" in await pages.read("/home")
    async with hub.sign_in("bob", USER_PASSWORD) as pages:
        home = await pages.read("/home")
        assert "alice shares a server with you" in home
        assert 'aria-label="Open the server of alice"' in home
