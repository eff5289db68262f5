"""Servers that report: whose token is whose, and how often each run of one may. Pure.

All servers report each minute, for ever, so that a report must cost the hub next to nothing: what
it said of a server's token holds for minutes, as long as that run of the server lasts.
"""

from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from spectrum_spawner.service.servers import Server

Key = tuple[str, str]  # owner and name of a server

AGE = timedelta(minutes=10)  # for which the hub's word on a server's token holds
PERIOD = timedelta(minutes=1)
MOST = 4  # reports of one run in a PERIOD: one a minute, and news between them


@dataclass(frozen=True, kw_only=True)
class Known:
    """The run of a server that a token is for, as the hub said, and until when that holds."""

    key: Key
    started: datetime | None
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Turns:
    """When a run of a server reported in the last PERIOD."""

    started: datetime | None
    times: deque[datetime] = field(default_factory=deque)


@dataclass(frozen=True)
class Reporters:
    """What is known of tokens, by their digest, and when each server's run reported last."""

    _known: dict[str, Known] = field(default_factory=dict, repr=False)
    _turns: dict[Key, Turns] = field(default_factory=dict)

    def find(self, token: str) -> Known | None:
        """Whose token it is, also once that holds no longer."""
        return self._known.get(_digest(token))

    def remember(self, token: str, server: Server, *, now: datetime) -> None:
        """The hub said just now that it is the own token of a server that runs."""
        key = (server.user, server.name)
        self._known[_digest(token)] = Known(key=key, started=server.started, until=now + AGE)

    def forget_all_but(self, running: Container[Key]) -> None:
        """Drop what is known of servers that ended."""
        for digest in [each for each, known in self._known.items() if known.key not in running]:
            del self._known[digest]
        for key in [each for each in self._turns if each not in running]:
            del self._turns[key]

    def take_turn(self, server: Server, *, now: datetime) -> timedelta:
        """Count a report, or say how long the server has to wait for its turn.

        What an earlier run told is not counted: a server that was just started again has news.
        """
        key = (server.user, server.name)
        turns = self._turns.get(key)
        if turns is None or turns.started != server.started:
            turns = self._turns[key] = Turns(started=server.started)
        times = turns.times
        while times and not timedelta(0) <= now - times[0] < PERIOD:  # or the clock was set back
            times.popleft()
        if len(times) >= MOST:
            return times[0] + PERIOD - now
        times.append(now)
        return timedelta(0)


def _digest(token: str) -> str:
    return sha256(token.encode("utf-8", "replace")).hexdigest()
