"""Profile record: what a server may be made of, who may use it, and what it means for a pod.

Profiles and images come from Helm values (`profiles.<name>`, `images.<name>`). Everything that
can be wrong with them is found here, when they are read, and named by its place; nothing is
left to be found by the first person who starts a server.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.teams import Team

_MEMORY_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti)\Z")
_MILLI_CPU = re.compile(r"([0-9]+)m\Z")
_OPTIONS = ("team", "profile", "image")


class ProfileError(ValueError):
    """A profile or image in the values cannot be used; the text says where and why."""


class OptionError(ValueError):
    """What somebody asked for is unknown, malformed or not theirs; one sentence for them.

    `status` is the HTTP status that fits: 400 for nonsense, 403 for somebody else's.
    """

    def __init__(self, sentence: str, *, status: int = 400) -> None:
        super().__init__(sentence)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image that a server may run."""

    name: str
    title: str
    image: str
    python: str = ""
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One size of server. CPU in cores, memory in bytes; `None` means no limit."""

    name: str
    title: str
    description: str = ""
    gpu: int = 0
    gpu_resource: str = "nvidia.com/gpu"
    gpu_product: str = ""
    cpu_guarantee: float | None = None
    cpu_limit: float | None = None
    memory_guarantee: int | None = None
    memory_limit: int | None = None
    shared_memory: int = 0
    images: tuple[Image, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    teams: frozenset[str] = frozenset()
    default: bool = False


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A start that has been authorised: which team pays, which profile, which image."""

    team: Team
    profile: Profile
    image: Image

    def as_options(self) -> dict[str, str]:
        return {"team": self.team.name, "profile": self.profile.name, "image": self.image.name}


def read_profiles(profiles: Mapping[str, Any], images: Mapping[str, Any]) -> dict[str, Profile]:
    """Profiles by name from the values tables; raises ProfileError naming profile and field."""
    known = {name: _read_image(name, record) for name, record in images.items()}
    found = {name: _read_profile(name, record, known) for name, record in profiles.items()}
    if not found:
        raise ProfileError("profiles: at least one profile is needed")
    defaults = sorted(name for name, profile in found.items() if profile.default)
    if len(defaults) > 1:
        raise ProfileError(f"profiles: only one may be the default, not {' and '.join(defaults)}")
    by_slug: dict[str, str] = {}
    for name in found:
        other = by_slug.setdefault(names.slug(name.lower()), name)
        if other != name:
            raise ProfileError(f"profiles: {other} and {name} have the same slug")
    return found


def allowed_profiles(team: Team, profiles: Mapping[str, Profile]) -> list[Profile]:
    """The profiles that members of a team may start, in the order of the values."""
    return [profile for profile in profiles.values() if is_allowed(team, profile)]


def is_allowed(team: Team, profile: Profile) -> bool:
    """Whether a team may use a profile: both the team's list and the profile's must admit it."""
    by_team = not team.profiles or profile.name in team.profiles
    by_profile = not profile.teams or team.name in profile.teams
    return by_team and by_profile


def choose(
    options: Mapping[str, Any],
    *,
    teams: Iterable[Team],
    profiles: Mapping[str, Profile],
    last_team: object = None,
) -> Choice:
    """Authorise one start.

    `options` is what the person sent, `teams` the teams that the *owner of the server* is in
    now, `last_team` what was saved of the last start and may be anything. Every value is
    compared whole with what is allowed; nothing is coerced. Raises OptionError; creates nothing.
    """
    _check_shape(options)
    team = _choose_team(options.get("team"), list(teams), last_team)
    profile = _choose_profile(options.get("profile"), team, profiles)
    return Choice(team=team, profile=profile, image=_choose_image(options.get("image"), profile))


def default_profile(profiles: Iterable[Profile]) -> Profile | None:
    """The profile that is selected before anybody chose: the marked one, else the first."""
    allowed = list(profiles)
    return next((p for p in allowed if p.default), allowed[0] if allowed else None)


def _check_shape(options: Mapping[str, Any]) -> None:
    extra = sorted(str(key) for key in options if key not in _OPTIONS)
    if extra:
        raise OptionError(
            f"Unknown option {_quoted(extra)}: a server is chosen by team, profile and image only."
        )
    for key, value in options.items():
        if not isinstance(value, str):
            raise OptionError(f"Option {key} must be a string, not {type(value).__name__}.")


def _choose_team(name: str | None, teams: list[Team], last: object) -> Team:
    if not teams:
        raise OptionError(
            "You are in no team, so there is no place to start a server: "
            "ask a cluster administrator to add you to one.",
            status=403,
        )
    mine = {team.name: team for team in teams}
    if name is None:
        remembered = last if isinstance(last, str) and last in mine else None
        name = remembered or (teams[0].name if len(teams) == 1 else None)
    if name is None:
        raise OptionError(f"Choose a team: you are in {_quoted(mine)}.")
    if name not in mine:
        raise OptionError(
            f"You are not in a team called {_quoted([name])}: yours are {_quoted(mine)}.",
            status=403,
        )
    return mine[name]


def _choose_profile(name: str | None, team: Team, profiles: Mapping[str, Profile]) -> Profile:
    allowed = {profile.name: profile for profile in allowed_profiles(team, profiles)}
    if not allowed:
        raise OptionError(
            f"Team {_quoted([team.name])} may use no profile yet: ask a cluster administrator.",
            status=403,
        )
    if name is None:
        chosen = default_profile(allowed.values())
        assert chosen is not None
        return chosen
    if name in allowed:
        return allowed[name]
    if name in profiles:
        raise OptionError(
            f"Profile {_quoted([name])} is not open to team {_quoted([team.name])}: "
            f"choose one of {_quoted(allowed)}.",
            status=403,
        )
    raise OptionError(f"There is no profile {_quoted([name])}: choose one of {_quoted(allowed)}.")


def _choose_image(name: str | None, profile: Profile) -> Image:
    allowed = {image.name: image for image in profile.images}
    if name is None:
        return profile.images[0]
    if name not in allowed:
        raise OptionError(
            f"Profile {_quoted([profile.name])} has no image {_quoted([name])}: "
            f"choose one of {_quoted(allowed)}."
        )
    return allowed[name]


def _quoted(words: Iterable[str], *, longest: int = 80) -> str:
    """Words for a sentence; what a person typed is cut, and control characters do not pass."""
    shown = []
    for word in words:
        clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in word)
        shown.append(f"“{clean[:longest]}…”" if len(clean) > longest else f"“{clean}”")
    return ", ".join(shown)


def _read_image(name: str, record: Mapping[str, Any]) -> Image:
    place = f"images.{name}"
    _refuse_unknown(place, record, {"title", "image", "python", "pullPolicy"})
    reference = record.get("image")
    if not isinstance(reference, str) or not re.match(
        r"[^\s@]+(@sha256:[0-9a-f]{64})?\Z", reference
    ):
        raise ProfileError(f"{place}.image: {reference!r} is no image reference")
    return Image(
        name=name,
        title=str(record.get("title") or name),
        image=reference,
        python=str(record.get("python") or ""),
        pull_policy=str(record.get("pullPolicy") or "IfNotPresent"),
    )


_PROFILE_KEYS = {
    "title", "description", "gpu", "gpuResource", "gpuProduct", "cpu", "memory", "sharedMemory",
    "images", "nodeSelector", "tolerations", "teams", "default",
}  # fmt: skip


def _read_profile(name: str, record: Mapping[str, Any], images: Mapping[str, Image]) -> Profile:
    place = f"profiles.{name}"
    _refuse_unknown(place, record, _PROFILE_KEYS)
    cpu, memory = record.get("cpu") or {}, record.get("memory") or {}
    _refuse_unknown(f"{place}.cpu", cpu, {"guarantee", "limit"})
    _refuse_unknown(f"{place}.memory", memory, {"guarantee", "limit"})
    profile = Profile(
        name=name,
        title=str(record.get("title") or name),
        description=str(record.get("description") or ""),
        gpu=_read_count(f"{place}.gpu", record.get("gpu", 0)),
        gpu_resource=_read_resource(f"{place}.gpuResource", record.get("gpuResource")),
        gpu_product=str(record.get("gpuProduct") or ""),
        cpu_guarantee=_optional(_read_cpu, f"{place}.cpu.guarantee", cpu.get("guarantee")),
        cpu_limit=_optional(_read_cpu, f"{place}.cpu.limit", cpu.get("limit")),
        memory_guarantee=_optional(
            read_memory, f"{place}.memory.guarantee", memory.get("guarantee")
        ),
        memory_limit=_optional(read_memory, f"{place}.memory.limit", memory.get("limit")),
        shared_memory=_optional(read_memory, f"{place}.sharedMemory", record.get("sharedMemory"))
        or 0,
        images=_read_images(f"{place}.images", record.get("images"), images),
        node_selector=dict(record.get("nodeSelector") or {}),
        tolerations=tuple(record.get("tolerations") or ()),
        teams=frozenset(record.get("teams") or ()),
        default=bool(record.get("default", False)),
    )
    _check_sizes(place, profile)
    return profile


def _check_sizes(place: str, profile: Profile) -> None:
    for what, guarantee, limit in (
        ("cpu", profile.cpu_guarantee, profile.cpu_limit),
        ("memory", profile.memory_guarantee, profile.memory_limit),
    ):
        if guarantee is not None and limit is not None and guarantee > limit:
            raise ProfileError(f"{place}.{what}: the guarantee is above the limit")
    if profile.memory_limit is not None and profile.shared_memory >= profile.memory_limit:
        raise ProfileError(
            f"{place}.sharedMemory: must be below memory.limit, since it counts as memory in use"
        )
    if "/mig-" in profile.gpu_resource and profile.gpu > 1:
        raise ProfileError(
            f"{place}.gpu: a container sees one MIG slice only, so the count must be 1"
        )


def _refuse_unknown(place: str, record: object, known: set[str]) -> None:
    if not isinstance(record, Mapping):
        raise ProfileError(f"{place}: must be a table")
    for key in record:
        if key not in known:
            raise ProfileError(f"{place}.{key}: unknown key, known are {', '.join(sorted(known))}")


def _optional(read: Any, place: str, value: object) -> Any:
    return None if value is None or value == "" else read(place, value)


def _read_count(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProfileError(f"{place}: {value!r} is no whole number of GPUs")
    return value


def _read_resource(place: str, value: object) -> str:
    resource = "nvidia.com/gpu" if value is None else value
    if not isinstance(resource, str) or not re.match(
        r"[a-z0-9.-]+/[a-z0-9][a-z0-9._-]*\Z", resource
    ):
        raise ProfileError(f"{place}: {value!r} is no extended resource such as nvidia.com/gpu")
    return resource


def _read_cpu(place: str, value: object) -> float:
    if isinstance(value, str) and (match := _MILLI_CPU.match(value)):
        return int(match[1]) / 1000
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ProfileError(f"{place}: {value!r} is no number of cores such as 2, 0.5 or 500m")
    return float(value)


def read_memory(place: str, value: object) -> int:
    """Bytes of a size such as `2Gi`; `16GB`, `1.5 Gi` and `-1G` are refused by name."""
    match = _MEMORY.match(value) if isinstance(value, str) else None
    if not match:
        raise ProfileError(f"{place}: {value!r} is no size such as 512Mi or 2Gi")
    return int(float(match[1]) * _MEMORY_UNITS[match[2]])


def _read_images(place: str, value: object, known: Mapping[str, Image]) -> tuple[Image, ...]:
    if not isinstance(value, list) or not value:
        raise ProfileError(f"{place}: a profile needs a list of at least one image")
    for name in value:
        if name not in known:
            raise ProfileError(f"{place}: there is no image {name!r} under images")
    return tuple(known[name] for name in value)
