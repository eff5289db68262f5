"""What goes on in a server, as the reporter sees it: no image."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from spectrum_lab import patience, processes
from spectrum_lab.activity import ENDED, Sample, Watch, Work, find_work
from spectrum_lab.cgroup import read_cpu_seconds
from spectrum_lab.processes import Process, list_processes, name_command

from spectrum_spawner.activity import Answer, Evidence, Run
from spectrum_spawner.service.culling.report import Report, read_report

START = datetime(2026, 1, 31, 9, 0, tzinfo=UTC)
TINI, SERVER, KERNEL, SHELL = 1, 7, 20, 30
PYTHON = ("python", "-m", "ipykernel_launcher", "-f", "/tmp/kernel.json")


def process(
    pid: int, parent: int = TINI, seconds: float = 0, *command: str, **rest: Any
) -> Process:
    return Process(
        pid=pid,
        parent=parent,
        began=10.0 + pid,
        seconds=seconds,
        command=command or ("python", "train.py"),
        **rest,
    )


def sample(clock: float, *found: Process, seconds: float | None = None, **server: Any) -> Sample:
    always = (
        process(TINI, 0, 0, "tini", "-g"),
        process(SERVER, TINI, clock / 10, "spectrum-singleuser", **server),
    )
    return Sample(clock=clock, processes=(*always, *found), seconds=seconds)


def find(before: Sample | None, after: Sample) -> list[Work]:
    return find_work(before, after, server=SERVER, kernels={KERNEL}, terminals={SHELL})


def test_a_process_works_by_the_cpu_that_it_used_since_the_look_before() -> None:
    before = sample(1000, process(40, TINI, 500.0))
    assert find(before, sample(1060, process(40, TINI, 554.0))) == [
        Work(name="python train.py", cpu=0.9)
    ]
    # another one that has its pid, since then
    reborn = Process(pid=40, parent=TINI, began=1030, seconds=6, command=("stress",))
    assert find(before, sample(1060, reborn)) == [Work(name="stress", cpu=0.1)]


def test_at_the_first_look_a_process_worked_since_it_began() -> None:
    began_at_50 = process(40, TINI, 25.0)
    assert find(None, sample(150, began_at_50)) == [Work(name="python train.py", cpu=0.25)]


def test_neither_the_server_nor_what_serves_its_pages_is_a_persons_work() -> None:
    tensorboard = process(50, SERVER, 30.0, "tensorboard", "--logdir=/home/jovyan/logs")
    shell = process(SHELL, SERVER, 0, "/bin/bash", "-l")
    kernel = process(KERNEL, SERVER, 0, *PYTHON)
    found = find(sample(1000, shell, kernel), sample(1060, tensorboard, shell, kernel))
    assert [work.name for work in found] == ["bash", "python -m ipykernel_launcher"]
    assert [work.works for work in found] == [False, False]


def test_what_helpers_start_is_no_persons_work_but_in_a_terminal() -> None:
    tensorboard = process(50, SERVER, 30.0, "tensorboard", "--logdir=/home/jovyan/logs")
    reader = process(51, 50, 30.0, "tensorboard_data_server")
    editor = process(60, SERVER, 30.0, "node", "/opt/code-server/entry")
    language = process(61, 60, 30.0, "node", "pyright")
    shell = process(62, 60, 0, "bash", terminal=34816)
    train = process(63, 62, 30.0, terminal=34816)
    apart = process(64, 63, 30.0, "python", "worker.py", terminal=34816)
    helpers = (tensorboard, reader, editor, language)
    found = find(sample(1000), sample(1060, *helpers, shell, train, apart))
    assert [work.name for work in found] == ["bash", "python train.py", "python worker.py"]
    # a pod that has a terminal itself
    inside = [replace(each, terminal=1025) for each in helpers]
    assert find(sample(1000, terminal=1025), sample(1060, *inside, terminal=1025)) == []


def test_what_the_server_asked_meanwhile_is_no_persons_work() -> None:
    """JupyterLab asks git again and again, for as long as a tab is open."""
    helper = process(50, SERVER, 0, "node", "server.js", reaped=3.0)
    before = sample(1000, helper, seconds=5000, reaped=70.0)
    again = replace(helper, reaped=5.0)
    after = sample(1060, again, seconds=5000 + 6 + 30 + 2, reaped=100.0)
    assert find(before, after) == []
    # what a kernel started is
    kernel = process(KERNEL, SERVER, 0, *PYTHON, reaped=30.0)
    after = sample(1060, again, kernel, seconds=5000 + 6 + 30, reaped=70.0)
    assert [work.name for work in find(before, after)][-1] == ENDED


def test_a_gpu_that_a_kernel_holds_is_no_work_and_one_that_another_process_holds_is() -> None:
    kernel = process(KERNEL, SERVER, 0, *PYTHON, gpu=True)
    copy = process(21, KERNEL, 0, *PYTHON, gpu=True)
    copy_of_copy = process(22, 21, 0, *PYTHON, gpu=True)
    script = process(23, KERNEL, 0, "python", "train.py", gpu=True)
    other = process(24, TINI, 0, *PYTHON, gpu=True)  # started in a terminal
    after = sample(1060, kernel, copy, copy_of_copy, script, other)
    found = find(sample(1000), after)
    assert [work.works for work in found] == [False, False, False, True, True]
    # a thread of a kernel may train while the kernel says idle
    (busy,) = find(sample(1000), sample(1060, replace(kernel, seconds=30)))
    assert busy.works


def test_what_the_container_used_beyond_what_is_seen_is_of_processes_that_ended() -> None:
    # the server itself uses 6 s in between
    before = sample(1000, process(40, TINI, 100), seconds=5000)
    quiet = sample(1060, process(40, TINI, 110), seconds=5000 + 6 + 10 + 2)
    assert [work.name for work in find(before, quiet)] == ["python train.py"]
    busy = sample(1060, process(40, TINI, 110), seconds=5000 + 6 + 10 + 30)
    assert find(before, busy)[1:] == [Work(name=ENDED, cpu=0.5)]
    # a counter that began anew, or none
    assert len(find(before, sample(1060, process(40, TINI, 110), seconds=1))) == 1
    assert len(find(before, sample(1060, process(40, TINI, 110)))) == 1


COMMANDS = [
    (("python3", "-u", "train.py", "--key", "secret"), "python3 train.py"),
    (
        ("/opt/spectrum/bin/python", "-m", "torch.distributed.run", "x"),
        "python -m torch.distributed.run",
    ),
    (("python", "-c", "import secret"), "python -c"),
    (("bash", "/home/jovyan/run.sh"), "bash run.sh"),
    (("/bin/bash", "-l"), "bash"),
    (("./train", "--password=secret"), "train"),
    (("nginx: worker process",), "nginx: worker process"),
    ((), ""),
]  # fmt: skip


@pytest.mark.parametrize(("command", "name"), COMMANDS)
def test_a_process_is_named_without_what_may_be_secret(command: tuple[str, ...], name: str) -> None:
    assert name_command(command) == name


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in place of what the driver offers to those who compute."""
    device = tmp_path / "nvidia-uvm"
    device.touch()
    monkeypatch.setattr(processes, "DEVICES", frozenset({str(device)}))
    return device


def test_processes_are_seen_with_their_cpu_and_gpu(device: Path) -> None:
    code = f"""
import time
kept = open({str(device)!r})
while time.process_time() < 0.3: pass
print(flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as worker:
        try:
            assert worker.stdout is not None
            worker.stdout.readline()
            found = {each.pid: each for each in list_processes()}
        finally:
            worker.kill()
    seen, own = found[worker.pid], found[os.getpid()]
    assert (seen.parent, seen.gpu, seen.command[1]) == (os.getpid(), True, "-c")
    assert (seen.reaped, seen.terminal) == (0, own.terminal)
    assert 0.25 <= seen.seconds < 5
    assert own.began <= seen.began
    assert not own.gpu


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


GROUP_1 = "4:memory:/kubepods/pod1/abc\n2:cpu,cpuacct:/kubepods/pod1/abc\n"
GROUP_2 = "0::/kubepods.slice/abc.scope\n"
STAT = "usage_usec 2500000\nuser_usec 1\n"
GROUPS: list[tuple[str, dict[str, str], float | None]] = [
    (GROUP_1, {"cpu,cpuacct/cpuacct.usage": "2500000000\n"}, 2.5),
    (GROUP_1, {"cpuacct/cpuacct.usage": "2500000000\n"}, 2.5),
    (
        "2:cpuacct:/pod1/abc\n0::/pod1/abc\n",
        {"cpuacct/pod1/abc/cpuacct.usage": "2500000000", "cpuacct/cpuacct.usage": "9000000000"},
        2.5,
    ),
    ("0::/\n", {"cpu.stat": STAT, "cgroup.events": ""}, 2.5),
    (
        GROUP_2,
        {f"kubepods.slice/abc.scope/{name}": STAT for name in ("cpu.stat", "cgroup.events")},
        2.5,
    ),
    # the machine's own group
    ("0::/\n", {"cpu.stat": STAT}, None),
    ("2:cpuacct:/\n", {"cpuacct/cpuacct.usage": "2500000000", "cpuacct/release_agent": ""}, None),
    # nothing to read, or nothing that can be
    (GROUP_2, {}, None),
    (GROUP_2, {"cpu.stat": "usage 1\n", "cgroup.events": ""}, None),
    (GROUP_1, {"cpuacct/cpuacct.usage": ""}, None),
    ("nonsense\n", {"cpu.stat": STAT, "cgroup.events": ""}, None),
]  # fmt: skip


@pytest.mark.parametrize(("membership", "files", "seconds"), GROUPS)
def test_the_cpu_of_the_container_is_read_of_either_version(
    membership: str, files: dict[str, str], seconds: float | None, tmp_path: Path
) -> None:
    (tmp_path / "self").write_text(membership)
    for name, text in files.items():
        write(tmp_path / "cgroup" / name, text)
    assert read_cpu_seconds(tmp_path / "cgroup", tmp_path / "self") == seconds


def test_without_control_groups_nobody_counts(tmp_path: Path) -> None:
    assert read_cpu_seconds(tmp_path, tmp_path / "none") is None


class Inside:
    """A server whose kernels and terminals the test says."""

    def __init__(self) -> None:
        self.kernels: list[dict[str, Any]] = []
        self.terminals: list[dict[str, Any]] = []

    def list_kernels(self) -> list[dict[str, Any]]:
        return self.kernels

    def list_terminals(self) -> list[dict[str, Any]]:
        return self.terminals

    def list_kernel_pids(self) -> set[int]:
        return {KERNEL}

    def list_terminal_pids(self) -> set[int]:
        return {SHELL}


class Life:
    """A server, its watch, and time that the test moves; the service reads each report."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "getpid", lambda: SERVER)
        self.now = START
        self.inside = Inside()
        self.running: tuple[Process, ...] = ()
        self.watch = Watch(self.inside, "uid", take_sample=self._take_sample, now=lambda: self.now)

    def _take_sample(self) -> Sample:
        return sample((self.now - START).total_seconds() + 1000, *self.running)

    async def look(self, minutes: int = 1) -> Report:
        self.now += timedelta(minutes=minutes)
        return read_report(await self.watch.look(), now=self.now)

    def at(self, minutes: int) -> str:
        return (START + timedelta(minutes=minutes)).isoformat()

    def read(self, report: Report, source: str) -> tuple[Answer, datetime | None]:
        told = Evidence(
            kernels=report.kernels, terminals=report.terminals, processes=report.processes
        )
        reading = told.read(source, Run(pod_uid="uid", started=START), now=self.now)
        return reading.answer, reading.since


@pytest.fixture
def life(monkeypatch: pytest.MonkeyPatch) -> Life:
    return Life(monkeypatch)


async def test_the_service_reads_what_the_reporter_tells(life: Life) -> None:
    life.inside.kernels = [{"last_activity": life.at(0), "execution_state": "busy"}]
    life.inside.terminals = [{"name": "1", "last_activity": life.at(1)}]
    life.running = (process(40, TINI, 0),)
    await life.look()
    life.running = (process(40, TINI, 60),)
    report = await life.look()
    assert life.read(report, "kernels") == (Answer.BUSY, life.now)
    assert life.read(report, "terminals") == (Answer.IDLE, START + timedelta(minutes=1))
    assert life.read(report, "processes") == (Answer.BUSY, life.now)
    assert report.processes is not None
    assert [(each.name, each.cpu) for each in report.processes.found] == [("python train.py", 1.0)]


async def test_what_ended_is_remembered_and_what_never_was_is_idle_since_the_beginning(
    life: Life,
) -> None:
    report = await life.look()
    for source in ("kernels", "terminals", "processes"):
        assert life.read(report, source) == (Answer.IDLE, START)
    life.inside.kernels = [{"last_activity": life.at(2), "execution_state": "idle"}]
    life.inside.terminals = [{"name": "1", "last_activity": life.at(2)}]
    life.running = (process(40, TINI, 1000),)
    await life.look()
    life.inside.kernels, life.inside.terminals, life.running = [], [], ()
    for _ in range(30):
        report = await life.look(minutes=2)
    for source in ("kernels", "terminals", "processes"):
        assert life.read(report, source) == (Answer.IDLE, START + timedelta(minutes=2)), source


async def test_only_a_kernel_that_begins_to_work_is_news(life: Life) -> None:
    await life.look()
    kernel = {"last_activity": life.at(1), "execution_state": "idle"}
    life.inside.kernels = [kernel]
    assert not life.watch.is_news()
    kernel["execution_state"] = "busy"
    assert life.watch.is_news()
    await life.look()
    # as long as nobody heard of it
    assert life.watch.is_news()
    life.watch.note_heard()
    assert not life.watch.is_news()


async def test_work_that_came_and_went_unheard_is_news(life: Life) -> None:
    kernel = {"last_activity": life.at(0), "execution_state": "busy"}
    life.inside.kernels = [kernel]
    await life.look()
    life.watch.note_heard()
    kernel |= {"last_activity": life.at(5), "execution_state": "idle"}
    await life.look(minutes=5)
    life.inside.kernels = []
    assert life.watch.is_news()
    life.watch.note_heard()
    assert not life.watch.is_news()


async def test_who_has_a_gpu_open_waits_for_hours_but_not_for_ever(life: Life) -> None:
    seconds = 100.0
    life.running = (process(40, TINI, seconds, gpu=True),)
    answers = []
    for _ in range(3 * 60 // 2 + 1):
        answers.append(life.read(await life.look(minutes=2), "processes")[0])
    assert answers == [Answer.BUSY] * 90 + [Answer.IDLE]
    # a minute of work, however long it takes, and it is waited for again
    life.running = (process(40, TINI, seconds + 60, gpu=True),)
    assert life.read(await life.look(minutes=2), "processes")[0] is Answer.BUSY


async def test_what_was_between_two_samples_that_lie_far_apart_nobody_knows(life: Life) -> None:
    await life.look()
    await life.look(minutes=3)
    assert life.read(await life.look(minutes=1), "processes") == (Answer.IDLE, START)
    report = await life.look(minutes=4)
    assert life.read(report, "processes") == (Answer.IDLE, life.now)
    # kernels and terminals remember by themselves
    assert life.read(report, "kernels") == (Answer.IDLE, START)


async def test_what_a_person_does_after_some_quiet_is_news(life: Life) -> None:
    terminal = {"name": "1", "last_activity": life.at(0)}
    life.inside.terminals = [terminal]
    await life.look(minutes=10)
    life.watch.note_heard()
    assert not life.watch.is_news()
    terminal["last_activity"] = life.at(10)
    assert life.watch.is_news()
    await life.look()
    life.watch.note_heard()
    # one who works on is told with the next report
    terminal["last_activity"] = life.at(11)
    assert not life.watch.is_news()


async def test_of_many_processes_those_that_work_are_told(life: Life) -> None:
    life.running = tuple(process(100 + number, TINI, number) for number in range(200))
    report = await life.look()
    assert report.processes is not None
    assert len(report.processes.found) == 50
    assert all(each.cpu > 0.1 for each in report.processes.found)


async def test_processes_that_cannot_be_listed_are_not_told(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    answers = threading.Event()
    hanging: Callable[[], Sample | None] = lambda: answers.wait() and None  # noqa: E731
    watch = Watch(life.inside, "uid", take_sample=hanging, now=lambda: life.now)
    told = await watch.look()
    answers.set()
    assert "processes" not in told
    report = read_report(told, now=life.now)
    assert (report.kernels is not None, report.processes) == (True, None)
    watch = Watch(life.inside, "uid", take_sample=lambda: None, now=lambda: life.now)
    assert "processes" not in await watch.look()


async def test_a_look_at_this_machine_is_read_too(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    watch = Watch(life.inside, "")
    assert read_report(await watch.look(), now=datetime.now(UTC)).processes is not None
