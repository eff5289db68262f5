"""Stopping servers through the service: written down first, except that nobody's own waits."""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing

import pytest
import pytest_asyncio

from spectrum_spawner.service.settings import Settings
from tests.hub.clock import wait_until
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

SignIn = Callable[[str], Awaitable[Browser]]


@pytest_asyncio.fixture(loop_scope="module")
async def running(service: Running, hub: Hub) -> Running:
    """The service, and alice with a server in flight."""
    assert (await hub.start_server("alice")).status == 201
    service.context.snapshot.forget()  # the list that the service read when it began
    return service


async def test_a_lead_stops_a_members_server_with_a_reason(
    running: Running, hub: Hub, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    assert "Stop the server of alice now" in (await bob.open("teams/flight")).text
    shown = await bob.send(
        "teams/flight/stop", user="alice", server="", reason="The GPU is needed for the demo."
    )
    assert "The server is being stopped." in shown.text
    await hub.wait_absent("alice", within=10)
    assert await running.read_audit() == [
        ("stop-request", "user:bob", "alice", "The GPU is needed for the demo.")
    ]
    assert "The GPU is needed for the demo." in (await (await sign_in("alice")).open("audit")).text


async def test_the_lead_of_one_team_does_not_stop_a_members_server_in_another(
    running: Running, hub: Hub, sign_in: SignIn
) -> None:
    assert (await hub.call("POST", "/groups/ops/users", {"users": ["alice"]})).status == 200
    options = {"team": "ops", "profile": "cpu-small"}
    assert (await hub.start_server("alice", options, "other")).status == 201
    bob = await sign_in("bob")
    shown = await bob.call("DELETE", "servers/alice/other")
    assert shown.status == 403
    assert shown.problem == (
        "The server of “alice/other” can be stopped by its owner, by a lead of team “ops” or by "
        "an administrator: ask one of them."
    )
    assert await hub.is_ready("alice", "other")
    assert await running.read_audit() == []


async def test_nobody_elses_server_is_stopped_without_a_record(
    running: Running, hub: Hub, sign_in: SignIn, break_ledger: Callable[[], None]
) -> None:
    bob = await sign_in("bob")
    break_ledger()
    shown = await bob.send("teams/flight/stop", user="alice", server="", reason="Typed.")
    assert shown.status == 503
    assert shown.problem.startswith("The server was not stopped, since that could not be written")
    assert 'value="Typed."' in shown.text
    assert await hub.is_ready("alice")


async def test_ones_own_server_is_stopped_whatever_the_ledger_does(
    running: Running, hub: Hub, sign_in: SignIn, break_ledger: Callable[[], None]
) -> None:
    alice = await sign_in("alice")
    break_ledger()
    shown = await alice.call("DELETE", "servers/alice/")
    assert shown.status == 202
    await hub.wait_absent("alice", within=10)


async def test_ones_own_stop_does_not_wait_for_a_ledger_that_is_locked(
    running: Running, hub: Hub, sign_in: SignIn, settings: Settings
) -> None:
    alice = await sign_in("alice")
    with closing(sqlite3.connect(settings.database.removeprefix("sqlite:///"))) as database:
        database.execute("BEGIN IMMEDIATE")
        shown = await alice.call("DELETE", "servers/alice/", {"reason": "To go home."})
        assert shown.status == 202
        await hub.wait_absent("alice", within=10)
        database.rollback()
    await wait_until(running.read_audit, within=10, what="the record of the stop")
    assert await running.read_audit() == [("stop-request", "user:alice", "alice", "To go home.")]


@pytest.mark.parametrize("path", ["servers/alice/nope", "servers/nobody/", "servers/%3Cb%3E/x"])
async def test_what_does_not_run_cannot_be_stopped(
    running: Running, hub: Hub, sign_in: SignIn, path: str
) -> None:
    shown = await (await sign_in("bob")).call("DELETE", path)
    assert (shown.status, shown.problem) == (
        404,
        "There is no such server running: it may have ended already.",
    )


async def test_a_form_of_another_site_stops_nothing(
    running: Running, hub: Hub, sign_in: SignIn
) -> None:
    bob = await sign_in("bob")
    for forged in ("", "x" * 40):
        shown = await bob.send("teams/flight/stop", user="alice", server="", _xsrf=forged)
        assert shown.status == 403
    assert await hub.is_ready("alice")
