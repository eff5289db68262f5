"""GPU hours in the running service: counted at each look, kept over restarts, shown to whom."""

import csv
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from spectrum_spawner.service import budgets
from spectrum_spawner.service.hours import Account, Hours, month_of
from spectrum_spawner.service.ledger import Ledger, LedgerError
from spectrum_spawner.service.metering import Meter
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.floor import GPU, HOUR, Floor, start_floor
from tests.hub.service.measuring import Meter as Measured
from tests.hub.service.measuring import PrometheusStub
from tests.hub.team import Team
from tests.test_service_hours import KEY, make_subject

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ON_FLIGHT = ("flight", "gpu-1")


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: Callable[..., Awaitable[Running]], hub: Hub, teams: dict[str, Team]
) -> AsyncIterator[Floor]:
    """Alice's server with a GPU in flight that works; flight has a budget of two hours."""
    assert (await hub.start_server("alice", GPU)).status == 201
    start = partial(start_service, budgets={"flight": 2})
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start, stub, hub, teams["flight"])
        floor.measure("alice", Measured(value=100.0))
        await floor.wait_seen()
        await floor.look()
        yield floor


async def keep(floor: Floor) -> None:
    await floor.running.context.meter.keep(floor.now, at_once=True)


async def add_up(floor: Floor) -> Hours:
    """What is counted of everybody, this month and the next."""
    months = {month_of(floor.now), month_of(floor.now - HOUR * 24)}
    found = [
        hours
        for month in months
        for hours in (await floor.running.context.meter.list_month(month)).values()
    ]
    return sum(found, Hours())


async def test_what_was_counted_is_the_same_in_either_database_after_a_restart(
    each_database: str,
) -> None:
    subjects, day = (
        {KEY: make_subject(NOON - HOUR)},
        Account(day="2026-01-31", team="ops", user="alice", profile="a100"),
    )
    for minutes in (0, 30):
        ledger = Ledger(each_database)
        await ledger.open()
        meter = Meter(ledger)
        await meter.load()
        now = NOON + timedelta(minutes=minutes)
        meter.note(subjects, {}, now)
        meter.note(subjects, {}, now)
        await meter.keep(now)
        # what is not written yet is told as well
        meter.note(subjects, {}, now + timedelta(minutes=1))
        await meter.keep(now + timedelta(minutes=1))
        found = await meter.list_month("2026-01")
        assert found == {day: Hours(reserved=2 * 60.0 * (60 + minutes + 1))}
        assert await meter.list_month("2026-01", teams=["flight"]) == {}
        assert await meter.list_month("2026-02") == {}
        await ledger.close()


async def test_a_ledger_that_is_away_loses_no_hour(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter, work = floor.running.context.meter, floor.running.context.ledger.work

    async def be_away(*_: object, **__: object) -> None:
        raise LedgerError("away")

    before = (await add_up(floor)).reserved
    monkeypatch.setattr(floor.running.context.ledger, "work", be_away)
    with pytest.raises(LedgerError):
        await meter.keep(floor.now, at_once=True)
    monkeypatch.setattr(floor.running.context.ledger, "work", work)
    await keep(floor)
    assert (await add_up(floor)).reserved == pytest.approx(before)


async def test_what_was_written_without_an_answer_is_not_counted_twice(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter, work = floor.running.context.meter, floor.running.context.ledger.work

    async def answer_too_late(*args: Any, **kwargs: Any) -> None:
        await work(*args, **kwargs)
        raise LedgerError("no answer")

    before = (await add_up(floor)).reserved
    monkeypatch.setattr(floor.running.context.ledger, "work", answer_too_late)
    with pytest.raises(LedgerError):
        await meter.keep(floor.now, at_once=True)
    monkeypatch.setattr(floor.running.context.ledger, "work", work)
    await keep(floor)
    assert (await add_up(floor)).reserved == pytest.approx(before)


async def test_a_restart_counts_nothing_twice_and_what_was_held_meanwhile(floor: Floor) -> None:
    await floor.look(later=timedelta(minutes=1))
    before = await add_up(floor)
    await keep(floor)
    await floor.restart()
    await floor.wait_seen()
    await floor.look()
    assert (await add_up(floor)).reserved == pytest.approx(before.reserved, abs=20)
    # the new service was away for an hour
    await floor.look(later=HOUR)
    after = await add_up(floor)
    assert after.reserved == pytest.approx(before.reserved + 3600, abs=20)
    assert after.used <= before.used + 320


async def test_the_page_the_download_and_the_api_tell_the_same_to_whom_it_concerns(
    floor: Floor,
) -> None:
    await floor.look(later=timedelta(minutes=3))
    seconds = floor.running.context.meter.list_totals()[ON_FLIGHT]
    assert 170 < seconds.used <= seconds.reserved
    async with Browser(floor.running.url) as alice, Browser(floor.running.url) as carol:
        await alice.sign_in("alice")
        await carol.sign_in("carol")
        assert "One GPU" in (await alice.open("hours")).text
        (row,) = (await alice.call("GET", "hours?by=team,profile,user")).body["hours"]
        assert (row["team"], row["profile"], row["user"]) == ("flight", "gpu-1", "alice")
        assert row["reserved"] == pytest.approx(seconds.reserved / 3600, abs=0.001)
        text = (await alice.open("hours/download")).text
        (line,) = csv.DictReader(io.StringIO(text))
        assert (line["user"], float(line["reserved"])) == ("alice", row["reserved"])
        assert (await carol.call("GET", "hours")).body["hours"] == []
        assert "that you may see" in (await carol.open("hours")).text
        for path, sentence in (
            ("hours?month=2026-13", "That is no month such as 2026-01"),
            ("hours?by=colour", "Hours cannot be added up by colour"),
        ):
            shown = await alice.call("GET", path)
            assert (shown.status, shown.problem[: len(sentence)]) == (400, sentence)
        assert (await alice.open("hours?month=x")).status == 400
    async with Browser(floor.running.url) as bob:
        await bob.sign_in("bob")
        assert [r["user"] for r in (await bob.call("GET", "hours")).body["hours"]] == ["alice"]


async def test_leads_hear_of_a_budget_once_and_nothing_is_stopped(floor: Floor, hub: Hub) -> None:
    context = floor.running.context
    await budgets.look(context)
    assert await floor.read("notice") == []
    await floor.look(later=timedelta(hours=3))
    if month_of(floor.now - timedelta(hours=3)) != month_of(floor.now):
        await floor.look(later=timedelta(hours=3))  # the month has just begun
    for _ in range(2):
        await budgets.look(context)
    (told,) = await floor.read("notice")
    assert told[1] == "service:spectrum"
    assert told[2].startswith("Team Flight held GPUs for ")
    assert await hub.is_ready("alice")
    async with Browser(floor.running.url) as bob, Browser(floor.running.url) as carol:
        await bob.sign_in("bob")
        await carol.sign_in("carol")
        assert "Team Flight held GPUs for " in (await bob.open()).text
        assert "Team Flight held GPUs for " not in (await carol.open()).text
