"""Sign-in at a hub in this process through Keycloak; no cluster is needed for it."""

import asyncio
import html
import re
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import requests
from jupyterhub.crypto import CryptKeeper
from jupyterhub.spawner import SimpleLocalProcessSpawner, SpawnException
from traitlets.config import Config

from local.keycloak import Keycloak
from local.progress import Progress
from local.realm import CLIENT, EVERYBODY, Realm
from spectrum_spawner.providers import GenericProvider
from tests.hub.hub import Hub
from tests.hub.spawners import Setup
from tests.keycloak.conftest import Account
from tests.keycloak.person import sign_in


class NeverSpawner(SimpleLocalProcessSpawner):
    """Starts nothing: what is asked is what the hub knows before each start."""

    async def start(self) -> None:
        raise SpawnException("no server starts here", reason="never")


def make_config(realm: Realm, account: Account) -> Config:
    """The traits that the chart's values become (`hub_config`)."""
    config = Config()
    config.JupyterHub.authenticator_class = GenericProvider
    config.JupyterHub.default_url = "/hub/home"
    config.Authenticator.allow_all = False
    provider = config.GenericProvider
    provider.client_id = CLIENT
    provider.client_secret = account.client_secret
    provider.authorize_url = realm.endpoints["authorization_endpoint"]
    provider.token_url = realm.endpoints["token_endpoint"]
    provider.userdata_url = realm.endpoints["userinfo_endpoint"]
    provider.allowed_groups = {EVERYBODY}
    provider.admin_groups = {"/spectrum-admins"}
    return config


class Visitor:
    """Somebody with a browser at the hub."""

    def __init__(self, hub: str, account: Account, name: str) -> None:
        """`hub` is the address of the hub and ends in `/hub/`."""
        self.name = name
        self._hub = hub
        self._password = account.passwords[name]
        self._session = requests.Session()

    async def sign_in(self) -> requests.Response:
        """Sign in at Keycloak; the page of the hub that it ends on."""
        return await asyncio.to_thread(self._sign_in)

    def _sign_in(self) -> requests.Response:
        with self._session:
            landed = sign_in(self._session, f"{self._hub}oauth_login", self.name, self._password)
            return self._session.get(landed, timeout=60)


@pytest_asyncio.fixture
async def hub(
    keycloak: Keycloak, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Hub]:
    monkeypatch.setenv("JUPYTERHUB_CRYPT_KEY", secrets.token_hex(32))
    CryptKeeper.clear_instance()
    hub = Hub(tmp_path, Setup(NeverSpawner, make_config(keycloak.realm, account), {}))
    hub.config.GenericProvider.oauth_callback_url = f"{address_of(hub)}oauth_callback"
    keycloak.realm.set_callback(f"{address_of(hub)}oauth_callback")
    await hub.start()
    yield hub
    await hub.kill()
    keycloak.realm.set_callback(account.callback_url)


def address_of(hub: Hub) -> str:
    return f"http://127.0.0.1:{hub.config.JupyterHub.hub_port}/hub/"


async def read_user(hub: Hub, name: str) -> dict[str, Any]:
    found = (await hub.call("GET", f"/users/{name}")).body
    return {"groups": sorted(found["groups"]), "admin": found["admin"]}


def read_sentence(page: requests.Response) -> str:
    """What the hub's error page says."""
    found = re.search(r"<p[^>]*>\s*(.*?)\s*</p>", page.text.partition("<h1")[2], re.DOTALL)
    assert found, page.text
    return html.unescape(found[1])


async def test_groups_of_keycloak_are_the_hubs_without_their_first_slash(
    hub: Hub, realm: Realm, account: Account
) -> None:
    realm.add_member("alice", "/company/research")
    page = await Visitor(address_of(hub), account, "alice").sign_in()
    realm.remove_member("alice", "/company/research")
    assert page.url == f"{address_of(hub)}home"
    assert await read_user(hub, "alice") == {
        "groups": ["company/research", "everybody", "flight", "ops"],
        "admin": False,
    }


async def test_a_group_makes_administrators(hub: Hub, account: Account) -> None:
    await Visitor(address_of(hub), account, "admin").sign_in()
    assert await read_user(hub, "admin") == {
        "groups": ["everybody", "spectrum-admins"],
        "admin": True,
    }


async def test_who_is_in_no_group_that_may_sign_in_is_refused(
    hub: Hub, realm: Realm, account: Account
) -> None:
    realm.remove_member("carol", EVERYBODY)
    page = await Visitor(address_of(hub), account, "carol").sign_in()
    realm.add_member("carol", EVERYBODY)
    assert page.status_code == 403


async def test_who_leaves_a_group_has_left_it_at_the_next_start(
    hub: Hub, realm: Realm, account: Account
) -> None:
    await Visitor(address_of(hub), account, "bob").sign_in()
    realm.remove_member("bob", "/ops")
    await hub.start_server("bob", {})
    realm.add_member("bob", "/ops")
    assert (await read_user(hub, "bob"))["groups"] == ["everybody"]
    await hub.start_server("bob", {})
    assert (await read_user(hub, "bob"))["groups"] == ["everybody", "ops"]


async def test_a_new_account_of_an_old_name_is_let_in_nowhere(
    hub: Hub, realm: Realm, account: Account
) -> None:
    await Visitor(address_of(hub), account, "carol").sign_in()
    realm.remove_user("carol")
    realm.add_user("carol", account.passwords["carol"], [])
    page = await Visitor(address_of(hub), account, "carol").sign_in()
    assert (page.status_code, read_sentence(page)) == (
        403,
        "The user name carol belongs to another person here. "
        "Ask a cluster administrator, or sign in under another name.",
    )


@pytest.mark.timeout(600)
async def test_while_keycloak_is_away_the_last_groups_hold(
    hub: Hub, keycloak: Keycloak, account: Account
) -> None:
    await Visitor(address_of(hub), account, "bob").sign_in()
    before = await read_user(hub, "bob")
    keycloak.stop()
    try:
        answer = await hub.start_server("bob", {})
        assert (answer.message, await read_user(hub, "bob")) == ("no server starts here", before)
    finally:
        keycloak.start(Progress())
