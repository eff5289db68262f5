"""Sign-in by a provider: the provider of now decides, and doubt is not "no"."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from jupyterhub import orm
from jupyterhub.user import User
from traitlets.config import Config

from spectrum_spawner import actor
from spectrum_spawner.identity import subject_of
from spectrum_spawner.oauth import TOLD_AT
from tests.hub.clock import wait_until
from tests.hub.hub import Hub
from tests.hub.node import ServerStub
from tests.hub.noting import NotingSpawner, groups_of
from tests.hub.provider import Browser, Page, Provider, read_error, set_crypt_key
from tests.hub.spawners import Setup

MINUTES = 60


class Site:
    """A hub that knows people by a provider, and their browsers."""

    def __init__(self, hub: Hub, provider: Provider) -> None:
        self.hub = hub
        self.provider = provider
        self.url = f"http://127.0.0.1:{hub.config.JupyterHub.hub_port}"
        self._browsers = AsyncExitStack()

    async def open_browser(self) -> Browser:
        return await self._browsers.enter_async_context(Browser(self.url))

    async def sign_in(self, sub: str, **claims: Any) -> Browser:
        """A browser in which somebody has signed in, of whom the provider tells this."""
        self.provider.tell(sub, **claims)
        browser = await self.open_browser()
        page = await browser.sign_in(sub)
        assert (page.status, page.url) == (200, f"{self.url}/hub/home"), read_error(page)
        return browser

    async def refuse(self, sub: str, **claims: Any) -> str:
        """The sentence by which a sign-in is refused."""
        self.provider.tell(sub, **claims)
        page = await (await self.open_browser()).sign_in(sub)
        assert page.status == 403
        return read_error(page)

    def find_user(self, name: str) -> User:
        return self.hub.app.users[name]

    def read_database(self) -> bytes:
        return Path(self.hub.config.JupyterHub.db_url.removeprefix("sqlite:///")).read_bytes()

    async def age(self, name: str, seconds: float) -> None:
        """Let it be so long since the provider last told somebody's groups."""
        user = self.find_user(name)
        state = await user.get_auth_state()
        await user.save_auth_state({**state, TOLD_AT: time.time() - seconds})

    def read_records(self, action: str) -> list[dict[str, Any]]:
        """What matters of the audit records of an action, in their order."""
        told = ("actor", "user", "reason")
        records = [r for r in self.hub.read_audit() if r["action"] == action]
        return [{key: record[key] for key in told} for record in records]

    async def close(self) -> None:
        await self._browsers.aclose()
        await self.hub.kill()


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


@pytest_asyncio.fixture
async def open_site(
    tmp_path: Path, provider: Provider
) -> AsyncIterator[Callable[..., Awaitable[Site]]]:
    """Starts a hub: `await open_site(admin_groups={"admins"})`; it ends with the test."""
    async with ServerStub() as stub, AsyncExitStack() as stack:
        set_crypt_key("k")
        NotingSpawner.started, NotingSpawner.stopped = [], []

        async def start(provider: Provider = provider, **traits: Any) -> Site:
            hub = Hub(tmp_path, Setup(NotingSpawner, Config(), {}))
            site = Site(hub, provider)
            traits = {"audit_file": str(tmp_path / "audit.sqlite"), **traits}
            hub.config.merge(provider.make_config(**traits))
            hub.config.Spawner.port = stub.port
            await hub.start()
            stack.push_async_callback(site.close)
            return site

        yield start


@pytest_asyncio.fixture
async def site(open_site: Callable[..., Awaitable[Site]]) -> Site:
    return await open_site(admin_groups={"/admins"})


# Sign-in


async def test_a_person_gets_groups_admin_role_and_subject_at_sign_in(site: Site) -> None:
    await site.sign_in("s-1", name="Alice", groups=["/flight", "/acme/ops", "/admins"])
    user = site.find_user("alice")
    assert groups_of(user) == ["acme/ops", "admins", "flight"]
    assert user.admin
    assert await subject_of(user) == f"127.0.0.1:{site.provider.port}|s-1"


async def test_the_code_is_bound_to_the_browser_that_asked_for_it(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=[])
    asked = {request.path: request.parameters for request in site.provider.asked}
    challenge = asked["/oauth2/authorize"]
    verifier = asked["/oauth2/token"]["code_verifier"]
    digest = hashlib.sha256(verifier.encode()).digest()
    assert challenge["code_challenge_method"] == "S256"
    assert challenge["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")


async def test_tokens_are_encrypted_in_the_hubs_database(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=[])
    user = site.find_user("alice")
    token = (await user.get_auth_state())["access_token"]
    assert token
    assert token.encode() not in site.read_database()


async def test_somebody_in_5000_groups_signs_in(site: Site) -> None:
    groups = [f"team-{number:04}" for number in range(5000)]
    await site.sign_in("s-1", name="alice", groups=groups)
    assert groups_of(site.find_user("alice")) == groups


@pytest.mark.parametrize("name", ["\N{FULLWIDTH LATIN SMALL LETTER A}lice", "a b", "a/b", ".."])
async def test_a_name_that_cannot_be_used_is_refused_with_the_reason(site: Site, name: str) -> None:
    assert "cannot be used here: it has" in await site.refuse("s-1", name=name, groups=[])
    assert [record["user"] for record in site.read_records("sign-in")] == [name]


async def test_who_is_in_no_allowed_group_is_refused_and_that_is_recorded(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(allow_all=False, allowed_groups={"staff"}, custom_403_message="Not you.")
    await site.sign_in("s-1", name="alice", groups=["/staff"])
    assert await site.refuse("s-2", name="bob", groups=["/guests"]) == "Not you."
    assert site.read_records("sign-in") == [
        {"actor": "identity-provider", "user": "bob", "reason": "Not you."}
    ]


async def test_a_provider_that_is_away_at_sign_in_is_no_failure_of_the_hub(site: Site) -> None:
    site.provider.tell("s-1", name="alice", groups=[])
    browser = await site.open_browser()
    page = await browser.open("/hub/oauth_login?next=/hub/home")
    site.provider.broken = 500
    answer = await browser.open("/hub/oauth_callback?code=c&state=" + _read_state(page))
    assert answer.status == 503
    assert read_error(answer) == (
        "The identity provider does not answer right now: try again in a minute."
    )


def _read_state(page: Page) -> str:
    return page.url.partition("state=")[2].partition("&")[0]


# Subjects


async def test_another_person_with_the_name_gets_neither_account_nor_servers(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight"])
    await site.hub.start_server("alice")
    why = "The user name alice belongs to another person here."
    assert (await site.refuse("s-2", name="ALICE", groups=["ops"])).startswith(why)
    assert groups_of(site.find_user("alice")) == ["flight"]
    assert await site.hub.is_ready("alice")
    assert [record["user"] for record in site.read_records("sign-in")] == ["alice"]


async def test_of_two_who_come_at_once_with_one_name_one_gets_in(site: Site) -> None:
    for sub in ("s-1", "s-2"):
        site.provider.tell(sub, name="alice", groups=[])
    browsers = [await site.open_browser() for _ in range(2)]
    pages = await asyncio.gather(browsers[0].sign_in("s-1"), browsers[1].sign_in("s-2"))
    assert sorted(page.status for page in pages) == [200, 403]


async def test_a_new_encryption_key_loses_no_subject(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight"])
    set_crypt_key("n")
    await site.refuse("s-2", name="alice", groups=["ops"])
    await site.sign_in("s-1", name="alice", groups=["flight"])
    assert (await site.hub.start_server("alice")).status == 201


async def test_a_name_is_free_again_once_its_account_is_deleted(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=[])
    assert (await site.hub.call("DELETE", "/users/alice")).status == 204
    await site.sign_in("s-2", name="alice", groups=[])


# Membership of now


async def test_the_groups_of_now_decide_each_start(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "ops"])
    for groups in (["flight"], ["ops"], "labs", []):
        site.provider.tell("s-1", name="alice", groups=groups)
        assert (await site.hub.start_server("alice")).status == 201
        await site.hub.stop_server("alice")
    told = [groups for _, groups in NotingSpawner.started]
    assert told == [["flight"], ["ops"], ["labs"], []]


async def test_who_leaves_the_admins_is_no_administrator_at_the_next_look(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["admins"])
    site.provider.tell("s-1", name="alice", groups=["flight"])
    await site.hub.start_server("alice")
    user = site.find_user("alice")
    assert not user.admin
    assert [role.name for role in user.roles] == ["user"]


async def test_taking_an_administrators_name_at_the_provider_makes_nobody_one(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(admin_users={"boss"})
    await site.sign_in("s-1", name="alice", groups=["flight"])
    site.provider.tell("s-1", name="boss", groups=["flight"])
    assert (await site.hub.start_server("alice")).status == 201
    assert not site.find_user("alice").admin


async def test_an_admin_role_that_the_provider_does_not_give_does_not_last(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site()
    await site.sign_in("s-1", name="alice", groups=["flight"])
    site.find_user("alice").admin = True
    await site.hub.start_server("alice")
    assert not site.find_user("alice").admin


@pytest.mark.parametrize("event", ["sent away", "doubt", "away for too long"])
async def test_an_administrator_for_whom_the_provider_speaks_no_more_is_none(
    site: Site, event: str
) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
    token = site.hub.make_token("alice")
    if event == "sent away":
        site.provider.revoke("s-1")
    else:
        await site.age("alice", 61 * MINUTES)
        site.provider.tell("s-1", name="alice", groups=None)
        site.provider.broken = 503 if event == "away for too long" else 0
    user = site.find_user("alice")
    user._auth_refreshed = None
    assert (await site.hub.call("GET", "/user", token=token)).status == 200
    assert (await site.hub.call("GET", "/users", token=token)).status == 403
    assert (user.admin, groups_of(user)) == (False, ["admins", "flight"])
    assert site.read_records("membership")[-1]["reason"] == (
        "alice is no administrator until the identity provider says so again."
    )
    site.provider.broken = 0
    await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
    assert site.find_user("alice").admin


async def test_who_leaves_the_allowed_groups_starts_nothing_and_is_signed_out(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(
        allow_all=False, allowed_groups={"staff"}, auth_refresh_age=1, custom_403_message="Not you."
    )
    browser = await site.sign_in("s-1", name="alice", groups=["staff", "flight"])
    site.provider.tell("s-1", name="alice", groups=["flight"])
    answer = await site.hub.start_server("alice")
    assert (answer.status, answer.message) == (403, "Not you.")
    assert groups_of(site.find_user("alice")) == ["flight"]
    site.find_user("alice")._auth_refreshed = None
    assert "login" in (await browser.open("/hub/home")).url


async def test_pages_that_wait_for_one_answer_all_lead_to_the_sign_in(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(allow_all=False, allowed_groups={"staff"})
    browser = await site.sign_in("s-1", name="alice", groups=["staff", "flight"])
    site.provider.tell("s-1", name="alice", groups=["flight"])
    site.find_user("alice")._auth_refreshed = None
    # the third comes while the second waits, so that the second's answer is as new as its own
    pages = await asyncio.gather(*(browser.open("/hub/home") for _ in range(3)))
    assert ["login" in page.url for page in pages] == [True] * 3


async def test_each_change_of_membership_is_recorded(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "labs"])
    site.provider.tell("s-1", name="alice", groups=["ops", "labs"])
    await site.hub.start_server("alice")
    await site.hub.stop_server("alice")
    await site.hub.start_server("alice")
    assert site.read_records("membership") == [
        {"actor": "identity-provider", "user": "alice", "reason": reason}
        for reason in ("alice joined flight, labs.", "alice joined ops and left flight.")
    ]


# Doubt

DOUBTS: dict[str, dict[str, Any]] = {
    "absent": {},
    "null": {"groups": None},
    "a number": {"groups": 7},
    "a table": {"groups": {"flight": True}},
    "a nested list": {"groups": [["flight"]]},
}


@pytest.mark.parametrize("doubt", DOUBTS)
async def test_a_claim_that_says_nothing_keeps_the_last_known_groups_for_a_time(
    site: Site, doubt: str
) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
    site.provider.tell("s-1", name="alice", **DOUBTS[doubt])
    await site.age("alice", 59 * MINUTES)
    assert (await site.hub.start_server("alice")).status == 201
    assert NotingSpawner.started[-1][1] == ["admins", "flight"]
    assert site.find_user("alice").admin
    await _assert_bounded(site)


@pytest.mark.parametrize("failure", ["stopped", "500", "503", "429"])
async def test_a_provider_that_is_away_keeps_the_last_known_groups_for_a_time(
    site: Site, failure: str
) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
    if failure == "stopped":
        site.provider.stop()
    else:
        site.provider.broken = int(failure)
    await site.age("alice", 59 * MINUTES)
    assert (await site.hub.start_server("alice")).status == 201
    assert NotingSpawner.started[-1][1] == ["admins", "flight"]
    await _assert_bounded(site)


async def _assert_bounded(site: Site) -> None:
    """After the time no start; all else works, and one good answer ends it."""
    await site.age("alice", 61 * MINUTES)
    assert await site.hub.is_ready("alice")
    assert (await site.hub.stop_server("alice")).status == 204
    answer = await site.hub.start_server("alice")
    assert (answer.status, answer.message) == (
        403,
        "The identity provider has not told the groups of alice for more than 60 minutes: "
        "a server can start once it does. Servers that run are not touched.",
    )
    assert groups_of(site.find_user("alice")) == ["admins", "flight"]
    assert site.hub.find_spawner("alice")._failed is not None
    site.provider.broken = 0
    site.provider.stop()
    site.provider.start()
    site.provider.tell("s-1", name="alice", groups=["ops"])
    assert (await site.hub.start_server("alice")).status == 201
    assert NotingSpawner.started[-1][1] == ["ops"]


async def test_pages_and_ones_own_stop_work_while_nobody_knows(site: Site) -> None:
    browser = await site.sign_in("s-1", name="alice", groups=["flight"])
    await site.hub.start_server("alice")
    site.provider.stop()
    await site.age("alice", 61 * MINUTES)
    site.find_user("alice")._auth_refreshed = None
    page = await browser.open("/hub/home")
    assert (page.status, page.url) == (200, f"{site.url}/hub/home")
    assert (await browser.stop_server("alice")).status == 204
    assert NotingSpawner.stopped == ["user:alice"]


async def test_doubt_at_sign_in_keeps_the_last_known_groups(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
    await site.sign_in("s-1", name="alice", groups=None)
    user = site.find_user("alice")
    assert (groups_of(user), user.admin) == (["admins", "flight"], True)
    await site.age("alice", 61 * MINUTES)
    await site.sign_in("s-1", name="alice", groups=None)
    assert (await site.hub.start_server("alice")).status == 403


async def test_groups_that_are_known_no_more_open_no_door(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(allow_all=False, allowed_groups={"staff"})
    await site.sign_in("s-1", name="alice", groups=["staff"])
    await site.age("alice", 59 * MINUTES)
    await site.sign_in("s-1", name="alice", groups=None)
    await site.age("alice", 61 * MINUTES)
    await site.refuse("s-1", name="alice", groups=None)


async def test_who_was_never_in_a_known_group_starts_nothing(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=None)
    assert groups_of(site.find_user("alice")) == []
    assert (await site.hub.start_server("alice")).status == 403


async def test_what_was_last_known_outlives_the_hub(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight"])
    await site.hub.kill()
    site.provider.stop()
    await site.hub.start()
    assert (await site.hub.start_server("alice")).status == 201
    assert NotingSpawner.started == [("service:test", ["flight"])]


# Tokens


async def test_an_expired_token_is_renewed_once_however_many_ask(site: Site) -> None:
    await site.sign_in("s-1", name="alice", groups=["flight"])
    before = (await site.find_user("alice").get_auth_state())["access_token"]
    site.provider.expire("s-1")
    site.provider.asked.clear()
    site.provider.tell("s-1", name="alice", groups=["ops"])
    user, known = site.find_user("alice"), site.hub.app.authenticator
    await asyncio.gather(*(known.refresh_user(user) for _ in range(5)))
    assert site.provider.count("/oauth2/token") == 1
    assert (await user.get_auth_state())["access_token"] != before
    site.provider.expire("s-1")
    assert (await site.hub.start_server("alice")).status == 201
    assert NotingSpawner.started[-1][1] == ["ops"]


@pytest.mark.parametrize("refresh_tokens", [True, False])
async def test_who_has_no_good_token_signs_in_again_and_is_not_held_up_elsewhere(
    open_site: Callable[..., Awaitable[Site]],
    refresh_tokens: bool,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with Provider(refresh_tokens=refresh_tokens) as provider:
        site = await open_site(provider)
        browser = await site.sign_in("s-1", name="alice", groups=["flight"])
        await site.hub.start_server("alice")
        await site.hub.start_server("alice", server="two")
        provider.revoke("s-1")
        site.find_user("alice")._auth_refreshed = None
        assert (await browser.stop_server("alice", "two")).status == 204
        token = site.hub.make_token("alice")
        for asking in (token, None):
            answer = await site.hub.call(
                "POST", "/users/alice/servers/two", **({"token": asking} if asking else {})
            )
            assert (answer.status, answer.message) == (
                403,
                "The sign-in of alice at the identity provider has expired: "
                "alice has to sign in to the hub again before a server can start.",
            )
        assert (await site.hub.call("GET", "/user", token=token)).status == 200
        assert await site.hub.is_ready("alice")
        site.find_user("alice")._auth_refreshed = None
        page = await browser.open("/hub/home")
        assert page.url.startswith(f"{site.url}/hub/login")
        assert "Failed to get current user" not in capfd.readouterr().err
        assert (await browser.sign_in("s-1")).status == 200
        assert (await site.hub.start_server("alice", server="two")).status == 201


async def test_a_provider_that_forbids_to_ask_says_nothing_of_the_person(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    with Provider(refresh_tokens=False) as provider:
        site = await open_site(provider, admin_groups={"admins"})
        await site.sign_in("s-1", name="alice", groups=["flight", "admins"])
        provider.broken = 403
        assert (await site.hub.start_server("alice")).status == 201
        assert site.find_user("alice").admin


# Between requests

ASKED_EVERY = 1  # seconds; of the wall's clock, as the provider has to answer within five of them


async def test_somebody_whose_browser_is_closed_is_asked_about_too(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(auth_refresh_age=ASKED_EVERY)
    for name in ("alice", "bob"):
        await site.sign_in(name, groups=["flight"])
    await site.hub.start_server("alice")
    for name in ("alice", "bob"):
        site.provider.tell(name, groups=["ops"])
    await wait_until(
        lambda: groups_of(site.find_user("alice")) == ["ops"], within=60, what="the change"
    )
    assert groups_of(site.find_user("bob")) == ["flight"]  # has no server


async def test_asking_goes_on_after_an_outage(
    open_site: Callable[..., Awaitable[Site]],
) -> None:
    site = await open_site(auth_refresh_age=ASKED_EVERY)
    await site.sign_in("alice", groups=["flight"])
    await site.hub.start_server("alice")
    site.provider.broken = 503
    before = len(site.provider.asked)
    await wait_until(
        lambda: len(site.provider.asked) > before + 2, within=60, what="a question in the outage"
    )
    assert groups_of(site.find_user("alice")) == ["flight"]
    assert await site.hub.is_ready("alice")
    site.provider.tell("alice", groups=[])
    site.provider.broken = 0
    await wait_until(lambda: groups_of(site.find_user("alice")) == [], within=60, what="the change")


# Who did it


async def test_a_start_and_a_stop_know_who_asked_for_them(site: Site) -> None:
    browser = await site.sign_in("alice", groups=[])
    boss = await site.sign_in("admin", groups=["admins"])
    await browser.submit("/hub/spawn", {"any": "thing"})
    await boss.stop_server("alice")
    await site.hub.start_server("alice")
    await browser.stop_server("alice")
    token = site.hub.make_token("admin")
    await site.hub.call("POST", "/users/alice/server", token=token)
    await site.hub.stop_server("alice")
    assert [who for who, _ in NotingSpawner.started] == ["user:alice", "service:test", "user:admin"]
    assert NotingSpawner.stopped == ["user:admin", "user:alice", "service:test"]
    assert actor.current() == "hub"


async def test_whoever_the_database_knows_by_name_alone_has_no_subject(site: Site) -> None:
    site.hub.app.db.add(orm.User(name="carol"))
    site.hub.app.db.commit()
    assert await subject_of(site.find_user("carol")) == ""
    assert (await site.hub.start_server("carol")).status == 403
