"""What the service counts of its own work."""

import pytest
from prometheus_client.exposition import generate_latest

from spectrum_spawner.service.telemetry import Telemetry


def read(telemetry: Telemetry) -> dict[str, float]:
    """Numbers by name and labels, but for those of the process and of buckets and moments."""
    lines = generate_latest(telemetry.registry).decode().splitlines()
    told = (line.rpartition(" ") for line in lines if line.startswith("spectrum_"))
    return {
        name: float(n) for name, _, n in told if "_created" not in name and "_bucket" not in name
    }


def test_what_is_done_is_counted_by_team_and_rule() -> None:
    telemetry = Telemetry()
    for _ in range(2):
        telemetry.warned("flight", "gpu")
    telemetry.extended("flight")
    telemetry.culled("flight", "gpu")
    telemetry.culled("ops", "lifetime")
    assert read(telemetry) == {
        'spectrum_warnings_total{rule="gpu",team="flight"}': 2,
        'spectrum_extensions_total{team="flight"}': 1,
        'spectrum_culls_total{rule="gpu",team="flight"}': 1,
        'spectrum_culls_total{rule="lifetime",team="ops"}': 1,
        "spectrum_sweep_seconds_count": 0,
        "spectrum_sweep_seconds_sum": 0,
    }


def test_what_may_come_is_zero_before_and_stays_what_it_is_after() -> None:
    telemetry = Telemetry()
    telemetry.expect({("flight", "gpu")})
    telemetry.culled("flight", "gpu")
    telemetry.expect({("flight", "gpu")})
    assert read(telemetry) == {
        'spectrum_warnings_total{rule="gpu",team="flight"}': 0,
        'spectrum_extensions_total{team="flight"}': 0,
        'spectrum_culls_total{rule="gpu",team="flight"}': 1,
        "spectrum_sweep_seconds_count": 0,
        "spectrum_sweep_seconds_sum": 0,
    }


def test_a_look_that_fails_is_timed_too() -> None:
    telemetry = Telemetry()
    with telemetry.sweeping():
        pass
    with pytest.raises(ZeroDivisionError), telemetry.sweeping():
        raise ZeroDivisionError
    assert read(telemetry)["spectrum_sweep_seconds_count"] == 2


def test_two_services_in_one_process_count_for_themselves() -> None:
    first, second = Telemetry(), Telemetry()
    first.extended("flight")
    assert 'spectrum_extensions_total{team="flight"}' not in read(second)
