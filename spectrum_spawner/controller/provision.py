"""What is done about one team's bucket, in the object store and in its Secret.

Every step may be repeated, so a look that ended half way is begun again. The order of steps keeps
three promises: once a look is over, no key is valid but the one in the Secret; nothing that is
not ours is touched; and nothing is deleted before that is written down.
"""

import hashlib
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.audit import format_moment
from spectrum_spawner.controller.bucket import (
    ANNOTATION_KEYS_MADE,
    BucketStatus,
    Moved,
    Place,
    Wish,
    choose_quota,
    find_place,
    find_usable,
    judge_quota,
    make_secret,
    read_key,
)
from spectrum_spawner.controller.changes import find_annotator
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.ownership import Taken, annotation, is_of_team
from spectrum_spawner.controller.rgw import NO_BUCKETS, Bucket, Gateway, Key, Refused, User
from spectrum_spawner.kube import Client, NotFound, Object, collection, item

_log = logging.getLogger("spectrum.controller")


@dataclass(frozen=True, kw_only=True)
class Order:
    """One team's wish. `before` is `status.storage.bucket` of its Team; `writer` and `leaver` are
    the field managers that asked for new keys and to leave a bucket, as far as that is known."""

    space: TeamSpace
    wish: Wish
    before: Mapping[str, Any]
    writer: str | None
    leaver: str | None


class Provision:
    """Carries out wishes. Raises GatewayError, KubeError, Taken or Moved for what is in the way.

    Each call returns what there is to say, and the Secret as it stands then.
    """

    def __init__(self, client: Client, gateway: Gateway, journal: Journal) -> None:
        self._client = client
        self._gateway = gateway
        self._journal = journal

    async def provide(self, order: Order) -> tuple[BucketStatus, Object | None]:
        """User, bucket, quota, and the Secret with the one key that is valid."""
        wish = order.wish
        secret = await self._get_secret(order.space)
        if secret is not None and annotation(secret, names.ANNOTATION_PURGE):
            secret = await self._refuse_purge(order, secret)
        user = await self._gateway.find_user(wish.name)
        is_new = user is None
        if user is None:
            self._check_place(order, secret)
            user = await self._gateway.create_user(wish.name, wish.owner)
        _check_user(user, wish.owner)
        if user.suspended:
            raise Refused(f"user {wish.name} is suspended", "UserSuspended")
        user, held = await self._ensure_bucket(user)
        quota = choose_quota(wish.quota, user.quota, held)
        if quota != user.quota:
            await self._gateway.set_quota(wish.name, quota)
        secret, key = await self._ensure_secret(order, user, secret, is_new=is_new)
        if annotation(secret, names.ANNOTATION_PURGE):
            secret = await self._refuse_purge(order, secret)  # asked for meanwhile
        await self._remove_keys(user, but=key)
        status = {**make_kept(wish), "ready": True, "keysMade": _keys_made(secret)}
        if wish.rotation:
            status["rotation"] = wish.rotation
        return BucketStatus(status=status, finding=judge_quota(wish, quota, held)), secret

    async def withdraw(self, order: Order) -> tuple[BucketStatus, Object | None]:
        """No access for anybody; the data stay, unless the Secret asks for a purge.

        The Secret stays without keys: it names the bucket, and is where a purge is asked for.
        """
        wish = order.wish
        secret = await self._get_secret(order.space)
        asked = secret is not None and annotation(secret, names.ANNOTATION_PURGE) == wish.name
        if secret is not None and asked:
            manager = find_annotator(secret, names.ANNOTATION_PURGE)
            team, place = order.space.team, wish.place
            with suppress(Moved):  # below it is said, unless that bucket is to be left anyway
                await self.purge(secret, team=team, place=place, owner=wish.owner, manager=manager)
                return BucketStatus(), None
        if secret is not None and secret.get("data"):
            secret = await self._write({**secret, "data": {}}, secret)
        user = await self._gateway.find_user(wish.name)
        if user is None:
            self._check_place(order, secret)
            if secret is not None:
                path = _path(order.space.namespace)
                await self._client.delete(path, uid=secret["metadata"]["uid"])
            return BucketStatus(), None
        _check_user(user, wish.owner)
        await self._remove_keys(user, but=None)
        kept = await self._write(make_secret(order.space, wish, None), secret)
        if not asked and annotation(kept, names.ANNOTATION_PURGE) == wish.name:
            return await self.withdraw(order)  # it was asked for after it was looked for
        return BucketStatus(status=make_kept(wish)), kept

    async def purge(
        self, secret: Object | None, *, team: str, place: Place, owner: str, manager: str | None
    ) -> None:
        """Delete user, bucket and all that is in it, and then the Secret that knew of it.

        Without a Secret nothing says that there was a bucket: a user of somebody else's is none
        of ours then.
        """
        name = place.name
        user = await self._gateway.find_user(name)
        old = find_place(secret, {})
        if user is None and old not in (None, place):
            raise Moved(old, place)
        if user is not None and (secret is not None or user.display_name == owner):
            _check_user(user, owner)
            bucket = await self._gateway.find_bucket(name)
            if bucket is not None:
                _check_bucket(bucket, name)
            sentence = f"Bucket {name} of team {team} is deleted with all that is in it, as asked."
            self._journal.on_bucket(
                team,
                sentence,
                id=f"{secret['metadata']['uid'] if secret else name}-purge",
                manager=manager,
            )
            _log.warning("team %s: purging bucket %s", team, name)
            # nobody writes into what is being deleted
            await self._remove_keys(user, but=None)
            await self._gateway.purge_bucket(name)
            await self._gateway.remove_user(name)
        if secret is not None:
            metadata = secret["metadata"]
            await self._client.delete(_path(metadata["namespace"]), uid=metadata["uid"])

    def _check_place(self, order: Order, secret: Object | None) -> None:
        """Raises Moved before another bucket takes the place of one that was left on purpose."""
        old, new = find_place(secret, order.before), order.wish.place
        if old in (None, new):
            return
        if order.wish.leave != str(old):
            raise Moved(old, new)
        team = order.space.team
        self._journal.on_bucket(
            team,
            f"Team {team} goes on without bucket {old}, as asked: its data and keys are left "
            "there.",
            id=f"{new.name}-leaves-{hashlib.sha256(str(old).encode()).hexdigest()[:20]}",
            manager=order.leaver,
        )

    async def _ensure_bucket(self, user: User) -> tuple[User, Bucket]:
        """The bucket of a user who may make no other one, and the user with a key at least."""
        bucket = await self._gateway.find_bucket(user.name)
        limit = user.max_buckets
        if bucket is None:
            if limit != 1:
                await self._gateway.limit_buckets(user.name, 1)
                limit = 1
            if not find_usable(user.keys):
                user = replace(user, keys=(*user.keys, await self._gateway.create_key(user)))
            _log.info("making bucket %s", user.name)
            await self._gateway.create_bucket(user.name, find_usable(user.keys)[0])
            bucket = Bucket(name=user.name, owner=user.name, size=0, objects=0)
        _check_bucket(bucket, user.name)
        if limit != NO_BUCKETS:
            await self._gateway.limit_buckets(user.name, NO_BUCKETS)
        return user, bucket

    async def _ensure_secret(
        self, order: Order, user: User, secret: Object | None, *, is_new: bool
    ) -> tuple[Object, Key]:
        held = read_key(secret) if secret is not None else None
        done = order.before.get("rotation", "")
        if secret is not None and held is not None:
            done = annotation(secret, names.ANNOTATION_ROTATE_KEYS)
        made = _keys_made(secret) or order.before.get("keysMade", "")
        usable = find_usable(user.keys, held)
        if is_new:
            key, made = usable[0], _now()
        elif usable and order.wish.rotation in ("", done):
            key, made = usable[0], made or _now()
        else:
            if usable:
                self._report_rotation(order, made)
            key, made = await self._gateway.create_key(user), _now()
        wanted = make_secret(order.space, order.wish, key, keys_made=made)
        return await self._write(wanted, secret), key

    async def _remove_keys(self, user: User, *, but: Key | None) -> None:
        for key in user.keys:
            if but is None or key.access != but.access:
                _log.info("user %s of the object store: an old key is removed", user.name)
                await self._gateway.remove_key(user.name, key.access)

    async def _get_secret(self, space: TeamSpace) -> Object | None:
        try:
            secret = await self._client.get(_path(space.namespace))
        except NotFound:
            return None
        if not is_of_team(secret, hub_namespace=space.hub_namespace, team=space.team):
            raise Taken(
                f"Secret {names.BUCKET_SECRET} in namespace {space.namespace} is not Spectrum's; "
                "it is left alone. Give it another name."
            )
        return secret

    async def _write(self, wanted: Object, live: Object | None) -> Object:
        """Make or mend the Secret. What it was is never logged."""
        namespace = wanted["metadata"]["namespace"]
        if live is None:
            return await self._client.create(
                collection("v1", "secrets", namespace=namespace), wanted
            )
        patch = mending_patch(live, wanted)
        if not patch:
            return live
        patch.setdefault("metadata", {})["uid"] = live["metadata"]["uid"]
        return await self._client.patch(_path(namespace), patch)

    async def _refuse_purge(self, order: Order, secret: Object) -> Object:
        """Forget a purge that was asked for while the bucket is in use, so that none waits."""
        metadata = secret["metadata"]
        self._journal.on_bucket(
            order.space.team,
            f"Bucket {order.wish.name} of team {order.space.team} is not deleted, though a purge "
            "was asked for: its Team has it enabled.",
            id=f"{metadata['uid']}-{metadata['resourceVersion']}-purge-refused",
            manager=find_annotator(secret, names.ANNOTATION_PURGE),
        )
        annotations = {names.ANNOTATION_PURGE: None}
        patch = {"metadata": {"uid": metadata["uid"], "annotations": annotations}}
        return await self._client.patch(_path(order.space.namespace), patch)

    def _report_rotation(self, order: Order, made: str) -> None:
        name, team = order.wish.name, order.space.team
        _log.info("team %s: new keys for bucket %s", team, name)
        self._journal.on_bucket(
            team,
            f"The keys of bucket {name} of team {team} are replaced, as asked; those of before "
            "are void.",
            id=f"{name}-keys-after-{made}",
            manager=order.writer,
        )


def make_kept(wish: Wish) -> dict[str, Any]:
    """`status.storage.bucket` of a bucket that nobody has access to."""
    return {"name": wish.name, "endpoint": wish.endpoint, "ready": False}


def _check_user(user: User, owner: str) -> None:
    if user.display_name != owner:
        raise Taken(
            f"The object store has a user {user.name} that does not bear this team's mark; it is "
            "left alone."
        )


def _check_bucket(bucket: Bucket, owner: str) -> None:
    if bucket.owner != owner:
        raise Taken(
            f"The object store has a bucket {bucket.name} that belongs to user {bucket.owner}; it "
            "is left alone."
        )


def _keys_made(secret: Object | None) -> str:
    return annotation(secret, ANNOTATION_KEYS_MADE) if secret is not None else ""


def _path(namespace: str) -> str:
    return item("v1", "secrets", names.BUCKET_SECRET, namespace=namespace)


def _now() -> str:
    return format_moment(datetime.now(UTC))
