"""Many requests for one server, or for servers of one person, within a moment."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest_asyncio

from spectrum_spawner import names
from spectrum_spawner.identity import TableAuthenticator
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.hub import Answer, Hub
from tests.hub.spawners import FLIGHT, USER_PASSWORD, Setup, make_signed
from tests.hub.team import Team


class AwayAuthenticator(TableAuthenticator):
    """Takes its time to say who somebody is, as whoever has to ask an identity provider."""

    async def refresh_user(self, user: Any, handler: Any = None) -> dict[str, Any] | bool:
        found = await super().refresh_user(user, handler)
        await asyncio.sleep(0.3)
        return found


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[[Setup], Awaitable[Hub]], flight: Team, hub_namespace: str
) -> Hub:
    setup = make_signed(hub_namespace)
    setup.config.JupyterHub.authenticator_class = AwayAuthenticator
    return await start_hub(setup)


def count(answers: list[Answer]) -> Counter[tuple[int, str]]:
    """How often each status was answered, with its sentence."""
    return Counter((a.status, a.message if a.status >= 400 else "") for a in answers)


async def test_of_many_starts_of_one_server_one_is_made_and_the_others_find_it(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    answers = await asyncio.gather(*(hub.start_server("alice") for _ in range(8)))
    assert count(answers) == {(201, ""): 1, (202, ""): 7}
    assert await hub.is_ready("alice")
    pods = await cluster.list(f"/api/v1/namespaces/{flight.namespace}/pods")
    assert [pod["metadata"]["name"] for pod in pods] == [names.server_name("alice", "")]
    assert [r["action"] for r in hub.read_audit()] == ["start"]
    assert hub.failures == 0


async def test_servers_of_one_person_that_start_at_once_share_the_home_that_one_of_them_makes(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    servers = ["", "one", "two", "three"]
    answers = await asyncio.gather(*(hub.start_server("alice", server=name) for name in servers))
    assert count(answers) == {(201, ""): 4}
    claims = await cluster.list(f"/api/v1/namespaces/{flight.namespace}/persistentvolumeclaims")
    assert [claim["metadata"]["name"] for claim in claims] == [names.home_claim("alice")]


async def test_a_second_click_on_the_forms_start_leads_to_the_same_start(
    hub: Hub, flight: Team
) -> None:
    async with hub.sign_in("alice", USER_PASSWORD) as pages:
        clicks = (pages.send("/spawn", FLIGHT) for _ in range(2))
        shown = await asyncio.gather(*clicks)
    assert shown == ["", ""]  # both are led to the page that waits
    await wait_until(lambda: hub.is_ready("alice"), within=60)
    assert [r["action"] for r in hub.read_audit()] == ["start"]


async def test_starts_and_stops_that_meet_are_answered_in_words(hub: Hub, flight: Team) -> None:
    assert (await hub.start_server("alice")).status == 201
    for _ in range(2):
        answers = await asyncio.gather(
            *(do("alice") for do in (hub.stop_server, hub.start_server) for _ in range(3))
        )
        assert all(answer.status < 500 for answer in answers), answers
    assert hub.failures == 0


async def test_a_start_is_cancelled_by_however_many(hub: Hub, flight: Team, node: Any) -> None:
    async def leave(_: Any, pod: Any) -> None:
        """The pod stays as it is, nothing runs it."""

    node.play = leave
    hub.answer_after(0.1)
    assert (await hub.start_server("alice")).status == 202
    answers = await asyncio.gather(*(hub.stop_server("alice") for _ in range(4)))
    assert all(answer.status in (202, 204) for answer in answers), answers
    await hub.wait_absent("alice", within=60)
