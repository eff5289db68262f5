"""Sends events to a webhook. Nobody waits for it: not a look, and not a person.

An event is sent once it is in the ledger, in the order of the records. It is tried a few times, and
then left to the audit, which has it in any case; what waits when the service ends is lost.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import aiohttp

from spectrum_spawner.audit import Record
from spectrum_spawner.service.events import Webhook, fill

WITHIN = 10.0  # seconds that the receiver may take
PAUSES = (1.0, 10.0)  # seconds before an event is tried again
MOST = 2000  # events that wait at most; more are left out
LAST = 5.0  # seconds for what waits when the service ends
TEMPORARY = frozenset({408, 425, 429})  # refusals that may pass; so may all from 500 on

_log = logging.getLogger("spectrum.webhook")


class Notifier:
    """Sends to one webhook, or with None to nobody; `make_event` makes a record's event or None.

    `run` does the work, until it is cancelled; `wait_sent` before lets it finish.
    """

    def __init__(
        self, webhook: Webhook | None, make_event: Callable[[Record], dict[str, Any] | None]
    ) -> None:
        self.failed = 0  # events that were given up
        self._webhook = webhook
        self._make_event = make_event
        self._waiting: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MOST)
        self._is_away = False

    def tell(self, records: Sequence[Record]) -> None:
        """Take records that were kept just now. Returns at once, and raises nothing: what was
        written down goes on."""
        if self._webhook is None:
            return
        try:
            for event in filter(None, map(self._make_event, records)):
                self._put(event)
        except Exception:
            _log.exception("no event was made of records")

    def _put(self, event: dict[str, Any]) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._give_up(event, f"{MOST} wait already")

    async def run(self) -> None:
        if self._webhook is None:
            return
        timeout = aiohttp.ClientTimeout(total=WITHIN)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                event = await self._waiting.get()
                try:
                    await self._send(session, self._webhook, event)
                except Exception:
                    # the next event must be sent whatever this one met
                    _log.exception("event %s was not sent", event["id"])
                    self.failed += 1
                finally:
                    self._waiting.task_done()

    async def wait_sent(self) -> None:
        """Until nothing waits, for a moment at most."""
        try:
            async with asyncio.timeout(LAST):
                await self._waiting.join()
        except TimeoutError:
            _log.warning("%d events are not sent, since the service ends", self._waiting.qsize())

    async def _send(
        self, session: aiohttp.ClientSession, webhook: Webhook, event: dict[str, Any]
    ) -> None:
        """Send one; of a receiver that is away each further one is tried once."""
        why = ""
        for pause in (0.0, *(() if self._is_away else PAUSES)):
            await asyncio.sleep(pause)
            why, is_final = await self._try(session, webhook, event)
            if not why:
                self._is_away = False
                return
            if is_final:
                break
        else:
            self._is_away = True
        self._give_up(event, why)

    async def _try(
        self, session: aiohttp.ClientSession, webhook: Webhook, event: dict[str, Any]
    ) -> tuple[str, bool]:
        """Why it was not taken, "" if it was; and whether it never will be."""
        headers = {"Authorization": f"Bearer {webhook.token}"} if webhook.token else {}
        try:
            async with session.post(
                webhook.url, json=fill(webhook.body, event), headers=headers, allow_redirects=False
            ) as answer:
                if answer.status < 300:
                    return "", True
                may_pass = answer.status >= 500 or answer.status in TEMPORARY
                return f"status {answer.status}", not may_pass
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            # an address may be a secret, and the texts of some errors have it
            return type(error).__name__, False

    def _give_up(self, event: dict[str, Any], why: str) -> None:
        self.failed += 1
        _log.warning("event %s (%s) was not sent: %s", event["id"], event["event"], why)
