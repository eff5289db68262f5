"""A real Prometheus with a history that a test wrote down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import requests

from local.binaries import ensure_prometheus
from local.commands import run
from local.listeners import find_free_port
from local.processes import Daemons
from tests.cluster.waiting import wait_until

EVERY = 15  # seconds between two scrapes


@dataclass
class History:
    """Series that end at `now`: `add` what was measured, then `serve` it."""

    now: datetime
    _samples: dict[str, list[str]] = field(default_factory=dict)

    def add(
        self,
        metric: str,
        labels: dict[str, str],
        value: Callable[[float], float | str | None],
        *,
        minutes: int = 120,
    ) -> None:
        """Values of the last minutes; `value` says what a scrape so many minutes ago found, None
        for nothing."""
        named = ",".join(f'{name}="{text}"' for name, text in labels.items())
        lines = self._samples.setdefault(metric, [])
        for seconds in range(minutes * 60, -1, -EVERY):
            found = value(seconds / 60)
            if found is not None:
                moment = self.now - timedelta(seconds=seconds)
                lines.append(f"{metric}{{{named}}} {found} {moment.timestamp():.3f}")

    @contextmanager
    def serve(self, directory: Path) -> Iterator[str]:
        """The address of a Prometheus that has all this, for the length of the block."""
        prometheus, text = ensure_prometheus(), directory / "history.txt"
        # What is left is untyped: the queries do not ask for types.
        lines = [line for metric in self._samples for line in self._samples[metric]]
        text.write_text("".join(f"{line}\n" for line in (*lines, "# EOF")))
        data, configuration = directory / "data", directory / "prometheus.yaml"
        promtool = prometheus.with_name("promtool")
        run([promtool, "tsdb", "create-blocks-from", "openmetrics", text, data])
        configuration.write_text("{}")
        address = f"127.0.0.1:{find_free_port()}"
        daemons = Daemons(directory, die_with_parent=True)
        daemons.ensure(
            "prometheus",
            [
                *(prometheus, f"--config.file={configuration}", f"--storage.tsdb.path={data}"),
                f"--web.listen-address={address}",
            ],
        )
        try:
            wait_until(lambda: _is_ready(f"http://{address}/-/ready"))
            yield f"http://{address}"
        finally:
            daemons.stop("prometheus", kill=True)


def _is_ready(url: str) -> bool:
    try:
        return requests.get(url, timeout=2).status_code == 200
    except requests.ConnectionError:
        return False
