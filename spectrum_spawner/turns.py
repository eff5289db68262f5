"""Requests that meet at one server: the second finds what the first began.

JupyterHub 6.1.1 looks whether a start or a stop is under way, then asks who the person is now, and
takes what began meanwhile for a fault: "Internal Server Error". Here it is asked first. It asks
once a request, so that nothing comes between its own look and what it does then.
"""

import asyncio
from typing import Any

from jupyterhub.apihandlers import users
from jupyterhub.handlers import pages
from tornado import web

PATIENCE = 8.0  # seconds that a start which was cancelled may take to end


class InTurn:
    """A mixin, to stand before a handler of JupyterHub that starts or stops servers."""

    async def spawn_single_user(
        self: Any, user: Any, server_name: str = "", display_name: str = "", options: Any = None
    ) -> None:
        """Start a server, unless another request began to do so meanwhile: then that one does."""
        was_ready = _is_ready(user, server_name)
        if self.authenticator.refresh_pre_spawn:
            await self._ask_who(user, is_start=True)
        spawner = user.spawners.get(server_name)
        if spawner is not None and spawner.pending == "spawn":
            return
        if _is_ready(user, server_name) and not was_ready:
            return
        _check_free(spawner)
        await super().spawn_single_user(user, server_name, display_name, options)  # type: ignore[misc]

    async def stop_single_user(self: Any, user: Any, server_name: str = "") -> Any:
        """Stop a server, unless another request did so meanwhile; returns the stop's future."""
        if self.authenticator.refresh_pre_stop:
            await self._ask_who(user, is_start=False)
        spawner = user.spawners.get(server_name)
        if spawner is not None and spawner.pending == "spawn" and spawner._spawn_future:
            # one that is cancelled by now, and on its way out
            await asyncio.wait([spawner._spawn_future], timeout=PATIENCE)
            spawner = user.spawners.get(server_name)
        if spawner is None:
            return None
        if spawner.pending == "stop":
            return spawner._stop_future
        _check_free(spawner)
        return await super().stop_single_user(user, server_name)  # type: ignore[misc]

    async def _ask_who(self: Any, user: Any, *, is_start: bool) -> None:
        """Refresh the user, as JupyterHub does before a start and a stop."""
        if await self.refresh_auth(user, force=True) is not None:
            return
        who = self.current_user
        if is_start or (who.kind == "user" and who.name == user.name):
            raise web.HTTPError(403, "auth has expired for %s, login again", user.name)
        self.log.warning("User %s may have stale auth info. Stopping anyway.", user.name)


class ServerAPI(InTurn, users.UserServerAPIHandler):
    """Servers in the REST API."""


class SpawnPage(InTurn, pages.SpawnHandler):
    """The spawn form."""


def _is_ready(user: Any, server_name: str) -> bool:
    spawner = user.spawners.get(server_name)
    return spawner is not None and spawner.ready


def _check_free(spawner: Any) -> None:
    """Raise an HTTPError with a sentence while something else is under way."""
    if spawner is not None and spawner.pending:
        doing = {"stop": "being stopped", "spawn": "being started"}.get(spawner.pending, "busy")
        what = f"server “{spawner.name}”" if spawner.name else "default server"
        raise web.HTTPError(
            409, "The %s of %s is %s now: try again in a moment.", what, spawner.user.name, doing
        )


# where JupyterHub has the handlers that these stand for; the first route that fits is taken
ROUTES = [
    (path, ours)
    for routes, theirs, ours in (
        (users.default_handlers, users.UserServerAPIHandler, ServerAPI),
        (pages.default_handlers, pages.SpawnHandler, SpawnPage),
    )
    for path, handler in routes
    if handler is theirs
]
