"""Reports of servers: what is read of them; nonsense is tried over HTTP."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.reports import ERRORS, MOST, UNKNOWN, Figures, Report, read_report

NOW = datetime(2026, 1, 31, 9, 14, tzinfo=UTC)
ENTRY = {"kind": "home", "total": 10, "used": 3, "at": NOW.isoformat()}


def read(*entries: Any, server: str = "") -> Report:
    return read_report(
        {"volumes": list(entries)},
        team="flight",
        user="alice",
        server=server,
        datasets=["imagenet"],
        now=NOW,
    )


def test_a_home_is_of_the_servers_owner_and_what_was_not_told_is_unknown() -> None:
    assert read(ENTRY, server="gpu") == Report(
        team="flight",
        user="alice",
        server="alice/gpu",
        figures=(
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
            ),
        ),
    )


@pytest.mark.parametrize(
    ("kind", "name", "user"),
    [
        ("home", "", "alice"),
        ("scratch", "default", "alice"),
        ("share", "", ""),
        ("dataset", "imagenet", ""),
    ],
)
def test_what_a_team_has_in_common_is_nobodys_own(kind: str, name: str, user: str) -> None:
    (figures,) = read({**ENTRY, "kind": kind, "name": name}).figures
    assert (figures.user, figures.team, figures.name) == (user, "flight", name)


@pytest.mark.parametrize(
    ("kind", "name"), [("home", "x"), ("share", "x"), ("scratch", ""), ("scratch", "../x")]
)
def test_only_what_can_be_is_a_name(kind: str, name: str) -> None:
    with pytest.raises(Problem, match="is no name of a volume"):
        read({**ENTRY, "kind": kind, "name": name})


def test_a_dataset_that_the_team_is_not_offered_is_left_out() -> None:
    assert read({**ENTRY, "kind": "dataset", "name": "mnist"}).figures == ()


def test_an_error_is_one_that_the_images_know() -> None:
    texts = [*sorted(ERRORS), "<b>call me</b>"]
    entries = [
        {**ENTRY, "kind": "scratch", "name": f"disk-{i}", "error": text}
        for i, text in enumerate(texts)
    ]
    assert [each.error for each in read(*entries).figures] == [*sorted(ERRORS), UNKNOWN]


def test_the_time_is_that_of_the_report_unless_it_is_still_to_come() -> None:
    moments = (NOW - timedelta(hours=1), NOW + timedelta(hours=1))
    found = [read({**ENTRY, "at": moment.isoformat()}).figures[0].at for moment in moments]
    assert found == [NOW - timedelta(hours=1), NOW]


def test_no_volume_is_a_report_and_so_are_many() -> None:
    assert read().figures == ()
    many = ({**ENTRY, "kind": "scratch", "name": f"disk-{i}"} for i in range(MOST))
    assert len(read(*many).figures) == MOST


def test_one_bad_entry_spoils_the_report() -> None:
    with pytest.raises(Problem, match="used of a volume must be a whole number"):
        read(ENTRY, {**ENTRY, "kind": "share", "used": -1})
