"""Profiles as values give them, and what somebody may choose."""

from typing import Any

import pytest

from spectrum_spawner.profiles import (
    Choice,
    Image,
    OptionError,
    Profile,
    ProfileError,
    allowed_profiles,
    choose,
    read_profiles,
)
from spectrum_spawner.teams import Team

IMAGES: dict[str, Any] = {
    "tensorflow": {"title": "TensorFlow 2.21", "image": "registry.example/tf:1", "python": "3.11"},
    "base": {"image": "registry.example/base:1", "pullPolicy": "Always"},
}
PROFILES: dict[str, Any] = {
    "cpu-small": {
        "title": "Small",
        "cpu": {"guarantee": "500m", "limit": 2},
        "memory": {"guarantee": "1Gi", "limit": "2Gi"},
        "sharedMemory": "256Mi",
        "images": ["tensorflow", "base"],
        "default": True,
    },
    "gpu-1": {"gpu": 1, "gpuProduct": "NVIDIA-A100", "images": ["tensorflow"]},
    "ops-only": {"images": ["base"], "teams": ["ops"]},
}


def make_team(name: str, **parts: Any) -> Team:
    return Team(name=name, uid=name, display_name=name, groups=frozenset({name}), **parts)


FLIGHT, OPS = make_team("flight"), make_team("ops")
KNOWN = read_profiles(PROFILES, IMAGES)


def test_a_profile_is_read_whole_with_sizes_as_numbers() -> None:
    tensorflow = Image(
        name="tensorflow", title="TensorFlow 2.21", image="registry.example/tf:1", python="3.11"
    )
    base = Image(name="base", title="base", image="registry.example/base:1", pull_policy="Always")
    assert read_profiles(PROFILES, IMAGES) == {
        "cpu-small": Profile(
            name="cpu-small",
            title="Small",
            cpu_guarantee=0.5,
            cpu_limit=2.0,
            memory_guarantee=2**30,
            memory_limit=2 * 2**30,
            shared_memory=256 * 2**20,
            images=(tensorflow, base),
            default=True,
        ),
        "gpu-1": Profile(
            name="gpu-1", title="gpu-1", gpu=1, gpu_product="NVIDIA-A100", images=(tensorflow,)
        ),
        "ops-only": Profile(
            name="ops-only", title="ops-only", images=(base,), teams=frozenset({"ops"})
        ),
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "1.5"}, "profiles.p.gpu: '1.5' is no whole number of GPUs"),
        ({"gpu": -1}, "profiles.p.gpu: -1 is no whole number of GPUs"),
        ({"gpu": True}, "profiles.p.gpu: True is no whole number of GPUs"),
        ({"cpu": {"guarantee": 2, "limit": 1}}, "profiles.p.cpu: the guarantee is above the limit"),
        ({"memory": {"limit": "16GB"}}, "profiles.p.memory.limit: '16GB' is no size"),
        ({"memory": {"limit": "-1Gi"}}, "profiles.p.memory.limit: '-1Gi' is no size"),
        ({"memory": {"limit": "1.5 Gi"}}, "profiles.p.memory.limit: '1.5 Gi' is no size"),
        ({"sharedMemory": "2Gi", "memory": {"limit": "1Gi"}}, "profiles.p.sharedMemory: must be"),
        ({"nodeSelectr": {}}, "profiles.p.nodeSelectr: unknown key"),
        ({"images": []}, "profiles.p.images: a profile needs a list of at least one image"),
        ({"images": ["nope"]}, "profiles.p.images: there is no image 'nope' under images"),
        ({"gpu": 2, "gpuResource": "nvidia.com/mig-1g.5gb"}, "profiles.p.gpu: a container sees"),
        ({"gpuResource": "gpu"}, "profiles.p.gpuResource: 'gpu' is no extended resource"),
    ],
)
def test_a_profile_that_cannot_be_used_is_named_by_its_place(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ProfileError) as found:
        read_profiles({"p": {"images": ["base"], **change}}, IMAGES)
    assert str(found.value).startswith(sentence)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "profiles: at least one profile is needed"),
        (["Gpu", "gpu"], "profiles: Gpu and gpu have the same slug"),
    ],
)
def test_profiles_that_do_not_go_together_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(ProfileError, match=sentence):
        read_profiles({name: {"images": ["base"]} for name in names}, IMAGES)


@pytest.mark.parametrize(
    "reference",
    [
        *("", " ", "a b", "registry.example/x@evil.example/y", "registry.example/x\n"),
        "registry.example/x@sha256:0",
    ],
)
def test_an_image_that_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(ProfileError, match=r"images\.i\.image"):
        read_profiles({"p": {"images": ["i"]}}, {"i": {"image": reference}})


def test_a_team_may_use_what_both_lists_admit() -> None:
    picky = make_team("picky", profiles=frozenset({"gpu-1", "ops-only"}))
    assert [p.name for p in allowed_profiles(FLIGHT, KNOWN)] == ["cpu-small", "gpu-1"]
    assert [p.name for p in allowed_profiles(OPS, KNOWN)] == ["cpu-small", "gpu-1", "ops-only"]
    assert [p.name for p in allowed_profiles(picky, KNOWN)] == ["gpu-1"]


def test_a_choice_needs_no_more_than_what_is_ambiguous() -> None:
    small = KNOWN["cpu-small"]
    default = Choice(team=FLIGHT, profile=small, image=small.images[0])
    assert choose({}, teams=[FLIGHT], profiles=KNOWN) == default
    assert choose({}, teams=[FLIGHT, OPS], profiles=KNOWN, last_team="flight") == default
    assert default.as_options() == {
        "team": "flight",
        "profile": "cpu-small",
        "image": "tensorflow",
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


def test_a_team_that_one_has_left_is_no_longer_the_last_one() -> None:
    with pytest.raises(OptionError, match="You are in no team"):
        choose({"team": "flight"}, teams=[], profiles=KNOWN, last_team="flight")
    assert choose({}, teams=[OPS], profiles=KNOWN, last_team="flight").team == OPS
