"""Asking the service's API with somebody's token of JupyterHub."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

TIMEOUT = 60.0  # seconds that an answer may take, such as to a dry run of many servers


class ClientError(Exception):
    """The service refuses, or does not answer; the text is a sentence for people."""


class _Stay(HTTPRedirectHandler):
    """Follows nothing: a token that is sent on is sent to somebody else."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Client:
    """`url` is the service's own, as browsers have it."""

    url: str
    token: str = field(repr=False)

    def get(self, path: str, query: Mapping[str, str]) -> Any:
        """An answer; what is empty in the query is left out. Raises ClientError."""
        asked = urlencode({key: value for key, value in query.items() if value})
        return self.ask("GET", f"{path}?{asked}" if asked else path)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """An answer, None for an empty one; raises ClientError."""
        request = Request(
            f"{self.url.rstrip('/')}/api/{path}",
            method=method,
            data=None if body is None else json.dumps(body, default=str).encode(),
            headers={"Authorization": f"token {self.token}", "Content-Type": "application/json"},
        )
        try:
            with build_opener(_Stay).open(request, timeout=TIMEOUT) as answer:
                text = answer.read()
                return json.loads(text) if text else None
        except HTTPError as error:
            with error:
                raise ClientError(_read_refusal(error)) from error
        except (OSError, HTTPException, ValueError) as error:
            raise ClientError(f"{self.url} does not answer as it should: {error}.") from error


def _read_refusal(error: HTTPError) -> str:
    """The service's own sentence, if it said one."""
    try:
        return str(json.loads(error.read())["message"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"{error.url} does not answer as it should: {error.code} {error.reason}."
