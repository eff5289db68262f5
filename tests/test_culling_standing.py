"""Warned before, looked at once more, then ended; and what people may do about it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.activity import GPU, KERNELS, Answer, Hold, Reading, Run
from spectrum_spawner.service.culling.policy import Cause, Decision, Memory, Stretch, Verdict
from spectrum_spawner.service.culling.rules import Rule, Subject
from spectrum_spawner.service.culling.standing import (
    GUARD,
    Standing,
    Step,
    extend,
    make_hold,
    step,
)
from spectrum_spawner.service.problem import Problem

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
RULE = Rule(name="gpu", evidence=(GPU, KERNELS))
SUBJECT = Subject(
    user="alice",
    server="",
    team="ops",
    profile="gpu-1",
    namespace="spectrum-ops",
    pod="jupyter-alice",
    run=Run(pod_uid="u-1", started=NOON - 10 * HOUR, gpus=1),
)
NEW = Standing(pod_uid="u-1")
WARNED = Standing(pod_uid="u-1", warned_at=NOON, ends_at=NOON + 10 * MINUTE, cause=Cause.IDLE)
END = NOON + 10 * MINUTE


def idle(decision: Decision, at: datetime, ends_at: datetime = END, **rest: Any) -> Verdict:
    return Verdict(
        decision=decision,
        cause=rest.pop("cause", Cause.IDLE),
        at=at,
        rule=RULE,
        ends_at=ends_at,
        evidence=(Reading(source=GPU, answer=Answer.IDLE, since=NOON - HOUR),),
        **rest,
    )


def busy(at: datetime) -> Verdict:
    reading = Reading(source=GPU, answer=Answer.BUSY, since=at, at=at)
    return Verdict(decision=Decision.KEEP, cause=Cause.BUSY, at=at, rule=RULE, evidence=(reading,))


def unknown(at: datetime, decision: Decision = Decision.KEEP) -> Verdict:
    return Verdict(decision=decision, cause=Cause.UNKNOWN, at=at, rule=RULE)


def take(standing: Standing, verdict: Verdict, **rest: Any) -> tuple[Standing, list[Step]]:
    after, actions = step(standing, verdict, verdict.at, **rest)
    return after, [action.step for action in actions]


def test_people_are_warned_once() -> None:
    warned, actions = step(NEW, idle(Decision.WARN, NOON), NOON)
    assert warned == WARNED
    assert [(action.step, action.ends_at) for action in actions] == [(Step.WARN, END)]
    later = idle(Decision.WARN, NOON + MINUTE)
    assert take(warned, later) == (WARNED, [])


def test_nothing_ends_that_was_not_warned_of_for_the_whole_time() -> None:
    """Such as after the service was away for hours."""
    warned, steps = take(NEW, idle(Decision.STOP, NOON, NOON - 2 * HOUR))
    assert (warned, steps) == (WARNED, [Step.WARN])
    assert take(warned, idle(Decision.STOP, END - SECOND, NOON - 2 * HOUR)) == (warned, [])


def test_what_is_due_is_looked_at_once_more_and_then_ended() -> None:
    checking, steps = take(WARNED, idle(Decision.STOP, END))
    assert steps == [Step.CHECK]
    after, steps = take(checking, idle(Decision.STOP, END + SECOND))
    assert steps == [Step.STOP]
    # a stop that failed, or could not be written down, comes up again
    assert take(after, idle(Decision.STOP, END + MINUTE))[1] == [Step.CHECK]


def test_the_verdict_that_asked_for_a_last_look_is_none() -> None:
    verdict = idle(Decision.STOP, END)
    checking, _ = take(WARNED, verdict)
    after, actions = step(checking, verdict, END + SECOND)
    assert [action.step for action in actions] == [Step.CHECK]
    assert after.checked_at == END + SECOND


def test_a_last_look_that_came_late_is_none() -> None:
    checking, _ = take(WARNED, idle(Decision.STOP, END))
    assert take(checking, idle(Decision.STOP, END + MINUTE))[1] == [Step.CHECK]


@pytest.mark.parametrize(
    ("verdict", "steps"),
    [
        (busy(END + SECOND), [Step.WITHDRAW]),
        (unknown(END + SECOND), []),
        (idle(Decision.KEEP, END + SECOND, END + HOUR), [Step.WITHDRAW]),
        (idle(Decision.STOP, END + SECOND, used_at=END - SECOND), []),
    ],
)
def test_a_last_look_that_shows_anything_else_ends_nothing(
    verdict: Verdict, steps: list[Step]
) -> None:
    checking, _ = take(WARNED, idle(Decision.STOP, END))
    after, taken = take(checking, verdict)
    assert (after.checked_at, taken) == (None, steps)


def test_a_server_that_somebody_just_used_is_left_alone() -> None:
    due = idle(Decision.STOP, END)
    assert take(WARNED, due, used_at=END - GUARD + SECOND)[1] == []
    assert take(WARNED, due, used_at=END - GUARD)[1] == [Step.CHECK]
    checking, _ = take(WARNED, due)
    last = idle(Decision.STOP, END + SECOND)
    assert take(checking, last, used_at=END)[1] == []
    # a time that cannot be is no use
    for nonsense in (END + HOUR, datetime(2026, 1, 31, 12, 10)):
        assert take(checking, last, used_at=nonsense)[1] == [Step.STOP]


def test_who_works_again_hears_that_the_end_is_off_and_has_all_extensions_again() -> None:
    tired = replace(WARNED, extensions=2, memory=Memory(extended_until=END))
    after, steps = take(tired, busy(NOON + MINUTE))
    assert steps == [Step.WITHDRAW]
    assert after == replace(NEW, memory=Memory(last_busy=NOON + MINUTE))
    assert take(after, busy(NOON + 2 * MINUTE))[1] == []


def test_in_doubt_a_warning_stays_and_nothing_ends() -> None:
    after, steps = take(WARNED, unknown(END + MINUTE))
    assert (after.ends_at, steps) == (END, [])
    again, steps = take(after, idle(Decision.STOP, END + 2 * MINUTE))
    assert (again.memory.unknown_since, steps) == (None, [Step.CHECK])


def test_what_is_unknown_for_long_is_told_once() -> None:
    first, steps = take(NEW, unknown(NOON))
    assert (first.memory.unknown_since, steps) == (NOON, [])
    long, steps = take(first, unknown(NOON + HOUR, Decision.UNKNOWN_LONG))
    assert (long.memory.unknown_since, steps) == (NOON, [Step.REPORT])
    assert take(long, unknown(NOON + 2 * HOUR, Decision.UNKNOWN_LONG)) == (long, [])
    known, _ = take(long, idle(Decision.KEEP, NOON + 3 * HOUR))
    assert known == NEW


def test_an_end_that_should_be_long_past_is_told_anew() -> None:
    """Such as when reports were away, or the service was."""
    doubtful, _ = take(WARNED, unknown(END))
    back = END + 2 * HOUR
    told, steps = take(doubtful, idle(Decision.STOP, back))
    assert (told.warned_at, told.ends_at, steps) == (back, back + 10 * MINUTE, [Step.WARN])
    assert take(told, idle(Decision.STOP, back + 9 * MINUTE))[1] == []
    assert take(told, idle(Decision.STOP, back + 10 * MINUTE))[1] == [Step.CHECK]
    # one that the hub was slow to do is not
    assert take(WARNED, idle(Decision.STOP, END + 10 * MINUTE))[1] == [Step.CHECK]


def test_idleness_is_remembered_for_as_long_as_it_lasts() -> None:
    def look(standing: Standing, minute: int, since: datetime) -> Standing:
        return take(
            standing,
            idle(Decision.KEEP, NOON + minute * MINUTE, idle_since=since, gpu_idle_since=since),
        )[0]

    def lasts(seen: datetime) -> Stretch:
        return Stretch(by="gpu<1, kernels<0", since=NOON - HOUR, seen=seen)

    first = look(NEW, 0, NOON - HOUR)
    assert first.memory == Memory(idle=lasts(NOON), gpu=lasts(NOON))
    # what nobody knows for a while may go on
    doubtful, _ = take(first, unknown(NOON + MINUTE))
    assert (doubtful.memory.idle, doubtful.memory.gpu) == (lasts(NOON), lasts(NOON))
    worked, _ = take(first, replace(busy(NOON + MINUTE), gpu_idle_since=NOON - HOUR))
    assert worked.memory == Memory(last_busy=NOON + MINUTE, gpu=lasts(NOON + MINUTE))


def test_an_idle_server_does_not_wait_for_the_end_of_its_lifetime() -> None:
    far = NOON + 20 * HOUR
    told, _ = take(NEW, idle(Decision.WARN, NOON, far, cause=Cause.LIFETIME))
    assert (told.cause, told.ends_at) == (Cause.LIFETIME, far)
    now = NOON + HOUR
    sooner, steps = take(told, idle(Decision.WARN, now, now + 5 * MINUTE))
    # people hear of it for the whole time all the same
    assert (sooner.cause, sooner.ends_at, steps) == (Cause.IDLE, now + 10 * MINUTE, [Step.WARN])
    back, steps = take(sooner, idle(Decision.WARN, now + MINUTE, far, cause=Cause.LIFETIME))
    assert (back.cause, back.ends_at, steps) == (Cause.LIFETIME, far, [Step.WARN])


def test_an_end_never_comes_sooner_than_people_were_told() -> None:
    sooner = idle(Decision.WARN, NOON + MINUTE, NOON + 5 * MINUTE)
    assert take(WARNED, sooner) == (WARNED, [])
    later = idle(Decision.WARN, NOON + MINUTE, NOON + 20 * MINUTE)
    after, steps = take(WARNED, later)
    assert (after.ends_at, steps) == (NOON + 20 * MINUTE, [Step.WARN])


def test_another_cause_is_told_but_puts_no_end_off() -> None:
    verdict = idle(Decision.WARN, NOON + 9 * MINUTE, END, cause=Cause.LIFETIME)
    after, steps = take(WARNED, verdict)
    assert (after.cause, after.ends_at, steps) == (Cause.LIFETIME, END, [Step.WARN])


def test_the_end_of_a_lifetime_does_not_wait_for_people_to_pause() -> None:
    standing = replace(WARNED, cause=Cause.LIFETIME)
    due = idle(Decision.STOP, END, cause=Cause.LIFETIME, used_at=END)
    checking, steps = take(standing, due, used_at=END)
    assert steps == [Step.CHECK]
    assert take(checking, replace(due, at=END + SECOND), used_at=END)[1] == [Step.STOP]


def test_one_click_keeps_a_server_for_the_rules_time() -> None:
    after = extend(WARNED, SUBJECT, RULE, now=NOON + MINUTE)
    assert after == replace(NEW, memory=Memory(extended_until=END + HOUR), extensions=1)
    late = extend(WARNED, SUBJECT, RULE, now=END + MINUTE)
    assert late.memory.extended_until == END + MINUTE + HOUR


def test_an_extension_never_outlives_the_server() -> None:
    rule = replace(RULE, lifetime=10 * HOUR + 30 * MINUTE)
    after = extend(WARNED, SUBJECT, rule, now=NOON)
    assert after.memory.extended_until == NOON + 30 * MINUTE


@pytest.mark.parametrize(
    ("standing", "sentence"),
    [
        (NEW, "No end of this server is near"),
        (replace(WARNED, extensions=2), "Rule gpu allows 2 extensions, and this server had them"),
        (replace(WARNED, cause=Cause.LIFETIME), "Rule gpu ends every server after a time"),
    ],
)
def test_what_cannot_be_extended_is_told(standing: Standing, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as refused:
        extend(standing, SUBJECT, RULE, now=NOON)
    assert refused.value.status == 409


def hold(
    until: datetime, rule: Rule = RULE, standing: Standing = NEW, now: datetime = NOON
) -> tuple[Standing, Hold]:
    return make_hold(SUBJECT, rule, standing, by="alice", until=until, reason="training", now=now)


def test_a_hold_is_somebodys_word_until_a_moment() -> None:
    assert hold(NOON + 6 * HOUR) == (
        replace(NEW, memory=Memory(held_since=NOON)),
        Hold(by="alice", made_at=NOON, until=NOON + 6 * HOUR, reason="training"),
    )


def test_a_row_of_holds_is_no_longer_than_one_until_the_server_works_again() -> None:
    held, _ = hold(NOON + 6 * HOUR)
    later = NOON + 5 * HOUR
    again, _ = hold(NOON + 24 * HOUR, standing=held, now=later)
    assert again == held
    with pytest.raises(Problem, match="allows a hold until 2026-02-01 12:00 UTC at most"):
        hold(NOON + 25 * HOUR, standing=held, now=later)
    with pytest.raises(Problem, match="Rule gpu allows no more holds before this server has"):
        hold(NOON + 30 * HOUR, standing=held, now=NOON + 24 * HOUR)
    worked, _ = take(held, busy(later))
    anew, _ = hold(later + 24 * HOUR, standing=worked, now=later)
    assert anew.memory.held_since == later


@pytest.mark.parametrize(
    ("until", "sentence"),
    [
        (datetime(2026, 1, 31, 18), "The end of a hold needs a time zone"),
        (NOON, "The end of the hold is past"),
        (NOON + 25 * HOUR, "allows a hold until 2026-02-01 12:00 UTC at most"),
    ],
)
def test_a_hold_that_cannot_be_is_refused(until: datetime, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence):
        hold(until)


def test_a_hold_never_outlives_the_server() -> None:
    with pytest.raises(Problem, match="until 2026-01-31 13:00 UTC at most"):
        hold(NOON + 2 * HOUR, replace(RULE, lifetime=11 * HOUR))
