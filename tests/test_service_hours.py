"""GPU hours: how long GPUs were held, and how much of that they worked, by the pure rules."""

from datetime import UTC, datetime, timedelta

from spectrum_spawner.activity import GPU, Evidence, Run, Series
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.hour_board import HourRow, add_up
from spectrum_spawner.service.hours import Account, Budget, Hours, count, split_days

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
KEY = ("alice", "")
TODAY = Account(day="2026-01-31", team="ops", user="alice", profile="a100")


def make_subject(started: datetime, gpus: int = 2) -> Subject:
    return Subject(
        user="alice",
        server="",
        team="ops",
        profile="a100",
        namespace="hub-ops",
        pod="jupyter-alice",
        run=Run(pod_uid="uid", started=started, gpus=gpus),
    )


def measure(*values: float | None, at: datetime = NOW) -> dict[tuple[str, str], Evidence]:
    series = [
        Series(source=GPU, device=str(device), at=at, value=value)
        for device, value in enumerate(values)
    ]
    return {KEY: Evidence(series=tuple(series))}


def test_what_is_held_counts_from_the_last_look_and_is_used_by_what_is_measured() -> None:
    subjects = {KEY: make_subject(NOW - timedelta(hours=3))}
    added, until = count(subjects, measure(50.0, 100.0), {"uid": NOW - MINUTE}, NOW)
    assert added == {TODAY: Hours(reserved=120.0, used=90.0, measured=120.0)}
    assert until == {"uid": NOW}
    assert count(subjects, measure(50.0, 100.0), until, NOW) == ({}, {})


def test_a_gpu_that_nobody_measures_is_held_and_not_used() -> None:
    subjects = {KEY: make_subject(NOW - MINUTE)}
    for evidence in (measure(None, None), measure(101.0), measure(9.0, at=NOW - 60 * MINUTE), {}):
        added, _ = count(subjects, evidence, {}, NOW)
        assert added == {TODAY: Hours(reserved=120.0)}
    added, _ = count(subjects, measure(50.0), {}, NOW)
    assert added == {TODAY: Hours(reserved=120.0, used=30.0, measured=60.0)}


def test_a_look_says_nothing_of_the_hours_before_it() -> None:
    """A service that was away counts what was held, and not as used what nobody saw."""
    subjects = {KEY: make_subject(NOW - timedelta(hours=2), gpus=1)}
    added, _ = count(subjects, measure(100.0), {}, NOW)
    assert added == {TODAY: Hours(reserved=7200.0, used=300.0, measured=300.0)}


def test_a_night_belongs_to_two_days() -> None:
    begin = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
    end = datetime(2026, 2, 2, 0, 30, tzinfo=UTC)
    parts = [(day, (last - first).total_seconds()) for day, first, last in split_days(begin, end)]
    assert parts == [("2026-01-31", 1800.0), ("2026-02-01", 86400.0), ("2026-02-02", 1800.0)]


def test_servers_without_gpus_hold_none() -> None:
    assert count({KEY: make_subject(NOW - MINUTE, gpus=0)}, {}, {}, NOW) == ({}, {})


def test_hours_are_added_up_by_what_is_asked_for() -> None:
    hours = Hours(reserved=7200.0, used=1800.0, measured=3600.0)
    bob = Account(day="2026-01-30", team="ops", user="bob", profile="a100")
    found = {TODAY: hours, bob: hours}
    assert add_up(found, ["team"]) == [
        HourRow(team="ops", reserved=4.0, used=1.0, measured=2.0),
    ]
    assert [row.user for row in add_up(found, ["user"])] == ["alice", "bob"]
    assert add_up(found, ["team"])[0].use_text == "50 %"
    assert HourRow(reserved=1.0, used=0.0, measured=0.0).use_text == "not measured"


def test_a_budget_is_told_at_eighty_percent_and_when_it_is_used_up() -> None:
    def make(held: float) -> Budget:
        return Budget(team="ops", title="Operations", month="2026-01", held=held, budget=1000)

    assert [make(held).mark for held in (0, 799.9, 800, 999, 1000, 5000)] == [
        0,
        0,
        80,
        80,
        100,
        100,
    ]
    assert make(1234.5).text == (
        "Team Operations held GPUs for 1,234 of its 1,000 hours of 2026-01 (123 %). Nothing is "
        "stopped for that."
    )
