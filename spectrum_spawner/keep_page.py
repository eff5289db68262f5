"""The home page's buttons for a running server: the hub asks the service for whoever clicks.

One keeps an idle server, one restarts a server without a GPU.
"""

import logging
from typing import Any

import aiohttp
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

TIMEOUT = 5.0  # seconds that the service may take; a person waits for it
STOP_TIMEOUT = 40.0  # the same where the service waits for the hub to end a server
AWAY = "The service does not answer, so nothing was changed: try again in a minute."

_log = logging.getLogger("spectrum.notices")


class Keep(APIHandler):
    """`{"user": "<owner>", "server": "<name>"}`: one click on the warning that a server will end.

    Whoever may stop it may keep it: its owner, and of a team's server each member.
    """

    @needs_scope("delete:servers", post_filter=True)
    async def post(self) -> None:
        owner = (self.get_json_body() or {}).get("user")
        spawner = self._find_spawner(self.find_user(owner) if isinstance(owner, str) else None)
        never = "Idle servers are not ended here."
        by = {"by": self.current_user.name}
        await self._tell(spawner, spawner.keep_url, never, TIMEOUT, **by)

    def _find_spawner(self, owner: Any) -> Any:
        """The spawner of the server of that owner's that is named in the body."""
        if not isinstance(self.current_user, User):
            raise web.HTTPError(403, "Only people keep servers here.")
        name = (self.get_json_body() or {}).get("server")
        if owner is None or not isinstance(name, str) or name not in owner.orm_spawners:
            raise web.HTTPError(404, "You have no such server.")
        if not self.has_scope(f"delete:servers!server={owner.name}/{name}"):
            raise web.HTTPError(404, "You have no such server.")
        return owner.spawners[name]

    async def _tell(
        self, spawner: Any, url: str, never: str, timeout: float, **details: str
    ) -> None:
        """Tell the service of the click; `never` is the sentence where there is none."""
        if not url:
            raise web.HTTPError(404, never)
        status, message = await _ask(spawner, url, timeout, details)
        if status >= 300:
            raise web.HTTPError(status, message)
        spawner.forget_notices()
        self.set_status(204)


class Continue(Keep):
    """`{"server": "<name>"}`: the same server again, on a profile without a GPU."""

    # the service starts what it stopped: who may do both may ask for it
    @needs_scope("start:servers", post_filter=True)
    @needs_scope("delete:servers", post_filter=True)
    async def post(self) -> None:
        spawner = self._find_spawner(self.current_user)
        never = "Servers cannot go on without a GPU here: stop it, and start it on another profile."
        await self._tell(spawner, spawner.continue_url, never, STOP_TIMEOUT)


async def _ask(spawner: Any, url: str, timeout: float, details: dict[str, str]) -> tuple[int, str]:
    """The service's answer, and its sentence where it says no."""
    user, server = spawner.user.name, spawner.name
    try:
        async with spawner.views.http.post(
            url,
            json={"user": user, "server": server, **details},
            headers={"Authorization": f"Bearer {spawner.audit_token}"},
            timeout=aiohttp.ClientTimeout(total=timeout),
        ) as answer:
            if answer.status < 300:
                return answer.status, ""
            return answer.status, str((await answer.json())["message"])
    except (
        TimeoutError,
        aiohttp.ClientError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
    ) as error:
        _log.warning("the service did nothing for a server of %s: %r", user, error)
        return 503, AWAY


# below the hub's own prefix
ROUTES = [(r"/spectrum/keep", Keep), (r"/spectrum/continue", Continue)]
