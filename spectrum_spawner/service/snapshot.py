"""Who runs what, as last read from the hub: asked for at most every few seconds, by all at once."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from datetime import datetime

from spectrum_spawner.service.hub import Hub, HubError
from spectrum_spawner.service.servers import Person, Server

FRESH = 5.0  # seconds for which a list, or a failure to read one, is good enough for a page

_log = logging.getLogger("spectrum.service")


class Snapshot:
    """Everybody with an active server, as of `as_of` (None before the first list).

    While the hub does not answer, `error` says why, and the last list stays.
    """

    def __init__(self, hub: Hub, now: Callable[[], datetime]) -> None:
        self.people: tuple[Person, ...] = ()
        self.as_of: datetime | None = None
        self.error = ""
        self._servers: dict[tuple[str, str], Server] = {}
        self._hub = hub
        self._now = now
        self._tried: float | None = None
        self._reading: asyncio.Task[None] | None = None
        self._begun = 0
        self._latest = 0  # of the lists begun, the one that is kept

    def __iter__(self) -> Iterator[Server]:
        for person in self.people:
            yield from person.servers

    def find(self, user: str, name: str) -> Server | None:
        """An active server by its owner and name."""
        return self._servers.get((user, name))

    async def refresh(self, *, max_age: float = FRESH) -> None:
        """Read the hub anew unless that was done in the last `max_age` seconds."""
        if self._reading is None:
            loop = asyncio.get_running_loop()
            if self._tried is not None and loop.time() - self._tried < max_age:
                return
            self._begun += 1
            self._reading = loop.create_task(self._read(self._begun))
        # whoever goes away must not take the answer from the others who wait for it
        await asyncio.shield(self._reading)

    async def find_gone(self, keys: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Those of these servers, by owner and name, that the hub does not know as active.

        While the hub does not answer that is none of them.
        """
        try:
            people, unreadable = await self._hub.find_people(user for user, _ in keys)
        except HubError as failure:
            _log.warning("the hub does not answer: %s", failure)
            return []
        known = {(each.user, each.name) for person in people.values() for each in person.servers}
        return [key for key in keys if key not in known and key[0] not in unreadable]

    def forget(self) -> None:
        """Let the next `refresh` read: something was changed.

        What is being read just now may have been answered before the change.
        """
        self._tried = self._reading = None

    async def _read(self, number: int) -> None:
        people, error = None, ""
        try:
            people = tuple(await self._hub.list_active())
        except HubError as failure:
            error = str(failure)
            _log.warning("the hub does not answer: %s", failure)
        finally:
            if self._reading is asyncio.current_task():
                self._tried = asyncio.get_running_loop().time()
                self._reading = None
        if number < self._latest:
            return
        self._latest, self.error = number, error
        if people is not None:
            self.people, self.as_of = people, self._now()
            self._servers = {(server.user, server.name): server for server in self}
