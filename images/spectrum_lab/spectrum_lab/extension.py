"""What Spectrum adds to a running server: a reporter, what JupyterLab's pages ask for, its end.

Nothing here is done, or imported, before the server answers; none of it counts as a person at work.
"""

import json
import os
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

STATE = "spectrum_state"  # among the settings of the web application
GUESTS = "spectrum_guests"
# what JupyterLab's pages are told where there is no service
NOTHING = {
    "warnings": [],
    "notices": [],
    "page": "",
    "board": "",
    "home": "",
    "standing": None,
    "silence": "",
}
# JupyterLab's parts of jupyter-collaboration
TOGETHER = ("@jupyter/collaboration-extension", "@jupyter/docprovider-extension")
# parts of JupyterLab that these replace, and disable: without the second no notebook opens
REPLACED = (
    "@jupyterlab/filebrowser-extension:defaultFileBrowser",
    "@jupyterlab/notebook-extension:cell-executor",
)


class Banner(JupyterHandler):
    """What JupyterLab's banner and status bar say.

    No handler of the API, since asking for it is no activity.
    """

    @web.authenticated
    async def get(self) -> None:
        await self._describe()

    async def _describe(self) -> None:
        state = self.settings.get(STATE)  # not there yet while the server starts
        told = NOTHING | (await state.describe() if state else {})
        own = self._is_owner()
        guest = [] if own else list_warnings_of_guests(os.environ.get("JUPYTERHUB_USER", ""))
        self._write({**told, "warnings": [*guest, *told["warnings"]], "own": own})

    def _write(self, value: dict[str, Any]) -> None:
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.finish(json.dumps(value))

    def _is_owner(self) -> bool:
        """Whether this is the person whose server it is, and no guest of theirs."""
        owner = os.environ.get("JUPYTERHUB_USER", "")
        return bool(owner) and getattr(self.current_user, "username", "") == owner


class Act(Banner):
    """One click that keeps or holds an idle server, ends it, or restarts it without a GPU.

    The answer is what the banner says now. The server's own token does it, which is its owner's:
    guests may keep it, and all else is for them to do in their own name, in the service.
    """

    @web.authenticated
    async def post(self, verb: str) -> None:
        from spectrum_lab.service import ServiceError

        if verb != "keep" and not self._is_owner():
            self.set_status(403)
            self._write({"message": "That is for its owner: use the server's page in Spectrum."})
            return
        try:
            body = self.get_json_body() or {}
            hold = {key: body.get(key) for key in ("until", "reason")} if verb == "hold" else {}
            await self.settings[STATE].act(verb, hold)
            await self._describe()
        except ServiceError as error:
            self.set_status(409)
            self._write({"message": str(error)})


def list_warnings_of_guests(owner: str) -> list[str]:
    """What somebody should know who is in the server of a person, and of no team's account."""
    if not owner or owner.startswith("team:"):
        return []
    return [f"You are a guest in the server of {owner}: what you run here has {owner}'s rights."]


def leave_out_collaboration(settings: dict[str, Any]) -> None:
    """Have JupyterLab load nothing of what would ask the server for shared documents.

    With `disableRTC` alone its parts are loaded still, and look for rooms that are not there. By a
    hook, since what an image disables cannot depend on the environment.
    """
    hook = settings.get("page_config_hook")

    def page_config_hook(handler: JupyterHandler, page_config: dict[str, Any]) -> dict[str, Any]:
        found = hook(handler, page_config) if hook else page_config
        loaded = found.get("federated_extensions", [])
        found["federated_extensions"] = [each for each in loaded if each["name"] not in TOGETHER]
        disabled = found.get("disabledExtensions", [])
        found["disabledExtensions"] = [each for each in disabled if each not in REPLACED]
        return {**found, "disableRTC": True}

    settings["page_config_hook"] = page_config_hook


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "spectrum_lab.extension"}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this while it starts."""
    routes = [("banner", Banner), ("(keep|hold|release|continue)", Act)]
    server.web_app.add_handlers(
        ".*", [(f"{server.base_url}spectrum/{name}", handler) for name, handler in routes]
    )
    if hasattr(server.identity_provider, "hub_auth"):  # not where it runs without a hub
        from spectrum_lab.guests import Guests

        owner = os.environ.get("JUPYTERHUB_USER", "")
        server.web_app.settings[GUESTS] = Guests(server.identity_provider, owner)
    if os.environ.get("SPECTRUM_COLLABORATIVE") != "1":
        leave_out_collaboration(server.web_app.settings)


async def _start_jupyter_server_extension(server: Any) -> None:
    """Jupyter Server calls this once it answers."""
    from spectrum_lab.documents import save_documents
    from spectrum_lab.pre_stop import run_before_end
    from spectrum_lab.state import State

    state = server.web_app.settings[STATE] = State(server)
    state.reporter.start()
    if guests := server.web_app.settings.get(GUESTS):
        state.begin(guests.run())
    name = os.environ.get("JUPYTERHUB_SERVER_NAME", "")
    run_before_end(Path.home(), name, lambda: save_documents(server))
