"""What Prometheus may know of the service: /metrics, outside the service's prefix.

No person is named there, since whoever reads a Prometheus may see all that it has.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from spectrum_spawner.service import gpus
from spectrum_spawner.service.context import Context
from spectrum_spawner.service.culling.round import Round
from spectrum_spawner.service.gpu_rows import GpuRow
from spectrum_spawner.service.handler import Answering

PENDING = {"": "running", "spawn": "starting", "stop": "stopping"}


class Exposition(Answering):
    async def get(self) -> None:
        table = await gpus.read_table(self.context)
        self.context.telemetry.expect(_list_rules(self.context.culler.round))
        self.set_header("Content-Type", CONTENT_TYPE_LATEST)
        self.write(generate_latest(self.context.telemetry.registry))
        self.write(generate_latest(State(self.context, table.rows)))


@dataclass(frozen=True)
class State:
    """How everything stands now: what the last looks found, for `generate_latest`."""

    context: Context
    rows: tuple[GpuRow, ...]

    def collect(self) -> Iterator[Metric]:
        yield self._tell_servers()
        yield self._tell_gpus()
        yield from self._tell_looks()
        yield from self._tell_hours()
        yield CounterMetricFamily(
            "spectrum_ledger_errors",
            "Reads and writes of the ledger that failed",
            value=self.context.ledger.errors,
        )

    def _tell_servers(self) -> Metric:
        found: Counter[tuple[str, ...]] = Counter(
            (server.team, PENDING.get(server.pending, "running"))
            for server in self.context.snapshot
        )
        return _gauge("spectrum_servers", "Servers as the hub last told", ("team", "state"), found)

    def _tell_gpus(self) -> Metric:
        """In the words of the board, so that both always agree."""
        found = Counter[tuple[str, ...]]()
        for row in self.rows:
            found[row.server.team, row.product, row.state] += row.gpus
        names = ("team", "product", "state")
        return _gauge("spectrum_gpus", "GPUs that servers hold, by what they do", names, found)

    def _tell_hours(self) -> Iterator[Metric]:
        names, totals = ("team", "profile"), self.context.meter.list_totals()
        for part, text in (
            ("reserved", "Time for which servers held GPUs, in seconds of one GPU"),
            ("used", "The same times the utilisation that was measured"),
        ):
            family = CounterMetricFamily(f"spectrum_gpu_{part}_seconds", text, labels=names)
            for place, hours in sorted(totals.items()):
                family.add_metric(place, getattr(hours, part))
            yield family

    def _tell_looks(self) -> Iterator[Metric]:
        hub, round = self.context.snapshot, self.context.culler.round
        yield GaugeMetricFamily(
            "spectrum_hub_answers", "Whether the hub answered when last asked", int(not hub.error)
        )
        yield GaugeMetricFamily(
            "spectrum_evidence_problems",
            "Why evidence is missing: reasons that the last look at all servers met",
            len(self.context.culler.problems),
        )
        yield GaugeMetricFamily(
            "spectrum_last_sweep_timestamp_seconds",
            "When all servers were last looked at, 0 for never",
            round.at.timestamp() if round.at else 0,
        )


def _list_rules(round: Round) -> set[tuple[str, str]]:
    """Teams whose servers were judged, each with the names of the rules that hold there."""
    judged = ((one.team, round.verdicts.get(key)) for key, one in round.subjects.items())
    return {(team, verdict.rule.name) for team, verdict in judged if verdict and verdict.rule}


def _gauge(
    name: str, text: str, labels: tuple[str, ...], values: Counter[tuple[str, ...]]
) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in sorted(values.items()):
        family.add_metric(key, value)
    return family
