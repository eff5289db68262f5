"""One look at all servers: each by itself, and none that somebody has just used."""

import math
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from spectrum_spawner.activity import (
    GPU,
    KERNELS,
    PROCESSES,
    Evidence,
    Kernels,
    Processes,
    Run,
    Series,
)
from spectrum_spawner.service.culling.policy import Decision, Memory, Stretch
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import GUARD, Standing, Step, extend
from spectrum_spawner.service.culling.sweep import Key, sweep

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STARTED = NOON - 10 * HOUR
RULE = Rule(name="gpu", evidence=(GPU, KERNELS, PROCESSES))
POLICY = Policy(rules=(RULE,))
NAIVE = datetime(2026, 1, 31, 12)


def make_subject(user: str, uid: str = "u-1", started: datetime = STARTED) -> Subject:
    return Subject(
        user=user,
        server="",
        team="ops",
        profile="gpu-1",
        namespace="spectrum-ops",
        pod=f"jupyter-{user}",
        run=Run(pod_uid=uid, started=started, gpus=1),
    )


def make_evidence(now: datetime, *, used: datetime = NOON - 3 * HOUR, gpu: float = 0) -> Evidence:
    series = Series(source=GPU, device="GPU-1", at=now, value=gpu, idle_since={1.0: STARTED})
    return Evidence(
        series=(series,),
        kernels=Kernels(at=now, watched_since=STARTED, last_activity=used),
        processes=Processes(at=now, watched_since=STARTED),
    )


def test_one_bad_record_stops_no_other() -> None:
    good = make_evidence(NOON)
    bad = {
        "nan": replace(good, series=(replace(good.series[0], value=math.nan),)),
        "naive": replace(good, series=(replace(good.series[0], at=NAIVE),)),
        "future": replace(good, kernels=Kernels(at=NOON + HOUR, watched_since=STARTED)),
        "nobody": Evidence(),
    }
    users = ["alice", *bad, "bob"]
    evidence = {(user, ""): bad.get(user, good) for user in users}
    found = sweep(map(make_subject, users), evidence, {}, POLICY, now=NOON)
    assert {key[0]: verdict.decision for key, verdict in found.verdicts.items()} == {
        "alice": Decision.STOP,
        **dict.fromkeys(bad, Decision.KEEP),
        "bob": Decision.STOP,
    }
    assert [(subject.user, action.step) for subject, action in found.actions] == [
        ("alice", Step.WARN),
        ("bob", Step.WARN),
    ]


def test_while_nothing_is_measured_no_gpu_server_ends() -> None:
    subject, standings = make_subject("alice"), {}
    for minute in range(0, 24 * 60, 10):
        now = NOON + minute * MINUTE
        evidence = {subject.key: replace(make_evidence(now), series=())}
        found = sweep([subject], evidence, standings, POLICY, now=now)
        standings = found.standings
        steps = [action.step for _, action in found.actions]
        assert steps == ([Step.REPORT] if minute == 120 else [])


def test_a_new_run_of_a_server_begins_anew_and_one_that_ended_is_forgotten() -> None:
    alice, bob = make_subject("alice"), make_subject("bob")
    evidence = {each.key: make_evidence(NOON) for each in (alice, bob)}
    found = sweep([alice, bob], evidence, {}, POLICY, now=NOON)
    again = make_subject("alice", uid="u-2", started=NOON)
    later = sweep([again], evidence, found.standings, POLICY, now=NOON + MINUTE)
    # it is idle since its time of grace
    idle = Stretch(by=RULE.criteria, since=NOON + RULE.grace, seen=NOON + MINUTE)
    gpu = Stretch(by=RULE.criteria, since=NOON, seen=NOON + MINUTE)
    fresh = Standing(pod_uid="u-2", memory=Memory(idle=idle, gpu=gpu))
    assert later.standings == {again.key: fresh}


def test_a_dry_run_of_another_policy_changes_nothing() -> None:
    subject = make_subject("alice")
    evidence = {subject.key: make_evidence(NOON)}
    strict = Policy(rules=(replace(RULE, name="strict", idle=2 * HOUR),))
    verdict = sweep([subject], evidence, {}, strict, now=NOON).verdicts[subject.key]
    assert (verdict.decision, verdict.rule and verdict.rule.name) == (Decision.STOP, "strict")


def test_an_idle_server_is_warned_extended_once_and_then_ended() -> None:
    subject = make_subject("alice")
    standings: dict[Key, Standing] = {}
    happened: list[tuple[int, Step]] = []
    for second in range(0, 3 * 3600, 30):
        now = NOON + second * SECOND
        if second == 300:
            standings[subject.key] = extend(standings[subject.key], subject, RULE, now=now)
        for look in (now, now + SECOND):
            found = sweep(
                [subject], {subject.key: make_evidence(look)}, standings, POLICY, now=look
            )
            standings = found.standings
            steps = [action.step for _, action in found.actions]
            happened += [(second, step) for step in steps]
            if Step.CHECK not in steps:
                break
        if happened[-1][1] is Step.STOP:
            break
    # told 10 minutes before, kept from the first end on for an hour
    assert happened == [(0, Step.WARN), (3600, Step.WARN), (4200, Step.CHECK), (4200, Step.STOP)]


def test_no_server_ends_that_was_used_less_than_five_seconds_before() -> None:
    """A thousand clicks at any moment around the end, of which the service hears at once."""
    dice, ended, spared = random.Random(6), 0, 0
    for _ in range(1000):
        subject = make_subject("alice")
        click = NOON + 10 * MINUTE + dice.uniform(-15, 15) * SECOND
        standings = sweep(
            [subject], {subject.key: make_evidence(NOON)}, {}, POLICY, now=NOON
        ).standings
        now = NOON + 10 * MINUTE + dice.uniform(0, 5) * SECOND
        for _ in range(2):  # the look at all servers, and the last one at this
            used = {subject.key: click} if click <= now else {}
            evidence = {subject.key: make_evidence(now)}
            found = sweep([subject], evidence, standings, POLICY, now=now, used_at=used)
            standings = found.standings
            steps = [action.step for _, action in found.actions]
            if Step.STOP in steps:
                assert not timedelta() <= now - click < GUARD
                ended += 1
            elif Step.CHECK not in steps:
                spared += 1
                break
            now += dice.uniform(0.01, 8) * SECOND
    assert ended > 300
    assert spared > 200
