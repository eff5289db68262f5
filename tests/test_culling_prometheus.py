"""What Prometheus is asked, and what is made of its answers, whatever they are."""

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from spectrum_spawner.activity import CPU, GPU, POWER, Series
from spectrum_spawner.service.culling.metrics import Metric, MetricError, read_metrics
from spectrum_spawner.service.culling.prometheus import (
    Answer,
    Prometheus,
    PrometheusError,
    find_step,
    make_query,
    measure,
    read_answer,
)

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
METRICS = read_metrics({})
ENGINE = METRICS["engine"]
LABELS = {"exported_namespace": "spectrum-ops", "exported_pod": "jupyter-alice", "UUID": "GPU-1"}
MISSING = object()


def sample(part: str, value: object, **labels: Any) -> dict[str, Any]:
    wanted = {**LABELS, **labels, "spectrum_part": part}
    return {
        "metric": {name: text for name, text in wanted.items() if text is not MISSING},
        "value": [AT.timestamp(), str(value)],
    }


def samples(now: object = 0.0, **labels: Any) -> list[dict[str, Any]]:
    """All parts of one series that last worked 10 minutes ago."""
    moment = AT.timestamp()
    return [
        sample("at", moment - 5, **labels),
        sample("now", now, **labels),
        sample("below:1.0", moment - 600, **labels),
    ]


def answer(*result: Any) -> bytes:
    data = {"resultType": "vector", "result": list(result)}
    return json.dumps({"status": "success", "data": data}).encode()


def read(*result: Any, metric: Metric = ENGINE) -> tuple[dict[Any, list[Series]], int]:
    found = read_answer(answer(*result), metric, floors=(1.0,), step=MINUTE)
    return dict(found.series), found.skipped


IDLE = Series(
    source=GPU,
    device="GPU-1",
    at=AT - timedelta(seconds=5),
    value=0.0,
    idle_since={1.0: AT - timedelta(minutes=10)},
)
POD = ("spectrum-ops", "jupyter-alice")


def test_a_series_is_read_from_its_parts() -> None:
    assert read(*samples()) == ({POD: [IDLE]}, 0)


def test_a_share_is_read_as_percent() -> None:
    assert read(*samples(now=0.42))[0][POD][0].value == 42.0


def test_a_gpu_that_was_never_below_its_floor_says_so() -> None:
    found, _ = read(*samples(now=0.9)[:2])
    assert found[POD][0].idle_since == {1.0: None}


def test_slices_and_several_gpus_are_devices_of_their_own() -> None:
    found, _ = read(*samples(GPU_I_ID="3"), *samples(GPU_I_ID="4"), *samples(UUID="GPU-2"))
    assert [series.device for series in found[POD]] == ["GPU-1/3", "GPU-1/4", "GPU-2"]


def test_a_metric_that_knows_no_slices_is_not_believed_about_them() -> None:
    found, skipped = read(
        *samples(GPU_I_ID="3"), *samples(UUID="GPU-2"), metric=METRICS["utilisation"]
    )
    assert ([series.device for series in found[POD]], skipped) == (["GPU-2"], 0)


def test_the_uid_of_the_pod_is_kept_where_it_is_told() -> None:
    metric = read_metrics({"engine": {"uid": "pod_uid"}})["engine"]
    assert read(*samples(pod_uid="u-1"), metric=metric)[0][POD][0].pod_uid == "u-1"
    assert read(*samples(), metric=metric)[0][POD][0] == IDLE


@pytest.mark.parametrize("value", ["NaN", "+Inf", "1.01", "9223372036854775794", "-1"])
def test_a_value_that_cannot_be_stays_in_its_series_to_be_doubted(value: str) -> None:
    found, skipped = read(*samples(now=value))
    (series,) = found[POD]
    assert skipped == 0
    assert series.value is not None
    assert not 0 <= series.value <= 100 or math.isnan(series.value)


@pytest.mark.parametrize("value", ["NaN", "1e300", "-1e300"])
def test_a_time_that_cannot_be_is_none(value: str) -> None:
    (series,) = read(sample("at", value), sample("now", 0), sample("below:1.0", value))[0][POD]
    assert (series.at, series.idle_since) == (None, {1.0: None})


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        "x",
        {},
        {"metric": {}, "value": [0, "0"]},
        {"metric": LABELS, "value": [0, "0"]},
        {"metric": {**LABELS, "spectrum_part": "now"}, "value": []},
        {"metric": {**LABELS, "spectrum_part": "now"}, "value": [0, "x"]},
        {"metric": {**LABELS, "spectrum_part": "now"}},
        {"metric": {**LABELS, "UUID": ["x"], "spectrum_part": "now"}, "value": [0, "0"]},
        {"metric": None, "value": [0, "0"]},
        sample("now", 0, exported_pod=MISSING),
        sample("now", 0, exported_namespace=MISSING),
    ],
)
def test_a_number_that_cannot_be_read_stops_no_other(bad: Any) -> None:
    assert read(bad, *samples()) == ({POD: [IDLE]}, 1)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "its answer is none of Prometheus's"),
        (b"<html>", "its answer is none of Prometheus's"),
        (b"[]", "its answer is none of Prometheus's"),
        (b"{}", "its answer is none of Prometheus's"),
        (b'{"status": "error", "error": "query timed out"}', "query timed out"),
        (b'{"status": "success", "data": {"resultType": "matrix"}}', "its answer is no vector"),
        (
            b'{"status": "success", "data": {"resultType": "vector", "result": {}}}',
            "its answer is no vector",
        ),
    ],
)
def test_what_is_no_answer_is_told(body: bytes, sentence: str) -> None:
    with pytest.raises(PrometheusError, match=sentence):
        read_answer(body, ENGINE, floors=(1.0,), step=MINUTE)


def test_a_metric_is_asked_for_by_one_query() -> None:
    query = make_query(
        METRICS["cpu"], prefix="spectrum.x-", floors=(0.1,), lookback=HOUR, step=MINUTE
    )
    series = (
        'container_cpu_usage_seconds_total{namespace=~"spectrum\\\\.x-.+",container="notebook"}'
    )
    by = "max by (namespace, pod)"
    rate, before = f"rate({series}[180s])", f"rate({series}[180s] offset 60s)"
    below, earlier = (f"{by} ({each} <= 10000.0) < 0.1" for each in (rate, before))
    assert query.split(" or label_replace") == [
        f'label_replace(({by} (timestamp({series}))), "spectrum_part", "at", "", "")',
        f'(({by} (rate({series}[360s]))), "spectrum_part", "now", "", "")',
        f"((quantile(0.5, max_over_time(count_over_time({series}[240s])[360s:15s]) "
        f"and {series} offset 600s)), "
        '"spectrum_part", "count", "", "")',
        f"((max_over_time(timestamp({below} unless {earlier})[3660s:60s]) "
        f"or min_over_time(timestamp({below})[3660s:60s])), "
        '"spectrum_part", "below:0.1", "", "")',
    ]


def test_few_pods_are_asked_for_by_their_names() -> None:
    pods = [("spectrum-ops", "jupyter-alice"), ("spectrum-x.y", "jupyter-bob")]
    query = make_query(ENGINE, prefix="spectrum-", floors=(), lookback=HOUR, step=MINUTE, pods=pods)
    assert (
        '{exported_namespace=~"spectrum-ops|spectrum-x\\\\.y",'
        'exported_pod=~"jupyter-alice|jupyter-bob"}'
    ) in query


@pytest.mark.parametrize(
    ("count", "interval"), [("2", 2 * MINUTE), ("240", MINUTE / 60), ("0", None), ("NaN", None)]
)
def test_how_often_series_are_measured_is_read(count: str, interval: timedelta | None) -> None:
    told = {"metric": {"spectrum_part": "count"}, "value": [0, count]}
    found = read_answer(answer(*samples(), told), ENGINE, floors=(1.0,), step=MINUTE)
    assert found == Answer(series={POD: [IDLE]}, interval=interval)


@pytest.mark.parametrize(("seconds", "step"), [(5, 60), (30, 60), (60, 120), (120, 240)])
def test_steps_are_two_measurements_long(seconds: int, step: int) -> None:
    assert find_step(timedelta(seconds=seconds)) == timedelta(seconds=step)


def test_names_of_metrics_and_labels_are_the_administrators() -> None:
    changed = {"engine": {"name": "my_util", "namespace": "ns", "pod": "pod", "scale": 1}}
    query = make_query(
        read_metrics(changed)["engine"],
        prefix="hub-",
        floors=(1.0, 5.0),
        lookback=HOUR,
        step=MINUTE,
    )
    assert 'my_util{ns=~"hub-.+"}' in query
    assert "DCGM" not in query
    assert "max by (ns, pod, UUID, GPU_I_ID)" in query
    assert ("below:1.0" in query, "below:5.0" in query) == (True, True)


def test_a_metric_may_be_taken_out_or_added() -> None:
    added = {"name": "DCGM_FI_PROF_SM_ACTIVE", "source": "gpu", "scale": 100}
    measured = set(read_metrics({"power": None, "memory": None, "sm": added}))
    assert measured == {"engine", "utilisation", "cpu", "sm"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"engine": []}, "metrics.engine: must be a table"),
        ({"engine": {"nme": "x"}}, "metrics.engine.nme: unknown key"),
        ({"engine": {"name": 'x{a="b"}'}}, "metrics.engine.name: 'x{a=\"b\"}' is no metric's"),
        (
            {"engine": {"source": "tpu"}},
            "metrics.engine.source: must be one of gpu, power, cpu, memory",
        ),
        ({"memory": {"free": ""}}, "metrics.memory.free: must be there for source memory, and"),
        ({"power": {"free": "x"}}, "metrics.power.free: must be there for source memory, and for"),
        ({"memory": {"free": "x-y"}}, "metrics.memory.free: 'x-y' is no metric's name"),
        ({"memory": {"free": 5}}, "metrics.memory.free: 5 is no metric's name"),
        ({"engine": {"scale": 0}}, "metrics.engine.scale: 0 is no number above 0"),
        ({"engine": {"pod": ""}}, "metrics.engine: namespace and pod must name"),
        ({"engine": {"uid": "a-b"}}, "metrics.engine: 'a-b' is no label's name"),
        ({"engine": {"device": "UUID"}}, "metrics.engine: device must be a list of labels"),
        ({"engine": {"only": {"a": 5}}}, "metrics.engine.only: 5 is no text"),
        ({"rocm": {"source": "gpu"}}, "metrics.rocm.name: is missing"),
    ],
)
def test_a_metric_that_cannot_be_asked_for_is_named(change: Any, sentence: str) -> None:
    with pytest.raises(MetricError) as refused:
        read_metrics(change)
    assert str(refused.value).startswith(sentence)


class Answering(RequestHandler):
    """Answers each metric in its own way: GPUs as asked, the CPU never, power with nonsense."""

    async def post(self) -> None:
        query = self.get_body_argument("query")
        self.settings["queries"].append(query)
        if "container_cpu" in query:
            await asyncio.sleep(60)
        elif "POWER" in query:
            self.set_status(422)
            self.write({"status": "error", "errorType": "execution", "error": "too many samples"})
        elif "UTIL" in query:
            self.write(answer(*samples(now=0), None))
        else:
            self.write(answer(*samples()))


@contextmanager
def serve() -> Iterator[tuple[str, list[str]]]:
    queries: list[str] = []
    socket, port = bind_unused_port()
    server = HTTPServer(Application([("/api/v1/query", Answering)], queries=queries))
    server.add_sockets([socket])
    try:
        yield f"http://127.0.0.1:{port}", queries
    finally:
        server.stop()


async def test_a_metric_that_fails_stops_no_other() -> None:
    floors = {GPU: (1.0,), CPU: (0.1,), POWER: (80.0,)}
    with serve() as (url, queries):
        prometheus = Prometheus(url, timeout=0.3)
        measured = await measure(
            prometheus,
            METRICS,
            prefix="spectrum-",
            floors=floors,
            lookback=dict.fromkeys(floors, HOUR),
            step=MINUTE,
        )
        prometheus.close()
    assert measured.series == {POD: (IDLE, IDLE)}
    assert measured.problems == {
        "cpu": "Timeout during request",
        "power": "too many samples",
        "utilisation": "numbers that could not be read: 1",
    }
    assert measured.silent == {CPU, POWER}
    assert len(queries) == 4


async def test_a_source_that_no_rule_names_is_not_asked_for() -> None:
    with serve() as (url, queries):
        prometheus = Prometheus(url)
        await measure(
            prometheus,
            METRICS,
            prefix="spectrum-",
            floors={GPU: (1.0,), POWER: ()},
            lookback={GPU: HOUR},
            step=MINUTE,
        )
        prometheus.close()
    assert len(queries) == 2


async def test_a_prometheus_that_is_away_measures_nothing() -> None:
    prometheus = Prometheus("http://127.0.0.1:9")
    measured = await measure(
        prometheus,
        METRICS,
        prefix="spectrum-",
        floors={GPU: (1.0,)},
        lookback={GPU: HOUR},
        step=MINUTE,
    )
    prometheus.close()
    assert measured.series == {}
    assert set(measured.problems) == {"engine", "utilisation"}
