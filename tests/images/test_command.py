"""The command `spectrum` in a terminal, on a service that answers as the real one: no image."""

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from spectrum_lab.command import describe, main, read_until

STATE = {
    "user": "alice",
    "server": "gpu 1",
    "sentence": "This server has done nothing since 2026-01-31 08:00 UTC.",
    "hold": None,
    "notices": [
        {
            "kind": "idle",
            "text": "Your server is idle.",
            "ends_at": "2026-01-31T09:14:00+00:00",
            "keep": True,
        }
    ],
}
NOW = datetime(2026, 1, 31, 17, 0, tzinfo=timezone(timedelta(hours=1)))


class Service(HTTPServer):
    """Answers with `answer` (status, body), and keeps what was asked: method, path, token, body."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, str, Any]] = []
        self.answer: tuple[int, Any] = (204, None)


class Handler(BaseHTTPRequestHandler):
    server: Service

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        token = self.headers["Authorization"]
        self.server.asked.append((self.command, self.path, token, body))
        status, told = (200, STATE) if self.command == "GET" else self.server.answer
        data = b"" if told is None else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - named by http.server

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output free of an access log."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{service.server_port}/services/spectrum/"
        monkeypatch.setenv("TZ", "UTC")
        monkeypatch.setenv("SPECTRUM_URL", url)
        monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")
        monkeypatch.setenv("JUPYTERHUB_USER", "alice")
        monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "gpu 1")
        yield service
        service.shutdown()
        thread.join()


def asked(method: str, verb: str, body: Any) -> tuple[str, str, str, Any]:
    return method, f"/services/spectrum/api/servers/{verb}", "token secret", body


READ = asked("GET", "self", None)


def test_status_tells_how_the_server_stands(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 0
    assert service.asked == [READ]
    assert capsys.readouterr().out.splitlines() == [
        "This server has done nothing since 2026-01-31 08:00 UTC.",
        "Your server is idle. It ends at 2026-01-31 09:14 UTC. `spectrum keep` keeps it.",
    ]


def test_keep_extends_and_tells_what_came_of_it(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["keep"]) == 0
    assert service.asked == [asked("POST", "alice/gpu%201/keep", {}), READ]
    assert capsys.readouterr().out.startswith("This server has done nothing since")


def test_an_unnamed_server_has_an_empty_name(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "")
    assert main(["keep"]) == 0
    assert service.asked[0] == asked("POST", "alice//keep", {})


def test_hold_names_its_end_and_reason(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    until = ["--until", "2026-01-31T18:00+01:00"]
    assert main(["hold", *until, "--reason", "training"]) == 0
    body = {"until": "2026-01-31T18:00:00+01:00", "reason": "training"}
    assert service.asked == [asked("POST", "alice/gpu%201/hold", body)]
    assert capsys.readouterr().out == "This server is held until 2026-01-31 17:00 UTC.\n"
    assert main(["hold", "--end"]) == 0
    assert service.asked[1:] == [asked("DELETE", "alice/gpu%201/hold", {})]


def test_release_ends_the_server(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    service.answer = (202, None)
    assert main(["release", "--reason", "done"]) == 0
    assert service.asked == [asked("POST", "alice/gpu%201/release", {"reason": "done"})]
    assert capsys.readouterr().out == "This server ends now. Its files stay.\n"


def test_a_refusal_is_told_in_the_services_own_words(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    service.answer = (409, {"status": 409, "message": "No end of this server is near."})
    assert main(["keep"]) == 1
    assert capsys.readouterr() == ("", "spectrum: No end of this server is near.\n")
    service.answer = (502, "<html>")
    assert main(["keep"]) == 1
    assert "does not answer as it should" in capsys.readouterr().err


def test_without_a_service_a_sentence_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPECTRUM_URL", raising=False)
    assert main(["status"]) == 1
    assert "SPECTRUM_URL is not set" in capsys.readouterr().err


def test_a_time_that_is_none_is_refused(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["hold", "--until", "teatime"]) == 2
    assert capsys.readouterr().err == (
        "spectrum: --until teatime: that is no time; write 18:00, or 2026-01-31 18:00.\n"
    )
    assert service.asked == []


TIMES = [
    ("18:00", NOW.replace(hour=18)),
    ("08:30", NOW.replace(day=1, month=2, hour=8, minute=30)),
    ("17:00", NOW.replace(day=1, month=2)),
    ("2026-02-03 18:00", NOW.replace(day=3, month=2, hour=18)),
    ("2026-02-03T18:00Z", datetime(2026, 2, 3, 18, 0, tzinfo=UTC)),
]


@pytest.mark.parametrize(("text", "until"), TIMES)
def test_a_time_is_of_the_zone_here_and_the_next_one(text: str, until: datetime) -> None:
    assert read_until(text, NOW) == until


def test_a_hold_is_told_with_who_made_it_and_why() -> None:
    hold = {"until": "2026-01-31T18:00:00+00:00", "by": "user:alice", "reason": "training"}
    told = describe({"sentence": "alice holds it.", "hold": hold, "notices": []})
    assert told.splitlines()[1].endswith("by alice: training.")


def test_nothing_is_told_twice_or_when_nobody_knows() -> None:
    notice = {"kind": "idle", "text": "It is idle.", "ends_at": "", "keep": False}
    assert describe({"sentence": "It is idle.", "notices": [notice]}) == "It is idle."
    assert describe({}) == "Nothing is known of this server yet."
