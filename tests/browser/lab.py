"""JupyterLab as people use it: its file browser, notebooks and terminals."""

from playwright.sync_api import Locator, Page, Response, expect

from tests.browser.steps import READY, choose


def open_folder(page: Page, lab: str, folder: str) -> None:
    """Open JupyterLab, at that address, with a folder of the home in its file browser."""
    page.goto(f"{lab}/tree/{folder}")
    expect(page.locator(".jp-FileBrowser-crumbs")).to_contain_text(folder, timeout=READY)


def find_file(page: Page, name: str) -> Locator:
    """The file's entry in the file browser, which looks into its folder now."""
    page.get_by_role("button", name="Refresh the file browser.").click()
    return page.locator(".jp-DirListing-item", has=page.get_by_text(name, exact=True))


def make_notebook(page: Page, name: str, code: str) -> None:
    """Make a notebook in the folder that the file browser shows; its first save asks for a name."""
    choose(page, "File", "New Launcher")
    page.locator(".jp-LauncherCard[data-category=Notebook]:visible", has_text="Python 3").click()
    write(page, code)
    page.keyboard.press("Control+s")
    with page.expect_response(is_renamed), page.expect_response(is_saved):
        answer(page, "Rename", name)
    expect_open(page, name)


def open_notebook(page: Page, name: str) -> Locator:
    """Open a notebook of one cell; the code of that."""
    find_file(page, name).dblclick()
    expect_open(page, name)
    return page.locator(".jp-NotebookPanel .cm-content")


def write(page: Page, code: str) -> None:
    """Add code at the end of the open notebook's only cell."""
    expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible(
        timeout=READY
    )
    cell = page.locator(".jp-NotebookPanel .cm-content")
    cell.click()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text(code)


def save(page: Page) -> None:
    """Save the open notebook, all of it.

    JupyterLab writes the file, looks at it again and makes a checkpoint. Who deletes or renames
    it before that is over reads "File Save Error".
    """
    with page.expect_response(is_saved):
        page.keyboard.press("Control+s")


def rename(page: Page, name: str) -> None:
    """Rename the open notebook."""
    choose(page, "File", "Rename Notebook…")
    with page.expect_response(is_renamed):
        answer(page, "Rename", name)
    expect_open(page, name)


def close(page: Page) -> None:
    """Close the open notebook, which is saved."""
    choose(page, "File", "Close Tab")
    expect(page.locator(".jp-NotebookPanel")).to_have_count(0)


def delete(page: Page, name: str) -> None:
    """Delete a file by its entry in the file browser."""
    find_file(page, name).click(button="right")
    page.locator(".lm-Menu-itemLabel").get_by_text("Delete", exact=True).click()
    with page.expect_response(is_deleted):
        answer(page, "Delete")
    expect(find_file(page, name)).to_have_count(0)


def run_in_terminal(page: Page, line: str) -> None:
    """Run a line of shell that succeeds, in a terminal of its own."""
    choose(page, "File", "New Launcher")
    page.locator(".jp-LauncherCard:visible", has_text="Terminal").click()
    # What a terminal says is painted and cannot be read here, but it closes with its shell.
    page.locator(".jp-Terminal .xterm-helper-textarea").focus()
    page.keyboard.insert_text(f"{line} && exit")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Terminal")).to_have_count(0, timeout=READY)


def answer(page: Page, button: str, text: str = "") -> None:
    """Press a dialog's button, after an answer to what it asks for."""
    dialog = page.locator(".jp-Dialog")
    if text:
        dialog.get_by_role("textbox").fill(text)
    dialog.get_by_role("button", name=button).click()
    expect(dialog).to_have_count(0)


def expect_open(page: Page, name: str) -> None:
    tab = page.locator("#jp-main-dock-panel .lm-TabBar-tab.lm-mod-current", has_text=name)
    expect(tab).to_be_visible()


def is_saved(response: Response) -> bool:
    """Whether it answers the last request of a save."""
    return response.request.method == "POST" and "/checkpoints" in response.url


def is_renamed(response: Response) -> bool:
    return response.request.method == "PATCH" and "/api/contents/" in response.url


def is_deleted(response: Response) -> bool:
    return response.request.method == "DELETE" and "/api/contents/" in response.url
