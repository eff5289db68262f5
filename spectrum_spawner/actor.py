"""Who did it: the person or service whose request leads to a start or a stop.

JupyterHub tells a spawner nothing of the request behind a start or a stop. Just before either it
refreshes the user, and there the authenticator is handed the request: it notes who made it in
the context of the task, which everything that the request starts inherits.
"""

import json
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, NamedTuple

HUB = "hub"  # nobody's request: the hub's own doing

MAX_TEXT = 500  # characters of either part of an errand

_actor: ContextVar[str] = ContextVar("actor", default=HUB)
_errand: ContextVar["Errand | None"] = ContextVar("errand", default=None)


class Errand(NamedTuple):
    """For whom a service does it (`user:<name>` or itself), and the sentence that they gave."""

    by: str
    reason: str


def current() -> str:
    """`user:<name>`, `service:<name>` or `hub`."""
    return _actor.get()


def errand() -> Errand | None:
    """What a service's request says it is for; nobody else runs errands."""
    return _errand.get()


def of(handler: Any) -> str:
    """Who makes the request that a JupyterHub handler serves; of no handler, the hub."""
    who = None if handler is None else handler.current_user
    return HUB if who is None else f"{who.kind}:{who.name}"


def note(handler: Any) -> None:
    """Let `current` say who makes this request, from here on in this task and those it starts."""
    if handler is not None:
        who = of(handler)
        _actor.set(who)
        _errand.set(_read_errand(handler) if who.startswith("service:") else None)


def _read_errand(handler: Any) -> Errand | None:
    """The errand in the body of a request, `{"by": "user:bob", "reason": "…"}`, if there is one."""
    with suppress(ValueError, LookupError, TypeError):
        body = json.loads(handler.request.body)
        by, reason = body["by"], body["reason"]
        if isinstance(by, str) and isinstance(reason, str) and by:
            return Errand(_clean(by), _clean(reason))
    return None


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:MAX_TEXT])
