"""Who may be in whose servers, kept in step with the groups of now.

At once after each change of somebody's groups, of a team, or of a team's servers, when a server
with guests starts, when a share ends, when the provider sends somebody away, and now and then in
any case.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from jupyterhub import orm
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

from spectrum_spawner import accounts, sharing
from spectrum_spawner.team_servers import admit_members, ensure_accounts, list_clients
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

# Seconds.
SWEEP = 60.0  # after which it is all looked at again, whatever changed
RETRY = 5.0  # after a look that failed
CALM = 0.5  # in which changes may follow each other, for one look

_log = logging.getLogger("spectrum.admittance")


class Admittance:
    """Keeps accounts and shares of a running hub as they should be.

    `find_user` gives JupyterHub's user by its id in the database, as `app.users` does; `trust` has
    it ask nobody whether these OAuth clients may know who somebody is. Whoever `is_barred` from
    the hub, by name, is in no team's server, and nobody's guest.
    """

    def __init__(
        self,
        session: Session,
        teams: View[Team],
        *,
        find_user: Callable[[int], Any],
        trust: Callable[[set[str]], None],
        is_barred: Callable[[str], bool],
    ) -> None:
        self._session = session
        self._teams = teams
        self._find_user = find_user
        self._trust = trust
        self._is_barred = is_barred
        self._changed = asyncio.Event()
        self._looking = False
        self._seen: dict[str, frozenset[str]] = {}

    async def run(self) -> None:
        """Until cancelled; before the teams are known nothing is done."""
        await self._teams.wait_synced()
        watching = asyncio.create_task(self._watch_teams())
        event.listen(self._session, "after_flush", self._on_flush)
        try:
            while True:
                self._changed.clear()
                pause = self._look()
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                        await asyncio.sleep(CALM)
        finally:
            watching.cancel()
            event.remove(self._session, "after_flush", self._on_flush)

    def wake(self) -> None:
        """Look soon: something changed that no database tells."""
        self._changed.set()

    def _look(self) -> float:
        """Mend what is not as it should be; seconds until the next look, if nothing changes."""
        teams = list(self._teams)
        self._looking = True
        try:
            ensure_accounts(self._session, self._find_user, teams)
            admit_members(self._session, teams, self._is_barred)
            self._trust(list_clients(self._session))
            by_name = {team.name: team for team in teams}
            sharing.drop_lapsed(self._session, by_name, self._is_barred)
            left = sharing.find_next_end(self._session)
            return SWEEP if left is None else min(SWEEP, left + 0.1)
        except Exception:
            # the next look must come whatever this one met
            _log.exception("who may be in whose servers is not up to date")
            with suppress(Exception):
                self._session.rollback()
            return RETRY
        finally:
            self._looking = False

    async def _watch_teams(self) -> None:
        while True:
            await self._teams.wait(self._are_changed)
            self._changed.set()

    def _are_changed(self) -> bool:
        """Whether teams or their groups are others than when this was asked before."""
        before, self._seen = self._seen, {team.name: team.groups for team in self._teams}
        return self._seen != before

    def _on_flush(self, session: Session, _context: object) -> None:
        if self._looking:
            return  # it is what a look writes
        try:
            changes = any(map(_is_admitting, session.new)) or any(map(_is_moved, session.dirty))
        except Exception:
            # what somebody else writes must not fail by this
            _log.exception("whether somebody is to be let in is not known")
            changes = True
        if changes:
            self._changed.set()


def _is_admitting(row: object) -> bool:
    """Whether it is a new server of a team, or the share of one, which may be the next to end."""
    if isinstance(row, orm.Spawner):
        return row.user is not None and accounts.is_account(row.user.name)
    return isinstance(row, orm.Share)


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
