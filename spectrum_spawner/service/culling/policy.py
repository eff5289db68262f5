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
    POWER,
    SKEW,
    Answer,
    Evidence,
    Hold,
    Reading,
    is_moment,
)
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.moments import show


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
class Memory:
    """What earlier verdicts on the same run left behind; `extended_until` is what people won."""

    last_busy: datetime | None = None
    unknown_since: datetime | None = None
    extended_until: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a server has coming, judged at `at`.

    `ends_at` is when the rule ends it if nothing changes, None for never; `warn_at` is when people
    hear of it. `idle` is the time without work that ends it now. `used_at` is when a person last
    did something, `until` when an exemption or a hold by `name` ends. `evidence` is what the
    verdict stands on.
    """

    decision: Decision
    cause: Cause
    at: datetime
    rule: Rule | None = None
    idle: timedelta = timedelta()
    idle_since: datetime | None = None
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
    def text(self) -> str:
        """A sentence for people."""
        return _SENTENCES[self.cause](self)

    def as_dict(self) -> dict[str, Any]:
        """For API and audit: a value that `json.dumps` takes."""
        moments = {
            name: moment and moment.isoformat(timespec="seconds")
            for name in ("at", "idle_since", "warn_at", "ends_at")
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
    end = started + rule.lifetime
    if verdict.ends_at and verdict.ends_at <= end:
        return verdict
    return _judge_lifetime(verdict, rule, end, now)


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
    if Answer.BUSY in answers:
        return _keep(Cause.BUSY, now, rule=rule, evidence=readings)
    if evidence.holds and (hold := find_hold(evidence, rule, now)):
        held = Reading(source=HOLD, answer=Answer.BUSY, at=hold.made_at, text=hold.reason)
        return _keep(
            Cause.HELD,
            now,
            rule=rule,
            name=hold.by,
            until=hold.until,
            evidence=(*readings, held),
        )
    if Answer.UNKNOWN in answers or not readings:
        since = memory.unknown_since or now
        is_long = now - since >= rule.unknown
        return Verdict(
            decision=Decision.UNKNOWN_LONG if is_long else Decision.KEEP,
            cause=Cause.UNKNOWN,
            at=now,
            rule=rule,
            evidence=readings,
        )
    since = run.started + rule.grace
    for moment in (memory.last_busy, *[reading.since for reading in readings]):
        if moment and moment > since:
            since = moment
    idle = policy.idle_of(rule, subject, now)
    if not idle:
        return _keep(Cause.IDLE, now, rule=rule, idle_since=since, evidence=readings)
    ends_at = max(since + idle, run.started + rule.minimum, memory.extended_until or run.started)
    decision, warn_at = _decide(ends_at, rule, now)
    return Verdict(
        decision=decision,
        cause=Cause.IDLE,
        at=now,
        rule=rule,
        idle=idle,
        idle_since=since,
        warn_at=warn_at,
        ends_at=ends_at,
        used_at=evidence.used_at(now),
        evidence=readings,
    )


def _judge_lifetime(verdict: Verdict, rule: Rule, end: datetime, now: datetime) -> Verdict:
    """The same evidence, with the end that comes whatever the server does."""
    decision, warn_at = _decide(end, rule, now)
    if decision is Decision.KEEP:
        return replace(verdict, warn_at=warn_at, ends_at=end)
    return replace(verdict, decision=decision, cause=Cause.LIFETIME, warn_at=warn_at, ends_at=end)


def _decide(ends_at: datetime, rule: Rule, now: datetime) -> tuple[Decision, datetime]:
    warn_at = ends_at - rule.warn
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
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} minutes"
    return f"{hours} h {rest} min" if rest else f"{hours} h"
