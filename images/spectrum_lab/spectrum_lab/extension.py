"""What Spectrum adds to a running server: a reporter, what JupyterLab's banner asks for, its end.

Nothing here is done, or imported, before the server answers; none of it counts as a person at work.
"""

import json
import os
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

STATE = "spectrum_state"  # among the settings of the web application


class Banner(JupyterHandler):
    """What JupyterLab's banner says. No handler of the API, since asking for it is no activity."""

    @web.authenticated
    def get(self) -> None:
        state = self.settings.get(STATE)
        self._write(state.describe() if state else {"warnings": [], "notices": []})

    def _write(self, value: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(value))


class Keep(Banner):
    """One click that keeps an idle server; the answer is what the banner says now."""

    @web.authenticated
    async def post(self) -> None:
        from spectrum_lab.service import ServiceError

        try:
            self._write(await self.settings[STATE].keep())
        except ServiceError as error:
            self.set_status(409)
            self._write({"message": str(error)})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "spectrum_lab.extension"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this while it starts."""
    routes = [("banner", Banner), ("keep", Keep)]
    server.web_app.add_handlers(
        ".*", [(f"{server.base_url}spectrum/{name}", handler) for name, handler in routes]
    )


async def _start_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this once it answers."""
    from spectrum_lab.pre_stop import run_before_end
    from spectrum_lab.state import State

    state = server.web_app.settings[STATE] = State(server)
    state.reporter.start()
    run_before_end(Path.home(), os.environ.get("JUPYTERHUB_SERVER_NAME", ""))
