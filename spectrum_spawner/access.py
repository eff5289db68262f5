"""People in servers that are not theirs: the shares that let them in, and who is there now."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from jupyterhub import orm
from sqlalchemy.orm import Session

LATELY = timedelta(minutes=2)  # four times as often JupyterHub notes that a token was used


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


def list_visitors(session: Session) -> list[int]:
    """Ids of users whose browser was in a server of another's, or of a team's, lately.

    A server asks the hub every few seconds who that is, by the token that it got for the visit.
    """
    found = (
        session.query(orm.APIToken.user_id)
        .join(orm.Spawner, orm.Spawner.oauth_client_id == orm.APIToken.client_id)
        .filter(orm.APIToken.user_id != orm.Spawner.user_id)
        .filter(orm.APIToken.last_activity > as_stored(datetime.now(UTC) - LATELY))
    )
    return [id for (id,) in found.distinct()]


def as_stored(moment: datetime | None) -> datetime | None:
    """A moment as JupyterHub's database has all of them: UTC, and without saying so."""
    return moment and moment.astimezone(UTC).replace(tzinfo=None)
