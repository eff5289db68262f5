"""What somebody may choose, and what they are told when they may not."""

from dataclasses import replace
from typing import Any

import pytest

from spectrum_spawner.choice import Choice, OptionError, choose
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.teams import Scratch, Team

FLIGHT, OPS = (
    Team(name=name, uid=name, display_name=name, groups=frozenset({name}))
    for name in ("flight", "ops")
)
BASE = Image(name="base", title="base", image="registry.example/base:1")
TENSORFLOW = Image(name="tensorflow", title="TensorFlow", image="registry.example/tf:1")
KNOWN = {
    profile.name: profile
    for profile in (
        Profile(name="cpu-small", title="Small", images=(TENSORFLOW, BASE), default=True),
        Profile(name="gpu-1", title="One GPU", gpu=1, images=(TENSORFLOW,)),
        Profile(name="ops-only", title="For ops", images=(BASE,), teams=frozenset({"ops"})),
    )
}


def test_a_choice_needs_no_more_than_what_is_ambiguous() -> None:
    small = KNOWN["cpu-small"]
    default = Choice(team=FLIGHT, profile=small, image=small.images[0])
    assert choose({}, teams=[FLIGHT], profiles=KNOWN) == default
    assert choose({}, teams=[FLIGHT, OPS], profiles=KNOWN, last_team="flight") == default
    assert default.as_options() == {
        "team": "flight",
        "profile": "cpu-small",
        "image": "tensorflow",
        "scratch": "",
    }
    assert choose(
        {"team": "ops", "profile": "cpu-small", "image": "base"},
        teams=[FLIGHT, OPS],
        profiles=KNOWN,
    ) == Choice(team=OPS, profile=small, image=small.images[1])


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({}, 400),  # of two teams, which?
        ({"team": "flight", "profile": "nope"}, 400),
        ({"team": "flight", "profile": "ops-only"}, 403),
        ({"team": "flight", "profile": "gpu-1", "image": "base"}, 400),
        ({"team": "kube-system"}, 403),
        ({"team": "flight\n"}, 403),
        ({"team": ["flight"]}, 400),
        ({"team": "flight", "profile": {}}, 400),
        ({"team": "flight", "profile": 0}, 400),
        ({"team": "flight", "profile": None}, 400),
        ({"team": "flight", "scratch": "data"}, 403),  # the team is offered none
        ({"team": "flight", "scratch": None}, 400),
        ({"team": "flight", "scratch": True}, 400),
        ({"team": "flight", "scratch": ["data"]}, 400),
        ({"team": "flight", "scratch": {"name": "data"}}, 400),
        ({"team": "flight", "profile": "x" * 10**6}, 400),
        ({"team": "flight", "namespace": "kube-system"}, 400),
        ({"team": "flight", "node_selector": {}, "image": "base"}, 400),
    ],
)
def test_whatever_is_not_allowed_is_refused_in_one_short_sentence(
    options: dict[str, Any], status: int
) -> None:
    with pytest.raises(OptionError) as found:
        choose(options, teams=[FLIGHT, OPS], profiles=KNOWN)
    sentence = str(found.value)
    assert (found.value.status, sentence.endswith("."), len(sentence) < 400, "\n" in sentence) == (
        status,
        True,
        True,
        False,
    )


WITH_DISKS = replace(FLIGHT, scratch=Scratch(size="20Gi"))


@pytest.mark.parametrize("name", ["a", "data", "Exp_1.b", "0", "x" * 63])
def test_a_scratch_disk_is_what_its_owner_calls_it(name: str) -> None:
    choice = choose({"scratch": name}, teams=[WITH_DISKS], profiles=KNOWN)
    assert (choice.scratch, choice.as_options()["scratch"]) == (name, name)


def test_no_scratch_disk_is_one_without_a_name() -> None:
    assert choose({"scratch": ""}, teams=[FLIGHT], profiles=KNOWN).scratch == ""
    assert choose({}, teams=[WITH_DISKS], profiles=KNOWN).scratch == ""


@pytest.mark.parametrize(
    "name",
    [
        *("x" * 64, "x" * 253, "x" * 10**6, "-", "-a", "a-", ".", "..", "../a", "a/b", "a b"),
        *(
            "a\n",
            "\n",
            "\0",
            "ä",
            "\N{GRINNING FACE}",
            "\N{RIGHT-TO-LEFT OVERRIDE}a",
            "%2f",
            "$(id)",
        ),
    ],
)
def test_a_name_that_no_scratch_disk_may_have_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(OptionError) as found:
        choose({"scratch": name}, teams=[WITH_DISKS], profiles=KNOWN)
    sentence = str(found.value)
    assert (found.value.status, "\n" in sentence, len(sentence) < 400) == (400, False, True)
    assert sentence.startswith("A scratch disk cannot be called “")


def test_a_teams_own_default_comes_before_the_profiles() -> None:
    team = replace(FLIGHT, default_profile="gpu-1")
    assert choose({}, teams=[team], profiles=KNOWN).profile == KNOWN["gpu-1"]
    vanished = replace(FLIGHT, default_profile="gpu-8")
    assert choose({}, teams=[vanished], profiles=KNOWN).profile == KNOWN["cpu-small"]


@pytest.mark.parametrize(
    ("options", "teams", "request_kind"),
    [
        ({}, [], "team"),
        ({"team": "flight", "profile": "ops-only"}, [FLIGHT], "profile"),
        ({}, [replace(FLIGHT, profiles=frozenset({"gone"}))], "profile"),
        ({"team": "ops"}, [FLIGHT], ""),
        ({"profile": "nope"}, [FLIGHT], ""),
    ],
)
def test_it_is_said_which_request_would_help(
    options: dict[str, Any], teams: list[Team], request_kind: str
) -> None:
    with pytest.raises(OptionError) as found:
        choose(options, teams=teams, profiles=KNOWN)
    assert found.value.request == request_kind


def test_a_team_that_one_has_left_is_no_longer_the_last_one() -> None:
    with pytest.raises(OptionError, match="You are in no team"):
        choose({"team": "flight"}, teams=[], profiles=KNOWN, last_team="flight")
    assert choose({}, teams=[OPS], profiles=KNOWN, last_team="flight").team == OPS


def test_teams_are_called_as_on_the_pages() -> None:
    mine = [
        replace(FLIGHT, display_name="Flight"),
        replace(OPS, display_name="Operations"),
    ]
    with pytest.raises(OptionError) as found:
        choose({"team": "navy"}, teams=mine, profiles=KNOWN)
    assert str(found.value) == (
        "You are not in a team called “navy”: yours are “Flight”, “Operations” (ops)."
    )
    with pytest.raises(OptionError) as found:
        choose({}, teams=mine, profiles=KNOWN)
    assert str(found.value) == "Choose a team: you are in “Flight”, “Operations” (ops)."
    with pytest.raises(OptionError, match="not open to team “Flight”: "):
        choose({"team": "flight", "profile": "ops-only"}, teams=mine, profiles=KNOWN)
