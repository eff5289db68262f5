"""A person with a browser that shows nothing: cookies, redirects, forms."""

import json
import re
from dataclasses import dataclass
from html import unescape
from typing import Any, Self

import aiohttp
from yarl import URL

PREFIX = "/services/spectrum/"


@dataclass(frozen=True)
class Shown:
    """What came back; `path` is where redirects led to."""

    status: int
    path: str
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def problem(self) -> str:
        """The sentence that says what went wrong, on a page or of the API."""
        if self.text.startswith("{"):
            return self.body["message"]
        found = re.search(r'role="alert"[^>]*>([^<]*)<', self.text)
        return unescape(found[1]) if found else ""


class Browser:
    """Use as an async context manager; `url` is the address of hub and service."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def open(self, path: str = "") -> Shown:
        """Visit a path of the service."""
        return await self._ask("GET", self._url + PREFIX + path)

    async def send(self, path: str, **fields: str) -> Shown:
        """Send a form of the service."""
        return await self._ask("POST", self._url + PREFIX + path, self._with_xsrf(fields))

    async def send_to_hub(self, path: str, **fields: str) -> Shown:
        return await self._ask("POST", self._url + path, fields)

    async def call(self, method: str, path: str, body: Any = None) -> Shown:
        """Call the service's API as a page would."""
        url = f"{self._url}{PREFIX}api/{path}"
        return await self._ask(method, url, body and json.dumps(body), self._xsrf())

    async def sign_in(self, name: str) -> Shown:
        """Visit the service, and sign in at the hub where it leads to."""
        asked = await self.open()
        form = re.search(r'<form[^>]*action="([^"]+)"', asked.text)
        token = re.search(r'name="_xsrf"\s+value="([^"]+)"', asked.text)
        assert form, asked
        assert token, asked
        fields = {"username": name, "password": "any", "_xsrf": token[1]}
        return await self.send_to_hub(unescape(form[1]), **fields)

    def _xsrf(self) -> str:
        cookies = self._session.cookie_jar.filter_cookies(URL(self._url + PREFIX))
        return cookies["_xsrf"].value if "_xsrf" in cookies else ""

    def _with_xsrf(self, fields: dict[str, str]) -> dict[str, str]:
        return {"_xsrf": self._xsrf(), **fields}

    async def _ask(self, method: str, url: str, data: Any = None, xsrf: str = "") -> Shown:
        headers = {"X-XSRFToken": xsrf} if xsrf else {}
        async with self._session.request(method, url, data=data, headers=headers) as answer:
            return Shown(answer.status, answer.url.path, await answer.text())
