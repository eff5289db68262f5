"""Shares of one server with one person, JupyterHub's record of who is let in and may do what."""

from collections.abc import Iterable
from datetime import UTC, datetime

from jupyterhub import orm


def make_share(
    spawner: orm.Spawner, user: orm.User, scopes: Iterable[str], *, until: datetime | None = None
) -> orm.Share:
    """A share for the session to add: `scopes` without their filters, until a moment or for good.

    JupyterHub's own `Share.grant` commits, once for each and before an end can be set.
    """
    owner = spawner.user
    return orm.Share(
        created_at=orm.Share.now(),
        expires_at=as_stored(until),
        owner=owner,
        spawner=spawner,
        user=user,
        scopes=sorted(f"{scope}!server={owner.name}/{spawner.name}" for scope in scopes),
    )


def as_stored(moment: datetime | None) -> datetime | None:
    """A moment as JupyterHub's database has all of them: UTC, and without saying so."""
    return moment and moment.astimezone(UTC).replace(tzinfo=None)
