"""How full a server's volumes are, what its person is told, and what the service: no image."""

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from spectrum_lab import reporter as reporter_module
from spectrum_lab import volumes
from spectrum_lab.reporter import Reporter, make_reporter, spread
from spectrum_lab.volumes import Figures, Probe, Volume, find_warning, list_volumes, read_figures

from tests.hub.clock import wait_until

AT = "2026-01-31T09:14:00Z"
GIB = 2**30
HOME = Volume(kind="home", path="/home/jovyan")
TEAM = Volume(kind="share", path="/home/jovyan/team")
SCRATCH = Volume(kind="scratch", name="default", path="/home/jovyan/scratch")
DATASET = Volume(kind="dataset", name="imagenet", path="/home/jovyan/datasets/imagenet")
MEANWHILE = "Meanwhile work in another folder; what is in /tmp is lost when the server ends."


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jovyan")


def test_the_volumes_are_those_of_the_environment() -> None:
    listed = [
        {"kind": "home", "name": "", "path": "/home/jovyan"},
        {"kind": "dataset", "name": "imagenet", "path": "/home/jovyan/datasets/imagenet"},
    ]
    assert list_volumes({"SPECTRUM_VOLUMES": json.dumps(listed)}) == [HOME, DATASET]


@pytest.mark.parametrize("listed", [None, "", "{", "7", '[{"kind": "home"}]', '["home"]'])
def test_without_a_list_of_volumes_the_home_is_the_only_one(listed: str | None) -> None:
    environment = {"HOME": "/home/jovyan"}
    if listed is not None:
        environment["SPECTRUM_VOLUMES"] = listed
    assert list_volumes(environment) == [HOME]


def test_figures_are_those_of_df(tmp_path: Path) -> None:
    found, asked = read_figures(str(tmp_path)), os.statvfs(tmp_path)
    assert found.total is not None
    assert found.used is not None
    assert found.total <= asked.f_blocks * asked.f_frsize
    assert abs(found.total - found.used - asked.f_bavail * asked.f_frsize) < GIB
    assert (found.read_only, found.error) == (False, "")


@pytest.mark.parametrize(
    ("told", "files"),
    [
        # of XFS on a block device, and of CephFS, which counts blocks of 4 MiB and tells no limit
        ((4096, 4096, 245760, 237261, 237261, 524288, 524285, 524285, 0, 255), (524288, 3)),
        ((4194304, 4194304, 256, 255, 255, 19, -1, -1, 0, 255), (None, None)),
        ((4194304, 4194304, 256, 255, 255, 0, 0, 0, 0, 255), (None, None)),
    ],
)
def test_only_a_file_system_with_a_limit_on_files_has_figures_of_them(
    told: tuple[int, ...], files: tuple[int | None, int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(told))
    found = read_figures("/")
    assert (found.files_total, found.files_used) == files
    assert found.used == (told[2] - told[3]) * told[1]
    assert found.total == told[2] * told[1]


def test_files_of_cephfs_are_counted_where_a_quota_limits_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = (4194304, 4194304, 256, 255, 255, 19, -1, -1, 0, 255)
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result(told))
    quotas = {"ceph.quota.max_files": b"20"}
    monkeypatch.setattr(os, "getxattr", lambda path, name: quotas[name])
    found = read_figures("/")
    assert (found.files_total, found.files_used) == (20, 19)


def test_a_path_that_is_not_there_has_a_reason_instead_of_figures() -> None:
    found = read_figures("/nowhere")
    assert found == Figures(at=found.at, error="No such file or directory")


def of(**figures: Any) -> Figures:
    room = {"total": 10 * GIB, "used": 3 * GIB, "read_only": False}
    return Figures(at=AT, **{**room, **figures})


SENTENCES = [
    (HOME, of(), ""),
    (HOME, of(used=9 * GIB - 1), ""),
    (HOME, of(used=9 * GIB), "Your home (/home/jovyan) is 90 % full: 1 GiB of 10 GiB are free."),
    (
        SCRATCH,
        of(used=int(9.99 * GIB)),
        "Your scratch disk (~/scratch) is 99 % full: 10.2 MiB of 10 GiB are free.",
    ),
    (
        HOME,
        # that is what CephFS tells of a volume with less than a block left
        of(used=10 * GIB - 4 * 2**20),
        "Your home (/home/jovyan) is full (10 GiB): nothing can be saved there until something is "
        f"deleted. {MEANWHILE}",
    ),
    (
        TEAM,
        of(files_total=100_000, files_used=100_000),
        "The team's share (~/team) takes no further file, it has 100,000: no new one can be saved "
        f"there until some are deleted. {MEANWHILE}",
    ),
    (
        TEAM,
        of(read_only=True),
        "The team's share (~/team) cannot be written: nothing can be saved there. " + MEANWHILE,
    ),
    (DATASET, of(read_only=True, used=10 * GIB), ""),
    (
        DATASET,
        Figures(at=AT, error="does not answer"),
        "Dataset imagenet (~/datasets/imagenet) does not answer. What uses files there waits, and "
        "goes on as soon as the storage is back; everything else of the server works.",
    ),
    (
        HOME,
        Figures(at=AT, error="Transport endpoint is not connected"),
        "Your home (/home/jovyan) cannot be read: Transport endpoint is not connected.",
    ),
]


@pytest.mark.parametrize(("volume", "figures", "sentence"), SENTENCES)
def test_a_person_is_told_what_is_amiss(volume: Volume, figures: Figures, sentence: str) -> None:
    assert find_warning(volume, figures) == sentence


class Hanging:
    """A file system that hangs while it is told to, for whoever asks it."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def read(self, _: str) -> Figures:
        self.asked += 1
        self.answers.wait()
        return of()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(volumes, "read_figures", hanging.read)
    monkeypatch.setattr(volumes, "PATIENCE", 0.05)
    yield hanging
    hanging.answers.set()


async def test_a_volume_that_hangs_holds_one_thread_and_comes_back(hanging: Hanging) -> None:
    probe = Probe(HOME)
    for _ in range(3):
        found = await probe.read()
        assert (found.total, found.error) == (None, "does not answer")
    assert hanging.asked == 1
    hanging.answers.set()
    assert await probe.read() == of()


class Service:
    """What takes reports: it keeps them, or closes the connection while it is `away`.

    While it is `busy` it asks for a pause of as many seconds.
    """

    def __init__(self) -> None:
        self.reports: list[tuple[str, str, Any]] = []
        self.asked = 0
        self.away = False
        self.busy = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
        body = await reader.readexactly(int(fields["content-length"]))
        if self.busy:
            writer.write(b"HTTP/1.1 429 Too Many Requests\r\n")
            writer.write(f"Retry-After: {self.busy}\r\nContent-Length: 0\r\n\r\n".encode())
        elif not self.away:
            path, token = head.split(" ", 2)[1], fields["authorization"]
            self.reports.append((path, token, json.loads(body)))
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()


async def test_a_server_reports_with_its_own_token_and_goes_on_when_nobody_listens(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(volumes, "read_figures", lambda path: of(used=9 * GIB))
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reporter_module, "PAUSE", 0.01)
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reporter = make_reporter(
        {
            "HOME": "/home/jovyan",
            "SPECTRUM_URL": f"http://127.0.0.1:{port}/services/spectrum/",
            "JUPYTERHUB_API_TOKEN": "secret",
        }
    )
    service.away = True
    reporter.start()
    async with server:
        await wait_until(lambda: service.asked > 3, within=20)
        service.away = False
        await wait_until(lambda: service.reports, within=20)
    reporter.stop()
    entry = {"kind": "home", "name": "", "at": AT, "total": 10 * GIB, "used": 9 * GIB}
    entry |= {"files_total": None, "files_used": None, "read_only": False, "error": ""}
    path = "/services/spectrum/api/report"
    assert service.reports[0] == (path, "token secret", {"volumes": [entry]})
    assert len([r for r in caplog.records if r.name == "spectrum_lab.reporter"]) == 1
    assert reporter.warnings == ["Your home (/home/jovyan) is 90 % full: 1 GiB of 10 GiB are free."]


def make_reporter_of(server: asyncio.Server) -> Reporter:
    port = server.sockets[0].getsockname()[1]
    return make_reporter({"SPECTRUM_URL": f"http://127.0.0.1:{port}/"})


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes have something to tell, again and again."""
    monkeypatch.setattr(volumes, "read_figures", lambda path: of())
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reporter_module, "PAUSE", 0.01)


def test_servers_do_not_beat_together() -> None:
    pauses = [spread(60.0) for _ in range(1000)]
    assert 48 <= min(pauses) < 50
    assert 70 < max(pauses) <= 72


async def test_a_service_that_asks_for_a_pause_gets_it(hurried: None) -> None:
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        reporter = make_reporter_of(server)
        service.busy = 1
        reporter.start()
        await wait_until(lambda: service.asked, within=20)
        asked_at, service.busy = time.monotonic(), 0
        await wait_until(lambda: service.reports, within=20)
        assert time.monotonic() - asked_at > 0.9
        await wait_until(lambda: len(service.reports) > 3, within=20)
        reporter.stop()


async def test_whatever_a_look_meets_the_next_one_comes(
    hurried: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, failures = threading.Thread.start, ["can't start new thread"]

    def fail_once(thread: threading.Thread) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    service = Service()
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    async with server:
        reporter = make_reporter_of(server)
        reporter.start()
        await wait_until(lambda: service.reports, within=20)
        reporter.stop()
    assert "can't start new thread" in caplog.text
    assert service.reports[0][2]["volumes"][0]["total"] == 10 * GIB


async def test_without_an_address_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "read_figures", lambda path: of(used=9 * GIB))
    reporter = Reporter([Probe(HOME)], "", "")
    reporter.start()
    await wait_until(lambda: reporter.warnings, within=10)
    reporter.stop()
