"""The culler: looks at all servers again and again, warns of ends, and ends what stays idle.

Whatever people are told is kept first. While the hub, the API server or the ledger does not
answer, nothing is stopped.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from spectrum_spawner.activity import Evidence, Hold
from spectrum_spawner.audit import Record
from spectrum_spawner.service.culling import standing as standing_of
from spectrum_spawner.service.culling.history import History
from spectrum_spawner.service.culling.pods import Pods
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing, Step
from spectrum_spawner.service.culling.sweep import NOTHING, Key, Sweep, find_standing, sweep
from spectrum_spawner.service.ends import Ends
from spectrum_spawner.service.evidence import Gatherer
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.moments import show, stamp
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.records import make_record_of, tell
from spectrum_spawner.service.settings import Culling
from spectrum_spawner.service.standings import Held, Standings
from spectrum_spawner.service.team_sheet import TeamSheet
from spectrum_spawner.service.telemetry import Telemetry
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

_log = logging.getLogger("spectrum.culler")


class Culler:
    """One culler. `round` is what its last look found, `history` what GPUs did before.

    People's words come in by `extend`, `hold` and `end_hold`, with `by` an actor; these raise
    Problem.
    """

    def __init__(
        self,
        settings: Culling,
        *,
        teams: View[TeamSheet],
        pods: Pods,
        standings: Standings,
        gatherer: Gatherer,
        ends: Ends,
        telemetry: Telemetry,
        now: Callable[[], datetime],
    ) -> None:
        self.round = Round(enabled=settings.enabled, policy=settings.policy)
        self.history = History()
        self._policy = settings.policy
        self._teams = teams
        self._pods = pods
        self._standings = standings
        self._gatherer = gatherer
        self._ends = ends
        self._telemetry = telemetry
        self._now = now
        self._looking = asyncio.Lock()
        self._problems: list[str] = []

    async def look(self) -> None:
        """One look at all servers, and what follows from it; one at a time."""
        async with self._looking:
            self._problems = []
            try:
                with self._telemetry.sweeping():
                    over = await self._sweep()
                self._problems += await self._ends.end(over)
            except LedgerError as error:
                self._note_ledger(error)
            self._tell_problems()

    async def gather(self, policy: Policy) -> Mapping[Key, Evidence]:
        """The evidence of now that another policy asks for, of the servers of the last look."""
        evidence, _ = await self._gatherer.gather(self.round.subjects.values(), policy)
        return evidence

    def health(self) -> dict[str, Any]:
        """How the culler is, for the operator."""
        found = self.round
        return {
            "enabled": found.enabled,
            "at": found.at and found.at.isoformat(timespec="seconds"),
            "servers": len(found.subjects),
            "problems": list(found.problems),
        }

    async def extend(self, key: Key, *, by: str) -> None:
        """One click that keeps an idle server for a while."""
        subject, rule = self._find(key)
        async with self._take_word(key):
            before, now = find_standing(subject, self._standings.by_key), self._now()
            after = standing_of.extend(before, subject, rule, now=now)
            until = after.memory.extended_until or now
            found = self._judge(subject, after)
            text = f"It is kept until {show(until)} at least."
            record = self._make_word(subject, "extend", by, text, rule, until)
            await self._write(self._standings.change(found.standings, [record, *tell(found, now)]))
            self._show(subject, found)
        self._telemetry.extended(subject.team)

    async def hold(self, key: Key, *, by: str, until: datetime, reason: str) -> None:
        """Somebody's word that a server works until a moment, in place of one before."""
        subject, rule = self._find(key)
        hold = standing_of.make_hold(
            subject, rule, by=by.partition(":")[2], until=until, reason=reason, now=self._now()
        )
        text = f"It is held until {show(until)}{f': {reason}' if reason else '.'}"
        record = self._make_word(subject, "hold", by, text, rule, until)
        await self._put_hold(subject, Held(pod_uid=subject.run.pod_uid, hold=hold), record)

    async def end_hold(self, key: Key, *, by: str) -> None:
        """Take back the word that holds a server."""
        subject, rule = self._find(key)
        if not self._standings.find_holds(key, subject.run.pod_uid):
            raise Problem("Nobody holds this server, so there is nothing to end.", status=409)
        record = self._make_word(subject, "hold", by, "The hold was ended.", rule, None)
        await self._put_hold(subject, None, record)

    async def _put_hold(self, subject: Subject, held: Held | None, record: Record) -> None:
        key = subject.key
        async with self._take_word(key):
            before = find_standing(subject, self._standings.by_key)
            found = self._judge(subject, before, holds=(held.hold,) if held else ())
            records = [record, *tell(found, self._now())]
            await self._write(self._standings.hold(key, held, found.standings[key], records))
            self._show(subject, found)

    async def _sweep(self) -> list[Subject]:
        """Judge every server and tell people; returns those whose time is over."""
        subjects = await self._find_subjects()
        if subjects is None:
            return []
        await self._standings.load()
        if not self.round.enabled:
            # whatever was said before holds no more
            await self._standings.forget(())
        evidence, problems = await self._gatherer.gather(subjects.values(), self._policy)
        self._problems += problems
        before, now = self._standings.by_key, self._now()
        found = await asyncio.to_thread(self._judge_all, subjects, evidence, before, now)
        self._publish(subjects, evidence, found)
        if not self.round.enabled:
            return []
        actions = await self._standings.take(found, before, tell, now)
        if not self._pods.unknown:
            await self._standings.forget(subjects)
        self.round = replace(self.round, standings=self._standings.by_key)
        for subject, action in actions:
            if action.step is Step.WARN:
                self._telemetry.warned(subject.team, action.rule_name)
        return [subject for subject, action in actions if action.step in (Step.CHECK, Step.STOP)]

    async def _find_subjects(self) -> dict[Key, Subject] | None:
        """The servers that are known to run; None while nobody knows any."""
        if not self._teams.synced or self._teams.stale_since is not None:
            self._problems.append(
                "The Kubernetes API does not tell which teams there are, so no server is judged."
            )
            return None
        teams = self._find_teams()
        await self._pods.follow(team.namespace for team in teams.values() if team.namespace)
        if unknown := sorted(self._pods.unknown):
            self._problems.append(
                f"The Kubernetes API does not tell what runs in {', '.join(unknown)}, so no server "
                "there is judged."
            )
        subjects = await asyncio.to_thread(self._pods.list_subjects, teams)
        return {subject.key: subject for subject in subjects}

    def _find_teams(self) -> dict[str, Team]:
        return {name: sheet.team for name, sheet in self._teams.items() if sheet.is_known}

    def _judge_all(
        self,
        subjects: Mapping[Key, Subject],
        evidence: Mapping[Key, Evidence],
        standings: Mapping[Key, Standing],
        now: datetime,
    ) -> Sweep:
        """In a thread, since of ten thousand servers it takes a while."""
        self.history.note(subjects, evidence, now)
        return sweep(subjects.values(), evidence, standings, self._policy, now=now)

    def _judge(
        self, subject: Subject, standing: Standing, *, holds: tuple[Hold, ...] | None = None
    ) -> Sweep:
        """How one server stands with what somebody just said."""
        key = subject.key
        evidence = self._gatherer.renew(subject, self.round.evidence.get(key, NOTHING))
        if holds is not None:
            evidence = replace(evidence, holds=holds)
        return sweep([subject], {key: evidence}, {key: standing}, self._policy, now=self._now())

    def _find(self, key: Key) -> tuple[Subject, Rule]:
        """A server that runs now, maybe since the last look only, and its rule; raises Problem."""
        subject = self.round.subjects.get(key)
        if subject is None or self._pods.find(subject) is None:
            running = self._pods.list_subjects(self._find_teams())
            subject = next((each for each in running if each.key == key), None)
        if subject is None:
            raise Problem("There is no such server running: it may have ended already.", status=404)
        rule = self._policy.find_rule(subject) if self.round.enabled else None
        if rule is None:
            raise Problem("No rule ends this server, so there is nothing to keep.", status=409)
        return subject, rule

    def _make_word(
        self,
        subject: Subject,
        action: str,
        by: str,
        text: str,
        rule: Rule,
        until: datetime | None,
    ) -> Record:
        """The record of what somebody said."""
        details = {"rule": rule.name, "until": until and stamp(until)}
        return make_record_of(subject, action, by, text, at=self._now(), details=details)

    @asynccontextmanager
    async def _take_word(self, key: Key) -> AsyncIterator[None]:
        """Take somebody's word down: from this moment on the server is not stopped meanwhile."""
        with self._ends.hold_back(key):
            async with self._standings.changing:
                yield

    async def _write(self, work: Awaitable[None]) -> None:
        """Raises Problem where the ledger takes nothing."""
        try:
            await work
        except LedgerError as error:
            self._note_ledger(error)
            raise Problem(
                "That could not be written down, so it does not count: try again in a minute, or "
                "tell an administrator.",
                status=503,
            ) from error

    def _note_ledger(self, error: LedgerError) -> None:
        self._problems.append(f"The ledger does not answer, so nothing is stopped: {error}.")

    def _publish(
        self, subjects: Mapping[Key, Subject], evidence: Mapping[Key, Evidence], found: Sweep
    ) -> None:
        """Show what was found; of what nobody knows now, what was found before."""
        before, unknown = self.round, self._pods.unknown
        kept = {k for k, s in before.subjects.items() if s.namespace in unknown}
        self.round = replace(
            before,
            at=self._now(),
            subjects={**{k: before.subjects[k] for k in kept}, **subjects},
            evidence={**{k: before.evidence[k] for k in kept}, **evidence},
            verdicts={**{k: before.verdicts[k] for k in kept}, **found.verdicts},
        )

    def _show(self, subject: Subject, found: Sweep) -> None:
        """Show at once what somebody's word changed."""
        key, before = subject.key, self.round
        evidence = replace(
            before.evidence.get(key, NOTHING),
            holds=self._standings.find_holds(key, subject.run.pod_uid),
        )
        self.round = replace(
            before,
            subjects={**before.subjects, key: subject},
            evidence={**before.evidence, key: evidence},
            verdicts={**before.verdicts, **found.verdicts},
            standings=self._standings.by_key,
        )

    def _tell_problems(self) -> None:
        """Say each problem once, as long as it lasts."""
        problems = tuple(dict.fromkeys(self._problems))
        for sentence in problems:
            if sentence not in self.round.problems:
                _log.warning("%s", sentence)
        if self.round.problems and not problems:
            _log.info("all is known again that the culler needs")
        self.round = replace(self.round, problems=problems)
