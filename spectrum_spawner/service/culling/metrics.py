"""Which metrics tell what a pod does, by which names and labels. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner.activity import CPU, GPU, HIGHEST, MEASURED, POWER

MEMORY = "memory"  # the source of what people see and no rule asks for

_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


class MetricError(ValueError):
    """A metric in the values cannot be used; the text says where and why."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric of Prometheus.

    `scale` makes percent, watts, cores or bytes of it. A counter of seconds is read by its rate.
    Of memory, `name` is what is used and `free` the metric of what is free, with the same labels.
    `device` are the labels that tell a pod's devices apart, `slice` the one that a MIG slice has:
    a metric that says nothing of slices (`slices` false) is not believed where it is set. `only`
    are labels that a series must have.
    """

    name: str
    source: str
    free: str = ""
    scale: float = 1.0
    counter: bool = False
    namespace: str = "exported_namespace"
    pod: str = "exported_pod"
    uid: str = ""
    device: tuple[str, ...] = ("UUID",)
    slice: str = "GPU_I_ID"
    slices: bool = True
    only: Mapping[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """Namespace and pod, the uid if there is one, then what tells devices apart."""
        named = (self.namespace, self.pod, self.uid, *self.device, self.slice)
        return tuple(name for name in named if name)

    @property
    def highest(self) -> float:
        """Of the values as Prometheus has them."""
        return HIGHEST[self.source] / self.scale

    def is_believed(self, values: Sequence[str | None]) -> bool:
        """Whether it tells of the device that these values of its labels name."""
        return self.slices or not (self.slice and values[-1])

    def name_device(self, values: Sequence[str | None]) -> str:
        """The device of a pod by the values of its labels, such as `GPU-1/3` for a MIG slice."""
        return "/".join(filter(None, values[3 if self.uid else 2 :]))

    def find_uid(self, values: Sequence[str | None]) -> str:
        """The pod's uid by the values of its labels, "" where nobody tells."""
        return (values[2] or "") if self.uid else ""


METRICS: dict[str, dict[str, Any]] = {
    "engine": {"name": "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "source": GPU, "scale": 100},
    # says nothing of MIG slices, and is all there is before Volta
    "utilisation": {"name": "DCGM_FI_DEV_GPU_UTIL", "source": GPU, "slices": False},
    "power": {"name": "DCGM_FI_DEV_POWER_USAGE", "source": POWER, "slices": False},
    "cpu": {
        "name": "container_cpu_usage_seconds_total",
        "source": CPU,
        "counter": True,
        "namespace": "namespace",
        "pod": "pod",
        "device": [],
        "slice": "",
        "only": {"container": "notebook"},
    },
    # the exporter tells both in MiB
    "memory": {
        "name": "DCGM_FI_DEV_FB_USED",
        "free": "DCGM_FI_DEV_FB_FREE",
        "source": MEMORY,
        "scale": 2**20,
    },
}


def read_metrics(values: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that are measured: ours, changed and added to by `values` (None takes one out).

    Raises MetricError.
    """
    wanted = {name: dict(record) for name, record in METRICS.items()}
    for name, record in values.items():
        if record is None:
            wanted.pop(name, None)
        elif isinstance(record, Mapping):
            wanted[name] = {**wanted.get(name, {}), **record}
        else:
            raise MetricError(f"metrics.{name}: must be a table")
    return {name: _read_metric(f"metrics.{name}", record) for name, record in wanted.items()}


def _read_metric(place: str, record: Mapping[str, Any]) -> Metric:
    known = set(Metric.__dataclass_fields__)
    for key in record:
        if key not in known:
            raise MetricError(f"{place}.{key}: unknown key, known are {', '.join(sorted(known))}")
    if "name" not in record:
        raise MetricError(f"{place}.name: is missing")
    source = record.get("source")
    if source not in (*MEASURED, MEMORY):
        raise MetricError(f"{place}.source: must be one of {', '.join((*MEASURED, MEMORY))}")
    if bool(record.get("free")) != (source == MEMORY):
        raise MetricError(f"{place}.free: must be there for source {MEMORY}, and for no other")
    scale = record.get("scale", 1)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < 1e9:
        raise MetricError(f"{place}.scale: {scale!r} is no number above 0")
    device, only = record.get("device", ("UUID",)), record.get("only", {})
    if not isinstance(device, list | tuple) or not isinstance(only, Mapping):
        raise MetricError(f"{place}: device must be a list of labels, only a table of them")
    metric = Metric(**{**record, "device": tuple(device), "only": dict(only), "scale": scale})
    _check_names(place, metric)
    return metric


def _check_names(place: str, metric: Metric) -> None:
    named = {"name": metric.name, **({"free": metric.free} if metric.free else {})}
    for key, name in named.items():
        if not isinstance(name, str) or not _METRIC.match(name):
            raise MetricError(f"{place}.{key}: {name!r} is no metric's name")
    if not metric.namespace or not metric.pod:
        raise MetricError(f"{place}: namespace and pod must name the labels that tell the pod")
    for label in (*metric.labels, *metric.only):
        if not isinstance(label, str) or not _LABEL.match(label):
            raise MetricError(f"{place}: {label!r} is no label's name")
    for value in metric.only.values():
        if not isinstance(value, str):
            raise MetricError(f"{place}.only: {value!r} is no text")
