"""Team record: who is in a team and what it may use, as read from a `Team` object."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import accounts, names
from spectrum_spawner.conditions import find_condition


@dataclass(frozen=True, kw_only=True)
class Share:
    """The claim of a team's share; it is `prepared` once it has the team's directory."""

    claim: str
    prepared: bool = False


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Scratch disks as the team is offered them: `size` such as `20Gi`; "" is the default class."""

    size: str
    storage_class: str = ""


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A directory that the team may read, by a claim in its namespace; `size` such as `150Gi`."""

    name: str
    title: str
    claim: str
    size: str = ""


@dataclass(frozen=True, kw_only=True)
class Withheld:
    """What servers of the team start without for now: `kind` is share or dataset.

    `name` is the dataset's, `why` a sentence for administrators.
    """

    kind: str
    why: str
    name: str = ""

    @property
    def title(self) -> str:
        return f"dataset “{self.name}”" if self.kind == "dataset" else "the team volume"


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The team's bucket; while it is not `ready` servers start without it."""

    name: str
    ready: bool = False


@dataclass(frozen=True, kw_only=True)
class Team:
    """One team as the hub and the controller see it.

    `namespace`, `gid`, `ready`, `granted_profiles`, `servers`, `share`, `scratch`, `datasets`,
    `bucket`, `withheld` and `missing_classes` come from the controller through the object's
    status; a team that the controller has not prepared yet has no namespace, and what it is not
    offered is None. Of `missing_classes` ("" is the default one) no home or disk can be made.
    `home_size` and `home_storage_class` are what the team asked for, where that is not the
    release's. `idle_minutes` is what the team asked for; the release's limits are not applied to
    it here.
    """

    name: str
    uid: str
    display_name: str
    groups: frozenset[str]
    leads: frozenset[str] = frozenset()
    lead_groups: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    granted_profiles: frozenset[str] = frozenset()
    default_profile: str | None = None
    idle_minutes: int | None = None
    template: str | None = None
    home_size: str | None = None
    home_storage_class: str | None = None
    share: Share | None = None
    scratch: Scratch | None = None
    datasets: tuple[Dataset, ...] = ()
    bucket: Bucket | None = None
    withheld: tuple[Withheld, ...] = ()
    missing_classes: frozenset[str] = frozenset()
    namespace: str | None = None
    gid: int | None = None
    ready: bool = False
    message: str = ""
    servers: int = 0
    gpus_used: Mapping[str, int] | None = None
    gpus_hard: Mapping[str, int] | None = None

    @property
    def lacks_share(self) -> bool:
        """Whether it is to have a share, and servers start without it for now."""
        return self.share is None and any(each.kind == "share" for each in self.withheld)

    @classmethod
    def from_object(cls, obj: Mapping[str, Any]) -> "Team":
        """Read a `Team` object as the API server gives it (a dict); absent parts get defaults."""
        metadata, spec = obj["metadata"], obj.get("spec") or {}
        status = obj.get("status") or {}
        ready = find_condition(status, "Ready")
        home = (spec.get("storage") or {}).get("home") or {}
        storage = status.get("storage") or {}
        usage = (status.get("usage") or {}).get("gpus") or {}
        return cls(
            name=metadata["name"],
            uid=metadata["uid"],
            display_name=spec.get("displayName") or metadata["name"],
            groups=_read_groups(spec.get("groups") or [metadata["name"]]),
            leads=frozenset(spec.get("leads") or []),
            lead_groups=_read_groups(spec.get("leadGroups") or []),
            profiles=frozenset(spec.get("profiles") or []),
            granted_profiles=frozenset((status.get("granted") or {}).get("profiles") or []),
            default_profile=spec.get("defaultProfile"),
            idle_minutes=(spec.get("idle") or {}).get("minutes"),
            template=spec.get("template"),
            home_size=home.get("size"),
            home_storage_class=home.get("storageClass"),
            share=_read_share(storage.get("share") or {}),
            scratch=_read_scratch(storage.get("scratch") or {}),
            datasets=tuple(map(_read_dataset, storage.get("datasets") or [])),
            bucket=_read_bucket(storage.get("bucket") or {}),
            withheld=tuple(map(_read_withheld, storage.get("withheld") or [])),
            missing_classes=frozenset(storage.get("missingClasses") or []),
            namespace=status.get("namespace"),
            gid=status.get("gid"),
            ready=ready.get("status") == "True",
            message=ready.get("message", ""),
            servers=status.get("servers", 0),
            gpus_used={key: value["used"] for key, value in usage.items()},
            gpus_hard={key: value["hard"] for key, value in usage.items() if "hard" in value},
        )

    @property
    def slug(self) -> str:
        return names.slug(self.name)


def _read_groups(groups: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(None, map(names.plain_group, groups)))


def _read_share(share: Mapping[str, Any]) -> Share | None:
    if not share.get("claim"):
        return None
    return Share(claim=share["claim"], prepared=share.get("prepared", False))


def _read_scratch(scratch: Mapping[str, Any]) -> Scratch | None:
    if not scratch.get("size"):
        return None
    return Scratch(size=scratch["size"], storage_class=scratch.get("storageClass", ""))


def _read_dataset(dataset: Mapping[str, Any]) -> Dataset:
    name = dataset["name"]
    return Dataset(
        name=name,
        title=dataset.get("title") or name,
        claim=dataset["claim"],
        size=dataset.get("size", ""),
    )


def _read_withheld(record: Mapping[str, Any]) -> Withheld:
    return Withheld(kind=record["kind"], name=record.get("name", ""), why=record["why"])


def _read_bucket(bucket: Mapping[str, Any]) -> Bucket | None:
    if not bucket.get("name"):
        return None
    return Bucket(name=bucket["name"], ready=bucket.get("ready", False))


def teams_of(user: str, groups: Iterable[str], teams: Iterable[Team]) -> list[Team]:
    """The teams that a user in `groups` belongs to, by display name; an account to its own."""
    mine, own = set(groups), accounts.team_of(user)
    found = [team for team in teams if team.groups & mine or team.name == own]
    return sorted(found, key=lambda team: (team.display_name.casefold(), team.name))


def is_lead(name: str, groups: Iterable[str], team: Team) -> bool:
    """Whether somebody in `groups` leads a team: by name while in it, or by a lead group."""
    mine = set(groups)
    return bool(team.lead_groups & mine) or (name in team.leads and bool(team.groups & mine))
