"""What the home page tells of a server that is no more: who or what ended it, and when."""

import re
from collections.abc import Awaitable, Callable

import pytest
import pytest_asyncio

from spectrum_spawner import hub_pages
from spectrum_spawner.service.hub import Hub as HubForService
from spectrum_spawner.service.hub import HubRefused
from tests.hub.clock import Clock
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import ADMIN_TOKEN, Hub
from tests.hub.node import NodeStub, crash
from tests.hub.spawners import FLIGHT, USER_PASSWORD, Setup, make_signed
from tests.hub.team import Team


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    """A hub with our pages that knows who asks."""
    setup = make_signed(hub_namespace)
    setup.config.JupyterHub.update(hub_pages.SETTINGS)
    return await start_hub(setup)


async def start(hub: Hub, server: str = "") -> None:
    assert (await hub.start_server("alice", FLIGHT, server)).status == 201


async def stop(hub: Hub, by: str, server: str = "", body: object = None) -> None:
    path = f"/users/alice/servers/{server}" if server else "/users/alice/server"
    answer = await hub.call("DELETE", path, body, token=hub.make_token(by))
    assert answer.status in (202, 204), answer
    await hub.wait_absent("alice", server, within=20)


async def read_home(hub: Hub) -> str:
    """Alice's home page as a text in which a moment is `<time>`."""
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        page = await pages.read("/home")
    main = page[page.index("<h1") : page.index("<script", page.index("<h1"))]
    marked = re.sub(r"<time[^>]*>[^<]*</time>", "TIME", main)
    return " ".join(re.sub(r"<[^>]+>", " ", marked).split())


async def tell(hub: Hub) -> list[str]:
    """The sentences of the home page about ends."""
    pattern = r"(?:Stopped|Ended|Did not start) TIME(?: ?by [^:.]+)?(?:\.|: .*?\.)(?= |$)"
    return re.findall(pattern, await read_home(hub))


async def test_nobody_is_told_of_their_own_stop(hub: Hub) -> None:
    await start(hub)
    await stop(hub, by="alice")
    assert "You have no server running." in await read_home(hub)
    assert await tell(hub) == []


async def test_a_stop_by_somebody_else_is_told_until_the_next_start(hub: Hub) -> None:
    await start(hub)
    await start(hub, "second")
    await stop(hub, by="admin")
    assert await tell(hub) == ["Stopped TIME by admin."]
    await stop(hub, by="admin", server="second")
    assert await tell(hub) == ["Stopped TIME by admin."] * 2
    await hub.kill()
    await hub.start()
    assert await tell(hub) == ["Stopped TIME by admin."] * 2
    assert (await hub.start_server("alice", {"profile": "nope"})).status == 400
    assert await tell(hub) == ["Stopped TIME by admin."] * 2
    await start(hub)
    assert hub.find_spawner("alice").end is None
    assert await tell(hub) == ["Stopped TIME by admin."]
    await stop(hub, by="alice")
    assert await tell(hub) == ["Stopped TIME by admin."]
    assert hub.read_options("alice") == {**FLIGHT, "image": "tensorflow", "scratch": ""}


async def test_the_service_says_for_whom_it_stops_and_why(hub: Hub) -> None:
    async with HubForService(hub.url, ADMIN_TOKEN) as service:
        for by, reason, told in (
            (
                "user:bob",
                "<b>A demo</b> needs it.",
                "Stopped TIME by bob: &lt;b&gt;A demo&lt;/b&gt; needs it.",
            ),
            ("user:bob", "", "Stopped TIME by bob."),
            (
                "service:spectrum",
                "alice left Flight.",
                "Stopped TIME by Spectrum: alice left Flight.",
            ),
        ):
            await start(hub)
            await service.stop("alice", "", by=by, reason=reason)
            await hub.wait_absent("alice", within=20)
            assert await tell(hub) == [told]
        await start(hub)
        await service.stop("alice", "", by="user:alice", reason="To go home.")
        await hub.wait_absent("alice", within=20)
        assert await tell(hub) == []


async def test_a_start_that_the_service_asks_for_says_for_whom_and_why_not(hub: Hub) -> None:
    async with HubForService(hub.url, ADMIN_TOKEN) as service:
        await service.start("alice", "", FLIGHT, by="user:bob", reason="Without a GPU.")
        started = [each for each in hub.read_audit() if each["action"] == "start"][-1]
        assert (started["actor"], started["details"]["by"]) == ("service:test", "user:bob")
        await service.stop("alice", "", by="service:spectrum", reason="It goes on.")
        await hub.wait_absent("alice", within=20)
        wanted = {**FLIGHT, "profile": "nope"}
        with pytest.raises(HubRefused, match="There is no profile “nope”"):
            await service.start("alice", "", wanted, by="user:bob", reason="Without a GPU.")
    (told,) = await tell(hub)
    assert told.startswith("Did not start TIME: There is no profile “nope”: choose one of ")
    await hub.kill()
    await hub.start()
    assert await tell(hub) == [told]


async def test_a_person_runs_no_errands(hub: Hub) -> None:
    await start(hub)
    await stop(hub, by="admin", body={"by": "user:bob", "reason": "It was bob."})
    assert await tell(hub) == ["Stopped TIME by admin."]


async def test_a_body_that_is_no_errand_is_none(hub: Hub) -> None:
    for body in ({"by": 7, "reason": ""}, {"by": "user:bob"}, {"by": "", "reason": ""}):
        await start(hub)
        assert (await hub.call("DELETE", "/users/alice/server", body)).status in (202, 204)
        await hub.wait_absent("alice", within=20)
        assert await tell(hub) == ["Stopped TIME by service test."]


async def test_an_end_by_itself_says_what_it_was(
    hub: Hub, node: NodeStub, cluster: Cluster, flight: Team
) -> None:
    await start(hub)
    await node.end(await cluster.get(flight.find_pod("alice")), "OOMKilled", 137)
    await hub.wait_absent("alice", within=10)
    why = "It used more memory than its profile allows (OOMKilled), exit code 137."
    assert await tell(hub) == [f"Ended TIME: {why}"]
    await start(hub)
    await cluster.delete(flight.find_pod("alice"))
    await hub.wait_absent("alice", within=10)
    assert await tell(hub) == ["Ended TIME: Its pod was deleted, not by Spectrum."]


async def test_an_end_while_the_hub_was_away_is_told_as_well(
    hub: Hub, cluster: Cluster, flight: Team
) -> None:
    await start(hub)
    await hub.kill()
    await cluster.delete(flight.find_pod("alice"), {"gracePeriodSeconds": 0})
    await hub.start()
    await hub.wait_absent("alice", within=20)
    assert await tell(hub) == ["Ended TIME: Its pod was deleted, not by Spectrum."]


async def test_a_start_that_failed_is_told_as_well(hub: Hub, node: NodeStub, clock: Clock) -> None:
    node.play = crash
    with clock.hurry(5):
        await hub.start_server("alice", FLIGHT)
        await hub.wait_absent("alice", within=20)
    assert await tell(hub) == [
        "Ended TIME: Your server ended while it was starting: Error, exit code 1."
    ]


async def test_a_start_that_the_cluster_refused_is_told_as_well(
    hub: Hub, fault_proxy: FaultProxy, flight: Team
) -> None:
    fault_proxy.refuse(lambda call: call.is_create(flight.pods), status=403)
    assert (await hub.start_server("alice", FLIGHT, "second")).status == 409
    (told,) = await tell(hub)
    assert told.startswith("Did not start TIME: The cluster refused to create your server: ")
    await start(hub, "second")
    assert await tell(hub) == []


async def test_a_server_whose_first_start_was_refused_was_never_started(hub: Hub) -> None:
    assert (await hub.start_server("alice", {"profile": "nope"}, "second")).status == 400
    assert "second Never started Never " in await read_home(hub)
    await hub.kill()
    await hub.start()
    assert "second Never started Never " in await read_home(hub)
    await start(hub, "second")
    assert "Never started" not in await read_home(hub)
    await stop(hub, by="alice", server="second")
    assert "Never started" not in await read_home(hub)
