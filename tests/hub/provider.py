"""A real OpenID Connect provider for tests, and a browser that signs in by it.

The provider runs in a thread of this process (package oidc-provider-mock). What it tells of a
person can be changed at any time, it can be stopped and started again with its tokens, and made
to answer with an error; each request that it got can be looked at.
"""

import io
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import aiohttp
import flask
from jupyterhub.crypto import CryptKeeper
from oidc_provider_mock import app as make_app
from traitlets.config import Config
from werkzeug.serving import make_server
from werkzeug.wrappers import Request

from local.listeners import find_free_port

CLIENT_ID = "spectrum"
CLIENT_SECRET = "a-secret-of-the-hub-alone"

Wsgi = Callable[[dict[str, Any], Any], Iterable[bytes]]


@dataclass(frozen=True)
class Asked:
    """A request that the provider got: its path and its parameters, of query and form."""

    path: str
    parameters: dict[str, str]


@dataclass
class Provider:
    """Provider at an address of its own; used as a context.

    `refresh_tokens` is whether it gives them, `broken` an HTTP status that every answer has
    from then on.
    """

    refresh_tokens: bool = True
    broken: int = 0
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.port = find_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._app = make_app(
            issue_refresh_token=self.refresh_tokens, access_token_max_age=timedelta(hours=1)
        )
        self._app.debug = False
        self._app.before_request(self._find_storage)
        self._wsgi: Wsgi = self._app.wsgi_app
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to answer, with all that it knew before."""
        self._server = make_server("127.0.0.1", self.port, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Answer no more: connections are refused."""
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._thread = None

    def tell(self, sub: str, **claims: Any) -> None:
        """Tell this of a person from now on; `name` is their user name, by default `sub`."""
        name = claims.pop("name", sub)
        answer = self._app.test_client().put(
            f"/users/{sub}", json={"preferred_username": name, **claims}
        )
        assert answer.status_code == 204

    def expire(self, sub: str) -> None:
        """Let the access tokens of a person be over; refresh tokens stay good."""
        for token in self._storage.access_tokens():
            if token.user_id == sub:
                self._storage.remove_access_token(token.token)

    def revoke(self, sub: str) -> None:
        """Take back all tokens of a person."""
        answer = self._app.test_client().post(f"/users/{sub}/revoke-tokens")
        assert answer.status_code == 204

    def count(self, path: str) -> int:
        return sum(asked.path == path for asked in self.asked)

    def make_config(self, **traits: Any) -> Config:
        """A hub that knows people by this provider alone, and lets in everybody."""
        config = Config()
        config.JupyterHub.authenticator_class = "spectrum_spawner.providers.GenericProvider"
        settings = {
            "client_id": CLIENT_ID,
            "client_secret": CLIENT_SECRET,
            "authorize_url": f"{self.url}/oauth2/authorize",
            "token_url": f"{self.url}/oauth2/token",
            "userdata_url": f"{self.url}/userinfo",
            "basic_auth": True,  # the one way in which this provider takes a refresh token
            "allow_all": True,
            **traits,
        }
        for name, value in settings.items():
            config.GenericProvider[name] = value
        return config

    def _find_storage(self) -> None:
        self._storage = flask.g.oidc_provider_mock_storage

    def _answer(self, environment: dict[str, Any], start: Any) -> Iterable[bytes]:
        body = environment["wsgi.input"].read(int(environment.get("CONTENT_LENGTH") or 0))
        request = Request({**environment, "wsgi.input": io.BytesIO(body)})
        self.asked.append(Asked(request.path, {**request.args, **request.form}))
        environment["wsgi.input"] = io.BytesIO(body)
        if self.broken:
            start(f"{self.broken} Broken", [("Content-Type", "text/plain")])
            return [b"broken"]
        return self._wsgi(environment, start)


@dataclass(frozen=True)
class Page:
    """What a browser shows: status, address and text, after all redirects."""

    status: int
    url: str
    text: str


class Browser:
    """One person's browser: cookies, redirects and forms, without scripts. Used as a context."""

    def __init__(self, hub_url: str) -> None:
        """`hub_url` has no slash at its end."""
        self.hub_url = hub_url

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def sign_in(self, sub: str) -> Page:
        """Go to the hub's sign-in, and at the provider's page say who one is."""
        page = await self.open("/hub/oauth_login?next=/hub/home")
        if "/oauth2/authorize" not in page.url:
            return page
        return await self._send("POST", page.url, data={"sub": sub})

    async def open(self, path: str) -> Page:
        return await self._send("GET", self.hub_url + path)

    async def stop_server(self, user: str, server: str = "") -> Page:
        """What the button of the home page does."""
        path = f"/servers/{server}" if server else "/server"
        return await self._send(
            "DELETE",
            f"{self.hub_url}/hub/api/users/{user}{path}",
            headers={"Referer": f"{self.hub_url}/hub/home", "X-XSRFToken": self._find_xsrf()},
        )

    async def submit(self, path: str, form: dict[str, str]) -> Page:
        """Send a form of the hub, as from its page; where that leads to is not opened."""
        await self.open(path)
        url = f"{self.hub_url}{path}"
        headers = {"Referer": url, "Origin": self.hub_url}
        data = {"_xsrf": self._find_xsrf(), **form}
        return await self._send("POST", url, data=data, headers=headers, allow_redirects=False)

    def _find_xsrf(self) -> str:
        found = [c.value for c in self._session.cookie_jar if c.key == "_xsrf"]
        return found[-1] if found else ""

    async def _send(self, method: str, url: str, **rest: Any) -> Page:
        async with self._session.request(method, url, **rest) as answer:
            return Page(answer.status, str(answer.url), await answer.text())


def set_crypt_key(letter: str) -> None:
    """Let the hub of this process encrypt with a key of its own from now on."""
    CryptKeeper.instance().keys = [letter.encode() * 32]


def read_error(page: Page) -> str:
    """The sentence that an error page of the hub says."""
    found = re.search(r"<p[^>]*>\s*(.*?)\s*</p>", page.text, re.DOTALL)
    return found[1] if found else page.text
