"""All evidence of the servers that run, put together from who tells it.

What cannot be had now is absent, which is unknown, and a sentence says why.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from spectrum_spawner.activity import CPU, GPU, HUB, MEASURED, POWER, Evidence, HubActivity
from spectrum_spawner.service.culling.memory import Memory, find_memory, measure_memory
from spectrum_spawner.service.culling.prometheus import Measured, Prometheus, measure
from spectrum_spawner.service.culling.report import Report, Told
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.settings import Culling
from spectrum_spawner.service.snapshot import Snapshot
from spectrum_spawner.service.standings import Standings
from spectrum_spawner.service.troubles import Found

NO_REPORT = Report()
UNMEASURED = "What GPUs do is not measured here, so no server with a GPU ends as idle."
LAST_WORD = timedelta(seconds=100)  # a server tells of itself each minute or so, and when it works
_NAMES = {GPU: "GPUs", POWER: "power", CPU: "CPU"}


class Gatherer:
    """Asks Prometheus and the hub; what servers told themselves is in `told`. Closed by `close`."""

    def __init__(
        self,
        settings: Culling,
        *,
        snapshot: Snapshot,
        standings: Standings,
        told: Told,
    ) -> None:
        self._settings = settings
        self._snapshot = snapshot
        self._standings = standings
        self._told = told
        url = settings.prometheus_url
        self._prometheus = Prometheus(url) if url else None

    def close(self) -> None:
        if self._prometheus is not None:
            self._prometheus.close()

    async def gather(
        self, subjects: Iterable[Subject], policy: Policy
    ) -> tuple[dict[Key, Evidence], Found]:
        """The evidence of now that the rules of a policy ask for, and what is missing of it."""
        servers = list(subjects)
        problems: dict[str, str] = {}
        measured, activity = await asyncio.gather(
            self._measure(servers, policy, problems), self._hear_hub(servers, policy, problems)
        )
        problems |= self._say_rare(measured)
        # of ten thousand servers it takes a while
        evidence = await asyncio.to_thread(self._put_together, servers, measured, activity)
        return evidence, problems

    async def gather_memory(
        self, subjects: Iterable[Subject], now: datetime
    ) -> tuple[dict[Key, Memory], Found]:
        """How full the memory of GPUs is, by server as far as that is known, and what is missing of
        it. It is for people to see, and no evidence."""
        servers = {(each.namespace, each.pod): each for each in subjects if each.run.gpus}
        if self._prometheus is None or not servers:
            return {}, {}
        devices, problems = await measure_memory(
            self._prometheus,
            self._settings.metrics,
            prefix=self._settings.team_prefix,
            pods=servers.keys(),
        )

        def add_up() -> dict[Key, Memory]:
            found = {
                subject.key: find_memory(subject, devices.get(pod, ()), now)
                for pod, subject in servers.items()
            }
            return {key: memory for key, memory in found.items() if memory}

        return await asyncio.to_thread(add_up), _say_untold(problems)

    def renew(
        self, subject: Subject, evidence: Evidence, *, at_last: datetime | None = None
    ) -> Evidence:
        """The same with what the server and its people told last; nobody is asked.

        Before a server is stopped, `at_last`, it must just have told, and no word of anybody be
        lost since.
        """
        found = self._renew(subject, evidence)
        if at_last is None:
            return found
        missed_at = self._told.missed_at
        since = at_last - LAST_WORD
        return found.told_since(max(since, missed_at) if missed_at else since)

    def _renew(self, subject: Subject, evidence: Evidence) -> Evidence:
        report = self._told.get(subject.key, NO_REPORT)
        return Evidence(
            series=evidence.series,
            kernels=report.kernels,
            terminals=report.terminals,
            processes=report.processes,
            hub=evidence.hub,
            holds=self._standings.find_holds(subject.key, subject.run.pod_uid),
        )

    def _put_together(
        self,
        servers: Iterable[Subject],
        measured: Measured,
        activity: Mapping[Key, HubActivity],
    ) -> dict[Key, Evidence]:
        return {
            subject.key: self._renew(
                subject,
                Evidence(
                    series=measured.series.get((subject.namespace, subject.pod), ()),
                    hub=activity.get(subject.key),
                ),
            )
            for subject in servers
        }

    async def _measure(
        self, servers: list[Subject], policy: Policy, problems: dict[str, str]
    ) -> Measured:
        floors = {source: found for source in MEASURED if (found := policy.list_floors(source))}
        if self._prometheus is None:
            if floors:
                problems[UNMEASURED] = f"{UNMEASURED} metrics.prometheusUrl is not set."
            return Measured()
        # for the board, whatever the rules ask for
        floors.setdefault(GPU, (1.0,))
        wishes = {subject.idle_minutes for subject in servers}
        measured = await measure(
            self._prometheus,
            self._settings.metrics,
            prefix=self._settings.team_prefix,
            floors=floors,
            lookback={source: policy.find_lookback(source, wishes) for source in floors},
            step=self._settings.step,
            pods={(subject.namespace, subject.pod) for subject in servers},
        )
        problems |= _say_untold(measured.problems)
        if not measured.problems:
            problems |= _say_silent(measured.silent, servers)
        return measured

    def _say_rare(self, measured: Measured) -> Found:
        """Whether GPUs are measured so seldom that nobody knows what they did in between."""
        found = {}
        for name, interval in measured.intervals.items():
            if self._settings.metrics[name].source == GPU and interval > self._settings.step * 0.75:
                sentence = "GPUs are measured too seldom to know that they do nothing."
                found[sentence] = (
                    f"{sentence} Metric {name} comes every {interval.total_seconds():.0f} seconds: "
                    "set metrics.scrapeSeconds to that."
                )
        return found

    async def _hear_hub(
        self, servers: list[Subject], policy: Policy, problems: dict[str, str]
    ) -> dict[Key, HubActivity]:
        # a list of thousands costs the hub much, and mostly nobody's rule asks for it
        needed = any(HUB in rule.evidence for rule in policy.rules) and any(
            (rule := policy.find_rule(subject)) and HUB in rule.evidence for subject in servers
        )
        if needed:
            await self._snapshot.refresh(max_age=self._settings.every / 2)
        as_of = self._snapshot.as_of
        if self._snapshot.error:
            sentence = "The hub does not tell who runs what."
            problems[sentence] = f"{sentence} It says: {self._snapshot.error}."
        if as_of is None or not needed:
            return {}
        return {
            (server.user, server.name): HubActivity(at=as_of, last_activity=server.last_activity)
            for server in self._snapshot
        }


def _say_untold(problems: Mapping[str, str]) -> Found:
    """Metrics that Prometheus does not tell, with what it says."""
    found = {}
    for name, text in problems.items():
        sentence = f"Prometheus does not tell metric {name}, so what it measures is unknown."
        found[sentence] = f"{sentence} It says: {text}."
    return found


def _say_silent(silent: Iterable[str], servers: list[Subject]) -> Found:
    """Sources of which nothing at all is measured although there are servers to be measured."""
    expected = {CPU} if servers else set()
    if any(subject.run.gpus for subject in servers):
        expected |= {GPU, POWER}
    found = {}
    for source in sorted(expected & set(silent)):
        sentence = f"Nobody measures the {_NAMES[source]} of any server, so it is unknown."
        found[sentence] = (
            f"{sentence} Prometheus has no such series: are exporters, labels and names of metrics "
            "as the values say?"
        )
    return found
