"""Upgrades of a release's volumes: they grow, never shrink, and the notes name what is missing."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chart.helm import CHART, HelmError, merge
from tests.chart.release import FULL, Release


@pytest.fixture
def definition_without_lead_groups(release: Release) -> Iterator[None]:
    """The cluster's Team definition is that of an earlier version."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/leadGroups"
    older = json.dumps([{"op": "remove", "path": path}])
    release.upgrade()
    release.kubectl("patch", "crd", "teams.spectrum.dev", "--type=json", "--patch", older)
    yield
    release.kubectl("replace", "-f", str(CHART / "crds" / "teams.yaml"))


@pytest.mark.usefixtures("definition_without_lead_groups")
def test_what_an_older_definition_would_drop_stops_the_upgrade(release: Release) -> None:
    release.upgrade(merge(FULL, {"teams": {"ops": {"leads": ["bob"]}}}))
    with pytest.raises(HelmError, match=r"teams\.ops\.leadGroups: the Team definition that this"):
        release.upgrade(merge(FULL, {"teams": {"ops": {"leadGroups": ["leads"]}}}))


@pytest.fixture
def definition_without_shares(release: Release) -> Iterator[None]:
    """The cluster's Team definition knows homes, and no other storage."""
    path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"
    removed = [f"{path}/storage/properties/share", f"{path}/quota/properties/storage"]
    older = json.dumps([{"op": "remove", "path": path} for path in removed])
    release.upgrade()
    release.kubectl("patch", "crd", "teams.spectrum.dev", "--type=json", "--patch", older)
    yield
    release.kubectl("replace", "-f", str(CHART / "crds" / "teams.yaml"))


@pytest.mark.usefixtures("definition_without_shares")
def test_what_an_older_definition_would_drop_deep_inside_stops_the_upgrade(
    release: Release,
) -> None:
    known = {"storage": {"home": {"size": "20Gi"}}, "quota": {"gpus": {"nvidia.com/gpu": 1}}}
    release.upgrade(merge(FULL, {"teams": {"ops": known}}))
    for place, team in (
        ("storage.share", {"storage": {"share": {"size": "20Gi"}}}),
        ("quota.storage", {"quota": {"storage": {"fast": {"claims": 1}}}}),
    ):
        with pytest.raises(HelmError, match=rf"teams\.ops\.{place}: the Team definition that this"):
            release.upgrade(merge(FULL, {"teams": {"ops": team}}))


def make_storage(**sizes: str) -> dict[str, Any]:
    return merge(FULL, {"storage": {kind: {"size": size} for kind, size in sizes.items()}})


def test_volumes_of_a_release_grow_and_never_shrink(release: Release) -> None:
    release.upgrade(make_storage(home="10240Mi", share="1Ti", scratch="20.5Gi"))
    for kind, less, had in (
        ("home", "9Gi", "10240Mi"),
        ("share", "1023.9Gi", "1Ti"),
        ("scratch", "20Gi", "20.5Gi"),
    ):
        kept = {"home": "10Gi", "share": "1Ti", "scratch": "21Gi"}
        with pytest.raises(HelmError) as refusal:
            release.upgrade(make_storage(**{**kept, kind: less}))
        assert (
            f"storage.{kind}.size: {less} is less than the {had} that this release has, and "
            f"volumes grow but never shrink; set {had} or more"
        ) in str(refusal.value)
    release.upgrade(merge(FULL, {"storage": {"bucket": {"size": "1Gi"}}}, make_storage(**kept)))


def test_a_volume_of_a_team_grows_by_the_values_and_never_shrinks(release: Release) -> None:
    def make_team(size: str) -> dict[str, Any]:
        return merge(FULL, {"teams": {"ops": {"storage": {"share": {"size": size}}}}})

    release.upgrade(make_team("1Gi"))
    release.upgrade(make_team("2Gi"))
    with pytest.raises(HelmError, match=r"storage\.share\.size: 1Gi is less than 2Gi, and volumes"):
        release.upgrade(make_team("1Gi"))


def test_what_is_offered_for_the_first_time_may_be_smaller_than_was_said_before(
    release: Release,
) -> None:
    off = {"storage": {"share": {"enabled": False}, "scratch": {"enabled": False}}}
    release.upgrade(merge(FULL, off))
    release.upgrade(make_storage(share="2Gi", scratch="1Gi"))


@pytest.mark.parametrize("told", ["", "{}", '{"home": {}}', "by hand"])
def test_where_nothing_says_which_sizes_a_release_has_any_will_do(
    release: Release, told: str
) -> None:
    release.upgrade()
    container = {"name": "controller", "env": [{"name": "STORAGE", "value": told}]}
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    release.kubectl("patch", "deployment", "controller", "--patch", json.dumps(change))
    release.upgrade(make_storage(home="1Gi", share="1Gi", scratch="1Gi"), "--dry-run=server")


def test_a_gateway_stays_in_the_values_while_there_are_keys_to_it(release: Release) -> None:
    gateway = {"endpoint": "http://rgw.test", "enabled": False}
    release.upgrade(merge(FULL, {"storage": {"bucket": gateway}}))
    bucket = {"name": "spectrum-ops-1", "endpoint": "http://rgw.test", "ready": False}

    def set_status(**more: str) -> None:
        status = json.dumps({"status": {"storage": {"bucket": {**bucket, **more}}}})
        patch = ("patch", "team", "ops", "--type=merge", "--subresource=status", "--patch")
        release.kubectl(*patch, status)

    set_status(keysMade="2026-03-01T12:00:00Z")
    with pytest.raises(HelmError) as refusal:
        release.upgrade()
    assert (
        "storage.bucket.endpoint: bucket spectrum-ops-1 at http://rgw.test has keys, which would "
        "stay valid; keep the endpoint, set enabled: false here and in the teams, and take it out "
        "once no Team has status.storage.bucket.keysMade"
    ) in str(refusal.value)
    release.kubectl("delete", "team", "ops")
    release.upgrade(merge(FULL, {"storage": {"bucket": gateway}}))
    set_status()
    release.upgrade()


def test_the_notes_tell_when_the_secret_by_which_datasets_are_mounted_will_not_do(
    release: Release,
) -> None:
    digits = {"digits": {"path": "/volumes/datasets/digits", "size": "1Gi"}}
    secret = {"name": "node", "namespace": release.namespace}
    values = merge(FULL, {"storage": {"datasets": digits, "cephfs": {"nodeSecret": secret}}})
    sentence = (
        f"Datasets cannot be mounted until Secret node in namespace {release.namespace} has userID "
        "and userKey."
    )
    assert sentence in release.upgrade(values)
    keys = ("--from-literal=adminID=a", "--from-literal=adminKey=b")
    release.kubectl("create", "secret", "generic", "node", *keys)
    assert sentence in release.upgrade(values)
    right = json.dumps({"stringData": {"userID": "a", "userKey": "b"}})
    release.kubectl("patch", "secret", "node", "--patch", right)
    assert "Datasets cannot" not in release.upgrade(values)
    assert "Datasets cannot" not in release.upgrade()


def test_the_notes_name_what_storage_waits_for(release: Release) -> None:
    digits = {"path": "/volumes/datasets/digits", "size": "1Gi", "teams": ["ops", "later"]}
    bucket = {"enabled": True, "endpoint": "http://rgw.rook-ceph.svc", "secretName": "gateway"}
    values = merge(FULL, {"storage": {"datasets": {"digits": digits}, "bucket": bucket}})
    notes = release.upgrade(values)
    assert "Dataset digits is for team later, which is not in the values" in notes
    assert "team ops, which" not in notes
    assert "Buckets wait for the Secret gateway with AccessKey and SecretKey" in notes
    release.kubectl("create", "secret", "generic", "gateway", "--from-literal=AccessKey=a")
    assert "Buckets wait" not in release.upgrade(values)


def test_the_notes_name_the_storage_classes_that_there_are_not(release: Release) -> None:
    share = {"storage": {"share": {"storageClass": "fast"}}}
    storage = {"home": {"storageClass": ""}, "scratch": {"enabled": False}}
    values = merge(FULL, {"storage": storage, "teams": {"flight": share}})
    notes = release.upgrade(values).splitlines()
    told = [line for line in notes if "StorageClass" in line]
    assert told == [
        "There is no default StorageClass, and storage.home names none: no such volume is made "
        "until storage.home.storageClass names one.",
        *(
            f"There is no StorageClass {name}, which {place} asks for: no such volume is made "
            f"until it is there, or {place}.storageClass names another one."
            for place, name in (
                ("storage.share", "rook-cephfs"),
                ("teams.flight.storage.share", "fast"),
            )
        ),
    ]
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    for name, annotations in (("rook-cephfs", default), ("fast", {})):
        metadata = {"name": name, "annotations": annotations}
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
        made = {**kind, "metadata": metadata, "provisioner": "example.org/none"}
        release.kubectl("create", "-f", "-", text=json.dumps(made))
    assert "StorageClass" not in release.upgrade(values)
    release.kubectl("delete", "storageclass", "rook-cephfs", "fast")
