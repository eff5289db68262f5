"""GPU hours: how long each person held GPUs, and how much of that they were used. Pure.

Held is the number of GPUs of a pod times the time for which it had them. Used is the same times the
utilisation that each look finds, which is the highest of the minutes before it; for as long as
nobody measures a GPU it counts as held and not as measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta

from spectrum_spawner.activity import Evidence
from spectrum_spawner.service.culling.history import list_utilisation
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.sweep import Key

LONGEST = timedelta(minutes=5)  # for which one look's utilisation stands
MARKS = (100, 80)  # percent of a budget at which its leads hear of it
DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True, order=True)
class Account:
    """On whom it is counted: a day (of UTC, `2026-01-31`), a team, a person and a profile."""

    day: str
    team: str
    user: str
    profile: str


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Seconds of one GPU. `measured` is how much of `reserved` somebody measured."""

    reserved: float = 0.0
    used: float = 0.0
    measured: float = 0.0

    def __add__(self, other: "Hours") -> "Hours":
        return Hours(
            reserved=self.reserved + other.reserved,
            used=self.used + other.used,
            measured=self.measured + other.measured,
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """GPU hours that a team held in a month, of those it was given."""

    team: str
    title: str
    month: str
    held: float
    budget: int

    @property
    def percent(self) -> int:
        return int(100 * self.held / self.budget)

    @property
    def mark(self) -> int:
        """The highest of the marks that was reached, 0 for none."""
        return next((mark for mark in MARKS if self.percent >= mark), 0)

    @property
    def text(self) -> str:
        return (
            f"Team {self.title} held GPUs for {self.held:,.0f} of its {self.budget:,} hours of "
            f"{self.month} ({self.percent} %). Nothing is stopped for that."
        )


def count(
    subjects: Mapping[Key, Subject],
    evidence: Mapping[Key, Evidence],
    until: Mapping[str, datetime],
    now: datetime,
) -> tuple[dict[Account, Hours], dict[str, datetime]]:
    """What is to be added for the servers that run, and until when each pod is counted then.

    `until` is the same of the looks before, by the pod's uid; one that it does not know is counted
    from its start.
    """
    added: dict[Account, Hours] = {}
    counted: dict[str, datetime] = {}
    for key, subject in subjects.items():
        uid = subject.run.pod_uid
        begin = until.get(uid, subject.run.started)
        if not subject.run.gpus or begin >= now:
            continue
        counted[uid] = now
        values = list_utilisation(subject, evidence.get(key), now)[: subject.run.gpus]
        for day, first, last in split_days(begin, now):
            account = Account(
                day=day, team=subject.team, user=subject.user, profile=subject.profile
            )
            seconds = (last - first).total_seconds()
            told = max(0.0, (last - max(first, now - LONGEST)).total_seconds())
            hours = Hours(
                reserved=subject.run.gpus * seconds,
                used=sum(values) / 100 * told,
                measured=len(values) * told,
            )
            added[account] = added.get(account, Hours()) + hours
    return added, counted


def split_days(begin: datetime, end: datetime) -> Iterator[tuple[str, datetime, datetime]]:
    """A time in parts that each lie in one day of UTC."""
    begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    while begin < end:
        midnight = datetime.combine(begin.date(), time(), UTC) + DAY
        yield begin.date().isoformat(), begin, min(end, midnight)
        begin = midnight


def month_of(moment: datetime) -> str:
    """Such as `2026-01`, of UTC."""
    return moment.astimezone(UTC).strftime("%Y-%m")
