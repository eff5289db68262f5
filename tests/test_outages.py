"""For how long servers start without a dataset that nodes could not mount."""

from spectrum_spawner.outages import LEAVE_OUT, Outages


def test_a_dataset_is_left_out_for_a_while_in_its_own_team() -> None:
    outages = Outages()
    outages.note("spectrum-flight", {"dataset-a": "Ceph does not answer"}, now=100)
    outages.note("spectrum-ops", {"dataset-a": "it has moved"}, now=200)
    assert outages.find("spectrum-flight", now=100) == {"dataset-a": "Ceph does not answer"}
    assert outages.find("spectrum-ops", now=200) == {"dataset-a": "it has moved"}
    later = 100 + LEAVE_OUT
    assert outages.find("spectrum-flight", now=later) == {}
    assert outages.find("spectrum-ops", now=later) == {"dataset-a": "it has moved"}


def test_a_failure_that_lasts_is_remembered_anew() -> None:
    outages = Outages()
    for now, why in ((0, "it has moved"), (60, "no such directory")):
        outages.note("spectrum-flight", {"dataset-a": why}, now=now)
    assert outages.find("spectrum-flight", now=LEAVE_OUT + 30) == {"dataset-a": "no such directory"}
