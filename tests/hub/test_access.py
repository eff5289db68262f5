"""Who may do what with which server, in a hub with the roles and pages of a release.

The table that is checked is printed.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from jupyterhub import orm
from jupyterhub.services.auth import check_scopes
from traitlets.config import Config
from yarl import URL

from spectrum_spawner import admittance, hub_pages, sharing
from tests.hub.clock import wait_until
from tests.hub.hub import TEST_ROLE, TEST_SERVICE, Hub
from tests.hub.spawners import (
    ADMIN_PASSWORD,
    FLIGHT,
    OPS,
    PROFILES,
    USER_PASSWORD,
    Setup,
    make_signed,
)
from tests.hub.team import Team

# In team flight are alice, whose server is told of, a mate, a guest with whom she shares it, a
# former one from whom she took it back, and a lead. A head leads flight by a group of leads, and
# is in no team. Somebody who left was in flight and alice's guest until just now; another is in
# ops. An admin is in no team. Nobody has not signed in, and a token that is none.
PEOPLE = ("alice", "mate", "guest", "former", "lead", "head", "left", "other", "admin", "nobody")

# Of `yes` and `-` both the session of a browser and a token of the person's agree; else the one
# that may is told. To see is the server by its name, to list all of its owner's, to choose the form
# with which it starts. A team's first server is never removed. To share is for a time and with a
# teammate, by the home page; to give away is for good, by JupyterHub's shares and share codes.
TABLE = """
                    alice mate guest former lead head left other admin nobody
alice's own
  open              yes   -    yes   -      -    -    -    -     yes   -
  see               yes   -    -     -      -    -    -    -     yes   -
  list              yes   -    -     -      -    -    -    -     yes   -
  start             yes   -    -     -      -    -    -    -     yes   -
  stop              yes   -    -     -      -    -    -    -     yes   -
  choose            yes   -    -     -      -    -    -    -     yes   -
  rename            yes   -    -     -      -    -    -    -     yes   -
  remove            yes   -    -     -      -    -    -    -     yes   -
  share             yes   -    -     -      -    -    -    -     -     -
  give away         -     -    -     -      -    -    -    -     yes   -
flight's
  open              yes   yes  yes   yes    yes  -    -    -     yes   -
  see               yes   yes  yes   yes    yes  -    -    -     yes   -
  list              -     -    -     -      -    -    -    -     yes   -
  start             yes   yes  yes   yes    yes  -    -    -     yes   -
  stop              yes   yes  yes   yes    yes  -    -    -     yes   -
  choose            yes   yes  yes   yes    yes  -    -    -     yes   -
  rename            yes   yes  yes   yes    yes  -    -    -     yes   -
  remove            -     -    -     -      -    -    -    -     -     -
  share             -     -    -     -      -    -    -    -     -     -
  give away         -     -    -     -      -    -    -    -     yes   -
flight's board
  open              yes   yes  yes   yes    yes  -    -    -     yes   -
  see               yes   yes  yes   yes    yes  -    -    -     yes   -
  list              -     -    -     -      -    -    -    -     yes   -
  start             yes   yes  yes   yes    yes  -    -    -     yes   -
  stop              yes   yes  yes   yes    yes  -    -    -     yes   -
  choose            yes   yes  yes   yes    yes  -    -    -     yes   -
  rename            yes   yes  yes   yes    yes  -    -    -     yes   -
  remove            yes   yes  yes   yes    yes  -    -    -     yes   -
  share             -     -    -     -      -    -    -    -     -     -
  give away         -     -    -     -      -    -    -    -     yes   -
ops's
  open              -     -    -     -      -    -    -    yes   yes   -
  see               -     -    -     -      -    -    -    yes   yes   -
  list              -     -    -     -      -    -    -    -     yes   -
  start             -     -    -     -      -    -    -    yes   yes   -
  stop              -     -    -     -      -    -    -    yes   yes   -
  choose            -     -    -     -      -    -    -    yes   yes   -
  rename            -     -    -     -      -    -    -    yes   yes   -
  remove            -     -    -     -      -    -    -    -     -     -
  share             -     -    -     -      -    -    -    -     -     -
  give away         -     -    -     -      -    -    -    -     yes   -
"""
SERVERS = {
    # title: owner, name, options
    "alice's own": ("alice", "work", FLIGHT),
    "flight's": ("team:flight", "", FLIGHT),
    "flight's board": ("team:flight", "board", {"team": "flight", "profile": "board"}),
    "ops's": ("team:ops", "", OPS),
}
IN_FLIGHT = ["alice", "mate", "guest", "former", "lead"]
MEMBERS = {"flight": IN_FLIGHT, "ops": ["other"], "heads": ["head"]}

# Actions as the table has them, and those that are done to servers that run, and to stopped ones.
ACTIONS = (
    *("open", "see", "list", "start", "stop", "choose"),
    *("rename", "remove", "share", "give away"),
)
RUNNING = ("open", "see", "list", "start", "share", "give away")
STOPPED = ("stop", "choose", "rename", "remove")
Cells = dict[tuple[str, str, str], str]  # by server, action and person


@dataclass(frozen=True)
class Reply:
    status: int
    text: str
    place: str  # where it leads to

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def is_done(self) -> bool:
        """Whether it was done; what was not is a refusal, or leads to the sign-in."""
        if self.status < 300:
            return True
        assert self.status in (403, 404) or self.place.startswith("/hub/login"), self
        return False


@dataclass(frozen=True)
class Way:
    """How somebody comes to the hub: by the cookies of a browser, or by a token."""

    url: str
    session: aiohttp.ClientSession
    by_token: bool

    @property
    def name(self) -> str:
        return "token" if self.by_token else "browser"

    async def ask(
        self, method: str, path: str, body: Any = None, *, form: dict[str, str] | None = None
    ) -> Reply:
        """One request, as the hub's own pages make it; `path` starts after `/hub`."""
        cookies = self.session.cookie_jar.filter_cookies(URL(f"{self.url}/"))
        query = {"_xsrf": cookies["_xsrf"].value} if "_xsrf" in cookies else {}
        url = URL(self.url + path).update_query(query)
        async with self.session.request(
            method, url, json=body, data=form, allow_redirects=False
        ) as answer:
            place = answer.headers.get("Location", "")
            return Reply(answer.status, await answer.text(), place)


@dataclass(frozen=True)
class Scene:
    """The hub, and the ways of everybody to it."""

    hub: Hub
    ways: dict[str, list[Way]]

    async def fill(self, actions: Iterable[str]) -> Cells:
        """The cells of the table that are about these actions, by doing them."""
        return {
            (title, action, person): await self._find_cell(title, action, person)
            for action in actions
            for title in SERVERS
            for person in PEOPLE
        }

    async def _find_cell(self, title: str, action: str, person: str) -> str:
        able = await self.list_able(title, action, person)
        # the hub's pages take no tokens
        agreed = len(able) == len(self.ways[person]) or (action, able) == ("choose", ["browser"])
        return "yes" if agreed else able[0] if able else "-"

    async def list_able(self, title: str, action: str, person: str) -> list[str]:
        """The ways by which somebody can do it."""
        return [way.name for way in self.ways[person] if await self._can(title, action, way)]

    async def share(self, guest: str) -> None:
        """Share alice's server with somebody, as she does."""
        wanted = {"server": "work", "user": guest, "hours": 1}
        assert (await self.ways["alice"][0].ask("POST", "/spectrum/share", wanted)).status == 200

    async def _can(self, title: str, action: str, way: Way) -> bool:
        owner, name, _ = SERVERS[title]
        path = f"/api/users/{owner}/servers/{name}"
        match action:
            case "open":
                return await self._is_let_in(owner, name, way)
            case "see":
                return (await way.ask("GET", path)).is_done
            case "list":
                shown = await way.ask("GET", f"/api/users/{owner}")
                return shown.is_done and name in shown.body.get("servers", {})
            case "start":
                # that it runs is told to those alone who may start it
                shown = await way.ask("POST", path, {})
                return "is already running" in shown.text or shown.is_done
            case "stop":
                # one that does not run is as good: the rights come first
                return (await way.ask("DELETE", path)).is_done
            case "rename":
                # what is missing is told to those alone who may change it
                shown = await way.ask("PATCH", path, {})
                return "specify at least one field" in shown.text or shown.is_done
            case "choose":
                shown = await way.ask("GET", f"/spawn/{owner}/{name}".removesuffix("/"))
                return shown.is_done and 'name="profile"' in shown.text
            case "remove":
                shown = await way.ask("DELETE", path, {"remove": True})
                removed = "Cannot delete the default" not in shown.text and shown.is_done
                return removed and await self._restore(title)
            case "share":
                wanted = {"server": name, "user": "mate", "hours": 1}
                shown = await way.ask("POST", "/spectrum/share", wanted)
                # one of the person's own may have that name, and does not run
                shared = "does not run" not in shown.text and shown.is_done
                return shared and self._take_back(owner, name, "mate")
            case "give away":
                wanted = {"user": "head"}
                given = (await way.ask("POST", f"/api/shares/{owner}/{name}", wanted)).is_done
                coded = (await way.ask("POST", f"/api/share-codes/{owner}/{name}", {})).is_done
                self._take_back(owner, name, "head")
                return given or coded
        raise AssertionError(action)

    async def _is_let_in(self, owner: str, name: str, way: Way) -> bool:
        """What the hub says to a browser at a server's door, and a server itself to a token."""
        spawner = self.hub.find_spawner(owner, name)
        if way.by_token:
            me = await way.ask("GET", "/api/user")
            needed = set(spawner.oauth_access_scopes)
            return me.is_done and bool(check_scopes(needed, set(me.body["scopes"])))
        client = spawner.orm_spawner.oauth_client
        known = {"client_id": client.identifier, "redirect_uri": client.redirect_uri}
        door = URL("/api/oauth2/authorize").with_query(response_type="code", **known)
        shown = await way.ask("GET", str(door))
        # at once into one's own; of any other the hub asks whether one wants to
        return "?code=" in shown.place or shown.is_done

    def _take_back(self, owner: str, name: str, guest: str) -> bool:
        """End somebody's share of a server; whether there was one."""
        session = self.hub.app.db
        found = orm.Share.find(
            session, self.hub.find_spawner(owner, name).orm_spawner, orm.User.find(session, guest)
        )
        if found is not None:
            session.delete(found)
            session.commit()
        return found is not None

    async def _restore(self, title: str) -> bool:
        """Make a server that was removed again, for those who had it."""
        owner, name, options = SERVERS[title]
        path = f"/users/{owner}/servers/{name}"
        assert (await self.hub.call("PUT", path, {"user_options": options})).status == 201
        spawner = self.hub.find_spawner(owner, name)
        if owner == "alice":
            team = spawner.views.teams.get("flight")
            sharing.share(self.hub.app.db, spawner.orm_spawner, team, "guest", hours=1)
        guests = ["guest"] if owner == "alice" else sorted(IN_FLIGHT)
        await wait_until(
            lambda: sorted(share.user.name for share in spawner.orm_spawner.shares) == guests,
            within=10,
            what="those who had the server",
        )
        return True


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]],
    make_team: Callable[..., Awaitable[Team]],
    hub_namespace: str,
    release_config: Config,
) -> Hub:
    """A hub with roles, services and pages of a release, where everybody is known by a table."""
    await make_team("flight", spec={"leads": ["lead"], "leadGroups": ["heads"]})
    await make_team("ops")
    setup = make_signed(hub_namespace)
    config = setup.config
    config.JupyterHub.update(hub_pages.SETTINGS)
    config.JupyterHub.custom_scopes = release_config.JupyterHub.custom_scopes
    config.JupyterHub.services = [TEST_SERVICE, *release_config.JupyterHub.services]
    config.JupyterHub.load_roles = [TEST_ROLE, *release_config.JupyterHub.load_roles]
    config.Authenticator.auth_refresh_age = 1
    config.TableAuthenticator.members = {**MEMBERS, "flight": [*IN_FLIGHT, "left"]}
    config.TableAuthenticator.allowed_users = set(PEOPLE) - {"nobody"}
    board = {"kind": "tensorboard", "images": ["tensorflow"]}
    config.SpectrumSpawner.profiles = {**PROFILES, "board": board}
    return await start_hub(setup)


@pytest_asyncio.fixture
async def ways(hub: Hub) -> AsyncIterator[dict[str, list[Way]]]:
    """Everybody's browser, signed in, and token."""
    async with AsyncExitStack() as stack:
        found = {}
        for person in PEOPLE:
            jar = aiohttp.CookieJar(unsafe=True)
            token = "none" if person == "nobody" else hub.make_token(person)
            headers = {"Authorization": f"token {token}"}
            browser = aiohttp.ClientSession(cookie_jar=jar)
            program = aiohttp.ClientSession(headers=headers)
            for session in (browser, program):
                await stack.enter_async_context(session)
            url = hub.url.removesuffix("/api")
            found[person] = [Way(url, browser, by_token=False), Way(url, program, by_token=True)]
            if person != "nobody":
                password = ADMIN_PASSWORD if person == "admin" else USER_PASSWORD
                fields = {"username": person, "password": password}
                await found[person][0].ask("GET", "/login")
                signed_in = await found[person][0].ask("POST", "/login", form=fields)
                assert signed_in.place == "/hub/spawn", signed_in
        yield found


@pytest_asyncio.fixture
async def scene(hub: Hub, ways: dict[str, list[Way]]) -> Scene:
    """All servers run; one person was a guest, and one was a guest and in the team, until now."""
    scene = Scene(hub, ways)
    started = await asyncio.gather(
        *(hub.start_server(owner, options, name) for owner, name, options in SERVERS.values())
    )
    assert [answer.status for answer in started] == [201] * len(SERVERS)
    for guest in ("guest", "former", "left"):
        await scene.share(guest)
        assert await scene.list_able("alice's own", "open", guest) == ["browser", "token"]
    wanted = {"server": "work", "user": "former"}
    assert (await ways["alice"][0].ask("DELETE", "/spectrum/share", wanted)).status == 204
    assert await scene.list_able("flight's", "open", "left") == ["browser", "token"]
    hub.app.authenticator.members = MEMBERS

    async def is_out() -> bool:
        return await scene.list_able("flight's", "open", "left") == []

    await wait_until(is_out, within=10, what="the end of the rights of somebody who left")
    return scene


def show(cells: Cells) -> str:
    """Cells as TABLE is written."""
    lines = ["", " " * 20 + " ".join(PEOPLE)]
    for title in SERVERS:
        lines.append(title)
        for action in ACTIONS:
            row = [cells[title, action, person].ljust(len(person)) for person in PEOPLE]
            lines.append(f"  {action}".ljust(20) + " ".join(row).rstrip())
    return "\n".join([*lines, ""])


async def test_who_may_do_what(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    cells = await scene.fill(RUNNING)
    for owner, name, _ in SERVERS.values():
        await scene.hub.stop_server(owner, name)
        await scene.hub.wait_absent(owner, name, within=20)
    cells |= await scene.fill(STOPPED)
    with capsys.disabled():
        print(show(cells))  # noqa: T201 - who may do what is for people to read
    # pytest alone shows the beginning of a long difference
    changes = unified_diff(TABLE.splitlines(), show(cells).splitlines(), lineterm="", n=10)
    assert show(cells) == TABLE, "\n".join(changes)


async def test_a_guest_is_out_as_soon_as_the_server_runs_in_another_team(
    hub: Hub, ways: dict[str, list[Way]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the guest would be in data of a team that is not theirs."""
    scene = Scene(hub, ways)
    # no look after an earlier change serves for the one after the start
    monkeypatch.setattr(admittance, "CALM", 0.0)
    hub.app.authenticator.members = {**MEMBERS, "ops": ["alice", "other"]}
    await wait_until(lambda: scene.list_able("ops's", "see", "alice"), within=10)
    assert (await hub.start_server("alice", FLIGHT, "work")).status == 201
    await scene.share("guest")
    assert await scene.list_able("alice's own", "open", "guest") == ["browser", "token"]
    await hub.stop_server("alice", "work")
    await hub.wait_absent("alice", "work", within=20)
    assert (await hub.start_server("alice", OPS, "work")).status == 201

    async def is_out() -> bool:
        return await scene.list_able("alice's own", "open", "guest") == []

    # which is in turn with all else that the hub does
    await wait_until(is_out, within=10, what="the end of the guest's rights")


async def test_a_first_server_that_a_member_renames_leaves_the_team_another(
    hub: Hub, ways: dict[str, list[Way]]
) -> None:
    scene = Scene(hub, ways)
    await wait_until(lambda: scene.list_able("flight's", "see", "mate"), within=10)
    path = "/api/users/team:flight/servers/"
    assert (await ways["mate"][0].ask("PATCH", path, {"name": "evaluation"})).status == 200
    await wait_until(lambda: scene.list_able("flight's", "see", "lead"), within=10)
