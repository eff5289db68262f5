"""The home page's form by which somebody shares a running server of theirs with a teammate."""

from typing import Any

from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

from spectrum_spawner import actor, sharing
from spectrum_spawner.audit import format_moment


class Share(APIHandler):
    """`{"server", "user", "hours"}` lets somebody in, and a DELETE of the first two out again."""

    # a server's own token lacks it: whoever is let in must not let others in
    @needs_scope("delete:servers", post_filter=True)
    def post(self) -> None:
        spawner, guest = self._find_spawner(), self._read_text("user")
        hours = self._read_body().get("hours")
        if isinstance(hours, bool) or not isinstance(hours, int | float):
            raise web.HTTPError(400, "hours must be a number.")
        if not spawner.ready:
            raise web.HTTPError(409, "The server does not run: start it first.")
        try:
            until = sharing.share(self.db, spawner.orm_spawner, spawner.team, guest, hours=hours)
        except sharing.SharingError as error:
            raise web.HTTPError(400, "%s", error) from error
        told = format_moment(until)
        self._tell(spawner, guest, f"It is shared with {guest} until {told}.", until=told)
        self.finish({"until": told})

    @needs_scope("delete:servers", post_filter=True)
    def delete(self) -> None:
        spawner, guest = self._find_spawner(), self._read_text("user")
        if not sharing.take_back(self.db, spawner.orm_spawner, guest):
            raise web.HTTPError(404, "The server is not shared with %s.", guest)
        self._tell(spawner, guest, f"It is not shared with {guest} any more.")
        self.set_status(204)

    def _read_body(self) -> dict[str, Any]:
        body = self.get_json_body()
        if not isinstance(body, dict):
            raise web.HTTPError(400, "The body must be an object.")
        return body

    def _read_text(self, key: str) -> str:
        value = self._read_body().get(key)
        if not isinstance(value, str):
            raise web.HTTPError(400, f"{key} must be a text.")
        return value

    def _find_spawner(self) -> Any:
        """The spawner of the server of one's own that is named in the body."""
        user, name = self.current_user, self._read_text("server")
        if not isinstance(user, User) or name not in user.orm_spawners:
            raise web.HTTPError(404, "You have no such server.")
        return user.spawners[name]

    def _tell(self, spawner: Any, guest: str, reason: str, **details: str) -> None:
        spawner.tell("share", actor=actor.of(self), reason=reason, guest=guest, **details)


# below the hub's own prefix
ROUTES = [(r"/spectrum/share", Share)]
