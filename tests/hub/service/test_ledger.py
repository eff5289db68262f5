"""The ledger on each database that it may be kept in."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio
import sqlalchemy as sa

from spectrum_spawner.activity import Hold
from spectrum_spawner.audit import Record, make_record
from spectrum_spawner.service import ledger as ledgers
from spectrum_spawner.service import tables
from spectrum_spawner.service.asking import Request
from spectrum_spawner.service.culling.policy import Cause, Memory, Stretch
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.leaving import Departure
from spectrum_spawner.service.ledger import Ledger, LedgerError, Query
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.rights import AuditScope
from spectrum_spawner.service.standings import Held, Standings

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ALL = Query(scope=AuditScope(everything=True))
REQUEST = Request(
    id="r-1",
    kind="quota",
    team="ops",
    resource="nvidia.com/gpu",
    amount=2,
    reason="More.",
    until=NOON + timedelta(days=30),
    asked_by="alice",
    asked_at=NOON,
)


def record(number: int = 0, action: str = "start", actor: str = "user:alice", **rest) -> Record:
    made = make_record(writer="hub", action=action, actor=actor, id=f"id-{number}", **rest)
    return replace(made, at=stamp(NOON + timedelta(seconds=number)))


@pytest_asyncio.fixture
async def ledger(each_database: str):
    ledger = Ledger(each_database)
    await ledger.open()
    yield ledger
    await ledger.close()


@contextmanager
def change(url: str) -> Iterator[sa.Connection]:
    """A transaction by somebody else."""
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


async def find_ids(ledger: Ledger, query: Query = ALL, **rest) -> list[str]:
    return [entry.record.id for entry in await ledger.find(query, **rest)]


async def test_records_come_back_as_they_were_the_newest_first(ledger) -> None:
    first = record(1, user="alice", team="ops", server="gpu", reason="ü", details={"a": [1]})
    second = record(2)
    await ledger.add([second, first])
    assert [entry.record for entry in await ledger.find(ALL)] == [second, first]


async def test_a_record_that_comes_twice_is_one(ledger) -> None:
    await ledger.add([record(1), record(1), record(2)])
    await ledger.add([record(2, reason="another text"), record(3)])
    assert await find_ids(ledger) == ["id-3", "id-2", "id-1"]


async def test_times_of_any_width_are_in_order(ledger) -> None:
    early = replace(record(1), at="2026-01-31T12:00:00Z")
    late = replace(record(2), at="2026-01-31T12:00:00.5Z")
    await ledger.add([late, early])
    assert await find_ids(ledger) == ["id-2", "id-1"]


async def test_pages_meet_without_gap_or_overlap_even_at_one_moment(ledger) -> None:
    same = [replace(record(i), at=stamp(NOON)) for i in range(5)]
    await ledger.add([*same, record(9)])
    seen, query = [], ALL
    while page := await ledger.find(query, limit=2):
        seen += [entry.record.id for entry in page]
        query = replace(query, before=page[-1].place)
    assert seen == ["id-9", "id-4", "id-3", "id-2", "id-1", "id-0"]


async def test_an_export_gives_everything(ledger) -> None:
    await ledger.add([record(i) for i in range(2500)])
    batches = [batch async for batch in ledger.export(ALL)]
    assert [len(batch) for batch in batches] == [1000, 1000, 500]
    assert len({entry.record.id for batch in batches for entry in batch}) == 2500


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (replace(ALL, team="ops"), ["id-3", "id-2"]),
        (replace(ALL, person="alice"), ["id-3", "id-1", "id-0"]),
        (replace(ALL, server=("alice", "gpu")), ["id-3"]),
        (replace(ALL, server=("alice", "")), ["id-1"]),
        (replace(ALL, action="stop"), ["id-3"]),
        (replace(ALL, team="' OR 1=1 --"), []),
        (replace(ALL, since=NOON + timedelta(seconds=2)), ["id-3", "id-2"]),
        (replace(ALL, until=NOON), ["id-0"]),
        (Query(scope=AuditScope()), []),
        (Query(scope=AuditScope(person="bob")), ["id-2"]),
        (Query(scope=AuditScope(teams=frozenset({"ops"}))), ["id-3", "id-2"]),
        (Query(scope=AuditScope(stops_in=frozenset({"ops"}))), ["id-3"]),
        (Query(scope=AuditScope(server=("alice", "gpu"))), ["id-3"]),
        (Query(scope=AuditScope(person="bob"), person="alice"), []),
    ],
)
async def test_filters_and_scopes(ledger, query, expected) -> None:
    await ledger.add(
        [
            record(0, "sign-in"),
            record(1, user="alice", team="flight"),
            record(2, user="bob", actor="user:bob", team="ops"),
            record(3, "stop", actor="hub", user="alice", team="ops", server="gpu"),
        ]
    )
    assert await find_ids(ledger, query) == expected


async def test_a_request_is_answered_once(ledger) -> None:
    await ledger.add_request(REQUEST, record(1, "request"))
    assert await ledger.find_request("r-1") == REQUEST
    answer = {"state": "refused", "answer": "No.", "decided_by": "admin", "decided_at": NOON}
    assert await ledger.change_request("r-1", was="open", records=[record(2, "decide")], **answer)
    assert not await ledger.change_request(
        "r-1", was="open", records=[record(3, "decide")], state="withdrawn"
    )
    assert await ledger.find_request("r-1") == replace(REQUEST, **answer)
    assert await find_ids(ledger) == ["id-2", "id-1"]


async def test_requests_are_listed_by_asker_and_state(ledger) -> None:
    for number, (asker, state) in enumerate([("alice", "open"), ("bob", "open"), ("bob", "x")]):
        asked = replace(REQUEST, id=f"r-{number}", asked_by=asker, state=state)
        await ledger.add_request(asked, record(number))
    assert [r.id for r in await ledger.list_requests(asked_by="bob")] == ["r-1", "r-2"]
    assert [r.id for r in await ledger.list_requests(states=["open"])] == ["r-0", "r-1"]
    assert await ledger.list_requests(since=NOON) == []
    assert len(await ledger.list_requests(since=NOON - timedelta(seconds=1))) == 3
    assert await ledger.find_request("nope") is None


async def test_a_departure_takes_the_place_of_that_of_an_earlier_run(ledger) -> None:
    first = Departure(user="alice", server="", team="ops", started=None, seen_at=NOON)
    second = replace(first, started=NOON)
    await ledger.add_departure(first, record(1, "notice"))
    await ledger.add_departure(second, record(2, "notice"))
    assert await ledger.list_departures() == [second]
    await ledger.remove_departure(second)
    assert await ledger.list_departures() == []
    assert await find_ids(ledger) == ["id-2", "id-1"]


async def test_a_ledger_is_kept_over_a_restart(each_database) -> None:
    for number in range(2):
        ledger = Ledger(each_database)
        await ledger.open()
        await ledger.add([record(number)])
        found = await find_ids(ledger)
        await ledger.close()
    assert found == ["id-1", "id-0"]


async def test_a_ledger_of_an_earlier_release_gets_what_it_lacks(ledger, each_database) -> None:
    await ledger.add_request(REQUEST, record(1, "request"))
    with change(each_database) as connection:
        connection.execute(sa.text("ALTER TABLE requests DROP COLUMN team_uid"))
    later = Ledger(each_database)
    await later.open()
    await later.open()
    assert await later.find_request("r-1") == REQUEST
    asked = replace(REQUEST, id="r-2", team_uid="1")
    await later.add_request(asked, record(2, "request"))
    assert await later.find_request("r-2") == asked
    await later.close()


async def test_a_newer_ledger_is_not_touched(ledger, each_database) -> None:
    with change(each_database) as connection:
        connection.execute(sa.text("UPDATE ledger_version SET version = 2"))
    older = Ledger(each_database)
    with pytest.raises(LedgerError, match="of version 2, and this release knows 1 at most"):
        await older.open()
    await older.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sqlite:////no/such/place", "unable to open database file"),
        ("postgresql://spectrum@/ledger?host=/no/such/place", "No such file or directory"),
        ("postgresql://spectrum@127.0.0.1:9/ledger", "Connection refused"),
    ],
)
async def test_a_ledger_that_cannot_be_opened_says_so(url, sentence) -> None:
    ledger = Ledger(url)
    with pytest.raises(LedgerError, match=sentence):
        await ledger.open()
    await ledger.close()


async def test_a_postgresql_that_was_away_is_used_again(postgresql) -> None:
    ledger = Ledger(postgresql.make_database())
    await ledger.open()
    await ledger.add([record(1)])
    postgresql.stop()
    begun = time.monotonic()
    with pytest.raises(LedgerError, match=r"No such file or directory|server closed"):
        await ledger.add([record(2)])
    assert time.monotonic() - begun < 2
    postgresql.start()
    await ledger.add([record(3)])
    assert await find_ids(ledger) == ["id-3", "id-1"]
    await ledger.close()


@contextmanager
def locked(url: str) -> Iterator[None]:
    """Somebody else has the records for themselves."""
    engine = sa.create_engine(url)
    with engine.begin() as other:
        other.execute(sa.text("LOCK TABLE records"))
        yield
    engine.dispose()


async def test_a_postgresql_gives_up_what_it_cannot_do_soon(
    postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ANSWER_WITHIN", 1)
    ledger = Ledger(url := postgresql.make_database())
    await ledger.open()
    with locked(url), pytest.raises(LedgerError, match="due to statement timeout"):
        await ledger.add([record(1)])
    await ledger.add([record(2)])
    assert await find_ids(ledger) == ["id-2"]
    await ledger.close()


async def test_a_database_that_hangs_keeps_nobody_waiting(
    postgresql, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(url := postgresql.make_database())
    await ledger.open()
    with monkeypatch.context() as patched, locked(url):
        patched.setattr(ledgers, "ANSWER_WITHIN", 0.2)
        for _ in range(6):  # more than it has threads
            with pytest.raises(LedgerError, match=r"no answer within 0\.2 seconds"):
                await ledger.add([record(1)])
    await ledger.add([record(2)])
    assert "id-2" in await find_ids(ledger)
    await ledger.close()


@pytest.mark.parametrize(
    "url", ["nonsense", "nosuch://host/ledger", "mysql+nosuch://h/l", "postgresql://u:a:b@c:d@h/l"]
)
def test_a_url_of_no_database_says_so_and_keeps_its_password(url: str) -> None:
    with pytest.raises(LedgerError, match="must be empty or a URL such as postgresql"):
        Ledger(url)


async def test_a_slow_ledger_does_not_stall_the_loop(ledger) -> None:
    records = [record(i) for i in range(5000)]
    pauses = []

    async def tick() -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.001)
            pauses.append(time.monotonic() - begun)

    ticking = asyncio.create_task(tick())
    await ledger.add(records)
    ticking.cancel()
    assert len(pauses) > 5


async def test_pages_of_many_records_are_quick(ledger) -> None:
    teams, people = ["ops", "flight"], ["alice", "bob"]
    for start in range(0, 20_000, 5000):
        await ledger.add(
            [record(i, user=people[i % 2], team=teams[i % 2]) for i in range(start, start + 5000)]
        )
    deep = replace(ALL, before=f"{stamp(NOON + timedelta(seconds=100))},1")
    scope = AuditScope(person="bob", teams=frozenset({"ops"}), stops_in=frozenset({"flight"}))
    for query in (ALL, deep, replace(ALL, person="bob"), Query(scope=scope)):
        begun = time.process_time()  # what else the machine does is no concern of this test
        assert len(await ledger.find(query)) == 100
        assert time.process_time() - begun < 0.5


ALICE, BOB = ("alice", ""), ("bob", "gpu")
WARNED = Standing(
    pod_uid="uid-1",
    memory=Memory(
        extended_until=NOON + timedelta(hours=1),
        held_since=NOON - timedelta(hours=3),
        idle=Stretch(by="gpu<1", since=NOON - timedelta(days=2), seen=NOON),
        gpu=Stretch(by="gpu<1", since=NOON - timedelta(days=3), seen=NOON),
    ),
    warned_at=NOON,
    ends_at=NOON + timedelta(minutes=10),
    cause=Cause.IDLE,
    extensions=1,
)
BUSY = Standing(pod_uid="uid-2", memory=Memory(last_busy=NOON))
HELD = Held(
    pod_uid="uid-2",
    hold=Hold(by="bob", made_at=NOON, until=NOON + timedelta(hours=3), reason="a training"),
)


async def reload(ledger: Ledger) -> Standings:
    """What a service that starts anew finds."""
    standings = Standings(ledger)
    await standings.load()
    return standings


async def test_what_people_were_told_of_a_server_is_found_again(ledger) -> None:
    standings = await reload(ledger)
    await standings.change({ALICE: WARNED, BOB: BUSY}, [record(1)])
    # what works was told nothing
    assert (await reload(ledger)).by_key == {ALICE: WARNED}
    assert standings.by_key == {ALICE: WARNED, BOB: BUSY}
    assert await find_ids(ledger) == ["id-1"]

    later = replace(WARNED, ends_at=NOON + timedelta(hours=2), extensions=2)
    await standings.change({ALICE: later})
    assert (await reload(ledger)).by_key == {ALICE: later}
    await standings.change({ALICE: replace(BUSY, pod_uid="uid-1")})
    assert (await reload(ledger)).by_key == {}


async def test_a_hold_is_found_again_for_its_own_run_alone(ledger) -> None:
    standings = await reload(ledger)
    await standings.hold(BOB, HELD, BUSY, [record(1)])
    await standings.hold(ALICE, HELD, WARNED, [])
    found = await reload(ledger)
    assert found.holds == {ALICE: HELD, BOB: HELD}
    assert found.by_key == {ALICE: WARNED}
    assert found.find_holds(BOB, "uid-2") == (HELD.hold,)
    assert found.find_holds(BOB, "uid-3") == ()
    await found.hold(BOB, None, BUSY, [record(2)])
    assert (await reload(ledger)).holds == {ALICE: HELD}
    assert await find_ids(ledger) == ["id-2", "id-1"]


async def test_of_servers_that_run_no_more_nothing_is_kept(ledger) -> None:
    standings = await reload(ledger)
    await standings.hold(ALICE, HELD, WARNED, [])
    await standings.change({BOB: replace(WARNED, pod_uid="uid-2")})
    await standings.forget([ALICE])
    assert standings.by_key.keys() == {BOB}
    found = await reload(ledger)
    assert (found.by_key.keys(), found.holds) == ({BOB}, {})


async def test_a_standing_that_cannot_be_kept_with_its_record_does_not_count(
    ledger, each_database
) -> None:
    standings = await reload(ledger)
    with change(each_database) as connection:
        connection.execute(sa.text("DROP TABLE records"))
    with pytest.raises(LedgerError):
        await standings.change({ALICE: WARNED}, [record(1)])
    assert standings.by_key == {}
    assert (await reload(ledger)).by_key == {}
