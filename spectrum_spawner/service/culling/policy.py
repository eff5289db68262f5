"""What one server has coming, by the rules and its evidence. Pure.

A rule ends a server that is idle by every source it names. One source that is busy keeps the
server, and so does one of which nobody knows: only the end of the lifetime does not ask.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from spectrum_spawner.activity import (
    GPU,
    HOLD,
    MEASURED,
    POWER,
    SKEW,
    Answer,
    Evidence,
    Hold,
    Reading,
    is_moment,
)
from spectrum_spawner.service.culling.rules import DAY, Policy, Rule, Subject
from spectrum_spawner.service.moments import show

LONG_IDLE = timedelta(hours=3)  # of the GPUs of a server that works, after which people see it


class Decision(StrEnum):
    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"
    UNKNOWN_LONG = "unknown-long"


class Cause(StrEnum):
    """What decided."""

    NO_RULE = "no-rule"
    EXEMPT = "exempt"
    HELD = "held"
    BUSY = "busy"
    UNKNOWN = "unknown"
    IDLE = "idle"
    LIFETIME = "lifetime"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A time without a break in which nothing was done, by some criteria: `seen` is when that was
    last looked at. It goes on if what is measured later reaches back to then."""

    by: str
    since: datetime
    seen: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """What earlier verdicts on the same run left behind.

    `extended_until` is what people won, `held_since` when they first held it after it last worked.
    `idle` and `gpu` are since when it is idle and since when its GPUs are, for longer than anybody
    measures.
    """

    last_busy: datetime | None = None
    unknown_since: datetime | None = None
    extended_until: datetime | None = None
    held_since: datetime | None = None
    idle: Stretch | None = None
    gpu: Stretch | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a server has coming, judged at `at`.

    `ends_at` is when the rule ends it if nothing changes, None for never; `warn_at` is when people
    hear of it. `idle` is the time without work that ends it now. `gpu_idle_since` is since when its
    GPUs do nothing, whatever else does. `used_at` is when a person last did something, `until` when
    an exemption or a hold by `name` ends. `evidence` is what the verdict stands on.
    """

    decision: Decision
    cause: Cause
    at: datetime
    rule: Rule | None = None
    idle: timedelta = timedelta()
    idle_since: datetime | None = None
    gpu_idle_since: datetime | None = None
    warn_at: datetime | None = None
    ends_at: datetime | None = None
    used_at: datetime | None = None
    name: str = ""
    until: datetime | None = None
    evidence: tuple[Reading, ...] = ()

    @property
    def is_busy(self) -> bool:
        """Whether the server was seen to work, whatever decided."""
        if self.cause in (Cause.BUSY, Cause.IDLE):
            return self.cause is Cause.BUSY
        return any(each.answer is Answer.BUSY and each.source != HOLD for each in self.evidence)

    @property
    def is_unknown(self) -> bool:
        """Whether nobody knows if it works."""
        if self.cause in (Cause.UNKNOWN, Cause.BUSY, Cause.IDLE):
            return self.cause is Cause.UNKNOWN
        return not self.is_busy and any(each.answer is Answer.UNKNOWN for each in self.evidence)

    @property
    def is_gpu_idle_long(self) -> bool:
        """Whether it works, but its GPUs have not for long: nothing ends it for that."""
        since = self.gpu_idle_since
        return self.is_busy and since is not None and self.at - since >= LONG_IDLE

    @property
    def notice(self) -> timedelta:
        """How long before its end people hear of it."""
        if self.rule is None:
            return timedelta()
        return self.rule.notice if self.cause is Cause.LIFETIME else self.rule.warn

    @property
    def text(self) -> str:
        """A sentence for people."""
        return _SENTENCES[self.cause](self)

    def as_dict(self) -> dict[str, Any]:
        """For API and audit: a value that `json.dumps` takes."""
        moments = {
            name: moment and moment.isoformat(timespec="seconds")
            for name in ("at", "idle_since", "gpu_idle_since", "warn_at", "ends_at")
            for moment in [getattr(self, name)]
        }
        return {
            "decision": str(self.decision),
            "cause": str(self.cause),
            "rule": self.rule.name if self.rule else "",
            "text": self.text,
            **moments,
            "evidence": [reading.as_dict() for reading in self.evidence],
        }


def judge(
    subject: Subject,
    evidence: Evidence,
    policy: Policy,
    *,
    now: datetime,
    memory: Memory = Memory(),
) -> Verdict:
    """What the policy says of a server now."""
    rule = policy.find_rule(subject)
    if rule is None:
        return _keep(Cause.NO_RULE, now)
    if exemption := policy.find_exemption(subject, now):
        return _keep(Cause.EXEMPT, now, rule=rule, until=exemption.until, name=exemption.name)
    started = subject.run.started
    if not is_moment(started) or started > now + SKEW:
        return _keep(Cause.UNKNOWN, now, rule=rule)
    verdict = _judge_work(subject, evidence, rule, policy, now, memory)
    if not rule.lifetime:
        return verdict
    return _judge_lifetime(verdict, rule, started + rule.lifetime, now)


def find_hold(evidence: Evidence, rule: Rule, now: datetime) -> Hold | None:
    """The hold that keeps a server now; none keeps it for longer than the rule allows."""
    for hold in evidence.holds:
        is_over = is_moment(hold.made_at) and now >= hold.made_at + rule.hold
        if hold.is_active(now) and not is_over:
            return hold
    return None


def _judge_work(
    subject: Subject,
    evidence: Evidence,
    rule: Rule,
    policy: Policy,
    now: datetime,
    memory: Memory,
) -> Verdict:
    run = subject.run
    readings = tuple(
        [
            evidence.read(source, run, now=now, floor=rule.floor_of(source))
            for source in rule.evidence
            # nobody asks for GPUs that a server does not have
            if run.gpus or source not in (GPU, POWER)
        ]
    )
    answers = [reading.answer for reading in readings]
    gpu_idle_since = _find_gpu_idle(readings, rule, memory)
    if Answer.BUSY in answers:
        return _keep(Cause.BUSY, now, rule=rule, gpu_idle_since=gpu_idle_since, evidence=readings)
    is_unknown = Answer.UNKNOWN in answers or not readings
    since = None if is_unknown else _find_idle(readings, rule, run.started + rule.grace, memory)
    if evidence.holds and (hold := find_hold(evidence, rule, now)):
        held = Reading(source=HOLD, answer=Answer.BUSY, at=hold.made_at, text=hold.reason)
        return _keep(
            Cause.HELD,
            now,
            rule=rule,
            idle_since=since,
            gpu_idle_since=gpu_idle_since,
            name=hold.by,
            until=hold.until,
            evidence=(*readings, held),
        )
    if since is None:
        is_long = _is_unknown_long(readings, rule, policy, now - (memory.unknown_since or now))
        return Verdict(
            decision=Decision.UNKNOWN_LONG if is_long else Decision.KEEP,
            cause=Cause.UNKNOWN,
            at=now,
            rule=rule,
            gpu_idle_since=gpu_idle_since,
            evidence=readings,
        )
    idle = policy.idle_of(rule, subject, now)
    if not idle:
        return _keep(
            Cause.IDLE,
            now,
            rule=rule,
            idle_since=since,
            gpu_idle_since=gpu_idle_since,
            evidence=readings,
        )
    ends_at = max(since + idle, run.started + rule.minimum, memory.extended_until or run.started)
    decision, warn_at = _decide(ends_at, rule.warn, now)
    return Verdict(
        decision=decision,
        cause=Cause.IDLE,
        at=now,
        rule=rule,
        idle=idle,
        idle_since=since,
        gpu_idle_since=gpu_idle_since,
        warn_at=warn_at,
        ends_at=ends_at,
        used_at=evidence.used_at(now),
        evidence=readings,
    )


def _judge_lifetime(verdict: Verdict, rule: Rule, end: datetime, now: datetime) -> Verdict:
    """The same evidence, with the end that comes whatever the server does."""
    decision, warn_at = _decide(end, rule.notice, now)
    is_sooner = verdict.ends_at is not None and verdict.ends_at <= end
    if is_sooner and (decision is Decision.KEEP or verdict.decision is not Decision.KEEP):
        return verdict
    if decision is Decision.KEEP:
        return replace(verdict, warn_at=warn_at, ends_at=end)
    return replace(verdict, decision=decision, cause=Cause.LIFETIME, warn_at=warn_at, ends_at=end)


def _find_idle(
    readings: tuple[Reading, ...], rule: Rule, earliest: datetime, memory: Memory
) -> datetime:
    """Since when all of them are idle."""
    since = earliest
    for moment in (memory.last_busy, *[reading.since for reading in readings]):
        if moment and moment > since:
            since = moment
    return max(earliest, _go_back(since, memory.idle, rule.criteria))


def _find_gpu_idle(readings: tuple[Reading, ...], rule: Rule, memory: Memory) -> datetime | None:
    """Since when the GPUs are idle, whatever else works; None if they are not known to be."""
    for reading in readings:
        if reading.source == GPU and reading.answer is Answer.IDLE and reading.since:
            return _go_back(reading.since, memory.gpu, rule.criteria)
    return None


def _go_back(since: datetime, before: Stretch | None, criteria: str) -> datetime:
    """What is measured reaches back a while only; if that is to the last look, what was known then
    still holds."""
    if before and before.by == criteria and since <= before.seen:
        return min(since, before.since)
    return since


def _is_unknown_long(
    readings: tuple[Reading, ...], rule: Rule, policy: Policy, time: timedelta
) -> bool:
    """Whether it is time that people hear that nobody knows."""
    if time < rule.unknown:
        return False
    unknown = {each.source for each in readings if each.answer is Answer.UNKNOWN}
    return policy.measured or not unknown or bool(unknown - set(MEASURED))


def _decide(ends_at: datetime, notice: timedelta, now: datetime) -> tuple[Decision, datetime]:
    warn_at = ends_at - notice
    if now >= ends_at:
        return Decision.STOP, warn_at
    return (Decision.WARN if now >= warn_at else Decision.KEEP), warn_at


def _keep(cause: Cause, now: datetime, **rest: Any) -> Verdict:
    return Verdict(decision=Decision.KEEP, cause=cause, at=now, **rest)


def _say_idle(verdict: Verdict) -> str:
    since = show(verdict.idle_since) if verdict.idle_since else "its start"
    what = f"This server has done nothing since {since} ({_tell(verdict)})"
    if not verdict.rule or not verdict.idle:
        return f"{what}: no rule ends it for that now."
    return f"{what}: rule {verdict.rule.name} ends what is idle for {_span(verdict.idle)}."


def _say_unknown(verdict: Verdict) -> str:
    why = _tell(verdict, Answer.UNKNOWN) or "nothing is measured"
    return f"Nobody knows whether this server works ({why}): it is not ended for that."


def _say_lifetime(verdict: Verdict) -> str:
    if not verdict.rule:
        return ""
    lifetime = _span(verdict.rule.lifetime)
    return f"Rule {verdict.rule.name} ends every server {lifetime} after its start."


def _say_until(verdict: Verdict) -> str:
    return show(verdict.until) if verdict.until and is_moment(verdict.until) else "some time"


_SENTENCES: dict[Cause, Callable[[Verdict], str]] = {
    Cause.NO_RULE: lambda _: "No rule ends this server.",
    Cause.EXEMPT: lambda v: f"No rule ends this server before {_say_until(v)}: {v.name}.",
    Cause.HELD: lambda v: f"{v.name} holds this server until {_say_until(v)}.",
    Cause.BUSY: lambda v: f"This server works ({_tell(v, Answer.BUSY)}).",
    Cause.UNKNOWN: _say_unknown,
    Cause.IDLE: _say_idle,
    Cause.LIFETIME: _say_lifetime,
}


def _tell(verdict: Verdict, answer: Answer | None = None) -> str:
    return ", ".join(
        f"{reading.source}: {reading.text}"
        for reading in verdict.evidence
        if answer in (None, reading.answer)
    )


def _span(time: timedelta) -> str:
    minutes = time // timedelta(minutes=1)
    if minutes >= 2 * DAY and not minutes % DAY:
        return f"{minutes // DAY} days"
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} minutes"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
