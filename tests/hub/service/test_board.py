"""The GPU board and the home page in a real browser: live, by the keyboard, with 1,000 rows."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page, expect

from spectrum_spawner import notices
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.crowd import put_crowd
from tests.hub.service.floor import GPU, MINUTE, Floor, start_floor
from tests.hub.service.measuring import PrometheusStub
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "department-of_very.long.names.that.nobody.can.break@subsidiary.example.org"
NARROW = {"width": 375, "height": 800}
WIDE = {"width": 1200, "height": 900}
SOON = 30_000  # milliseconds within which a page shows what is now
Visit = Callable[..., Awaitable[Page]]


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: Callable[..., Awaitable[Running]],
    hub: Hub,
    teams: dict[str, Team],
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[Floor]:
    """Alice's server with a GPU in flight, of which nothing is known yet."""
    assert (await hub.start_server("alice", GPU)).status == 201
    async with PrometheusStub(Wall()) as stub:
        yield await start_floor(start_service, stub, hub, teams["flight"])


@pytest_asyncio.fixture(loop_scope="module")
async def warned(floor: Floor) -> Floor:
    """Nothing works in it, and ten minutes are left."""
    floor.idle()
    await floor.look()
    await floor.pass_idle(56 * MINUTE)
    assert await floor.actions() == ["warn"]
    return floor


@pytest_asyncio.fixture(loop_scope="module")
async def visit(floor: Floor, chromium: Chromium) -> AsyncIterator[Visit]:
    """Opens a window of a person who is signed in: `page = await visit("alice", "dry-run")`.

    Its clock is the service's.
    """
    async with AsyncExitStack() as stack:

        async def visit(
            name: str, path: str = "", viewport=WIDE, base: str = PREFIX, **settings: str
        ) -> Page:
            context = await chromium.new_context(viewport=viewport, **settings)
            stack.push_async_callback(context.close)
            page = await context.new_page()
            await page.goto(f"{floor.running.url}{base}{path}")
            await page.fill("#username_input", name)
            await page.fill("#password_input", "any")
            await page.click("#login_submit")
            await page.wait_for_url(f"**{base}{path}")
            return page

        yield visit


async def width_of(page: Page) -> int:
    width: int = await page.evaluate("document.documentElement.scrollWidth")
    return width


async def test_a_board_that_is_open_shows_what_happens(floor: Floor, visit: Visit) -> None:
    page = await visit("alice")
    row = page.locator("#board tbody tr")
    await expect(row).to_contain_text("unknown")
    floor.idle()
    await floor.look()
    await floor.pass_idle(30 * MINUTE)
    await expect(row).to_contain_text("idle", timeout=SOON)
    await expect(row.locator("polyline").first).to_be_attached()
    await floor.pass_idle(26 * MINUTE)
    await expect(row).to_contain_text("ending", timeout=SOON)
    await page.get_by_role("button", name="Keep the server of alice").click()
    await page.wait_for_url("**?done=kept")
    await expect(page.locator("#board tbody tr")).to_contain_text("idle")
    assert [by for _, by, _ in await floor.read("extend")] == ["user:alice"]


async def test_the_focus_and_what_is_selected_stay_when_the_board_changes(
    warned: Floor, hub: Hub, visit: Visit
) -> None:
    page = await visit("bob")
    pick = page.get_by_label("Select the server of alice")
    await pick.check()
    await page.get_by_label("Reason, which the owner can read").fill("Half a sen")
    await pick.focus()
    assert (await hub.start_server("bob", {"team": "ops", "profile": "gpu-1"})).status == 201
    warned.running.context.snapshot.forget()
    await expect(page.locator("#board tbody tr")).to_have_count(2, timeout=SOON)
    await expect(pick).to_be_checked()
    await expect(pick).to_be_focused()
    await expect(page.get_by_role("button", name="Release 1 selected", exact=True)).to_be_enabled()
    assert await page.input_value("[name=reason]") == "Half a sen"


async def test_a_lead_releases_by_the_keyboard(warned: Floor, hub: Hub, visit: Visit) -> None:
    page = await visit("bob")
    await page.get_by_label("Reason, which the owner can read").fill("For the demo.")
    await page.get_by_role("button", name="Release the server of alice").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**?done=released")
    await hub.wait_absent("alice", within=10)
    assert await warned.read("release") == [("release", "user:bob", "For the demo.")]


async def test_what_works_is_not_released_by_a_slip(floor: Floor, hub: Hub, visit: Visit) -> None:
    # nobody knows yet what it does
    page = await visit("bob")
    asked: list[str] = []

    async def dismiss(dialog) -> None:
        asked.append(dialog.message)
        await dialog.dismiss()

    page.on("dialog", dismiss)
    await page.get_by_role("button", name="Release the server of alice").click()
    assert asked == [
        "A server that may work or is held would be stopped: what is not saved is lost. "
        "Go on nonetheless?"
    ]
    assert await hub.is_ready("alice")


async def test_a_hold_is_typed_in_the_readers_own_time(warned: Floor, visit: Visit) -> None:
    page = await visit("alice", "gpus/alice/")
    await page.get_by_label("Reason").first.fill("training")
    usual = await page.get_by_label("Until").input_value()
    await page.get_by_role("button", name="Hold", exact=True).click()
    await page.wait_for_url("**?done=held")
    hold = warned.culler.round.evidence["alice", ""].holds[0]
    assert (hold.by, hold.reason) == ("alice", "training")
    assert hold.until.strftime("%Y-%m-%dT%H:%M") == usual
    assert timedelta(hours=3.9) < hold.until - warned.now < timedelta(hours=4)
    await page.get_by_role("button", name="End the hold").click()
    await page.wait_for_url("**?done=unheld")
    assert warned.culler.round.evidence["alice", ""].holds == ()


async def test_sentences_tell_their_times_in_the_readers_zone(warned: Floor, visit: Visit) -> None:
    said = warned.culler.round.verdicts["alice", ""].text
    (moment,) = re.findall(r"nothing since (\S+ \S+) UTC", said)
    there = datetime.strptime(moment, "%Y-%m-%d %H:%M") + timedelta(hours=9)
    local = f"This server has done nothing since {there:%-d %b %Y, %H:%M} ("
    zone = {"timezone_id": "Asia/Tokyo", "locale": "en-GB"}
    page = await visit("bob", "gpus/alice/", **zone)
    await expect(page.locator("body")).to_contain_text(local)
    await page.goto(f"{warned.running.url}{PREFIX}dry-run")
    await expect(page.locator("tbody")).to_contain_text(local)
    await page.goto(f"{warned.running.url}{PREFIX}")
    ends = page.locator("#board td[data-label=Ends]")
    await expect(ends).to_have_attribute("title", re.compile(re.escape(local)))
    home = await visit("alice", "hub/home", base="/", **zone)
    notice = home.locator("#default-server .spectrum-said")
    # the hub asks the service every few seconds
    while not await notice.count():
        await asyncio.sleep(1)
        await home.reload()
    await expect(notice).to_contain_text(local)


async def test_who_is_signed_out_is_told_and_a_service_that_is_away_too(
    floor: Floor, visit: Visit
) -> None:
    page = await visit("alice")
    await page.route(f"**{PREFIX}", lambda route: route.abort())
    away = page.locator("#away")
    await expect(away).to_contain_text("the service does not answer", timeout=SOON)
    await page.unroute(f"**{PREFIX}")
    await expect(away).to_be_hidden(timeout=SOON)
    await page.context.clear_cookies()
    await expect(away).to_contain_text("You are signed out", timeout=SOON)


async def test_a_thousand_rows_are_shown_and_chosen_from(floor: Floor, visit: Visit) -> None:
    page = await visit("bob")
    put_crowd(floor.running.context, 1000, names=[LONG, "alice"])
    await page.goto(f"{floor.running.url}{PREFIX}")
    await expect(page.locator("#board tbody tr")).to_have_count(1000)
    assert await width_of(page) == WIDE["width"]
    await page.get_by_label("Select all").check()
    await expect(
        page.get_by_role("button", name="Release 1000 selected", exact=True)
    ).to_be_enabled()
    await page.get_by_label("Person or server").fill("DEPARTMENT")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("#board tbody tr")).to_have_count(1)
    await expect(page.locator("#board")).to_contain_text("1 server of 1000")
    await page.get_by_role("link", name="All", exact=True).click()
    await page.get_by_label("State").select_option("held")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("#board tbody tr")).to_have_count(111)
    await page.get_by_role("link", name="Person and server").click()
    await expect(page.locator("#board tbody tr").first).to_contain_text("person-0004")
    assert "state=held" in page.url


async def test_long_names_fit_a_phone(floor: Floor, visit: Visit) -> None:
    page = await visit("bob", viewport=NARROW)
    put_crowd(floor.running.context, 12, names=[LONG, "alice"])
    for path in ("", f"gpus/{LONG}/", "dry-run", "?text=nobody"):
        await page.goto(f"{floor.running.url}{PREFIX}{path}")
        assert (path, await width_of(page)) == (path, NARROW["width"])


async def test_an_edited_policy_is_tried_and_stays_as_typed(warned: Floor, visit: Visit) -> None:
    page = await visit("bob", "dry-run")
    policy = page.get_by_label("of the release's values")
    typed = (await policy.input_value()).replace("idleMinutes: 60", "idleMinutes: 40")
    await policy.fill(typed)
    await page.get_by_role("button", name="Try").click()
    outcome = page.get_by_role("region", name="The edited rules")
    await expect(outcome).to_contain_text("1 would be stopped")
    await expect(outcome.locator("tbody")).to_contain_text("rule gpu ends what is idle for 40 min")
    assert await policy.input_value() == typed
    await policy.fill("rules: [")
    await page.get_by_role("button", name="Try").click()
    await expect(page.get_by_role("alert")).to_contain_text(
        "The policy is no YAML without aliases in line 1"
    )
    assert await policy.input_value() == "rules: ["


async def test_one_click_on_the_home_page_keeps_a_server(
    warned: Floor, hub: Hub, visit: Visit
) -> None:
    page = await visit("alice", "hub/home", base="/")
    button = page.get_by_role("button", name="Keep it")
    # the hub asks the service every few seconds
    for _ in range(int(2 * notices.INTERVAL)):
        if await button.count():
            break
        await asyncio.sleep(1)
        await page.reload()
    await expect(page.locator("#default-server")).to_contain_text("This server has done nothing")
    await button.click()
    await expect(page.locator("#default-server")).to_contain_text("Kept: it ends only if")
    await page.reload()
    await expect(page.locator("#default-server")).not_to_contain_text("has done nothing")
    assert [by for _, by, _ in await warned.read("extend")] == ["user:alice"]


async def test_one_click_on_the_home_page_releases_all_gpus_of_mine(
    floor: Floor, hub: Hub, visit: Visit
) -> None:
    for profile, name in (("gpu-1", "second"), ("cpu-small", "third")):
        answer = await hub.start_server("alice", {"team": "flight", "profile": profile}, name)
        assert answer.status == 201
    page = await visit("alice", "hub/home", base="/")
    await page.get_by_role("button", name="Stop all 2 servers with GPUs — releases 2 GPUs").click()
    for name in ("", "second"):
        await hub.wait_absent("alice", name, within=20)
    await expect(page.get_by_role("button", name="Start a server")).to_be_visible(timeout=SOON)
    assert await hub.is_ready("alice", "third")
