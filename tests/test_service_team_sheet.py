"""Team sheets: one that cannot be read takes nothing but itself away."""

from datetime import UTC, datetime

import pytest

from spectrum_spawner.service.team_sheet import Grant, TeamSheet

GRANTS = "What is granted by r-1 cannot be read, and is not shown: an administrator should "
WHOLE = "The Team object cannot be read: an administrator should correct it."
GOOD = {"until": "2026-03-31T18:00:00Z", "profiles": ["gpu-2"]}


def read(spec=None, status=None) -> TeamSheet:
    metadata = {"name": "ops", "uid": "1"}
    return TeamSheet.from_object({"metadata": metadata, "spec": spec, "status": status})


@pytest.mark.parametrize(
    "grant",
    [
        {"until": "0000-01-01T00:00:00Z"},
        {"until": "2016-12-31T23:59:60Z"},
        {"until": 7},
        {},
        None,
        {**GOOD, "gpus": 1},
    ],
)
def test_of_a_grant_that_cannot_be_read_only_the_grant_is_missing(grant) -> None:
    sheet = read({"groups": ["a/b"], "grants": {"r-1": grant, "r-2": GOOD}})
    until = datetime(2026, 3, 31, 18, tzinfo=UTC)
    assert sheet.grants == (Grant(id="r-2", until=until, gpus={}, profiles=("gpu-2",)),)
    assert (sheet.team.groups, sheet.is_known) == ({"a/b"}, True)
    assert sheet.problem.startswith(GRANTS)


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        (7, None),
        ({"groups": 7}, None),
        ({"grants": [GOOD]}, None),
        ({"quota": {"gpus": 7}}, None),
        (None, {"usage": {"gpus": {"nvidia.com/gpu": {}}}}),
        (None, {"conditions": [{"status": "True"}]}),
    ],
)
def test_of_any_other_team_that_cannot_be_read_only_the_name_is_known(spec, status) -> None:
    sheet = read(spec, status)
    assert (sheet.name, sheet.team.uid, sheet.is_known) == ("ops", "1", False)
    assert sheet.problem == WHOLE


def test_what_can_be_read_has_no_problem() -> None:
    assert (read({"grants": {"r-2": GOOD}}).problem, read().problem) == ("", "")
