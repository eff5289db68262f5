"""Files of a server whose folders others change at the same time."""

from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError

TRIES = 10


class SharedContents(AsyncLargeFileManager):
    """Lists a folder though files vanish from it meanwhile, as they do in a team's.

    Jupyter Server says then that the folder itself is not found, and JupyterLab leaves it. For as
    long as `AsyncFileContentsManager._dir_model` lets the 404 of an entry out.
    """

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        for _ in range(TRIES - 1):
            try:
                return await super().get(path, *args, **options)
            except HTTPError as error:
                if error.status_code != 404 or not await self.dir_exists(path):
                    raise
        return await super().get(path, *args, **options)
