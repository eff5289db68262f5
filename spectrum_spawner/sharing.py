"""A personal server that its owner shares with a teammate for a time.

Whoever is let in runs code there as the owner, so that it takes the owner, a person in the team in
which the server runs, and an end. JupyterHub's shares are the state: there is no other record.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from jupyterhub import orm
from sqlalchemy.orm import Session

from spectrum_spawner import accounts
from spectrum_spawner.access import as_stored, make_share
from spectrum_spawner.team_servers import list_members
from spectrum_spawner.teams import Team, teams_of

LONGEST = 24  # hours

_log = logging.getLogger("spectrum.admittance")


class SharingError(Exception):
    """A server is not shared; one sentence says why, and what to do."""


def list_teammates(session: Session, owner: str, team: Team) -> list[str]:
    """With whom somebody may share a server that runs in a team, by name."""
    return [name for name in list_members(session, team.groups) if name != owner]


def share(
    session: Session, spawner: orm.Spawner, team: Team | None, guest: str, *, hours: float
) -> datetime:
    """Let a teammate into a server; returns when that ends, in UTC. Raises SharingError.

    For somebody who is let in already the new end counts.
    """
    if not 0 < hours <= LONGEST:
        raise SharingError(f"A server is shared for {LONGEST} hours at most: choose fewer.")
    if team is None or guest not in list_teammates(session, spawner.user.name, team):
        raise SharingError(
            f"“{guest}” is not in the team in which this server runs: choose a teammate."
        )
    until = datetime.now(UTC) + timedelta(hours=hours)
    user = orm.User.find(session, guest)
    found = orm.Share.find(session, spawner, user)
    if found is None:
        session.add(make_share(spawner, user, ["access:servers"], until=until))
    else:
        found.expires_at = as_stored(until)
    session.commit()
    return until


def take_back(session: Session, spawner: orm.Spawner, guest: str) -> bool:
    """Let somebody in no more; whether they were until now."""
    user = orm.User.find(session, guest)
    found = user and orm.Share.find(session, spawner, user)
    if not found:
        return False
    session.delete(found)
    session.commit()
    return True


def list_guests(spawner: orm.Spawner) -> dict[str, datetime]:
    """Who is let into a server until when (UTC), by name."""
    found = [(share.user.name, until) for share, until in _list_timed(spawner.shares)]
    return dict(sorted(found))


def list_lent(user: orm.User) -> list[tuple[orm.Share, datetime]]:
    """The shares by which somebody is let into servers of others, and until when (UTC)."""
    found = _list_timed(user.shared_with_me)
    return sorted(found, key=lambda each: (each[0].owner.name, each[0].spawner.name))


def _list_timed(shares: Iterable[orm.Share]) -> list[tuple[orm.Share, datetime]]:
    return [
        (share, share.expires_at.replace(tzinfo=UTC))
        for share in shares
        if share.user is not None and share.expires_at is not None and not share.expired
    ]


def drop_lapsed(
    session: Session, teams: Mapping[str, Team], is_barred: Callable[[str], bool]
) -> None:
    """End what is over, and what was for somebody who left the server's team or `is_barred` from
    the hub, by name.

    Of a team that is not among `teams` nothing is known, so that nobody has left it.
    """
    orm.Share.purge_expired(session)
    for share in session.query(orm.Share).filter(orm.Share.expires_at.is_not(None)).all():
        if accounts.is_account(share.owner.name) or share.user is None:
            continue
        name = (share.spawner.user_options or {}).get("team")  # whatever its owner sent
        team = teams.get(name) if isinstance(name, str) else None
        is_out = is_barred(share.user.name)
        if team is not None and not is_out:
            groups = [group.name for group in share.user.groups]
            is_out = not teams_of(share.user.name, groups, [team])
        if is_out:
            _log.info("%s may no longer be in a server of %s", share.user.name, share.owner.name)
            session.delete(share)
    session.commit()


def find_next_end(session: Session) -> float | None:
    """Seconds until the next share ends; None while there is none that does."""
    ends = session.query(orm.Share.expires_at).filter(orm.Share.expires_at.is_not(None))
    first = ends.order_by(orm.Share.expires_at).limit(1).scalar()
    return first and max(0.0, (first.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds())
