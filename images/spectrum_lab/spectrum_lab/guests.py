"""Connections of people who may no longer be here: closed.

A websocket is asked who it is once, when it opens, and then stays for days. Somebody who left the
team, or whose share was taken back, would go on typing and running code until they reload.
"""

import asyncio
import logging
from collections import defaultdict
from typing import Any
from weakref import WeakSet

from tornado import web
from tornado.websocket import WebSocketHandler

PAUSE = 10.0  # seconds between two looks, while anybody but the owner is here
GONE = 4403  # status of a closed websocket; those from 4000 on are an application's own
WHY = "You may no longer use this server."

log = logging.getLogger(__name__)


class Guests:
    """Watches who opens websockets, by `provider`, JupyterHub's identity provider.

    `owner` is whose server it is: they may always be here.
    """

    def __init__(self, provider: Any, owner: str) -> None:
        self._hub = provider.hub_auth
        self._owner = owner
        self._handlers: WeakSet[WebSocketHandler] = WeakSet()
        self._get_user = provider.get_user
        provider.get_user = self._get_and_note

    async def run(self) -> None:
        """Until cancelled. While the hub does not answer, people stay."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await self.look()
            except Exception:
                log.exception("Nobody knows who may still be here")

    async def look(self) -> None:
        for token, handlers in self._find_open().items():
            if not await self._may_stay(token):
                log.warning("%s may no longer be here", handlers[0].current_user.username)
                self._hub.cache.values.clear()  # else an old answer would let them in again
                for handler in handlers:
                    handler.close(GONE, WHY)

    async def _get_and_note(self, handler: Any) -> Any:
        user = await self._get_user(handler)
        is_guest = user is not None and user.username != self._owner
        if is_guest and isinstance(handler, WebSocketHandler):
            self._handlers.add(handler)
        return user

    def _find_open(self) -> dict[str, list[WebSocketHandler]]:
        """Open websockets by the token of whoever opened them."""
        found = defaultdict(list)
        for handler in self._handlers:
            if handler.ws_connection is not None and (token := self._hub.get_token(handler)):
                found[token].append(handler)
        return found

    async def _may_stay(self, token: str) -> bool:
        try:
            user = await self._hub.user_for_token(token, use_cache=False, sync=False)
        except web.HTTPError as error:
            log.debug("The hub does not say who may be here: %s", error)
            return True
        return user is not None and bool(self._hub.check_scopes(self._hub.access_scopes, user))
