"""The webhook of the running service: what it hears of an idle server, and that nobody waits."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest
import pytest_asyncio

from spectrum_spawner.service.events import Webhook
from tests.hub.clock import wait_until
from tests.hub.hub import Hub
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.floor import ALICE, GPU, Floor, start_floor
from tests.hub.service.measuring import PrometheusStub
from tests.hub.team import Team
from tests.receiver import Receiver, running_receiver

pytestmark = pytest.mark.asyncio(loop_scope="module")

MINUTE = timedelta(minutes=1)


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: Callable[..., Awaitable[Running]],
    hub: Hub,
    teams: dict[str, Team],
    receiver: Receiver,
) -> AsyncIterator[Floor]:
    """Alice's server with a GPU that does nothing."""
    assert (await hub.start_server("alice", GPU)).status == 201
    start = partial(start_service, webhook=Webhook(url=receiver.url))
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start, stub, hub, teams["flight"])
        floor.idle()
        await floor.look()
        yield floor


async def test_leads_hear_of_a_warning_and_of_a_click_that_keeps_the_server(
    floor: Floor, receiver: Receiver
) -> None:
    await floor.pass_idle(56 * MINUTE)
    await floor.culler.extend(ALICE, by="user:alice")
    await wait_until(lambda: len(receiver.got) == 2, within=10, what="two events")
    warned, kept = (body for body, _ in receiver.got)
    assert (warned["event"], warned["user"], warned["leads"]) == ("warned", "alice", ["bob"])
    assert (warned["rule"], warned["path"]) == ("gpu", "/services/spectrum/gpus/alice/")
    assert "has done nothing since" in warned["text"]
    assert warned["ends_at"] > warned["at"]
    assert (kept["event"], kept["by"]) == ("kept", "user:alice")


async def test_a_record_that_is_known_is_no_news(floor: Floor, receiver: Receiver) -> None:
    context = floor.running.context
    record = context.make_record("notice", "service:spectrum", id="once", user="alice")
    for _ in range(2):
        await context.ledger.add([record])
    await context.ledger.add([context.make_record("notice", "service:spectrum", id="twice")])
    await wait_until(lambda: len(receiver.got) >= 2, within=10, what="two events")
    assert [body["id"] for body, _ in receiver.got] == ["once", "twice"]


async def test_a_receiver_that_hangs_delays_no_look(floor: Floor, receiver: Receiver) -> None:
    receiver.pause = 30.0
    async with asyncio.timeout(20):
        await floor.pass_idle(56 * MINUTE)
    assert await floor.actions() == ["warn"]
    await wait_until(lambda: receiver.got, within=10, what="the try")
