"""Documents in a team's folder that are open in more than one server. Pure.

Each server keeps a document of its own in memory and saves it over what the other saved, so that
people should hear of it while nothing is lost yet.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.servers import Server

Key = tuple[str, str]  # owner and name of a server

AGE = timedelta(minutes=3)  # after which what a server told of a minute holds no longer
MOST = 200  # documents that a server tells of
LONGEST = 1000  # characters of a path
MOST_SAID = 3  # sentences for one server


@dataclass(frozen=True, kw_only=True)
class _Word:
    """What one server has open in the folder of its team, as it told at that moment."""

    server: Server
    paths: frozenset[str]
    at: datetime


@dataclass(frozen=True)
class OpenDocuments:
    """The last word of each server on what it has open, by its team."""

    _words: dict[str, dict[Key, _Word]] = field(default_factory=dict)

    def keep(self, server: Server, paths: object, *, now: datetime) -> None:
        """Keep what a server tells, a list of paths in the team's folder; raises Problem."""
        if paths is None:
            return  # an older image
        found: list[Any] = paths if isinstance(paths, list) and len(paths) <= MOST else [None]
        if not all(isinstance(path, str) and len(path) <= LONGEST for path in found):
            raise Problem(
                f"documents must be a list of {MOST} paths at most, each of {LONGEST} characters."
            )
        key = (server.user, server.name)
        for words in self._words.values():
            words.pop(key, None)  # it may run in another team now
        word = _Word(server=server, paths=frozenset(found), at=now)
        self._words.setdefault(server.team, {})[key] = word

    def forget_all_but(self, running: Container[Key]) -> None:
        """Drop what servers told that ended."""
        for words in self._words.values():
            for key in [each for each in words if each not in running]:
                del words[key]

    def list_warnings(self, key: Key, *, now: datetime) -> list[str]:
        """What is told in a server of its documents that others have open."""
        words = next((each for each in self._words.values() if key in each), {})
        own = words.get(key)
        if own is None:
            return []
        elsewhere = {
            path: sorted(
                each.server.title
                for other, each in words.items()
                if other != key and now - each.at <= AGE and path in each.paths
            )
            for path in sorted(own.paths)
        }
        found = [(path, titles) for path, titles in elsewhere.items() if titles]
        return [
            f"{quoted(path)} in the team's folder is open in the server of {quoted(titles[0])} "
            "too: who saves last wins. Close it here or there, or edit it together on a server of "
            "the team."
            for path, titles in found[:MOST_SAID]
        ]
