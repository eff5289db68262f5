"""How full the memory of GPUs is, for people to see: nothing is decided by it.

One query a metric, however many servers there are. It asks for what is used and what is free at one
moment: what was highest in some minutes of each would be more than there is.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from spectrum_spawner.activity import Run, find_doubt
from spectrum_spawner.service.culling.metrics import MEMORY, Metric
from spectrum_spawner.service.culling.prometheus import (
    AT,
    MOST_NAMED,
    PART,
    Pod,
    Prometheus,
    ask_each,
    read_moment,
    read_parts,
    read_vector,
    select,
)
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.uncollected import uncollected

USED, FREE = "used", "free"  # parts of an answer
HIGHEST = 2**44  # bytes that no GPU has; an exporter that does not know tells far more


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU or MIG slice as it was measured, in bytes; `pod_uid` is "" where nobody tells."""

    name: str
    at: datetime | None
    used: float
    free: float
    pod_uid: str = ""

    def is_known(self, run: Run, now: datetime) -> bool:
        """Whether it tells of that run, now, what can be."""
        if self.at is None or find_doubt(self.at, now) or self.at < run.started:
            return False
        if self.pod_uid and self.pod_uid != run.pod_uid:
            return False
        return self.used >= 0 and self.free >= 0 and 0 < self.used + self.free <= HIGHEST


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Of all GPUs of a server together, in bytes."""

    used: int
    total: int

    @property
    def text(self) -> str:
        """In words, such as `12 of 80 GiB`."""
        used, total = (_show_gibibytes(each) for each in (self.used, self.total))
        return f"{used} of {total} GiB"


async def measure_memory(
    prometheus: Prometheus,
    metrics: Mapping[str, Metric],
    *,
    prefix: str,
    pods: Collection[Pod] = (),
) -> tuple[dict[Pod, list[Device]], dict[str, str]]:
    """The GPUs of all pods, or of few that are named, by those metrics that tell of memory; and
    which of these Prometheus does not tell, in sentences."""
    named = pods if len(pods) <= MOST_NAMED else ()
    asked = {name: metric for name, metric in metrics.items() if metric.source == MEMORY}

    async def ask(metric: Metric) -> dict[Pod, list[Device]]:
        body = await prometheus.query(make_memory_query(metric, prefix=prefix, pods=named))
        # of ten thousand servers it takes a while
        return await asyncio.to_thread(read_memory, body, metric)

    found: dict[Pod, list[Device]] = {}
    answers, problems = await ask_each(ask, asked)
    for answer in answers.values():
        for pod, devices in answer.items():
            found.setdefault(pod, []).extend(devices)
    return found, problems


def make_memory_query(metric: Metric, *, prefix: str, pods: Collection[Pod] = ()) -> str:
    """The one query of a metric, over namespaces that begin with `prefix`, or over those pods."""
    by = ", ".join(metric.labels)
    used = select(metric, prefix, pods)
    free = select(replace(metric, name=metric.free), prefix, pods)
    parts = {AT: f"timestamp({used})", USED: used, FREE: free}
    return " or ".join(
        f'label_replace(max by ({by}) ({query}), "{PART}", "{part}", "", "")'
        for part, query in parts.items()
    )


def read_memory(body: bytes, metric: Metric) -> dict[Pod, list[Device]]:
    """Read what Prometheus says of a metric; a GPU of which a number is missing is left out.

    Raises PrometheusError.
    """
    with uncollected():
        found, _ = read_parts(read_vector(body), metric)
        by_pod: dict[Pod, list[Device]] = {}
        for key, parts in found.items():
            namespace, pod = key[:2]
            if namespace and pod and USED in parts and FREE in parts and metric.is_believed(key):
                device = Device(
                    name=metric.name_device(key),
                    at=read_moment(parts.get(AT)),
                    used=parts[USED] * metric.scale,
                    free=parts[FREE] * metric.scale,
                    pod_uid=metric.find_uid(key),
                )
                by_pod.setdefault((namespace, pod), []).append(device)
        return by_pod


def find_memory(subject: Subject, devices: Iterable[Device], now: datetime) -> Memory | None:
    """What the GPUs of a server have together; None unless each of them is measured now."""
    run = subject.run
    known = {device.name: device for device in devices if device.is_known(run, now)}
    if not known or len(known) != run.gpus:
        return None
    used = sum(device.used for device in known.values())
    free = sum(device.free for device in known.values())
    return Memory(used=round(used), total=round(used + free))


def _show_gibibytes(size: int) -> str:
    """Below ten with a decimal: a slice of a GPU has few."""
    gibibytes = size / 2**30
    return f"{gibibytes:.1f}".removesuffix(".0") if gibibytes < 9.95 else f"{gibibytes:.0f}"
