"""Reports of servers: what is read of them; nonsense is tried over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.reports import LONGEST_ERROR, MOST, Figures, read_report

NOW = datetime(2026, 1, 31, 9, 14, tzinfo=UTC)
ENTRY = {"kind": "home", "total": 10, "used": 3, "at": NOW.isoformat()}


def read(*entries: Any, server: str = "", **body: Any) -> list[Figures]:
    report = {"volumes": list(entries), **body}
    return read_report(report, team="flight", user="alice", server=server, now=NOW)


def test_a_home_is_of_the_servers_owner_and_what_was_not_told_is_unknown() -> None:
    assert read(ENTRY, server="gpu") == [
        Figures(
            team="flight",
            kind="home",
            user="alice",
            name="",
            server="alice/gpu",
            total=10,
            used=3,
            files_total=None,
            files_used=None,
            read_only=None,
            error="",
            at=NOW,
        )
    ]


@pytest.mark.parametrize(
    ("kind", "user"), [("home", "alice"), ("scratch", "alice"), ("share", ""), ("dataset", "")]
)
def test_what_a_team_has_in_common_is_nobodys_own(kind: str, user: str) -> None:
    (figures,) = read({**ENTRY, "kind": kind, "name": "x"})
    assert (figures.user, figures.team, figures.name) == (user, "flight", "x")


def test_an_error_is_kept_as_far_as_it_is_of_use() -> None:
    (figures,) = read({"kind": "home", "at": ENTRY["at"], "error": "x" * 1000})
    assert figures.error == "x" * LONGEST_ERROR


def test_the_time_is_that_of_the_report_unless_it_is_still_to_come() -> None:
    moments = (NOW - timedelta(hours=1), NOW + timedelta(hours=1))
    found = [read({**ENTRY, "at": moment.isoformat()})[0].at for moment in moments]
    assert found == [NOW - timedelta(hours=1), NOW]


def test_no_volume_is_a_report_and_so_are_many() -> None:
    assert read() == []
    assert len(read(*({**ENTRY, "name": str(i)} for i in range(MOST)))) == MOST


def test_one_bad_entry_spoils_the_report() -> None:
    with pytest.raises(Problem, match="used of a volume must be a whole number"):
        read(ENTRY, {**ENTRY, "kind": "share", "used": -1})
