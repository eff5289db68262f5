"""The culling policy as values give it: read whole, or refused by its place."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from spectrum_spawner.profiles import TENSORBOARD, Profile
from spectrum_spawner.service.culling.policy_values import PolicyError, read_policy
from spectrum_spawner.service.culling.rules import Exemption, Policy, Rule, Window

MINUTE = timedelta(minutes=1)
PROFILES = {
    "cpu-small": Profile(name="cpu-small", title="Small"),
    "gpu-1": Profile(name="gpu-1", title="One GPU", gpu=1),
}
GPU_RULE: dict[str, Any] = {
    "order": 10,
    "gpu": True,
    "evidence": ["gpu", "kernels", "processes", "cpu"],
}
CPU_RULE: dict[str, Any] = {"order": 20, "evidence": ["hub"], "gpu": False, "idleMinutes": 480}


def read(rules: Any = None, exemptions: Any = None) -> Policy:
    return read_policy({"rules": rules, "exemptions": exemptions}, PROFILES)


def test_a_policy_is_read_whole_in_its_order() -> None:
    nights = {"days": ["fri", "mon"], "from": "20:00", "to": "06:30", "idleMinutes": 20}
    schedule = {"timeZone": "Europe/Berlin", "windows": {"nights": nights, "off": None}}
    night = {
        **GPU_RULE,
        "order": 5,
        "teams": ["ops"],
        "profiles": ["gpu-1"],
        "idleMinutes": 90,
        "evidence": ["gpu", "kernels", "processes", "cpu", "power"],
        "gpuFloor": 2,
        "powerFloor": 80,
        "cpuFloor": 0.5,
        "graceMinutes": 5,
        "minimumMinutes": 10,
        "lifetimeMinutes": 4320,
        "warnMinutes": 12,
        "extendMinutes": 30,
        "extensions": 3,
        "holdMinutes": 600,
        "unknownMinutes": 60,
        "schedule": schedule,
    }
    course = {"until": "2026-02-28T18:00:00+01:00", "teams": ["flight"], "reason": "Exams."}
    assert read({"cpu": CPU_RULE, "gpu": GPU_RULE, "night": night}, {"course": course}) == Policy(
        rules=(
            Rule(
                name="night",
                profiles=frozenset({"gpu-1"}),
                teams=frozenset({"ops"}),
                gpu=True,
                idle=90 * MINUTE,
                evidence=("gpu", "power", "cpu", "kernels", "processes"),
                gpu_floor=2.0,
                power_floor=80.0,
                cpu_floor=0.5,
                grace=5 * MINUTE,
                minimum=10 * MINUTE,
                lifetime=72 * 60 * MINUTE,
                warn=12 * MINUTE,
                extend=30 * MINUTE,
                extensions=3,
                hold=600 * MINUTE,
                unknown=60 * MINUTE,
                zone=ZoneInfo("Europe/Berlin"),
                windows=(
                    Window(
                        name="nights",
                        days=frozenset({0, 4}),
                        start=1200,
                        end=390,
                        idle=20 * MINUTE,
                    ),
                ),
            ),
            Rule(name="gpu", gpu=True, evidence=("gpu", "cpu", "kernels", "processes")),
            Rule(name="cpu", gpu=False, evidence=("hub",), idle=480 * MINUTE),
        ),
        exemptions=(
            Exemption(
                name="course",
                until=datetime(2026, 2, 28, 17, tzinfo=UTC),
                teams=frozenset({"flight"}),
                reason="Exams.",
            ),
        ),
    )


BOARDS = {
    **PROFILES,
    "board": Profile(name="board", title="TensorBoard", kind=TENSORBOARD),
    "big-board": Profile(name="big-board", title="TensorBoard, much", kind=TENSORBOARD),
}
BOARD_RULE = Rule(
    name="tensorboard",
    profiles=frozenset({"board", "big-board"}),
    idle=240 * MINUTE,
    evidence=("hub",),
)
REST: dict[str, Any] = {"order": 30, "idleMinutes": 0, "lifetimeMinutes": 1440}


def test_a_rule_for_tensorboards_comes_first_and_takes_nothing_from_one_for_the_rest() -> None:
    rest = Rule(name="rest", idle=0 * MINUTE, lifetime=1440 * MINUTE)
    assert read_policy({"rules": {"rest": REST}}, BOARDS) == Policy(rules=(BOARD_RULE, rest))
    later = {"tensorboardIdleMinutes": 600, "rules": {"rest": REST}}
    assert read_policy(later, BOARDS) == Policy(
        rules=(replace(BOARD_RULE, idle=600 * MINUTE), rest)
    )


def test_there_is_none_at_0_minutes_or_without_tensorboards() -> None:
    assert read_policy({"tensorboardIdleMinutes": 0}, BOARDS) == Policy()
    assert read_policy({"tensorboardIdleMinutes": 240}, PROFILES) == Policy()


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"tensorboardIdleMinutes": 14},
            "culling.tensorboardIdleMinutes: must be 0, for never, or 15 at least",
        ),
        (
            {"tensorboardIdleMinutes": None},
            "culling.tensorboardIdleMinutes: None is no whole number from 0 to 527040",
        ),
        (
            {"rules": {"boards": {**CPU_RULE, "profiles": ["board"]}}},
            "culling.rules.boards: never counts, since culling.tensorboardIdleMinutes comes "
            "first; 0 takes that out",
        ),
    ],
)
def test_what_contradicts_the_rule_for_tensorboards_is_refused(
    values: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PolicyError) as refused:
        read_policy(values, BOARDS)
    assert str(refused.value) == sentence


def test_one_may_have_a_rule_of_ones_own_for_tensorboards() -> None:
    own = {**CPU_RULE, "profiles": ["board"]}
    policy = read_policy({"tensorboardIdleMinutes": 0, "rules": {"boards": own}}, BOARDS)
    assert [rule.name for rule in policy.rules] == ["boards"]


def test_nothing_is_ended_without_rules() -> None:
    assert read() == Policy()
    assert read({"gpu": None}) == Policy()


WINDOW = {"from": "20:00", "to": "06:00", "idleMinutes": 20}


def schedule(zone: object = "UTC", **windows: Any) -> dict[str, Any]:
    return {"schedule": {"timeZone": zone, "windows": windows}}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"order": None}, "order: None is no whole number"),
        ({"idleMinuts": 5}, "idleMinuts: unknown key, known are cpuFloor"),
        ({"idleMinutes": "60"}, "idleMinutes: '60' is no whole number"),
        ({"idleMinutes": 1.5}, "idleMinutes: 1.5 is no whole number"),
        ({"idleMinutes": True}, "idleMinutes: True is no whole number"),
        ({"idleMinutes": -1}, "idleMinutes: -1 is no whole number"),
        ({"idleMinutes": 10}, "idleMinutes: must be above warnMinutes"),
        ({"warnMinutes": 0}, "warnMinutes: 0 is no whole number from 1"),
        ({"warnMinutes": 20}, "warnMinutes: must be below the 15 minutes that a team may set"),
        ({"gpuFloor": 0}, "gpuFloor: 0 is no number above 0 and up to 100"),
        ({"gpuFloor": 101}, "gpuFloor: 101 is no number above 0 and up to 100"),
        ({"gpuFloor": float("nan")}, "gpuFloor: nan is no number"),
        ({"cpuFloor": "0.1"}, "cpuFloor: '0.1' is no number"),
        ({"gpu": "yes"}, "gpu: 'yes' is neither true nor false"),
        ({"teams": "ops"}, "teams: must be a list of names"),
        ({"profiles": ["gpu-2"]}, "profiles: there is no profile 'gpu-2'"),
        ({"evidence": ["gpus"]}, "evidence: there is no 'gpus', known are gpu, power"),
        ({"evidence": []}, "evidence: name what must be idle, of gpu"),
        ({"evidence": ["hub", "cpu"]}, "evidence: servers of this rule have GPUs, so gpu must be"),
        ({"evidence": ["gpu"]}, "evidence: a GPU that waits for data looks idle while a training"),
        ({"evidence": ["gpu", "kernels"]}, "evidence: a GPU that waits for data looks idle"),
        ({"evidence": ["gpu", "processes"]}, "evidence: a cell that runs would not count"),
        ({"gpu": False}, "evidence: the servers of this rule have no GPU"),
        ({"profiles": ["cpu-small"], "gpu": None}, "evidence: the servers of this rule have no"),
        ({"powerFloor": 50}, "evidence: powerFloor counts only with power among the evidence"),
        ({"evidence": ["gpu", "cpu", "power"]}, "evidence: power needs a powerFloor in watts"),
        ({"lifetimeMinutes": 10}, "lifetimeMinutes: must be above warnMinutes"),
        ({"lifetimeMinutes": 15}, "lifetimeMinutes: must be above graceMinutes"),
        (
            {"lifetimeMinutes": 60, "minimumMinutes": 60},
            "lifetimeMinutes: must be above minimumMinutes",
        ),
        (
            {"lifetimeMinutes": 60, "holdMinutes": 61},
            "holdMinutes: must not be above lifetimeMinutes",
        ),
        ({"extendMinutes": 0}, "extendMinutes: 0 is no whole number from 1"),
        ({"extensions": -1}, "extensions: -1 is no whole number"),
        ({"schedule": []}, "schedule: must be a table"),
        (schedule(None), "schedule.timeZone: a time zone such as Europe/Berlin is needed"),
        (schedule("Berlin"), "schedule.timeZone: there is no time zone 'Berlin'"),
        (schedule("../etc"), "schedule.timeZone: there is no time zone '../etc'"),
        (schedule(n={**WINDOW, "from": "8pm"}), "schedule.windows.n.from: '8pm' is no time"),
        (schedule(n={**WINDOW, "to": "24:01"}), "schedule.windows.n.to: '24:01' is no time"),
        (schedule(n={**WINDOW, "to": "20:00"}), "schedule.windows.n: it ends when it begins"),
        (schedule(n={**WINDOW, "days": ["sunday"]}), "schedule.windows.n.days: 'sunday' is none"),
        (schedule(n={**WINDOW, "idleMinutes": 9}), "schedule.windows.n.idleMinutes: must be above"),
        (schedule(n={"from": "20:00", "to": "21:00"}), "schedule.windows.n.idleMinutes: None is"),
        (
            schedule(n={**WINDOW, "days": ["sun"]}, m={**WINDOW, "from": "05:00", "days": ["mon"]}),
            "schedule.windows: n and m overlap",
        ),
    ],
)
def test_a_rule_that_cannot_be_meant_is_named_by_its_place(change: Any, sentence: str) -> None:
    with pytest.raises(PolicyError) as refused:
        read({"r": {**GPU_RULE, **change}})
    assert str(refused.value).startswith(f"culling.rules.r.{sentence}")


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        ([], "culling.rules: must be a table"),
        ({"r": "gpu"}, "culling.rules.r: must be a table"),
        (
            {"a": GPU_RULE, "b": {**CPU_RULE, "order": 10}},
            "culling.rules.b.order: rule a has 10 too",
        ),
        (
            {"a": GPU_RULE, "b": {**GPU_RULE, "order": 11, "teams": ["ops"]}},
            "culling.rules.b: never counts, since rule a comes first",
        ),
    ],
)
def test_rules_that_contradict_each_other_are_refused(rules: Any, sentence: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(sentence)):
        read(rules)


def test_a_narrower_rule_may_come_before_a_wider_one() -> None:
    narrow = {**GPU_RULE, "order": 1, "teams": ["ops"]}
    others = {**GPU_RULE, "order": 2, "teams": ["ops", "flight"]}
    policy = read({"c": {**GPU_RULE, "order": 3}, "b": others, "a": narrow})
    assert [rule.name for rule in policy.rules] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"until": None}, "until: None is no time with a zone"),
        ({"until": "2026-02-28"}, "until: '2026-02-28' is no time with a zone"),
        ({"until": "2026-02-28T18:00:00"}, "until: '2026-02-28T18:00:00' is no time with a zone"),
        ({"until": "next week"}, "until: 'next week' is no time with a zone"),
        ({"users": []}, "name users, teams or profiles"),
        ({"users": [7]}, "users: must be a list of names"),
        ({"profiles": ["x"]}, "profiles: there is no profile 'x'"),
        ({"forever": True}, "forever: unknown key"),
    ],
)
def test_an_exemption_says_for_whom_and_until_when(change: Any, sentence: str) -> None:
    record = {"until": "2026-02-28T18:00:00+01:00", "users": ["alice"], **change}
    with pytest.raises(PolicyError) as refused:
        read(None, {"e": record})
    assert re.sub(r"^culling\.exemptions\.e(\.|: )", "", str(refused.value)).startswith(sentence)


def test_a_rule_for_gpus_may_wait_for_the_first_profile_that_has_one() -> None:
    small = {"cpu-small": PROFILES["cpu-small"]}
    assert read_policy({"rules": {"r": GPU_RULE}}, small).rules[0].gpu


def test_rules_that_end_nothing_idle_need_no_evidence() -> None:
    rule = {"order": 1, "idleMinutes": 0, "lifetimeMinutes": 1440}
    assert read({"r": rule}).rules[0].lifetime == timedelta(days=1)


def test_what_would_cost_more_than_it_may_is_refused() -> None:
    """Whoever leads a team may try any policy."""
    many = {f"r{n}": {**GPU_RULE, "order": n, "teams": [f"t{n}"]} for n in range(101)}
    with pytest.raises(PolicyError, match=r"culling.rules: has 101 entries, 100 at most"):
        read(many)
    floors = {name: {**each, "gpuFloor": n + 1} for n, (name, each) in enumerate(many.items())}
    few = {name: floors[name] for name in list(floors)[:8]}
    assert len(read(few).list_floors("gpu")) == 8
    with pytest.raises(PolicyError, match=r"culling.rules: gpu has 9 floors, of which 8 can be"):
        read({name: floors[name] for name in list(floors)[:9]})
    windows = {f"w{n}": {"from": "20:00", "to": "20:01", "idleMinutes": 0} for n in range(21)}
    rule = {**GPU_RULE, "schedule": {"timeZone": "UTC", "windows": windows}}
    with pytest.raises(PolicyError, match=r"gpu.schedule.windows: has 21 entries, 20 at most"):
        read({"gpu": rule})


def test_a_policy_knows_whether_anything_is_measured() -> None:
    assert read({"gpu": GPU_RULE}).measured
    assert not read_policy({"rules": {"gpu": GPU_RULE}}, PROFILES, measured=False).measured
