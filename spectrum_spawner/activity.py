"""Evidence of what a server does: what was measured, when, and what that says. Pure.

Each kind of evidence answers by a `Reading`: busy, idle since a moment, or unknown. What cannot
be trusted (no time zone, a time ahead, too old, no number, of another pod) says unknown for its
own kind, and nothing about the others; it never says idle.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

GPU, POWER, CPU = "gpu", "power", "cpu"  # measured from outside
KERNELS, TERMINALS, PROCESSES = "kernels", "terminals", "processes"  # told from inside
HUB, HOLD = "hub", "hold"
MEASURED = (GPU, POWER, CPU)
SOURCES = (*MEASURED, KERNELS, TERMINALS, PROCESSES, HUB)

FRESH = timedelta(minutes=3)  # age up to which a measurement tells of now
HUB_FRESH = timedelta(minutes=6)  # the hub itself hears of activity every 5 minutes
SKEW = timedelta(seconds=30)  # by which clocks may differ
HIGHEST = {GPU: 100.0, POWER: 100_000.0, CPU: 10_000.0}  # percent, watts, cores
UNITS = {GPU: "%", POWER: "W", CPU: "cores"}


class Answer(StrEnum):
    BUSY = "busy"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """Of which run of a server evidence must be, so that a former pod's never counts."""

    pod_uid: str
    started: datetime
    gpus: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one kind of evidence says.

    `since` is when a busy one was last seen to work, or since when an idle one has not. `at` is
    when it was measured, None for never. `text` is part of a sentence.
    """

    source: str
    answer: Answer
    since: datetime | None = None
    at: datetime | None = None
    text: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For the audit: a value that `json.dumps` takes."""
        return {
            "source": self.source,
            "answer": str(self.answer),
            "since": self.since and self.since.isoformat(timespec="seconds"),
            "at": self.at and self.at.isoformat(timespec="seconds"),
            "text": self.text,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One measured series of a pod: of a GPU, a MIG slice or a container.

    `value` is the highest of the last minutes, measured at `at`. `idle_since` says by floor since
    when it was measured without a break and always below (None: it was not), as far back as was
    asked for. `pod_uid` is "" where nobody tells.
    """

    source: str
    device: str
    at: datetime | None
    value: float | None
    idle_since: Mapping[float, datetime | None] = field(default_factory=dict)
    pod_uid: str = ""

    def read(self, run: Run, *, floor: float, now: datetime) -> Reading:
        value, since = self.value, self.idle_since.get(floor)
        doubt = find_doubt(self.at, now)
        if not doubt and (value is None or not 0 <= value <= HIGHEST[self.source]):
            doubt = "the value measured cannot be"
        elif not doubt and value is not None and value < floor and not is_moment(since):
            doubt = "its history is not known"
        if doubt or self.at is None or value is None:
            return Reading(source=self.source, answer=Answer.UNKNOWN, at=self.at, text=doubt)
        text = f"{value:.3g} {UNITS[self.source]}"
        if value >= floor:
            return Reading(
                source=self.source, answer=Answer.BUSY, since=self.at, at=self.at, text=text
            )
        since = _latest(run.started, since)
        return Reading(source=self.source, answer=Answer.IDLE, since=since, at=self.at, text=text)

    def is_of(self, run: Run) -> bool:
        """Whether it is of that pod, and not of one that had its name before."""
        if self.pod_uid and self.pod_uid != run.pod_uid:
            return False
        return self.at is None or not is_moment(self.at) or self.at >= run.started


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """The notebook kernels as the server told at `at`; watched without a break since
    `watched_since`. `doubtful` counts those that could not be read."""

    at: datetime
    watched_since: datetime
    busy: int = 0
    last_activity: datetime | None = None
    doubtful: int = 0
    pod_uid: str = ""

    def read(self, run: Run, *, now: datetime) -> Reading:
        text = f"{self.busy} busy"
        return _read_told(KERNELS, self, bool(self.busy), self.last_activity, text, run, now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminals:
    """The terminals: when somebody last typed or something was last printed there."""

    at: datetime
    watched_since: datetime
    last_activity: datetime | None = None
    doubtful: int = 0
    pod_uid: str = ""

    def read(self, run: Run, *, now: datetime) -> Reading:
        return _read_told(TERMINALS, self, False, self.last_activity, "no output", run, now)


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A process of the user's. `cpu` is in cores over the last minute; whether it `works` is told
    by who sees more of it, such as that it waits for data with a GPU open."""

    name: str
    cpu: float
    works: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """What the user runs besides the server itself; `last_worked` is when any was last seen to."""

    at: datetime
    watched_since: datetime
    found: tuple[Process, ...] = ()
    last_worked: datetime | None = None
    doubtful: int = 0
    pod_uid: str = ""

    def read(self, run: Run, *, now: datetime) -> Reading:
        working = [process.name for process in self.found if process.works]
        text = f"{working[0]} works" if working else "none works"
        if len(working) > 1:
            text = f"{working[0]} and {len(working) - 1} more work"
        return _read_told(PROCESSES, self, bool(working), self.last_worked, text, run, now)


@dataclass(frozen=True, kw_only=True, slots=True)
class HubActivity:
    """The hub's `last_activity` as of `at`. An open tab renews it too."""

    at: datetime
    last_activity: datetime | None

    def read(self, run: Run, *, now: datetime) -> Reading:
        last = self.last_activity
        doubt = find_doubt(self.at, now, fresh=HUB_FRESH)
        if last is None or not is_moment(last) or last > now + SKEW:
            doubt = doubt or "the hub knows no time of it"
        if doubt or last is None:
            return Reading(source=HUB, answer=Answer.UNKNOWN, at=self.at, text=doubt)
        answer = Answer.BUSY if now - last <= HUB_FRESH else Answer.IDLE
        since = last if answer is Answer.BUSY else max(last, run.started)
        text = "browser or API" if answer is Answer.BUSY else "no browser, no API"
        return Reading(source=HUB, answer=answer, since=since, at=self.at, text=text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hold:
    """Somebody's word that a server works until a moment, e.g. for a training."""

    by: str
    made_at: datetime
    until: datetime
    reason: str = ""

    def is_active(self, now: datetime) -> bool:
        """A hold whose end cannot be read holds: nobody is stopped for our fault."""
        return not is_moment(self.until) or now < self.until


Told = Kernels | Terminals | Processes
Part = TypeVar("Part", Kernels, Terminals, Processes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """All that is known of one server; what nobody tells is absent, and that is unknown."""

    series: tuple[Series, ...] = ()
    kernels: Kernels | None = None
    terminals: Terminals | None = None
    processes: Processes | None = None
    hub: HubActivity | None = None
    holds: tuple[Hold, ...] = ()

    def read(self, source: str, run: Run, *, now: datetime, floor: float = 0) -> Reading:
        """What one kind says of a run; `floor` counts for what is measured alone."""
        if source in MEASURED:
            mine = [each for each in self.series if each.source == source and each.is_of(run)]
            return _read_series(source, mine, run, floor, now)
        record: Told | HubActivity | None = getattr(self, source)
        if record is None:
            return Reading(source=source, answer=Answer.UNKNOWN, text="nobody tells")
        return record.read(run, now=now)

    def told_since(self, moment: datetime) -> "Evidence":
        """The same without what the server told before a moment."""
        return replace(
            self,
            kernels=_told_since(self.kernels, moment),
            terminals=_told_since(self.terminals, moment),
            processes=_told_since(self.processes, moment),
        )

    def used_at(self, now: datetime) -> datetime | None:
        """When a person last did something, as far as the server tells: tabs do not count."""
        told = (self.kernels, self.terminals)
        moments = [each.last_activity for each in told if each]
        known = [each for each in moments if each and is_moment(each) and each <= now + SKEW]
        return max(known, default=None)


def is_moment(moment: object) -> bool:
    """Whether it can be compared with others: a time with its zone."""
    return isinstance(moment, datetime) and moment.tzinfo is not None


def find_doubt(at: datetime | None, now: datetime, *, fresh: timedelta = FRESH) -> str:
    """Why a measurement tells nothing of now, as part of a sentence; "" if it does."""
    if at is None:
        return "never measured"
    if not is_moment(at):
        return "measured at a time without a zone"
    if at > now + SKEW:
        return "measured at a time that is still to come"
    if now - at > fresh:
        return f"not measured for {(now - at) // timedelta(minutes=1)} minutes"
    return ""


def _read_series(
    source: str, series: list[Series], run: Run, floor: float, now: datetime
) -> Reading:
    """Several GPUs work if one does, and are idle if each is known to be."""
    needed = run.gpus or 1 if source in (GPU, POWER) else 1
    # a GPU that nothing measures any more may have been one of a former pod of the same name
    here = {each.device for each in series if each.at is not None}
    series = [each for each in series if not here or each.device in here]
    if len(series) == needed == 1:
        return series[0].read(run, floor=floor, now=now)
    found = [each.read(run, floor=floor, now=now) for each in series]
    answers = [reading.answer for reading in found]
    for answer in (Answer.BUSY, Answer.UNKNOWN):
        if answer in answers:
            return found[answers.index(answer)]
    devices = len({each.device for each in series})
    if devices < needed:
        text = f"{devices} of {needed} measured"
        return Reading(source=source, answer=Answer.UNKNOWN, text=text)
    return max(found, key=lambda reading: reading.since or run.started)


def _read_told(
    source: str,
    record: Told,
    works: bool,
    last: datetime | None,
    text: str,
    run: Run,
    now: datetime,
) -> Reading:
    """What a record from inside the pod says: that something works, or since when nothing has."""
    at = record.at
    doubt = find_doubt(at, now)
    if not doubt and record.pod_uid and record.pod_uid != run.pod_uid:
        doubt = "told by another pod"
    if not doubt and works:
        return Reading(source=source, answer=Answer.BUSY, since=at, at=at, text=text)
    if not doubt and record.doubtful:
        doubt = "told in part only"
    for moment in (record.watched_since, last or record.watched_since):
        if not doubt and (not is_moment(moment) or moment > now + SKEW):
            doubt = "told with times that cannot be"
    if doubt:
        return Reading(source=source, answer=Answer.UNKNOWN, at=at, text=doubt)
    since = _latest(run.started, record.watched_since, last)
    return Reading(source=source, answer=Answer.IDLE, since=since, at=at, text=text)


def _told_since(record: Part | None, moment: datetime) -> Part | None:
    return record if record and is_moment(record.at) and record.at >= moment else None


def _latest(moment: datetime, *others: datetime | None) -> datetime:
    for other in others:
        if other is not None and other > moment:
            moment = other
    return moment
