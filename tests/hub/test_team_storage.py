"""What a Team may say of storage, by the definition on a real kube-apiserver."""

import copy
from typing import Any

import pytest

from tests.hub.cluster import ApiError, Cluster, find_teams

FIRST: dict[str, Any] = {
    "storage": {
        "home": {"size": "10Gi", "storageClass": "rook-cephfs"},
        "share": {"enabled": True, "size": "50Gi", "storageClass": "rook-cephfs"},
        "scratch": {"enabled": False, "size": "1.5Ti", "storageClass": "rook-ceph-block"},
        "bucket": {"enabled": True, "size": "100Gi", "objects": 1000},
    },
    "quota": {"storage": {"rook-cephfs": {"size": "1Ti", "claims": 50}}},
}


@pytest.fixture
async def teams(cluster: Cluster, hub_namespace: str) -> str:
    """Path of the Team objects of a hub."""
    return find_teams(hub_namespace)


def put(place: str, value: Any) -> dict[str, Any]:
    """FIRST with another value at a place such as `storage/home/size`."""
    spec = copy.deepcopy(FIRST)
    *above, last = place.split("/")
    table = spec
    for key in above:
        table = table[key]
    table[last] = value
    return spec


def make_team(spec: dict[str, Any]) -> dict[str, Any]:
    kind = {"apiVersion": "spectrum.dev/v1alpha1", "kind": "Team"}
    return {**kind, "metadata": {"name": "flight"}, "spec": spec}


async def test_a_team_may_say_all_of_it(cluster: Cluster, teams: str) -> None:
    strict = f"{teams}?fieldValidation=Strict"
    assert (await cluster.create(strict, make_team(FIRST)))["spec"] == FIRST


BAD_SIZES = ["-1Gi", "0Gi", "0.5Gi", "1Ei", "10 GB", "10GB", "10", "", "9999999Gi", "1.0001Gi"]
VOLUMES = ["home", "share", "scratch"]


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        *(
            ("storage/home/size", size, "storage.home.size must be a size such as 512Mi or 10Gi")
            for size in BAD_SIZES
        ),
        *(
            (f"storage/{kind}/size", "1TB", f"storage.{kind}.size must be a size such as 512Mi")
            for kind in ("share", "scratch", "bucket")
        ),
        *((f"storage/{k}/storageClass", "Rook Ceph", "must name a StorageClass") for k in VOLUMES),
        ("storage/home/storageClass", "", "must name a StorageClass"),
        ("storage/share/enabled", "yes", "must be of type boolean"),
        ("storage/bucket/objects", -1, "greater than or equal to 0"),
        ("storage/bucket/objects", 1.5, "must be of type integer"),
        ("storage/home/size", 10, "must be of type string"),
        ("storage/home/size", "1" * 21, "may not be more than 20"),
        ("quota/storage/rook-cephfs/size", "1TB", "size in quota.storage must be a size such as"),
        ("quota/storage/rook-cephfs/claims", -1, "greater than or equal to 0"),
        ("quota/storage/rook-cephfs", {}, "should have at least 1 properties"),
        ("quota/storage/Fast Disks", {"claims": 1}, "keyed by names of StorageClasses"),
        ("quota/storage", {f"c{n}": {"claims": 1} for n in range(17)}, "at most 16 items"),
    ],
)
async def test_nonsense_is_refused_when_it_is_applied(
    cluster: Cluster, teams: str, place: str, value: Any, sentence: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        await cluster.create(teams, make_team(put(place, value)))
    assert refusal.value.status == 422
    assert sentence in str(refusal.value)


async def test_no_volume_of_a_team_shrinks(cluster: Cluster, teams: str) -> None:
    await cluster.create(teams, make_team(FIRST))
    for kind, less, had in (
        ("home", "10239Mi", "10Gi"),
        ("share", "9.9Gi", "50Gi"),
        ("scratch", "1535Gi", "1.5Ti"),
    ):
        change = {"spec": {"storage": {kind: {"size": less}}}}
        with pytest.raises(ApiError) as refusal:
            await cluster.patch(f"{teams}/flight", change)
        assert refusal.value.status == 422
        assert (
            f"storage.{kind}.size: {less} is less than {had}, and volumes grow but never shrink"
        ) in str(refusal.value)


async def test_volumes_of_a_team_grow_and_their_sizes_can_be_written_otherwise(
    cluster: Cluster, teams: str
) -> None:
    await cluster.create(teams, make_team(FIRST))
    for sizes in (
        {"home": "10240Mi", "share": "50Gi", "scratch": "1536Gi"},
        {"home": "10241Mi", "share": "1Ti", "scratch": "2Ti"},
    ):
        wanted = {kind: {"size": size} for kind, size in sizes.items()}
        team = await cluster.patch(f"{teams}/flight", {"spec": {"storage": wanted}})
        assert {kind: team["spec"]["storage"][kind]["size"] for kind in sizes} == sizes


async def test_a_bucket_may_be_given_less_and_a_class_may_change(
    cluster: Cluster, teams: str
) -> None:
    await cluster.create(teams, make_team(FIRST))
    change = {"home": {"storageClass": "fast"}, "bucket": {"size": "1Gi", "objects": 0}}
    team = await cluster.patch(f"{teams}/flight", {"spec": {"storage": change}})
    assert team["spec"]["storage"]["home"] == {"size": "10Gi", "storageClass": "fast"}
    assert team["spec"]["storage"]["bucket"] == {"enabled": True, "size": "1Gi", "objects": 0}


async def test_the_status_holds_where_the_storage_is(cluster: Cluster, teams: str) -> None:
    await cluster.create(teams, make_team({}))
    storage = {
        "share": {"claim": "share", "size": "50Gi", "phase": "Bound", "prepared": True},
        "scratch": {"size": "20Gi", "storageClass": "rook-ceph-block"},
        "datasets": [
            {"name": "digits", "title": "Digits", "claim": "dataset-digits", "size": "1Gi"}
        ],
        "withheld": [
            {"kind": "share", "name": "", "why": "share has no volume yet."},
            {"kind": "dataset", "name": "iris", "why": "Dataset iris is not bound."},
        ],
        "missingClasses": ["", "typo"],
        "bucket": {
            "name": "spectrum-flight",
            "endpoint": "http://rgw.rook-ceph.svc",
            "ready": True,
            "keysMade": "2026-01-31T09:14:00Z",
            "rotation": "January",
        },
    }
    team = await cluster.patch(f"{teams}/flight/status", {"status": {"storage": storage}})
    assert team["status"]["storage"] == storage
