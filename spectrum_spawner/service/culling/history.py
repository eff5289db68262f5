"""How busy the GPUs of each server were, minute by minute over the last hour. Pure."""

from collections.abc import Mapping
from datetime import datetime

from spectrum_spawner.activity import GPU, Evidence, find_doubt
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.culling.sweep import Key

MINUTES = 60


class History:
    """The highest utilisation of any GPU of a server in each minute, in percent.

    It is kept in memory alone: it is shown to people, and nothing is decided by it.
    """

    def __init__(self) -> None:
        self._minutes: dict[int, dict[str, float]] = {}  # by minute and pod

    def note(
        self, subjects: Mapping[Key, Subject], evidence: Mapping[Key, Evidence], now: datetime
    ) -> None:
        """Keep what was measured now, and forget what was more than an hour ago."""
        minute = _minute_of(now)
        found = dict(self._minutes.get(minute, {}))
        for key, subject in subjects.items():
            if subject.run.gpus:
                value = find_utilisation(subject, evidence.get(key), now)
                if value is not None:
                    uid = subject.run.pod_uid
                    found[uid] = max(value, found.get(uid, 0.0))
        kept = {m: values for m, values in self._minutes.items() if m > minute - MINUTES}
        self._minutes = {**kept, minute: found}

    def of(self, subject: Subject, now: datetime) -> tuple[float | None, ...]:
        """One value a minute, the newest last; None where it was not measured."""
        last, uid = _minute_of(now), subject.run.pod_uid
        minutes = self._minutes
        return tuple(minutes.get(m, {}).get(uid) for m in range(last - MINUTES + 1, last + 1))


def find_utilisation(subject: Subject, evidence: Evidence | None, now: datetime) -> float | None:
    """The highest of the GPUs of a server in percent; None where nobody measures it now."""
    return max(list_utilisation(subject, evidence, now), default=None)


def list_utilisation(subject: Subject, evidence: Evidence | None, now: datetime) -> list[float]:
    """The same of each GPU that somebody measures now."""
    series = [s for s in evidence.series if s.source == GPU] if evidence else []
    return [
        s.value
        for s in series
        if s.is_of(subject.run)
        and s.value is not None
        and 0 <= s.value <= 100
        and not find_doubt(s.at, now)
    ]


def _minute_of(moment: datetime) -> int:
    return int(moment.timestamp()) // 60
