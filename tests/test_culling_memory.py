"""How full the memory of GPUs is, as Prometheus tells it, whatever it answers."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.activity import Run
from spectrum_spawner.service.culling.memory import (
    Device,
    Memory,
    find_memory,
    make_memory_query,
    measure_memory,
    read_memory,
)
from spectrum_spawner.service.culling.metrics import Metric, read_metrics
from spectrum_spawner.service.culling.prometheus import Prometheus, PrometheusError
from spectrum_spawner.service.culling.rules import Subject

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MEASURED = NOW - timedelta(seconds=5)
MINUTE = timedelta(minutes=1)
GIB = 2**30
METRIC = read_metrics({})["memory"]
POD = ("spectrum-ops", "jupyter-alice")
LABELS = {"exported_namespace": POD[0], "exported_pod": POD[1], "UUID": "GPU-1"}
DEVICE = Device(name="GPU-1", at=MEASURED, used=12.0 * GIB, free=68.0 * GIB)
SUBJECT = Subject(
    user="alice",
    server="",
    team="ops",
    profile="gpu-1",
    namespace=POD[0],
    pod=POD[1],
    run=Run(pod_uid="uid", started=NOW - 60 * MINUTE, gpus=1),
)


def sample(part: str, value: object, **labels: str) -> dict[str, Any]:
    return {
        "metric": {**LABELS, **labels, "spectrum_part": part},
        "value": [NOW.timestamp(), str(value)],
    }


def samples(used: object = 12 * 1024, free: object = 68 * 1024, **labels: str) -> list[Any]:
    """One GPU, in MiB as the exporter tells them."""
    at = sample("at", MEASURED.timestamp(), **labels)
    return [at, sample("used", used, **labels), sample("free", free, **labels)]


def read(*result: Any, metric: Metric = METRIC) -> dict[tuple[str, str], list[Device]]:
    data = {"resultType": "vector", "result": result}
    return read_memory(json.dumps({"status": "success", "data": data}).encode(), metric)


def test_what_is_used_and_what_is_free_are_asked_for_by_one_query_at_one_moment() -> None:
    by = "max by (exported_namespace, exported_pod, UUID, GPU_I_ID)"
    chosen = '{exported_namespace=~"spectrum\\\\.x-.+"}'
    used, free = f"DCGM_FI_DEV_FB_USED{chosen}", f"DCGM_FI_DEV_FB_FREE{chosen}"
    assert make_memory_query(METRIC, prefix="spectrum.x-") == (
        f'label_replace({by} (timestamp({used})), "spectrum_part", "at", "", "") or '
        f'label_replace({by} ({used}), "spectrum_part", "used", "", "") or '
        f'label_replace({by} ({free}), "spectrum_part", "free", "", "")'
    )


def test_few_pods_are_asked_for_by_their_names() -> None:
    named = '{exported_namespace=~"spectrum-ops",exported_pod=~"jupyter-alice"}'
    query = make_memory_query(METRIC, prefix="spectrum-", pods=[POD])
    assert query.count(named) == 3


def test_every_gpu_and_every_slice_is_read_in_bytes() -> None:
    slice_ = {"GPU_I_ID": "3"}
    assert read(*samples(), *samples(used=0, free=4864, **slice_), *samples(UUID="GPU-2")) == {
        POD: [
            DEVICE,
            replace(DEVICE, name="GPU-1/3", used=0.0, free=4.75 * GIB),
            replace(DEVICE, name="GPU-2"),
        ]
    }


def test_the_uid_of_the_pod_is_kept_where_it_is_told() -> None:
    metric = read_metrics({"memory": {"uid": "pod_uid"}})["memory"]
    assert read(*samples(pod_uid="u-1"), metric=metric) == {POD: [replace(DEVICE, pod_uid="u-1")]}


@pytest.mark.parametrize(
    "result",
    [
        samples()[:2],
        [samples()[0], samples()[2]],
        samples(used="x"),
        samples(exported_pod=""),
        [None, {}, {"metric": LABELS, "value": [0, "0"]}],
    ],
)
def test_a_gpu_of_which_a_number_is_missing_is_left_out_and_no_other(result: list[Any]) -> None:
    assert read(*result) == {}
    assert read(*result, *samples(UUID="GPU-2")) == {POD: [replace(DEVICE, name="GPU-2")]}


def test_what_is_no_answer_is_told() -> None:
    with pytest.raises(PrometheusError, match="its answer is none of Prometheus's"):
        read_memory(b"<html>", METRIC)


async def test_a_prometheus_that_is_away_is_told_and_one_without_memory_is_not_asked() -> None:
    prometheus = Prometheus("http://127.0.0.1:9")
    metrics = read_metrics({})
    found, problems = await measure_memory(prometheus, metrics, prefix="spectrum-")
    assert (found, problems.keys()) == ({}, {"memory"})
    without = read_metrics({"memory": None})
    assert await measure_memory(prometheus, without, prefix="spectrum-") == ({}, {})
    prometheus.close()


def test_a_server_has_the_memory_of_all_its_gpus_together() -> None:
    assert find_memory(SUBJECT, [DEVICE], NOW) == Memory(used=12 * GIB, total=80 * GIB)
    two = replace(SUBJECT, run=replace(SUBJECT.run, gpus=2))
    other = replace(DEVICE, name="GPU-2", used=0.0, free=80.0 * GIB)
    assert find_memory(two, [DEVICE, other], NOW) == Memory(used=12 * GIB, total=160 * GIB)


@pytest.mark.parametrize(
    "device",
    [
        replace(DEVICE, at=None),
        replace(DEVICE, at=NOW - 4 * MINUTE),
        replace(DEVICE, at=NOW + MINUTE),
        replace(DEVICE, pod_uid="another"),
        replace(DEVICE, used=-1.0),
        replace(DEVICE, used=float("nan")),
        replace(DEVICE, used=0.0, free=0.0),
        # what exporters tell that do not know: the blanks of DCGM, in MiB
        replace(DEVICE, used=2147483632.0 * 2**20),
        replace(DEVICE, free=9223372036854775794.0 * 2**20),
    ],
)
def test_what_cannot_be_believed_is_not_known(device: Device) -> None:
    assert find_memory(SUBJECT, [device], NOW) is None
    assert find_memory(SUBJECT, [device, DEVICE], NOW) == Memory(used=12 * GIB, total=80 * GIB)


def test_the_gpu_of_a_former_pod_of_that_name_says_nothing() -> None:
    young = replace(SUBJECT, run=replace(SUBJECT.run, started=NOW))
    assert find_memory(young, [DEVICE], NOW) is None


def test_of_some_gpus_alone_or_of_more_than_there_are_nothing_is_told() -> None:
    two = replace(SUBJECT, run=replace(SUBJECT.run, gpus=2))
    assert find_memory(two, [DEVICE], NOW) is None
    assert find_memory(SUBJECT, [DEVICE, replace(DEVICE, name="GPU-2")], NOW) is None
    without = replace(SUBJECT, run=replace(SUBJECT.run, gpus=0))
    assert find_memory(without, [], NOW) is None


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (0.0, 80.0, "0 of 80 GiB"),
        (12.3, 79.6, "12 of 80 GiB"),
        (0.42, 4.75, "0.4 of 4.8 GiB"),
        (9.96, 1128.0, "10 of 1128 GiB"),
    ],
)
def test_memory_is_told_in_words(used: float, total: float, text: str) -> None:
    assert Memory(used=round(used * GIB), total=round(total * GIB)).text == text
