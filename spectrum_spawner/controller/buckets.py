"""The buckets of all teams: which have to be looked at, and what is known of each.

The object store may be slow or down, so nobody waits for it: `ensure` says at once what is known,
and the work is done behind, a few teams at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.bucket import (
    ANNOTATION_LEAVE,
    BucketStatus,
    Moved,
    Place,
    Wish,
    explain,
    make_owner,
    make_wish,
    trim_secret,
)
from spectrum_spawner.controller.changes import find_annotator
from spectrum_spawner.controller.cluster import Cluster
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.ownership import Taken, annotation, is_of_team, is_to_be_purged
from spectrum_spawner.controller.provision import Order, Provision
from spectrum_spawner.controller.rgw import Gateway, GatewayError, Key, Refused
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.work import Work
from spectrum_spawner.kube import Client, KubeError, NotFound, Object, item

AT_ONCE = 4  # teams that the object store is asked about at the same time
LOOK_AGAIN = 1000.0  # seconds for which what was right is believed; below the controller's resync

_log = logging.getLogger("spectrum.controller")


@dataclass(frozen=True, kw_only=True)
class _Known:
    """What the last look at a team found. `digest` is that of its Secret, "" without one; `at` is
    None if the look did not succeed, and is being repeated."""

    wish: Wish
    digest: str
    status: BucketStatus
    at: float | None


class Buckets:
    """`on_change` is called with a team's name when there is something new to say of it."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        journal: Journal,
        settings: Settings,
        *,
        on_change: Callable[[str], None],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._settings = settings
        self._on_change = on_change
        bucket = settings.storage.bucket
        self._gateway = Gateway(bucket.endpoint, bucket.region, self._read_key)
        self._provision = Provision(client, self._gateway, journal)
        self._orders: dict[str, Order] = {}
        self._known: dict[str, _Known] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._work = Work(self._look)

    async def close(self) -> None:
        await self._work.close()
        await self._gateway.close()

    def ensure(self, team: Object, space: TeamSpace) -> BucketStatus:
        """What is known of a team's bucket now; what is not as it should be is seen to."""
        name = space.team
        namespace = self._cluster.namespaces.get(space.namespace)
        spec = team.get("spec") or {}
        storage = self._settings.storage.of_team(name, spec.get("storage") or {})
        if namespace is None:  # made a moment ago; its event brings us back
            return BucketStatus()
        wish = make_wish(
            space,
            namespace["metadata"]["uid"],
            storage.bucket,
            rotation=annotation(team, names.ANNOTATION_ROTATE_KEYS),
            leave=annotation(team, ANNOTATION_LEAVE),
        )
        before = ((team.get("status") or {}).get("storage") or {}).get("bucket") or {}
        digest = self._digest(space.namespace)
        if not wish.enabled and not digest and not before:
            self._forget(name)
            return BucketStatus()
        known = self._known.get(name)
        if known is None or not self._holds(known, wish, digest):
            self._orders[name] = Order(
                space=space,
                wish=wish,
                before=before,
                writer=find_annotator(team, names.ANNOTATION_ROTATE_KEYS),
                leaver=find_annotator(team, ANNOTATION_LEAVE),
            )
            self._work.add(name)
        if known is not None and known.wish.enabled == wish.enabled:
            return known.status
        if before.get("ready") and wish.enabled:
            return BucketStatus(status=before)
        pending = f"Bucket {wish.name} is being looked at."
        return BucketStatus(
            status=_make_unready(before), finding=Finding(reason="BucketPending", message=pending)
        )

    async def on_absence(self, namespace: Object) -> None:
        """Look after the bucket of a namespace whose Team is gone: kept, or purged as asked.

        A purge of the namespace takes the bucket with it. Raises a GatewayError, KubeError, Taken
        or Moved for what is in the way.
        """
        place, uid = namespace["metadata"]["name"], namespace["metadata"]["uid"]
        team, hub = annotation(namespace, names.ANNOTATION_TEAM), self._settings.hub_namespace
        self._forget(team)
        takes_all = is_to_be_purged(namespace)
        if not takes_all and not self._digest(place):
            return
        secret = await self._find_secret(place, team)
        endpoint = self._settings.storage.bucket.endpoint
        bucket = Place(endpoint=endpoint, name=names.bucket(team, uid))
        asking = namespace
        if not takes_all:
            if secret is None or annotation(secret, names.ANNOTATION_PURGE) != bucket.name:
                return
            asking = secret
        if secret is None and not endpoint:
            return  # nothing says that there ever was one
        owner = make_owner(hub, team, place, uid)
        manager = find_annotator(asking, names.ANNOTATION_PURGE)
        async with self._turn:
            await self._provision.purge(
                secret, team=team, place=bucket, owner=owner, manager=manager
            )

    async def _find_secret(self, namespace: str, team: str) -> Object | None:
        """The Secret of a team's bucket as it stands now; one of somebody else's is none."""
        path = item("v1", "secrets", names.BUCKET_SECRET, namespace=namespace)
        try:
            secret = await self._client.get(path)
        except NotFound:
            return None
        is_ours = is_of_team(secret, hub_namespace=self._settings.hub_namespace, team=team)
        return secret if is_ours else None

    def _holds(self, known: _Known, wish: Wish, digest: str) -> bool:
        """Whether a look would find what the last one found, or is going to be repeated anyway."""
        if (known.wish, known.digest) != (wish, digest):
            return False
        return known.at is None or asyncio.get_running_loop().time() - known.at < LOOK_AGAIN

    async def _look(self, name: str) -> None:
        order = self._orders.get(name)
        if order is None:
            return
        namespace = self._cluster.namespaces.get(order.space.namespace)
        if namespace is None or names.bucket(name, namespace["metadata"]["uid"]) != order.wish.name:
            self._forget(name)  # it went, and took what was wanted with it
            return
        digest = self._digest(order.space.namespace)
        provision = self._provision
        try:
            async with self._turn:
                act = provision.provide if order.wish.enabled else provision.withdraw
                status, secret = await act(order)
        except (GatewayError, KubeError, Taken, Moved) as error:
            finding = explain(error, order.wish)
            failed = BucketStatus(status=_make_failed(order.before, error), finding=finding)
            self._note(order, digest, failed, at=None)
            raise
        digest = trim_secret(secret)["digest"] if secret is not None else ""
        self._note(order, digest, status, at=asyncio.get_running_loop().time())

    def _note(self, order: Order, digest: str, status: BucketStatus, *, at: float | None) -> None:
        name = order.space.team
        if self._orders.get(name) is not order:
            return  # something else is wanted meanwhile, or nothing any more
        before = self._known.get(name)
        self._known[name] = _Known(wish=order.wish, digest=digest, status=status, at=at)
        # whoever asked since it was switched on or off was told that it is being looked at
        told = None if before is None else (before.wish.enabled, before.status)
        if told != (order.wish.enabled, status):
            self._on_change(name)

    def _forget(self, name: str) -> None:
        self._orders.pop(name, None)
        self._known.pop(name, None)

    def _digest(self, namespace: str) -> str:
        secret = self._cluster.bucket_secrets.get(f"{namespace}/{names.BUCKET_SECRET}")
        return "" if secret is None else secret["digest"]

    def _read_key(self) -> Key:
        """The controller's own key, which may be replaced at any time."""
        directory = self._settings.rgw_secrets
        try:
            access, secret = (
                (directory / name).read_text().strip() for name in ("AccessKey", "SecretKey")
            )
        except OSError as error:
            raise Refused(f"no key for the object store: {error}", "NoKey") from error
        return Key(access=access, secret=secret)


def _make_failed(before: Mapping[str, Any], error: Exception) -> dict[str, Any] | None:
    """`status.storage.bucket` after a look that did not succeed.

    Of what is somebody else's there is nothing to say, since servers would be given its keys.
    """
    if isinstance(error, Taken):
        return None
    if isinstance(error, Moved):
        old = {"name": error.old.name, "endpoint": error.old.endpoint}
        return {**before, **old, "ready": False}
    return _make_unready(before)


def _make_unready(before: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last place that was right is kept in mind, until there is another one."""
    return {**before, "ready": False} if before else None
