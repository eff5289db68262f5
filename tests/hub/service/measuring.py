"""A Prometheus that tells what a test says of pods: its HTTP API, and nothing of its own."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Self

from aiohttp import web

from tests.hub.team import Team

UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
CPU = "container_cpu_usage_seconds_total"
MEMORY = "DCGM_FI_DEV_FB_USED"
OF_GPUS = ("exported_namespace", "exported_pod")
NAMES = {UTILISATION: OF_GPUS, MEMORY: OF_GPUS, CPU: ("namespace", "pod")}


@dataclass(kw_only=True)
class Meter:
    """One series: its value (a text is told as it is), and since when it has been below a floor.

    Of memory, the value is what is used, and `free` the rest, in MiB.
    """

    value: float | str = 0.0
    below_since: datetime | None = None
    free: float | None = None
    device: str = "GPU-1"
    at: datetime | None = None  # when it was measured, now unless set


@dataclass
class PrometheusStub:
    """Use as an async context manager; `url` is its address, `now` the time that it tells.

    `series` are by metric, namespace and pod, `counts` by metric how often each was measured within
    ten steps. With `answer` set it answers that and nothing else.
    """

    now: Callable[[], datetime]
    series: dict[tuple[str, str, str], list[Meter]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    answer: web.Response | None = None
    pause: float = 0.0
    queries: int = 0

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._answer), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.go_away()

    async def go_away(self) -> None:
        """From now on nobody answers at its port."""
        await self._runner.cleanup()

    def set(self, metric: str, team: Team, pod: str, *meters: Meter) -> None:
        self.series[metric, team.namespace, pod] = list(meters)

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        self.queries += 1
        await asyncio.sleep(self.pause)
        if self.answer is not None:
            return web.Response(
                body=self.answer.body, status=self.answer.status, content_type="application/json"
            )
        query = (await request.post())["query"]
        assert isinstance(query, str)
        found = re.search(r"([A-Za-z_]+)\{", query)
        assert found, query
        floors = re.findall(r'"below:([0-9.]+)"', query)
        result = [
            sample
            for (metric, namespace, pod), meters in self.series.items()
            if metric == found[1]
            for meter in meters
            for sample in self._tell(metric, namespace, pod, meter, floors)
        ]
        if count := self.counts.get(found[1]):
            told = [self.now().timestamp(), str(count)]
            result.append({"metric": {"spectrum_part": "count"}, "value": told})
        data = {"resultType": "vector", "result": result}
        return web.json_response({"status": "success", "data": data})

    def _tell(
        self, metric: str, namespace: str, pod: str, meter: Meter, floors: list[str]
    ) -> list[Mapping[str, Any]]:
        now = self.now()
        value = "now" if meter.free is None else "used"
        parts: dict[str, float | str] = {"at": (meter.at or now).timestamp(), value: meter.value}
        if meter.free is not None:
            parts["free"] = meter.free
        if meter.below_since is not None:
            parts |= {f"below:{floor}": meter.below_since.timestamp() for floor in floors}
        of_pod = dict(zip(NAMES[metric], (namespace, pod), strict=True))
        device = {} if metric == CPU else {"UUID": meter.device}
        return [
            {
                "metric": {**of_pod, **device, "spectrum_part": part},
                "value": [now.timestamp(), str(value)],
            }
            for part, value in parts.items()
        ]
