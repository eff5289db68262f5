"""A real browser (Debian's Chromium), and a screenshot of every page that a test failed on."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FAILURES = Path(__file__).with_name("failures")
CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
outcome = pytest.StashKey[pytest.CallInfo]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        item.stash[outcome] = report
    return report


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def new_page(chromium: Browser, request: pytest.FixtureRequest):
    """Make a page with cookies of its own: one person at one browser."""
    pages: list[Page] = []

    def make(**settings: object) -> Page:
        context = chromium.new_context(viewport={"width": 1200, "height": 900}, **settings)
        pages.append(context.new_page())
        return pages[-1]

    yield make
    report = request.node.stash.get(outcome, None)
    for number, page in enumerate(pages):
        if report is not None and report.failed:
            FAILURES.mkdir(exist_ok=True)
            name = re.sub(r"[^\w.-]+", "_", f"{request.node.name}-{number}")
            page.screenshot(path=FAILURES / f"{name}.png")
        page.context.close()
