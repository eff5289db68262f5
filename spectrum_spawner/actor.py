"""Who did it: the person or service whose request leads to a start or a stop.

JupyterHub tells a spawner nothing of the request behind a start or a stop. Just before either it
refreshes the user, and there the authenticator is handed the request: it notes who made it in
the context of the task, which everything that the request starts inherits.
"""

from contextvars import ContextVar
from typing import Any

HUB = "hub"  # nobody's request: the hub's own doing

_actor: ContextVar[str] = ContextVar("actor", default=HUB)


def current() -> str:
    """`user:<name>`, `service:<name>` or `hub`."""
    return _actor.get()


def of(handler: Any) -> str:
    """Who makes the request that a JupyterHub handler serves; of no handler, the hub."""
    who = None if handler is None else handler.current_user
    return HUB if who is None else f"{who.kind}:{who.name}"


def note(handler: Any) -> None:
    """Let `current` say who makes this request, from here on in this task and those it starts."""
    if handler is not None:
        _actor.set(of(handler))
