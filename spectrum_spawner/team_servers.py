"""Servers of teams: each team's account, and its members, with whom its servers are shared.

A team's servers belong to its account (`accounts`), and each of them is shared with each member:
who is in the team may start, open and stop it. JupyterHub lets a share with a group never reach
its members' tokens (6.1.1), so that people are named one by one.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from jupyterhub import orm, roles
from sqlalchemy.orm import Session

from spectrum_spawner import accounts, names
from spectrum_spawner.access import make_share
from spectrum_spawner.teams import Team

# Of one server: to be in it, to see it, to start and stop it. JupyterHub takes the scopes of a
# share word by word: one of them does not bring those that it implies elsewhere.
SCOPES = ("access:servers", "read:servers", "servers", "start:servers", "delete:servers")

_log = logging.getLogger("spectrum.admittance")


def ensure_accounts(
    session: Session, find_user: Callable[[int], Any], teams: Iterable[Team]
) -> None:
    """Make the account of each team that has none, and the default server of each.

    A member may have renamed the one there was. `find_user` gives JupyterHub's user by its id in
    the database.
    """
    wanted = {accounts.account_of(team.name) for team in teams}
    for name in sorted(wanted - {name for _, name in _list_servers(session, wanted, server="")}):
        account = orm.User.find(session, name)
        if account is None:
            account = orm.User(name=name)
            session.add(account)
            roles.assign_default_roles(session, entity=account)
            session.commit()
        _ = find_user(account.id).spawner  # makes the record of the server


def admit_members(
    session: Session, teams: Iterable[Team], is_barred: Callable[[str], bool] = lambda _: False
) -> None:
    """Share the servers of each team with its members of now, and with nobody else.

    The servers of a team that is not among `teams` stay as they are: nothing is known of it. A
    member who `is_barred` from the hub, by name, is not let in.
    """
    groups = {accounts.account_of(team.name): team.groups for team in teams}
    members = _find_members(session, {group for each in groups.values() for group in each})
    wanted = {
        (server, member)
        for server, owner in _list_servers(session, groups)
        for group in groups[owner]
        for member, name in members.get(group, ())
        if not is_barred(name)
    }
    shares = {
        (server, user): share
        for share, server, user in session.query(
            orm.Share.id, orm.Share.spawner_id, orm.Share.user_id
        )
        .join(orm.User, orm.User.id == orm.Share.owner_id)
        .filter(orm.User.name.in_(groups), orm.Share.user_id.is_not(None))
    }
    lost = [shares[pair] for pair in shares.keys() - wanted]
    for share in session.query(orm.Share).filter(orm.Share.id.in_(lost)).all():
        _log.info("%s may no longer be in the servers of %s", share.user.name, share.owner.name)
        session.delete(share)
    for server, member in sorted(wanted - shares.keys()):
        found, user = session.get(orm.Spawner, server), session.get(orm.User, member)
        session.add(make_share(found, user, SCOPES))
    session.commit()


def list_clients(session: Session) -> set[str]:
    """The OAuth clients that the servers of teams are.

    A member need not be asked whether such a server may know who they are.
    """
    found = session.query(orm.User.name, orm.Spawner.name).join(
        orm.Spawner, orm.Spawner.user_id == orm.User.id
    )
    return {names.oauth_client(user, server) for user, server in found if accounts.is_account(user)}


def list_members(session: Session, groups: Iterable[str]) -> list[str]:
    """Names of the users who are in any of these groups now."""
    found = _find_members(session, groups)
    return sorted({name for members in found.values() for _, name in members})


def _find_members(session: Session, groups: Iterable[str]) -> dict[str, list[tuple[int, str]]]:
    """Id and name of each user in each of these groups."""
    found: dict[str, list[tuple[int, str]]] = {}
    rows = (
        session.query(orm.Group.name, orm.User.id, orm.User.name)
        .join(orm.Group.users)
        .filter(orm.Group.name.in_(list(groups)))
    )
    for group, user, name in rows:
        found.setdefault(group, []).append((user, name))
    return found


def _list_servers(
    session: Session, users: Iterable[str], *, server: str | None = None
) -> list[tuple[int, str]]:
    """Id and owner's name of each server of these users, or of each of that name."""
    found = session.query(orm.Spawner.id, orm.User.name).join(
        orm.User, orm.User.id == orm.Spawner.user_id
    )
    found = found.filter(orm.User.name.in_(list(users)))
    return list(found if server is None else found.filter(orm.Spawner.name == server))
