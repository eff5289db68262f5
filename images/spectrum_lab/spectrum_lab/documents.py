"""Documents that are edited together, at the end of their server."""

import asyncio
import logging
from typing import Any

LIMIT = 5.0  # seconds

log = logging.getLogger(__name__)


async def save_documents(server: Any) -> None:
    """Let the saves of shared documents be made that wait for a pause in the typing.

    jupyter-server-ydoc 3.0 puts a save off with each key, and forgets the ones that wait when it
    stops: all that was typed since the last pause would be lost.
    """
    rooms = _list_rooms(server)
    for room in rooms:
        room._document.unobserve()  # what is typed from now on puts nothing off
    saves = [room._saving_document for room in rooms if room._saving_document is not None]
    if saves:
        _, late = await asyncio.wait(saves, timeout=LIMIT)
        if late:
            log.warning("%d documents could not be saved in time", len(late))


def _list_rooms(server: Any) -> list[Any]:
    """The rooms of documents; a room of another kind, as that of the cursors, saves nothing."""
    apps = server.extension_manager.extension_apps.get("jupyter_server_ydoc", ())
    rooms = [room for app in apps for room in app.ywebsocket_server.rooms.values()]
    return [room for room in rooms if hasattr(room, "_saving_document")]
