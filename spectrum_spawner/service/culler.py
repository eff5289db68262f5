"""The culler: looks at all servers again and again, warns of ends, and ends what stays idle.

Whatever people are told is kept first. While the hub, the API server or the ledger does not
answer, nothing is stopped.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spectrum_spawner.activity import Evidence, Hold
from spectrum_spawner.audit import Record
from spectrum_spawner.service.culling import standing as standing_of
from spectrum_spawner.service.culling.history import History
from spectrum_spawner.service.culling.memory import Memory
from spectrum_spawner.service.culling.pods import Pods
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing, Step
from spectrum_spawner.service.culling.sweep import NOTHING, Key, Sweep, find_standing, sweep
from spectrum_spawner.service.ends import LEDGER_AWAY, Ends
from spectrum_spawner.service.evidence import Gatherer
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.metering import Meter
from spectrum_spawner.service.moments import show, stamp
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.records import make_record_of, name_of, tell
from spectrum_spawner.service.settings import Culling
from spectrum_spawner.service.snapshot import Snapshot
from spectrum_spawner.service.standings import Held, Standings, select
from spectrum_spawner.service.team_sheet import TeamSheet
from spectrum_spawner.service.telemetry import Telemetry
from spectrum_spawner.service.troubles import Found, Troubles, same
from spectrum_spawner.watch import View

MISSED = 3  # times the pause between two looks: without one for so long, something is wrong
HEARD_WITHIN = 8.0  # seconds that somebody's word may take to be written down
NOT_WRITTEN = (
    "That could not be written down, so it does not count: try again in a minute, or tell an "
    "administrator."
)

_log = logging.getLogger("spectrum.culler")


class Culler:
    """One culler. `round` is what its last look found, `history` what GPUs did before.

    `problems` are sentences for everybody on what stands in the way. People's words come in by
    `extend`, `hold` and `end_hold`, with `by` an actor; these raise Problem.
    """

    def __init__(
        self,
        settings: Culling,
        *,
        teams: View[TeamSheet],
        snapshot: Snapshot,
        pods: Pods,
        meter: Meter,
        standings: Standings,
        gatherer: Gatherer,
        ends: Ends,
        telemetry: Telemetry,
        now: Callable[[], datetime],
    ) -> None:
        self.round = Round(enabled=settings.enabled, policy=settings.policy)
        self.history = History()
        self._policy = settings.policy
        self._late = timedelta(seconds=MISSED * settings.every)
        self._teams = teams
        self._snapshot = snapshot
        self._pods = pods
        self._meter = meter
        self._standings = standings
        self._gatherer = gatherer
        self._ends = ends
        self._telemetry = telemetry
        self._now = now
        self._began = now()
        self._looking = asyncio.Lock()
        self._troubles = Troubles()

    async def look(self) -> None:
        """One look at all servers, one at a time; what is over by it ends from then on."""
        async with self._looking:
            found: dict[str, str] = {}
            try:
                with self._telemetry.sweeping():
                    self._ends.offer(await self._sweep(found))
            except LedgerError as error:
                found[LEDGER_AWAY] = f"{LEDGER_AWAY} It says: {error}."
            except Exception as error:
                # the next look comes, and until then it must be seen that this one found nothing
                _log.exception("a look at all servers failed")
                sentence = "The last look at all servers failed, so nothing is ended."
                found[sentence] = f"{sentence} It met {error!r}."
            self._troubles.put(found)

    async def gather(self, policy: Policy) -> Mapping[Key, Evidence]:
        """The evidence of now that another policy asks for, of the servers of the last look."""
        evidence, _ = await self._gatherer.gather(self.round.subjects.values(), policy)
        return evidence

    @property
    def problems(self) -> tuple[str, ...]:
        found = (*self._troubles.sentences, *self._ends.troubles.sentences)
        return tuple(dict.fromkeys((*found, *self._say_late())))

    def health(self) -> dict[str, Any]:
        """How the culler is, for the operator."""
        found = self.round
        details = (*self._troubles.details, *self._ends.troubles.details)
        return {
            "enabled": found.enabled,
            "at": found.at and found.at.isoformat(timespec="seconds"),
            "servers": len(found.subjects),
            "problems": list(dict.fromkeys((*details, *self._say_late()))),
        }

    async def extend(self, key: Key, *, by: str) -> None:
        """One click that keeps an idle server for a while."""
        subject, rule = self._find(key)
        async with self._take_word(subject):
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
        """Somebody's word that a server works until a moment, in place of one before.

        It counts also while the culler is not enabled: it may be so again before that moment.
        """
        subject, rule = self._find(key)
        async with self._take_word(subject):
            before = find_standing(subject, self._standings.by_key)
            after, hold = standing_of.make_hold(
                subject,
                rule,
                before,
                by=name_of(by),
                until=until,
                reason=reason,
                now=self._now(),
            )
            text = f"It is held until {show(until)}{f': {reason}' if reason else '.'}"
            record = self._make_word(subject, "hold", by, text, rule, until)
            await self._put_hold(
                subject, after, Held(pod_uid=subject.run.pod_uid, hold=hold), record
            )

    async def end_hold(self, key: Key, *, by: str) -> None:
        """Take back the word that holds a server."""
        subject, rule = self._find(key)
        async with self._take_word(subject):
            if not self._standings.find_holds(key, subject.run.pod_uid):
                raise Problem("Nobody holds this server, so there is nothing to end.", status=409)
            before = find_standing(subject, self._standings.by_key)
            record = self._make_word(subject, "hold", by, "The hold was ended.", rule, None)
            await self._put_hold(subject, before, None, record)

    async def _put_hold(
        self, subject: Subject, standing: Standing, held: Held | None, record: Record
    ) -> None:
        """Keep how a server stands with a hold, or with none; called within `_take_word`."""
        found = self._judge(subject, standing, holds=(held.hold,) if held else ())
        records = [record, *tell(found, self._now())]
        after = found.standings[subject.key]
        await self._write(self._standings.hold(subject.key, held, after, records))
        self._show(subject, found)

    async def _sweep(self, problems: dict[str, str]) -> list[Subject]:
        """Judge every server and tell people; returns those whose time is over."""
        subjects = await self._find_subjects(problems)
        if subjects is None:
            return []
        await self._standings.load()
        await self._meter.load()
        (evidence, missing), (memory, unseen) = await asyncio.gather(
            self._gatherer.gather(subjects.values(), self._policy),
            self._gatherer.gather_memory(subjects.values(), self._now()),
        )
        problems |= {**missing, **unseen}
        before, now = self._standings.by_key, self._now()
        found = await asyncio.to_thread(self._judge_all, subjects, evidence, before, now)
        if found.failures:
            problems |= _tell_failures(found.failures)
        self._publish(subjects, evidence, found, memory)
        if self.round.enabled:
            # those that are looked at once more just now are others' business
            left = found.standings.keys() - self._ends.handled
            actions = await self._standings.take(select(found, left), before, tell, now)
        else:
            # whatever was said before of an end holds no more
            await self._standings.calm()
            actions = []
        await self._forget_gone(subjects)
        self.round = replace(self.round, standings=self._standings.by_key)
        for subject, action in actions:
            if action.step is Step.WARN:
                self._telemetry.warned(subject.team, action.rule_name)
        return [subject for subject, action in actions if action.step in (Step.CHECK, Step.STOP)]

    async def _find_subjects(self, problems: dict[str, str]) -> dict[Key, Subject] | None:
        """The servers that are known to run; None while nobody knows any."""
        if not self._teams.synced or self._teams.stale_since is not None:
            problems |= same(
                "The Kubernetes API does not tell which teams there are, so no server is judged."
            )
            return None
        await self._pods.follow(
            {name: sheet.team if sheet.is_known else None for name, sheet in self._teams.items()}
        )
        if unknown := sorted(self._pods.unknown):
            sentence = (
                "Teams of which nobody knows what they run, so that none of it is judged: "
                f"{len(unknown)}."
            )
            problems[sentence] = f"{sentence} They are {', '.join(unknown)}."
        subjects, unreadable = await asyncio.to_thread(self._pods.list_subjects)
        if unreadable:
            sentence = (
                f"Servers that cannot be read, so that they are not judged: {len(unreadable)}."
            )
            problems[sentence] = f"{sentence} They are {', '.join(unreadable)}."
        return {subject.key: subject for subject in subjects}

    async def _forget_gone(self, subjects: Mapping[Key, Subject]) -> None:
        """Drop what was told and said of servers that neither the hub nor the API server knows.

        While the hub does not answer nothing is dropped: a pod that is not seen may run.
        """
        missing = self._standings.list_keys() - subjects.keys()
        if missing:
            await self._standings.forget(await self._snapshot.find_gone(missing))

    def _judge_all(
        self,
        subjects: Mapping[Key, Subject],
        evidence: Mapping[Key, Evidence],
        standings: Mapping[Key, Standing],
        now: datetime,
    ) -> Sweep:
        """In a thread, since of ten thousand servers it takes a while."""
        self.history.note(subjects, evidence, now)
        self._meter.note(subjects, evidence, now)
        return sweep(subjects.values(), evidence, standings, self._policy, now=now)

    def _judge(
        self, subject: Subject, standing: Standing, *, holds: tuple[Hold, ...] | None = None
    ) -> Sweep:
        """How one server stands with what somebody just said."""
        key = subject.key
        evidence = self._gatherer.renew(subject, self.round.evidence.get(key, NOTHING))
        if holds is not None:
            evidence = replace(evidence, holds=holds)
        found = sweep([subject], {key: evidence}, {key: standing}, self._policy, now=self._now())
        if self.round.enabled:
            return found
        # nothing follows from it
        return replace(found, standings={key: standing}, actions=[])

    def _find(self, key: Key) -> tuple[Subject, Rule]:
        """A server that runs now, maybe since the last look only, and its rule; raises Problem."""
        subject = self.round.subjects.get(key)
        if subject is None or self._pods.find(subject) is None:
            running, _ = self._pods.list_subjects()
            subject = next((each for each in running if each.key == key), None)
        if subject is None:
            raise Problem("There is no such server running: it may have ended already.", status=404)
        rule = self._policy.find_rule(subject)
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
    async def _take_word(self, subject: Subject) -> AsyncIterator[None]:
        """Take somebody's word down: from this moment on the server is not stopped meanwhile.

        Raises Problem where that takes too long.
        """
        with self._ends.hold_back(subject):
            try:
                async with asyncio.timeout(HEARD_WITHIN), self._standings.changing:
                    yield
            except TimeoutError as error:
                raise Problem(NOT_WRITTEN, status=503) from error

    async def _write(self, work: Awaitable[None]) -> None:
        """Raises Problem where the ledger takes nothing."""
        try:
            await work
        except LedgerError as error:
            _log.error("not in the ledger: %s", error)
            raise Problem(NOT_WRITTEN, status=503) from error

    def _say_late(self) -> tuple[str, ...]:
        """A culler that does nothing must not do so silently."""
        last = self.round.at or self._began
        if self._now() - last <= self._late:
            return ()
        return (f"Nobody has looked at the servers since {show(last)}, so nothing is ended.",)

    def _publish(
        self,
        subjects: Mapping[Key, Subject],
        evidence: Mapping[Key, Evidence],
        found: Sweep,
        memory: Mapping[Key, Memory],
    ) -> None:
        """Show what was found; of what nobody knows now, what was found before."""
        before, unknown = self.round, self._pods.unknown
        kept = {k for k, s in before.subjects.items() if s.namespace in unknown} & (
            before.evidence.keys() & before.verdicts.keys()
        )
        self.round = replace(
            before,
            at=self._now(),
            subjects={**{k: before.subjects[k] for k in kept}, **subjects},
            evidence={**{k: before.evidence[k] for k in kept}, **evidence},
            verdicts={**{k: before.verdicts[k] for k in kept}, **found.verdicts},
            memory=memory,
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


def _tell_failures(failures: Mapping[Key, Exception]) -> Found:
    sentence = f"Servers that could not be judged, so that nothing ends them: {len(failures)}."
    met = "; ".join(f"{user}/{server}: {error!r}" for (user, server), error in failures.items())
    return {sentence: f"{sentence} {met}"}
