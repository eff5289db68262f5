"""Choice record: team, profile, image and scratch disk of one start, authorised for who asked."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner.profiles import Image, Profile, allowed_profiles, default_profile
from spectrum_spawner.teams import Team

LONGEST_DISK = 63  # characters of a scratch disk's name

_OPTIONS = ("team", "profile", "image", "scratch")
_DISK = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")


class OptionError(ValueError):
    """What somebody asked for is unknown, malformed or not theirs; one sentence for them.

    `status` is the HTTP status that fits: 400 for nonsense, 403 for somebody else's. `request`
    is the kind of request that would change the answer, if one would: `team` or `profile`.
    """

    def __init__(self, sentence: str, *, status: int = 400, request: str = "") -> None:
        super().__init__(sentence)
        self.status = status
        self.request = request


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A start that has been authorised: which team pays, which profile, which image.

    `scratch` is what its owner calls the scratch disk to be mounted, "" for none.
    """

    team: Team
    profile: Profile
    image: Image
    scratch: str = ""

    def as_options(self) -> dict[str, str]:
        return {
            "team": self.team.name,
            "profile": self.profile.name,
            "image": self.image.name,
            "scratch": self.scratch,
        }


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
    return Choice(
        team=team,
        profile=profile,
        image=_choose_image(options.get("image"), profile),
        scratch=_choose_scratch(options.get("scratch", ""), team),
    )


def is_disk_name(name: str) -> bool:
    """Whether a scratch disk may be called so."""
    return len(name) <= LONGEST_DISK and _DISK.fullmatch(name) is not None


def _check_shape(options: Mapping[str, Any]) -> None:
    extra = sorted(str(key) for key in options if key not in _OPTIONS)
    if extra:
        raise OptionError(
            f"Unknown option {_quoted(extra)}: "
            "a server is chosen by team, profile, image and scratch only."
        )
    for key, value in options.items():
        if not isinstance(value, str):
            raise OptionError(f"Option {key} must be a string, not {type(value).__name__}.")


def _choose_team(name: str | None, teams: list[Team], last: object) -> Team:
    if not teams:
        raise OptionError(
            "You are in no team, so there is no place to start a server: "
            "ask a cluster administrator to add you to one, or ask for a team.",
            status=403,
            request="team",
        )
    mine = {team.name: team for team in teams}
    if name is None:
        remembered = last if isinstance(last, str) and last in mine else None
        name = remembered or (teams[0].name if len(teams) == 1 else None)
    if name is None:
        raise OptionError(f"Choose a team: you are in {_say_teams(teams)}.")
    if name not in mine:
        raise OptionError(
            f"You are not in a team called {_quoted([name])}: yours are {_say_teams(teams)}.",
            status=403,
        )
    return mine[name]


def _choose_profile(name: str | None, team: Team, profiles: Mapping[str, Profile]) -> Profile:
    allowed = {profile.name: profile for profile in allowed_profiles(team, profiles)}
    if not allowed:
        raise OptionError(
            f"Team {_quoted([team.display_name])} may use no profile yet: "
            "ask a cluster administrator.",
            status=403,
            request="profile",
        )
    if name is None:
        chosen = default_profile(allowed.values(), preferred=team.default_profile)
        assert chosen is not None
        return chosen
    if name in allowed:
        return allowed[name]
    if name in profiles:
        raise OptionError(
            f"Profile {_quoted([name])} is not open to team {_quoted([team.display_name])}: "
            f"choose one of {_quoted(allowed)}.",
            status=403,
            request="profile",
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


def _choose_scratch(name: str, team: Team) -> str:
    if not name:
        return ""
    if not is_disk_name(name):
        raise OptionError(
            f"A scratch disk cannot be called {_quoted([name])}: letters, digits, “-”, “_” and "
            f"“.” make its name, at most {LONGEST_DISK}, with a letter or digit at either end."
        )
    if team.scratch is None:
        raise OptionError(
            f"Team {_quoted([team.display_name])} is offered no scratch disks: start without one.",
            status=403,
        )
    return name


def _say_teams(teams: Iterable[Team]) -> str:
    """Titles, each with the name by which it is asked for where one cannot tell that from it."""
    return ", ".join(
        _quoted([team.display_name])
        + ("" if team.name == team.display_name.casefold() else f" ({team.name})")
        for team in teams
    )


def _quoted(words: Iterable[str], *, longest: int = 80) -> str:
    """Words for a sentence; what a person typed is cut, and control characters do not pass."""
    shown = []
    for word in words:
        clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in word)
        shown.append(f"“{clean[:longest]}…”" if len(clean) > longest else f"“{clean}”")
    return ", ".join(shown)
