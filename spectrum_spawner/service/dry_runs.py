"""Dry runs: what a policy would end now, and why, before it is anybody's policy."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from spectrum_spawner.activity import Evidence
from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.policy import Decision, Memory, Verdict, judge
from spectrum_spawner.service.culling.policy_values import PolicyError, read_policy
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.sweep import NOTHING, Key, find_standing
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.rights import Viewer, may_try_policy
from spectrum_spawner.service.typed_policy import read_typed

PACE = frozenset({"enabled", "every", "concurrency", "notify"})  # of the values, what is no rule
TURN_WITHIN = 10.0  # seconds that somebody waits while others try a policy
ORDER = (Decision.STOP, Decision.WARN, Decision.UNKNOWN_LONG, Decision.KEEP)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One server under the policy that is tried, and under the one that holds."""

    subject: Subject
    verdict: Verdict
    now: Decision

    @property
    def is_shown(self) -> bool:
        """Whether it is told by itself: something comes, or it is not as it was."""
        return self.verdict.decision is not Decision.KEEP or self.now is not self.verdict.decision


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """`counts` are servers by decision, `trials` those that are told one by one."""

    at: datetime
    edited: bool
    counts: Mapping[Decision, int]
    trials: list[Trial]
    problems: tuple[str, ...]


def check_viewer(viewer: Viewer) -> None:
    """Raises Problem for whoever may not know what a policy would end."""
    if not may_try_policy(viewer):
        raise Problem(
            "What a policy would end is for administrators and for the leads of teams: ask one of "
            "them.",
            status=403,
        )


async def try_policy(
    context: Context, viewer: Viewer, edited: Mapping[str, Any] | str | None = None
) -> DryRun:
    """Judge the servers that somebody answers for by a policy, one such trial at a time.

    `edited` are values `culling`, as a table or as YAML that somebody typed; None is the policy
    that holds. Nothing is changed, and nobody is told. Raises Problem.
    """
    check_viewer(viewer)
    if context.culler.round.at is None:
        raise Problem("Nobody has looked at the servers yet: try again in a minute.", status=503)
    try:
        async with asyncio.timeout(TURN_WITHIN):
            await context.trying.acquire()
    except TimeoutError as error:
        raise Problem("Others try policies just now: try again in a minute.", status=503) from error
    try:
        return await _try_policy(context, viewer, edited)
    finally:
        context.trying.release()


def read_edited(
    edited: Mapping[str, Any] | str, profiles: Mapping[str, Profile], team_limits: tuple[int, int]
) -> Policy:
    """A policy from values as somebody gave or typed them; raises Problem."""
    values = read_typed(edited) if isinstance(edited, str) else edited
    rules = {key: value for key, value in values.items() if key not in PACE}
    try:
        return read_policy(rules, profiles, team_limits=team_limits)
    except PolicyError as error:
        raise Problem(f"This policy cannot be used: {error}.") from error


async def _try_policy(
    context: Context, viewer: Viewer, edited: Mapping[str, Any] | str | None
) -> DryRun:
    round, settings = context.culler.round, context.settings
    policy, evidence = round.policy, round.evidence
    if edited is not None:
        # in a thread, since whoever types long tables must not stop everybody else
        policy = await asyncio.to_thread(
            read_edited, edited, settings.profiles, settings.idle_minutes
        )
        policy = replace(policy, measured=settings.culling.policy.measured)
        evidence = await context.culler.gather(policy)
    subjects = [s for s in round.subjects.values() if may_try_policy(viewer, s.team)]
    now = context.now()
    memories = {s.key: find_standing(s, round.standings).memory for s in subjects}
    if edited is not None:
        # what counts as work by the rules of now may be none by others
        memories = {key: replace(each, last_busy=None) for key, each in memories.items()}
    trials = await asyncio.to_thread(_judge_all, subjects, evidence, policy, round, memories, now)
    return DryRun(
        at=now,
        edited=edited is not None,
        counts={each: sum(t.verdict.decision is each for t in trials) for each in ORDER},
        trials=sorted(filter(lambda trial: trial.is_shown, trials), key=_order),
        problems=context.culler.problems,
    )


def dry_run_to_json(run: DryRun) -> dict[str, Any]:
    return {
        "at": stamp(run.at),
        "policy": "edited" if run.edited else "current",
        "counts": {str(decision): count for decision, count in run.counts.items()},
        "servers": [_trial_to_json(trial) for trial in run.trials],
        "problems": list(run.problems),
    }


def _judge_all(
    subjects: list[Subject],
    evidence: Mapping[Key, Evidence],
    policy: Policy,
    round: Round,
    memories: Mapping[Key, Memory],
    now: datetime,
) -> list[Trial]:
    found = []
    for subject in subjects:
        memory = memories[subject.key]
        verdict = judge(subject, evidence.get(subject.key, NOTHING), policy, now=now, memory=memory)
        before = round.verdicts.get(subject.key)
        found.append(
            Trial(
                subject=subject,
                verdict=verdict,
                now=before.decision if before else verdict.decision,
            )
        )
    return found


def _order(trial: Trial) -> tuple[Any, ...]:
    ends_at = trial.verdict.ends_at
    return (
        ORDER.index(trial.verdict.decision),
        ends_at.timestamp() if ends_at else float("inf"),
        trial.subject.key,
    )


def _trial_to_json(trial: Trial) -> dict[str, Any]:
    subject, verdict = trial.subject, trial.verdict
    return {
        "user": subject.user,
        "server": subject.server,
        "team": subject.team,
        "profile": subject.profile,
        "gpus": subject.run.gpus,
        "current": str(trial.now),
        **verdict.as_dict(),
    }
