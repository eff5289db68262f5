"""A month of servers with GPUs, made up after what is public of real ones, in moved time.

In the Philly trace of Microsoft (ATC'19; 93,451 training jobs, sampled each minute) all GPUs of a
job stand still for a quarter of the time even in jobs of more than a day, and some 65 % of the
periods in which a GPU does nothing lie in the middle of a job: it loads data, writes a checkpoint
or evaluates. Lives made here are like that, and have outages of what measures them as well; the
service starts anew now and then, and what is measured reaches back two hours at most.
"""

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from spectrum_spawner.activity import (
    CPU,
    GPU,
    Evidence,
    HubActivity,
    Kernels,
    Process,
    Processes,
    Run,
    Series,
)
from spectrum_spawner.service.culling.rules import LONGEST_LOOKBACK, Policy, Rule, Subject
from spectrum_spawner.service.culling.standing import Standing, Step, extend
from spectrum_spawner.service.culling.sweep import sweep

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAYS = 30
STUCK = 180.0  # minutes without CPU after which a process that has a GPU open counts no more
RESTART = 7 * 60  # minutes from one start of the service to the next
Span = tuple[float, float]  # minutes since BEGIN


@dataclass(frozen=True, kw_only=True)
class Life:
    """One server's month. All are spans in order: `jobs` in which it works, `gpu` in which a GPU
    does, `cpu` in which a process computes, `kernels` those jobs that run in a notebook.

    `no_gpu`, `no_report` are outages, in `nonsense` what is measured cannot be.
    """

    name: str
    jobs: list[Span]
    gpu: list[Span]
    cpu: list[Span]
    kernels: list[Span]
    no_gpu: list[Span]
    no_report: list[Span]
    nonsense: list[Span]

    def is_busy(self, minute: float) -> bool:
        return covers(self.jobs, minute)

    def list_pauses(self) -> tuple[list[Span], list[Span]]:
        """Spans without GPU in the middle of jobs, and all others."""
        ends = [0.0, *(end for _, end in self.gpu)]
        starts = [*(start for start, _ in self.gpu), DAYS * 1440.0]
        still = [span for span in zip(ends, starts, strict=True) if span[1] - span[0] >= 1]
        inside = [span for span in still if any(a < span[0] and span[1] < b for a, b in self.jobs)]
        return inside, [span for span in still if span not in inside]


def covers(spans: list[Span], minute: float) -> bool:
    found = bisect_right(spans, (minute, math.inf)) - 1
    return found >= 0 and minute < spans[found][1]


def last_end(spans: list[Span], minute: float) -> float | None:
    """When the last span ended, or `minute` itself within one."""
    found = bisect_right(spans, (minute, math.inf)) - 1
    return None if found < 0 else min(spans[found][1], minute)


def make_life(name: str, dice: random.Random) -> Life:
    jobs: list[Span] = []
    gpu: list[Span] = []
    cpu: list[Span] = []
    kernels: list[Span] = []
    minute = dice.uniform(0, 600)
    while minute < DAYS * 1440:
        end = minute + min(dice.lognormvariate(math.log(200), 1.1), 5 * 1440)
        jobs.append((minute, end))
        if dice.random() < 0.5:
            kernels.append((minute, end))
        minute = _fill_job(minute, end, gpu, cpu, dice)
        minute = end + dice.lognormvariate(math.log(300), 1.3)  # nobody does anything
    return Life(
        name=name,
        jobs=jobs,
        gpu=gpu,
        cpu=cpu,
        kernels=kernels,
        no_gpu=_make_outages(dice),
        no_report=_make_outages(dice),
        nonsense=_make_outages(dice),
    )


def _fill_job(
    minute: float, end: float, gpu: list[Span], cpu: list[Span], dice: random.Random
) -> float:
    """Bursts of the GPU with pauses between them, of minutes to hours.

    In half of the pauses a process computes; in the others the training only waits, say for its
    checkpoint to be written.
    """
    burst = dice.lognormvariate(math.log(80), 1.0)
    minute += dice.uniform(0, 2)
    while minute < end:
        gpu.append((minute, min(minute + burst, end)))
        minute += burst
        pause = min(dice.lognormvariate(math.log(20), 1.5), 240)
        if minute < end and dice.random() < 0.5:
            cpu.append((minute, min(minute + pause, end)))
        minute += pause
        burst = dice.lognormvariate(math.log(80), 1.0)
    return minute


def _make_outages(dice: random.Random) -> list[Span]:
    starts = sorted(dice.uniform(0, DAYS * 1440) for _ in range(10))
    return [(start, start + dice.lognormvariate(math.log(20), 1.2)) for start in starts]


@dataclass(kw_only=True)
class Month:
    """How a month went: minutes of GPUs by what servers did, and what was ended."""

    minutes: Counter[str] = field(default_factory=Counter)
    stopped_idle: int = 0
    stopped_busy: int = 0
    warned: int = 0
    extended: int = 0


def moment(minute: float) -> datetime:
    return BEGIN + minute * MINUTE


def live(lives: list[Life], rule: Rule, *, every: int, seed: int = 1) -> Month:
    """Sweep over a month; what is ended comes back with its next job."""
    policy, dice, month = Policy(rules=(rule,)), random.Random(seed), Month()
    started: dict[str, float] = {life.name: 0.0 for life in lives}
    standings: dict[tuple[str, str], Standing] = {}
    for minute in range(0, DAYS * 1440, every):
        if minute % RESTART < every:
            standings = _start_anew(standings)
        for life in lives:
            if life.name not in started and life.is_busy(minute):
                started[life.name] = minute
            if life.name in started:
                month.minutes["busy" if life.is_busy(minute) else "idle"] += every
        running = [life for life in lives if life.name in started]
        checked = dict(_look(running, started, standings, policy, minute, month))
        for subject, life in _check(checked, started, standings, policy, minute + 0.1, month):
            month.stopped_busy += life.is_busy(minute + 0.1)
            month.stopped_idle += not life.is_busy(minute + 0.1)
            del started[life.name], standings[subject.key]
        for life in running:
            key = (life.name, "")
            standing = standings.get(key)
            if standing and standing.ends_at and not standing.extensions and dice.random() < 0.1:
                subject = make_subject(life, started[life.name])
                standings[key] = extend(standing, subject, rule, now=moment(minute + 0.2))
                month.extended += 1
    return month


def _start_anew(standings: Mapping[tuple[str, str], Standing]) -> dict[tuple[str, str], Standing]:
    """What a service finds again that one before it kept."""
    return {
        key: replace(each, memory=replace(each.memory, last_busy=None), checked_at=None)
        for key, each in standings.items()
    }


def _look(
    lives: list[Life],
    started: dict[str, float],
    standings: dict[tuple[str, str], Standing],
    policy: Policy,
    minute: float,
    month: Month,
    wanted: Step = Step.CHECK,
) -> Iterator[tuple[str, tuple[Subject, Life]]]:
    subjects = {life.name: make_subject(life, started[life.name]) for life in lives}
    evidence = {
        subjects[life.name].key: make_evidence(life, started[life.name], minute) for life in lives
    }
    found = sweep(subjects.values(), evidence, standings, policy, now=moment(minute))
    standings.update(found.standings)
    by_name = {life.name: life for life in lives}
    for subject, action in found.actions:
        month.warned += action.step is Step.WARN
        if action.step is wanted:
            yield subject.user, (subject, by_name[subject.user])


def _check(
    checked: dict[str, tuple[Subject, Life]],
    started: dict[str, float],
    standings: dict[tuple[str, str], Standing],
    policy: Policy,
    minute: float,
    month: Month,
) -> list[tuple[Subject, Life]]:
    lives = [life for _, life in checked.values()]
    return [
        found for _, found in _look(lives, started, standings, policy, minute, month, Step.STOP)
    ]


def make_subject(life: Life, began: float) -> Subject:
    return Subject(
        user=life.name,
        server="",
        team="ops",
        profile="gpu-1",
        namespace="spectrum-ops",
        pod=f"jupyter-{life.name}",
        run=Run(pod_uid=f"{life.name}-{began}", started=moment(began), gpus=1),
    )


def make_evidence(life: Life, began: float, minute: float) -> Evidence:
    """What the service would know at a minute; a tab that is open all the time counts nothing."""
    seen = last_end(life.no_report, minute)
    # in an outage the last report from before it is all there is
    told = minute if not covers(life.no_report, minute) else _begin(life.no_report, minute)
    is_told = told >= began or seen is None
    at, since = moment(told), moment(began)
    in_kernel = [span for span in life.kernels if span[0] <= told]
    in_process = covers(life.jobs, told) and not covers(life.kernels, told)
    moved = max(last_end(life.cpu, told) or began, last_end(life.gpu, told) or began)
    worked = last_end(life.jobs, told)
    worked = None if worked is None else min(worked, moved + STUCK)
    process = Process(
        name="train.py",
        cpu=0.9 if covers(life.cpu, told) else 0.0,
        works=told - moved < STUCK,
    )
    return Evidence(
        series=tuple(_make_series(life, began, minute)),
        kernels=Kernels(
            at=at,
            watched_since=since,
            busy=int(covers(life.kernels, told)),
            last_activity=moment(last_end(in_kernel, told) or began),
        )
        if is_told
        else None,
        processes=Processes(
            at=at,
            watched_since=since,
            found=(process,) if in_process else (),
            last_worked=None if worked is None else moment(worked),
        )
        if is_told
        else None,
        hub=HubActivity(at=moment(minute), last_activity=moment(minute)),
    )


def _begin(spans: list[Span], minute: float) -> float:
    return spans[bisect_right(spans, (minute, math.inf)) - 1][0]


def _make_series(life: Life, began: float, minute: float) -> Iterator[Series]:
    if covers(life.no_gpu, minute):
        return
    back = minute - LONGEST_LOOKBACK / MINUTE
    sound = max(
        began, back, *(last_end(spans, minute) or 0 for spans in (life.no_gpu, life.nonsense))
    )
    for source, spans, device, high, floor in (
        (GPU, life.gpu, "GPU-1", 93.0, 1.0),
        (CPU, life.cpu, "", 0.9, 0.1),
    ):
        value = high if covers(spans, minute) else 0.0
        if covers(life.nonsense, minute):
            value = (math.nan, 101.0 * high, -1.0)[int(minute) % 3]
        yield Series(
            source=source,
            device=device,
            at=moment(minute),
            value=value,
            idle_since={floor: moment(max(sound, last_end(spans, minute) or 0))},
        )
