"""People who leave a team in which their server runs: told, then stopped, and never by mistake."""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta

import aiohttp
import pytest
import pytest_asyncio

from spectrum_spawner.service import departures
from spectrum_spawner.service.ledger import LedgerError
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.service.conftest import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = timedelta(hours=1)
IN_FLIGHT = {"team": "flight", "profile": "cpu-small"}
NOTICE = (
    "You are no longer in team Flight: this server will be stopped unless you are added again. "
    "Save your work."
)
WARNED = ("notice", "service:spectrum", "alice", "alice is no longer in team Flight")
STOPPED = ("stop-request", "service:spectrum", "alice", "alice is no longer in team Flight")
BACK = ("notice", "service:spectrum", "alice", "alice is in the team again")


@pytest_asyncio.fixture(loop_scope="module")
async def running(service: Running, hub: Hub) -> Running:
    """The service, and alice with a server in flight."""
    assert (await hub.start_server("alice", IN_FLIGHT)).status == 201
    return service


async def look(service: Running, *, later: timedelta = timedelta(0), sees: bool = True) -> None:
    """The look of a later moment, with a list that is read for it, of whoever `sees` anything."""
    service.wall.ahead += later
    await wait_until(lambda: see(service, sees=sees), within=10, what="a list that was read")
    await departures.look(service.context)


async def see(service: Running, *, sees: bool) -> bool:
    """Read the list anew; whether the service knows all that it decides by, or `sees` nothing."""
    service.context.snapshot.forget()
    await service.context.snapshot.refresh()
    known = service.context.teams.stale_since is None and not service.context.snapshot.error
    return known == sees


async def leave(hub: Hub, group: str = "flight") -> None:
    answer = await hub.call("DELETE", f"/groups/{group}/users", {"users": ["alice"]})
    assert answer.status == 200, answer


async def join(hub: Hub, group: str = "flight") -> None:
    answer = await hub.call("POST", f"/groups/{group}/users", {"users": ["alice"]})
    assert answer.status == 200, answer


async def read_events(service: Running) -> list[tuple[str, str, str, str]]:
    """The records, each with the beginning of its reason."""
    records = await service.read_audit()
    return [(*rest, re.split("[:.]", reason)[0]) for *rest, reason in records]


async def read_notices(service: Running) -> list[dict[str, str]]:
    """What the hub is told."""
    url = f"http://127.0.0.1:{service.context.settings.port}/internal/notices"
    headers = {"Authorization": "Bearer hub-token"}
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return (await answer.json())["notices"]


async def test_a_member_hears_nothing(running: Running, hub: Hub) -> None:
    await look(running, later=2 * HOUR)
    assert await read_events(running) == []
    assert await read_notices(running) == []


async def test_who_leaves_is_told_and_stopped_an_hour_later(running: Running, hub: Hub) -> None:
    await leave(hub)
    await look(running)
    (notice,) = await read_notices(running)
    assert (notice["user"], notice["server"], notice["text"]) == ("alice", "", NOTICE)
    await look(running, later=HOUR / 2)
    assert await read_events(running) == [WARNED]
    (_, _, _, reason) = (await running.read_audit())[0]
    assert reason.startswith("alice is no longer in team Flight: the server is stopped at ")
    assert await hub.is_ready("alice")

    await look(running, later=HOUR)
    await hub.wait_absent("alice", within=10)
    assert await read_events(running) == [WARNED, STOPPED]
    await look(running)
    assert await read_notices(running) == []


async def test_who_is_added_again_keeps_the_server(running: Running, hub: Hub) -> None:
    await leave(hub)
    await look(running)
    await join(hub)
    await look(running, later=2 * HOUR)
    assert await read_events(running) == [WARNED, BACK]
    assert await read_notices(running) == []
    assert await hub.is_ready("alice")


async def test_who_leaves_another_team_keeps_the_server(running: Running, hub: Hub) -> None:
    await join(hub, "ops")
    await leave(hub, "ops")
    await look(running, later=2 * HOUR)
    assert await read_events(running) == []


async def test_while_the_hub_is_away_nobody_has_left(
    start_service: Callable[..., Awaitable[Running]], hub: Hub
) -> None:
    running = await start_service()
    assert (await hub.start_server("alice", IN_FLIGHT)).status == 201
    await leave(hub)
    await look(running)
    lost = await start_service(port=0, api_url="http://127.0.0.1:9/hub/api")
    await look(lost, later=2 * HOUR, sees=False)
    assert await read_events(running) == [WARNED]
    assert await hub.is_ready("alice")


async def test_while_the_teams_cannot_be_read_nobody_has_left(
    running: Running, hub: Hub, fault_proxy: FaultProxy
) -> None:
    await fault_proxy.go_down()
    await wait_until(lambda: running.context.teams.stale_since is not None, within=10)
    await leave(hub)
    await look(running, later=2 * HOUR, sees=False)
    assert await read_events(running) == []
    await fault_proxy.come_up()


async def test_of_a_team_that_is_not_there_nobody_has_left(
    running: Running, hub: Hub, cluster: Cluster, hub_namespace: str
) -> None:
    await leave(hub)
    await look(running)
    await cluster.delete(f"{find_teams(hub_namespace)}/flight")
    await wait_until(lambda: running.context.teams.get("flight") is None, within=10)
    await look(running, later=2 * HOUR)
    assert await read_events(running) == [WARNED]
    assert len(await read_notices(running)) == 1
    assert await hub.is_ready("alice")


async def test_the_next_run_of_the_server_is_not_ended_for_the_former(
    running: Running, hub: Hub
) -> None:
    await leave(hub)
    await look(running)
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    await join(hub)
    assert (await hub.start_server("alice", IN_FLIGHT)).status == 201
    await leave(hub)
    await look(running, later=2 * HOUR)
    assert await read_events(running) == [WARNED, WARNED]
    assert await hub.is_ready("alice")


async def test_nothing_is_stopped_that_cannot_be_written_down(
    running: Running, hub: Hub, break_ledger: Callable[[], None]
) -> None:
    await leave(hub)
    await look(running)
    break_ledger()
    running.wall.ahead += 2 * HOUR
    running.context.snapshot.forget()
    with pytest.raises(LedgerError):
        await departures.look(running.context)
    assert await hub.is_ready("alice")
