"""A hub that answers what a single-user server asks, as JupyterHub 6.1 does for user alice."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "0123456789abcdef0123456789abcdef"
SERVICE = "/services/spectrum/"
VERBS = ("/keep", "/hold", "/continue", "/release")


class Hub(ThreadingHTTPServer):
    """Listens on a free port of 127.0.0.1; `posts` lists the (path, body) it was sent.

    It answers for Spectrum's service too: `notices` are what that tells of alice's server and
    `warnings` of its documents, `row` is its row on the GPU board, None without a GPU, and
    `refusal` is why it keeps, holds, restarts and ends no server; while the service is `away`
    nothing of it answers. `guest` is who asks in place
    of alice, `visitors` are others, by their tokens, with the scopes that each has now; `broken` is
    the status of every answer on who somebody is.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posts: list[tuple[str, Any]] = []
        self.notices: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.row: dict[str, Any] | None = None
        self.refusal = ""
        self.away = False
        self.guest = ""
        self.visitors: dict[str, list[str]] = {}
        self.broken = 0
        self._news = threading.Condition()

    def note_post(self, path: str, body: Any) -> None:
        with self._news:
            self.posts.append((path, body))
            self._news.notify_all()

    def wait_for_post(self, path: str, *, after: int = 0, within: float = 20) -> Any:
        """The first body that was sent to a path, or the one `after` so many, now or later."""

        def find() -> list[Any]:
            return [body for sent_to, body in self.posts if sent_to == path]

        with self._news:
            is_there = self._news.wait_for(lambda: len(find()) > after, within)
            assert is_there, f"nothing was sent to {path}"
            return find()[after]

    def wait_for_documents(self, documents: list[str]) -> None:
        """Until the last report, or one of the next minutes, says that these are open."""
        path = f"{SERVICE}api/report"
        last = max(0, sum(sent_to == path for sent_to, _ in self.posts) - 1)
        reports = (self.wait_for_post(path, after=last + more, within=90) for more in range(5))
        assert documents in (report.get("documents") for report in reports), self.posts


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        is_alice = self.headers.get("Authorization") in (f"token {TOKEN}", f"Bearer {TOKEN}")
        if self._is_away():
            self._answer(502, {"message": "Bad gateway"})
        elif is_alice and self.path == f"{SERVICE}api/gpus":
            row = self.server.row
            self._answer(200, {"gpus": [{"user": "alice", "server": "", **row}] if row else []})
        elif is_alice and self.path == f"{SERVICE}api/servers/self":
            self._answer(200, {"user": "alice", "server": "", "notices": self.server.notices})
        elif self.path != "/hub/api/user":
            self._answer(200, {"version": "6.1.1"})
        elif self.server.broken:
            self._answer(self.server.broken, {"message": "I am not well."})
        elif (token := self.headers.get("Authorization", " ").split()[1]) in self.server.visitors:
            scopes = self.server.visitors[token]
            user = {"kind": "user", "name": token, "groups": [], "scopes": scopes}
            self._answer(200, {**user, "admin": False, "session_id": None})
        elif is_alice:
            scopes = ["access:servers!server=alice/", "read:users:name!user=alice"]
            user = {"kind": "user", "groups": [], "scopes": scopes}
            user["name"] = self.server.guest or "alice"
            self._answer(200, {**user, "admin": False, "session_id": None})
        else:
            self._answer(403, {"status": 403, "message": "Missing or invalid credentials."})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.note_post(self.path, json.loads(body))
        if self._is_away():
            self._answer(502, {"message": "Bad gateway"})
        elif self.server.refusal and self.path.endswith(VERBS):
            self._answer(409, {"status": 409, "message": self.server.refusal})
        elif self.path == f"{SERVICE}api/report":
            told = {"notices": self.server.notices, "warnings": self.server.warnings}
            self._answer(200, told)
        else:
            self._answer(200, {})

    def _is_away(self) -> bool:
        return self.server.away and self.path.startswith(SERVICE)

    def _answer(self, status: int, body: dict[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-JupyterHub-Version", "6.1.1")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output free of an access log."""


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Run a hub until the context ends."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
