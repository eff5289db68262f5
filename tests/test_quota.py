"""A used-up quota, in the words that the person who wanted a server reads."""

from datetime import UTC, datetime
from typing import Any

import pytest

from spectrum_spawner.choice import Choice
from spectrum_spawner.owner import Owner
from spectrum_spawner.pods import Pod
from spectrum_spawner.profiles import Image, Profile
from spectrum_spawner.quota import find_holders, quota_sentence, why_over_quota
from spectrum_spawner.teams import Team

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)
IMAGE = Image(name="tf", title="TensorFlow", image="tf:1")


def make_pod(user: str, at: str = "2026-01-31T09:14:00Z", **changes: Any) -> Pod:
    record = {
        "name": f"jupyter-{user}",
        "uid": user,
        "owner": Owner(hub="spectrum", team="ops", user=user, server=""),
        "start_id": "s-1",
        "phase": "Running",
        "profile": "gpu-1",
        "created": at,
        "gpus": {GPU: 1},
    }
    return Pod(**(record | changes))


ALICE = make_pod("alice")
BOB = make_pod("bob", "2026-01-31T08:02:00Z")


def explain(
    *pods: Pod, gpus: int = 1, hard: dict[str, int] | None = None, resource: str = GPU
) -> str:
    team = Team(
        name="ops",
        uid="u",
        display_name="Ops",
        groups=frozenset({"ops"}),
        gpus_hard={GPU: 2} if hard is None else hard,
    )
    profile = Profile(
        name=f"gpu-{gpus}", title=f"{gpus} GPU", gpu=gpus, gpu_resource=resource, images=(IMAGE,)
    )
    choice = Choice(team=team, profile=profile, image=IMAGE)
    return why_over_quota(choice, pods, user="carol", now=NOW)


def test_it_is_said_who_holds_the_gpus_since_when() -> None:
    assert explain(ALICE, BOB) == (
        "Team Ops has 2 of 2 GPUs in use (bob: gpu-1 since 08:02 UTC, "
        "alice: gpu-1 since 09:14 UTC). Stop one, or request more."
    )


def test_ones_own_servers_are_called_so_and_other_days_are_named() -> None:
    mine = make_pod("carol", "2025-12-03T23:59:00Z", profile="gpu-2", gpus={GPU: 2}, deleting=True)
    assert explain(mine) == (
        "Team Ops has 2 of 2 GPUs in use (you: gpu-2 since 3 Dec 23:59 UTC, stopping). "
        "Stop one, or request more."
    )


def test_what_is_free_but_too_few_is_set_against_the_need() -> None:
    assert explain(ALICE, gpus=2) == (
        "Team Ops has 1 of 2 GPUs in use (alice: gpu-1 since 09:14 UTC), "
        "and profile 2 GPU needs 2. Stop one, or request more."
    )


@pytest.mark.parametrize(
    ("hard", "sentence"),
    [
        (2, "Team Ops may use 2 GPUs, and profile 4 GPU needs 4. Choose another, or request more."),
        (
            0,
            "Team Ops has no quota for GPUs, and profile 4 GPU needs 4. "
            "Choose another, or request more.",
        ),
    ],
)
def test_nobody_is_told_to_stop_a_server_where_that_would_not_help(
    hard: int, sentence: str
) -> None:
    assert explain(ALICE, gpus=4, hard={GPU: hard}) == sentence


@pytest.mark.parametrize(
    ("resource", "noun"),
    [
        ("nvidia.com/mig-1g.10gb", "mig-1g.10gb GPU"),
        ("amd.com/gpu", "amd.com GPU"),
        ("habana.ai/gaudi", "gaudi GPU"),
    ],
)
def test_accelerators_of_any_name_are_counted(resource: str, noun: str) -> None:
    pod = make_pod("alice", gpus={resource: 1})
    assert explain(pod, resource=resource, hard={resource: 1}).startswith(
        f"Team Ops has 1 of 1 {noun} in use (alice: "
    )
    assert explain(pod, resource=GPU, hard={resource: 1, GPU: 1}) == ""


def test_pods_that_are_over_hold_nothing() -> None:
    over = make_pod("alice", phase="Failed"), make_pod("bob", phase="Succeeded")
    assert explain(*over, ALICE) == ""
    assert find_holders([*over, ALICE, make_pod("dave", gpus={})], GPU) == [ALICE]


def test_a_quota_that_nobody_knows_is_never_used_up() -> None:
    assert explain(ALICE, BOB, hard={}) == ""
    assert explain(ALICE, BOB, gpus=0) == ""


def test_what_no_server_accounts_for_is_counted_without_a_name() -> None:
    team = Team(name="ops", uid="u", display_name="Ops", groups=frozenset({"ops"}))
    profile = Profile(name="gpu-1", title="One", gpu=1, images=(IMAGE,))
    choice = Choice(team=team, profile=profile, image=IMAGE)

    def say(*holders: Pod) -> str:
        return quota_sentence(choice, list(holders), used=2, hard=2, user="carol", now=NOW)

    assert say(ALICE) == (
        "Team Ops has 2 of 2 GPUs in use (alice: gpu-1 since 09:14 UTC, 1 more). "
        "Stop one, or request more."
    )
    assert say() == (
        "Team Ops has 2 of 2 GPUs in use (2 by other work). Stop one, or request more."
    )


def test_a_hundred_holders_with_names_of_any_length_are_still_one_sentence() -> None:
    pods = [make_pod(f"{number}\n" + "x" * 300) for number in range(100)]
    sentence = explain(*pods, hard={GPU: 100})
    assert sentence.endswith(", 94 more). Stop one, or request more.")
    assert "\n" not in sentence
    assert len(sentence) < 600
