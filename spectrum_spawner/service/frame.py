"""The frame of every page: JupyterHub's own look, and the way to the sign-in."""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jupyterhub
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from jupyterhub._data import DATA_FILES_PATH
from jupyterhub.services.auth import HubOAuthCallbackHandler
from markupsafe import Markup
from tornado.web import HTTPError, StaticFileHandler

from spectrum_spawner.service import moments, presentation
from spectrum_spawner.service.handler import SignedIn, Unauthenticated
from spectrum_spawner.service.problem import Problem

OWN_FILES = Path(__file__).with_name("static")
HUB_FILES = Path(DATA_FILES_PATH)

# What a page says after a form was sent, by what the form did.
DONE = {
    "stopped": "The server is being stopped.",
    "saved": "The settings are saved.",
    "asked": "Your request is in the queue. Its answer is shown here.",
    "withdrawn": "The request is withdrawn.",
    "decided": "The answer is given.",
    "kept": "The server is kept for now.",
    "held": "The server is held.",
    "unheld": "The server is held no more: what is measured counts again.",
    "continued": "The server stops, and starts again without a GPU. Files stay.",
    "appealed": "The owners are asked: their home page and JupyterLab say so.",
    "released": "What you released is being stopped. Files stay.",
}


class PageHandler(SignedIn):
    """A page in JupyterHub's own look. Without a sign-in, a visit leads to it."""

    async def prepare(self) -> None:
        try:
            await super().prepare()
        except Unauthenticated:
            if self.request.method not in ("GET", "HEAD"):
                raise
            self.redirect(self.get_login_url())

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Content-Security-Policy", self.settings["content_security_policy"])

    def show(self, template: str, **names: Any) -> None:
        """Write a page from its template."""
        self.write(_templates().get_template(template).render(**self._frame(), **names))

    def write_problem(self, problem: Problem) -> None:
        self.show("problem.html", problem=problem, typed=self.request.method == "POST")

    def read_form(self, *names: str) -> dict[str, str]:
        """What was typed, by field; fields that were not sent are empty."""
        return {name: self.get_body_argument(name, "", strip=False) for name in names}

    def done(self, path: str, what: str) -> None:
        """Lead to a page that says what was done; to reload that page does it no second time."""
        self.redirect(f"{self.context.settings.prefix}{path}?done={what}", status=303)

    def _frame(self) -> dict[str, Any]:
        """What JupyterHub's page template and ours need around any content."""
        settings = self.context.settings
        viewer = getattr(self, "viewer", None)
        hub = f"{settings.base_url}hub/"
        user = viewer and {"name": viewer.name, "json_escaped_name": _in_script(viewer.name)}
        return {
            "viewer": viewer,
            "user": user,
            "prefix": settings.prefix,
            "base_url": hub,
            "logo_url": hub,
            "login_url": settings.prefix,
            "logout_url": f"{hub}logout",
            "static_url": self._static_url,
            "version_hash": "",
            "xsrf_token": self.xsrf_token.decode("ascii") if user else "",
            "no_spawner_check": True,
            "admin_access": False,
            "announcement": "",
            "contact": settings.contact,
            "snapshot": self.context.snapshot,
            "done": self._find_done(),
            "path": self.request.path.removeprefix(settings.prefix),
        }

    def _find_done(self) -> str:
        given = self.request.query_arguments.get("done", [b""])[-1]
        return DONE.get(given.decode("ascii", "replace"), "")

    def _static_url(self, path: str, include_version: bool = True) -> str:
        version = f"?v={jupyterhub.__version__}" if include_version else ""
        return f"{self.context.settings.prefix}static/{path}{version}"


class Callback(PageHandler, HubOAuthCallbackHandler):
    """Where the hub sends people back to once they are signed in."""

    async def prepare(self) -> None:
        """Whoever comes here may be signed in already, by another window."""
        self._hub_auth_user_cache = None
        with suppress(Problem):
            await self._identify()

    async def get(self) -> None:
        try:
            await HubOAuthCallbackHandler.get(self)
        except HTTPError as error:
            away = error.status_code >= 500
            raise Problem(
                "JupyterHub does not answer: try to sign in again in a minute."
                if away
                else "The sign-in took too long or was begun elsewhere: open your teams again.",
                status=503 if away else 403,
            ) from error


class NotFoundPage(PageHandler):
    async def prepare(self) -> None:
        await super().prepare()
        if not self._finished:
            raise Problem("There is no such page: begin with your teams.", status=404)


class Files(StaticFileHandler):
    """JupyterHub's own style and scripts, so that pages look right while the hub is away."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        if "v" not in self.request.arguments:
            self.set_header("Cache-Control", "no-cache")


def _in_script(text: str) -> Markup:
    """Text between the quotes of a string in a script of a page."""
    escaped = json.dumps(text)[1:-1]
    for character in "<>&'":
        escaped = escaped.replace(character, f"\\u{ord(character):04x}")
    return Markup(escaped)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=ChoiceLoader(
            [
                PackageLoader("spectrum_spawner.service", "templates"),
                FileSystemLoader(HUB_FILES / "templates"),
            ]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(show=moments.show, shown=presentation)
    return environment


ROUTES: list[tuple[str, type[PageHandler]]] = [
    (r"oauth_callback", Callback),
    (r".*", NotFoundPage),
]
