"""Team objects: what leads write into them, and those that cannot be read."""

import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.hub.clock import wait_until
from tests.hub.cluster import ApiError, Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running
from tests.hub.service.place import GPU

pytestmark = pytest.mark.asyncio(loop_scope="module")

SignIn = Callable[[str], Awaitable[Browser]]
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/teams.spectrum.dev"
LENIENT = {"until": "2999-06-30T23:59:60Z", "gpus": {GPU: 1}}
PROBLEM = "What is granted by r-0 cannot be read, and is not shown"


@pytest_asyncio.fixture(loop_scope="module")
async def loose_crd(cluster: Cluster) -> AsyncIterator[None]:
    """The Team kind as it was before the end of a grant had to be one that Python reads."""
    before = (await cluster.get(CRD))["spec"]["versions"]
    loose = copy.deepcopy(before)
    spec = loose[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    grant = spec["grants"]["additionalProperties"]["properties"]
    grant["until"] = {"type": "string"}
    await cluster.patch(CRD, {"spec": {"versions": loose}})
    yield
    await cluster.patch(CRD, {"spec": {"versions": before}})


async def test_a_lead_sets_preferences(
    service: Running, sign_in: SignIn, cluster: Cluster, hub_namespace: str
) -> None:
    bob = await sign_in("bob")
    shown = await bob.send("teams/flight/preferences", defaultProfile="gpu-1", idleMinutes="60")
    assert "The settings are saved." in shown.text
    spec = (await cluster.get(f"{find_teams(hub_namespace)}/flight"))["spec"]
    assert (spec["defaultProfile"], spec["idle"]) == ("gpu-1", {"minutes": 60})
    assert await service.read_audit() == [
        ("preference", "user:bob", "", "Default profile: gpu-1; idle after: 60 minutes.")
    ]


async def test_preferences_that_cannot_be_written_down_are_not_set(
    service: Running,
    sign_in: SignIn,
    cluster: Cluster,
    hub_namespace: str,
    break_ledger: Callable[[], None],
) -> None:
    bob = await sign_in("bob")
    before = await cluster.list(find_teams(hub_namespace))
    break_ledger()
    shown = await bob.send("teams/flight/preferences", idleMinutes="77")
    assert shown.status == 503
    assert shown.problem == (
        "The settings were not saved, since that could not be written down: try again in a "
        "minute, or tell an administrator."
    )
    assert 'value="77"' in shown.text
    assert await cluster.list(find_teams(hub_namespace)) == before


async def test_of_preferences_that_the_team_does_not_take_there_is_a_record(
    service: Running, sign_in: SignIn, fault_proxy: FaultProxy
) -> None:
    bob = await sign_in("bob")
    fault_proxy.refuse(lambda call: call.method == "PATCH", status=403)
    shown = await bob.send("teams/flight/preferences", idleMinutes="60")
    assert shown.status == 409
    assert [action for action, *_ in await service.read_audit()] == ["preference"]


async def test_a_team_that_cannot_be_read_is_shown_so_and_the_others_as_ever(
    loose_crd: None,
    start_service: Callable[..., Awaitable[Running]],
    cluster: Cluster,
    hub_namespace: str,
) -> None:
    flight = f"{find_teams(hub_namespace)}/flight"

    async def is_taken() -> Any:
        try:
            return await cluster.patch(flight, {"spec": {"grants": {"r-0": LENIENT}}})
        except ApiError:
            return None

    await wait_until(is_taken, within=30, what="a grant of any end")
    service = await start_service()
    async with Browser(service.url) as bob:
        await bob.sign_in("bob")
        teams = await bob.open("teams")
        assert PROBLEM in teams.text
        assert "ops" in teams.text
        assert PROBLEM in (await bob.open("teams/flight")).text
        assert PROBLEM not in (await bob.open("teams/ops")).text
        found = (await bob.call("GET", "teams")).body["teams"]
    assert [(team["name"], bool(team["problem"])) for team in found] == [
        ("flight", True),
        ("ops", False),
    ]
