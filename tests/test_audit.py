"""Audit records, and the outbox that brings them to a ledger which fails in every way."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from spectrum_spawner import outbox as outbox_module
from spectrum_spawner.audit import MAX_DETAILS, MAX_TEXT, Record, RecordError, make_record
from spectrum_spawner.outbox import NotSent, Outbox
from spectrum_spawner.trail import refusal_id, say_stop, tell_refusal
from tests.hub.clock import Clock, wait_until

PLAIN = {
    "id": "r-1",
    "at": "2026-01-31T09:14:00.250Z",
    "writer": "hub",
    "action": "stop",
    "actor": "user:alice",
    "user": "bob",
    "team": "ops",
    "server": "",
    "reason": "alice stopped it.",
    "details": {"start": "s-1", "gpus": [1, 2], "deep": {"a": None}},
}


def make(number: int) -> Record:
    return make_record(id=f"r-{number}", writer="hub", action="start", actor="user:alice")


def test_a_record_is_the_same_after_it_was_written_and_read() -> None:
    record = Record.from_dict(json.loads(json.dumps(PLAIN)))
    assert record == Record(**PLAIN)
    assert record.as_dict() == PLAIN


def test_what_a_record_leaves_out_is_empty() -> None:
    least = {key: PLAIN[key] for key in ("id", "at", "writer", "action", "actor")}
    empty = {"user": "", "team": "", "server": "", "reason": "", "details": {}}
    assert Record.from_dict(least).as_dict() == {**least, **empty}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"colour": "red"}, "A record has no colour."),
        ({"id": ""}, "id is empty."),
        ({"id": 7}, "id is a text, not int."),
        ({"user": None}, "user is a text, not NoneType."),
        ({"reason": "x" * (MAX_TEXT + 1)}, "reason has 1001 characters, at most 1000 are taken."),
        ({"user": "x" * 501}, "user has 501 characters, at most 500 are taken."),
        ({"team": "a\0b"}, "team holds characters that cannot be kept."),
        ({"server": "\ud800"}, "server holds characters that cannot be kept."),
        ({"writer": "alice"}, "writer is one of controller, hub, service."),
        ({"actor": "alice"}, "actor names nobody: it is e.g. user:alice, service:spectrum or hub."),
        ({"actor": "user:"}, "actor names nobody: it is e.g. user:alice, service:spectrum or hub."),
        ({"at": "yesterday"}, "at is no moment in UTC such as 2026-01-31T09:14:00Z."),
        ({"at": "2026-02-30T00:00:00Z"}, "at is no moment in UTC such as 2026-01-31T09:14:00Z."),
        ({"at": "2026-01-31T09:14:00"}, "at is no moment in UTC such as 2026-01-31T09:14:00Z."),
        ({"details": ["a"]}, "details is an object, not list."),
        ({"details": {"a": float("nan")}}, "details cannot be written as JSON."),
        ({"details": {"a": {"b": ["\0"]}}}, "details holds characters that cannot be kept."),
        ({"details": {"\ud800": 1}}, "details holds characters that cannot be kept."),
    ],
)
def test_anything_else_is_refused_in_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RecordError) as refused:
        Record.from_dict({**PLAIN, **changes})
    assert str(refused.value) == sentence


@pytest.mark.parametrize("value", [None, [], "a", 7])
def test_what_is_no_object_is_no_record(value: object) -> None:
    with pytest.raises(RecordError, match=r"^A record is an object, not \w+\.$"):
        Record.from_dict(value)


def test_a_record_without_its_core_is_refused_and_told_what_is_missing() -> None:
    with pytest.raises(RecordError) as refused:
        Record.from_dict({"id": "r-1"})
    assert str(refused.value) == "A record needs at, writer, action, actor."


def test_details_of_any_size_are_refused() -> None:
    with pytest.raises(RecordError, match=f"at most {MAX_DETAILS} are taken"):
        Record.from_dict({**PLAIN, "details": {"a": "x" * MAX_DETAILS}})


@pytest.mark.parametrize("text", ["x" * 5000, "a\0b\nc", "\ud800", "\N{GRINNING FACE}" * 999, ""])
def test_every_record_that_is_made_is_one_that_can_be_read(text: str) -> None:
    made = make_record(
        writer="hub",
        action="refuse",
        actor=f"user:{text}a",
        user=text,
        team=text,
        server=text,
        reason=text,
        details={text: [text, {text: (text, None, 1.5, float("nan"))}], "more": {text}},
    )
    assert Record.from_dict(json.loads(json.dumps(made.as_dict()))) == made


def test_details_are_kept_as_they_are_while_any_database_takes_them() -> None:
    details = {"gained": ["a\nb", "ops"], "gpus": {"nvidia.com/gpu": 2}, "on": True, "until": None}
    made = make_record(writer="hub", action="membership", actor="hub", details=details)
    assert made.details == details


def test_of_details_that_are_too_long_the_beginning_is_kept() -> None:
    asked = {"asked": '"\\' * MAX_DETAILS}
    made = make_record(writer="hub", action="refuse", actor="hub", details=asked)
    assert made.details["cut"].startswith('{"asked": "')
    assert Record.from_dict(made.as_dict()) == made


def test_records_that_are_made_are_events_of_their_own_unless_they_say_so() -> None:
    first, second = (make_record(writer="hub", action="start", actor="hub") for _ in "ab")
    assert first.id != second.id
    assert make(1).id == make(1).id == "r-1"


@pytest.mark.parametrize(
    ("actor", "cancelled", "reason"),
    [
        ("user:alice", False, "alice stopped it."),
        ("user:a:b", True, "a:b cancelled the start."),
        ("service:spectrum", False, "Service spectrum stopped it."),
        ("hub", False, "The hub stopped it."),
    ],
)
def test_a_stop_is_said_in_one_sentence(actor: str, cancelled: bool, reason: str) -> None:
    assert say_stop(actor, cancelled=cancelled) == reason


class Ledger:
    """A small real HTTP server: `answers` come one after the other, then it takes everything."""

    def __init__(self) -> None:
        self.answers: list[Callable[[list[dict[str, Any]]], web.Response | None]] = []
        self.records: list[str] = []
        self.requests: list[tuple[str, int]] = []  # bearer, number of records
        self.moments: list[float] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        records = (await request.json())["records"]
        self.requests.append((request.headers["Authorization"], len(records)))
        self.moments.append(asyncio.get_running_loop().time())
        refusal = self.answers.pop(0)(records) if self.answers else None
        if refusal is not None:
            return refusal
        self.records += [r["id"] for r in records if r["id"] not in self.records]
        return web.Response(status=204)


@pytest_asyncio.fixture
async def ledger() -> AsyncIterator[Ledger]:
    ledger = Ledger()
    app = web.Application(client_max_size=2**26)
    app.router.add_post("/internal/audit", ledger.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    ledger.url = f"http://127.0.0.1:{runner.addresses[0][1]}/internal/audit"
    yield ledger
    await runner.cleanup()


@pytest_asyncio.fixture
async def outbox(tmp_path: Path, ledger: Ledger) -> AsyncIterator[Outbox]:
    outbox = Outbox(tmp_path / "audit.sqlite", ledger.url, "secret")
    yield outbox
    await outbox.close()


@pytest_asyncio.fixture
async def clock() -> Clock:
    return Clock(asyncio.get_running_loop())


def read_pending(outbox: Outbox) -> list[str]:
    database = sqlite3.connect(outbox.path)
    found = [i for (i,) in database.execute("SELECT id FROM pending ORDER BY place")]
    database.close()
    return found


async def test_records_are_sent_in_order_in_batches_and_then_forgotten(
    outbox: Outbox, ledger: Ledger
) -> None:
    for number in range(1201):
        outbox.append(make(number))
    await outbox.send_pending()
    assert ledger.records == [f"r-{number}" for number in range(1201)]
    assert ledger.requests == [("Bearer secret", n) for n in (500, 500, 201)]
    assert (outbox.pending, read_pending(outbox)) == (0, [])


async def test_a_record_is_sent_as_soon_as_it_is_there(outbox: Outbox, ledger: Ledger) -> None:
    sending = asyncio.create_task(outbox.run())
    for number in range(3):
        outbox.append(make(number))
        await wait_until(lambda number=number: f"r-{number}" in ledger.records, within=5)
    sending.cancel()


async def test_one_event_told_twice_is_one_record(outbox: Outbox) -> None:
    outbox.append(make_record(id="s-over", writer="hub", action="stop", actor="user:alice"))
    outbox.append(make_record(id="s-over", writer="hub", action="end", actor="hub"))
    assert (outbox.pending, read_pending(outbox)) == (1, ["s-over"])


def tell_refused(outbox: Outbox, team: str, reason: str, by: str = "user:alice") -> None:
    tell_refusal(
        outbox,
        actor=by,
        user="alice",
        server="",
        asked={"team": team},
        sentence=f"You are not in a team called “{team}”.",
        reason=reason,
    )


async def test_a_refusal_is_told_at_most_once_a_minute(outbox: Outbox) -> None:
    for number in range(50):
        tell_refused(outbox, f"t-{number}", "options")
    assert outbox.pending in (1, 2)  # the minute may have ended meanwhile
    before = outbox.pending
    tell_refused(outbox, "ops", "quota")
    tell_refused(outbox, "ops", "quota", by="user:admin")
    assert outbox.pending == before + 2


def test_refusals_of_other_minutes_or_servers_are_records_of_their_own() -> None:
    facts = {"actor": "user:alice", "user": "alice", "server": "", "reason": "options"}
    first = datetime(2026, 1, 31, 9, 14, 0, tzinfo=UTC)
    assert refusal_id(**facts, moment=first) == refusal_id(
        **facts, moment=first + timedelta(seconds=59)
    )
    others = {
        refusal_id(**facts, moment=first),
        refusal_id(**facts, moment=first + timedelta(minutes=1)),
        refusal_id(**(facts | {"server": "second"}), moment=first),
        refusal_id(**(facts | {"user": 'alice" '}), moment=first),
    }
    assert len(others) == 4


def spoil_wholly(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def spoil_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def checkpoint(outbox: Outbox) -> None:
    database = sqlite3.connect(outbox.path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def keep_as_killed(outbox: Outbox) -> None:
    """Close it, with its log left as by a kill and its file spoiled."""
    log = Path(f"{outbox.path}-wal")
    left = log.read_bytes()
    outbox._close()
    spoil_wholly(outbox.path)
    log.write_bytes(left)


@pytest.mark.parametrize("spoil", [spoil_wholly, truncate, spoil_pages])
async def test_a_damaged_file_is_set_aside_and_a_new_one_begun(
    outbox: Outbox, ledger: Ledger, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    for number in range(100):
        outbox.append(make(number))
    await outbox.close()
    spoil(outbox.path)
    damaged = outbox.path.read_bytes()
    for number in (200, 201):
        outbox.append(make(number))
    await outbox.send_pending()
    assert (outbox.pending, ledger.records[-2:]) == (0, ["r-200", "r-201"])
    (aside,) = outbox.path.parent.glob("audit.sqlite.damaged-*")
    assert aside.read_bytes() == damaged
    assert [r.levelname for r in caplog.records if "damaged" in r.message] == ["ERROR"]


async def test_a_damaged_file_of_a_killed_process_leaves_nothing_in_the_new_one(
    outbox: Outbox,
) -> None:
    for number in range(100):
        outbox.append(make(number))
    checkpoint(outbox)
    outbox.append(make(100))
    keep_as_killed(outbox)
    outbox.append(make(200))
    assert (outbox.pending, read_pending(outbox)) == (1, ["r-200"])


async def test_a_file_that_is_damaged_while_it_is_open_is_set_aside_too(
    outbox: Outbox, ledger: Ledger
) -> None:
    for number in range(100):
        outbox.append(make(number))
    checkpoint(outbox)
    spoil_pages(outbox.path)
    outbox.append(make(200))
    await outbox.send_pending()
    outbox.append(make(201))
    await outbox.send_pending()
    assert (outbox.pending, ledger.records[-1]) == (0, "r-201")


async def test_a_file_that_is_only_locked_stays_where_it_is(
    outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    outbox.append(make(1))
    other = sqlite3.connect(outbox.path)
    other.execute("BEGIN IMMEDIATE")
    outbox.append(make(2))
    other.close()
    assert "audit record not stored: database is locked" in caplog.text
    assert read_pending(outbox) == ["r-1"]


def answer(status: int, headers: dict[str, str] | None = None) -> Any:
    return lambda _: web.Response(status=status, headers=headers, text="no")


def cut(_: object) -> web.Response:
    raise ConnectionResetError  # aiohttp answers 500 to what its handler did not catch


@pytest.mark.parametrize("fail", [answer(500), answer(503), answer(429), answer(401), cut])
async def test_a_ledger_that_fails_gets_the_same_records_later(
    outbox: Outbox, ledger: Ledger, clock: Clock, fail: Any
) -> None:
    ledger.answers = [fail] * 12
    outbox.append(make(1))
    outbox.append(make(2))
    with clock.hurry(100):
        sending = asyncio.create_task(outbox.run())
        await wait_until(lambda: outbox.pending == 0, within=300)
    sending.cancel()
    assert ledger.records == ["r-1", "r-2"]
    pauses = [b - a for a, b in zip(ledger.moments, ledger.moments[1:], strict=False)]
    assert max(pauses[:3]) < 2
    assert 14 < pauses[-1] < 35


async def test_the_ledger_says_how_long_to_wait(
    outbox: Outbox, ledger: Ledger, clock: Clock
) -> None:
    ledger.answers = [answer(429, {"Retry-After": "120"}), answer(503, {"Retry-After": "never"})]
    outbox.append(make(1))
    with clock.hurry(100):
        sending = asyncio.create_task(outbox.run())
        await wait_until(lambda: outbox.pending == 0, within=300)
    sending.cancel()
    assert len(ledger.requests) == 3
    assert 119 < ledger.moments[1] - ledger.moments[0] < 140
    assert ledger.moments[2] - ledger.moments[1] < 10


async def test_an_absent_ledger_is_waited_for(outbox: Outbox, tmp_path: Path) -> None:
    away = Outbox(tmp_path / "away.sqlite", "http://127.0.0.1:9/internal/audit", "secret")
    away.append(make(1))
    with pytest.raises(NotSent):
        await away.send_pending()
    assert read_pending(away) == ["r-1"]
    await away.close()


async def test_without_a_url_records_stay_in_the_file(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "audit.sqlite", "", "")
    outbox.append(make(1))
    await outbox.run()
    await outbox.close()
    assert read_pending(outbox) == ["r-1"]


async def test_a_malformed_record_is_set_aside_and_the_others_go_on(
    outbox: Outbox, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse_poison(records: list[dict[str, Any]]) -> web.Response | None:
        poisoned = any(r["id"] == "r-66" for r in records)
        return web.Response(status=400, text="r-66 is poison.") if poisoned else None

    ledger.answers = [refuse_poison] * 50
    for number in range(100):
        outbox.append(make(number))
    await outbox.send_pending()
    assert ledger.records == [f"r-{n}" for n in range(100) if n != 66]
    assert len(ledger.requests) < 40
    assert "the ledger says: r-66 is poison." in caplog.text
    database = sqlite3.connect(outbox.path)
    ((body, why),) = database.execute("SELECT body, why FROM refused").fetchall()
    database.close()
    assert (json.loads(body)["id"], why) == ("r-66", "r-66 is poison.")


async def test_of_too_many_records_the_oldest_and_the_newest_stay(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(outbox_module, "MAX_PENDING", 20)
    monkeypatch.setattr(outbox_module, "DROPPED_AT_ONCE", 4)
    for number in range(30):
        outbox.append(make(number))
    kept = [int(name.removeprefix("r-")) for name in read_pending(outbox)]
    assert kept == [*range(10), *range(22, 30)]
    assert outbox.pending == 18
    assert "4 audit records dropped" in caplog.text


@pytest.fixture
def full_disk(tmp_path: Path) -> Path:
    """A file that can be opened but takes no byte."""
    database = sqlite3.connect(tmp_path / "full.sqlite")
    database.executescript(outbox_module._SCHEMA)
    database.close()
    return tmp_path / "full.sqlite"


async def test_a_full_disk_breaks_nothing_and_the_log_has_the_record(
    full_disk: Path, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(full_disk, ledger.url, "secret")
    database = outbox._open()
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    for number in range(100):
        outbox.append(make_record(id=f"r-{number}", writer="hub", action="stop", actor="hub"))
    assert "database or disk is full" in caplog.text
    assert "id='r-99'" in caplog.text
    await outbox.send_pending()
    await outbox.close()
    assert 0 < len(ledger.records) < 100


@pytest.mark.parametrize("name", ["absent/audit.sqlite", "."])
async def test_a_place_that_cannot_be_written_breaks_nothing(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = Outbox(tmp_path / name, "http://127.0.0.1:9/", "secret")
    outbox.append(make(1))
    assert "audit record not stored" in caplog.text
    assert "id='r-1'" in caplog.text
    with pytest.raises(NotSent):
        await outbox.send_pending()


async def test_a_disk_that_becomes_read_only_costs_no_busy_loop(
    outbox: Outbox, ledger: Ledger, clock: Clock
) -> None:
    outbox.append(make(1))
    outbox._open().execute("PRAGMA query_only = ON")
    with clock.hurry(100):
        sending = asyncio.create_task(outbox.run())
        await asyncio.sleep(60)
        assert 3 < len(ledger.requests) < 20
        outbox._open().execute("PRAGMA query_only = OFF")
        await wait_until(lambda: outbox.pending == 0, within=60)
    sending.cancel()
    assert ledger.records == ["r-1"]


WRITER = """
import sys
from spectrum_spawner.audit import make_record
from spectrum_spawner.outbox import Outbox
outbox = Outbox(sys.argv[1], "", "")
number = 0
while True:
    outbox.append(make_record(id=f"r-{number}", writer="hub", action="start", actor="hub"))
    print(number, flush=True)
    number += 1
"""


def test_what_append_returned_for_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "audit.sqlite"
    for told in (1, 20, 57):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            last = [int(process.stdout.readline()) for _ in range(told)][-1]
            os.kill(process.pid, signal.SIGKILL)
        kept = read_pending(Outbox(path, "", ""))
        assert kept[: last + 1] == [f"r-{number}" for number in range(last + 1)]
        path.unlink()


SENDER = """
import asyncio, sys
from spectrum_spawner.outbox import Outbox
async def send():
    await Outbox(sys.argv[1], sys.argv[2], "secret").send_pending()
asyncio.run(send())
"""


async def test_a_sender_that_is_killed_after_the_ledgers_yes_loses_and_doubles_nothing(
    outbox: Outbox, ledger: Ledger
) -> None:
    outbox.append(make(1))
    kept = asyncio.Event()

    def take_and_say_nothing(records: list[dict[str, Any]]) -> None:
        ledger.records += [r["id"] for r in records]
        process.kill()  # before the answer can be read
        kept.set()

    ledger.answers = [take_and_say_nothing]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SENDER, str(outbox.path), ledger.url
    )
    await asyncio.wait_for(kept.wait(), 20)
    await process.wait()
    assert read_pending(outbox) == ["r-1"]
    outbox.append(make(2))
    await outbox.send_pending()
    assert ledger.records == ["r-1", "r-2"]
    assert read_pending(outbox) == []


async def test_all_who_share_a_file_share_the_outbox(tmp_path: Path, ledger: Ledger) -> None:
    path = str(tmp_path / "audit.sqlite")
    first = Outbox.shared(path, ledger.url, "secret")
    assert Outbox.shared(path, ledger.url, "secret") is first
    first.append(make(1))
    await wait_until(lambda: ledger.records == ["r-1"], within=5)
    await Outbox.close_shared()
    assert Outbox.shared(path, ledger.url, "secret") is not first
    await Outbox.close_shared()
