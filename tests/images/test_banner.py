"""JupyterLab's banner on an idle server: its end, the button that keeps it, and what is saved."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import lab
from tests.browser.steps import choose
from tests.images.hub import SERVICE, Hub
from tests.images.pages import open_lab
from tests.images.rootfs import RootFilesystem
from tests.images.server import PREFIX, Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

TOLD = "This server has done nothing since 2026-01-31 09:14 UTC."
TEXT = "This server has done nothing since 31 Jan 2026, 18:14."  # to a reader in Tokyo
KEEP = f"{SERVICE}api/servers/alice//keep"
TOO = "“plan.ipynb” in the team's folder is open in the server of “bob” too: who saves last wins."
SHARE = json.dumps([{"kind": "share", "name": "", "path": "/home/jovyan/team"}])
PYTHON = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
NOTEBOOK = {"cells": [], "metadata": {"kernelspec": PYTHON}, "nbformat": 4, "nbformat_minor": 5}


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


@pytest.fixture(params=[True])
def server(
    root: RootFilesystem, home: Path, hub: Hub, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """An idle server that ends in half an hour; the parameter is whether one click keeps it."""
    hub.notices = [make_notice(timedelta(minutes=30), keep=request.param)]
    (home / "team").mkdir()
    (home / "team").chmod(0o777)
    with running_server(
        root,
        home=home,
        hub_port=hub.server_port,
        environment={
            "SPECTRUM_URL": f"http://127.0.0.1:{hub.server_port}{SERVICE}",
            "SPECTRUM_VOLUMES": SHARE,
        },
        log=tmp_path / "server.log",
    ) as server:
        yield server


def make_notice(left: timedelta, **more: Any) -> dict[str, Any]:
    end = datetime.now(UTC) + left
    return {"kind": "idle", "text": TOLD, "ends_at": end.isoformat(), "keep": True, **more}


def test_one_click_keeps_an_idle_server(server: Server, page: Page, hub: Hub) -> None:
    banner = open_lab(page, server)
    told = banner.get_by_role("listitem")
    expect(told).to_contain_text(["This server ends at "], timeout=60_000)
    keep = banner.get_by_role("button", name="Keep this server")
    hub.refusal = "Rule gpu allows 2 extensions, and this server had them."
    for _ in range(2):
        keep.click()
        failure = f"The server is not kept: {hub.refusal}"
        expect(told).to_contain_text([failure, TEXT])
    # nothing of it is cut off, however narrow the window
    page.set_viewport_size({"width": 500, "height": 700})
    expect(told.last).to_be_in_viewport(ratio=1)
    box, button = banner.bounding_box(), told.last.bounding_box()
    assert box
    assert button
    assert box["y"] + box["height"] >= button["y"] + button["height"]
    hub.refusal, hub.notices = "", []
    keep.focus()
    page.keyboard.press("Enter")
    expect(banner).to_be_hidden()
    assert [body for path, body in hub.posts if path == KEEP] == [{}] * 3


def test_one_click_releases_an_idle_server_or_restarts_it_without_a_gpu(
    server: Server, page: Page, hub: Hub
) -> None:
    hub.notices = [{**hub.notices[0], "continue": True}]
    banner = open_lab(page, server)
    told = banner.get_by_role("listitem")
    # the reporter asks once a minute, and after a click
    expect(told).to_contain_text([TEXT], timeout=60_000)
    banner.get_by_role("button", name="Keep this server").click()
    hub.refusal = "Of the profiles that team Flight may use there is none without a GPU."
    banner.get_by_role("button", name="Continue without GPU").click()
    expect(told.first).to_have_text(f"The server is not restarted: {hub.refusal}")
    hub.refusal = ""
    banner.get_by_role("button", name="Continue without GPU").click()
    expect(told).to_have_count(1)
    banner.get_by_role("button", name="Release it now").click()
    for verb in ("continue", "release"):
        assert hub.wait_for_post(f"{SERVICE}api/servers/alice//{verb}") == {}
    expect(banner.get_by_role("link", name="Your choices")).to_be_hidden()
    # the menu has both at any time
    choose(page, "File", "Release the GPU and Stop This Server")
    lab.answer(page, "Cancel")
    choose(page, "File", "Release the GPU and Stop This Server")
    lab.answer(page, "Release")
    hub.wait_for_post(f"{SERVICE}api/servers/alice//release", after=1)
    assert len([path for path, _ in hub.posts if path.endswith("/release")]) == 2


def test_a_guest_ends_nothing_by_the_token_of_the_server(
    server: Server, page: Page, hub: Hub
) -> None:
    hub.guest = "bob"
    banner = open_lab(page, server)
    told = [TEXT, "You are a guest in the server of alice"]
    expect(banner.get_by_role("listitem")).to_contain_text(told, timeout=60_000)
    choices = banner.get_by_role("link", name="Your choices")
    expect(choices).to_have_attribute("href", "/services/spectrum/gpus/alice/")
    for name in ("Release it now", "Continue without GPU"):
        expect(banner.get_by_role("button", name=name)).to_be_hidden()
    url = f"http://127.0.0.1:{server.port}{PREFIX}spectrum/release"
    xsrf = next(c["value"] for c in page.context.cookies() if c["name"] == "_xsrf")
    answer = page.request.post(url, headers={"X-XSRFToken": xsrf})
    assert (answer.status, answer.json()["message"]) == (
        403,
        "That is for its owner: use the server's page in Spectrum.",
    )
    assert [path for path, _ in hub.posts if path.endswith("/release")] == []


@pytest.mark.parametrize("server", [False], indirect=True)
def test_an_end_that_nothing_extends_has_no_button(server: Server, page: Page) -> None:
    banner = open_lab(page, server)
    expect(banner.get_by_role("listitem")).to_contain_text([TEXT], timeout=60_000)
    expect(banner.get_by_role("button", name="Keep this server")).to_be_hidden()
    banner.get_by_role("button", name="Dismiss").click()
    expect(banner).to_be_hidden()


def test_what_is_typed_is_saved_shortly_before_the_end(
    server: Server, page: Page, hub: Hub, home: Path
) -> None:
    (home / "notes.txt").touch()
    (home / "notes.txt").chmod(0o666)
    banner = open_lab(page, server, "lab/tree/notes.txt")
    expect(banner.get_by_role("listitem")).to_contain_text([TEXT], timeout=60_000)
    page.locator(".cm-content").click()
    page.keyboard.type("not lost")
    expect(page.locator(".jp-mod-dirty")).not_to_have_count(0)
    assert (home / "notes.txt").read_text() == ""
    # the answer to a click is the quickest way for the page to hear of another end
    hub.notices = [make_notice(timedelta(minutes=1))]
    banner.get_by_role("button", name="Keep this server").click()
    # JupyterLab saves by itself after two minutes
    expect(page.locator(".jp-mod-dirty")).to_have_count(0, timeout=30_000)
    assert (home / "notes.txt").read_text() == "not lost"


def test_an_open_notebook_of_the_team_is_told_and_the_banner_says_who_has_it_open_too(
    server: Server, page: Page, hub: Hub, home: Path
) -> None:
    hub.notices, hub.warnings = [], [TOO]
    for name in ("team/plan.ipynb", "mine.ipynb"):
        (home / name).write_text(json.dumps(NOTEBOOK))
        (home / name).chmod(0o666)
    banner = open_lab(page, server, "lab/tree/mine.ipynb")
    lab.expect_open(page, "mine.ipynb")
    choose(page, "File", "Open from Path…")
    lab.answer(page, "Open", "team/plan.ipynb")
    lab.expect_open(page, "plan.ipynb")
    hub.wait_for_documents(["plan.ipynb"])
    expect(banner.get_by_role("listitem")).to_have_text([TOO], timeout=60_000)
    # a kernel that goes on without its notebook is no open document
    page.locator(".jp-NotebookPanel:visible .cm-content").click()
    page.keyboard.type("1")
    choose(page, "File", "Close Tab")
    lab.answer(page, "Discard")
    hub.wait_for_documents([])
    answer = server.get_json("api/sessions")
    assert isinstance(answer, list)
    assert {each["path"] for each in answer} == {"mine.ipynb", "team/plan.ipynb"}
