"""JupyterLab of a server in an image, as a browser has it."""

from playwright.sync_api import Locator, Page, expect

from tests.browser.steps import choose
from tests.images.server import PREFIX, Server


def open_lab(page: Page, server: Server, path: str = "lab") -> Locator:
    """Open JupyterLab; Spectrum's banner, which may be hidden."""
    page.goto(f"http://127.0.0.1:{server.port}{PREFIX}{path}")
    return page.get_by_role("status", name="Spectrum")


def list_commands(page: Page, *, count: int) -> list[str]:
    """What the palette offers of Spectrum, once it is so many."""
    # the launcher takes the focus when it opens, and the palette closes without it
    expect(page.locator(".jp-LauncherCard").first).to_be_visible(timeout=60_000)
    choose(page, "View", "Activate Command Palette")
    page.locator(".lm-CommandPalette-input").fill("Spectrum")
    found = page.locator(".lm-CommandPalette-item[data-command^='spectrum:']")
    expect(found).to_have_count(count)
    labels = found.locator(".lm-CommandPalette-itemLabel").all_inner_texts()
    page.keyboard.press("Escape")
    return labels
