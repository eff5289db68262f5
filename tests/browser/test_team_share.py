"""A notebook in the team's folder, walked by two people in JupyterLab on servers of their own."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.steps import READY, choose, start


def open_share(page: Page, lab: str) -> None:
    """Open JupyterLab, at that address, with `~/team` in its file browser."""
    page.goto(f"{lab}/tree/team")
    expect(page.locator(".jp-FileBrowser-crumbs")).to_contain_text("team", timeout=READY)


def make_notebook(page: Page, name: str, code: str) -> None:
    """Make a notebook in the folder that the file browser shows; its first save asks for a name."""
    choose(page, "File", "New Launcher")
    page.locator(".jp-LauncherCard[data-category=Notebook]:visible", has_text="Python 3").click()
    write_cell(page, code)
    page.keyboard.press("Control+s")
    answer(page, name)
    expect_saved(page, name)


def rename_notebook(page: Page, name: str) -> None:
    choose(page, "File", "Rename Notebook…")
    answer(page, name)
    expect_saved(page, name)


def delete_notebook(page: Page, name: str) -> None:
    find_file(page, name).click(button="right")
    page.locator(".lm-Menu-itemLabel").get_by_text("Delete", exact=True).click()
    answer(page)


def write_cell(page: Page, code: str) -> None:
    """Add code at the end of the notebook's only cell."""
    expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible(
        timeout=READY
    )
    cell = page.locator(".jp-Notebook .cm-content")
    cell.click()
    page.keyboard.press("Control+End")
    cell.press_sequentially(code)


def save(page: Page, name: str) -> None:
    page.keyboard.press("Control+s")
    expect_saved(page, name)


def close_notebook(page: Page, name: str) -> None:
    """Close it once all of it is saved, since JupyterLab asks otherwise."""
    save(page, name)
    choose(page, "File", "Close Tab")
    expect(page.locator(".jp-NotebookPanel")).to_have_count(0)


def expect_saved(page: Page, name: str) -> None:
    """Wait until the open file has the name and nothing that is not saved."""
    expect(page.locator(".lm-TabBar-tab.lm-mod-current", has_text=name)).to_be_visible()
    expect(page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)


def answer(page: Page, name: str = "") -> None:
    """Agree to what a dialog asks, which may be for a name."""
    dialog = page.locator(".jp-Dialog")
    if name:
        dialog.get_by_role("textbox").fill(name)
    dialog.locator(".jp-mod-accept").click()
    expect(dialog).to_have_count(0)


def find_file(page: Page, name: str) -> Locator:
    """The file's entry in the file browser."""
    return page.locator(".jp-DirListing-item", has=page.get_by_text(name, exact=True))


def run_in_terminal(page: Page, line: str) -> None:
    choose(page, "File", "New Launcher")
    page.locator(".jp-LauncherCard:visible", has_text="Terminal").click()
    # Terminals are painted, so what they say cannot be read here; keys wait for the shell.
    page.locator(".jp-Terminal .xterm-helper-textarea").press_sequentially(f"{line}\n")


def walk_share(alice: Page, bob: Page) -> None:
    """Both see `~/team` in JupyterLab's file browser."""
    make_notebook(alice, "plan.ipynb", "steps = 10")
    expect(find_file(alice, "plan.ipynb")).to_be_visible()
    close_notebook(alice, "plan.ipynb")

    # The file browser looks again every ten seconds or so.
    find_file(bob, "plan.ipynb").dblclick(timeout=READY)
    expect(bob.locator(".jp-Notebook .cm-content")).to_have_text("steps = 10")
    write_cell(bob, "; rate = 0.1")
    save(bob, "plan.ipynb")
    rename_notebook(bob, "schedule.ipynb")
    close_notebook(bob, "schedule.ipynb")
    run_in_terminal(bob, "mkdir ~/team/notes && echo mine > ~/team/notes/bob.txt")

    find_file(alice, "schedule.ipynb").dblclick(timeout=READY)
    opened = alice.locator(".jp-NotebookPanel:visible .cm-content")
    expect(opened).to_have_text("steps = 10; rate = 0.1")
    close_notebook(alice, "schedule.ipynb")
    delete_notebook(alice, "schedule.ipynb")
    run_in_terminal(alice, "grep mine ~/team/notes/bob.txt && rm -r ~/team/notes")
    expect(bob.locator(".jp-DirListing-item")).to_have_count(0, timeout=READY)


def expect_nothing(page: Page, release) -> None:
    """Whoever is not in the team finds no volume of it, and does not get to its servers."""
    page.goto(f"{release.url}hub/home")
    expect(page.locator("#volumes")).to_contain_text("You have no volumes yet")
    refusal = page.goto(f"{release.url}user/bob/lab/tree/team")
    assert refusal.status == 403
    expect(page.locator(".jp-FileBrowser-crumbs")).to_have_count(0)


@pytest.mark.timeout(600)
def test_two_people_work_on_a_notebook_of_their_team(sign_in, release):
    alice, bob = sign_in("alice"), sign_in("bob")
    start(alice, team="Ops", profile="cpu-small")
    start(bob, profile="cpu-small")
    for name, page in (("alice", alice), ("bob", bob)):
        page.wait_for_url(f"**/user/{name}/lab**", timeout=READY)
        open_share(page, f"{release.url}user/{name}/lab")
    walk_share(alice, bob)
    expect_nothing(sign_in("carol"), release)
