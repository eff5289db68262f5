"""What goes on in a server: its kernels and terminals, and what works in the container."""

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from spectrum_lab.cgroup import read_cpu_seconds
from spectrum_lab.patience import Patient
from spectrum_lab.processes import Process, list_processes

WORKING = 0.05  # share of a core above which a process works
QUIET = timedelta(minutes=1)  # after which a person who does something began to work
GAP = 180.0  # seconds between two samples, after which nobody knows what was between them
# A process with a GPU open that used less than LITTLE seconds of CPU in STUCK ones waits for
# nothing any more, such as for data; it was forgotten, or hangs.
STUCK, LITTLE = 3 * 3600.0, 60.0
MOST = 50  # processes that are told, those that work first
ENDED = "processes that ended meanwhile"


@dataclass(frozen=True, kw_only=True)
class Sample:
    """All that runs in the container, `clock` seconds after the machine's start.

    `seconds` of CPU were used by the container so far, None where nobody counts.
    """

    clock: float
    processes: tuple[Process, ...]
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a process did since the sample before; `cpu` is in cores. One that `waits`, with a GPU
    open, works too."""

    name: str
    cpu: float
    waits: bool = False

    @property
    def works(self) -> bool:
        return self.waits or self.cpu >= WORKING

    def as_dict(self) -> dict[str, Any]:
        return {"name": self.name, "cpu": round(self.cpu, 3), "works": self.works}


class Inside(Protocol):
    """The server as it knows itself, at once. Kernels and terminals are as its REST API has them,
    `list_kernel_pids` and `list_terminal_pids` name their processes."""

    def list_kernels(self) -> list[dict[str, Any]]: ...
    def list_terminals(self) -> list[dict[str, Any]]: ...
    def list_kernel_pids(self) -> set[int]: ...
    def list_terminal_pids(self) -> set[int]: ...


class Watch:
    """Sees what goes on, look by look, and remembers when each kind of it last did.

    `pod_uid` says of which pod it tells, "" if nobody knows.
    """

    def __init__(
        self,
        inside: Inside,
        pod_uid: str,
        *,
        take_sample: Callable[[], Sample | None] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._inside = inside
        self._pod_uid = pod_uid
        self._now = now
        self._since = self._sampled_since = now()
        self._sampling = Patient(take_sample or _take_sample)
        self._before: Sample | None = None
        self._marks: dict[tuple[int, float], tuple[float, float]] = {}
        self._last: dict[str, str] = {}  # kernels, terminals and processes: when last active
        # whether a kernel was busy, and when anything last was active
        self._seen = self._heard = (False, self._since)

    async def look(self) -> dict[str, Any]:
        """The part `activity` of a report. What cannot be seen now is left out."""
        told = {
            "at": _stamp(self._now()),
            "watched_since": _stamp(self._since),
            "pod_uid": self._pod_uid,
            **self._tell("kernels", self._inside.list_kernels(), "execution_state"),
            **self._tell("terminals", self._inside.list_terminals()),
        }
        self._seen = (self._is_busy(), self._find_last())
        work = await self._find_work()
        if work is None:
            return told
        if any(each.works for each in work):
            self._last["processes"] = _stamp(self._now())
        first = sorted(work, key=lambda each: (each.works, each.cpu), reverse=True)[:MOST]
        told["processes"] = [each.as_dict() for each in first]
        told["processes_last_worked"] = self._last.get("processes")
        told["processes_watched_since"] = _stamp(self._sampled_since)
        return told

    def note_heard(self) -> None:
        """Somebody heard what the last look saw."""
        self._heard = self._seen

    def is_news(self) -> bool:
        """Whether somebody began to work after some time without, and nobody heard of it yet."""
        was_busy, known = self._heard
        if not was_busy and self._is_busy():
            return True
        found = [*self._inside.list_kernels(), *self._inside.list_terminals()]
        last = [each["last_activity"] for each in found]
        last += [self._last[kind] for kind in ("kernels", "terminals") if kind in self._last]
        return any(datetime.fromisoformat(each) > known + QUIET for each in last)

    def _find_last(self) -> datetime:
        last = [self._last[kind] for kind in ("kernels", "terminals") if kind in self._last]
        return max(map(datetime.fromisoformat, last), default=self._since)

    def _is_busy(self) -> bool:
        return any(each["execution_state"] == "busy" for each in self._inside.list_kernels())

    def _tell(
        self, kind: str, found: Sequence[Mapping[str, Any]], state: str = ""
    ) -> dict[str, Any]:
        last = [self._last[kind]] if kind in self._last else []
        last += [each["last_activity"] for each in found]
        if last:
            self._last[kind] = max(last, key=datetime.fromisoformat)
        return {
            kind: [
                {
                    "last_activity": each["last_activity"],
                    **({"state": each[state]} if state else {}),
                }
                for each in found
            ],
            f"{kind}_last_activity": self._last.get(kind),
        }

    async def _find_work(self) -> list[Work] | None:
        try:
            sample = await self._sampling.answer()
        except TimeoutError:
            return None
        if sample is None:
            return None
        before, self._before = self._before, sample
        if before and sample.clock - before.clock > GAP:
            self._sampled_since = self._now()
        return find_work(
            before,
            sample,
            server=os.getpid(),
            kernels=self._inside.list_kernel_pids(),
            terminals=self._inside.list_terminal_pids(),
            stuck=self._find_stuck(sample),
        )

    def _find_stuck(self, sample: Sample) -> set[tuple[int, float]]:
        """What used next to no CPU for so long that it waits for nothing any more."""
        marks = {}
        for process in sample.processes:
            since, seconds = self._marks.get(process.key, (sample.clock, process.seconds))
            if process.seconds - seconds >= LITTLE:
                since, seconds = sample.clock, process.seconds
            marks[process.key] = since, seconds
        self._marks = marks
        return {key for key, (since, _) in marks.items() if sample.clock - since >= STUCK}


def find_work(
    before: Sample | None,
    after: Sample,
    *,
    server: int,
    kernels: set[int],
    terminals: set[int],
    stuck: Collection[tuple[int, float]] = (),
) -> list[Work]:
    """What the person's processes did between two samples, or since they began.

    Not theirs is the server, what started it, and its helpers: an open tab keeps those at work. A
    kernel keeps a GPU open as long as it lives, so that says nothing, nor does it of one `stuck`.
    """
    earlier = {process.key: process for process in before.processes} if before else {}
    copies = _find_kernels(after.processes, kernels)
    helpers = _find_helpers(after.processes, server, kernels | terminals)
    found, accounted = [], 0.0
    by_pid = {process.pid: process for process in after.processes}
    starter = by_pid[server].parent if server in by_pid else None
    for process in after.processes:
        span = after.clock - (before.clock if before else process.began)
        known = earlier.get(process.key)
        used = process.seconds - (known.seconds if known else 0.0)
        accounted += used
        if process.pid == server or process.pid in helpers:
            # what ended meanwhile too, such as git, which JupyterLab asks again and again
            accounted += process.reaped - (known.reaped if known else 0.0)
        elif process.pid != starter:
            is_kernel = process.pid in copies
            found.append(
                Work(
                    name=process.name,
                    cpu=max(used, 0.0) / max(span, 1.0),
                    waits=process.gpu and not is_kernel and process.key not in stuck,
                )
            )
    if before and before.seconds is not None and after.seconds is not None:
        rest = after.seconds - before.seconds - accounted
        ended = Work(name=ENDED, cpu=max(rest, 0.0) / max(after.clock - before.clock, 1.0))
        found += [ended] if ended.works else []
    return found


def _find_helpers(processes: Sequence[Process], server: int, people: set[int]) -> set[int]:
    """What the server started besides kernels and terminals, and whatever that started.

    TensorBoard and editors have processes of their own. What somebody started in a terminal of an
    editor is a person's.
    """
    children: dict[int, list[Process]] = {}
    outside = {0}
    for process in processes:
        children.setdefault(process.parent, []).append(process)
        if process.pid == server:
            outside.add(process.terminal)
    found: set[int] = set()
    above = [server]
    while above:
        for process in children.get(above.pop(), ()):
            if process.pid not in people and process.terminal in outside:
                found.add(process.pid)
                above.append(process.pid)
    return found


def _find_kernels(processes: Sequence[Process], kernels: set[int]) -> set[int]:
    """The kernels with their copies of themselves, which have open what the kernel has."""
    commands = {process.command for process in processes if process.pid in kernels}
    parents = {process.pid: process.parent for process in processes}
    found = set(kernels)
    for process in processes:
        above = process.parent
        while process.command in commands and above in parents and above not in kernels:
            above = parents[above]
        if process.command in commands and above in kernels:
            found.add(process.pid)
    return found


def _take_sample() -> Sample | None:
    try:
        return Sample(
            clock=time.clock_gettime(time.CLOCK_BOOTTIME),
            processes=tuple(list_processes()),
            seconds=read_cpu_seconds(),
        )
    except OSError:
        return None


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
