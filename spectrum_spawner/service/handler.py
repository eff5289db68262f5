"""Who asks, and how a page or the API says that something cannot be done."""

import asyncio
import json
import logging
from http import HTTPStatus
from typing import Any

from jupyterhub.services.auth import HubOAuthenticated, UserNotAllowed
from tornado.web import HTTPError, RequestHandler

from spectrum_spawner.service.context import Context
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, find_viewer
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.settings import ACT_SCOPE

MAX_BODY = 64 * 1024  # bytes of a request by a person
IDENTIFY_WITHIN = 8.0  # seconds that the hub may take to say who somebody is

_log = logging.getLogger("spectrum.service")


class Unauthenticated(Problem):
    """Nobody is signed in."""


class Answering(RequestHandler):
    """Says every failure in one sentence, as JSON."""

    def initialize(self, context: Context) -> None:
        self.context = context

    def set_default_headers(self) -> None:
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")

    def log_exception(self, kind: Any, error: Any, trace: Any) -> None:
        """What is answered with a sentence is no news to the operator."""
        if not isinstance(error, Problem):
            super().log_exception(kind, error, trace)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        problem = _to_problem(status_code, (kwargs.get("exc_info") or (None, None))[1])
        self.set_status(problem.status)
        if problem.retry_after:
            self.set_header("Retry-After", problem.retry_after)
        self.write_problem(problem)
        self.finish()

    def write_problem(self, problem: Problem) -> None:
        self.write_json({"status": problem.status, "message": problem.sentence})

    def write_json(self, value: Any) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(value))

    def read_json(self) -> dict[str, Any]:
        """The object in the body, {} for none; raises Problem."""
        if not self.request.body:
            return {}
        try:
            value = json.loads(self.request.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise Problem("The body is no JSON: please check it.") from error
        if not isinstance(value, dict):
            raise Problem("The body must be a JSON object: please check it.")
        return value


class SignedIn(HubOAuthenticated, Answering):
    """Answers people who are signed in at the hub, or whoever has a token of theirs.

    The hub is asked at each request whose answer is more than a few seconds old.
    """

    viewer: Viewer
    is_for_servers = False  # whether also a server's own token may do more than read

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.hub_auth = context.sign_in

    async def prepare(self) -> None:
        self.check_size()
        model = await self._identify()
        viewer = find_viewer(
            model,
            [sheet.team for sheet in self.context.sheets.values()],
            await self._list_own_servers(model),
        )
        if viewer is None:
            raise Problem(
                "This token may not read teams and servers: sign in as a person, or use a token "
                f"with the scope {ACT_SCOPE}.",
                status=403,
            )
        self.viewer = viewer
        may_write = viewer.may_act or self.is_for_servers
        if self.request.method not in ("GET", "HEAD") and not may_write:
            raise Problem(
                "A server's own token may only read: sign in, and do it yourself.", status=403
            )

    def check_size(self) -> None:
        """Raise Problem for a body that is too long."""
        if len(self.request.body) > MAX_BODY:
            raise Problem(f"That is more than {MAX_BODY} bytes: please shorten it.", status=413)

    async def _identify(self) -> dict[str, Any]:
        """The hub's model of whoever asks; raises Problem."""
        try:
            async with asyncio.timeout(IDENTIFY_WITHIN):
                model = await self.hub_auth.get_user(self, sync=False)
            self._hub_auth_user_cache = self.check_hub_user(model) if model else None
        except UserNotAllowed as error:
            raise Problem(
                "You may not use this service: ask an administrator.", status=403
            ) from error
        except (HTTPError, TimeoutError) as error:
            if isinstance(error, HTTPError) and error.status_code < 500:
                raise  # nonsense in the request itself
            _log.warning("the hub does not say who asks: %s", error)
            raise Problem(
                "JupyterHub does not answer, so nobody knows who you are: servers keep running; "
                "try again in a minute.",
                status=503,
            ) from error
        if self._hub_auth_user_cache is None:
            raise Unauthenticated(
                "You are not signed in, or the page was open for too long: sign in and try again.",
                status=403,
            )
        return self._hub_auth_user_cache

    async def _list_own_servers(self, model: dict[str, Any]) -> list[Server]:
        """The servers of a token that may not act, which may be that of one of them."""
        if ACT_SCOPE in model["scopes"]:
            return []
        await self.context.snapshot.refresh()
        return [server for server in self.context.snapshot if server.user == model["name"]]


def _to_problem(status: int, error: object) -> Problem:
    if isinstance(error, Problem):
        return error
    if isinstance(error, LedgerError):
        _log.error("the ledger does not answer: %s", error)
        return Problem(
            "The ledger cannot be read or written now: try again in a minute.", status=503
        )
    if status == 404:
        return Problem("There is no such page: begin with your teams.", status=404)
    if status == 405:
        return Problem("That cannot be done with this address: use the page's buttons.", status=405)
    if status < 500:
        reason = HTTPStatus(status).phrase.lower()
        return Problem(
            f"The request was not understood ({reason}): reload the page.", status=status
        )
    return Problem(
        "Something went wrong here: tell an administrator, the log says what.", status=500
    )


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
