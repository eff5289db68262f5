"""What the service asks the hub: who runs what, the end of a server, and a start in its place."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from spectrum_spawner.service.servers import Person, Server

PAGE = 200  # users a request, for which the hub does nothing else
TIMEOUT = 10.0  # seconds that one request may take
STOP_TIMEOUT = 30.0  # as the hub waits for a while for an end or a start before it answers


class HubError(Exception):
    """The hub does not answer, or not as it should; the text says how."""


class HubRefused(HubError):  # noqa: N818 - reads as the answer that it is
    """The hub understood and said no; the text is the hub's own sentence."""


class Hub:
    """A connection to the hub with the service's own token; closed by `close`."""

    def __init__(self, api_url: str, token: str) -> None:
        self._url = api_url.rstrip("/").removesuffix("/api")
        self._session = aiohttp.ClientSession(headers={"Authorization": f"token {token}"})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._session.close()

    async def list_active(self) -> list[Person]:
        """Everybody with an active server; raises HubError."""
        found: list[Person] = []
        after: int | None = 0
        while after is not None:
            models, after = await self._ask_people("GET", f"?after={after}&limit={PAGE}")
            found += map(_read_person, models)
        return found

    async def find_people(self, names: Iterable[str]) -> tuple[dict[str, Person], dict[str, str]]:
        """Those of these users that there are, with what is active, and who cannot be read, why.

        Raises HubError.
        """
        asked = sorted(set(names))
        found: dict[str, Person] = {}
        unreadable: dict[str, str] = {}
        for first in range(0, len(asked), PAGE):
            some = asked[first : first + PAGE]
            for model in (await self._ask_people("POST", body={"names": some}))[0]:
                try:
                    person = _read_person(model)
                    found[person.name] = person
                except HubError as error:
                    if not isinstance(model, dict) or not isinstance(model.get("name"), str):
                        raise
                    unreadable[model["name"]] = str(error)
        return found, unreadable

    async def find_person(self, name: str) -> Person | None:
        """One user, and what is active; None for nobody. Raises HubError."""
        found, unreadable = await self.find_people([name])
        if name in unreadable:
            raise HubError(unreadable[name])
        return found.get(name)

    async def find_server(self, user: str, name: str) -> Server | None:
        """A server that is active, by its owner and name; raises HubError."""
        person = await self.find_person(user)
        servers = person.servers if person else ()
        return next((server for server in servers if server.name == name), None)

    async def is_shared(self, user: str, server: str) -> bool:
        """Whether others may be in a server; raises HubError."""
        path = f"/api/shares/{quote(user, safe='')}/{quote(server, safe='')}"
        status, model = await self._call("GET", path)
        try:
            return status != 404 and bool(model["items"])
        except (LookupError, TypeError) as error:
            raise HubError(f"shares come without {error}") from error

    async def stop(self, user: str, server: str, *, by: str, reason: str) -> None:
        """Ask for the end of a server; that it ended already is fine. Raises HubError.

        The owner's home page tells who wanted it (`by`, an actor) and why.
        """
        errand = {"by": by, "reason": reason}
        await self._call("DELETE", _find_server(user, server), errand, timeout=STOP_TIMEOUT)

    async def start(
        self, user: str, server: str, options: Mapping[str, str], *, by: str, reason: str
    ) -> None:
        """Ask for a server; the hub checks what its owner may start now. Raises HubError.

        The answer may come before it runs: of a start that fails later the hub tells its owner.
        """
        body = {"user_options": dict(options), "by": by, "reason": reason}
        await self._call("POST", _find_server(user, server), body, timeout=STOP_TIMEOUT)

    async def _ask_people(
        self, method: str, query: str = "", body: Any = None
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Models of people, and after which there are more, from the hub's page for the service."""
        status, answer = await self._call(method, f"/spectrum/people{query}", body)
        if status == 404:
            raise HubError("it does not tell who runs what: it is of another release")
        try:
            return answer["people"], answer.get("after")
        except (LookupError, TypeError) as error:
            raise HubError(f"people come without {error}") from error

    async def _call(
        self, method: str, path: str, body: Any = None, *, timeout: float = TIMEOUT
    ) -> tuple[int, Any]:
        """One request: status and parsed answer. 404 is an answer; raises HubError."""
        try:
            async with self._session.request(
                method,
                URL(self._url + path, encoded=True),
                json=body,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as answer:
                text = await answer.text()
                if answer.status == 404 or answer.status < 300:
                    return answer.status, json.loads(text) if text.strip() else None
                raise _error(answer.status, text)
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise HubError(str(error) or type(error).__name__) from error


def _find_server(user: str, server: str) -> str:
    path = f"/api/users/{quote(user, safe='')}"
    return f"{path}/servers/{quote(server, safe='')}" if server else f"{path}/server"


def _read_person(model: dict[str, Any]) -> Person:
    try:
        return Person.from_model(model)
    except KeyError as error:
        raise HubError(f"a user comes without {error}: the service's token lacks rights") from error
    except (AttributeError, TypeError, ValueError) as error:
        raise HubError(f"a user cannot be read: {error!r}") from error


def _error(status: int, text: str) -> HubError:
    try:
        message = str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        message = f"status {status}"
    # without rights or in trouble it is the hub that is not as it should be
    return HubError(message) if status in (401, 403, 429) or status >= 500 else HubRefused(message)
