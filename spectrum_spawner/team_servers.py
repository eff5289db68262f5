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

from spectrum_spawner import accounts
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
    for team in teams:
        name = accounts.account_of(team.name)
        account = orm.User.find(session, name)
        if account is None:
            account = orm.User(name=name)
            session.add(account)
            roles.assign_default_roles(session, entity=account)
            session.commit()
        if "" not in account.orm_spawners:
            _ = find_user(account.id).spawner  # makes the record of the server


def admit_members(session: Session, teams: Iterable[Team]) -> None:
    """Share the servers of each team with its members of now, and with nobody else.

    The servers of a team that is not among `teams` stay as they are: nothing is known of it.
    """
    groups = {accounts.account_of(team.name): team.groups for team in teams}
    owners = session.query(orm.User).filter(orm.User.name.in_(list(groups))).all()
    wanted = {
        (spawner.id, member.id): (spawner, member)
        for owner in owners
        for member in list_members(session, groups[owner.name])
        for spawner in owner.orm_spawners.values()
    }
    shares = (
        session.query(orm.Share)
        .filter(orm.Share.owner_id.in_([owner.id for owner in owners]))
        .filter(orm.Share.user_id.is_not(None))
    )
    for share in shares.all():
        if wanted.pop((share.spawner_id, share.user_id), None) is None:
            _log.info("%s may no longer be in the servers of %s", share.user.name, share.owner.name)
            session.delete(share)
    for spawner, member in wanted.values():
        orm.Share.grant(session, spawner, member, SCOPES)
    session.commit()


def list_clients(
    session: Session, find_user: Callable[[int], Any], teams: Iterable[Team]
) -> set[str]:
    """The OAuth clients that the servers of teams are.

    A member need not be asked whether such a server may know who they are.
    """
    names = [accounts.account_of(team.name) for team in teams]
    return {
        find_user(owner.id).spawners[server].oauth_client_id
        for owner in session.query(orm.User).filter(orm.User.name.in_(names)).all()
        for server in owner.orm_spawners
    }


def list_members(session: Session, groups: Iterable[str]) -> list[orm.User]:
    """The users who are in any of these groups now."""
    in_any = orm.User.groups.any(orm.Group.name.in_(list(groups)))
    return session.query(orm.User).filter(in_any).order_by(orm.User.name).all()
