"""What a server tells of itself, once a minute, read with doubt: it may send anything. Pure.

    {"activity": {
        "at": "2026-01-31T10:00:00Z", "watched_since": "2026-01-31T09:00:00Z", "pod_uid": "…",
        "kernels": [{"state": "busy", "last_activity": "2026-01-31T09:59:58Z"}],
        "kernels_last_activity": "2026-01-31T09:59:58Z",
        "terminals": [{"last_activity": "2026-01-31T09:30:00Z"}],
        "terminals_last_activity": null,
        "processes": [{"name": "python train.py", "cpu": 0.9, "works": true}],
        "processes_last_worked": "2026-01-31T10:00:00Z",
        "processes_watched_since": "2026-01-31T09:20:00Z"}}

The `…_last_…` are the latest of all that was ever seen since `watched_since`, also of kernels,
terminals and processes that ended. Processes may have a later beginning of their own, since they
are looked at now and then, not followed. Every time has a zone. A part that is absent is not told;
an item that cannot be read leaves doubt about its part, and the others as they are.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from spectrum_spawner.activity import SKEW, Kernels, Process, Processes, Terminals, is_moment

MOST = 1000  # kernels, terminals or processes that are read
LONGEST = 100  # characters of a process's name that are kept
# "unknown" is left out: then nobody knows whether that kernel works
STATES = frozenset(
    {"starting", "idle", "busy", "terminating", "restarting", "autorestarting", "dead"}
)
# a kernel that nobody ever asked anything stays "starting"
AT_WORK = frozenset({"busy", "restarting", "autorestarting"})

Item = TypeVar("Item")


class ReportError(ValueError):
    """Nothing of a report can be used; one sentence says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The last word of a server, part by part."""

    kernels: Kernels | None = None
    terminals: Terminals | None = None
    processes: Processes | None = None


class Told(dict[tuple[str, str], Report]):
    """The last word of each server, by owner and name. `missed_at` is when one was last lost since
    nobody could say whose it was: what was told before then may no longer hold."""

    missed_at: datetime | None = None


def read_report(value: object, *, now: datetime) -> Report:
    """Read the table `activity`, as received `now`; raises ReportError.

    A server whose clock is wrong tells the time of nothing, so its report is none.
    """
    if not isinstance(value, Mapping):
        raise ReportError("activity must be an object.")
    at, since = _moment(value.get("at")), _moment(value.get("watched_since"))
    if at is None or since is None:
        raise ReportError("activity needs the times at and watched_since, with their zone.")
    if at > now + SKEW or since > at:
        raise ReportError("activity is of a time that is still to come.")
    at = min(at, now)  # a clock that is fast makes nothing younger
    since = min(since, at)
    uid = value.get("pod_uid") or ""
    if not isinstance(uid, str):
        raise ReportError("pod_uid must be a text.")
    return Report(
        kernels=_read_kernels(value, Kernels(at=at, watched_since=since, pod_uid=uid)),
        terminals=_read_terminals(value, Terminals(at=at, watched_since=since, pod_uid=uid)),
        processes=_read_processes(value, Processes(at=at, watched_since=since, pod_uid=uid)),
    )


def _read_kernels(value: Mapping[str, Any], empty: Kernels) -> Kernels | None:
    if value.get("kernels") is None:
        return None
    found, bad = _read_items(value["kernels"], _read_kernel)
    moments, worse = _read_last(value.get("kernels_last_activity"), [last for _, last in found])
    return replace(
        empty,
        busy=sum(state in AT_WORK for state, _ in found),
        last_activity=max(moments, default=None),
        doubtful=bad + worse,
    )


def _read_terminals(value: Mapping[str, Any], empty: Terminals) -> Terminals | None:
    if value.get("terminals") is None:
        return None
    found, bad = _read_items(value["terminals"], _read_activity)
    moments, worse = _read_last(value.get("terminals_last_activity"), found)
    return replace(empty, last_activity=max(moments, default=None), doubtful=bad + worse)


def _read_processes(value: Mapping[str, Any], empty: Processes) -> Processes | None:
    if value.get("processes") is None:
        return None
    found, bad = _read_items(value["processes"], _read_process)
    moments, worse = _read_last(value.get("processes_last_worked"), [])
    since = _moment(value.get("processes_watched_since"))
    return replace(
        empty,
        watched_since=max(since or empty.at, empty.watched_since),
        found=tuple(found),
        last_worked=max(moments, default=None),
        doubtful=bad + worse,
    )


def _read_items(items: object, read: Callable[[Any], Item]) -> tuple[list[Item], int]:
    """What can be read of a list, and how much cannot."""
    if not isinstance(items, list) or len(items) > MOST:
        return [], 1
    found, bad = [], 0
    for item in items:
        try:
            found.append(read(item))
        except (KeyError, TypeError, ValueError):
            bad += 1
    return found, bad


def _read_last(told: object, found: list[datetime]) -> tuple[list[datetime], int]:
    if told is None:
        return found, 0
    moment = _moment(told)
    return (found, 1) if moment is None else ([*found, moment], 0)


def _read_kernel(item: Any) -> tuple[str, datetime]:
    state = item["state"]
    if state not in STATES:
        raise ValueError(state)
    return state, _read_activity(item)


def _read_activity(item: Any) -> datetime:
    moment = _moment(item["last_activity"])
    if moment is None:
        raise ValueError(item)
    return moment


def _read_process(item: Any) -> Process:
    name, cpu, works = item["name"], item["cpu"], item["works"]
    if not isinstance(name, str) or not isinstance(works, bool):
        raise ValueError(item)
    if isinstance(cpu, bool) or not math.isfinite(cpu) or cpu < 0:
        raise ValueError(item)
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name[:LONGEST])
    return Process(name=shown, cpu=float(cpu), works=works)


def _moment(value: object) -> datetime | None:
    """A time with its zone, else None."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return moment if moment and is_moment(moment) else None
