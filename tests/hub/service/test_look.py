"""The pages in a real browser: narrow windows, the keyboard, the reader's own time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from tests.hub.cluster import Cluster, find_teams
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX
from tests.hub.service.conftest import Running

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "department-of_very.long.names.that.nobody.can.break@subsidiary.example.org"
NARROW = {"width": 375, "height": 800}
WIDE = {"width": 1200, "height": 900}
PATHS = ("", "gpus/alice/", "teams", "teams/flight", "hours", "requests", "audit", "dry-run")
Visit = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="module")
async def visit(service: Running, chromium: Browser) -> AsyncIterator[Visit]:
    """Opens a window of a person who is signed in: `page = await visit("alice", "audit")`."""
    async with AsyncExitStack() as stack:

        async def visit(name: str, path: str = "", viewport=WIDE, **settings: str) -> Page:
            context = await chromium.new_context(viewport=viewport, **settings)
            stack.push_async_callback(context.close)
            page = await context.new_page()
            await page.goto(service.url + PREFIX + path)
            await page.fill("#username_input", name)
            await page.fill("#password_input", "any")
            await page.click("#login_submit")
            await page.wait_for_url(f"**{PREFIX}{path}")
            return page

        yield visit


@pytest_asyncio.fixture(loop_scope="module")
async def running(service: Running, hub: Hub, cluster: Cluster, hub_namespace: str) -> Running:
    """A team of a long name, where people of long names run servers, and 1,000 records of it."""
    assert (await hub.call("POST", f"/users/{LONG}")).status == 201
    join = await hub.call("POST", "/groups/flight/users", {"users": [LONG]})
    assert join.status == 200, join
    started = await asyncio.gather(*(hub.start_server(name) for name in ("alice", LONG)))
    assert [answer.status for answer in started] == [201, 201]
    service.context.snapshot.forget()  # the list that the service read when it began
    spec = {"displayName": LONG, "grants": {"r-0": make_grant()}}
    await cluster.patch(f"{find_teams(hub_namespace)}/flight", {"spec": spec})
    records = [
        service.context.make_record("start", f"user:{LONG}", user=LONG, team="flight", reason=LONG)
        for _ in range(1000)
    ]
    moments = [datetime(2026, 1, 31, 9, tzinfo=UTC) + timedelta(minutes=i) for i in range(1000)]
    await service.context.ledger.add(
        [replace(r, at=m.isoformat()) for r, m in zip(records, moments, strict=True)]
    )
    return service


def make_grant() -> dict[str, object]:
    return {
        "gpus": {"nvidia.com/gpu": 2},
        "until": "2999-01-01T00:00:00Z",
        "reason": LONG,
        "requestedBy": LONG,
        "approvedBy": "admin",
    }


async def test_nothing_is_wider_than_a_phone(running: Running, visit: Visit) -> None:
    page = await visit("bob", viewport=NARROW)
    widths = {}
    for path in (*PATHS, "nowhere"):
        await page.goto(running.url + PREFIX + path)
        widths[path] = await page.evaluate("document.documentElement.scrollWidth")
    assert widths == dict.fromkeys(widths, NARROW["width"])


async def test_a_lead_stops_a_server_by_the_keyboard(
    running: Running, hub: Hub, visit: Visit
) -> None:
    page = await visit("bob", "teams/flight")
    await page.get_by_label("Stop the server of alice", exact=True).focus()
    await page.keyboard.press("Enter")
    await page.keyboard.press("Tab")
    await page.keyboard.type("For the demo.")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**?done=stopped")
    assert await page.get_by_role("status").text_content() == "The server is being stopped."
    await hub.wait_absent("alice", within=10)
    assert ("stop-request", "user:bob", "alice", "For the demo.") in await running.read_audit()


async def test_an_administrator_approves_in_one_click(running: Running, visit: Visit) -> None:
    alice = await visit("alice", "requests")
    await alice.get_by_label("A profile for a team").check()
    assert not await alice.get_by_label("How many GPUs").is_visible()
    await alice.get_by_label("Profile", exact=True).select_option("ops-only")
    await alice.get_by_label("Why").fill("For the demo.")
    day = (running.wall() + timedelta(days=9)).date().isoformat()
    await alice.get_by_label("Until the end of").fill(day)
    await alice.get_by_role("button", name="Ask").click()
    await alice.wait_for_url("**?done=asked")
    admin = await visit("admin", "requests")
    await admin.get_by_role("button", name="Approve").click()
    await admin.wait_for_url("**?done=decided")
    await alice.reload()
    assert await alice.get_by_text("approved", exact=True).count() == 1


async def test_the_audit_speaks_the_readers_time(running: Running, visit: Visit) -> None:
    page = await visit("admin", "audit", timezone_id="Asia/Tokyo", locale="en-GB")
    # the newest record is of 2026-02-01 01:39 UTC
    assert await page.locator("td time").first.text_content() == "1 Feb 2026, 10:39"
    await page.locator("#filter-until").fill("2026-01-31T18:05")
    await page.get_by_role("button", name="Show").click()
    await page.wait_for_url("**until=2026-01-31T09%3A05")
    assert await page.locator("tbody tr").count() == 6
    assert await page.locator("#filter-until").input_value() == "2026-01-31T18:05"


async def test_a_thousand_records_are_ten_pages(running: Running, visit: Visit) -> None:
    page = await visit("admin", "audit")
    for _ in range(9):
        assert await page.locator("tbody tr").count() == 100
        async with page.expect_navigation():
            await page.get_by_role("link", name="Older").click()
    assert await page.locator("tbody tr").count() == 100
    assert await page.get_by_role("link", name="Older").count() == 0


async def test_pages_are_dark_where_jupyterhub_is(running: Running, visit: Visit) -> None:
    page = await visit("alice", color_scheme="dark")
    assert await page.get_attribute("html", "data-bs-theme") == "dark"
    background = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(33, 37, 41)"


async def test_no_script_of_a_page_fails(running: Running, visit: Visit) -> None:
    signed_in = await visit("bob")
    errors: list[str] = []

    async def load(path: str) -> None:
        # in a window of its own: to leave a page ends what it still loads
        page = await signed_in.context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("requestfailed", lambda request: errors.append(request.url))
        await page.goto(running.url + PREFIX + path, wait_until="networkidle")

    await asyncio.gather(*map(load, PATHS))
    assert errors == []
