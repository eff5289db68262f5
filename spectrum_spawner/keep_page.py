"""The home page's button that keeps an idle server: the hub asks the service for its owner."""

import logging
from typing import Any

import aiohttp
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.user import User
from tornado import web

TIMEOUT = 5.0  # seconds that the service may take; a person waits for it
AWAY = "The service does not answer, so nothing was changed: try again in a minute."

_log = logging.getLogger("spectrum.notices")


class Keep(APIHandler):
    """`{"server": "<name>"}`: one click on the warning that a server of one's own will end."""

    # who may stop a server of their own may keep it
    @needs_scope("delete:servers", post_filter=True)
    async def post(self) -> None:
        user = self.current_user
        if not isinstance(user, User):
            raise web.HTTPError(403, "Only people keep servers here.")
        name = (self.get_json_body() or {}).get("server")
        if not isinstance(name, str) or name not in user.orm_spawners:
            raise web.HTTPError(404, "You have no such server.")
        spawner = user.spawners[name]
        status, message = await _ask(spawner, user.name, name)
        if status >= 300:
            raise web.HTTPError(status, message)
        spawner.forget_notices()
        self.set_status(204)


async def _ask(spawner: Any, user: str, server: str) -> tuple[int, str]:
    """The service's answer, and its sentence where it says no."""
    if not spawner.keep_url:
        return 404, "Idle servers are not ended here."
    try:
        async with spawner.views.http.post(
            spawner.keep_url,
            json={"user": user, "server": server},
            headers={"Authorization": f"Bearer {spawner.audit_token}"},
            timeout=aiohttp.ClientTimeout(total=TIMEOUT),
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
        _log.warning("the service did not keep a server of %s: %r", user, error)
        return 503, AWAY


# below the hub's own prefix
ROUTES = [(r"/spectrum/keep", Keep)]
