"""Sending events to a real HTTP server, which takes them, refuses them, or is away."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from spectrum_spawner.audit import Record, make_record
from spectrum_spawner.service import notifying
from spectrum_spawner.service.events import Webhook
from spectrum_spawner.service.notifying import Notifier
from tests.hub.clock import wait_until
from tests.receiver import Receiver, running_receiver


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with running_receiver() as receiver:
        yield receiver


@pytest_asyncio.fixture
async def notifier(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Notifier]:
    monkeypatch.setattr(notifying, "PAUSES", (0.01, 0.01))
    monkeypatch.setattr(notifying, "WITHIN", 0.3)
    webhook = Webhook(url=receiver.url, token="secret", body={"text": "{text}"})
    notifier = Notifier(webhook, make_event)
    running = asyncio.create_task(notifier.run())
    yield notifier
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


def make_event(record: Record) -> dict[str, Any] | None:
    if record.action != "warn":
        return None
    return {"event": "warned", "id": record.id, "text": record.reason}


def tell(notifier: Notifier, *texts: str, action: str = "warn") -> None:
    notifier.tell(
        [
            make_record(writer="service", action=action, actor="service:spectrum", reason=text)
            for text in texts
        ]
    )


async def test_events_are_sent_in_order_with_the_token(
    notifier: Notifier, receiver: Receiver
) -> None:
    tell(notifier, "one", "two")
    tell(notifier, "nobody hears", action="preference")
    await notifier.wait_sent()
    assert receiver.got == [({"text": text}, "Bearer secret") for text in ("one", "two")]
    assert notifier.failed == 0


async def test_what_may_pass_is_tried_again_and_what_will_not_is_given_up(
    notifier: Notifier, receiver: Receiver
) -> None:
    receiver.statuses = [503, 429, 204, 400, 302]
    tell(notifier, "one", "two", "three")
    await notifier.wait_sent()
    assert [body["text"] for body, _ in receiver.got] == ["one", "one", "one", "two", "three"]
    assert notifier.failed == 2


async def test_a_receiver_that_is_away_holds_up_nobody_and_is_tried_a_few_times(
    notifier: Notifier, receiver: Receiver
) -> None:
    receiver.pause = 5.0
    loop = asyncio.get_running_loop()
    begun = loop.time()
    tell(notifier, "one", "two")
    assert loop.time() - begun < 0.1
    await wait_until(lambda: notifier.failed == 2, within=10, what="the end of trying")
    # once it is known to be away, each further one is tried once
    assert [body["text"] for body, _ in receiver.got] == ["one", "one", "one", "two"]
    receiver.pause = 0.0
    tell(notifier, "three")
    await notifier.wait_sent()
    assert receiver.got[-1][0] == {"text": "three"}


async def test_more_than_can_wait_is_left_out(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifying, "MOST", 1)
    notifier = Notifier(Webhook(url=receiver.url), make_event)
    tell(notifier, "one", "two")
    assert notifier.failed == 1
    assert receiver.url not in caplog.text


async def test_what_cannot_be_made_an_event_stands_in_nobodys_way(receiver: Receiver) -> None:
    def fail(_: Record) -> None:
        raise KeyError("team")

    tell(Notifier(Webhook(url=receiver.url), fail), "one")
    assert receiver.got == []


async def test_without_a_webhook_nobody_is_told() -> None:
    notifier = Notifier(None, make_event)
    tell(notifier, "one")
    await notifier.run()
    await notifier.wait_sent()
