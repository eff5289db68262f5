"""What a server tells of itself: each part by itself, with doubt where it cannot be."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.activity import Kernels, Process, Processes, Terminals
from spectrum_spawner.service.culling.report import Report, ReportError, read_report

NOW = datetime(2026, 1, 31, 10, 0, 5, tzinfo=UTC)
AT = datetime(2026, 1, 31, 10, tzinfo=UTC)
SINCE = datetime(2026, 1, 31, 9, tzinfo=UTC)
LAST = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
LAST_TEXT = "2026-01-31T09:30:00Z"
TOLD: dict[str, Any] = {
    "at": "2026-01-31T10:00:00Z",
    "watched_since": "2026-01-31T10:00:00+01:00",
    "pod_uid": "u-1",
    "kernels": [
        {"state": "busy", "last_activity": "2026-01-31T09:10:00Z"},
        {"state": "starting", "last_activity": LAST_TEXT},
    ],
    "terminals": [{"last_activity": LAST_TEXT}],
    "processes": [{"name": "python train.py", "cpu": 0.9, "works": True}],
    "processes_last_worked": "2026-01-31T10:00:00Z",
    "processes_watched_since": "2026-01-31T09:20:00Z",
}
KERNELS = Kernels(at=AT, watched_since=SINCE, busy=1, last_activity=LAST, pod_uid="u-1")
TERMINALS = Terminals(at=AT, watched_since=SINCE, last_activity=LAST, pod_uid="u-1")
PROCESSES = Processes(
    at=AT,
    watched_since=datetime(2026, 1, 31, 9, 20, tzinfo=UTC),
    found=(Process(name="python train.py", cpu=0.9, works=True),),
    last_worked=AT,
    pod_uid="u-1",
)


def test_a_report_is_read_whole() -> None:
    expected = Report(kernels=KERNELS, terminals=TERMINALS, processes=PROCESSES)
    assert read_report(TOLD, now=NOW) == expected


def test_a_part_that_is_not_told_is_absent() -> None:
    bare = {key: TOLD[key] for key in ("at", "watched_since")}
    assert read_report(bare, now=NOW) == Report()


def test_what_ended_since_counts_too() -> None:
    told = {**TOLD, "kernels": [], "kernels_last_activity": LAST_TEXT}
    found = read_report(told, now=NOW).kernels
    assert found == Kernels(at=AT, watched_since=SINCE, last_activity=LAST, pod_uid="u-1")


@pytest.mark.parametrize(
    "kernel",
    [
        {"state": "busy", "last_activity": "2026-01-31T09:10:00"},
        {"state": "busy", "last_activity": "yesterday"},
        {"state": "busy"},
        {"state": "working", "last_activity": LAST_TEXT},
        # of a kernel elsewhere, of which its server knows nothing
        {"state": "unknown", "last_activity": LAST_TEXT},
        {"state": ["busy"], "last_activity": LAST_TEXT},
        "busy",
        None,
    ],
)
def test_a_kernel_that_cannot_be_read_leaves_the_others(kernel: Any) -> None:
    report = read_report({**TOLD, "kernels": [kernel, *TOLD["kernels"]]}, now=NOW)
    assert report.kernels is not None
    assert (report.kernels.busy, report.kernels.doubtful) == (1, 1)
    assert (report.terminals, report.processes) == (TERMINALS, PROCESSES)


@pytest.mark.parametrize(
    "process",
    [
        {"name": "x", "cpu": float("nan"), "works": True},
        {"name": "x", "cpu": -1, "works": True},
        {"name": "x", "cpu": "1", "works": True},
        {"name": "x", "cpu": True, "works": True},
        {"name": 5, "cpu": 1, "works": True},
        {"name": "x", "works": True},
        {"name": "x", "cpu": 1},
        {"name": "x", "cpu": 1, "works": "yes"},
        [],
    ],
)
def test_a_process_that_cannot_be_read_leaves_the_others(process: Any) -> None:
    found = read_report({**TOLD, "processes": [process]}, now=NOW).processes
    assert found is not None
    assert (found.found, found.doubtful) == ((), 1)


@pytest.mark.parametrize("items", [{}, "all", 5, [{}] * 1001])
def test_a_list_that_is_none_leaves_doubt(items: Any) -> None:
    report = read_report({**TOLD, "terminals": items}, now=NOW)
    assert report.terminals is not None
    assert report.terminals.doubtful == 1


def test_a_name_is_cut_and_can_be_shown() -> None:
    told = {**TOLD, "processes": [{"name": "\x1b[1m" + "x" * 500, "cpu": 0, "works": False}]}
    found = read_report(told, now=NOW).processes
    assert found is not None
    assert found.found[0].name == "\N{REPLACEMENT CHARACTER}[1m" + "x" * 96


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "must be an object"),
        ([], "must be an object"),
        ({}, "needs the times at and watched_since"),
        ({**TOLD, "at": "2026-01-31T10:00:00"}, "needs the times at and watched_since"),
        ({**TOLD, "at": 1769853600}, "needs the times at and watched_since"),
        ({**TOLD, "at": "2026-01-31T11:00:00Z"}, "of a time that is still to come"),
        ({**TOLD, "watched_since": "2026-01-31T10:30:00Z"}, "of a time that is still to come"),
        ({**TOLD, "pod_uid": 7}, "pod_uid must be a text"),
    ],
)
def test_a_report_of_no_time_is_none(value: Any, sentence: str) -> None:
    with pytest.raises(ReportError, match=sentence):
        read_report(value, now=NOW)


def test_a_clock_may_be_a_little_ahead() -> None:
    now = AT - timedelta(seconds=20)
    # which makes nothing that it tells younger
    assert read_report(TOLD, now=now).kernels == replace(KERNELS, at=now)


def test_processes_that_nobody_says_were_watched_are_idle_since_now_at_most() -> None:
    told = {key: each for key, each in TOLD.items() if key != "processes_watched_since"}
    for since in (told, {**told, "processes_watched_since": "yesterday"}):
        assert read_report(since, now=NOW).processes == replace(PROCESSES, watched_since=AT)
