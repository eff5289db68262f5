"""A home that takes no more files: the server starts, work goes on elsewhere, and both are said."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Request, expect, sync_playwright

from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.images.hub import TOKEN, Hub
from tests.images.inside import run_cell, run_line
from tests.images.rootfs import RootFilesystem
from tests.images.server import PREFIX, Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

KINDS = ("full", "without inodes", "read-only")
MEANWHILE = "Meanwhile work in another folder; what is in /tmp is lost when the server ends."
TOLD = {
    "full": "Your home (/home/jovyan) is full (16 MiB): nothing can be saved there until something "
    f"is deleted. {MEANWHILE}",
    "without inodes": "Your home (/home/jovyan) takes no further file, it has 8: no new one can be "
    f"saved there until some are deleted. {MEANWHILE}",
    "read-only": f"Your home (/home/jovyan) cannot be written: nothing can be saved there. "
    f"{MEANWHILE}",
}


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["new", "used before"])
def was_used(request: pytest.FixtureRequest) -> bool:
    """Whether kernels have left their folder in the home before it was full."""
    return request.param


@pytest.fixture
def worn(home: Path, kind: str, was_used: bool) -> Iterator[Path]:
    """The home, in which nothing more can be made; ~/scratch has room."""
    with mounted("tmpfs", home, "size=16m,nr_inodes=8,mode=0777"):
        for name in ("scratch", *([".ipython"] if was_used else [])):
            (home / name).mkdir()
            (home / name).chmod(0o777)
        with mounted("tmpfs", home / "scratch", "size=4m,mode=0777"):
            wear_out(home, kind)
            yield home


def wear_out(home: Path, kind: str) -> None:
    left = os.statvfs(home)
    if kind == "full":
        (home / "big").write_bytes(bytes(left.f_bavail * left.f_frsize))
    elif kind == "without inodes":
        for number in range(left.f_ffree):
            (home / f"file-{number}").touch()
    else:
        run("mount", "-o", "remount,ro", str(home))


@contextmanager
def mounted(kind: str, path: Path, options: str) -> Iterator[None]:
    run("mount", "-t", kind, "-o", options, kind, str(path))
    try:
        yield
    finally:
        run("umount", "--lazy", str(path))


def run(*command: str) -> None:
    subprocess.run(command, check=True)


@pytest.fixture
def server(root: RootFilesystem, worn: Path, hub: Hub, tmp_path: Path) -> Iterator[Server]:
    with running_server(
        root, home=worn, hub_port=hub.server_port, log=tmp_path / "server.log"
    ) as server:
        yield server


def make_notebook(code: str) -> dict[str, Any]:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "source": code}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**cell, "execution_count": None}],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def test_a_server_starts_and_runs_notebooks_elsewhere(server: Server, kind: str) -> None:
    assert server.get("lab").status == 200
    assert run_cell(server, "print(6 * 7)", path="scratch/new.ipynb") == "42\n"
    # a terminal finds what a notebook does
    notebook = server.root / "tmp" / "new.ipynb"
    notebook.write_text(json.dumps(make_notebook("print(6 * 7)")))
    notebook.chmod(0o666)
    run_line(server, f"jupyter execute --inplace /tmp/{notebook.name} 2> /dev/null")
    (cell,) = json.loads(notebook.read_text())["cells"]
    assert cell["outputs"][0]["text"] == ["42\n"]
    told = {"warnings": [TOLD[kind]], "notices": [], "own": True, "standing": None}
    nowhere = dict.fromkeys(("page", "board", "home", "silence"), "")
    assert server.get_json("spectrum/banner") == told | nowhere


def test_a_notebook_is_made_saved_and_opened_on_another_volume(server: Server) -> None:
    made = {"type": "notebook", "content": make_notebook("1")}
    assert server.put("api/contents/scratch/a.ipynb", made).status == 201
    assert server.put("api/contents/scratch/a.ipynb", made).status == 200
    assert server.get("api/contents/scratch/a.ipynb").status == 200


@pytest.mark.parametrize("kind", ["full"], indirect=True)
@pytest.mark.parametrize("was_used", [False], indirect=True)
def test_what_is_deleted_in_jupyterlab_makes_room_at_once(server: Server, worn: Path) -> None:
    os.chown(worn / "big", 1000, 1000)
    assert server.delete("api/contents/big").status == 204
    assert not any(path.is_file() for path in worn.rglob("*"))
    made = {"type": "notebook", "content": make_notebook("1")}
    assert server.put("api/contents/a.ipynb", made).status == 201


@pytest.mark.parametrize("kind", ["full"], indirect=True)
@pytest.mark.parametrize("was_used", [False], indirect=True)
def test_jupyterlab_says_so_in_a_banner_that_can_be_dismissed(server: Server, kind: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        headers = {"Authorization": f"token {TOKEN}"}
        page = browser.new_context(extra_http_headers=headers).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        asked: list[Request] = []
        page.on("request", lambda request: asked.append(request))
        page.goto(f"http://127.0.0.1:{server.port}{PREFIX}lab")
        page.get_by_text("Terminal", exact=True).wait_for()
        banner = page.get_by_role("status", name="Spectrum")
        expect(banner.get_by_role("listitem")).to_have_text([TOLD[kind]])
        banner.get_by_role("button", name="Dismiss").focus()
        page.keyboard.press("Enter")
        banner.wait_for(state="hidden")
        assert errors == []
        # without it JupyterHub takes no cookie, which is how a person is known
        (look,) = (request for request in asked if "spectrum/banner" in request.url)
        assert "x-xsrftoken" in look.headers
        browser.close()
