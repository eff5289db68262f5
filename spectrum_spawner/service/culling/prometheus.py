"""What pods did, as Prometheus knows: one query a metric, however many servers there are.

A query asks of each series, told apart by a label of our own: when it was last measured, the
highest value of the last minutes, and for each floor since when it has been below. It looks at
steps of time, each at least two scrapes long. A step without a measurement, or with one that cannot
be, is none below a floor; how often series are measured is asked for as well.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import urlencode

from tornado.httpclient import AsyncHTTPClient, HTTPError, HTTPRequest

from spectrum_spawner.activity import Series
from spectrum_spawner.service.culling.metrics import Metric
from spectrum_spawner.service.culling.uncollected import uncollected

STEP = timedelta(minutes=1)  # at least
COUNTED = 4  # steps over which measurements are counted
WATCHED = 10  # steps in which the most of them are looked for: a server that was restarted paused
MOST_NAMED = 100  # pods that a query names; it asks for those of all namespaces if there are more
TIMEOUT = 10.0  # seconds that one query may take
PART = "spectrum_part"  # the label that tells what a number of an answer is
AT, NOW, COUNT, BELOW = "at", "now", "count", "below"

T = TypeVar("T")
Pod = tuple[str, str]  # namespace and name
Labels = tuple[str | None, ...]  # the values of a metric's labels, in their order


class PrometheusError(Exception):
    """Prometheus does not answer, or not as it should; the text says how."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Series by pod, and what could not be read of which metric, in sentences.

    `silent` are sources of which no metric has any series. While such servers run, labels or
    exporters are not as they should be. `intervals` say by metric how far its measurements usually
    lie apart.
    """

    series: Mapping[Pod, tuple[Series, ...]] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    intervals: Mapping[str, timedelta] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What Prometheus says of one metric: series by pod, how many numbers could not be read, and
    how far measurements usually lie apart, None if that cannot be told."""

    series: Mapping[Pod, list[Series]] = field(default_factory=dict)
    skipped: int = 0
    interval: timedelta | None = None


def find_step(scrape: timedelta) -> timedelta:
    """The steps in which to look at what is measured that often."""
    return max(STEP, 2 * scrape)


def make_query(
    metric: Metric,
    *,
    prefix: str,
    floors: Iterable[float],
    lookback: timedelta,
    step: timedelta,
    pods: Collection[Pod] = (),
) -> str:
    """The one query of a metric, over namespaces that begin with `prefix`, or over those pods."""
    s = int(step.total_seconds())
    # with a step more, so that what is idle for just as long as a rule wants is seen to be
    steps = f"{math.ceil(lookback / step) * s + s}s:{s}s"
    by = ", ".join(metric.labels)
    selector = select(metric, prefix, pods)
    parts = {
        AT: f"max by ({by}) (timestamp({selector}))",
        NOW: f"max by ({by}) ({_highest(metric, selector, 2 * s)})",
        # of what was there before as well, in the middle of all
        COUNT: f"quantile(0.5, max_over_time(count_over_time({selector}[{COUNTED * s}s])"
        f"[{(WATCHED - COUNTED) * s}s:{s // 4}s]) and {selector} offset {WATCHED * s}s)",
    }
    for floor in floors:
        below, before = (
            f"max by ({by}) ({_sound(metric, selector, s, offset=offset)}) < "
            f"{floor / metric.scale!r}"
            for offset in (0, s)
        )
        # the last step below after one that is not, or the first of all
        parts[f"{BELOW}:{floor!r}"] = (
            f"max_over_time(timestamp({below} unless {before})[{steps}]) "
            f"or min_over_time(timestamp({below})[{steps}])"
        )
    return " or ".join(
        f'label_replace(({query}), "{PART}", "{part}", "", "")' for part, query in parts.items()
    )


def read_answer(body: bytes, metric: Metric, *, floors: Iterable[float], step: timedelta) -> Answer:
    """Read what Prometheus says of a metric that was asked for in such steps.

    What is not measured or no number stays in its series as such: it is then doubted, not missed.
    Raises PrometheusError.
    """
    with uncollected():
        return _read_samples(read_vector(body), metric, floors, COUNTED * step)


def read_parts(samples: list[Any], metric: Metric) -> tuple[dict[Labels, dict[str, float]], int]:
    """The numbers of each series by their parts, and how many could not be read."""
    found: dict[Labels, dict[str, float]] = {}
    names, skipped = metric.labels, 0
    for sample in samples:
        try:
            labels = sample["metric"]
            key = tuple(map(labels.get, names))
            part, value = labels[PART], float(sample["value"][1])
            found.setdefault(key, {})[part] = value
        except (LookupError, TypeError, ValueError, AttributeError):
            skipped += 1
    return found, skipped


def _read_samples(
    samples: list[Any], metric: Metric, floors: Iterable[float], counted: timedelta
) -> Answer:
    found, skipped = read_parts(samples, metric)
    # that of no series
    count = found.pop((None,) * len(metric.labels), {}).get(COUNT, 0.0)
    asked = [(floor, f"{BELOW}:{floor!r}") for floor in floors]
    by_pod: dict[Pod, list[Series]] = {}
    for key, parts in found.items():
        namespace, pod = key[:2]
        if not namespace or not pod:
            skipped += 1
        elif metric.is_believed(key):
            series = _make_series(metric, key, parts, asked)
            by_pod.setdefault((namespace, pod), []).append(series)
    interval = counted / count if count >= 1 else None
    return Answer(series=by_pod, skipped=skipped, interval=interval)


class Prometheus:
    """A Prometheus server's HTTP API at `url`; ended by `close`."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        self._url = url.rstrip("/") + "/api/v1/query"
        self._timeout = timeout
        self._client = AsyncHTTPClient(force_instance=True)

    def close(self) -> None:
        self._client.close()

    async def query(self, query: str) -> bytes:
        """The answer of now, unread; raises PrometheusError."""
        request = HTTPRequest(
            self._url,
            method="POST",
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=urlencode({"query": query, "timeout": f"{self._timeout:g}s"}),
            connect_timeout=self._timeout,
            request_timeout=self._timeout,
        )
        try:
            return (await self._client.fetch(request)).body
        except HTTPError as error:
            text = error.response.body if error.response and error.response.body else b""
            raise PrometheusError(_read_refusal(text) or str(error)) from error
        except (OSError, TimeoutError) as error:
            raise PrometheusError(str(error) or type(error).__name__) from error


async def ask_each(
    ask: Callable[[Metric], Awaitable[T]], metrics: Mapping[str, Metric]
) -> tuple[dict[str, T], dict[str, str]]:
    """What Prometheus says of these metrics, and of which it says nothing and why, by name."""
    answers = await asyncio.gather(*map(ask, metrics.values()), return_exceptions=True)
    found: dict[str, T] = {}
    problems: dict[str, str] = {}
    for name, answer in zip(metrics, answers, strict=True):
        if isinstance(answer, PrometheusError):
            problems[name] = str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found[name] = answer
    return found, problems


async def measure(
    prometheus: Prometheus,
    metrics: Mapping[str, Metric],
    *,
    prefix: str,
    floors: Mapping[str, tuple[float, ...]],
    lookback: Mapping[str, timedelta],
    step: timedelta,
    pods: Collection[Pod] = (),
) -> Measured:
    """What all pods did, or few that are named, by those metrics whose source has floors; one that
    fails stops no other.

    `floors` and `lookback` are by source; a source that no rule asks for is not measured.
    """
    named = pods if len(pods) <= MOST_NAMED else ()
    asked = {name: metric for name, metric in metrics.items() if floors.get(metric.source)}

    async def ask(metric: Metric) -> Answer:
        mine = floors[metric.source]
        query = make_query(
            metric,
            prefix=prefix,
            floors=mine,
            lookback=lookback[metric.source],
            step=step,
            pods=named,
        )
        body = await prometheus.query(query)
        # of ten thousand servers it takes a while
        return await asyncio.to_thread(read_answer, body, metric, floors=mine, step=step)

    answers, problems = await ask_each(ask, asked)
    series: dict[Pod, list[Series]] = {}
    intervals: dict[str, timedelta] = {}
    for name, answer in answers.items():
        if answer.skipped:
            problems[name] = f"numbers that could not be read: {answer.skipped}"
        if answer.interval:
            intervals[name] = answer.interval
        for pod, found in answer.series.items():
            series.setdefault(pod, []).extend(found)
    heard = {each.source for found in series.values() for each in found}
    return Measured(
        series={pod: tuple(found) for pod, found in series.items()},
        problems=problems,
        silent=frozenset(metric.source for metric in asked.values()) - heard,
        intervals=intervals,
    )


def select(metric: Metric, prefix: str, pods: Collection[Pod]) -> str:
    """What chooses the series of namespaces that begin with `prefix`, or of those pods."""
    namespaces, named = ({pod[part] for pod in pods} for part in (0, 1))
    matchers = [
        f"{metric.namespace}=~{_any_of(namespaces) if pods else _quote(_escape(prefix) + '.+')}",
        *([f"{metric.pod}=~{_any_of(named)}"] if pods else []),
        *(f"{label}={_quote(value)}" for label, value in metric.only.items()),
    ]
    return f"{metric.name}{{{','.join(matchers)}}}"


def _highest(metric: Metric, selector: str, seconds: int, *, offset: int = 0) -> str:
    late = f" offset {offset}s" if offset else ""
    if metric.counter:
        # a rate needs two measurements, and containers are measured less often than GPUs
        return f"rate({selector}[{3 * seconds}s]{late})"
    return f"max_over_time({selector}[{seconds}s]{late})"


def _sound(metric: Metric, selector: str, seconds: int, *, offset: int = 0) -> str:
    """The highest value of a step, absent where one cannot be."""
    highest = f"{_highest(metric, selector, seconds, offset=offset)} <= {metric.highest!r}"
    if metric.counter:
        return highest
    late = f" offset {offset}s" if offset else ""
    return f"({highest} and min_over_time({selector}[{seconds}s]{late}) >= 0)"


def _any_of(texts: Iterable[str]) -> str:
    return _quote("|".join(map(_escape, sorted(texts))))


def _quote(text: str) -> str:
    return json.dumps(text)


def _escape(text: str) -> str:
    """Of a Kubernetes name, in which the dot alone means something to a regular expression."""
    return text.replace(".", "\\.")


def read_vector(body: bytes) -> list[Any]:
    """The samples of an answer, each as Prometheus wrote it; raises PrometheusError."""
    try:
        answer = json.loads(body)
        if answer["status"] == "success" and answer["data"]["resultType"] == "vector":
            result = answer["data"]["result"]
            if isinstance(result, list):
                return result
    except (ValueError, KeyError, TypeError) as error:
        raise PrometheusError("its answer is none of Prometheus's") from error
    raise PrometheusError(_read_refusal(body) or "its answer is no vector")


def _read_refusal(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])[:500]
    except (ValueError, KeyError, TypeError):
        return ""


def _make_series(
    metric: Metric,
    key: Labels,
    parts: Mapping[str, float],
    asked: list[tuple[float, str]],
) -> Series:
    value = parts.get(NOW)
    return Series(
        source=metric.source,
        device=metric.name_device(key),
        at=read_moment(parts.get(AT)),
        value=None if value is None else value * metric.scale,
        idle_since={floor: read_moment(parts.get(part)) for floor, part in asked},
        pod_uid=metric.find_uid(key),
    )


def read_moment(seconds: float | None) -> datetime | None:
    """The moment so many seconds after 1970; None where that cannot be one."""
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
