"""People in servers that are not theirs: the shares that let them in, and who is there now."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from jupyterhub import orm
from sqlalchemy.orm import Session

LATELY = timedelta(minutes=2)  # four times as often JupyterHub notes that a token was used
BY_HAND = "jupyterhub"  # JupyterHub's client of tokens that are for no visit


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
    """Ids of users who are let into a server of another's, or of a team's, and were there lately.

    A server asks the hub every few seconds who somebody is: by the token that it got for a
    browser's visit, or by one of their own, of which nobody knows where else it was used.
    """
    recent = as_stored(datetime.now(UTC) - LATELY)
    used = session.query(orm.APIToken).filter(orm.APIToken.last_activity > recent)
    visits = (
        used.join(orm.Spawner, orm.Spawner.oauth_client_id == orm.APIToken.client_id)
        .filter(orm.APIToken.user_id != orm.Spawner.user_id)
        .with_entities(orm.APIToken.user_id)
    )
    guests = session.query(orm.Share.user_id).filter(orm.Share.user_id.is_not(None))
    theirs = used.filter(orm.APIToken.client_id == BY_HAND, orm.APIToken.user_id.in_(guests))
    opening = {token.user_id for token in theirs if any(map(_opens, token.scopes))}
    return sorted({id for (id,) in visits.distinct()} | opening)


def _opens(scope: str) -> bool:
    """Whether a token with that scope may be let into servers; a server's own is not."""
    return scope.startswith(("access:servers", "inherit"))


def as_stored(moment: datetime | None) -> datetime | None:
    """A moment as JupyterHub's database has all of them: UTC, and without saying so."""
    return moment and moment.astimezone(UTC).replace(tzinfo=None)
