"""What counts as a touched release."""

import pytest

from local.snapshot import find_key, make_record, name_changes


def make_object(kind="Team", name="flight", *, uid="1", version="7", spec=None, **status):
    metadata = {"name": name, "namespace": "spectrum", "uid": uid, "resourceVersion": version}
    return {"kind": kind, "metadata": metadata, "spec": spec or {}, "status": status}


def take(*objects):
    return {find_key(one): make_record(one) for one in objects}


def test_what_kubernetes_counts_by_itself_is_no_change():
    before = take(make_object(usage=1))
    assert name_changes(before, take(make_object(version="8", usage=2))) == []


@pytest.mark.parametrize("changed", [make_object(uid="2"), make_object(spec={"leads": ["bob"]})])
def test_another_object_of_the_name_and_another_spec_are_changes(changed):
    assert name_changes(take(make_object()), take(changed)) == ["Team spectrum/flight is changed"]


def test_what_is_gone_and_what_is_new_is_named():
    changes = ["Team spectrum/flight is gone", "Team spectrum/ops is new"]
    assert name_changes(take(make_object()), take(make_object(name="ops"))) == changes


def test_a_new_server_and_its_home_are_peoples_own_business():
    servers = [make_object("Pod", "alice"), make_object("PersistentVolumeClaim", "home-alice")]
    assert name_changes({}, take(*servers)) == []
    assert name_changes(take(*servers), {}) == [
        "PersistentVolumeClaim spectrum/home-alice is gone",
        "Pod spectrum/alice is gone",
    ]


def test_a_restarted_container_is_a_change():
    def make_hub(restarts):
        return make_object("Pod", "hub", containerStatuses=[{"restartCount": restarts}])

    assert name_changes(take(make_hub(0)), take(make_hub(1))) == ["Pod spectrum/hub is changed"]
