"""The proxy's image."""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from local.listeners import find_free_port
from tests.images.rootfs import RootFilesystem, stop

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("proxy")


def test_the_image_runs_the_proxy_under_tini_as_user_1000(root: RootFilesystem) -> None:
    config = {key: root.config[key] for key in ("User", "Entrypoint", "Cmd")}
    assert config == {
        "User": "1000:1000",
        "Entrypoint": ["tini", "-g", "--"],
        "Cmd": ["configurable-http-proxy"],
    }


def test_the_proxy_serves_its_routes_to_who_has_the_token(root: RootFilesystem, home: Path) -> None:
    public, api = find_free_port(), find_free_port()
    command = [*root.config["Entrypoint"], *root.config["Cmd"], "--ip=127.0.0.1"]
    command += [f"--port={public}", "--api-ip=127.0.0.1", f"--api-port={api}"]
    token = {"CONFIGPROXY_AUTH_TOKEN": "secret"}
    with (home / "log").open("wb") as log:
        process = root.start(command, home=home, environment=token, output=log)
    try:
        assert ask(api, "secret") == (200, {})
        assert ask(api, "wrong") == (403, None)
    finally:
        stop(process)


def ask(port: int, token: str) -> tuple[int, object]:
    """GET the routes, waiting up to 30 s for the proxy to listen."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/routes", headers={"Authorization": f"token {token}"}
    )
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code, None
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "the proxy does not listen"
            time.sleep(0.02)
