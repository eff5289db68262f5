"""Values of storage: what cannot be stops the install, and the controller, with a sentence."""

import json
from typing import Any

import pytest
import yaml

from local.addons import STORAGE_CLASS
from spectrum_spawner.controller.storage_settings import StorageSettings
from spectrum_spawner.controller.storage_values import StorageError, read_storage
from tests.chart.helm import ACCEPTED, CHART, Helm, merge

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())["storage"]
LOCAL = CHART.parent.parent / "local"
DIGITS = {"path": "/volumes/datasets/digits", "size": "1Gi"}
RGW = {"enabled": True, "endpoint": "http://rook-ceph-rgw-my-store.rook-ceph.svc"}


def datasets(name: str = "digits", **fields: Any) -> dict[str, Any]:
    return {"datasets": {name: {**DIGITS, **fields}}}


def peers(*peers: dict[str, Any]) -> dict[str, Any]:
    return {"bucket": {"peers": list(peers)}}


# What stops both, and the sentence with which the install stops.
WRONG = [
    *(
        ({kind: {"size": size}}, f'storage.{kind}.size: "{size}" is no size such as 512Mi or 10Gi')
        for kind in ("home", "share", "scratch", "bucket")
        for size in ("-1Gi", "1Ei", "10 GB", "0Gi", "ten", "")
    ),
    ({"home": {"size": 10}}, "at '/storage/home/size': got number, want string"),
    ({"share": {"enabled": "yes"}}, "at '/storage/share/enabled': got string, want boolean"),
    ({"home": {"enabled": False}}, "additional properties 'enabled' not allowed"),
    ({"home": {"class": "fast"}}, "additional properties 'class' not allowed"),
    ({"block": {}}, "additional properties 'block' not allowed"),
    (
        {"scratch": {"storageClass": "Rook Ceph"}},
        'storage.scratch.storageClass: "Rook Ceph" is no name of a StorageClass',
    ),
    ({"bucket": {"enabled": True}}, "storage.bucket.endpoint: is missing; it is the S3 URL of"),
    *(
        (
            {"bucket": {"enabled": True, "endpoint": url}},
            f'storage.bucket.endpoint: "{url}" is no http or https URL of a gateway',
        )
        for url in (
            *("rook-ceph-rgw.svc", "s3://bucket", "ftp://rgw", "http://", "http:// rgw"),
            *("http://key:secret@rgw", "http://rgw?a=b", "http://rgw:0", "http://rgw:65536"),
        )
    ),
    ({"bucket": {"objects": -1}}, "at '/storage/bucket/objects': minimum: got -1, want 0"),
    ({"bucket": {"objects": "many"}}, "at '/storage/bucket/objects': got string, want integer"),
    ({"bucket": {"region": ""}}, "'' does not match pattern"),
    ({"bucket": {"peers": {}}}, "at '/storage/bucket/peers': got object, want array"),
    (peers({}), "at '/storage/bucket/peers/0': minProperties: got 0, want 1"),
    (peers({"port": 80}), "additional properties 'port' not allowed"),
    (peers({"podSelector": "rgw"}), "at '/storage/bucket/peers/0/podSelector': got string"),
    (peers({"namespaceSelector": {}}), "storage.bucket.peers: a namespaceSelector that selects"),
    (
        peers({"ipBlock": {"cidr": "0.0.0.0/0"}}),
        'storage.bucket.peers: ipBlock.cidr: "0.0.0.0/0" is no range of addresses such as',
    ),
    (
        peers({"ipBlock": {"cidr": "10.1.2.3"}}),
        'storage.bucket.peers: ipBlock.cidr: "10.1.2.3" is no range of addresses such as',
    ),
    (
        peers({"ipBlock": {"cidr": "10.1.2.3/32"}, "podSelector": {}}),
        "storage.bucket.peers: a peer with an ipBlock selects no pods; make two peers of it",
    ),
    (peers({"ipBlock": {}}), "missing property 'cidr'"),
    *(
        (datasets(name), f'storage.datasets: "{name}" cannot name a dataset: use at most 63 of')
        for name in ("ImageNet", "image_net", "a.b", "..", "-a", "d" * 64, "画像", "")
    ),
    *(
        (datasets(path=path), f'storage.datasets.digits.path: "{path}" is no path such as /vol')
        for path in (
            *("", "/", "volumes/x", "/volumes/../etc", "/..", "/volumes/.", "/volumes/", "/a//b"),
            "/a b",
        )
    ),
    (datasets(size="1Ei"), 'storage.datasets.digits.size: "1Ei" is no size such as 512Mi or 10Gi'),
    (datasets(teams="flight"), "at '/storage/datasets/digits/teams': got string, want array"),
    (datasets(mode="rw"), "additional properties 'mode' not allowed"),
    ({"datasets": {"digits": {"size": "1Gi"}}}, "missing property 'path'"),
    ({"datasets": {"digits": {"path": "/volumes/x"}}}, "missing property 'size'"),
    ({"cephfs": {"fsName": ""}}, "at '/storage/cephfs/fsName': minLength: got 0, want 1"),
    ({"cephfs": {"nodeSecret": "rook"}}, "at '/storage/cephfs/nodeSecret': got string"),
]

# What teams and templates cannot say.
WRONG_TEAMS = [
    *(
        ({"storage": {kind: {"size": "10 GB"}}}, f'.storage.{kind}.size: "10 GB" is no size such')
        for kind in ("home", "share", "scratch", "bucket")
    ),
    (
        {"storage": {"home": {"storageClass": "A B"}}},
        '.storage.home.storageClass: "A B" is no name of a StorageClass',
    ),
    (
        {"storage": {"share": {"storageClass": ""}}},
        ".storage.share.storageClass: must name a StorageClass; leave it out for that of",
    ),
    (
        {"storage": {"bucket": {"enabled": True}}},
        ".storage.bucket.enabled: there are no buckets until storage.bucket.endpoint names",
    ),
    (
        {"quota": {"storage": {"fast": {"size": "1TB"}}}},
        '.quota.storage.fast.size: "1TB" is no size such as 512Mi or 10Gi',
    ),
    (
        {"quota": {"storage": {"Fast Disks": {"claims": 1}}}},
        '.quota.storage.Fast Disks.storageClass: "Fast Disks" is no name of a StorageClass',
    ),
    ({"quota": {"storage": {"fast": {}}}}, "minProperties: got 0, want 1"),
    ({"quota": {"storage": {"fast": {"claims": -1}}}}, "minimum: got -1, want 0"),
    ({"storage": {"home": {"enabled": False}}}, "additional properties 'enabled' not allowed"),
    ({"storage": {"datasets": {}}}, "additional properties 'datasets' not allowed"),
]


@pytest.mark.parametrize(("storage", "sentence"), WRONG)
def test_wrong_storage_stops_the_install_with_a_sentence(
    helm: Helm, storage: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, {"storage": storage}))


@pytest.mark.parametrize("storage", [wrong for wrong, _ in WRONG])
def test_the_controller_refuses_the_same(storage: dict[str, Any]) -> None:
    with pytest.raises(StorageError, match=r"^storage"):
        read_storage(merge(DEFAULTS, storage))


@pytest.mark.parametrize(("team", "sentence"), WRONG_TEAMS)
def test_wrong_storage_of_a_team_or_template_stops_the_install_with_a_sentence(
    helm: Helm, team: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, {"teams": {"flight": team}}))
    template = {"pattern": "line-.*", "max": 1, "spec": team}
    assert sentence in helm.read_refusal(merge(ACCEPTED, {"teamTemplates": {"line": template}}))


def test_the_controller_is_told_all_of_it_and_no_secret(helm: Helm) -> None:
    storage = {**datasets(title="Digits"), "bucket": RGW}
    spec = read_pod(helm, storage)
    environment = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    told = json.loads(environment["STORAGE"])
    assert told == merge(DEFAULTS, storage)
    assert isinstance(read_storage(told), StorageSettings)
    assert environment["RGW_SECRETS"] == "/etc/spectrum/rgw-admin"


def test_a_dataset_that_a_later_file_makes_null_is_no_dataset(helm: Helm) -> None:
    environment = read_pod(helm, {"datasets": {"digits": None}})["containers"][0]["env"]
    (told,) = (entry["value"] for entry in environment if entry["name"] == "STORAGE")
    assert json.loads(told)["datasets"] == {}


def test_the_demo_without_ceph_offers_volumes_of_the_one_class_that_is_there(helm: Helm) -> None:
    demo, without_ceph = (
        yaml.safe_load((LOCAL / name).read_text())["storage"]
        for name in ("values.yaml", "values-no-ceph.yaml")
    )
    environment = read_pod(helm, merge(demo, without_ceph))["containers"][0]["env"]
    (told,) = (json.loads(one["value"]) for one in environment if one["name"] == "STORAGE")
    classes = {kind: told[kind]["storageClass"] for kind in ("home", "share", "scratch")}
    assert classes == dict.fromkeys(classes, STORAGE_CLASS)
    assert (told["bucket"]["enabled"], told["datasets"]) == (False, {})


def test_the_gateways_administrator_is_read_from_the_secret_that_is_named(helm: Helm) -> None:
    spec = read_pod(helm, {"bucket": {**RGW, "secretName": "gateway"}})
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "rgw-admin")
    keys = [{"key": key, "path": key} for key in ("AccessKey", "SecretKey")]
    assert volume["secret"] == {
        "secretName": "gateway",
        "optional": True,
        "defaultMode": 0o440,
        "items": keys,
    }


def read_pod(helm: Helm, storage: dict[str, Any]) -> dict[str, Any]:
    """The controller's pod."""
    values = merge(ACCEPTED, {"storage": storage})
    spec: dict[str, Any] = helm.find("Deployment", "controller", values)["spec"]
    return spec["template"]["spec"]
