"""What people were told about one run of a server, and what comes next. Pure.

Nothing ends that was not warned of for the rule's whole time, looked at once more at the last
moment, and left alone by people for `GUARD`. What people were told never comes sooner.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from spectrum_spawner.activity import SKEW, Hold, is_moment
from spectrum_spawner.service.culling.policy import Cause, Decision, Memory, Verdict
from spectrum_spawner.service.culling.rules import Rule, Subject
from spectrum_spawner.service.moments import show
from spectrum_spawner.service.problem import Problem

GUARD = timedelta(seconds=5)  # a server that somebody used this shortly before is left alone
CHECK_WITHIN = timedelta(seconds=30)  # after which a last look is too old to act on


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
    both are None while none is near. `checked_at` is when a last look was asked for, `reported`
    whether people know that nobody knows.
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
    subject: Subject, rule: Rule, *, by: str, until: datetime, reason: str, now: datetime
) -> Hold:
    """Somebody's word that a server works until a moment; raises Problem."""
    if not is_moment(until):
        raise Problem("The end of a hold needs a time zone: please add it.")
    if until <= now:
        raise Problem("The end of the hold is past: choose one that lies ahead.")
    longest = now + rule.hold
    if rule.lifetime:
        longest = min(longest, subject.run.started + rule.lifetime)
    if until > longest:
        raise Problem(
            f"Rule {rule.name} allows a hold until {show(longest)} at most: choose an earlier end.",
            status=409,
        )
    return Hold(by=by, made_at=now, until=until, reason=reason)


def _remember(standing: Standing, verdict: Verdict) -> Standing:
    if verdict.is_busy:
        # whoever works again has all extensions again
        if standing.warned_at is None:
            return Standing(pod_uid=standing.pod_uid, memory=Memory(last_busy=verdict.at))
        return replace(standing, memory=Memory(last_busy=verdict.at), extensions=0, reported=False)
    memory = standing.memory
    if verdict.is_unknown:
        since = memory.unknown_since or verdict.at
        return replace(standing, memory=replace(memory, unknown_since=since))
    if memory.unknown_since is None and not standing.reported:
        return standing
    return replace(standing, memory=replace(memory, unknown_since=None), reported=False)


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
    """Tell of an end once, and again if it moved or has another cause."""
    warn = verdict.rule.warn if verdict.rule else timedelta()
    warned_at = standing.warned_at or now
    ends_at = max(verdict.ends_at or now, standing.ends_at or now + warn)
    if (ends_at, verdict.cause) == (standing.ends_at, standing.cause):
        return standing, ()
    warned = replace(standing, warned_at=warned_at, ends_at=ends_at, cause=verdict.cause)
    return warned, (_make(Step.WARN, verdict, warned),)


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
