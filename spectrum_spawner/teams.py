"""Team record: who is in a team and what it may use, as read from a `Team` object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.conditions import find_condition


@dataclass(frozen=True, kw_only=True)
class Team:
    """One team as the hub and the controller see it.

    `namespace`, `gid` and `ready` come from the controller through the object's status;
    a team that the controller has not prepared yet has no namespace.
    """

    name: str
    uid: str
    display_name: str
    groups: frozenset[str]
    leads: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    home_size: str | None = None
    home_storage_class: str | None = None
    namespace: str | None = None
    gid: int | None = None
    ready: bool = False
    message: str = ""
    gpus_used: Mapping[str, int] | None = None
    gpus_hard: Mapping[str, int] | None = None

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> "Team":
        """Read a `Team` object as the API server gives it (a dict); absent parts get defaults."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        status = obj.get("status") or {}
        ready = find_condition(status, "Ready")
        home = (spec.get("storage") or {}).get("home") or {}
        usage = (status.get("usage") or {}).get("gpus") or {}
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            display_name=spec.get("displayName") or metadata["name"],
            groups=frozenset(spec.get("groups") or [metadata["name"]]),
            leads=frozenset(spec.get("leads") or []),
            profiles=frozenset(spec.get("profiles") or []),
            home_size=home.get("size"),
            home_storage_class=home.get("storageClass"),
            namespace=status.get("namespace"),
            gid=status.get("gid"),
            ready=ready.get("status") == "True",
            message=ready.get("message", ""),
            gpus_used={key: value["used"] for key, value in usage.items()},
            gpus_hard={key: value["hard"] for key, value in usage.items() if "hard" in value},
        )

    @property
    def slug(self) -> str:
        return names.slug(self.name)


def teams_of(groups: Iterable[str], teams: Iterable[Team]) -> list[Team]:
    """The teams that somebody in `groups` belongs to, by display name."""
    mine = set(groups)
    found = [team for team in teams if team.groups & mine]
    return sorted(found, key=lambda team: (team.display_name.casefold(), team.name))
