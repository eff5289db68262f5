"""Who may be in whose servers, kept in step with the groups of now.

At once after each change of somebody's groups, of a team, or of a team's servers, when a server
with guests starts, when a share ends, and now and then in any case.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jupyterhub import orm
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

from spectrum_spawner import sharing
from spectrum_spawner.team_servers import admit_members, ensure_accounts, list_clients
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

SWEEP = 60.0  # seconds after which it is all looked at again, whatever changed

_log = logging.getLogger("spectrum.admittance")


class Admittance:
    """Keeps accounts and shares of a running hub as they should be.

    `find_user` gives JupyterHub's user by its id in the database, as `app.users` does; `trust` has
    it ask nobody whether these OAuth clients may know who somebody is.
    """

    def __init__(
        self,
        session: Session,
        find_user: Callable[[int], Any],
        trust: Callable[[set[str]], None],
        teams: View[Team],
    ) -> None:
        self._session = session
        self._find_user = find_user
        self._trust = trust
        self._teams = teams
        self._changed = asyncio.Event()
        self._seen: dict[str, frozenset[str]] = {}

    async def run(self) -> None:
        """Until cancelled; before the teams are known nothing is done."""
        await self._teams.wait_synced()
        watching = asyncio.create_task(self._watch_teams())
        event.listen(self._session, "after_flush", self._on_flush)
        try:
            while True:
                self._changed.clear()
                self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._find_pause()):
                        await self._changed.wait()
        finally:
            watching.cancel()
            event.remove(self._session, "after_flush", self._on_flush)

    def _look(self) -> None:
        teams = list(self._teams)
        try:
            ensure_accounts(self._session, self._find_user, teams)
            admit_members(self._session, teams)
            self._trust(list_clients(self._session, self._find_user, teams))
            sharing.drop_lapsed(self._session, {team.name: team for team in teams})
        except Exception:
            # the next look must come whatever this one met
            _log.exception("who may be in whose servers is not up to date")
            self._session.rollback()

    def _find_pause(self) -> float:
        left = sharing.find_next_end(self._session)
        return SWEEP if left is None else min(SWEEP, left + 0.1)

    async def _watch_teams(self) -> None:
        while True:
            await self._teams.wait(self._are_changed)
            self._changed.set()

    def _are_changed(self) -> bool:
        """Whether teams or their groups are others than when this was asked before."""
        before, self._seen = self._seen, {team.name: team.groups for team in self._teams}
        return self._seen != before

    def _on_flush(self, session: Session, _context: object) -> None:
        changes = any(map(_is_admitting, session.new)) or any(map(_is_moved, session.dirty))
        if changes:
            self._changed.set()


def _is_admitting(row: object) -> bool:
    """Whether it is a new server, or the share of one, which may be the next to end."""
    return isinstance(row, orm.Spawner | orm.Share)


def _is_moved(row: object) -> bool:
    """Whether groups of a user changed, the name of a server, where one with guests runs, or when
    a share ends.

    A new user is in no group until then; a server's state changes once its start is allowed.
    """
    if isinstance(row, orm.Spawner):
        moved = _has_changed(row, "state") and bool(sharing.list_guests(row))
        return moved or _has_changed(row, "name")
    if isinstance(row, orm.Share):
        return _has_changed(row, "expires_at")
    return isinstance(row, orm.User) and _has_changed(row, "groups")


def _has_changed(row: object, column: str) -> bool:
    return inspect(row).attrs[column].history.has_changes()
