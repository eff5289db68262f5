"""What people were told about one run of a server, and what comes next. Pure.

Nothing ends that was not warned of for the rule's whole time, looked at once more at the last
moment, and left alone by people for `GUARD`. What people were told never comes sooner, and what
should have come long ago is told again.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from spectrum_spawner.activity import SKEW, Hold, is_moment
from spectrum_spawner.service.culling.policy import Cause, Decision, Memory, Stretch, Verdict
from spectrum_spawner.service.culling.rules import Rule, Subject
from spectrum_spawner.service.moments import show
from spectrum_spawner.service.problem import Problem

GUARD = timedelta(seconds=5)  # a server that somebody used this shortly before is left alone
CHECK_WITHIN = timedelta(seconds=30)  # after which a last look is too old to act on
OVERDUE = timedelta(minutes=10)  # by which an end may be late because of looks and stops


class Step(StrEnum):
    """What is to be done: tell of an end, or that it is off; look once more with new evidence;
    stop; tell that nobody knows what the server does."""

    WARN = "warn"
    WITHDRAW = "withdraw"
    CHECK = "check"
    STOP = "stop"
    REPORT = "report"


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """One step for one server, with the verdict that asks for it."""

    step: Step
    verdict: Verdict
    ends_at: datetime | None = None

    @property
    def rule_name(self) -> str:
        return self.verdict.rule.name if self.verdict.rule else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """How one run of a server stands.

    `warned_at` is when people first heard of the end that is near, `ends_at` what they heard last;
    both are None while none is near. `checked_at` is when the evidence of a last look was in,
    `reported` whether people know that nobody knows.
    """

    pod_uid: str
    memory: Memory = Memory()  # noqa: RUF009 - it is frozen
    warned_at: datetime | None = None
    ends_at: datetime | None = None
    cause: Cause | None = None
    extensions: int = 0
    checked_at: datetime | None = None
    reported: bool = False


def step(
    standing: Standing, verdict: Verdict, now: datetime, *, used_at: datetime | None = None
) -> tuple[Standing, tuple[Action, ...]]:
    """What follows from a verdict.

    `used_at` is when a person last used the server as far as the caller knows, beside what the
    evidence says; what polls by itself is no use. After `Step.CHECK` the caller judges again with
    evidence that was read anew and steps once more: only that, soon enough, leads to `Step.STOP`.
    A stop that failed comes up again by itself.
    """
    standing = _remember(standing, verdict)
    if verdict.decision is Decision.UNKNOWN_LONG:
        return _report(standing, verdict)
    if verdict.decision is Decision.KEEP:
        if verdict.cause is Cause.UNKNOWN:
            return _look_no_more(standing), ()
        return _withdraw(standing, verdict)
    standing, actions = _warn(standing, verdict, now)
    if verdict.decision is Decision.WARN or not standing.ends_at or now < standing.ends_at:
        return _look_no_more(standing), actions
    if verdict.cause is Cause.IDLE and _is_used(verdict.used_at, used_at, now):
        return _look_no_more(standing), actions
    if _is_checked(standing, verdict, now):
        return replace(standing, checked_at=None), (_make(Step.STOP, verdict, standing),)
    return replace(standing, checked_at=now), (*actions, _make(Step.CHECK, verdict, standing))


def extend(standing: Standing, subject: Subject, rule: Rule, *, now: datetime) -> Standing:
    """One click by people who want to keep an idle server; raises Problem."""
    if standing.ends_at is None:
        raise Problem("No end of this server is near, so there is nothing to extend.", status=409)
    if standing.cause is Cause.LIFETIME:
        raise Problem(
            f"Rule {rule.name} ends every server after a time, and nothing extends that: save your "
            "work and start it again.",
            status=409,
        )
    if standing.extensions >= rule.extensions:
        raise Problem(
            f"Rule {rule.name} allows {rule.extensions} extensions, and this server had them: run "
            "something in it, hold it until a time, or save your work.",
            status=409,
        )
    until = max(now, standing.ends_at) + rule.extend
    if rule.lifetime:
        until = min(until, subject.run.started + rule.lifetime)
    return replace(
        standing,
        memory=replace(standing.memory, extended_until=until),
        extensions=standing.extensions + 1,
        warned_at=None,
        ends_at=None,
        cause=None,
        checked_at=None,
    )


def make_hold(
    subject: Subject,
    rule: Rule,
    standing: Standing,
    *,
    by: str,
    until: datetime,
    reason: str,
    now: datetime,
) -> tuple[Standing, Hold]:
    """Take somebody's word that a server works until a moment; raises Problem."""
    if not is_moment(until):
        raise Problem("The end of a hold needs a time zone: please add it.")
    if until <= now:
        raise Problem("The end of the hold is past: choose one that lies ahead.")
    # from the first one on, so that no row of holds keeps a GPU for which nothing is done
    since = standing.memory.held_since or now
    longest = since + rule.hold
    if rule.lifetime:
        longest = min(longest, subject.run.started + rule.lifetime)
    if longest <= now:
        raise Problem(
            f"Rule {rule.name} allows no more holds before this server has worked again: run "
            "something in it, or save your work.",
            status=409,
        )
    if until > longest:
        raise Problem(
            f"Rule {rule.name} allows a hold until {show(longest)} at most: choose an earlier end.",
            status=409,
        )
    held = replace(standing, memory=replace(standing.memory, held_since=since))
    return held, Hold(by=by, made_at=now, until=until, reason=reason)


def _remember(standing: Standing, verdict: Verdict) -> Standing:
    memory, gpu = standing.memory, _go_on(standing.memory.gpu, verdict.gpu_idle_since, verdict)
    if verdict.is_busy:
        # whoever works again has all extensions and holds again
        memory = Memory(last_busy=verdict.at, gpu=gpu)
        if standing.warned_at is None:
            return Standing(pod_uid=standing.pod_uid, memory=memory)
        return replace(standing, memory=memory, extensions=0, reported=False)
    is_unknown = verdict.is_unknown
    # not by replace(), which takes long: this is done for every server at each look
    after = Memory(
        last_busy=memory.last_busy,
        unknown_since=(memory.unknown_since or verdict.at) if is_unknown else None,
        extended_until=memory.extended_until,
        held_since=memory.held_since,
        idle=_go_on(memory.idle, verdict.idle_since, verdict),
        gpu=gpu,
    )
    return Standing(
        pod_uid=standing.pod_uid,
        memory=after,
        warned_at=standing.warned_at,
        ends_at=standing.ends_at,
        cause=standing.cause,
        extensions=standing.extensions,
        checked_at=standing.checked_at,
        reported=standing.reported and is_unknown,
    )


def _go_on(before: Stretch | None, since: datetime | None, verdict: Verdict) -> Stretch | None:
    """What was seen now, or else what was seen last."""
    if since is None or verdict.rule is None:
        return before
    return Stretch(by=verdict.rule.criteria, since=since, seen=verdict.at)


def _look_no_more(standing: Standing) -> Standing:
    return standing if standing.checked_at is None else replace(standing, checked_at=None)


def _report(standing: Standing, verdict: Verdict) -> tuple[Standing, tuple[Action, ...]]:
    if standing.reported:
        return _look_no_more(standing), ()
    return (
        replace(standing, checked_at=None, reported=True),
        (_make(Step.REPORT, verdict, standing),),
    )


def _withdraw(standing: Standing, verdict: Verdict) -> tuple[Standing, tuple[Action, ...]]:
    if standing.warned_at is None:
        return standing, ()
    calm = replace(standing, warned_at=None, ends_at=None, cause=None, checked_at=None)
    return calm, (_make(Step.WITHDRAW, verdict, standing),)


def _warn(
    standing: Standing, verdict: Verdict, now: datetime
) -> tuple[Standing, tuple[Action, ...]]:
    """Tell of an end once, and again if it moved, has another cause, or should be long past."""
    if _is_void(standing, verdict, now):
        standing = replace(standing, warned_at=None, ends_at=None)
    warned_at = standing.warned_at or now
    ends_at = max(verdict.ends_at or now, standing.ends_at or now + verdict.notice)
    if (ends_at, verdict.cause) == (standing.ends_at, standing.cause):
        return standing, ()
    warned = replace(standing, warned_at=warned_at, ends_at=ends_at, cause=verdict.cause)
    return warned, (_make(Step.WARN, verdict, warned),)


def _is_void(standing: Standing, verdict: Verdict, now: datetime) -> bool:
    """Whether what people were told says nothing of what comes now.

    It should have come long ago, since for a while nobody knew what the server did or nobody
    looked; or it was the end of a lifetime, of which people hear long before.
    """
    if standing.ends_at is None:
        return False
    is_early = standing.cause is Cause.LIFETIME and verdict.cause is not Cause.LIFETIME
    return is_early or now > standing.ends_at + max(verdict.notice / 2, OVERDUE)


def _is_used(told: datetime | None, seen: datetime | None, now: datetime) -> bool:
    known = (moment for moment in (told, seen) if moment and is_moment(moment))
    return any(-SKEW <= now - moment < GUARD for moment in known)


def _is_checked(standing: Standing, verdict: Verdict, now: datetime) -> bool:
    checked_at = standing.checked_at
    if checked_at is None or now - checked_at > CHECK_WITHIN:
        return False
    return verdict.at > checked_at


def _make(step: Step, verdict: Verdict, standing: Standing) -> Action:
    return Action(step=step, verdict=verdict, ends_at=standing.ends_at)
