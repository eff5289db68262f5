"""What a team's bucket is called, whose mark it bears, its quota, and its Secret."""

import base64
import re
from typing import Any

import pytest

from spectrum_spawner import names
from spectrum_spawner.controller.bucket import (
    Moved,
    Place,
    Wish,
    choose_quota,
    explain,
    find_place,
    find_usable,
    judge_quota,
    make_secret,
    make_wish,
    read_key,
    trim_secret,
)
from spectrum_spawner.controller.objects import TeamSpace, make_policies
from spectrum_spawner.controller.ownership import Taken
from spectrum_spawner.controller.rgw import UNLIMITED, Bucket, Key, Quota, Refused, Unreachable
from spectrum_spawner.controller.settings import NetworkRules
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.storage_settings import BucketSettings
from spectrum_spawner.kube import Refused as RefusedByKubernetes

SPACE = TeamSpace(
    hub_namespace="spectrum",
    team="flight",
    uid="uid-1",
    namespace="spectrum-flight",
    gid=100003,
)
SETTINGS = BucketSettings(enabled=True, endpoint="http://rgw.test", size="1Gi")
WISH = make_wish(SPACE, "uid-of-namespace", SETTINGS, rotation="")
KEY = Key(access="FLIGHT1", secret="not for logs")
OLD_PLACE = Place(endpoint="http://old.test", name="spectrum-flight-1")
OLD = Key(access="FLIGHT0", secret="void")
GIB = 1024**3
PEER = {"podSelector": {"matchLabels": {"app": "rook-ceph-rgw"}}}
BLOCK = {"ipBlock": {"cidr": "10.231.255.1/32"}}


def held(size: int = 0, objects: int = 0) -> Bucket:
    return Bucket(name=WISH.name, owner=WISH.name, size=size, objects=objects)


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_a_wish_names_the_team_and_its_namespace_in_the_object_store() -> None:
    wish = make_wish(SPACE, "uid-of-namespace", SETTINGS, rotation="")
    assert wish == Wish(
        enabled=True,
        name="spectrum-flight-7dcndq5pk7vwflwa",
        owner="Spectrum: team flight of the hub in spectrum, "
        "namespace spectrum-flight (uid-of-namespace)",
        endpoint="http://rgw.test",
        region="us-east-1",
        quota=Quota(size=GIB, objects=UNLIMITED),
        rotation="",
    )


@pytest.mark.parametrize("team", ["flight", "Größe & Co.", "x" * 200, "xn--7", "7", "a.b", "-"])
def test_every_team_gets_a_name_that_s3_takes(team: str) -> None:
    name = names.bucket(team, "uid-1")
    assert re.fullmatch(r"[a-z0-9][-a-z0-9]{1,61}[a-z0-9]", name)
    assert not name.startswith("xn--")


def test_namespaces_of_the_same_team_have_different_buckets() -> None:
    assert names.bucket("flight", "uid-1") != names.bucket("flight", "uid-2")


def test_a_secret_holds_what_s3_clients_read() -> None:
    assert make_secret(SPACE, WISH, KEY, keys_made="2026-03-01T12:00:00Z") == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": "spectrum-bucket",
            "namespace": "spectrum-flight",
            "labels": {
                "app.kubernetes.io/managed-by": "spectrum",
                "spectrum.dev/hub": "spectrum",
                "spectrum.dev/team": "flight",
            },
            "annotations": {
                "spectrum.dev/owner-hub": "spectrum",
                "spectrum.dev/owner-team": "flight",
                "spectrum.dev/owner-team-uid": "uid-1",
                "spectrum.dev/bucket": WISH.name,
                "spectrum.dev/endpoint": "http://rgw.test",
                "spectrum.dev/keys-made-at": "2026-03-01T12:00:00Z",
                "spectrum.dev/rotate-keys": "",
            },
        },
        "type": "Opaque",
        "data": {
            "AWS_ACCESS_KEY_ID": base64_of("FLIGHT1"),
            "AWS_SECRET_ACCESS_KEY": base64_of("not for logs"),
            "AWS_ENDPOINT_URL": base64_of("http://rgw.test"),
            "AWS_DEFAULT_REGION": base64_of("us-east-1"),
            "BUCKET_NAME": base64_of(WISH.name),
        },
    }


def test_a_key_is_read_back_from_its_secret() -> None:
    assert read_key(make_secret(SPACE, WISH, KEY)) == KEY
    assert read_key(make_secret(SPACE, WISH, None)) is None
    assert read_key({"data": {"AWS_ACCESS_KEY_ID": "%", "AWS_SECRET_ACCESS_KEY": "%"}}) is None


def test_what_is_secret_shows_neither_in_a_view_nor_when_printed() -> None:
    trimmed = trim_secret(make_secret(SPACE, WISH, KEY))
    for text in (repr(trimmed), repr(KEY), repr((KEY,))):
        assert "not for logs" not in text
        assert base64_of("not for logs") not in text


def test_a_digest_tells_when_a_secret_was_altered_and_not_when_only_its_version_changed() -> None:
    secret = make_secret(SPACE, WISH, KEY)
    rewritten = {**secret, "metadata": {**secret["metadata"], "resourceVersion": "7"}}
    assert trim_secret(rewritten) == trim_secret(secret)
    other = make_secret(SPACE, WISH, OLD)
    assert trim_secret(other)["digest"] != trim_secret(secret)["digest"]


@pytest.mark.parametrize("key", [KEY, None])
def test_a_secret_says_where_its_bucket_is_and_without_one_the_status_does(key: Key | None) -> None:
    before = {"name": "spectrum-flight-1", "endpoint": "http://old.test", "ready": True}
    assert find_place(make_secret(SPACE, WISH, key), before) == WISH.place
    assert find_place({"metadata": {}}, before) == OLD_PLACE
    assert find_place(None, before) == OLD_PLACE
    assert find_place(None, {}) is None


@pytest.mark.parametrize(
    ("keys", "in_secret", "usable"),
    [
        ((OLD, KEY), None, (OLD, KEY)),
        ((OLD, KEY), KEY, (KEY,)),
        # it was replaced in the object store by somebody else
        ((OLD,), KEY, (OLD,)),
        # a gateway that keeps secret keys to itself
        ((Key(access="FLIGHT1", secret=""),), KEY, (KEY,)),
        ((Key(access="FLIGHT1", secret=""),), None, ()),
        ((), KEY, ()),
    ],
)
def test_the_key_that_servers_know_stays_and_one_that_nobody_can_know_is_not_handed_out(
    keys: tuple[Key, ...], in_secret: Key | None, usable: tuple[Key, ...]
) -> None:
    assert find_usable(keys, in_secret) == usable


@pytest.mark.parametrize(
    ("wanted", "live", "size", "chosen"),
    [
        (GIB, UNLIMITED, 0, GIB),
        (2 * GIB, GIB, GIB, 2 * GIB),
        (GIB, 4 * GIB, GIB, GIB),
        (GIB, 4 * GIB, 2 * GIB, 2 * GIB),
        (GIB, UNLIMITED, 2 * GIB, 2 * GIB),
        # went over its limit by a little
        (GIB, 2 * GIB, 2 * GIB + 4096, 2 * GIB),
        (GIB, GIB, GIB + 4096, GIB),
        (UNLIMITED, GIB, GIB, UNLIMITED),
    ],
)
def test_a_quota_goes_down_to_what_the_bucket_holds_and_no_further(
    wanted: int, live: int, size: int, chosen: int
) -> None:
    quota = choose_quota(Quota(size=wanted), Quota(size=live), held(size))
    assert quota == Quota(size=chosen)
    same = choose_quota(Quota(objects=wanted), Quota(objects=live), held(objects=size))
    assert same == Quota(objects=chosen)


def test_a_quota_that_is_larger_than_wanted_is_explained() -> None:
    assert judge_quota(WISH, WISH.quota, held(GIB)) is None
    assert judge_quota(WISH, Quota(size=2 * GIB), held(2 * GIB)) == Finding(
        reason="Smaller",
        message=f"Bucket {WISH.name} holds 2 GiB, more than the 1 GiB that it may: nothing is "
        "deleted, and it takes no more until enough is.",
        is_problem=False,
    )


def test_what_is_in_the_way_is_told_with_its_remedy() -> None:
    found = {
        finding.reason: finding.message
        for finding in (
            explain(Taken("Somebody else's."), WISH),
            explain(Moved(OLD_PLACE, WISH.place), WISH),
            explain(Unreachable("GET http://rgw.test/admin/user: TimeoutError"), WISH),
            explain(Refused("GET /admin/user: 403 AccessDenied", "AccessDenied"), WISH),
            explain(RefusedByKubernetes("quota", status=403, reason="Forbidden"), WISH),
        )
    }
    assert found == {
        "BucketTaken": "Somebody else's.",
        "BucketMoved": "The team's bucket was http://old.test/spectrum-flight-1, and there is none "
        f"at http://rgw.test/{WISH.name}, where it is to be now. What was there is left alone, "
        "data and keys. Bring it back, or annotate the Team with "
        "spectrum.dev/leave-bucket=http://old.test/spectrum-flight-1 to go on without it.",
        "BucketUnreachable": f"Bucket {WISH.name}: the object store does not answer: "
        "GET http://rgw.test/admin/user: TimeoutError.",
        "BucketRefused": f"The object store refuses what bucket {WISH.name} needs: "
        "GET /admin/user: 403 AccessDenied. "
        "The controller's user there needs the caps users=* and buckets=*.",
        "SecretRefused": "Secret spectrum-bucket could not be written: 403 Forbidden quota",
    }


@pytest.mark.parametrize(
    ("endpoint", "peers", "rules"),
    [
        ("http://rgw.test", (PEER,), [{"to": [PEER]}]),
        (
            "http://10.231.255.1:7480",
            (BLOCK, PEER),
            [{"to": [PEER]}, {"to": [BLOCK], "ports": [{"protocol": "TCP", "port": 7480}]}],
        ),
        (
            "https://s3.test",
            (BLOCK,),
            [{"to": [BLOCK], "ports": [{"protocol": "TCP", "port": 443}]}],
        ),
        ("", (PEER,), []),
        ("https://s3.test", (), []),
    ],
)
def test_servers_reach_the_object_store_and_nothing_else_on_its_machine(
    endpoint: str, peers: tuple[Any, ...], rules: list[Any]
) -> None:
    network = NetworkRules(internet=False)
    before = make_policies(SPACE, network, BucketSettings())[1]["spec"]["egress"]
    after = make_policies(SPACE, network, BucketSettings(endpoint=endpoint, peers=peers))
    assert after[1]["spec"]["egress"] == [*before, *rules]
