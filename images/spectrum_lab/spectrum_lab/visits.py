"""Visits of people to a server that is no JupyterLab: the hub hears of them."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

PAUSE = 30.0  # seconds for which one word is enough

log = logging.getLogger(__name__)


class Visits:
    """Tells the hub at once that somebody came, and again while they ask for more.

    The hub's proxy tells of that too, up to five minutes later: a server could be ended meanwhile.
    `environment` has JupyterHub's variables. `clock` counts seconds.
    """

    def __init__(
        self, environment: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = environment.get("JUPYTERHUB_ACTIVITY_URL", "")
        self._token = environment.get("JUPYTERHUB_API_TOKEN", "")
        self._server = environment.get("JUPYTERHUB_SERVER_NAME", "")
        self._clock = clock
        self._told: float | None = None
        self._telling: asyncio.Task[None] | None = None

    def note(self, _: object) -> bool:
        """Somebody who may be here asked for something, in the running event loop.

        It is called by jupyter-server-proxy, with the handler; True says that it is activity.
        """
        now = self._clock()
        if self._told is None or now - self._told >= PAUSE:
            self._told = now
            self._telling = asyncio.get_running_loop().create_task(self._tell(datetime.now(UTC)))
        return True

    async def _tell(self, at: datetime) -> None:
        stamp = at.isoformat().replace("+00:00", "Z")
        body = {"servers": {self._server: {"last_activity": stamp}}, "last_activity": stamp}
        headers = {"Authorization": f"token {self._token}", "Content-Type": "application/json"}
        request = HTTPRequest(self._url, method="POST", headers=headers, body=json.dumps(body))
        try:
            await AsyncHTTPClient().fetch(request)
        except (HTTPClientError, OSError, ValueError) as error:
            # whoever stays is told of again soon, and the proxy tells of them as well
            log.warning("The hub does not hear that somebody is here: %s", error)
