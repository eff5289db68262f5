"""Evidence answers busy, idle since when, or unknown; what cannot be trusted is never idle."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.activity import (
    CPU,
    FRESH,
    GPU,
    HUB,
    KERNELS,
    POWER,
    PROCESSES,
    TERMINALS,
    Answer,
    Evidence,
    Hold,
    HubActivity,
    Kernels,
    Process,
    Processes,
    Reading,
    Run,
    Series,
    Terminals,
)

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
STARTED = NOW - 5 * HOUR
RUN = Run(pod_uid="pod-2", started=STARTED, gpus=1)
AT = NOW - MINUTE / 2
NAIVE = datetime(2026, 1, 31, 11, 59)
IDLE_GPU = Series(
    source=GPU,
    device="GPU-1",
    at=AT,
    value=0.0,
    idle_since={1.0: NOW - 2 * HOUR},
)
KERNEL = Kernels(at=AT, watched_since=STARTED, last_activity=NOW - HOUR)


def read_gpu(*series: Series, run: Run = RUN, floor: float = 1.0) -> Reading:
    return Evidence(series=series).read(GPU, run, now=NOW, floor=floor)


def test_a_gpu_is_idle_since_it_was_last_at_the_floor() -> None:
    assert read_gpu(IDLE_GPU) == Reading(
        source=GPU, answer=Answer.IDLE, since=NOW - 2 * HOUR, at=AT, text="0 %"
    )


def test_a_gpu_at_the_floor_is_busy() -> None:
    assert read_gpu(replace(IDLE_GPU, value=1.0)) == Reading(
        source=GPU, answer=Answer.BUSY, since=AT, at=AT, text="1 %"
    )
    assert read_gpu(replace(IDLE_GPU, value=0.99)).answer is Answer.IDLE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"value": math.nan}, "the value measured cannot be"),
        ({"value": math.inf}, "the value measured cannot be"),
        ({"value": 101.0}, "the value measured cannot be"),
        ({"value": -1.0}, "the value measured cannot be"),
        ({"value": None}, "the value measured cannot be"),
        ({"at": None}, "never measured"),
        ({"at": NAIVE}, "measured at a time without a zone"),
        ({"at": NOW + HOUR}, "measured at a time that is still to come"),
        ({"at": NOW - 7 * MINUTE}, "not measured for 7 minutes"),
        ({"idle_since": {}}, "its history is not known"),
        ({"idle_since": {1.0: None}}, "its history is not known"),
        ({"idle_since": {1.0: NAIVE}}, "its history is not known"),
    ],
)
def test_a_measurement_that_cannot_be_trusted_is_unknown(change: Any, text: str) -> None:
    bad = replace(IDLE_GPU, **change)
    found = read_gpu(bad)
    assert (found.answer, found.text) == (Answer.UNKNOWN, text)
    # beside a good one of the same or another GPU it still lets nobody call the server idle
    other = replace(IDLE_GPU, device="GPU-2")
    assert read_gpu(bad, IDLE_GPU).answer is Answer.UNKNOWN
    assert read_gpu(other, bad, run=replace(RUN, gpus=2)).answer is Answer.UNKNOWN
    # and takes nothing from one that works
    assert read_gpu(bad, replace(other, value=90.0)).answer is Answer.BUSY


def test_any_gpu_of_several_that_works_keeps_the_server() -> None:
    two = replace(RUN, gpus=2)
    other = replace(IDLE_GPU, device="GPU-2")
    assert read_gpu(IDLE_GPU, replace(other, value=50.0), run=two).answer is Answer.BUSY
    worked = replace(other, idle_since={1.0: NOW - 10 * MINUTE})
    assert read_gpu(IDLE_GPU, worked, run=two).since == NOW - 10 * MINUTE


def test_a_gpu_that_nobody_measures_is_unknown() -> None:
    assert read_gpu() == Reading(source=GPU, answer=Answer.UNKNOWN, text="0 of 1 measured")
    two = replace(RUN, gpus=2)
    assert read_gpu(IDLE_GPU, run=two).text == "1 of 2 measured"
    # two metrics of one GPU are still one
    assert read_gpu(IDLE_GPU, IDLE_GPU, run=two).answer is Answer.UNKNOWN


def test_the_series_of_a_former_pod_with_that_name_does_not_count() -> None:
    young = replace(RUN, started=NOW - MINUTE)
    before = replace(IDLE_GPU, at=NOW - 2 * MINUTE, value=90.0)
    assert read_gpu(before, run=young).text == "0 of 1 measured"
    assert read_gpu(replace(IDLE_GPU, value=90.0, pod_uid="pod-1")).text == "0 of 1 measured"
    assert read_gpu(replace(IDLE_GPU, pod_uid="pod-2")).answer is Answer.IDLE
    # a series that goes on from one pod to the next tells of the second from its start on
    assert read_gpu(IDLE_GPU, run=young).since == NOW - MINUTE


def test_other_measurements_have_their_own_units() -> None:
    cpu = replace(IDLE_GPU, source=CPU, device="", value=1.5, idle_since={})
    power = replace(IDLE_GPU, source=POWER, value=60.0, idle_since={80.0: NOW - HOUR})
    evidence = Evidence(series=(IDLE_GPU, cpu, power))
    assert evidence.read(CPU, RUN, now=NOW, floor=0.1).text == "1.5 cores"
    assert evidence.read(CPU, RUN, now=NOW, floor=0.1).answer is Answer.BUSY
    found = evidence.read(POWER, RUN, now=NOW, floor=80.0)
    assert (found.answer, found.text) == (Answer.IDLE, "60 W")


def read(source: str, **parts: Any) -> Reading:
    return Evidence(**parts).read(source, RUN, now=NOW)


def test_a_busy_kernel_keeps_a_server_however_long_it_prints_nothing() -> None:
    busy = replace(KERNEL, busy=1, last_activity=NOW - 4 * HOUR)
    assert read(KERNELS, kernels=busy) == Reading(
        source=KERNELS, answer=Answer.BUSY, since=AT, at=AT, text="1 busy"
    )


def test_kernels_are_idle_since_the_last_of_them_did_something() -> None:
    assert read(KERNELS, kernels=KERNEL) == Reading(
        source=KERNELS, answer=Answer.IDLE, since=NOW - HOUR, at=AT, text="0 busy"
    )
    nobody_watched = replace(KERNEL, watched_since=NOW - 5 * MINUTE)
    assert read(KERNELS, kernels=nobody_watched).since == NOW - 5 * MINUTE
    assert read(KERNELS, kernels=replace(KERNEL, last_activity=None)).since == STARTED


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"at": NOW - FRESH - MINUTE}, "not measured for 4 minutes"),
        ({"at": NAIVE}, "measured at a time without a zone"),
        ({"at": NOW + MINUTE}, "measured at a time that is still to come"),
        ({"last_activity": NAIVE}, "told with times that cannot be"),
        ({"last_activity": NOW + HOUR}, "told with times that cannot be"),
        ({"watched_since": NAIVE}, "told with times that cannot be"),
        ({"pod_uid": "pod-1"}, "told by another pod"),
        ({"doubtful": 1}, "told in part only"),
    ],
)
def test_what_a_server_tells_is_unknown_where_it_cannot_be(change: Any, text: str) -> None:
    found = read(KERNELS, kernels=replace(KERNEL, **change))
    assert (found.answer, found.text) == (Answer.UNKNOWN, text)


def test_one_kernel_in_doubt_does_not_hide_a_busy_one() -> None:
    assert read(KERNELS, kernels=replace(KERNEL, busy=1, doubtful=3)).answer is Answer.BUSY


@pytest.mark.parametrize(
    ("process", "works"),
    [
        (Process(name="python train.py", cpu=0.9, works=True), True),
        # it loads data from slow storage, or writes a checkpoint: who sees it knows
        (Process(name="python train.py", cpu=0.0, works=True), True),
        (Process(name="sleep infinity", cpu=0.0), False),
    ],
)
def test_a_process_works_as_its_server_tells(process: Process, works: bool) -> None:
    processes = Processes(at=AT, watched_since=STARTED, found=(process,))
    answer = read(PROCESSES, processes=processes).answer
    assert answer is (Answer.BUSY if works else Answer.IDLE)


def test_what_was_told_before_a_moment_can_be_left_out() -> None:
    processes = Processes(at=AT - MINUTE, watched_since=STARTED)
    evidence = Evidence(series=(IDLE_GPU,), kernels=KERNEL, processes=processes)
    assert evidence.told_since(AT - MINUTE) == evidence
    assert evidence.told_since(AT) == replace(evidence, processes=None)
    assert evidence.told_since(NOW) == Evidence(series=(IDLE_GPU,))
    naive = Evidence(kernels=replace(KERNEL, at=NAIVE))
    assert naive.told_since(AT) == Evidence()


def test_processes_are_named_and_idle_since_the_last_worked() -> None:
    train, copy = (Process(name=name, cpu=1.0, works=True) for name in ("train", "copy"))
    processes = Processes(at=AT, watched_since=STARTED, last_worked=NOW - 40 * MINUTE)
    assert read(PROCESSES, processes=processes).since == NOW - 40 * MINUTE
    for found, text in (((), "none works"), ((train,), "train works")):
        assert read(PROCESSES, processes=replace(processes, found=found)).text == text
    both = replace(processes, found=(train, copy))
    assert read(PROCESSES, processes=both).text == "train and 1 more work"


def test_terminals_are_idle_since_their_last_output() -> None:
    terminals = Terminals(at=AT, watched_since=STARTED, last_activity=NOW - HOUR)
    assert read(TERMINALS, terminals=terminals).since == NOW - HOUR


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        (NOW, Answer.BUSY),
        (NOW - 5 * MINUTE, Answer.BUSY),
        (NOW - HOUR, Answer.IDLE),
        (None, Answer.UNKNOWN),
        (NAIVE, Answer.UNKNOWN),
        (NOW + HOUR, Answer.UNKNOWN),
    ],
)
def test_the_hub_tells_of_browsers(last: datetime | None, answer: Answer) -> None:
    assert read(HUB, hub=HubActivity(at=AT, last_activity=last)).answer is answer


def test_a_hub_that_is_away_tells_nothing() -> None:
    old = HubActivity(at=NOW - HOUR, last_activity=NOW - 3 * HOUR)
    assert read(HUB, hub=old).answer is Answer.UNKNOWN


@pytest.mark.parametrize("source", [GPU, CPU, POWER, KERNELS, TERMINALS, PROCESSES, HUB])
def test_what_nobody_tells_is_unknown(source: str) -> None:
    assert read(source).answer is Answer.UNKNOWN


def test_a_hold_lasts_until_its_end() -> None:
    hold = Hold(by="alice", made_at=NOW - HOUR, until=NOW + HOUR)
    assert hold.is_active(NOW)
    assert not hold.is_active(NOW + HOUR)
    assert replace(hold, until=NAIVE).is_active(NOW)


def test_tabs_are_no_use_but_kernels_and_terminals_are() -> None:
    terminals = Terminals(at=AT, watched_since=STARTED, last_activity=NOW - MINUTE)
    evidence = Evidence(
        kernels=KERNEL, terminals=terminals, hub=HubActivity(at=AT, last_activity=NOW)
    )
    assert evidence.used_at(NOW) == NOW - MINUTE
    assert Evidence(kernels=replace(KERNEL, last_activity=NAIVE)).used_at(NOW) is None


def test_a_reading_can_be_kept_as_json() -> None:
    assert json.loads(json.dumps(read_gpu(IDLE_GPU).as_dict())) == {
        "source": "gpu",
        "answer": "idle",
        "since": "2026-01-31T10:00:00+00:00",
        "at": "2026-01-31T11:59:30+00:00",
        "text": "0 %",
    }
