"""What a server has coming, by rule and evidence."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrum_spawner.activity import (
    CPU,
    FRESH,
    GPU,
    HUB,
    KERNELS,
    PROCESSES,
    Answer,
    Evidence,
    Hold,
    HubActivity,
    Kernels,
    Process,
    Processes,
    Run,
    Series,
)
from spectrum_spawner.service.culling.policy import Cause, Decision, Memory, Stretch, Verdict, judge
from spectrum_spawner.service.culling.rules import Exemption, Policy, Rule, Subject, Window

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)  # a Saturday
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
STARTED = NOW - 10 * HOUR
AT = NOW - MINUTE / 2
NOTHING = Memory()
RULE = Rule(name="gpu", gpu=True, evidence=(GPU, CPU, KERNELS, PROCESSES))
SUBJECT = Subject(
    user="alice",
    server="",
    team="ops",
    profile="gpu-1",
    namespace="spectrum-ops",
    pod="jupyter-alice",
    run=Run(pod_uid="u-1", started=STARTED, gpus=1),
)


def make_evidence(*, idle: timedelta = 3 * HOUR, gpu: float = 0.0, **parts: Any) -> Evidence:
    """A server in which nothing was done for a time, but for what is given."""
    since = NOW - idle
    series = tuple(
        Series(
            source=source,
            device=source,
            at=AT,
            value=value,
            idle_since={floor: since},
        )
        for source, value, floor in ((GPU, gpu, 1.0), (CPU, 0.0, 0.1))
    )
    evidence = Evidence(
        series=series,
        kernels=Kernels(at=AT, watched_since=STARTED, last_activity=since),
        processes=Processes(at=AT, watched_since=STARTED, last_worked=since),
        hub=HubActivity(at=AT, last_activity=AT),  # a tab is open
    )
    return replace(evidence, **parts)


def look(
    evidence: Evidence,
    *,
    rule: Rule = RULE,
    now: datetime = NOW,
    subject: Subject = SUBJECT,
    memory: Memory = NOTHING,
    **policy: Any,
) -> Verdict:
    return judge(subject, evidence, Policy(rules=(rule,), **policy), now=now, memory=memory)


def decide(evidence: Evidence, **rest: Any) -> tuple[Decision, Cause]:
    verdict = look(evidence, **rest)
    return verdict.decision, verdict.cause


STOP = (Decision.STOP, Cause.IDLE)
WARN = (Decision.WARN, Cause.IDLE)
IDLE = (Decision.KEEP, Cause.IDLE)
BUSY = (Decision.KEEP, Cause.BUSY)
UNKNOWN = (Decision.KEEP, Cause.UNKNOWN)
HELD = (Decision.KEEP, Cause.HELD)


def kernels(**change: Any) -> Kernels:
    record = {"at": AT, "watched_since": STARTED, "last_activity": NOW - 3 * HOUR}
    return Kernels(**(record | change))


def processes(*found: Process) -> Processes:
    return Processes(at=AT, watched_since=STARTED, found=found)


@pytest.mark.parametrize(
    ("what", "evidence", "expected"),
    [
        ("an idle GPU with an open tab", make_evidence(), STOP),
        ("idle for 55 minutes", make_evidence(idle=55 * MINUTE), WARN),
        ("idle for 49 minutes", make_evidence(idle=49 * MINUTE), IDLE),
        ("idle for exactly an hour", make_evidence(idle=HOUR), STOP),
        ("a GPU that works, nobody at the browser", make_evidence(gpu=70), BUSY),
        ("a cell that prints nothing", make_evidence(kernels=kernels(busy=1)), BUSY),
        (
            "nohup training that waits for data",
            make_evidence(processes=processes(Process(name="train", cpu=0.0, works=True))),
            BUSY,
        ),
        (
            "preprocessing on the CPU",
            make_evidence(processes=processes(Process(name="prepare", cpu=2.0, works=True))),
            BUSY,
        ),
        (
            "a notebook that holds all GPU memory",
            make_evidence(processes=processes(Process(name="k", cpu=0))),
            STOP,
        ),
        ("no report", make_evidence(kernels=None, processes=None), UNKNOWN),
        ("no GPU metrics", make_evidence(series=()), UNKNOWN),
        ("a stale report", make_evidence(kernels=kernels(at=NOW - HOUR)), UNKNOWN),
        ("busy beside unknown", make_evidence(series=(), kernels=kernels(busy=1)), BUSY),
        ("nothing known at all", Evidence(), UNKNOWN),
    ],
)
def test_gpu_servers_by_default(what: str, evidence: Evidence, expected: Any) -> None:
    assert decide(evidence) == expected, what


def test_a_gpu_that_works_for_seconds_every_ten_minutes_keeps_the_server() -> None:
    """Between checkpoints, seen whole by the windowed maximum."""
    assert decide(make_evidence(idle=9 * MINUTE)) == IDLE


def test_when_a_training_ends_the_whole_time_begins_anew() -> None:
    verdict = look(make_evidence(), memory=Memory(last_busy=NOW - MINUTE))
    assert (verdict.decision, verdict.idle_since) == (Decision.KEEP, NOW - MINUTE)
    assert verdict.ends_at == NOW + 59 * MINUTE


def test_a_verdict_says_when_why_and_on_what_evidence() -> None:
    verdict = look(make_evidence(idle=55 * MINUTE))
    assert verdict.text == (
        "This server has done nothing since 2026-01-31 11:05 UTC (gpu: 0 %, cpu: 0 cores, "
        "kernels: 0 busy, processes: none works): rule gpu ends what is idle for 1 h."
    )
    assert (verdict.warn_at, verdict.ends_at) == (NOW - 5 * MINUTE, NOW + 5 * MINUTE)
    kept = json.loads(json.dumps(verdict.as_dict()))
    assert kept["ends_at"] == "2026-01-31T12:05:00+00:00"
    assert [each["source"] for each in kept["evidence"]] == ["gpu", "cpu", "kernels", "processes"]


def test_servers_without_a_gpu_are_not_asked_for_one() -> None:
    subject = replace(SUBJECT, run=replace(SUBJECT.run, gpus=0))
    rule = Rule(name="cpu", evidence=(GPU, HUB))
    gone = HubActivity(at=AT, last_activity=NOW - 2 * HOUR)
    assert decide(make_evidence(), rule=rule, subject=subject) == BUSY  # the tab
    assert decide(Evidence(hub=gone), rule=rule, subject=subject) == STOP


def test_nothing_counts_as_idle_before_the_grace_is_over() -> None:
    subject = replace(SUBJECT, run=replace(SUBJECT.run, started=NOW - 70 * MINUTE))
    assert decide(make_evidence(), subject=subject) == WARN
    assert decide(make_evidence(), subject=subject, rule=replace(RULE, grace=HOUR)) == IDLE


def test_no_idle_server_ends_before_its_minimum() -> None:
    verdict = look(make_evidence(), rule=replace(RULE, minimum=12 * HOUR))
    assert (verdict.decision, verdict.ends_at) == (Decision.KEEP, STARTED + 12 * HOUR)


@pytest.mark.parametrize(
    ("wish", "minutes"), [(None, 60), (30, 30), (5, 15), (480, 480), (10**6, 480)]
)
def test_a_team_sets_its_idle_time_within_the_limits(wish: int | None, minutes: int) -> None:
    verdict = look(make_evidence(idle=5 * MINUTE), subject=replace(SUBJECT, idle_minutes=wish))
    assert verdict.ends_at == NOW + (minutes - 5) * MINUTE


def test_where_no_idle_server_ends_a_wish_changes_nothing() -> None:
    rule = replace(RULE, idle=timedelta())
    verdict = look(make_evidence(), rule=rule, subject=replace(SUBJECT, idle_minutes=15))
    assert (verdict.decision, verdict.ends_at) == (Decision.KEEP, None)
    assert verdict.text.endswith("no rule ends it for that now.")


NIGHTS = Window(name="nights", days=frozenset(range(5)), start=20 * 60, end=6 * 60, idle=HOUR / 4)
WEEKEND = Window(name="weekend", days=frozenset({5, 6}), start=0, end=24 * 60, idle=2 * HOUR)
SCHEDULED = replace(RULE, zone=ZoneInfo("Europe/Berlin"), windows=(NIGHTS, WEEKEND))


@pytest.mark.parametrize(
    ("local", "minutes"),
    [
        ("2026-01-28T19:59", 60),
        ("2026-01-28T20:00", 15),
        ("2026-01-29T05:59", 15),
        ("2026-01-29T06:00", 60),
        ("2026-01-31T05:59", 15),  # Friday's night goes on into Saturday
        ("2026-01-31T06:00", 120),
        ("2026-02-01T23:59", 120),
        ("2026-02-02T05:00", 60),  # Sunday has no night
        # days on which the clocks change last as long as the clock says
        ("2026-03-29T23:59", 120),
        ("2026-10-25T02:30", 120),
    ],
)
def test_a_schedule_goes_by_the_clock_on_the_wall(local: str, minutes: int) -> None:
    now = datetime.fromisoformat(local).replace(tzinfo=SCHEDULED.zone)
    policy = Policy(rules=(SCHEDULED,))
    assert policy.idle_of(SCHEDULED, SUBJECT, now.astimezone(UTC)) == minutes * MINUTE


def test_a_wish_makes_a_night_shorter_but_never_longer() -> None:
    policy = Policy(rules=(SCHEDULED,))
    night = datetime(2026, 1, 28, 22, tzinfo=UTC)
    assert policy.idle_of(SCHEDULED, replace(SUBJECT, idle_minutes=240), night) == 15 * MINUTE
    loose = replace(SCHEDULED, windows=(replace(NIGHTS, idle=4 * HOUR),))
    assert policy.idle_of(loose, replace(SUBJECT, idle_minutes=30), night) == 30 * MINUTE


def test_a_hold_keeps_a_server_as_long_as_the_rule_allows() -> None:
    hold = Hold(by="alice", made_at=NOW - HOUR, until=NOW + 6 * HOUR, reason="training")
    verdict = look(make_evidence(holds=(hold,)))
    assert (verdict.decision, verdict.cause) == HELD
    assert verdict.text == "alice holds this server until 2026-01-31 18:00 UTC."
    assert decide(make_evidence(holds=(hold,)), rule=replace(RULE, hold=HOUR / 2)) == STOP
    assert decide(make_evidence(holds=(replace(hold, until=NOW),))) == STOP


def test_a_lifetime_ends_what_works_is_held_or_unknown() -> None:
    rule = replace(RULE, lifetime=10 * HOUR + 5 * MINUTE)
    hold = Hold(by="alice", made_at=NOW - HOUR, until=NOW + 6 * HOUR)
    for evidence in (make_evidence(gpu=90), make_evidence(holds=(hold,)), Evidence()):
        assert decide(evidence, rule=rule) == (Decision.WARN, Cause.LIFETIME)
        late = replace(rule, lifetime=10 * HOUR)
        verdict = look(evidence, rule=late)
        assert (verdict.decision, verdict.cause) == (Decision.STOP, Cause.LIFETIME)
        assert verdict.text == "Rule gpu ends every server 10 h after its start."
    early = look(make_evidence(gpu=90), rule=replace(RULE, lifetime=24 * HOUR))
    assert (early.decision, early.cause, early.ends_at) == (*BUSY, STARTED + 24 * HOUR)


def test_what_is_unknown_for_long_is_told_and_not_ended() -> None:
    memory = Memory(unknown_since=NOW - 2 * HOUR)
    verdict = look(make_evidence(series=()), memory=memory)
    assert (verdict.decision, verdict.cause) == (Decision.UNKNOWN_LONG, Cause.UNKNOWN)
    assert verdict.text == (
        "Nobody knows whether this server works (gpu: 0 of 1 measured, cpu: 0 of 1 measured): "
        "it is not ended for that."
    )
    busy = make_evidence(series=(), kernels=kernels(busy=1))
    assert decide(busy, memory=memory) == BUSY


def test_an_exemption_holds_until_its_end() -> None:
    exemption = Exemption(name="course", until=NOW + HOUR, teams=frozenset({"ops"}))
    rule = replace(RULE, lifetime=HOUR)
    verdict = look(make_evidence(), rule=rule, exemptions=(exemption,))
    assert (verdict.decision, verdict.cause) == (Decision.KEEP, Cause.EXEMPT)
    assert verdict.text == "No rule ends this server before 2026-01-31 13:00 UTC: course."
    over = replace(exemption, until=NOW)
    assert decide(make_evidence(), exemptions=(over,)) == STOP
    others = replace(exemption, users=frozenset({"bob"}))
    assert decide(make_evidence(), exemptions=(others,)) == STOP


def test_the_first_rule_that_matches_counts() -> None:
    mine = Rule(name="mine", teams=frozenset({"ops"}), profiles=frozenset({"gpu-1"}))
    policy = Policy(rules=(Rule(name="cpu", gpu=False), mine, RULE))
    assert policy.find_rule(SUBJECT) is mine
    assert policy.find_rule(replace(SUBJECT, team="flight")) is RULE
    assert judge(SUBJECT, Evidence(), Policy(), now=NOW).cause is Cause.NO_RULE


@pytest.mark.parametrize("started", [datetime(2026, 1, 31, 2), NOW + HOUR])
def test_a_server_whose_start_cannot_be_is_not_judged(started: datetime) -> None:
    subject = replace(SUBJECT, run=replace(SUBJECT.run, started=started))
    rule = replace(RULE, lifetime=HOUR)
    assert decide(make_evidence(), subject=subject, rule=rule) == UNKNOWN


def test_a_source_is_asked_for_as_far_back_as_the_rules_that_name_it_reach_and_no_further() -> None:
    long = Rule(name="cpu", gpu=False, idle=48 * HOUR, evidence=(CPU,))
    policy = Policy(rules=(replace(RULE, evidence=(GPU, KERNELS)), long))
    assert policy.find_lookback(GPU, [None]) == HOUR
    assert policy.find_lookback(GPU, [None, 90]) == 90 * MINUTE
    # what is idle for longer is remembered
    assert policy.find_lookback(GPU, [10**9]) == 2 * HOUR
    assert policy.find_lookback(CPU, [None]) == 2 * HOUR
    assert policy.find_lookback("power", [240]) == HOUR


def test_what_is_idle_for_longer_than_anybody_measures_is_remembered() -> None:
    rule = replace(RULE, idle=48 * HOUR)
    began, seen = NOW - 47 * HOUR, NOW - MINUTE
    subject = replace(SUBJECT, run=replace(SUBJECT.run, started=NOW - 60 * HOUR))
    stretch = Stretch(by=rule.criteria, since=began, seen=seen)

    def find(stretch: Stretch, idle: timedelta = 2 * HOUR) -> datetime | None:
        memory = Memory(idle=stretch)
        return look(make_evidence(idle=idle), rule=rule, subject=subject, memory=memory).idle_since

    assert find(stretch) == began
    # what is measured does not reach back to when it was last seen
    assert find(replace(stretch, seen=NOW - 3 * HOUR)) == NOW - 2 * HOUR
    assert find(stretch, idle=MINUTE / 2) == NOW - MINUTE / 2
    # idle by other floors is another idle
    assert find(replace(stretch, by="gpu<5")) == NOW - 2 * HOUR
    # and none is idle before its time of grace
    assert find(replace(stretch, since=NOW - 60 * HOUR)) == NOW - 60 * HOUR + rule.grace


def test_a_gpu_that_does_nothing_while_its_server_works_is_seen() -> None:
    stretch = Stretch(by=RULE.criteria, since=NOW - 4 * HOUR, seen=NOW - MINUTE)
    cell = make_evidence(idle=2 * HOUR, kernels=kernels(busy=1))
    for memory, since, is_long in (
        (NOTHING, NOW - 2 * HOUR, False),
        (Memory(gpu=stretch), NOW - 4 * HOUR, True),
    ):
        verdict = look(cell, memory=memory)
        assert (verdict.cause, verdict.gpu_idle_since) == (Cause.BUSY, since)
        assert verdict.is_gpu_idle_long is is_long
    # nobody says that of one that works, or of a server that is idle anyway
    assert look(replace(cell, series=())).gpu_idle_since is None
    assert look(make_evidence(gpu=70), memory=Memory(gpu=stretch)).gpu_idle_since is None
    assert not look(make_evidence(), memory=Memory(gpu=stretch)).is_gpu_idle_long


def test_where_nothing_is_measured_it_is_no_news_that_nobody_knows() -> None:
    memory = Memory(unknown_since=NOW - 3 * HOUR)
    dark = make_evidence(series=())
    assert look(dark, memory=memory).decision is Decision.UNKNOWN_LONG
    assert look(dark, memory=memory, measured=False).decision is Decision.KEEP
    # that its own report is missing is
    silent = replace(dark, kernels=None)
    assert look(silent, memory=memory, measured=False).decision is Decision.UNKNOWN_LONG


def test_the_end_of_a_lifetime_is_told_long_before() -> None:
    rule = replace(RULE, lifetime=7 * DAY)

    def at(age: timedelta, evidence: Evidence) -> Verdict:
        subject = replace(SUBJECT, run=replace(SUBJECT.run, started=NOW - age))
        return look(evidence, rule=rule, subject=subject)

    busy, idle = make_evidence(gpu=70), make_evidence(idle=55 * MINUTE)
    early = at(6 * DAY - MINUTE, busy)
    assert (early.decision, early.cause, early.ends_at) == (*BUSY, NOW + DAY + MINUTE)
    late = at(6 * DAY, busy)
    assert (late.decision, late.cause, late.ends_at) == (
        Decision.WARN,
        Cause.LIFETIME,
        NOW + DAY,
    )
    assert late.text == "Rule gpu ends every server 7 days after its start."
    # what is idle ends sooner still, and what may be so later is told of the nearer end
    assert (at(6 * DAY, idle).cause, at(6 * DAY, idle).decision) == (Cause.IDLE, Decision.WARN)
    assert at(6 * DAY, make_evidence(idle=MINUTE)).cause is Cause.LIFETIME


def test_floors_are_those_of_the_rules_that_ask() -> None:
    policy = Policy(rules=(RULE, SCHEDULED))
    assert (policy.list_floors(GPU), policy.list_floors(CPU)) == ((1.0,), (0.1,))
    assert policy.list_floors("power") == ()


MOMENTS = st.sampled_from(
    [
        NOW,
        AT,
        NOW - 2 * MINUTE,
        NOW - 4 * MINUTE,
        NOW - 2 * HOUR,
        NOW - 20 * HOUR,
        NOW + 2 * MINUTE,
        NOW.replace(tzinfo=None),
    ]
)
VALUES = st.sampled_from([0.0, 0.05, 0.99, 1.0, 55.0, 100.0, 101.0, -1.0, math.nan, math.inf])
UIDS = st.sampled_from(["", "u-1", "u-0"])
SERIES = st.builds(
    Series,
    source=st.sampled_from([GPU, CPU]),
    device=st.sampled_from(["a", "b"]),
    at=st.none() | MOMENTS,
    value=st.none() | VALUES,
    idle_since=st.dictionaries(st.sampled_from([1.0, 0.1]), st.none() | MOMENTS),
    pod_uid=UIDS,
)
TOLD = {"at": MOMENTS, "watched_since": MOMENTS, "doubtful": st.integers(0, 1), "pod_uid": UIDS}
PROCESS = st.builds(
    Process,
    name=st.just("p"),
    cpu=st.sampled_from([0.0, 0.04, 1.0]),
    works=st.booleans(),
)
GOOD = make_evidence()
EVIDENCE = st.builds(
    Evidence,
    series=st.just(GOOD.series)
    | st.lists(SERIES, max_size=3).map(tuple)
    | SERIES.map(lambda series: (*GOOD.series, series)),
    kernels=st.just(GOOD.kernels)
    | st.builds(Kernels, **TOLD, busy=st.integers(0, 1), last_activity=st.none() | MOMENTS),
    processes=st.just(GOOD.processes)
    | st.builds(
        Processes,
        **TOLD,
        found=st.lists(PROCESS, max_size=2).map(tuple),
        last_worked=st.none() | MOMENTS,
    ),
    holds=st.just(())
    | st.lists(st.builds(Hold, by=st.just("alice"), made_at=MOMENTS, until=MOMENTS)).map(tuple),
)


@given(evidence=EVIDENCE)
@settings(max_examples=500)
def test_whatever_evidence_comes_only_what_is_known_to_be_idle_ends(evidence: Evidence) -> None:
    verdict = look(evidence)
    json.dumps(verdict.as_dict())
    if verdict.decision in (Decision.WARN, Decision.STOP):
        assert {reading.answer for reading in verdict.evidence} == {Answer.IDLE}
        held = NOW - 4 * MINUTE, NOW + 2 * MINUTE
        assert not any((hold.made_at, hold.until) == held for hold in evidence.holds)
    if verdict.decision is Decision.STOP:
        for reading in verdict.evidence:
            assert reading.at is not None
            assert reading.since is not None
            assert NOW - reading.at <= FRESH
            assert NOW - reading.since >= RULE.idle
