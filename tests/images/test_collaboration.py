"""Documents that are edited together: off by default, on where the environment says so."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.images.hub import SERVICE, TOKEN, Hub
from tests.images.inside import run_cell
from tests.images.rootfs import RootFilesystem, stop
from tests.images.server import Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

TOGETHER = {"SPECTRUM_COLLABORATIVE": "1"}
PARTS = {"@jupyter/collaboration-extension", "@jupyter/docprovider-extension"}
TYPIST = Path(__file__).with_name("typist.py").read_text()
CELL: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


@pytest.fixture
def notebook(home: Path) -> Path:
    """A notebook of two empty cells in the team's folder."""
    cells = [{**CELL, "id": name, "source": []} for name in ("first", "second")]
    content = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (home / "team").mkdir()
    path = home / "team" / "plan.ipynb"
    path.write_text(json.dumps(content))
    for each in (path.parent, path):
        each.chmod(0o777)
    return path


@contextmanager
def typing(
    root: RootFilesystem, server: Server, home: Path, *, cell: int, letters: str, pause: float
) -> Iterator["subprocess.Popen[bytes]"]:
    """Within this context somebody types into a cell of the notebook."""
    words = [str(server.port), TOKEN, "team/plan.ipynb", str(cell), letters, str(pause)]
    process = root.start(["python", "-c", TYPIST, *words], home=home)
    try:
        yield process
    finally:
        stop(process)
        assert process.stdout is not None
        process.stdout.close()


def read_cells(notebook: Path) -> list[str]:
    text = notebook.read_text()
    cells = json.loads(text)["cells"] if text else []  # the server empties it before it writes
    return ["".join(cell["source"]) for cell in cells]


def wait_for_letters(process: "subprocess.Popen[bytes]", number: int) -> None:
    assert process.stdout is not None
    found = b""
    while found.count(b".") < number:
        data = os.read(process.stdout.fileno(), 1000)
        assert data, found.decode()
        found += data


def read_page_config(server: Server) -> dict[str, Any]:
    page = server.get("lab").text
    found = re.search(r'id="jupyter-config-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def list_parts(config: dict[str, Any]) -> set[str]:
    return PARTS & {each["name"] for each in config["federated_extensions"]}


def test_a_personal_server_has_nothing_of_it(
    root: RootFilesystem, home: Path, hub: Hub, notebook: Path
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        config = read_page_config(server)
        assert (config["disableRTC"], list_parts(config)) == (True, set())
        # else no notebook would open: what the parts replace is needed again
        assert config["disabledExtensions"] == []
        assert config["hubServerUser"] == "alice"
        body = {"format": "json", "type": "notebook"}
        assert server.put("api/collaboration/session/team/plan.ipynb", body).status == 404
        assert server.get("api/contents/team/plan.ipynb").status == 200
        maps = Path(f"/proc/{server.find_pid()}/maps").read_text()
        assert "_pycrdt" not in maps, "the server has loaded what it does not need"
        assert list((server.root / "tmp").glob("jupyter-*.db")) == [
            server.root / "tmp/jupyter-notary.db"
        ]


def test_two_people_type_into_one_notebook_and_it_is_saved_within_a_second(
    root: RootFilesystem, home: Path, hub: Hub, notebook: Path
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port, environment=TOGETHER) as server:
        config = read_page_config(server)
        assert (config["disableRTC"], list_parts(config)) == (False, PARTS)
        with (
            typing(root, server, home, cell=0, letters="a" * 20, pause=0.05) as first,
            typing(root, server, home, cell=1, letters="b" * 20, pause=0.05) as second,
        ):
            wait_for_letters(first, 20)
            wait_for_letters(second, 20)
            ended = time.monotonic()
            while read_cells(notebook) != ["a" * 20, "b" * 20]:
                assert time.monotonic() - ended < 3, read_cells(notebook)
                time.sleep(0.05)


def test_what_was_typed_without_a_pause_is_saved_when_the_server_is_stopped(
    root: RootFilesystem, home: Path, hub: Hub, notebook: Path
) -> None:
    with (
        running_server(root, home=home, hub_port=hub.server_port, environment=TOGETHER) as server,
        typing(root, server, home, cell=0, letters="a" * 999, pause=0.1) as typist,
    ):
        wait_for_letters(typist, 40)
        assert read_cells(notebook) == ["", ""]  # nobody has paused yet
        os.kill(server.find_pid(below=1), signal.SIGTERM)
        server.process.wait(30)
    written, other = read_cells(notebook)
    assert (len(written) >= 40, set(written), other) == (True, {"a"}, "")


def test_a_document_is_told_as_open_while_somebody_is_in_its_room(
    root: RootFilesystem, home: Path, hub: Hub, notebook: Path
) -> None:
    share = [{"kind": "share", "name": "", "path": "/home/jovyan/team"}]
    told = {
        "SPECTRUM_URL": f"http://127.0.0.1:{hub.server_port}{SERVICE}",
        "SPECTRUM_VOLUMES": json.dumps(share),
    }
    with running_server(
        root, home=home, hub_port=hub.server_port, environment=TOGETHER | told
    ) as server:
        with typing(root, server, home, cell=0, letters="a", pause=0) as typist:
            wait_for_letters(typist, 1)
            hub.wait_for_documents(["plan.ipynb"])
        hub.wait_for_documents([])


def test_databases_are_neither_in_the_home_nor_in_the_team_s_folder(
    root: RootFilesystem, home: Path, hub: Hub, notebook: Path
) -> None:
    with (
        running_server(root, home=home, hub_port=hub.server_port, environment=TOGETHER) as server,
        typing(root, server, home, cell=0, letters="a", pause=0) as typist,
    ):
        wait_for_letters(typist, 1)
        run_cell(server, "1", path="team/plan.ipynb")
        local = server.root / "tmp"
        wanted = {
            "ipython-history.sqlite",
            "jupyter-collaboration-sessions.json",
            "jupyter-documents.db",
            "jupyter-file-ids.db",
            "jupyter-notary.db",
        }
        until = time.monotonic() + 10
        while wanted - {path.name for path in local.iterdir()}:
            assert time.monotonic() < until, list(local.iterdir())
            time.sleep(0.05)
    kept = [path for path in home.rglob("*") if path.is_file()]
    assert [path for path in kept if path.read_bytes()[:6] == b"SQLite"] == []
    assert [path for path in kept if "collaboration" in path.name or ".db" in path.name] == []
