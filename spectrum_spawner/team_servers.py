"""Servers of teams: each team's account, and who of its members may be in its servers.

A team's servers belong to its account (`accounts`), and each of them is shared with each member:
who is in the team may start, open and stop it. JupyterHub lets a share with a group never reach
its members' tokens (6.1.1), so that people are named one by one, and the list is kept in step with
the groups of now: at once after each change of a group or a team, and now and then in any case.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from jupyterhub import orm, roles
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session, joinedload

from spectrum_spawner import accounts
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

SWEEP = 60.0  # seconds after which it is all looked at again, whatever changed
# Of one server: to be in it, to see it, to start and stop it. JupyterHub takes the scopes of a
# share word by word: one of them does not bring those that it implies elsewhere.
SCOPES = ("access:servers", "read:servers", "servers", "start:servers", "delete:servers")

_log = logging.getLogger("spectrum.team_servers")


class TeamServers:
    """Keeps accounts and shares of a running hub in step with its teams and their members.

    `find_user` gives JupyterHub's user by its id in the database, as `app.users` does.
    """

    def __init__(
        self, session: Session, find_user: Callable[[int], Any], teams: View[Team]
    ) -> None:
        self._session = session
        self._find_user = find_user
        self._teams = teams
        self._changed = asyncio.Event()
        self._seen: dict[str, frozenset[str]] = {}
        event.listen(session, "after_flush", self._on_flush)

    async def run(self) -> None:
        """Until cancelled; a team of which nobody knows anything now keeps what it has."""
        await self._teams.wait_synced()
        watching = asyncio.create_task(self._watch_teams())
        try:
            while True:
                self._changed.clear()
                try:
                    self.look()
                except Exception:
                    _log.exception("team servers are not in step with the teams")
                    self._session.rollback()
                with suppress(TimeoutError):
                    async with asyncio.timeout(SWEEP):
                        await self._changed.wait()
        finally:
            watching.cancel()
            event.remove(self._session, "after_flush", self._on_flush)

    def look(self) -> None:
        """Make what is missing, and take from people what they should no longer have."""
        for team in self._teams:
            self._ensure_account(team.name)
        wanted = self._find_wanted()
        for share in self._list_shares():
            key = share.spawner_id, share.user_id
            if key in wanted:
                del wanted[key]
            else:
                _log.info("%s is no longer in %s", share.user.name, share.owner.name)
                self._session.delete(share)
        for spawner, user in wanted.values():
            scopes = [f"{scope}!server={spawner.user.name}/{spawner.name}" for scope in SCOPES]
            orm.Share.grant(self._session, spawner, user, scopes)
        self._session.commit()

    async def _watch_teams(self) -> None:
        while True:
            await self._teams.wait(self._are_changed)
            self._changed.set()

    def _are_changed(self) -> bool:
        """Whether teams or their groups are others than when this was asked before."""
        before, self._seen = self._seen, {team.name: team.groups for team in self._teams}
        return self._seen != before

    def _on_flush(self, session: Session, _context: object) -> None:
        if any(map(_is_new_server, session.new)) or any(map(_is_moved, session.dirty)):
            self._changed.set()

    def _ensure_account(self, team: str) -> None:
        name = accounts.account_of(team)
        if orm.User.find(self._session, name) is not None:
            return
        account = orm.User(name=name)
        self._session.add(account)
        roles.assign_default_roles(self._session, entity=account)
        self._session.commit()
        _ = self._find_user(account.id).spawner  # the record of its default server

    def _find_wanted(self) -> dict[tuple[int, int], tuple[orm.Spawner, orm.User]]:
        """Each server of an account with each member of its team, by their ids."""
        members = {
            accounts.account_of(team.name): self._list_members(team.groups) for team in self._teams
        }
        return {
            (spawner.id, user.id): (spawner, user)
            for account in self._list_accounts(members)
            for spawner in account._orm_spawners
            for user in members[account.name]
        }

    def _list_accounts(self, names: Iterable[str]) -> list[orm.User]:
        return self._session.query(orm.User).filter(orm.User.name.in_(list(names))).all()

    def _list_members(self, groups: Iterable[str]) -> list[orm.User]:
        return (
            self._session.query(orm.User)
            .filter(orm.User.groups.any(orm.Group.name.in_(list(groups))))
            .all()
        )

    def _list_shares(self) -> list[orm.Share]:
        """With people, of servers of teams that there are; of others nothing is known."""
        names = [accounts.account_of(team.name) for team in self._teams]
        owners = [account.id for account in self._list_accounts(names)]
        return (
            self._session.query(orm.Share)
            .options(joinedload(orm.Share.user), joinedload(orm.Share.owner))
            .filter(orm.Share.owner_id.in_(owners), orm.Share.user_id.is_not(None))
            .all()
        )


def _is_new_server(row: object) -> bool:
    return isinstance(row, orm.Spawner)


def _is_moved(row: object) -> bool:
    """Whether it is a user whose groups changed; a new one is in none until then."""
    return isinstance(row, orm.User) and inspect(row).attrs.groups.history.has_changes()
