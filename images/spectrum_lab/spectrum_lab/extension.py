"""What Spectrum adds to a running server: a reporter, and what JupyterLab's banner asks for.

Nothing here is done before the server answers, and none of it counts as a person at work.
"""

import json
import os
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from spectrum_lab.reporter import make_reporter

REPORTER = "spectrum_reporter"  # among the settings of the web application


class Warnings(JupyterHandler):
    """What JupyterLab's banner says. No handler of the API, since asking for it is no activity."""

    @web.authenticated
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps({"warnings": self.settings[REPORTER].warnings}))


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "spectrum_lab.extension"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this while it starts."""
    server.web_app.settings[REPORTER] = make_reporter(os.environ)
    server.web_app.add_handlers(".*", [(f"{server.base_url}spectrum/volumes", Warnings)])


async def _start_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this once it answers."""
    server.web_app.settings[REPORTER].start()
