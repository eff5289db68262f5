"""Memberships over time: each change is told, and people of whom it matters are asked about.

JupyterHub refreshes a user when a request of theirs comes in, and not often. Somebody may leave a
team while their server runs and no page of theirs is open, or while they are in a server of the
team's, so the hub asks by itself as well.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any, Protocol

from jupyterhub import orm, roles
from sqlalchemy import event, inspect
from sqlalchemy.orm import Session

MOST_SAID = 10  # groups that a sentence enumerates
AT_ONCE = 8  # people who are asked about at the same time
MOST_NAMED = 3000  # characters of JSON for the groups that somebody joined, and for those left

_log = logging.getLogger("spectrum.membership")


class Asks(Protocol):
    """As much of an authenticator as it takes to ask about somebody."""

    async def refresh_user(self, user: Any, handler: Any = None) -> dict[str, Any] | bool: ...


def watch(session: Session | None, tell: Callable[..., None]) -> None:
    """Tell of each change of somebody's groups that a database session writes, once.

    `tell` gets what `audit.make_record` takes. Whatever changes groups (sign-in, refresh, table,
    REST API) writes them through this session.
    """
    assert session is not None
    if "tell_memberships" not in session.info:
        session.info["tell_memberships"] = tell
        event.listen(session, "after_flush", _on_flush)


def _on_flush(session: Session, _context: Any) -> None:
    for user in session.new | session.dirty:
        if isinstance(user, orm.User):
            change = inspect(user).attrs.groups.history
            gained = sorted(group.name for group in change.added or ())
            lost = sorted(group.name for group in change.deleted or ())
            if gained or lost:
                session.info["tell_memberships"](**describe_change(user.name, gained, lost))


def describe_change(name: str, gained: list[str], lost: list[str]) -> dict[str, Any]:
    """The record of a change of groups, but for who tells it; it names as many as it can hold."""
    parts = {"joined": gained, "left": lost}
    said = [f"{verb} {_enumerate(groups)}" for verb, groups in parts.items() if groups]
    return {
        "action": "membership",
        "user": name,
        "reason": f"{name} {' and '.join(said)}.",
        "details": {"gained": _name_some(gained), "lost": _name_some(lost)},
    }


def _name_some(groups: list[str]) -> list[str]:
    lengths = accumulate(len(json.dumps(group)) + 2 for group in groups)
    return [group for group, length in zip(groups, lengths, strict=True) if length <= MOST_NAMED]


def _enumerate(groups: list[str]) -> str:
    named = _name_some(groups)[:MOST_SAID]
    more = len(groups) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


async def refresh_for_ever(users: Callable[[], Iterable[Any]], asks: Asks, *, age: float) -> None:
    """Ask about each of the `users` of then, every `age` seconds, until cancelled.

    A round that takes longer is followed at once by the next.
    """
    clock = asyncio.get_running_loop()
    took = 0.0
    while True:
        await asyncio.sleep(max(0.0, age - took))
        begun = clock.time()
        try:
            await refresh_all(users(), asks)
        except Exception:
            _log.exception("nobody was asked about")
        took = clock.time() - begun


async def refresh_all(users: Iterable[Any], asks: Asks) -> None:
    """Ask about each of the users, AT_ONCE at a time."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def refresh_in_turn(user: Any) -> None:
        async with turns:
            await _refresh(user, asks)

    await asyncio.gather(*map(refresh_in_turn, users))


def list_running(users: Iterable[Any]) -> list[Any]:
    """Those of the users who have an active server."""
    return [user for user in users if any(s.active for s in user.spawners.values())]


async def _refresh(user: Any, asks: Asks) -> None:
    try:
        answer = await asks.refresh_user(user)
        if isinstance(answer, dict):
            await apply(user, answer)
            # as after a request of their own; of whom nothing was said, their next one asks again
            user._auth_refreshed = time.monotonic()
    except Exception:
        # one person's trouble, and never the end of the round
        _log.exception("the groups of %s could not be refreshed", user.name)


async def apply(user: Any, answer: dict[str, Any]) -> None:
    """Write what an authenticator says of a user, as JupyterHub does after a refresh.

    The same steps as BaseHandler.auth_to_user, which needs a request.
    """
    if answer.get("admin") is not None:
        user.admin = answer["admin"]
    if answer.get("user_info") is not None:
        user.user_info = answer["user_info"]
    roles.assign_default_roles(user.db, entity=user.orm_user)
    if answer["groups"] is not None:
        user.sync_groups(answer["groups"])
    await user.save_auth_state(answer["auth_state"])


def end_admin(user: Any) -> None:
    """Take the role of an administrator from a user, and with it what their tokens may do."""
    user.admin = False
    roles.assign_default_roles(user.db, entity=user.orm_user)
    user.db.commit()
