"""A single-user server in an image's root filesystem, started as KubeSpawner starts it."""

import http.client
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPMessage
from pathlib import Path

from local.listeners import find_free_port
from tests.images.hub import TOKEN
from tests.images.rootfs import RootFilesystem, stop

PREFIX = "/user/alice/"


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, redirects not followed."""

    status: int
    headers: HTTPMessage
    text: str


@dataclass(frozen=True)
class Server:
    """A running server; `seconds` passed from its start to its first HTTP 200."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    seconds: float
    prefix: str = PREFIX

    def find_pid(self, *, below: int = 2) -> int:
        """Return the pid of the server itself: below unshare and tini. Below 1 is tini."""
        pid = self.process.pid
        for _ in range(below):
            pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
        return pid

    @property
    def root(self) -> Path:
        """The server's own root directory, with what it has in memory."""
        return Path(f"/proc/{self.find_pid()}/root")

    def get(self, path: str, *, token: str | None = TOKEN, timeout: float = 90) -> Answer:
        """GET a path below the server's prefix."""
        return self._ask("GET", path, token=token, timeout=timeout)

    def put(self, path: str, body: object) -> Answer:
        """PUT an object as JSON to a path below the server's prefix."""
        return self._ask("PUT", path, body=json.dumps(body))

    def delete(self, path: str) -> Answer:
        """DELETE a path below the server's prefix."""
        return self._ask("DELETE", path)

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: str | None = None,
        token: str | None = TOKEN,
        timeout: float = 90,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        headers = {"Authorization": f"token {token}"} if token else {}
        try:
            connection.request(method, self.prefix + path, body, headers)
            response = connection.getresponse()
            text = response.read().decode(errors="replace")
            return Answer(response.status, response.headers, text)
        finally:
            connection.close()

    def get_json(self, path: str) -> object:
        answer = self.get(path)
        assert answer.status == 200, answer
        return json.loads(answer.text)


def make_environment(hub_port: int, port: int, prefix: str = PREFIX) -> dict[str, str]:
    """Make the variables that JupyterHub gives to alice's default server, or to one elsewhere."""
    hub = f"http://127.0.0.1:{hub_port}/hub/api"
    scopes = json.dumps(["access:servers!server=alice/"])
    return {
        "JUPYTERHUB_ACTIVITY_URL": f"{hub}/users/alice/activity",
        "JUPYTERHUB_API_TOKEN": TOKEN,
        "JUPYTERHUB_API_URL": hub,
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_CLIENT_ID": "jupyterhub-user-alice",
        "JUPYTERHUB_DEFAULT_URL": "/lab",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": scopes,
        "JUPYTERHUB_OAUTH_CALLBACK_URL": f"{prefix}oauth_callback",
        "JUPYTERHUB_OAUTH_SCOPES": scopes,
        "JUPYTERHUB_SERVER_NAME": "",
        "JUPYTERHUB_SERVICE_PREFIX": prefix,
        "JUPYTERHUB_SERVICE_URL": f"http://127.0.0.1:{port}{prefix}",
        "JUPYTERHUB_USER": "alice",
    }


@contextmanager
def running_server(
    root: RootFilesystem,
    *,
    home: Path,
    hub_port: int,
    command: Sequence[str] | None = None,
    environment: dict[str, str] | None = None,
    log: Path | None = None,
    timeout: float = 60,
    prefix: str = PREFIX,
    ready: int = 200,
) -> Iterator[Server]:
    """Start the image's default command, or `command`, and wait until it answers with `ready`.

    What it prints goes to `log`, by default a file in the home.
    """
    port = find_free_port()
    variables = make_environment(hub_port, port, prefix) | (environment or {})
    words = [*root.config["Entrypoint"], *(command or root.config["Cmd"])]
    log = log or home / ".server.log"
    with log.open("wb") as output:
        began = time.monotonic()
        process = root.start(words, home=home, environment=variables, output=output)
    try:
        while not _answers(port, prefix, ready):
            assert process.poll() is None, f"the server ended:\n{log.read_text()}"
            assert time.monotonic() - began < timeout, f"no answer:\n{log.read_text()}"
            time.sleep(0.01)
        yield Server(process, port, log, time.monotonic() - began, prefix)
    finally:
        stop(process)


def _answers(port: int, prefix: str, status: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"{prefix}api")
        return connection.getresponse().status == status
    except OSError:
        return False
    finally:
        connection.close()
