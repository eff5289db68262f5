"""What is asked of a server's owner is told of that run, for a day, and over a restart."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from spectrum_spawner.audit import Record
from spectrum_spawner.service.appeals import LASTS, Appeal, read_appeal
from spectrum_spawner.service.records import make_record
from spectrum_spawner.service.servers import Server

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SERVER = Server(user="alice", name="gpu", team="ops", profile="a100", started=NOW)
APPEAL = Appeal(
    user="alice",
    server="gpu",
    team="ops",
    started=NOW,
    by="user:bob",
    reason="Carol waits.",
    at=NOW + timedelta(hours=1),
)


@pytest.mark.parametrize("started", [NOW, None])
def test_the_audit_knows_all_of_it(started: datetime | None) -> None:
    appeal = replace(APPEAL, started=started)
    record = appeal.as_record()
    assert (record.action, record.actor, record.reason) == (
        "warn",
        "user:bob",
        "Asked to release it: Carol waits.",
    )
    assert read_appeal(Record.from_dict(record.as_dict())) == appeal


def test_a_warning_by_a_rule_is_none() -> None:
    assert read_appeal(make_record("warn", "service:spectrum", at=NOW, reason="It ends.")) is None


def test_its_owner_hears_who_asks_and_why() -> None:
    assert APPEAL.as_notice() == {
        "user": "alice",
        "server": "gpu",
        "team": "ops",
        "kind": "asked",
        "text": "bob asks you to release this server: Carol waits.",
        "at": "2026-01-31T13:00:00.000000Z",
        "ends_at": "",
        "keep": False,
    }


def test_it_is_told_of_that_run_alone_and_for_a_day() -> None:
    assert APPEAL.holds(SERVER, APPEAL.at)
    assert not APPEAL.holds(None, APPEAL.at)
    assert not APPEAL.holds(replace(SERVER, started=NOW + timedelta(minutes=5)), APPEAL.at)
    assert not APPEAL.holds(SERVER, APPEAL.at + LASTS)
