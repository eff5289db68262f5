"""Sign-in by shared password: the table in the values has the last word."""

import json
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import orm
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from spectrum_spawner.identity import TableAuthenticator, groups_of
from spectrum_spawner.outbox import Outbox

USER_PASSWORD = "u" * 16
ADMIN_PASSWORD = "a" * 40
TABLE = {"flight": ["alice"], "ops": ["alice", "bob"]}


def make_authenticator(**traits: Any) -> TableAuthenticator:
    given = {
        "user_password": USER_PASSWORD,
        "admin_password": ADMIN_PASSWORD,
        "admin_users": {"admin"},
        "allowed_users": {"admin", "alice", "bob", "carol"},
        "members": TABLE,
    }
    return TableAuthenticator(**{**given, **traits})


async def sign_in(authenticator: TableAuthenticator, name: str, password: str) -> Any:
    return await authenticator.get_authenticated_user(
        None, {"username": name, "password": password}
    )


class Account:
    """As much of a user as an authenticator is shown."""

    def __init__(self, name: str) -> None:
        self.name = name


class RestartedHub:
    """JupyterHub on one database, initialized anew for each table as at each start."""

    def __init__(self, directory: Path) -> None:
        self.database = directory / "jupyterhub.sqlite"
        self.app: JupyterHub | None = None

    async def start(self, **traits: Any) -> JupyterHub:
        self.stop()
        config = Config()
        config.JupyterHub.authenticator_class = TableAuthenticator
        config.JupyterHub.db_url = f"sqlite:///{self.database}"
        config.JupyterHub.cookie_secret = b"c" * 32
        config.ConfigurableHTTPProxy.should_start = False
        config.ConfigurableHTTPProxy.auth_token = "t" * 32
        config.TableAuthenticator.user_password = USER_PASSWORD
        config.TableAuthenticator.admin_password = ADMIN_PASSWORD
        for name, value in traits.items():
            config.TableAuthenticator[name] = value
        self.app = JupyterHub(config=config)
        self.app.init_db()
        await self.app.init_role_creation()
        await self.app.init_users()
        await self.app.init_groups()
        await self.app.init_role_assignment()
        return self.app

    def stop(self) -> None:
        if self.app:
            self.app.db.close()
            self.app.session_factory.kw["bind"].dispose()
            self.app = None


@pytest.fixture
def hub(tmp_path: Path) -> Any:
    hub = RestartedHub(tmp_path)
    yield hub
    hub.stop()


def describe(app: JupyterHub) -> dict[str, Any]:
    """Each account in the database with its admin flag, roles and groups."""
    return {
        user.name: {
            "admin": user.admin,
            "roles": sorted(role.name for role in user.roles),
            "groups": sorted(group.name for group in user.groups),
        }
        for user in app.db.query(orm.User)
    }


def test_groups_of_a_person_are_those_that_list_them() -> None:
    assert groups_of("alice", TABLE) == ["flight", "ops"]
    assert groups_of("bob", TABLE) == ["ops"]
    assert groups_of("carol", TABLE) == []


async def test_a_listed_user_signs_in_with_the_user_password_and_the_tables_groups() -> None:
    assert await sign_in(make_authenticator(), "alice", USER_PASSWORD) == {
        "name": "alice",
        "admin": False,
        "groups": ["flight", "ops"],
        "auth_state": None,
        "user_info": None,
    }


async def test_an_administrator_signs_in_with_the_admin_password() -> None:
    assert await sign_in(make_authenticator(), "admin", ADMIN_PASSWORD) == {
        "name": "admin",
        "admin": True,
        "groups": [],
        "auth_state": None,
        "user_info": None,
    }


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("alice", ADMIN_PASSWORD),
        ("admin", USER_PASSWORD),
        ("alice", ""),
        ("alice", USER_PASSWORD + "x"),
        ("mallory", USER_PASSWORD),
        ("mallory", ADMIN_PASSWORD),
        ("flight", USER_PASSWORD),
        ("", USER_PASSWORD),
    ],
)
async def test_others_do_not_sign_in(name: str, password: str) -> None:
    assert await sign_in(make_authenticator(), name, password) is None


async def test_nobody_signs_in_where_nobody_is_listed() -> None:
    authenticator = make_authenticator(admin_users=set(), allowed_users=set(), members={})
    assert await sign_in(authenticator, "alice", USER_PASSWORD) is None


async def test_a_refresh_tells_what_the_table_says_now() -> None:
    authenticator = make_authenticator()
    assert await authenticator.refresh_user(Account("bob")) == {
        "name": "bob",
        "admin": False,
        "groups": ["ops"],
    }
    assert await authenticator.refresh_user(Account("admin")) == {
        "name": "admin",
        "admin": True,
        "groups": [],
    }


async def test_a_refresh_ends_the_session_of_a_person_who_is_no_longer_listed() -> None:
    assert await make_authenticator().refresh_user(Account("mallory")) is False


def test_rights_are_asked_for_again_at_each_start_and_for_each_kind_of_request() -> None:
    authenticator = make_authenticator()
    assert authenticator.manage_groups
    assert authenticator.refresh_pre_spawn
    assert authenticator.refresh_pre_stop
    assert authenticator.auth_refresh_strict
    assert not authenticator.allow_existing_users


def test_an_admin_password_of_less_than_32_characters_is_refused() -> None:
    with pytest.raises(ValueError, match="must be at least 32 characters"):
        make_authenticator(admin_password="a" * 31)


async def test_who_leaves_the_table_has_no_group_and_no_admin_role_after_a_restart(
    hub: RestartedHub,
) -> None:
    everybody = {"alice", "bob"}
    app = await hub.start(admin_users={"admin", "bob"}, allowed_users=everybody, members=TABLE)
    flight, ops = orm.Group(name="flight"), orm.Group(name="ops")
    for name, groups in {"alice": [flight, ops], "bob": [ops], "admin": [ops]}.items():
        orm.User.find(app.db, name).groups = groups
    app.db.commit()

    app = await hub.start(
        admin_users={"admin"}, allowed_users=everybody, members={"ops": ["alice"]}
    )

    assert describe(app) == {
        "admin": {"admin": True, "roles": ["admin", "user"], "groups": []},
        "alice": {"admin": False, "roles": ["user"], "groups": ["ops"]},
        "bob": {"admin": False, "roles": ["user"], "groups": []},
    }


async def test_what_a_new_table_changes_is_recorded(hub: RestartedHub, tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "audit_file": str(tmp_path / "audit.sqlite"),
        "allowed_users": {"alice"},
    }
    app = await hub.start(members=TABLE, **told)
    orm.User.find(app.db, "alice").groups = [orm.Group(name="flight"), orm.Group(name="ops")]
    app.db.commit()
    await hub.start(members={"ops": ["alice"]}, **told)
    outbox = Outbox.shared(told["audit_file"], "", "")
    records = [json.loads(body) for _, body in outbox._read_batch()]
    await Outbox.close_shared()
    assert [(record["actor"], record["reason"]) for record in records] == [
        ("identity-provider", "alice joined flight, ops."),
        ("identity-provider", "alice left flight."),
    ]


async def test_who_leaves_the_list_keeps_an_account_but_cannot_sign_in(hub: RestartedHub) -> None:
    await hub.start(allowed_users={"alice", "bob"}, members={})
    app = await hub.start(allowed_users={"bob"}, members={})
    assert sorted(describe(app)) == ["alice", "bob"]
    assert app.authenticator.allowed_users == {"bob"}
    assert await sign_in(app.authenticator, "alice", USER_PASSWORD) is None


async def test_groups_cannot_be_granted_behind_the_tables_back(hub: RestartedHub) -> None:
    app = await hub.start(allowed_users={"alice"}, members={})
    app.load_groups = {"flight": {"users": ["alice"]}}
    with pytest.raises(ValueError, match="offloaded to the authenticator"):
        await app.init_groups()
