"""The ends of servers whose time is over: a last look at each, a record, and then the stop.

Whatever happens up to the moment at which the hub is asked keeps the server: a click, a report of
work, a pod that is another by then.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from spectrum_spawner.activity import SKEW, Evidence
from spectrum_spawner.service.culling.pods import Pods
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.standing import Action, Standing, Step
from spectrum_spawner.service.culling.sweep import Key, sweep
from spectrum_spawner.service.evidence import Gatherer
from spectrum_spawner.service.hub import Hub, HubError
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.records import SERVICE, make_record_of, tell, tell_cull
from spectrum_spawner.service.servers import Server
from spectrum_spawner.service.standings import Standings, select
from spectrum_spawner.service.telemetry import Telemetry

BATCH = 10  # times the stops that are under way at most: as many are looked at once more together
KEPT = "It is not stopped after all: somebody used it at the last moment."


class Ends:
    """Ends servers, some at a time; `ending` are those whose stop the hub was asked for."""

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
        now: Callable[[], datetime],
    ) -> None:
        self.ending: set[Key] = set()
        self._policy = policy
        self._batch = BATCH * concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._ledger = ledger
        self._hub = hub
        self._pods = pods
        self._standings = standings
        self._gatherer = gatherer
        self._telemetry = telemetry
        self._now = now
        self._said: Counter[Key] = Counter()  # words of people that are being written down

    @contextmanager
    def hold_back(self, key: Key) -> Iterator[None]:
        """Stop no such server meanwhile: somebody says something. Raises Problem if too late."""
        if key in self.ending:
            raise Problem(
                "This server is being stopped at this moment: start it again, its files are kept.",
                status=409,
            )
        self._said[key] += 1
        try:
            yield
        finally:
            self._said[key] -= 1

    async def end(self, subjects: Sequence[Subject]) -> list[str]:
        """Look once more at servers whose time is over, and stop them.

        Returns what stood in the way, in sentences. Raises LedgerError.
        """
        problems: list[str] = []
        self.ending.clear()
        for begin in range(0, len(subjects), self._batch):
            problems += await self._end_some(subjects[begin : begin + self._batch])
        return problems

    async def _end_some(self, subjects: Sequence[Subject]) -> list[str]:
        try:
            servers = await self._ask_hub(subjects)
        except HubError as error:
            return [f"The hub does not answer, so nothing is stopped: {error}."]
        subjects = [subject for subject in subjects if subject.key in servers]
        async with self._standings.changing:
            self._standings.check([subject.key for subject in subjects], self._now())
        evidence, _ = await self._gatherer.gather(subjects, self._policy)
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
        return [answer for answer in ended if isinstance(answer, str) and answer]

    async def _ask_hub(self, subjects: Sequence[Subject]) -> dict[Key, Server]:
        """Those that the hub knows to run, in the very run that was judged. Raises HubError."""

        async def find(user: str) -> tuple[Server, ...]:
            async with self._slots:
                person = await self._hub.find_person(user)
            return person.servers if person else ()

        found = await asyncio.gather(*map(find, {subject.user for subject in subjects}))
        servers = {(server.user, server.name): server for each in found for server in each}
        return {
            subject.key: server
            for subject in subjects
            if (server := servers.get(subject.key)) and _is_run(server, subject)
        }

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
            if not self._decide(subject, standing, evidence, server):
                kept = make_record_of(subject, "notice", SERVICE, KEPT, at=self._now())
                await self._ledger.add([kept])
                return ""
            self.ending.add(subject.key)
            try:
                reason = action.verdict.text
                await self._hub.stop(subject.user, subject.server, by=SERVICE, reason=reason)
            except HubError as error:
                self.ending.discard(subject.key)
                return f"The hub did not stop {server.title}: {error}."
            self._telemetry.culled(subject.team, action.rule_name)
            return ""

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
            {key: self._gatherer.renew(subject, evidence)},
            {key: standing},
            self._policy,
            now=self._now(),
            used_at=_last_activity({key: server}),
        )
        return next((action for _, action in found.actions if action.step is Step.STOP), None)


def _is_run(server: Server, subject: Subject) -> bool:
    """Whether the hub means the run whose pod was judged: a later one was asked for later."""
    return (
        not server.pending
        and server.team == subject.team
        and server.started is not None
        and server.started <= subject.run.started + SKEW
    )


def _last_activity(servers: Mapping[Key, Server]) -> dict[Key, datetime]:
    """When the hub last heard of each; an open tab counts there too, but only for seconds."""
    return {key: server.last_activity for key, server in servers.items() if server.last_activity}
