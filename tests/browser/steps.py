"""Steps that several walks take: through the spawn form, and through JupyterLab's menus."""

from playwright.sync_api import Locator, Page, expect

READY = 120_000  # ms for a server to be ready: the image may be new to the node


def card(page: Page, profile: str) -> Locator:
    return page.locator(".spectrum-col", has=page.locator(f"input[value='{profile}']"))


def start(page: Page, *, team: str = "", profile: str, whose: str = "your server") -> list[str]:
    """Choose and start; the list fills with the sentences of the progress page.

    Whoever is in one team alone has none to choose.
    """
    sentences: list[str] = []
    page.expose_function("saySentence", lambda sentence: sentences.append(sentence))
    page.add_init_script("""
        addEventListener("DOMContentLoaded", () => {
          const log = document.getElementById("progress-log");
          if (!log) return;
          new MutationObserver((changes) => {
            for (const change of changes)
              for (const node of change.addedNodes) saySentence(node.textContent);
          }).observe(log, { childList: true });
        });
    """)
    if team:
        page.get_by_text(team, exact=True).click()
    card(page, profile).click()
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_role("heading", name=f"Starting {whose}")).to_be_visible()
    return sentences


def choose(page: Page, menu: str, item: str) -> None:
    page.get_by_role("menuitem", name=menu, exact=True).click()
    page.locator(".lm-Menu-itemLabel").get_by_text(item, exact=True).click()
