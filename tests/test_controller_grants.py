"""Grants count while their end is ahead, and not a moment longer."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.controller.grants import Granted, make_effective_quota, sum_grants

GPU, SLICE = "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEC = {
    "grants": {
        "over": {"gpus": {GPU: 8}, "until": "2026-03-01T12:00:00Z"},
        "first": {"gpus": {GPU: 2}, "profiles": ["gpu-8"], "until": "2026-03-01T13:30:00+01:00"},
        "second": {"gpus": {GPU: 1, SLICE: 3}, "until": "2026-03-02T12:00:00.5Z"},
        "third": {"profiles": ["cpu-big", "gpu-8"], "until": "2026-04-01T00:00:00Z"},
    }
}


def test_grants_in_force_are_added_up_until_the_first_of_them_lapses() -> None:
    assert sum_grants(SPEC, NOON) == Granted(
        gpus={GPU: 3, SLICE: 3},
        profiles=("cpu-big", "gpu-8"),
        until=datetime(2026, 3, 1, 12, 30, tzinfo=UTC),
    )


@pytest.mark.parametrize(
    ("moment", "status"),
    [
        (
            NOON - timedelta(seconds=1),
            {"gpus": {GPU: 11, SLICE: 3}, "profiles": ["cpu-big", "gpu-8"]},
        ),
        (
            NOON + timedelta(minutes=30),
            {"gpus": {GPU: 1, SLICE: 3}, "profiles": ["cpu-big", "gpu-8"]},
        ),
        (NOON + timedelta(days=2), {"profiles": ["cpu-big", "gpu-8"]}),
        (NOON + timedelta(days=99), {}),
    ],
)
def test_what_is_granted_shrinks_as_time_goes_by(moment: datetime, status: dict[str, Any]) -> None:
    assert sum_grants(SPEC, moment).to_status() == status


def test_a_team_without_grants_is_not_looked_at_again_for_them() -> None:
    assert sum_grants({}, NOON) == Granted()


@pytest.mark.parametrize(
    ("quota", "effective"),
    [
        pytest.param({"pods": 5}, {"pods": 5}, id="GPUs are not limited"),
        pytest.param({"gpus": {}}, {"gpus": {GPU: 2}}, id="no GPU of its own"),
        pytest.param(
            {"gpus": {GPU: 1, SLICE: 0}}, {"gpus": {GPU: 3, SLICE: 0}}, id="some of its own"
        ),
    ],
)
def test_granted_gpus_come_on_top_of_the_quota(
    quota: dict[str, Any], effective: dict[str, Any]
) -> None:
    assert make_effective_quota(quota, Granted(gpus={GPU: 2})) == effective
