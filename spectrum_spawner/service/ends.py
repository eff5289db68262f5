"""The ends of servers whose time is over: a last look at each, a record, and then the stop.

Whatever happens up to the moment at which the hub is asked keeps the server: a click, a report of
work, a pod that is another by then. Stops take their time, and looks at all servers go on
meanwhile.
"""

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import islice

from spectrum_spawner.activity import Evidence, HubActivity
from spectrum_spawner.service.background import Background
from spectrum_spawner.service.culling.pods import Pods
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.standing import Action, Standing, Step
from spectrum_spawner.service.culling.sweep import Key, sweep
from spectrum_spawner.service.evidence import Gatherer
from spectrum_spawner.service.hub import Hub, HubError
from spectrum_spawner.service.ledger import Ledger, LedgerError
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.records import SERVICE, make_record_of, tell, tell_cull
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.standings import Standings, select
from spectrum_spawner.service.telemetry import Telemetry
from spectrum_spawner.service.troubles import Found, Troubles

BATCH = 10  # times the stops that are under way at most: as many are looked at once more together
# Seconds between two stops that the hub is asked for: each keeps it busy for about as long, and ten
# that come together would let nobody else in for a quarter of a second.
STAGGER = 0.025
KEPT = "It is not stopped after all: somebody used it at the last moment."
LEDGER_AWAY = "The ledger does not answer, so nothing is stopped."
HUB_AWAY = "The hub does not answer, so nothing is stopped."

_log = logging.getLogger("spectrum.culler")


class Ends:
    """Ends servers, some at a time.

    `handled` are those that are looked at once more just now, or stopped: whoever looks at all
    servers leaves them alone. `troubles` are what stood in the way.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        concurrency: int,
        ledger: Ledger,
        hub: Hub,
        pods: Pods,
        standings: Standings,
        gatherer: Gatherer,
        telemetry: Telemetry,
        background: Background,
        now: Callable[[], datetime],
    ) -> None:
        self.handled: frozenset[Key] = frozenset()
        self.troubles = Troubles()
        self._policy = policy
        self._batch = BATCH * concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._turns, self._next_turn = asyncio.Lock(), 0.0
        self._ledger = ledger
        self._hub = hub
        self._pods = pods
        self._standings = standings
        self._gatherer = gatherer
        self._telemetry = telemetry
        self._background = background
        self._now = now
        self._due: dict[Key, Subject] = {}
        self._working = asyncio.Lock()
        self._ending: set[str] = set()  # pods of servers whose stop the hub was asked for
        self._said: Counter[Key] = Counter()  # words of people that are being written down

    @contextmanager
    def hold_back(self, subject: Subject) -> Iterator[None]:
        """Stop no such server meanwhile: somebody says something. Raises Problem if too late."""
        if subject.run.pod_uid in self._ending:
            raise Problem(
                "This server is being stopped at this moment: start it again, its files are kept.",
                status=409,
            )
        self._said[subject.key] += 1
        try:
            yield
        finally:
            self._said[subject.key] -= 1

    def offer(self, subjects: Iterable[Subject]) -> None:
        """Servers whose time is over now, in place of those of the look before: they are looked at
        once more and stopped from now on, and nobody waits for it."""
        self._due = {each.key: each for each in subjects if each.key not in self.handled}
        if self._working.locked():
            return
        if self._due:
            self._background.begin(self._end_all())
        else:
            self.troubles.put({})

    async def _end_all(self) -> None:
        async with self._working:
            self._ending.clear()
            found: dict[str, str] = {}
            while self._due:
                subjects = [self._due.pop(key) for key in list(islice(self._due, self._batch))]
                self.handled = frozenset(subject.key for subject in subjects)
                try:
                    found |= await self._end_some(subjects)
                except LedgerError as error:
                    found[LEDGER_AWAY] = f"{LEDGER_AWAY} It says: {error}."
                    self._due = {}
                except Exception as error:
                    # the next look must find what it needs, whatever this one met
                    _log.exception("servers could not be stopped")
                    sentence = "Some servers whose time is over could not be stopped."
                    found[sentence] = f"{sentence} {error!r}"
                finally:
                    self.handled = frozenset()
                self.troubles.put(found)

    async def _end_some(self, subjects: Sequence[Subject]) -> Found:
        """What stood in the way. Raises LedgerError."""
        asked_at = self._now()
        servers, problems = await self._ask_hub(subjects)
        subjects = [subject for subject in subjects if subject.key in servers]
        if not subjects:
            return problems
        evidence, _ = await self._gatherer.gather(subjects, self._policy)
        async with self._standings.changing:
            known = self._standings.by_key
            subjects = [subject for subject in subjects if subject.key in known]
            self._standings.check([subject.key for subject in subjects], self._now())
        evidence = {
            subject.key: self._renew(
                subject, _hear(evidence[subject.key], servers[subject.key], asked_at)
            )
            for subject in subjects
        }
        before, now = self._standings.by_key, self._now()
        used_at = _last_activity(servers)
        found = sweep(subjects, evidence, before, self._policy, now=now, used_at=used_at)
        stops = {subject.key for subject, action in found.actions if action.step is Step.STOP}
        await self._standings.take(select(found, found.standings.keys() - stops), before, tell, now)
        ended = await asyncio.gather(
            *(
                self._stop(subject, before[subject.key], evidence[subject.key], servers)
                for subject in subjects
                if subject.key in stops
            ),
            return_exceptions=True,
        )
        for answer in ended:
            if isinstance(answer, BaseException):
                raise answer
        refused = [answer for answer in ended if isinstance(answer, str) and answer]
        if refused:
            sentence = (
                f"Servers that the hub did not stop, though their time is over: {len(refused)}."
            )
            problems[sentence] = f"{sentence} {' '.join(refused)}"
        return problems

    async def _ask_hub(
        self, subjects: Sequence[Subject]
    ) -> tuple[dict[Key, Server], dict[str, str]]:
        """Those that the hub knows to run, in the very run that was judged, and what it does not
        tell: of whom it cannot say anything nobody is stopped."""
        try:
            people, unreadable = await self._hub.find_people(each.user for each in subjects)
        except HubError as error:
            return {}, {HUB_AWAY: f"{HUB_AWAY} It says: {error}."}
        servers = {(each.user, each.name): each for who in people.values() for each in who.servers}
        found = {
            subject.key: server
            for subject in subjects
            if (server := servers.get(subject.key)) and _is_run(server, subject)
        }
        return found, _say_unreadable(unreadable)

    async def _stop(
        self,
        subject: Subject,
        standing: Standing,
        evidence: Evidence,
        servers: Mapping[Key, Server],
    ) -> str:
        """Write a stop down, and do it; a sentence if the hub does not. Raises LedgerError."""
        async with self._slots:
            server = servers[subject.key]
            action = self._decide(subject, standing, evidence, server)
            if action is None:
                return ""
            await self._ledger.add([tell_cull(subject, standing, action, self._now())])
            await self._take_turn()
            if not self._decide(subject, standing, evidence, server):
                await self._tell_kept(subject, KEPT)
                return ""
            self._ending.add(subject.run.pod_uid)
            try:
                reason = action.verdict.text
                await self._hub.stop(subject.user, subject.server, by=SERVICE, reason=reason)
            except HubError as error:
                self._ending.discard(subject.run.pod_uid)
                why = f"The hub did not stop it: {error}. It is asked again while that fits."
                await self._tell_kept(subject, why, once=f"{action.ends_at}")
                return f"{server.title}: {error}."
            self._telemetry.culled(subject.team, action.rule_name)
            return ""

    async def _take_turn(self) -> None:
        """Wait until some time after the stop before."""
        async with self._turns:
            loop = asyncio.get_running_loop()
            await asyncio.sleep(self._next_turn - loop.time())
            self._next_turn = loop.time() + STAGGER

    async def _tell_kept(self, subject: Subject, text: str, *, once: str = "") -> None:
        """Write down that an end which was written down did not come, `once` for some reasons."""
        event = f"kept/{subject.run.pod_uid}/{once}"
        id = uuid.uuid5(uuid.NAMESPACE_OID, event).hex if once else ""
        kept = make_record_of(subject, "notice", SERVICE, text, at=self._now(), id=id)
        await self._ledger.add([kept])

    def _decide(
        self, subject: Subject, standing: Standing, evidence: Evidence, server: Server
    ) -> Action | None:
        """What asks for the stop of a server with all that is known at this moment, if any does."""
        key = subject.key
        is_as_judged = (
            self._standings.by_key.get(key) is standing
            and not self._said[key]
            and self._pods.find(subject) is not None
            and subject.namespace not in self._pods.unknown
        )
        if not is_as_judged:
            return None
        found = sweep(
            [subject],
            {key: self._renew(subject, evidence)},
            {key: standing},
            self._policy,
            now=self._now(),
            used_at=_last_activity({key: server}),
        )
        return next((action for _, action in found.actions if action.step is Step.STOP), None)

    def _renew(self, subject: Subject, evidence: Evidence) -> Evidence:
        return self._gatherer.renew(subject, evidence, at_last=self._now())


def _is_run(server: Server, subject: Subject) -> bool:
    """Whether the hub means the run whose pod was judged."""
    return (
        not server.pending
        and server.team == subject.team
        and server.started is not None
        and subject.is_of(server.started)
    )


def _say_unreadable(unreadable: Mapping[str, str]) -> dict[str, str]:
    """Of whom the hub did not tell what can be read, and why."""
    if not unreadable:
        return {}
    sentence = (
        f"People of whom the hub does not tell, so that their servers stay: {len(unreadable)}."
    )
    return {
        sentence: f"{sentence} {'; '.join(f'{user}: {why}' for user, why in unreadable.items())}"
    }


def _hear(evidence: Evidence, server: Server, at: datetime) -> Evidence:
    """The same with what the hub said last, where it was asked for at all: a list may be older."""
    if evidence.hub is None:
        return evidence
    return replace(evidence, hub=HubActivity(at=at, last_activity=server.last_activity))


def _last_activity(servers: Mapping[Key, Server]) -> dict[Key, datetime]:
    """When the hub last heard of each; an open tab counts there too, but only for seconds."""
    return {key: server.last_activity for key, server in servers.items() if server.last_activity}
