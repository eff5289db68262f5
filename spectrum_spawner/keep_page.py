"""The home page's buttons for a running server: the hub asks the service for its owner.

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
    """`{"server": "<name>"}`: one click on the warning that a server of one's own will end."""

    # who may stop a server of their own may keep it
    @needs_scope("delete:servers", post_filter=True)
    async def post(self) -> None:
        spawner = self._find_spawner()
        await self._tell(spawner, spawner.keep_url, "Idle servers are not ended here.", TIMEOUT)

    def _find_spawner(self) -> Any:
        """The spawner of the server of one's own that is named in the body."""
        user = self.current_user
        if not isinstance(user, User):
            raise web.HTTPError(403, "Only people keep servers here.")
        name = (self.get_json_body() or {}).get("server")
        if not isinstance(name, str) or name not in user.orm_spawners:
            raise web.HTTPError(404, "You have no such server.")
        return user.spawners[name]

    async def _tell(self, spawner: Any, url: str, never: str, timeout: float) -> None:
        """Tell the service of the click; `never` is the sentence where there is none."""
        if not url:
            raise web.HTTPError(404, never)
        status, message = await _ask(spawner, url, timeout)
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
        spawner = self._find_spawner()
        never = "Servers cannot go on without a GPU here: stop it, and start it on another profile."
        await self._tell(spawner, spawner.continue_url, never, STOP_TIMEOUT)


async def _ask(spawner: Any, url: str, timeout: float) -> tuple[int, str]:
    """The service's answer, and its sentence where it says no."""
    user, server = spawner.user.name, spawner.name
    try:
        async with spawner.views.http.post(
            url,
            json={"user": user, "server": server},
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
