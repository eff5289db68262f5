"""Servers of teams on a real hub: who may start, open and stop them, as the groups are now."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import pytest
import pytest_asyncio
from jupyterhub import orm

from spectrum_spawner import accounts, admittance, hub_pages, names
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.hub import Answer, Hub
from tests.hub.spawners import PROFILES, USER_PASSWORD, Setup, make_signed
from tests.hub.team import Team

ACCOUNT = "team:flight"
SERVER = f"/users/{ACCOUNT}/server"
OPTIONS = {"team": "flight", "profile": "cpu-small"}


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    setup = make_signed(hub_namespace)
    setup.config.JupyterHub.update(hub_pages.SETTINGS)
    setup.config.Authenticator.auth_refresh_age = 1
    board = {"kind": "tensorboard", "images": ["tensorflow"]}
    setup.config.SpectrumSpawner.profiles = {**PROFILES, "board": board}
    return await start_hub(setup)


@pytest.fixture
def alice(hub: Hub) -> str:
    return hub.make_token("alice")


def is_in(hub: Hub, user: str, team: str = "flight") -> Callable[[], Awaitable[bool]]:
    """Whether a user is let into the default server of a team."""

    async def find() -> bool:
        me = await hub.call("GET", "/user", token=hub.make_token(user))
        return f"access:servers!server=team:{team}/" in me.body["scopes"]

    return find


def is_not_in(hub: Hub, user: str) -> Callable[[], Awaitable[bool]]:
    find = is_in(hub, user)

    async def is_out() -> bool:
        return not await find()

    return is_out


async def start(hub: Hub, token: str, options: dict[str, Any] = OPTIONS) -> Answer:
    return await hub.call("POST", SERVER, {"user_options": options}, token=token)


async def test_a_member_starts_and_stops_it_and_the_audit_says_who(
    hub: Hub, alice: str, flight: Team, cluster: Cluster
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    assert (await start(hub, alice)).status == 201
    pod = await cluster.get(flight.find_pod(ACCOUNT))
    assert pod["metadata"]["annotations"][names.ANNOTATION_USER] == ACCOUNT
    environment = {e["name"]: e.get("value") for e in pod["spec"]["containers"][0]["env"]}
    assert environment["SPECTRUM_COLLABORATIVE"] == "1"
    assert (await hub.call("DELETE", SERVER, token=alice)).status in (202, 204)
    await hub.wait_absent(ACCOUNT, within=20)
    said = [(r["action"], r["actor"], r["user"]) for r in hub.read_audit()]
    assert said == [("start", "user:alice", ACCOUNT), ("stop", "user:alice", ACCOUNT)]


async def test_whoever_opens_it_is_asked_nothing(hub: Hub, alice: str) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    assert (await start(hub, alice)).status == 201
    client = "jupyterhub-user-" + quote(ACCOUNT)
    back = f"/user/{quote(ACCOUNT)}/oauth_callback"
    query = urlencode({"client_id": client, "redirect_uri": back, "response_type": "code"})
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        assert (await pages.find_redirect(f"/api/oauth2/authorize?{query}")).startswith(f"{back}?")


async def test_its_pages_speak_of_the_team_and_of_no_account(hub: Hub, alice: str) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        page = await pages.read(f"/user/{quote(ACCOUNT)}/")
        assert await add(hub, alice, {"team": "flight", "name": "evaluation"}) == 200
        named = await pages.read(f"/user/{quote(ACCOUNT)}/evaluation/")
    assert "The server of team flight is not running" in page
    assert "The server “evaluation” of team flight is not running" in named
    assert f">{ACCOUNT}<" not in page


async def test_the_progress_page_speaks_of_the_team_also_when_the_start_has_failed(
    hub: Hub, alice: str
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    spawner = hub.find_spawner(ACCOUNT)
    spawner._spawn_pending = True
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        page = await pages.read(f"/spawn-pending/{quote(ACCOUNT)}")
    spawner._spawn_pending = False
    assert "Starting the server of team flight</h1>" in page
    # what the script calls it once it knows that
    assert 'whose: "The server of team flight",' in page


async def test_whoever_the_provider_has_sent_away_starts_none(
    hub: Hub, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def why_no_start(_: Any, user: Any) -> str:
        return "Alice is not known any more." if user.name == "alice" else ""

    bob = hub.make_token("bob")
    for name in ("alice", "bob"):
        await wait_until(is_in(hub, name), within=10)
    known = hub.app.authenticator
    monkeypatch.setattr(type(known), "why_no_start", why_no_start)
    refused = await start(hub, alice)
    assert (refused.status, refused.body["message"]) == (403, "Alice is not known any more.")
    assert (await start(hub, bob)).status == 201

    teams = list(known._find_views().teams)
    admittance.admit_members(hub.app.db, teams, lambda name: name == "alice")
    assert (await is_in(hub, "alice")(), await is_in(hub, "bob")()) == (False, True)


async def test_a_look_that_fails_is_not_the_last(
    hub: Hub, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    failures = [RuntimeError("database is locked")]
    admit = admittance.admit_members

    def admit_or_fail(*args: Any) -> None:
        if failures:
            raise failures.pop()
        admit(*args)

    monkeypatch.setattr(admittance, "admit_members", admit_or_fail)
    hub.app.authenticator.members = {"flight": ["bob"], "ops": ["admin", "bob"]}
    await wait_until(is_not_in(hub, "alice"), within=20)
    assert failures == []


async def test_what_no_change_tells_of_is_seen_now_and_then(
    hub: Hub, alice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may write to the hub's database."""
    monkeypatch.setattr(admittance, "SWEEP", 0.5)
    await wait_until(is_in(hub, "alice"), within=10)
    hub.app.authenticator.members = {"flight": ["alice", "admin"]}
    await wait_until(is_in(hub, "admin"), within=10)  # by a look, which sets when the next comes
    hub.app.db.query(orm.Share).delete()
    hub.app.db.commit()
    await wait_until(is_in(hub, "alice"), within=10)


async def test_a_click_keeps_the_servers_of_ones_own_teams(hub: Hub, alice: str, ops: Team) -> None:
    """The service, which there is none of here, would be asked of no other."""
    await wait_until(is_in(hub, "alice"), within=10)
    await wait_until(is_in(hub, "bob", "ops"), within=10)
    url = f"{hub.url.removesuffix('/api')}/spectrum/keep"
    said = {}
    for owner in (ACCOUNT, accounts.account_of("ops")):
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"token {alice}"}) as session,
            session.post(url, json={"user": owner, "server": ""}) as answer,
        ):
            said[owner] = (answer.status, (await answer.json())["message"])
    assert said == {
        "team:flight": (404, "Idle servers are not ended here."),
        "team:ops": (404, "You have no such server."),
    }


async def test_nobody_of_another_team_sees_or_touches_it(
    hub: Hub, alice: str, flight: Team, ops: Team
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    admin = hub.make_token("admin")  # in ops alone, and an administrator by another right
    assert not await is_in(hub, "admin")()
    theirs = f"/users/{accounts.account_of('ops')}/server"
    for method in ("POST", "DELETE"):
        assert (await hub.call(method, theirs, token=alice)).status == 404
    assert (await hub.call("GET", f"/users/{ACCOUNT}", token=alice)).status == 404
    assert (await start(hub, admin, {"team": "ops", "profile": "cpu-small"})).status == 403


async def test_it_runs_in_its_own_team_alone_whoever_asks(
    hub: Hub, flight: Team, ops: Team
) -> None:
    bob = hub.make_token("bob")  # in both
    await wait_until(is_in(hub, "bob"), within=10)
    shown = await start(hub, bob, {"team": "ops", "profile": "cpu-small"})
    assert (shown.status, shown.message) == (
        403,
        "A server of team “flight” runs in that team alone: leave the team out.",
    )


async def test_who_joins_is_let_in_and_who_leaves_is_not(hub: Hub, flight: Team) -> None:
    table = hub.app.authenticator
    await wait_until(is_in(hub, "alice"), within=10)
    table.members = {"flight": ["bob", "admin"]}
    # whoever asks for anything is asked about
    await wait_until(is_in(hub, "admin"), within=10)
    await wait_until(is_not_in(hub, "alice"), within=10)


async def test_a_team_that_appears_gets_its_server_without_a_restart(
    hub: Hub, flight: Team, make_team: Callable[..., Awaitable[Team]]
) -> None:
    await wait_until(is_in(hub, "bob"), within=10)
    await make_team("ops")
    await wait_until(is_in(hub, "bob", "ops"), within=10)


async def test_a_hub_that_was_away_takes_from_people_what_they_lost_meanwhile(
    hub: Hub, flight: Team
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    await hub.kill()
    hub.config.TableAuthenticator.members = {"flight": ["bob"]}
    await hub.start()
    await wait_until(is_not_in(hub, "alice"), within=10)
    await wait_until(is_in(hub, "bob"), within=10)


async def test_nobody_signs_in_as_a_team(hub: Hub, flight: Team) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    hub.app.authenticator.allowed_users |= {ACCOUNT}
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        shown = await pages.send("/login", {"username": ACCOUNT, "password": USER_PASSWORD})
        assert "Invalid username or password" in shown
    assert (await hub.call("POST", "/users", {"usernames": ["team:new"]})).status == 400


async def test_the_home_page_lists_it_and_the_form_is_the_teams(
    hub: Hub, flight: Team, ops: Team
) -> None:
    async with hub.sign_in("bob", USER_PASSWORD) as pages:
        await wait_until(is_in(hub, "bob", "ops"), within=10)
        home = await pages.read("/home")
        assert f'href="/hub/spawn/{quote(ACCOUNT)}"' in home
        form = await pages.read(f"/spawn/{quote(ACCOUNT)}")
        assert "This server will belong to team flight:" in form
        assert 'value="cpu-small"' in form
        assert 'value="ops-only"' not in form


async def test_a_server_may_be_tensorboard_for_the_team(
    hub: Hub, alice: str, flight: Team, cluster: Cluster
) -> None:
    await wait_until(is_in(hub, "alice"), within=10)
    assert (await start(hub, alice, {"team": "flight", "profile": "board"})).status == 201
    pod = await cluster.get(flight.find_pod(ACCOUNT))
    assert pod["spec"]["containers"][0]["args"] == ["spectrum-tensorboard"]


async def test_a_member_adds_a_server_and_the_whole_team_has_it(
    hub: Hub, alice: str, flight: Team, ops: Team
) -> None:
    await wait_until(is_in(hub, "bob"), within=10)
    for body, status in (
        ({"team": "flight", "name": "evaluation"}, 200),
        ({"team": "flight", "name": "evaluation"}, 200),  # again, which changes nothing
        ({"team": "ops", "name": "x"}, 404),
        ({"team": "flight", "name": " "}, 400),
        ({"team": "flight", "name": "a/b"}, 400),
        ({"team": "flight", "name": "lab"}, 400),  # a page of the one without a name
        ({"team": "flight", "name": 7}, 400),
    ):
        assert await add(hub, alice, body) == status, body
    bob = hub.make_token("bob")
    path = f"/users/{ACCOUNT}/servers/evaluation"
    assert (await hub.call("POST", path, {"user_options": OPTIONS}, token=bob)).status == 201
    assert (await hub.call("DELETE", path, {"remove": True}, token=alice)).status in (202, 204)
    await hub.wait_absent(ACCOUNT, "evaluation", within=20)


async def add(hub: Hub, token: str, body: dict[str, Any]) -> int:
    """What the home page's form asks for; the status of the answer."""
    url = f"{hub.url.removesuffix('/api')}/spectrum/team-servers"
    headers = {"Authorization": f"token {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json=body) as answer,
    ):
        return answer.status
