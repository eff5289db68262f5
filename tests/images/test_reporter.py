"""What a server tells the service of itself, and when: no image."""

import asyncio
import json
import logging
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from spectrum_lab import reporter as reporter_module
from spectrum_lab import volumes
from spectrum_lab.activity import Sample, Watch
from spectrum_lab.documents import OpenDocuments
from spectrum_lab.reporter import Reporter, spread
from spectrum_lab.service import Service
from spectrum_lab.volumes import Figures, Probe, Volume

from tests.hub.clock import wait_until

AT = "2026-01-31T09:14:00Z"
NOW = datetime(2026, 1, 31, 9, 14, tzinfo=UTC)
GIB = 2**30
FIGURES = Figures(at=AT, total=10 * GIB, used=9 * GIB, read_only=False)
NOTICE = {"kind": "idle", "text": "It is idle.", "ends_at": AT, "keep": True}
WARNING = "Your home (/home/jovyan) is 90 % full: 1 GiB of 10 GiB are free."
SAID = "“plan.ipynb” is open in the server of “bob” too."


class Listener:
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
            told = json.dumps({"notices": [NOTICE], "warnings": [SAID]}).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(told)}\r\n\r\n"
            writer.write(head.encode() + told)
        writer.close()


class Inside:
    """A server with one kernel in the state that the test says."""

    def __init__(self) -> None:
        self.state = "idle"

    def list_kernels(self) -> list[dict[str, Any]]:
        return [{"id": "k", "last_activity": AT, "execution_state": self.state}]

    def list_terminals(self) -> list[dict[str, Any]]:
        return []

    def list_kernel_pids(self) -> set[int]:
        return set()

    def list_terminal_pids(self) -> set[int]:
        return set()


@pytest.fixture(autouse=True)
def full_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/jovyan")
    monkeypatch.setattr(volumes, "read_figures", lambda path: FIGURES)


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
def watch(inside: Inside) -> Watch:
    sample = Sample(clock=60, processes=())
    return Watch(inside, "uid", take_sample=lambda: sample, now=lambda: NOW)


@pytest_asyncio.fixture
async def listener() -> AsyncIterator[tuple[Listener, Service]]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    environment = {
        "SPECTRUM_URL": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/services/spectrum/",
        "JUPYTERHUB_API_TOKEN": "secret",
    }
    async with server:
        yield listener, Service.from_environment(environment)


async def list_sessions() -> list[dict[str, Any]]:
    return [{"path": "team/plan.ipynb", "type": "notebook", "kernel": {"connections": 1}}]


def make_reporter(watch: Watch, service: Service | None, *, folder: str = "") -> Reporter:
    """A reporter of a server with a notebook open in ~/team; the team's is `folder`, "" is none."""
    server = SimpleNamespace(
        session_manager=SimpleNamespace(list_sessions=list_sessions),
        extension_manager=SimpleNamespace(extension_apps={}),
        contents_manager=SimpleNamespace(root_dir="/home/jovyan"),
    )
    probes = [Probe(Volume(kind="home", path="/home/jovyan"))]
    return Reporter(probes, watch, OpenDocuments(server, folder), service)


async def test_a_server_reports_with_its_own_token_and_goes_on_when_nobody_listens(
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reporter_module, "PAUSE", 0.01)
    heard, service = listener
    heard.away = True
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.asked > 3, within=20)
    heard.away = False
    await wait_until(lambda: reporter.notices, within=20)
    reporter.stop()
    home = {"kind": "home", "name": "", "at": AT, "total": 10 * GIB, "used": 9 * GIB}
    home |= {"files_total": None, "files_used": None, "read_only": False, "error": ""}
    activity = {
        "at": "2026-01-31T09:14:00.000Z",
        "watched_since": "2026-01-31T09:14:00.000Z",
        "pod_uid": "uid",
        "kernels": [{"state": "idle", "last_activity": AT}],
        "kernels_last_activity": AT,
        "terminals": [],
        "terminals_last_activity": None,
        "processes": [],
        "processes_last_worked": None,
        "processes_watched_since": "2026-01-31T09:14:00.000Z",
    }
    body = {"volumes": [home], "activity": activity}
    assert heard.reports[0] == ("/services/spectrum/api/report", "token secret", body)
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
    assert (reporter.warnings, reporter.notices) == ([WARNING, SAID], [NOTICE])


async def test_what_others_have_open_too_is_said_for_as_long_as_the_service_tells_it(
    watch: Watch, listener: tuple[Listener, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reporter_module, "PAUSE", 0.01)
    heard, service = listener
    reporter = make_reporter(watch, service, folder="/home/jovyan/team")
    reporter.start()
    await wait_until(lambda: reporter.warnings == [WARNING, SAID], within=20)
    heard.away = True
    await wait_until(lambda: reporter.warnings == [WARNING], within=20)
    reporter.stop()
    assert heard.reports[0][2]["documents"] == ["plan.ipynb"]
    assert reporter.notices == [NOTICE]


async def test_a_kernel_that_begins_to_work_is_told_at_once(
    inside: Inside,
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "GLANCE", 0.01)
    heard, service = listener
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.reports, within=10)
    inside.state = "busy"
    await wait_until(lambda: len(heard.reports) > 1, within=5)
    reporter.stop()
    states = [body["activity"]["kernels"][0]["state"] for _, _, body in heard.reports]
    assert states == ["idle", "busy"]


async def test_news_that_nobody_took_is_told_again_soon_and_then_less_often(
    inside: Inside,
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "GLANCE", 0.02)
    heard, service = listener
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.reports, within=10)
    heard.away = True
    inside.state = "busy"
    await wait_until(lambda: heard.asked >= 4, within=5)
    begun = asyncio.get_running_loop().time()
    await wait_until(lambda: heard.asked >= 5, within=5)
    assert asyncio.get_running_loop().time() - begun > 0.1
    heard.away = False
    await wait_until(lambda: len(heard.reports) > 1, within=5)
    await asyncio.sleep(0.2)
    reporter.stop()
    # once it is heard it is no news any more
    states = [body["activity"]["kernels"][0]["state"] for _, _, body in heard.reports]
    assert states == ["idle", "busy"]


def test_servers_do_not_beat_together() -> None:
    pauses = [spread(60.0) for _ in range(1000)]
    assert 48 <= min(pauses) < 50
    assert 70 < max(pauses) <= 72


async def test_a_service_that_asks_for_a_pause_gets_it_whatever_the_news(
    inside: Inside,
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter_module, "GLANCE", 0.01)
    heard, service = listener
    inside.state, heard.busy = "busy", 1
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.asked, within=20)
    asked_at, heard.busy = time.monotonic(), 0
    await wait_until(lambda: heard.reports, within=20)
    reporter.stop()
    assert time.monotonic() - asked_at > 0.9
    assert heard.asked == 2


async def test_a_thread_that_cannot_be_started_keeps_no_report_for_ever(
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    start, failures = threading.Thread.start, ["can't start new thread"]

    def fail_once(thread: threading.Thread) -> None:
        if failures:
            raise RuntimeError(failures.pop())
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_once)
    heard, service = listener
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.reports, within=20)
    reporter.stop()
    assert "can't start new thread" in caplog.text
    assert heard.reports[0][2]["volumes"][0]["total"] == 10 * GIB


async def test_without_an_address_nothing_is_sent(watch: Watch) -> None:
    reporter = make_reporter(watch, None)
    reporter.start()
    await wait_until(lambda: reporter.warnings, within=10)
    reporter.stop()


async def test_what_goes_wrong_in_one_look_ends_no_other(
    inside: Inside,
    watch: Watch,
    listener: tuple[Listener, Service],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reporter_module, "FIRST_PAUSE", 0.01)
    heard, service = listener
    looks = iter([None])

    def fail_once() -> list[dict[str, Any]]:
        if next(looks, 1) is None:
            raise RuntimeError("dictionary changed size during iteration")
        return []

    monkeypatch.setattr(inside, "list_kernels", fail_once)
    reporter = make_reporter(watch, service)
    reporter.start()
    await wait_until(lambda: heard.reports, within=10)
    reporter.stop()
    assert "could not be looked at" in caplog.text
