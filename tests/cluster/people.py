"""People at the hub's pages and API, as a browser's session would be."""

from contextlib import suppress
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests


class Person:
    """Somebody with a browser: cookies, and the hub's REST API by them."""

    def __init__(self, url: str, name: str) -> None:
        """`url` is the address that `local/up` prints; it ends in a slash."""
        self.name = name
        self._hub = urljoin(url, "hub/")
        self._service = urljoin(url, "services/spectrum/")
        self._servers = urljoin(url, f"user/{name}/")
        self._session = requests.Session()

    def __enter__(self) -> "Person":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def at(self, url: str) -> "Person":
        """The same browser, cookies and all, at another hub of this machine."""
        there = Person(url, self.name)
        there._session.close()
        there._session = self._session
        return there

    def sign_in(self, password: str) -> bool:
        """Fill in the sign-in form; whether the hub let the person in."""
        self.visit("login")
        form = {"username": self.name, "password": password, "_xsrf": self._xsrf()}
        answer = self._session.post(urljoin(self._hub, "login"), data=form, timeout=60)
        return answer.ok and not answer.url.startswith(urljoin(self._hub, "login"))

    def visit(self, page: str) -> requests.Response:
        """A page of the hub, such as `home`; the answer's URL shows where it led."""
        return self._session.get(urljoin(self._hub, page), timeout=60)

    def call(self, method: str, path: str, body: Any = None) -> requests.Response:
        """One request to the REST API; `path` starts after `/hub/api/`."""
        return self._session.request(
            method,
            urljoin(self._hub, f"api/{path}"),
            json=body,
            headers={"X-XSRFToken": self._xsrf(), "Referer": self._hub},
            timeout=60,
        )

    def follow(self, path: str) -> list[str]:
        """The lines of a stream of the REST API, as far as they come without a pause of 2 s."""
        address = urljoin(self._hub, f"api/{path}")
        lines = []
        with (
            self._session.get(
                address, headers={"Referer": self._hub}, stream=True, timeout=(10, 2)
            ) as answer,
            suppress(requests.ConnectionError),
        ):  # what a late line is to the library
            for line in answer.iter_lines(decode_unicode=True):
                lines.append(line)
        return lines

    def visit_service(self, page: str = "") -> requests.Response:
        """A page of the Spectrum service; the first one signs in there by way of the hub."""
        return self._session.get(urljoin(self._service, page), timeout=60)

    def call_service(self, method: str, path: str, body: Any = None) -> requests.Response:
        """One request to the service's API, once one of its pages was visited."""
        return self._session.request(
            method,
            urljoin(self._service, f"api/{path}"),
            json=body,
            headers={"X-XSRFToken": self._xsrf("/services/spectrum/"), "Referer": self._service},
            timeout=60,
        )

    def visit_server(self, page: str) -> requests.Response:
        """A page of a server of theirs, such as `lab` or `<server>/lab`; it signs in there."""
        return self._session.get(urljoin(self._servers, page), timeout=60)

    def call_server(
        self, method: str, path: str, body: Any = None, *, server: str = ""
    ) -> requests.Response:
        """One request to the API of a server of theirs, once one of its pages was visited."""
        base = urljoin(self._servers, f"{server}/" if server else "")
        return self._session.request(
            method,
            urljoin(base, f"api/{path}"),
            json=body,
            headers={"X-XSRFToken": self._xsrf(urlsplit(base).path), "Referer": base},
            timeout=60,
        )

    def _xsrf(self, path: str = "/hub/") -> str:
        """The token that pages below a path want back; each has a cookie of the same name."""
        found = (cookie for cookie in self._session.cookies if cookie.name == "_xsrf")
        return next(cookie.value or "" for cookie in found if cookie.path.endswith(path))
