"""Server and person records: who runs what now, as the hub's REST API tells."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from spectrum_spawner.service.moments import read_moment


@dataclass(frozen=True, kw_only=True)
class Server:
    """A server that is active. `name` is "" for a person's default server.

    `team`, `profile`, `image` and `scratch` are names as chosen at the start, `pending` is "spawn"
    or "stop" while that lasts.
    """

    user: str
    name: str
    team: str
    profile: str
    image: str = ""
    scratch: str = ""
    started: datetime | None = None
    last_activity: datetime | None = None
    pending: str = ""

    @property
    def title(self) -> str:
        """How sentences call it: `alice`, or `alice/gpu` for a named server."""
        return f"{self.user}/{self.name}" if self.name else self.user


@dataclass(frozen=True, kw_only=True)
class Person:
    """A user of the hub, the groups of now, and what is active."""

    name: str
    groups: frozenset[str]
    servers: tuple[Server, ...] = ()

    @classmethod
    def from_model(cls, model: Mapping[str, Any]) -> "Person":
        """Read a user as the hub's REST API gives it."""
        name = model["name"]
        return cls(
            name=name,
            groups=frozenset(model["groups"]),
            servers=tuple(_read_server(name, each) for each in model["servers"].values()),
        )


def _read_server(user: str, model: Mapping[str, Any]) -> Server:
    options = model.get("user_options") or {}
    return Server(
        user=user,
        name=model["name"],
        team=_text(options.get("team")),
        profile=_text(options.get("profile")),
        image=_text(options.get("image")),
        scratch=_text(options.get("scratch")),
        started=_moment(model.get("started")),
        last_activity=_moment(model.get("last_activity")),
        pending=model.get("pending") or "",
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _moment(text: str | None) -> datetime | None:
    return read_moment(text) if text else None
