"""What one look at all servers costs the service, and one look at all GPUs.

    local/test bench, or: python -m tests.bench.cull_sweep

Reads answers shaped as Prometheus gives them and judges every server by the rules, without any
network: the service's own CPU is what counts here. Prints a table and one JSON line.
"""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from spectrum_spawner.activity import (
    CPU,
    GPU,
    KERNELS,
    PROCESSES,
    Evidence,
    HubActivity,
    Kernels,
    Process,
    Processes,
    Run,
)
from spectrum_spawner.service.culling.memory import find_memory, read_memory
from spectrum_spawner.service.culling.metrics import MEMORY, Metric, read_metrics
from spectrum_spawner.service.culling.prometheus import PART, STEP, read_answer
from spectrum_spawner.service.culling.rules import Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.culling.sweep import sweep

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SERVERS = 10_000
ROUNDS = 7
SWEEP_BAR, SAMPLING_BAR = 1.0, 0.005  # seconds of CPU: 10,000 servers; 64 GPUs
POLICY = Policy(rules=(Rule(name="gpu", gpu=True, evidence=(GPU, CPU, KERNELS, PROCESSES)),))


def make_answer(metric: Metric, count: int, floor: float) -> bytes:
    """Every tenth GPU works now, every other did so at some time."""
    result = []
    for number in range(count):
        labels = {
            metric.namespace: f"spectrum-team-{number % 200}",
            metric.pod: f"jupyter-user-{number}",
            **dict.fromkeys(metric.device, f"GPU-00000000-0000-0000-0000-{number:012}"),
        }
        parts = {"at": NOW.timestamp() - 5}
        if metric.source == MEMORY:
            parts |= {"used": 12288.0, "free": 69632.0}
        else:
            parts |= {
                "now": (0.93 if number % 10 == 0 else 0.0) * metric.highest,
                f"below:{floor!r}": NOW.timestamp() - 60 * (number % 90),
            }
        for part, value in parts.items():
            sample = [NOW.timestamp(), repr(value)]
            result.append({"metric": {**labels, PART: part}, "value": sample})
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return json.dumps(answer).encode()


def make_subject(number: int) -> Subject:
    run = Run(pod_uid=f"uid-{number}", started=NOW - timedelta(hours=9), gpus=1)
    return Subject(
        user=f"user-{number}",
        server="",
        team=f"team-{number % 200}",
        profile="gpu-1",
        namespace=f"spectrum-team-{number % 200}",
        pod=f"jupyter-user-{number}",
        run=run,
    )


def make_evidence() -> Evidence:
    """What a server told of itself before."""
    at, since = NOW - MINUTE / 2, NOW - timedelta(hours=9)
    return Evidence(
        kernels=Kernels(at=at, watched_since=since, last_activity=NOW - 50 * MINUTE),
        processes=Processes(at=at, watched_since=since, found=(Process(name="python", cpu=0.0),)),
        hub=HubActivity(at=at, last_activity=at),
    )


def measure(work: Callable[[], Any]) -> float:
    """Least seconds of CPU in some rounds: what else the machine does only adds to it."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def measure_sampling(count: int) -> float:
    """Of reading both metrics of GPUs."""
    metrics = [metric for metric in read_metrics({}).values() if metric.source == GPU]
    bodies = [(metric, make_answer(metric, count, 1.0)) for metric in metrics]
    return measure(
        lambda: [read_answer(body, metric, floors=(1.0,), step=STEP) for metric, body in bodies]
    )


def measure_sweep(count: int) -> tuple[float, float]:
    """Of one look at servers whose evidence is in hand, and of one that reads it first."""
    metrics = read_metrics({})
    asked = [(metrics["engine"], 1.0), (metrics["cpu"], 0.1)]
    bodies = [(metric, floor, make_answer(metric, count, floor)) for metric, floor in asked]
    subjects = [make_subject(number) for number in range(count)]
    told = {subject.key: make_evidence() for subject in subjects}
    evidence: dict[tuple[str, str], Evidence] = {}
    standings: dict[tuple[str, str], Standing] = {}

    def read() -> None:
        found = [
            read_answer(body, metric, floors=(floor,), step=STEP).series
            for metric, floor, body in bodies
        ]
        for subject in subjects:
            pod = subject.namespace, subject.pod
            series = tuple(each for by_pod in found for each in by_pod.get(pod, ()))
            before = told[subject.key]
            evidence[subject.key] = Evidence(
                series=series,
                kernels=before.kernels,
                processes=before.processes,
                hub=before.hub,
            )

    def look() -> None:
        standings.update(sweep(subjects, evidence, standings, POLICY, now=NOW).standings)

    reading = measure(read)
    return measure(look), reading


def measure_memory(count: int) -> float:
    """Of what each look reads besides, for people to see."""
    metric = read_metrics({})["memory"]
    body, subjects = make_answer(metric, count, 0.0), [make_subject(each) for each in range(count)]

    def read() -> None:
        devices = read_memory(body, metric)
        for subject in subjects:
            find_memory(subject, devices[subject.namespace, subject.pod], NOW)

    return measure(read)


def main() -> None:
    sampling = measure_sampling(64)
    judging, reading = measure_sweep(SERVERS)
    memory = measure_memory(SERVERS)
    rows = [
        ("64 GPUs, two metrics: reading", sampling, SAMPLING_BAR),
        (f"{SERVERS:,} servers: judging", judging, None),
        (f"{SERVERS:,} servers: reading and judging", reading + judging, SWEEP_BAR),
        (f"{SERVERS:,} servers: memory, to be seen", memory, None),
    ]
    print(f"{'':<42}{'CPU ms':>8}{'bar':>8}")
    for what, seconds, bar in rows:
        print(f"{what:<42}{seconds * 1000:>8.1f}{bar * 1000 if bar else '':>8}")
    line = {
        "what": "cull sweep",
        "servers": SERVERS,
        "sampling_64_ms": round(sampling * 1000, 2),
        "judging_ms": round(judging * 1000, 1),
        "reading_ms": round(reading * 1000, 1),
        "memory_ms": round(memory * 1000, 1),
        "met": sampling <= SAMPLING_BAR and reading + judging <= SWEEP_BAR,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
