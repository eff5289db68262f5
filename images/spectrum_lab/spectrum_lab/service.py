"""Spectrum's service, asked with the server's own token for what concerns this server."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest

TIMEOUT = 10.0  # seconds that an answer may take
LONGEST_WAIT = 3600.0  # seconds that the service may ask to be left alone


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server hears when it reports: `notices` of its end, and `warnings`, sentences on
    documents that are open in another server too."""

    notices: list[dict[str, Any]]
    warnings: list[str]


class ServiceError(Exception):
    """The service refuses, or does not answer; the text is a sentence for people, `wait` for how
    many seconds it wants to be left alone."""

    def __init__(self, sentence: str, *, wait: float = 0.0) -> None:
        super().__init__(sentence)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Service:
    """`url` is the service's own, "" where there is none; `user` and `server` name this server."""

    url: str
    token: str = field(repr=False)
    user: str
    server: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Service":
        """What JupyterHub's variables and SPECTRUM_URL say."""
        return cls(
            url=environment.get("SPECTRUM_URL", ""),
            token=environment.get("JUPYTERHUB_API_TOKEN", ""),
            user=environment.get("JUPYTERHUB_USER", ""),
            server=environment.get("JUPYTERHUB_SERVER_NAME", ""),
        )

    async def report(self, report: Mapping[str, Any]) -> Answer:
        """Tell how this server is; raises ServiceError."""
        answer = await self._ask("POST", "report", report)
        return Answer(notices=_read_notices(answer), warnings=list(answer.get("warnings") or ()))

    async def list_notices(self) -> list[dict[str, Any]]:
        """What there is to tell of this server's end; raises ServiceError."""
        return _read_notices(await self.read_self())

    async def read_self(self) -> dict[str, Any]:
        """How this server stands; raises ServiceError."""
        return await self._ask("GET", "servers/self")

    async def read_row(self) -> dict[str, Any]:
        """This server's row on the GPU board, or how it stands without a GPU; raises ServiceError.

        The board has figures, and by a server's token no row but its own.
        """
        rows = (await self._ask("GET", "gpus")).get("gpus") or ()
        mine = (self.user, self.server)
        found = [row for row in rows if (row.get("user"), row.get("server")) == mine]
        return found[0] if found else await self.read_self()

    async def act(self, verb: str, body: Mapping[str, Any], *, method: str = "POST") -> None:
        """Do something with this server; raises ServiceError."""
        await self._ask(method, f"servers/{self._place}/{verb}", body)

    def find_pages(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Paths in people's browsers: this server's `page`, the `board`, their `home`."""
        base = environment.get("JUPYTERHUB_BASE_URL", "/")
        board = f"{base}services/spectrum/"
        return {"page": f"{board}gpus/{self._place}", "board": board, "home": f"{base}hub/home"}

    @property
    def _place(self) -> str:
        return f"{quote(self.user, safe='')}/{quote(self.server, safe='')}"

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        if not self.url:
            raise ServiceError("This server knows no service of Spectrum: SPECTRUM_URL is not set.")
        request = HTTPRequest(
            f"{self.url}api/{path}",
            method=method,
            body=None if body is None else json.dumps(body),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
            request_timeout=TIMEOUT,
            follow_redirects=False,
            allow_nonstandard_methods=True,  # a body with DELETE
        )
        try:
            answer = await AsyncHTTPClient().fetch(request)
            return json.loads(answer.body) if answer.body else {}
        except (HTTPClientError, OSError, ValueError) as error:
            raise ServiceError(_explain(error), wait=_read_wait(error)) from error


def _read_notices(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return list(answer.get("notices") or ())


def _explain(error: Exception) -> str:
    """The service's own sentence, if it said one."""
    response = getattr(error, "response", None)
    try:
        return str(json.loads(response.body)["message"]) if response else _silence(error)
    except (ValueError, LookupError, TypeError):
        return _silence(error)


def _read_wait(error: Exception) -> float:
    """Seconds for which the service wants to be left alone, an hour at most; 0 if it said none."""
    response = getattr(error, "response", None)
    asked = response.headers.get("Retry-After", "") if response else ""
    return min(float(asked), LONGEST_WAIT) if asked.isdecimal() else 0.0


def _silence(error: Exception) -> str:
    return f"Spectrum's service does not answer as it should ({error}): try again in a minute."
