"""A real browser (Debian's Chromium), and a screenshot of every page that a test failed on."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from tests.browser.steps import READY

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
expect.set_options(timeout=30_000)  # ms: a busy machine takes its time to draw a page


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keep what the person saw, before any fixture tidies up."""
    report = yield
    if call.when == "call" and report.failed:
        FAILURES.mkdir(exist_ok=True)
        for number, page in enumerate(item.funcargs.get("pages", [])):
            name = re.sub(r"[^\w.-]+", "_", f"{item.name}-{number}")
            with suppress(Error):  # the test's own failure is the one to read
                page.screenshot(path=FAILURES / f"{name}.png")
    return report


@pytest.fixture(scope="session")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def pages() -> Iterator[list[Page]]:
    """The pages that a test has open; they close with it."""
    opened: list[Page] = []
    yield opened
    for page in opened:
        page.context.close()


@pytest.fixture
def new_page(chromium: Browser, pages: list[Page]):
    """Make a page with cookies of its own: one person at one browser."""

    def make(**settings: object) -> Page:
        context = chromium.new_context(viewport={"width": 1200, "height": 900}, **settings)
        pages.append(context.new_page())
        return pages[-1]

    return make


@pytest.fixture
def sign_in(new_page, release):
    """Sign in as somebody, who lands on the spawn page; whoever has a server then is stopped."""
    pages: list[Page] = []

    def as_person(name: str, password: str | None = None) -> Page:
        page = new_page()
        page.goto(release.url)
        page.get_by_label("Username:").fill(name)
        page.get_by_label("Password:").fill(password or release.user_password)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", name="Start a server")).to_be_visible()
        pages.append(page)
        return page

    yield as_person
    for page in pages:
        page.goto(f"{release.url}hub/home")
        stop = page.locator("#stop-default")
        if stop.is_visible():
            stop.click()
            expect(stop).to_be_hidden(timeout=READY)
