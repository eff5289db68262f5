"""What a server can do in the hub with the token in its environment: for itself alone."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from jupyterhub.services.auth import check_scopes
from traitlets.config import Config

from tests.hub.hub import TEST_ROLE, TEST_SERVICE, Hub
from tests.hub.spawners import FLIGHT, Setup, make_signed
from tests.hub.team import Team

ACTIVE = {"last_activity": "2026-01-31T09:14:00Z"}


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]],
    flight: Team,
    hub_namespace: str,
    release_config: Config,
) -> Hub:
    """A hub with the roles and services of a release, and the servers of alice and bob."""
    setup = make_signed(hub_namespace)
    config = setup.config.JupyterHub
    config.custom_scopes = release_config.JupyterHub.custom_scopes
    config.services = [TEST_SERVICE, *release_config.JupyterHub.services]
    config.load_roles = [TEST_ROLE, *release_config.JupyterHub.load_roles]
    hub = await start_hub(setup)
    for user in ("alice", "bob"):
        assert (await hub.start_server(user)).status == 201
    return hub


@pytest.fixture
def token(hub: Hub) -> str:
    """The one in the environment of alice's server."""
    return hub.find_spawner("alice").api_token


async def test_it_says_whose_it_is_and_reaches_the_service_without_acting_there(
    hub: Hub, token: str
) -> None:
    answer = await hub.call("GET", "/user", token=token)
    assert (answer.status, answer.body["name"]) == (200, "alice")
    assert set(answer.body["scopes"]) == {
        "custom:spectrum:report!server=alice/",
        "access:services!service=spectrum",
        "read:users:groups!user=alice",
        "read:users:name!user=alice",
        "users:activity!user=alice",
        "read:users:activity!user=alice",
    }


async def test_whoever_kept_it_gets_into_no_server_with_it(hub: Hub, token: str) -> None:
    held = set((await hub.call("GET", "/user", token=token)).body["scopes"])
    for user in ("alice", "bob"):
        assert not check_scopes(set(hub.find_spawner(user).oauth_access_scopes), held)


async def test_it_tells_the_activity_of_its_own_server(hub: Hub, token: str) -> None:
    activity = {"servers": {"": ACTIVE}, **ACTIVE}
    path = "/users/alice/activity"
    assert (await hub.call("POST", path, activity, token=token)).status == 200


FORBIDDEN: list[tuple[str, str, Any]] = [
    ("GET", "/users", None),
    ("GET", "/users/bob", None),
    ("GET", "/groups", None),
    ("GET", "/groups/flight", None),
    ("GET", "/services", None),
    ("GET", "/proxy", None),
    ("GET", "/info", None),
    ("GET", "/users/alice/tokens", None),
    ("POST", "/users/alice/tokens", {"note": "more"}),
    ("POST", "/users/bob/tokens", {"note": "more"}),
    ("POST", "/users/alice/servers/second", {"user_options": FLIGHT}),
    ("DELETE", "/users/alice/server", None),
    ("DELETE", "/users/bob/server", None),
    ("POST", "/users/bob/activity", {"servers": {"": ACTIVE}}),
    ("GET", "/users/bob/server/progress", None),
    ("GET", "/users/bob/shared", None),
    ("POST", "/shares/alice/", {"user": "bob"}),
    ("POST", "/users/mallory", None),
    ("PATCH", "/users/alice", {"admin": True}),
    ("DELETE", "/users/bob", None),
    ("POST", "/groups/ops/users", {"users": ["alice"]}),
    ("POST", "/shutdown", {}),
]


async def test_nothing_else_is_open_to_it(hub: Hub, token: str) -> None:
    answers = {
        f"{method} {path}": (await hub.call(method, path, body, token=token)).status
        for method, path, body in FORBIDDEN
    }
    opened = {request: status for request, status in answers.items() if status not in (403, 404)}
    assert opened == {}
    assert await hub.is_ready("alice")
    assert await hub.is_ready("bob")
