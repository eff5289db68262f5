"""A Keycloak for the session, with the realm of the tests in it."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from local.java import ensure_keycloak
from local.keycloak import Keycloak
from local.progress import Progress
from local.realm import MEMBERS, Realm, make_realm
from tests.browser.conftest import chromium, new_page, pages, pytest_runtest_makereport  # noqa: F401


@dataclass(frozen=True)
class Account:
    """What an application and its people know of the realm."""

    callback_url: str
    client_secret: str = field(default_factory=secrets.token_urlsafe)
    passwords: dict[str, str] = field(
        default_factory=lambda: {name: secrets.token_urlsafe() for name in MEMBERS}
    )

    def create(self, realm: Realm) -> None:
        realm.create(
            make_realm(
                callback_url=self.callback_url,
                client_secret=self.client_secret,
                passwords=self.passwords,
            )
        )


@pytest.fixture(scope="session")
def account() -> Account:
    return Account("http://127.0.0.1:8000/hub/oauth_callback")


@pytest.fixture(scope="session")
def keycloak(tmp_path_factory: pytest.TempPathFactory, account: Account) -> Iterator[Keycloak]:
    """A Keycloak of this session's own, on 127.0.0.1."""
    keycloak = Keycloak(Path(tmp_path_factory.mktemp("keycloak")), ensure_keycloak(Progress()))
    try:
        keycloak.start(Progress())
        account.create(keycloak.realm)
        yield keycloak
    finally:
        keycloak.stop()


@pytest.fixture
def realm(keycloak: Keycloak) -> Realm:
    return keycloak.realm
