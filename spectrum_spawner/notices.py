"""Notices: what the home page tells people about a server of theirs that will not last.

The service knows when a server will be stopped and says so. While it does not answer, the hub
still tells by itself that a server runs in a team that its owner has left.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import aiohttp

from spectrum_spawner.teams import Team, teams_of

INTERVAL = 10.0  # seconds between two questions
TIMEOUT = 5.0  # seconds that an answer may take
FORGET_AFTER = 60.0  # seconds without an answer until the last one holds no more

_log = logging.getLogger("spectrum.notices")


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A sentence about one server; `ends_at` is when it will be stopped (RFC 3339), or "".

    `keep` tells whether one click of its owner moves that end.
    """

    text: str
    ends_at: str = ""
    keep: bool = False


class Notices:
    """The notices of the service, as of the last answer."""

    def __init__(self, url: str, token: str) -> None:
        """`url` is where they are read; with "" there are none."""
        self._url = url
        self._token = token
        self._by_server: Mapping[tuple[str, str], list[Notice]] = {}
        self._heard = 0.0
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    def shared(cls, url: str, token: str) -> "Notices":
        """The notices at this URL in the running event loop, read from the first call on."""
        of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
        if url not in of_loop:
            notices = of_loop[url] = cls(url, token)
            notices._reader = asyncio.get_running_loop().create_task(notices.run())
        return of_loop[url]

    @classmethod
    async def close_shared(cls) -> None:
        """Close what `shared` made in the running event loop; the next call makes it anew."""
        for notices in _shared.pop(asyncio.get_running_loop(), {}).values():
            await notices.close()

    def of(self, user: str, server: str) -> list[Notice]:
        """What there is to tell about a user's server."""
        return self._by_server.get((user, server), [])

    def forget(self, user: str, server: str) -> None:
        """Tell nothing about a server until the service is heard again."""
        self._by_server = {k: v for k, v in self._by_server.items() if k != (user, server)}

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def run(self) -> None:
        """Ask every INTERVAL seconds, until cancelled."""
        if not self._url:
            return
        limits = aiohttp.ClientTimeout(total=TIMEOUT)
        async with aiohttp.ClientSession(timeout=limits) as session:
            while True:
                await self._read(session)
                await asyncio.sleep(INTERVAL)

    async def _read(self, session: aiohttp.ClientSession) -> None:
        now = asyncio.get_running_loop().time()
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            async with session.get(self._url, headers=headers, raise_for_status=True) as answer:
                self._by_server = read_notices(await answer.json())
            self._heard = now
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            _log.debug("no notices: %r", error)
            if self._by_server and now - self._heard > FORGET_AFTER:
                _log.warning("the service's notices are forgotten, it does not answer: %r", error)
                self._by_server = {}


def read_notices(answer: Any) -> dict[tuple[str, str], list[Notice]]:
    """Notices by user and server name; raises ValueError if the answer holds anything else."""
    found: defaultdict[tuple[str, str], list[Notice]] = defaultdict(list)
    try:
        for entry in answer["notices"]:
            texts = [entry["user"], entry["server"], entry["text"], entry.get("ends_at") or ""]
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(f"not a notice: {entry!r}")
            user, server, text, ends_at = texts
            keep = entry.get("keep") is True
            found[user, server].append(Notice(text=text, ends_at=ends_at, keep=keep))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a list of notices: {error!r}") from error
    return dict(found)


def notice_of_leaving(team: Team | None, user: str, groups: Iterable[str]) -> list[Notice]:
    """What the hub knows alone: whether a server's team is one that its owner has left.

    A team that is not known is not left.
    """
    if team is None or teams_of(user, groups, [team]):
        return []
    return [Notice(text=f"You are no longer in team {team.display_name}, where this server runs.")]


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Notices]] = WeakKeyDictionary()
