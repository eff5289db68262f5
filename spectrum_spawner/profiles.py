"""Profile record: what a server may be made of, and which teams may use it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from spectrum_spawner.teams import Team


@dataclass(frozen=True, kw_only=True)
class Image:
    """One image that a server may run."""

    name: str
    title: str
    image: str
    python: str = ""
    pull_policy: str = "IfNotPresent"


# What runs in a server: JupyterLab, or TensorBoard for the folder of the team.
LAB, TENSORBOARD = KINDS = ("lab", "tensorboard")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One size and `kind` of server. CPU in cores, memory in bytes; `None` means no limit."""

    name: str
    title: str
    kind: str = LAB
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


def allowed_profiles(team: Team, profiles: Mapping[str, Profile]) -> list[Profile]:
    """The profiles that members of a team may start, in the order of the values."""
    return [profile for profile in profiles.values() if is_allowed(team, profile)]


def cpu_profiles(team: Team, profiles: Mapping[str, Profile]) -> list[Profile]:
    """Those of them on which work goes on without a GPU."""
    return [each for each in allowed_profiles(team, profiles) if not each.gpu and each.kind == LAB]


def is_allowed(team: Team, profile: Profile) -> bool:
    """Whether a team may use a profile: a grant opens it, else both lists must admit it."""
    if profile.name in team.granted_profiles:
        return True
    by_team = not team.profiles or profile.name in team.profiles
    by_profile = not profile.teams or team.name in profile.teams
    return by_team and by_profile


def default_profile(profiles: Iterable[Profile], preferred: str | None = None) -> Profile | None:
    """The profile that is selected before anybody chose.

    The `preferred` one, such as the team's default, if it is among them; else the marked one,
    else the first.
    """
    allowed = list(profiles)
    by_team = (p for p in allowed if p.name == preferred)
    marked = (p for p in allowed if p.default)
    return next(chain(by_team, marked, allowed), None)
