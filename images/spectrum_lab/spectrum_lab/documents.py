"""Documents of a running server: which of the team's are open, and what its end must not lose."""

import asyncio
import logging
import os
from collections.abc import Iterable
from typing import Any

from spectrum_lab.patience import Patient

LIMIT = 5.0  # seconds that the last saves may take
# what the service takes of one server
MOST = 200  # documents
LONGEST = 1000  # characters of a path

log = logging.getLogger(__name__)


class OpenDocuments:
    """Looks for the documents in the team's folder that somebody has open in a Jupyter Server.

    `folder` is where the team's volume is mounted, "" where there is none.
    """

    def __init__(self, server: Any, folder: str) -> None:
        self._server = server
        self._folder = folder
        self._open: set[str] = set()
        self._finding = Patient(self._find)

    async def find(self) -> list[str] | None:
        """Their paths in the folder, sorted, MOST at most.

        None where there is no folder, or where it does not answer in time. It is no activity.
        """
        if not self._folder:
            return None
        self._open = await _list_open(self._server)
        try:
            return await self._finding.answer()
        except TimeoutError:
            return None

    def _find(self) -> list[str]:
        root = self._server.contents_manager.root_dir
        return find_documents(self._open, root=root, folder=self._folder)


def find_documents(paths: Iterable[str], *, root: str, folder: str) -> list[str]:
    """What is in the folder of those `paths` that Jupyter Server has below its `root`.

    Links are followed, so that a file has the same path in all servers: it may hang as long as
    the file systems do. The paths are relative to the folder, sorted, MOST at most.
    """
    above = f"{os.path.realpath(folder)}/"
    files = {_follow(os.path.join(root, path.lstrip("/"))) for path in paths}
    found = {file.removeprefix(above) for file in files if file.startswith(above)}
    return sorted(path for path in found if len(path) <= LONGEST)[:MOST]


def _follow(path: str) -> str:
    """Where a path leads, "" if no file can have it."""
    try:
        return os.path.realpath(path)
    except ValueError:  # a null byte
        return ""


async def _list_open(server: Any) -> set[str]:
    """Paths of what somebody has open: notebooks with a kernel, and what is edited together.

    JupyterLab keeps a kernel when its notebook is closed, and gives up its connection. Files
    without a kernel that nobody edits together are in the browser alone.
    """
    sessions = await server.session_manager.list_sessions()
    notebooks = {
        each["path"]
        for each in sessions
        if each["type"] == "notebook" and each["kernel"].get("connections")
    }
    # as the document itself has it: that of the file is looked up in a database
    shared = {room._document.path for room in _list_rooms(server) if room.clients}
    return notebooks | shared - {None}


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
