"""A team's server: members start it and type into one notebook at once; nobody else gets in."""

import json
from urllib.parse import quote

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser import lab
from tests.browser.steps import READY, start

ACCOUNT = quote("team:ops")
WHOSE = "the server of team Ops"
CELL = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": []}
NOTEBOOK = {
    "cells": [{**CELL, "source": []}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


def row_of(home: Page) -> Locator:
    return home.locator("#team-servers tbody tr", has_text="Ops")


def go_home(page: Page, release) -> Locator:
    page.goto(f"{release.url}hub/home")
    return row_of(page)


def enter(page: Page, release) -> None:
    """Open the server from the home page, and the team's folder in its JupyterLab."""
    go_home(page, release).get_by_role("button", name="Open").click()
    page.wait_for_url(f"**/user/{ACCOUNT}/lab**", timeout=READY)
    lab.open_folder(page, f"{release.url}user/{ACCOUNT}/lab", "team")


def type_into(page: Page, text: str) -> None:
    """Add text at the end of the open notebook's only cell, as fast as somebody types."""
    page.locator(".jp-NotebookPanel .cm-content").click()
    page.keyboard.press("Control+End")
    page.keyboard.type(text, delay=30)


def stop(page: Page, release) -> None:
    """Stop the server, if it runs."""
    button = go_home(page, release).get_by_role("button", name="Stop the server of team Ops")
    if button.is_visible():
        page.once("dialog", lambda dialog: dialog.accept())
        button.click()
    expect(row_of(page)).to_contain_text("Not running", timeout=READY)


@pytest.fixture
def alice(sign_in, release):
    """Somebody in the team, whose server does not run when this begins and ends."""
    page = sign_in("alice")
    stop(page, release)
    yield page
    stop(page, release)


@pytest.mark.timeout(600)
def test_two_members_type_into_one_notebook_and_an_outsider_is_refused(alice, sign_in, release):
    bob, carol = sign_in("bob"), sign_in("carol")
    go_home(alice, release).get_by_role("button", name="Start").click()
    start(alice, profile="cpu-small", whose=WHOSE)
    alice.wait_for_url(f"**/user/{ACCOUNT}/lab**", timeout=READY)
    lab.open_folder(alice, f"{release.url}user/{ACCOUNT}/lab", "team")
    lab.run_in_terminal(alice, f"echo '{json.dumps(NOTEBOOK)}' > ~/team/together.ipynb")
    enter(bob, release)
    cells = [lab.open_notebook(page, "together.ipynb") for page in (alice, bob)]

    type_into(alice, "steps = 10")
    for cell in cells:
        expect(cell).to_contain_text("steps = 10")
    type_into(bob, "; rate = 0.1")
    for cell in cells:
        expect(cell).to_contain_text("steps = 10; rate = 0.1")
    # each sees where the other is, by name
    expect(alice.locator(".jp-remote-userFlag")).to_contain_text("bob")
    expect(bob.locator(".jp-remote-userFlag")).to_contain_text("alice")

    assert carol.goto(f"{release.url}user/{ACCOUNT}/lab").status == 403
    expect(go_home(carol, release)).to_have_count(0)

    # what was typed a second ago is there when it starts again
    stop(alice, release)
    go_home(bob, release).get_by_role("button", name="Start").click()
    start(bob, profile="cpu-small", whose=WHOSE)
    bob.wait_for_url(f"**/user/{ACCOUNT}/lab**", timeout=READY)
    lab.open_folder(bob, f"{release.url}user/{ACCOUNT}/lab", "team")
    expect(lab.open_notebook(bob, "together.ipynb")).to_contain_text("steps = 10; rate = 0.1")
    lab.close(bob)
    lab.delete(bob, "together.ipynb")


@pytest.mark.timeout(600)
def test_a_teammate_opens_the_tensorboard_that_a_member_started(alice, sign_in, release):
    bob = sign_in("bob")
    go_home(alice, release).get_by_role("button", name="Start").click()
    start(alice, profile="tensorboard", whose=WHOSE)
    expect(alice).to_have_title("TensorBoard", timeout=READY)

    missing: list[str] = []
    bob.on("response", lambda answer: answer.status >= 400 and missing.append(answer.url))
    row = go_home(bob, release)
    expect(row).to_contain_text("TensorBoard in team Ops")
    row.get_by_role("button", name="Open").click()
    expect(bob).to_have_title("TensorBoard", timeout=READY)
    expect(bob.get_by_text("No dashboards are active for the current data set.")).to_be_visible()
    assert missing == []

    stop(bob, release)
