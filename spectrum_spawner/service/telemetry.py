"""What the service counts of its own work, for Prometheus."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector


class Telemetry:
    """Counters of one service, from zero at its start; `registry` has them all."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._warnings = self._count("warnings", "Ends that people were warned of", "team", "rule")
        self._extensions = self._count("extensions", "Ends that a click put off", "team")
        self._culls = self._count("culls", "Servers that a rule stopped", "team", "rule")
        self._sweeps = Histogram(
            "spectrum_sweep_seconds",
            "Time that a look at all servers took, the answers of others included",
            registry=self.registry,
        )

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Time one look; one that fails counts too."""
        with self._sweeps.time():
            yield

    def expect(self, rules: Iterable[tuple[str, str]]) -> None:
        """Show zeros for teams and the rules that hold there: Prometheus sees growth from a number
        to another, and none from nothing to one."""
        for team, rule in rules:
            self._warnings.labels(team, rule)
            self._culls.labels(team, rule)
            self._extensions.labels(team)

    def warned(self, team: str, rule: str) -> None:
        self._warnings.labels(team, rule).inc()

    def extended(self, team: str) -> None:
        self._extensions.labels(team).inc()

    def culled(self, team: str, rule: str) -> None:
        self._culls.labels(team, rule).inc()

    def _count(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"spectrum_{name}", text, labels, registry=self.registry)
