"""Notebooks in the team's folder, walked by two people in JupyterLab on servers of their own."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser import lab
from tests.browser.steps import READY, start

CARD = "cpu-small"
EMPTY = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


def enter_share(page: Page, release, name: str) -> None:
    """Wait for the server and open `~/team` in its JupyterLab."""
    page.wait_for_url(f"**/user/{name}/lab**", timeout=READY)
    lab.open_folder(page, f"{release.url}user/{name}/lab", "team")


def sign_in_dave(sign_in, release) -> Page:
    """Sign somebody in whose team is made then, and wait until it has a share."""
    page = sign_in("dave")
    wait_for_share(release, "line-sea")
    page.reload()
    return page


def wait_for_share(release, team: str) -> None:
    bound = ("--for=jsonpath={.status.storage.share.phase}=Bound", "--timeout=60s")
    release.kubectl("-n", release.namespace, "wait", f"team/{team}", *bound)


def walk_in_lab(alice: Page, bob: Page) -> None:
    """One makes a notebook, the other one edits and renames it, the first one deletes it."""
    lab.make_notebook(alice, "plan.ipynb", "steps = 10")
    lab.close(alice)

    expect(lab.open_notebook(bob, "plan.ipynb")).to_have_text("steps = 10")
    lab.write(bob, "; rate = 0.1")
    lab.save(bob)
    lab.rename(bob, "schedule.ipynb")
    lab.close(bob)

    expect(lab.open_notebook(alice, "schedule.ipynb")).to_have_text("steps = 10; rate = 0.1")
    lab.close(alice)
    lab.delete(alice, "schedule.ipynb")
    expect(lab.find_file(bob, "schedule.ipynb")).to_have_count(0)


def walk_in_terminals(alice: Page, bob: Page) -> None:
    """One makes a notebook in JupyterLab, the other one does all the rest in a terminal; and back.

    Whoever has it open meanwhile is asked before anything of the other one is overwritten.
    """
    lab.make_notebook(bob, "fit.ipynb", "rate = 0.1")
    lab.run_in_terminal(alice, "sed -i s/0.1/0.2/ ~/team/fit.ipynb")
    lab.write(bob, "  # mine")
    bob.keyboard.press("Control+s")
    expect(bob.locator(".jp-Dialog")).to_contain_text("has changed on disk")
    with bob.expect_response(lab.is_saved):
        lab.answer(bob, "Revert")
    expect(bob.locator(".jp-NotebookPanel .cm-content")).to_have_text("rate = 0.2")
    lab.close(bob)

    lab.run_in_terminal(alice, "mv ~/team/fit.ipynb ~/team/fitted.ipynb")
    expect(lab.open_notebook(bob, "fitted.ipynb")).to_have_text("rate = 0.2")
    lab.close(bob)
    lab.run_in_terminal(alice, f"rm ~/team/fitted.ipynb; echo '{EMPTY}' > ~/team/empty.ipynb")
    expect(lab.find_file(bob, "fitted.ipynb")).to_have_count(0)
    lab.delete(bob, "empty.ipynb")


def expect_nothing_of_ops(page: Page, release, *, notes: str) -> None:
    """Whoever is not in the team reads nothing of it and does not get to its servers."""
    page.goto(f"{release.url}hub/home")
    expect(page.locator("#volumes")).to_contain_text(notes)
    expect(page.locator("#volumes")).not_to_contain_text("Ops")
    refusal = page.goto(f"{release.url}user/bob/lab/tree/team")
    assert refusal.status == 403
    expect(page.locator(".jp-FileBrowser-crumbs")).to_have_count(0)


@pytest.mark.timeout(600)
def test_two_people_change_each_others_notebooks_and_outsiders_see_none(sign_in, release):
    wait_for_share(release, "ops")
    dave, alice, bob = sign_in_dave(sign_in, release), sign_in("alice"), sign_in("bob")
    start(alice, team="Ops", profile=CARD)
    for page in (bob, dave):
        start(page, profile=CARD)
    enter_share(alice, release, "alice")
    enter_share(bob, release, "bob")
    walk_in_lab(alice, bob)
    walk_in_terminals(alice, bob)

    lab.run_in_terminal(bob, f"echo '{EMPTY}' > ~/team/ours.ipynb")
    expect(lab.find_file(alice, "ours.ipynb")).to_be_visible()
    enter_share(dave, release, "dave")
    expect(lab.find_file(dave, "ours.ipynb")).to_have_count(0)
    expect_nothing_of_ops(dave, release, notes="line-sea")
    expect_nothing_of_ops(sign_in("carol"), release, notes="You have no volumes yet")
    lab.delete(alice, "ours.ipynb")
