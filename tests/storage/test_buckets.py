"""Buckets of teams: the controller against a real kube-apiserver and a real radosgw."""

import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import botocore.exceptions
import pytest
import pytest_asyncio
import yaml

from local.control_plane import ControlPlane, control_plane
from local.paths import find_state
from spectrum_spawner import names
from spectrum_spawner.controller.bucket import BucketStatus, make_wish, read_key
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.provision import Order, Provision
from spectrum_spawner.controller.rgw import Gateway, Key, User
from spectrum_spawner.controller.storage_settings import BucketSettings
from spectrum_spawner.outbox import Outbox
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect
from tests.hub.controller import CHECKOUT, Controller, Teams, connected_client
from tests.storage.object_store import ObjectStore

HUB = "bucket-tests"
CLASS = "disk"  # of homes, which nobody makes here
SOON = 10.0  # seconds in which the controller has seen to a bucket
MIB = 1024**2


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, with a hub's namespace and Kubernetes' controllers."""
    with control_plane() as plane:
        plane.start_controller_manager()
        crd = yaml.safe_load((CHECKOUT / "helm/spectrum/crds/teams.yaml").read_text())
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        plane.api.apply(path, crd)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": HUB}}
        plane.api.apply(f"/api/v1/namespaces/{HUB}", namespace)
        kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
        disk = {**kind, "metadata": {"name": CLASS}, "provisioner": "nobody.test/disk"}
        plane.api.apply(f"/apis/storage.k8s.io/v1/storageclasses/{CLASS}", disk)
        deadline = time.monotonic() + 20
        while "Established" not in {
            c["type"] for c in plane.api.get(path).get("status", {}).get("conditions", [])
        }:
            assert time.monotonic() < deadline
        yield plane


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    conf = Path(os.environ.get("CEPH_CONF") or find_state() / "ceph/ceph.conf")
    store = ObjectStore(conf, tmp_path_factory.mktemp("object-store"), HUB)
    store.start()
    yield store
    store.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where controllers write, one after the other."""
    return tmp_path_factory.mktemp("controller")


@pytest.fixture(scope="module")
def controller(plane: ControlPlane, store: ObjectStore, directory: Path) -> Iterator[Controller]:
    with make_controller(plane, directory, store, store.endpoint) as controller:
        yield controller


def make_controller(
    plane: ControlPlane, directory: Path, store: ObjectStore, endpoint: str
) -> Controller:
    """A controller of a release whose gateway has that address, "" for none."""
    bucket = {"enabled": bool(endpoint), "endpoint": endpoint, "size": "8Mi"}
    storage = {"home": {"storageClass": CLASS}, "bucket": bucket}
    told = {"RGW_SECRETS": str(store.keys)}
    return Controller(plane, HUB, directory, storage=storage, environment=told)


class Buckets:
    """The buckets of a hub's teams, as their people and administrators see them."""

    def __init__(self, plane: ControlPlane, teams: Teams, store: ObjectStore) -> None:
        self.plane = plane
        self.teams = teams
        self.store = store

    def secret_path(self, team: str) -> str:
        return f"/api/v1/namespaces/{self.teams.namespace(team)}/secrets/{names.BUCKET_SECRET}"

    async def find_secret(self, team: str) -> dict[str, Any] | None:
        return await self.teams.cluster.find(self.secret_path(team))

    async def find_key(self, team: str) -> Key | None:
        secret = await self.find_secret(team)
        return None if secret is None else read_key(secret)

    async def name(self, team: str) -> str:
        namespace = await self.teams.find_namespace(team)
        assert namespace is not None
        return names.bucket(team, namespace["metadata"]["uid"])

    async def create(self, team: str, **spec: Any) -> str:
        """A Team with a bucket that is ready; returns the bucket's name."""
        await self.teams.create(team, **spec)
        await self.teams.wait_for(team, "Reconciled", within=3 * SOON)
        await self.wait_for(team, "Provided")
        return await self.name(team)

    async def set(self, team: str, **bucket: Any) -> None:
        """Change `spec.storage.bucket` of a Team."""
        changes = {"spec": {"storage": {"bucket": bucket}}}
        await self.teams.cluster.patch(self.teams.path(team), changes)

    async def switch_off(self, team: str) -> None:
        """Returns once nobody has access any more."""
        await self.set(team, enabled=False)

        async def is_off() -> bool:
            status, key = await self.status(team), await self.find_key(team)
            return status.get("ready") is False and key is None

        await wait_until(is_off, within=SOON, what=f"the end of access to team {team}'s bucket")
        await self.wait_for(team, "Provided")

    @asynccontextmanager
    async def told(
        self, controller: Controller, directory: Path, endpoint: str
    ) -> AsyncIterator[Controller]:
        """A controller of a release with that endpoint in place of the one that runs."""
        controller.stop()
        try:
            with make_controller(self.plane, directory, self.store, endpoint) as other:
                await other.wait_until_healthy()
                yield other
        finally:
            controller.start()
        await controller.wait_until_healthy()

    async def annotate_team(self, team: str, **annotations: str | None) -> None:
        await self._annotate(self.teams.path(team), annotations)

    async def ask_for_purge(self, team: str, text: str) -> None:
        await self._annotate(self.secret_path(team), {"purge": text})

    async def _annotate(self, path: str, annotations: Mapping[str, str | None]) -> None:
        marks = {f"spectrum.dev/{key}": value for key, value in annotations.items()}
        changes = {"metadata": {"annotations": marks}}
        await self.teams.cluster.patch(f"{path}?fieldManager=kubectl-annotate", changes)

    async def status(self, team: str) -> dict[str, Any]:
        storage = (await self.teams.get(team))["status"].get("storage") or {}
        return storage.get("bucket") or {}

    async def wait_for(self, team: str, reason: str, *, within: float = SOON) -> dict[str, Any]:
        """The Storage condition once it has that reason."""

        async def find() -> dict[str, Any] | None:
            conditions = (await self.teams.get(team)).get("status", {}).get("conditions", [])
            found = next((c for c in conditions if c["type"] == "Storage"), {})
            return found if found.get("reason") == reason else None

        return await wait_until(find, within=within, what=f"{reason} of team {team}'s bucket")

    async def wait_for_words(self, team: str, words: str) -> None:
        """Until the Storage condition holds these words."""

        async def is_told() -> bool:
            conditions = (await self.teams.get(team))["status"]["conditions"]
            return any(words in c["message"] for c in conditions if c["type"] == "Storage")

        await wait_until(is_told, within=2 * SOON, what=f"{words!r} in the status of team {team}")

    async def wait_for_new_key(self, team: str, old: Key | None) -> Key:
        async def find() -> Key | None:
            key = await self.find_key(team)
            return key if key != old else None

        return await wait_until(find, within=SOON, what=f"another key of team {team}")

    async def is_namespace_gone(self, team: str) -> bool:
        found = await self.teams.find_namespace(team)
        return found is None or "deletionTimestamp" in found["metadata"]

    async def connect(self, team: str) -> Any:
        """An S3 client with the key that the team's servers are given."""
        key = await self.find_key(team)
        assert key is not None
        return self.store.connect(key)


@pytest_asyncio.fixture
async def admin(plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with connect(plane) as admin:
        yield admin


@pytest_asyncio.fixture
async def buckets(
    plane: ControlPlane, admin: Cluster, controller: Controller, store: ObjectStore
) -> AsyncIterator[Buckets]:
    await controller.wait_until_healthy()
    yield Buckets(plane, Teams(admin, HUB), store)


def refusal(call: Any, **arguments: Any) -> str:
    """The object store's word for why it refuses a call."""
    with pytest.raises(botocore.exceptions.ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


def read(client: Any, bucket: str, key: str) -> bytes:
    return client.get_object(Bucket=bucket, Key=key)["Body"].read()


async def test_a_team_puts_and_gets_in_its_own_bucket_and_in_no_other(
    buckets: Buckets, store: ObjectStore
) -> None:
    own, other = await buckets.create("flight"), await buckets.create("ops")
    client = await buckets.connect("flight")
    client.put_object(Bucket=own, Key="a/b", Body=b"hello")
    upload = client.create_multipart_upload(Bucket=own, Key="large")["UploadId"]
    place = {"Bucket": own, "Key": "large", "UploadId": upload}
    parts = [
        {
            "PartNumber": number,
            "ETag": client.upload_part(**place, PartNumber=number, Body=body)["ETag"],
        }
        for number, body in enumerate((b"x" * 5 * MIB, b"y"), start=1)
    ]
    client.complete_multipart_upload(**place, MultipartUpload={"Parts": parts})
    assert read(client, own, "a/b") == b"hello"
    assert read(client, own, "large") == b"x" * 5 * MIB + b"y"
    assert [found["Name"] for found in client.list_buckets()["Buckets"]] == [own]

    assert refusal(client.list_objects_v2, Bucket=other) == "AccessDenied"
    assert refusal(client.put_object, Bucket=other, Key="a", Body=b"") == "AccessDenied"
    assert refusal(client.create_bucket, Bucket="of-nobody") == "AccessDenied"


async def test_status_and_secret_say_where_the_bucket_is(
    buckets: Buckets, store: ObjectStore
) -> None:
    name = await buckets.create("told")
    secret = await buckets.find_secret("told")
    assert secret is not None
    made = secret["metadata"]["annotations"]["spectrum.dev/keys-made-at"]
    assert await buckets.status("told") == {
        "name": name,
        "endpoint": store.endpoint,
        "ready": True,
        "keysMade": made,
    }
    assert store.admin("user", "info", f"--uid={name}")["max_buckets"] == -1


async def test_a_full_bucket_takes_no_more_until_it_may_hold_more(buckets: Buckets) -> None:
    name = await buckets.create("full", storage={"bucket": {"size": "1Mi"}})
    client = await buckets.connect("full")
    client.put_object(Bucket=name, Key="fits", Body=b"x" * MIB)
    assert refusal(client.put_object, Bucket=name, Key="more", Body=b"x") == "QuotaExceeded"
    await buckets.set("full", size="4Mi")

    async def takes_more() -> bool:
        try:
            client.put_object(Bucket=name, Key="more", Body=b"x" * MIB)
        except botocore.exceptions.ClientError:
            return False
        return True

    await wait_until(takes_more, within=SOON, what="room in the bucket")


async def test_a_quota_below_what_a_bucket_holds_deletes_nothing(
    buckets: Buckets, store: ObjectStore
) -> None:
    name = await buckets.create("shrunk", storage={"bucket": {"size": "4Mi", "objects": 10}})
    client = await buckets.connect("shrunk")
    for key in "ab":
        client.put_object(Bucket=name, Key=key, Body=b"x" * MIB)
    await buckets.set("shrunk", size="1Mi")
    told = await buckets.wait_for("shrunk", "Smaller")
    assert (told["status"], told["message"]) == (
        "True",
        f"Bucket {name} holds 2 MiB, more than the 1 MiB that it may: nothing is deleted, and "
        "it takes no more until enough is.",
    )
    quota = store.admin("user", "info", f"--uid={name}")["bucket_quota"]
    assert (quota["enabled"], quota["max_size"], quota["max_objects"]) == (True, 2 * MIB, 10)
    assert read(client, name, "a") == b"x" * MIB


async def test_new_keys_are_made_when_asked_for_and_the_old_one_is_void(
    buckets: Buckets, controller: Controller
) -> None:
    name = await buckets.create("leaky")
    old = await buckets.find_key("leaky")
    made = (await buckets.status("leaky"))["keysMade"]
    assert old is not None
    await buckets.annotate_team("leaky", **{"rotate-keys": "leaked in a notebook"})
    new = await buckets.wait_for_new_key("leaky", old)

    async def told() -> bool:
        return (await buckets.status("leaky")).get("rotation") == "leaked in a notebook"

    await wait_until(told, within=SOON, what="news of the new keys")
    status = await buckets.status("leaky")
    assert status["ready"]
    assert status["keysMade"] > made
    assert refusal(buckets.store.connect(old).list_objects_v2, Bucket=name) == "InvalidAccessKeyId"
    buckets.store.connect(new).put_object(Bucket=name, Key="a", Body=b"")
    assert controller.read_reasons("leaky")[-1] == (
        "manager:kubectl-annotate",
        f"The keys of bucket {name} of team leaky are replaced, as asked; those of before are "
        "void.",
    )
    # the same text asks for nothing again
    await buckets.set("leaky", size="9Mi")
    await buckets.wait_for("leaky", "Provided")
    assert await buckets.find_key("leaky") == new
    said = controller.read_log() + json.dumps(
        [await buckets.teams.get("leaky"), controller.read_records("leaky")]
    )
    assert old.secret not in said
    assert new.secret not in said


async def test_a_key_that_is_not_in_the_secret_is_void_once_the_bucket_is_looked_at(
    buckets: Buckets, store: ObjectStore
) -> None:
    name = await buckets.create("spare")
    store.admin("key", "create", f"--uid={name}", "--key-type=s3", "--gen-access-key")
    await buckets.set("spare", size="9Mi")

    kept = await buckets.find_key("spare")
    assert kept is not None

    def is_alone() -> bool:
        user = store.admin("user", "info", f"--uid={name}")
        return [key["access_key"] for key in user["keys"]] == [kept.access]

    await wait_until(is_alone, within=SOON, what="the end of the other key")


@pytest.mark.parametrize("how", ["deleted", "altered", "unlabelled"])
async def test_a_secret_that_somebody_touched_is_as_before(buckets: Buckets, how: str) -> None:
    await buckets.create(how)
    await buckets.annotate_team(how, **{"rotate-keys": "once"})
    await buckets.wait_for_new_key(how, await buckets.find_key(how))

    async def rotated() -> bool:
        return (await buckets.status(how)).get("rotation") == "once"

    await wait_until(rotated, within=SOON, what="news of the new keys")
    before = await buckets.find_secret(how)
    assert before is not None
    cluster, path = buckets.teams.cluster, buckets.secret_path(how)
    if how == "deleted":
        await cluster.delete(path)
    elif how == "altered":
        await cluster.patch(path, {"data": {"AWS_SECRET_ACCESS_KEY": "QUJD", "MORE": "QUJD"}})
    else:
        await cluster.patch(path, {"metadata": {"labels": None}, "data": None})

    async def restored() -> bool:
        after = await buckets.find_secret(how)
        return (
            after is not None
            and all(after.get(part) == before[part] for part in ("data", "type"))
            and after["metadata"]["labels"] == before["metadata"]["labels"]
        )

    await wait_until(restored, within=SOON, what="the Secret as it was")


async def test_a_bucket_that_is_switched_off_is_kept_without_access(
    buckets: Buckets, store: ObjectStore
) -> None:
    name = await buckets.create("paused")
    client = await buckets.connect("paused")
    client.put_object(Bucket=name, Key="a", Body=b"kept")
    await buckets.switch_off("paused")
    assert refusal(client.list_objects_v2, Bucket=name) == "InvalidAccessKeyId"
    assert store.admin("user", "info", f"--uid={name}")["keys"] == []

    await buckets.set("paused", enabled=True)
    await buckets.wait_for_new_key("paused", None)
    assert read(await buckets.connect("paused"), name, "a") == b"kept"


async def test_a_purge_needs_the_bucket_switched_off_and_its_whole_name(
    buckets: Buckets, store: ObjectStore, controller: Controller
) -> None:
    name = await buckets.create("doomed")
    (await buckets.connect("doomed")).put_object(Bucket=name, Key="a", Body=b"x")
    await buckets.ask_for_purge("doomed", name)

    async def forgotten() -> bool:
        secret = await buckets.find_secret("doomed")
        return secret is not None and "spectrum.dev/purge" not in secret["metadata"]["annotations"]

    await wait_until(forgotten, within=SOON, what="refusal of the purge")
    assert controller.read_reasons("doomed")[-1] == (
        "manager:kubectl-annotate",
        f"Bucket {name} of team doomed is not deleted, though a purge was asked for: its Team has "
        "it enabled.",
    )
    await buckets.switch_off("doomed")
    await buckets.ask_for_purge("doomed", name[:-1])
    assert name in store.list_buckets()
    await buckets.ask_for_purge("doomed", name)

    async def gone() -> bool:
        return await buckets.find_secret("doomed") is None and not await buckets.status("doomed")

    await wait_until(gone, within=SOON, what="the purge")
    assert name not in store.list_buckets()
    assert name not in store.list_users()
    assert controller.read_reasons("doomed")[-1] == (
        "manager:kubectl-annotate",
        f"Bucket {name} of team doomed is deleted with all that is in it, as asked.",
    )
    # one that is wanted again begins empty
    await buckets.set("doomed", enabled=True)
    await buckets.wait_for_new_key("doomed", None)
    assert (await buckets.connect("doomed")).list_objects_v2(Bucket=name)["KeyCount"] == 0


class Interrupted(Provision):
    """Somebody does something once no key is valid any more, and before the Secret says so."""

    def __init__(self, *known: Any, do: Callable[[], Awaitable[None]]) -> None:
        super().__init__(*known)
        self._do = do

    async def _remove_keys(self, user: User, *, but: Key | None) -> None:
        await super()._remove_keys(user, but=but)
        await self._do()


async def test_a_purge_that_is_asked_for_while_access_ends_is_heard(
    plane: ControlPlane,
    buckets: Buckets,
    store: ObjectStore,
    controller: Controller,
    tmp_path: Path,
) -> None:
    name = await buckets.create("hasty")
    team, namespace = await buckets.teams.get("hasty"), await buckets.teams.find_namespace("hasty")
    assert namespace
    space = TeamSpace(
        hub_namespace=HUB,
        team="hasty",
        uid=team["metadata"]["uid"],
        namespace=namespace["metadata"]["name"],
        gid=team["status"]["gid"],
    )
    settings = BucketSettings(endpoint=store.endpoint, size="8Mi")
    wish = make_wish(space, namespace["metadata"]["uid"], settings)
    order = Order(space=space, wish=wish, before={}, writer=None, leaver=None)
    gateway = Gateway(store.endpoint, settings.region, lambda: store.key)
    journal = Journal(Outbox(tmp_path / "audit.sqlite", "", ""))
    controller.stop()  # it would hear of it in its own way
    async with connected_client(plane) as client:
        ask = partial(buckets.ask_for_purge, "hasty", name)
        status, secret = await Interrupted(client, gateway, journal, do=ask).withdraw(order)
    await gateway.close()
    assert (status, secret) == (BucketStatus(), None)
    assert name not in store.list_users()
    assert await buckets.find_secret("hasty") is None
    controller.start()
    await controller.wait_until_healthy()


async def test_a_team_that_takes_its_namespace_over_finds_its_bucket(buckets: Buckets) -> None:
    name = await buckets.create("phoenix")
    client = await buckets.connect("phoenix")
    client.put_object(Bucket=name, Key="a", Body=b"kept")
    await buckets.teams.delete("phoenix")
    await buckets.teams.create("phoenix")
    await buckets.teams.wait_for("phoenix", "NamespaceOrphaned")
    assert read(client, name, "a") == b"kept"
    await buckets.annotate_team("phoenix", **{"adopt-orphan": buckets.teams.namespace("phoenix")})
    await buckets.wait_for("phoenix", "Provided")
    assert await buckets.name("phoenix") == name
    assert read(await buckets.connect("phoenix"), name, "a") == b"kept"


@pytest.mark.parametrize("what", ["bucket", "namespace", "namespace-without-secret"])
async def test_what_a_deleted_team_left_is_purged_by_name_alone(
    buckets: Buckets, store: ObjectStore, controller: Controller, what: str
) -> None:
    team = f"left-{what}"
    name = await buckets.create(team)
    (await buckets.connect(team)).put_object(Bucket=name, Key="a", Body=b"x")
    await buckets.teams.delete(team)

    async def orphaned() -> bool:
        return "spectrum.dev/orphaned-at" in await buckets.teams.annotations(team)

    await wait_until(orphaned, within=SOON, what="the mark of an orphan")
    assert name in store.list_buckets()
    if what == "bucket":
        await buckets.ask_for_purge(team, name)
    else:
        if what == "namespace-without-secret":
            await buckets.teams.cluster.delete(buckets.secret_path(team))
        await buckets.teams.annotate(team, purge=buckets.teams.namespace(team))

    async def gone() -> bool:
        kept = await buckets.find_secret(team)
        return kept is None if what == "bucket" else await buckets.is_namespace_gone(team)

    await wait_until(gone, within=2 * SOON, what="the purge")
    assert name not in store.list_buckets()
    assert name not in store.list_users()
    sentence = f"Bucket {name} of team {team} is deleted with all that is in it, as asked."
    assert sentence in [reason for _, reason in controller.read_reasons(team)]


@pytest.mark.parametrize("reason", ["no-gateway", "foreign"])
async def test_a_namespace_stays_until_its_bucket_can_be_purged(
    buckets: Buckets, store: ObjectStore, controller: Controller, reason: str, directory: Path
) -> None:
    team = f"stays-{reason}"
    name = await buckets.create(team)
    await buckets.teams.delete(team)

    async def orphaned() -> bool:
        return "spectrum.dev/orphaned-at" in await buckets.teams.annotations(team)

    await wait_until(orphaned, within=SOON, what="the mark of an orphan")
    endpoint = "" if reason == "no-gateway" else store.endpoint
    owner = store.admin("user", "info", f"--uid={name}")["display_name"]
    if reason == "foreign":
        store.admin("user", "modify", f"--uid={name}", "--display-name=Somebody else")
    async with buckets.told(controller, directory, endpoint) as other:
        await buckets.teams.annotate(team, purge=buckets.teams.namespace(team))
        why = {
            "no-gateway": "storage.bucket.endpoint is empty",
            "foreign": f"The object store has a user {name} that does not bear this team's mark; "
            "it is left alone.",
        }[reason]
        said = (
            f"Namespace {buckets.teams.namespace(team)} of team {team} stays, and what is in it: "
            f"its bucket cannot be deleted. {why}"
        )

        def is_said() -> bool:
            return said in [text for _, text in other.read_reasons(team)]

        await wait_until(is_said, within=SOON, what="the reason")
        assert not await buckets.is_namespace_gone(team)
    store.admin("user", "modify", f"--uid={name}", f"--display-name={owner}")
    await wait_until(
        lambda: buckets.is_namespace_gone(team), within=90, what="the purge of the namespace"
    )
    assert name not in store.list_buckets()


async def test_a_namespace_that_was_made_again_gets_another_bucket_only_by_its_old_ones_address(
    buckets: Buckets, store: ObjectStore, controller: Controller
) -> None:
    old = await buckets.create("again")
    client = await buckets.connect("again")
    client.put_object(Bucket=old, Key="a", Body=b"kept")
    path = f"/api/v1/namespaces/{buckets.teams.namespace('again')}"
    await buckets.teams.cluster.delete(path)
    told = await buckets.wait_for("again", "BucketMoved", within=60)
    new, address = await buckets.name("again"), f"{store.endpoint}/{old}"
    assert new != old
    assert told["message"] == (
        f"The team's bucket was {address}, and there is none at {store.endpoint}/{new}, where it "
        "is to be now. What was there is left alone, data and keys. Bring it back, or annotate the "
        f"Team with spectrum.dev/leave-bucket={address} to go on without it."
    )
    status = await buckets.status("again")
    assert (status["name"], status["ready"]) == (old, False)
    assert await buckets.find_secret("again") is None

    await buckets.annotate_team("again", **{"leave-bucket": f"{store.endpoint}/{new}"})
    assert new not in store.list_users()
    await buckets.annotate_team("again", **{"leave-bucket": address})
    await buckets.wait_for_new_key("again", None)
    await buckets.wait_for("again", "Provided")
    assert (await buckets.status("again"))["name"] == new
    assert read(client, old, "a") == b"kept"
    assert controller.read_reasons("again")[-1] == (
        "manager:kubectl-annotate",
        f"Team again goes on without bucket {address}, as asked: its data and keys are left there.",
    )


@pytest.mark.parametrize("has", ["the bucket", "no bucket"])
async def test_another_address_of_the_object_store_is_used_if_the_bucket_is_there(
    buckets: Buckets, store: ObjectStore, controller: Controller, has: str, directory: Path
) -> None:
    team = has.replace(" ", "-")
    name = await buckets.create(team)
    key = await buckets.find_key(team)
    other = store.endpoint.replace("127.0.0.1", "localhost")
    if has == "no bucket":
        store.admin("user", "rm", f"--uid={name}", "--purge-data")
    async with buckets.told(controller, directory, other):
        if has == "the bucket":

            async def is_used() -> bool:
                return (await buckets.status(team))["endpoint"] == other

            await wait_until(is_used, within=SOON, what="the other address")
        else:
            told = await buckets.wait_for(team, "BucketMoved")
            assert f"The team's bucket was {store.endpoint}/{name}, and" in told["message"]
            assert (await buckets.status(team))["endpoint"] == store.endpoint
            assert name not in store.list_users()
            # as long as nobody says go, no server loses what it has
            assert await buckets.find_key(team) == key
            await buckets.set(team, enabled=False)

            async def is_empty() -> bool:
                return await buckets.find_key(team) is None

            await wait_until(is_empty, within=SOON, what="the end of the keys in the Secret")
            assert (await buckets.wait_for(team, "BucketMoved"))["status"] == "False"


@pytest.mark.parametrize("what", ["user", "bucket", "Secret"])
async def test_what_is_somebody_elses_is_never_taken_over(
    buckets: Buckets, store: ObjectStore, what: str
) -> None:
    team = f"foreign-{what.lower()}"
    await buckets.teams.create_ready(team, storage={"bucket": {"enabled": False}})
    name = await buckets.name(team)
    namespace = buckets.teams.namespace(team)
    if what == "user":
        store.create_user(name)
    elif what == "bucket":
        store.connect(store.create_user(f"owner-of-{name}")).create_bucket(Bucket=name)
    else:
        secret = {"metadata": {"name": "spectrum-bucket"}, "data": {"MINE": "QUJD"}}
        await buckets.teams.cluster.create(f"/api/v1/namespaces/{namespace}/secrets", secret)
    await buckets.set(team, enabled=True)
    told = await buckets.wait_for(team, "BucketTaken")
    assert (told["status"], told["message"]) == (
        "False",
        {
            "user": f"The object store has a user {name} that does not bear this team's mark; it "
            "is left alone.",
            "bucket": f"The object store has a bucket {name} that belongs to user "
            f"owner-of-{name}; it is left alone.",
            "Secret": f"Secret spectrum-bucket in namespace {namespace} is not Spectrum's; it is "
            "left alone. Give it another name.",
        }[what],
    )
    secret = await buckets.find_secret(team)
    assert (secret and secret["data"]) == ({"MINE": "QUJD"} if what == "Secret" else None)
    # servers get the keys of what the status names
    assert await buckets.status(team) == {}
    if what == "user":
        assert store.admin("user", "info", f"--uid={name}")["display_name"] == "Somebody else"


async def test_a_controller_that_starts_again_leaves_what_is_right_alone(
    buckets: Buckets, controller: Controller
) -> None:
    await buckets.create("steady")
    await buckets.annotate_team("steady", **{"rotate-keys": "once"})
    await buckets.wait_for_new_key("steady", await buckets.find_key("steady"))

    async def versions() -> list[str]:
        found = [await buckets.teams.get("steady"), await buckets.find_secret("steady")]
        return [each["metadata"]["resourceVersion"] for each in found if each is not None]

    async def rotated() -> bool:
        return (await buckets.status("steady")).get("rotation") == "once"

    await wait_until(rotated, within=SOON, what="news of the new keys")
    before = await versions()
    controller.stop(kill=True)
    controller.start()
    await controller.wait_until_healthy()
    # teams are looked at in the order of their making, four at a time
    await buckets.create("newest")
    assert await versions() == before


async def test_wrong_keys_of_the_controller_are_named_and_replaced_without_a_restart(
    buckets: Buckets, store: ObjectStore
) -> None:
    store.write_keys(Key(access="unknown", secret="not for logs"))
    await buckets.teams.create_ready("locked")
    told = await buckets.wait_for("locked", "BucketRefused")
    assert "403 InvalidAccessKeyId. Check AccessKey and SecretKey" in told["message"]
    store.write_keys(store.create_user("powerless"))
    await buckets.wait_for_words("locked", "needs the caps users=* and buckets=*")
    (store.keys / "SecretKey").unlink()
    await buckets.wait_for_words("locked", "no key for the object store")
    store.write_keys()
    await buckets.wait_for("locked", "Provided", within=30)


async def test_a_gateway_that_is_down_stops_no_team_and_is_used_again_once_it_is_up(
    buckets: Buckets, store: ObjectStore
) -> None:
    await buckets.create("before")
    store.stop()
    # what was right is believed; nobody asks at every look
    await buckets.annotate_team("before", note="a change that is no business of the bucket's")
    await buckets.teams.create_ready("during")
    told = await buckets.wait_for("during", "BucketUnreachable")
    assert told["message"].startswith(
        f"Bucket {await buckets.name('during')}: the object store does not answer: "
        f"GET {store.endpoint}/admin/user: Cannot connect"
    )
    assert (await buckets.wait_for("before", "Provided"))["status"] == "True"
    await buckets.set("before", size="9Mi")
    await buckets.wait_for("before", "BucketUnreachable")
    store.start()
    for team in ("before", "during"):
        await buckets.wait_for(team, "Provided", within=60)
    name = await buckets.name("before")
    assert store.admin("user", "info", f"--uid={name}")["bucket_quota"]["max_size"] == 9 * MIB


async def test_a_gateway_that_hangs_delays_no_team(buckets: Buckets, store: ObjectStore) -> None:
    with store.hanging():
        await buckets.teams.create_ready("patient")
        told = await buckets.wait_for("patient", "BucketPending")
    name = await buckets.name("patient")
    assert (told["status"], told["message"]) == ("False", f"Bucket {name} is being looked at.")
    await buckets.wait_for("patient", "Provided")
