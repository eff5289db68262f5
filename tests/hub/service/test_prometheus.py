"""What the queries find in a real Prometheus, for histories as real exporters leave them."""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from spectrum_spawner.activity import CPU, GPU, POWER, Answer, Evidence, Reading, Run
from spectrum_spawner.service.culling.memory import Device, measure_memory
from spectrum_spawner.service.culling.metrics import MEMORY, read_metrics
from spectrum_spawner.service.culling.prometheus import (
    Measured,
    Pod,
    Prometheus,
    find_step,
    measure,
)
from tests.hub.service.history import History

NAMESPACE = "spectrum-flight"
FLOORS = {GPU: (1.0,), POWER: (100.0,), CPU: (0.1,)}
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
METRICS = read_metrics({})
ENGINE, UTILISATION = METRICS["engine"].name, METRICS["utilisation"].name
MEMORY_USED, MEMORY_FREE = METRICS["memory"].name, METRICS["memory"].free
POWER_USAGE, CPU_SECONDS = METRICS["power"].name, METRICS["cpu"].name


def of(pod: str, uuid: str = "GPU-1", namespace: str = NAMESPACE, **more: str) -> dict[str, str]:
    """Labels of a pod's GPU, as a Prometheus operator leaves them."""
    return {
        "exported_namespace": namespace,
        "exported_pod": pod,
        "UUID": uuid,
        "namespace": "gpu-operator",
        "pod": "nvidia-dcgm-exporter-1",
        **more,
    }


def write_history(now: datetime) -> History:
    """Two hours of pods that are called by what they did; the value comes by the minutes ago."""
    history = History(now)

    def gpu(pod: str, *series: object, metric: str = UTILISATION) -> None:
        for number, value in enumerate(series, start=1):
            history.add(metric, of(pod, f"GPU-{number}"), value)  # type: ignore[arg-type]

    gpu("idle", lambda ago: 0)
    gpu("noisy", lambda ago: 0.9)
    gpu("busy", lambda ago: 95)
    gpu("busy-until-20", lambda ago: 95 if ago > 20 else 0)
    gpu("one-scrape-at-30", lambda ago: 80 if 30 <= ago < 30.25 else 0)
    gpu("silent-from-50-to-40", lambda ago: None if 40 < ago < 50 else 0)
    gpu("silent-for-10", lambda ago: None if ago < 10 else 0)
    gpu("silent-for-2", lambda ago: None if ago < 2 else 0)
    gpu("nan", lambda ago: "NaN" if ago < 10 else 0)
    gpu("too-much", lambda ago: 101)
    gpu("blank", lambda ago: 9223372036854775794)
    gpu("negative", lambda ago: -1)
    gpu("two-idle", lambda ago: 0, lambda ago: 95 if ago > 30 else 0)
    gpu("two-one-busy", lambda ago: 0, lambda ago: 95)
    gpu("two-one-silent", lambda ago: 0, lambda ago: None if ago < 10 else 0)
    gpu("engine-busy", lambda ago: 0.5, metric=ENGINE)
    gpu("engine-idle", lambda ago: 0.004, metric=ENGINE)
    gpu("fed-by-bursts", lambda ago: 60 if 5 <= ago % 20 < 5.5 else 0)
    history.add(ENGINE, of("mig", GPU_I_ID="3"), lambda ago: 0)
    history.add(ENGINE, of("mig-busy", GPU_I_ID="3"), lambda ago: 0.7)
    # says nothing of slices
    history.add(UTILISATION, of("mig", GPU_I_ID="3"), lambda ago: 95)
    history.add(POWER_USAGE, of("idle"), lambda ago: 55)
    history.add(POWER_USAGE, of("busy"), lambda ago: 300)
    history.add(UTILISATION, of("idle", namespace="other-flight"), lambda ago: 95)
    gpu("each-minute", lambda ago: 0 if ago % 1 < 0.25 else None)
    gpu("restarted", lambda ago: None if 2 < ago < 9 else 0)
    # Before its container was started, somebody else had the name.
    gpu("young", lambda ago: 95 if ago > 10 else 0)

    # So with other GPUs.
    gpu("young-elsewhere", lambda ago: 0 if ago > 20 else None, lambda ago: 0 if ago < 10 else None)

    def memory(pod: str, used: float, *, gone: float = 0, **labels: str) -> None:
        """In MiB of a GPU that has 80 GiB and tells nothing any more for some minutes."""
        for metric, value in ((MEMORY_USED, used), (MEMORY_FREE, 81920 - used)):
            history.add(metric, of(pod, **labels), lambda ago, v=value: v if ago >= gone else None)  # type: ignore[misc]

    memory("idle", 1024)
    memory("two-idle", 0)
    memory("two-idle", 81920, uuid="GPU-2")
    memory("mig", 512, GPU_I_ID="3")
    memory("silent-for-10", 0, gone=10)
    memory("idle", 70000, namespace="other-flight")
    history.add(MEMORY_USED, of("used-alone"), lambda ago: 512)
    # what was loaded a minute ago, and is not any more
    history.add(MEMORY_USED, of("unloaded"), lambda ago: 40960 if ago > 1 else 0)
    history.add(MEMORY_FREE, of("unloaded"), lambda ago: 40960 if ago > 1 else 81920)

    def cpu(pod: str, cores: float, *, container: str = "notebook") -> None:
        labels = {"namespace": NAMESPACE, "pod": pod, "container": container}
        history.add(CPU_SECONDS, labels, lambda ago: cores * (7200 - 60 * ago))

    cpu("idle", 0.01)
    cpu("busy", 1.5)
    cpu("idle", 2.0, container="sidecar")
    return history


@pytest.fixture(scope="module")
def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="module")
def url(now: datetime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with write_history(now).serve(tmp_path_factory.mktemp("prometheus")) as url:
        yield url


async def ask(url: str, *, step: timedelta = MINUTE, pods: Collection[Pod] = ()) -> Measured:
    prometheus = Prometheus(url)
    found = await measure(
        prometheus,
        METRICS,
        prefix="spectrum-",
        floors=FLOORS,
        lookback=dict.fromkeys(FLOORS, HOUR),
        step=step,
        pods=pods,
    )
    prometheus.close()
    return found


@pytest.fixture
async def measured(url: str) -> Measured:
    return await ask(url)


def read(
    measured: Measured, pod: str, now: datetime, *, source: str = GPU, gpus: int = 1, old: int = 240
) -> Reading:
    """What is known of a pod that began so many minutes ago."""
    run = Run(pod_uid="1", started=now - timedelta(minutes=old), gpus=gpus)
    evidence = Evidence(series=measured.series.get((NAMESPACE, pod), ()))
    return evidence.read(source, run, now=datetime.now(UTC), floor=FLOORS[source][0])


@pytest.mark.parametrize(
    ("pod", "since"),
    [
        ("idle", 60),
        ("noisy", 60),
        ("busy-until-20", 20),
        ("one-scrape-at-30", 30),
        ("silent-from-50-to-40", 40),
        ("engine-idle", 60),
        ("fed-by-bursts", 5),
        ("mig", 60),
    ],
)
async def test_an_idle_gpu_is_idle_since_it_last_worked_or_was_silent(
    measured: Measured, now: datetime, pod: str, since: int
) -> None:
    found = read(measured, pod, now)
    assert found.answer is Answer.IDLE, found
    assert found.since
    minutes = (datetime.now(UTC) - found.since) / timedelta(minutes=1)
    # steps are a minute long, and the look goes one further back than it must
    assert since - 2 <= minutes <= since + 2.5


@pytest.mark.parametrize("pod", ["busy", "engine-busy", "mig-busy"])
async def test_a_gpu_that_works_is_busy(measured: Measured, now: datetime, pod: str) -> None:
    assert read(measured, pod, now).answer is Answer.BUSY


@pytest.mark.parametrize(
    "pod", ["silent-for-10", "nan", "too-much", "blank", "negative", "nobody", "other"]
)
async def test_what_cannot_be_believed_is_unknown(
    measured: Measured, now: datetime, pod: str
) -> None:
    assert read(measured, pod, now).answer is Answer.UNKNOWN


async def test_several_gpus_are_idle_since_the_last_of_them_was(
    measured: Measured, now: datetime
) -> None:
    found = read(measured, "two-idle", now, gpus=2)
    assert (found.answer, found.since is not None) == (Answer.IDLE, True)
    assert found.since
    assert 28 <= (datetime.now(UTC) - found.since) / timedelta(minutes=1) <= 32.5
    assert read(measured, "two-one-busy", now, gpus=2).answer is Answer.BUSY
    assert read(measured, "two-one-silent", now, gpus=2).answer is Answer.UNKNOWN
    assert read(measured, "idle", now, gpus=2).answer is Answer.UNKNOWN


async def test_a_young_pod_is_idle_no_longer_than_it_lives(
    measured: Measured, now: datetime
) -> None:
    found = read(measured, "young", now, old=5)
    assert (found.answer, found.since) == (Answer.IDLE, now - timedelta(minutes=5))


async def test_the_gpu_of_a_former_pod_of_that_name_says_nothing(
    measured: Measured, now: datetime
) -> None:
    assert len(measured.series[NAMESPACE, "young-elsewhere"]) == 2
    assert read(measured, "young-elsewhere", now, old=10).answer is Answer.IDLE


async def test_power_and_cpu_are_read_by_pod(measured: Measured, now: datetime) -> None:
    answers = {
        (source, pod): read(measured, pod, now, source=source).answer
        for source in (POWER, CPU)
        for pod in ("idle", "busy", "noisy")
    }
    assert answers == {
        (POWER, "idle"): Answer.IDLE,
        (POWER, "busy"): Answer.BUSY,
        (POWER, "noisy"): Answer.UNKNOWN,
        (CPU, "idle"): Answer.IDLE,
        (CPU, "busy"): Answer.BUSY,
        (CPU, "noisy"): Answer.UNKNOWN,
    }


async def test_what_is_measured_once_a_minute_needs_longer_steps(url: str, now: datetime) -> None:
    measured = await ask(url, step=find_step(MINUTE))
    found = read(measured, "each-minute", now)
    assert (found.answer, found.text) == (Answer.IDLE, "0 %")
    assert found.since
    assert now - found.since >= HOUR


async def test_how_often_a_metric_is_measured_is_known(measured: Measured) -> None:
    evidence = {name for name, metric in METRICS.items() if metric.source != MEMORY}
    assert measured.intervals.keys() == evidence
    assert all(abs(each - MINUTE / 4) < MINUTE / 60 for each in measured.intervals.values())


async def test_a_pause_does_not_make_measurements_seldom(url: str) -> None:
    async def ask_interval(pod: str) -> float:
        measured = await ask(url, pods={(NAMESPACE, pod)})
        return measured.intervals["utilisation"] / MINUTE

    # those that come once a minute are too few to know what a GPU did in between
    assert 14 / 60 <= await ask_interval("restarted") <= 0.6
    assert await ask_interval("each-minute") >= 0.8


async def test_few_pods_are_measured_by_name(url: str) -> None:
    pods = {(NAMESPACE, "idle"), (NAMESPACE, "mig"), ("spectrum-nobody", "nobody")}
    measured = await ask(url, pods=pods)
    assert measured.series.keys() == {(NAMESPACE, "idle"), (NAMESPACE, "mig")}
    assert measured.series[NAMESPACE, "idle"] == (await ask(url)).series[NAMESPACE, "idle"]


async def test_nothing_of_other_releases_is_read(measured: Measured) -> None:
    assert {namespace for namespace, _ in measured.series} == {NAMESPACE}
    assert (measured.problems, measured.silent) == ({}, frozenset())


async def ask_memory(url: str, *, pods: Collection[Pod] = ()) -> dict[Pod, list[Device]]:
    prometheus = Prometheus(url)
    found, problems = await measure_memory(prometheus, METRICS, prefix="spectrum-", pods=pods)
    prometheus.close()
    assert problems == {}
    return found


async def test_memory_is_read_as_of_now(url: str, now: datetime) -> None:
    at, gib = datetime.fromtimestamp(round(now.timestamp(), 3), UTC), 2.0**30

    def gpu(used: float, name: str = "GPU-1") -> Device:
        return Device(name=name, at=at, used=used * gib, free=(80 - used) * gib)

    assert await ask_memory(url) == {
        (NAMESPACE, "idle"): [gpu(1)],
        (NAMESPACE, "two-idle"): [gpu(0), gpu(80, "GPU-2")],
        (NAMESPACE, "mig"): [gpu(0.5, "GPU-1/3")],
        (NAMESPACE, "unloaded"): [gpu(0)],
    }


async def test_the_memory_of_few_pods_is_read_by_name(url: str) -> None:
    everything = await ask_memory(url)
    pods = {(NAMESPACE, "idle"), ("spectrum-nobody", "nobody")}
    assert await ask_memory(url, pods=pods) == {(NAMESPACE, "idle"): everything[NAMESPACE, "idle"]}
