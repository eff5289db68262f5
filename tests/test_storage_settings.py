"""What the release's values say about storage, and what a team gets of it."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from spectrum_spawner.controller.storage_settings import (
    BucketSettings,
    CephFSSettings,
    DatasetSettings,
    StorageSettings,
    VolumeSettings,
)
from spectrum_spawner.controller.storage_values import StorageError, read_storage

SHIPPED = Path(__file__).resolve().parents[1] / "helm" / "spectrum" / "values.yaml"

ROOK = {"matchLabels": {"kubernetes.io/metadata.name": "rook-ceph"}}
CEPHFS = {
    "driver": "rook-ceph.cephfs.csi.ceph.com",
    "clusterID": "rook-ceph",
    "fsName": "myfs",
    "nodeSecret": {"name": "rook-csi-cephfs-node", "namespace": "rook-ceph"},
}
DIGITS = {"path": "/volumes/datasets/digits", "size": "1Gi"}
VALUES: dict[str, Any] = {
    "home": {"size": "10Gi", "storageClass": "rook-cephfs"},
    "share": {"enabled": True, "size": "50Gi", "storageClass": "rook-cephfs"},
    "scratch": {"enabled": True, "size": "20Gi", "storageClass": ""},
    "bucket": {
        "enabled": True,
        "endpoint": "http://rook-ceph-rgw-my-store.rook-ceph.svc/",
        "region": "us-east-1",
        "secretName": "rgw-admin",
        "size": "100Gi",
        "objects": 1000,
        "peers": [{"namespaceSelector": ROOK}],
    },
    "cephfs": CEPHFS,
    "datasets": {
        "imagenet": {
            "title": "ImageNet 2012",
            "path": "/volumes/datasets/imagenet",
            "size": "150Gi",
            "teams": ["flight"],
        },
        "digits": DIGITS,
    },
}
IMAGENET_OF_FLIGHT = DatasetSettings(
    name="imagenet",
    title="ImageNet 2012",
    path="/volumes/datasets/imagenet",
    size="150Gi",
    teams=frozenset({"flight"}),
)
DIGITS_OF_ALL = DatasetSettings(
    name="digits", title="digits", path="/volumes/datasets/digits", size="1Gi"
)


def test_values_are_read_whole() -> None:
    assert read_storage(VALUES) == StorageSettings(
        home=VolumeSettings(enabled=True, size="10Gi", storage_class="rook-cephfs"),
        share=VolumeSettings(enabled=True, size="50Gi", storage_class="rook-cephfs"),
        scratch=VolumeSettings(enabled=True, size="20Gi", storage_class=""),
        bucket=BucketSettings(
            enabled=True,
            endpoint="http://rook-ceph-rgw-my-store.rook-ceph.svc",
            region="us-east-1",
            size="100Gi",
            objects=1000,
            peers=({"namespaceSelector": ROOK},),
        ),
        cephfs=CephFSSettings(
            driver="rook-ceph.cephfs.csi.ceph.com",
            cluster_id="rook-ceph",
            fs_name="myfs",
            secret_name="rook-csi-cephfs-node",
            secret_namespace="rook-ceph",
        ),
        datasets=(DIGITS_OF_ALL, IMAGENET_OF_FLIGHT),
    )


def test_without_values_there_is_a_home_and_nothing_else() -> None:
    assert read_storage({}) == StorageSettings(home=VolumeSettings(enabled=True))


def test_the_shipped_values_can_be_read() -> None:
    shipped = read_storage(yaml.safe_load(SHIPPED.read_text())["storage"])
    assert shipped.share.enabled
    assert not shipped.bucket.enabled
    assert shipped.cephfs == read_storage(VALUES).cephfs


def put(place: str, value: Any) -> dict[str, Any]:
    """VALUES with another value at a place such as `share/size`."""
    *above, last = place.split("/")
    changed: dict[str, Any] = {**VALUES}
    table = changed
    for key in above:
        table[key] = {**table[key]}
        table = table[key]
    table[last] = value
    return changed


BAD_SIZES = [
    "-1Gi",
    "0Gi",
    "1Ei",
    "10 GB",
    "10GB",
    "10",
    10,
    None,
    "",
    "9999999Gi",
    "1Gi\n",
    "1e3Gi",
]
BAD_PATHS = [
    *("", "/", "//", "volumes/x", "/volumes/../etc", "/..", "/volumes/.", "/volumes/", "/a//b"),
    *("/a b", "/a\nb", None, 7),
]
BAD_URLS = [
    *("rgw.rook-ceph.svc", "ftp://rgw", "s3://bucket", "http://", "http:///path", "http://a b"),
    *("http://user:pass@rgw", "http://rgw?x=1", "http://rgw#x", None, "http://rgw:0"),
    *("http://rgw:65536", "http://rgw:", "http://[::1", "http://[x]"),
]


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        *(("share/size", size, "storage.share.size: ") for size in BAD_SIZES),
        *(("datasets/digits/size", size, "storage.datasets.digits.size: ") for size in BAD_SIZES),
        *(("datasets/digits/path", path, "storage.datasets.digits.path: ") for path in BAD_PATHS),
        *(("bucket/endpoint", url, "storage.bucket.endpoint: ") for url in BAD_URLS),
        ("bucket/endpoint", "", "storage.bucket.endpoint: is missing; it is the S3 URL"),
        ("bucket/objects", -1, "storage.bucket.objects: -1 is no number of objects"),
        ("bucket/objects", True, "storage.bucket.objects: True is no number of objects"),
        ("bucket/region", "", "storage.bucket.region: '' must be one word"),
        ("bucket/peers", {}, "storage.bucket.peers: must be a list"),
        ("bucket/peers", [{}], "storage.bucket.peers: {} is no peer"),
        ("bucket/peers", [{"podSelector": None}], "is no peer"),
        ("bucket/peers", [{"port": 80}], "storage.bucket.peers.port: unknown key"),
        ("bucket/peers", [{"namespaceSelector": {}}], "opens every team to every other"),
        ("bucket/peers", [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "opens everything"),
        ("bucket/peers", [{"ipBlock": {"cidr": "::/0"}}], "opens everything"),
        ("bucket/peers", [{"ipBlock": {"cidr": "10.0.0.1/8"}}], "has host bits set"),
        ("bucket/peers", [{"ipBlock": {}}], "ipBlock.cidr: None is no range of addresses such as"),
        (
            "bucket/peers",
            [{"ipBlock": {"cidr": "10.1.2.3/32"}, "podSelector": {}}],
            "a range of addresses selects no pods",
        ),
        (
            "bucket/peers",
            [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}}],
            "storage.bucket.peers.ipBlock.except: 11.0.0.0/16 is no part of 10.0.0.0/8",
        ),
        (
            "bucket/peers",
            [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["fd00::/16"]}}],
            "is no part of 10.0.0.0/8",
        ),
        ("bucket/peers", [{"ipBlock": {"cidr": "10.0.0.0/8", "except": "x"}}], "must be a list"),
        ("bucket/endpoint", "http://[1:2]", "storage.bucket.endpoint: "),
        ("home", [], "storage.home: must be a table"),
        ("home/enabled", False, "storage.home.enabled: unknown key, known are size, storageClass"),
        ("share/enabled", "yes", "storage.share.enabled: 'yes' is neither true nor false"),
        ("scratch/storageClass", "Rook Ceph", "'Rook Ceph' is no name of a StorageClass"),
        ("scratch/storageClass", None, "None is no name of a StorageClass"),
        ("block", {}, "storage.block: unknown key, known are home, share, scratch, bucket"),
        ("datasets/Image_Net", DIGITS, "storage.datasets: 'Image_Net' cannot name a dataset"),
        (f"datasets/{'d' * 64}", DIGITS, "cannot name a dataset: use at most 63 of a-z"),
        ("datasets/..", DIGITS, "storage.datasets: '..' cannot name a dataset"),
        ("datasets/digits", None, "storage.datasets.digits: must be a table"),
        ("datasets/digits/teams", "flight", "storage.datasets.digits.teams: must be a list"),
        ("datasets/digits/title", "a\nb", "storage.datasets.digits.title: "),
        ("cephfs", {}, "storage.cephfs: must be whole where there are datasets"),
        ("cephfs/nodeSecret", "rook", "storage.cephfs.nodeSecret: must be a table"),
        ("cephfs/nodeSecret/name", "A B", "storage.cephfs.nodeSecret.name: 'A B' is no name"),
        ("cephfs/fsName", "", "storage.cephfs.fsName: '' must be one word"),
    ],
)
def test_nonsense_is_named_by_its_place(place: str, value: Any, sentence: str) -> None:
    with pytest.raises(StorageError) as caught:
        read_storage(put(place, value))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", ["path", "size"])
def test_a_dataset_needs_a_path_and_a_size(missing: str) -> None:
    without = {key: value for key, value in DIGITS.items() if key != missing}
    with pytest.raises(StorageError, match=rf"storage\.datasets\.digits\.{missing}: None is no"):
        read_storage(put("datasets/digits", without))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://rgw.example.org", "https://rgw.example.org"),
        ("http://10.1.2.3:7480/", "http://10.1.2.3:7480"),
        ("http://[fd00::1]:65535/s3/", "http://[fd00::1]:65535/s3"),
    ],
)
def test_an_endpoint_is_a_url_without_the_slash_at_its_end(url: str, endpoint: str) -> None:
    assert read_storage({"bucket": {"endpoint": url}}).bucket.endpoint == endpoint


def test_an_endpoint_may_wait_for_its_bucket_to_be_wanted() -> None:
    bucket = read_storage({"bucket": {"endpoint": "http://rgw:7480"}}).bucket
    assert bucket == BucketSettings(enabled=False, endpoint="http://rgw:7480")


def test_a_team_without_wishes_gets_what_the_release_offers_and_the_datasets_for_it() -> None:
    settings = read_storage(VALUES)
    assert settings.of_team("flight", {}) == settings
    assert settings.of_team("ops", {}).datasets == (DIGITS_OF_ALL,)


def test_a_teams_wishes_come_before_the_releases() -> None:
    spec = {
        "home": {"size": "30Gi"},
        "share": {"enabled": False},
        "scratch": {"size": "1Ti", "storageClass": "fast"},
        "bucket": {"size": "1Ti", "objects": 0},
    }
    settings = read_storage(VALUES)
    of_team = settings.of_team("ops", spec)
    assert (of_team.home, of_team.share, of_team.scratch) == (
        VolumeSettings(enabled=True, size="30Gi", storage_class="rook-cephfs"),
        VolumeSettings(enabled=False, size="50Gi", storage_class="rook-cephfs"),
        VolumeSettings(enabled=True, size="1Ti", storage_class="fast"),
    )
    assert of_team.bucket == BucketSettings(
        enabled=True,
        endpoint="http://rook-ceph-rgw-my-store.rook-ceph.svc",
        size="1Ti",
        objects=0,
        peers=settings.bucket.peers,
    )


@pytest.mark.parametrize(
    ("release", "wish", "given"),
    [
        ({"enabled": True, "endpoint": "http://rgw"}, {"enabled": False}, False),
        ({"enabled": False, "endpoint": "http://rgw"}, {"enabled": True}, True),
        ({"enabled": False, "endpoint": "http://rgw"}, {}, False),
        ({"enabled": False}, {"enabled": True}, False),
    ],
)
def test_a_bucket_needs_a_gateway_whatever_the_team_wants(
    release: dict[str, Any], wish: dict[str, Any], given: bool
) -> None:
    settings = read_storage({"bucket": release})
    assert settings.of_team("ops", {"bucket": wish}).bucket.enabled is given
