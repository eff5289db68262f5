"""A team's bucket: its name, whose mark it bears, its quota and its Secret. Pure.

User and bucket in the object store have one name, in which the uid of the team's namespace
stands: the bucket belongs to the namespace as its claims do. So a Team that takes a namespace
over finds the bucket again, and no other one does, be it of a release, a cluster or a namespace of
the same name.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.objects import TeamSpace, make_metadata
from spectrum_spawner.controller.ownership import Taken, annotation
from spectrum_spawner.controller.rgw import UNLIMITED, Bucket, GatewayError, Key, Quota, Refused
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.storage_settings import BucketSettings
from spectrum_spawner.kube import Object
from spectrum_spawner.quantities import quantity

ANNOTATION_BUCKET = f"{names.API_GROUP}/bucket"  # name of the bucket that the Secret is about
ANNOTATION_ENDPOINT = f"{names.API_GROUP}/endpoint"  # URL of the object store that has it
ANNOTATION_KEYS_MADE = f"{names.API_GROUP}/keys-made-at"
# On a Team: the address of its bucket of before, which it is to do without from now on.
ANNOTATION_LEAVE = f"{names.API_GROUP}/leave-bucket"

_MEBIBYTE, _GIBIBYTE = 1024**2, 1024**3


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a bucket is: the object store's URL, and its name there."""

    endpoint: str
    name: str

    def __str__(self) -> str:
        return f"{self.endpoint}/{self.name}"


class Moved(Exception):  # noqa: N818 - says what happened
    """A team's bucket is to be at another place than its data are: somebody has to decide.

    That happens to a namespace that was made again, and to a release with another object store.
    """

    def __init__(self, old: Place, new: Place) -> None:
        super().__init__(
            f"The team's bucket was {old}, and there is none at {new}, where it is to be now. What "
            "was there is left alone, data and keys."
        )
        self.old = old


@dataclass(frozen=True, kw_only=True)
class BucketStatus:
    """What there is to say of a team's bucket: `status` is `status.storage.bucket` of the Team."""

    status: Mapping[str, Any] | None = None
    finding: Finding | None = None


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a team is to have: the bucket `name` in the object store, marked as `owner`'s.

    `rotation` is the text by which the Team asks for new keys, `leave` the address of a bucket
    that it does without; both are "" if it never did.
    """

    enabled: bool
    name: str
    owner: str
    endpoint: str
    region: str
    quota: Quota
    rotation: str = ""
    leave: str = ""

    @property
    def place(self) -> Place:
        return Place(endpoint=self.endpoint, name=self.name)


def make_wish(
    space: TeamSpace,
    namespace_uid: str,
    settings: BucketSettings,
    *,
    rotation: str = "",
    leave: str = "",
) -> Wish:
    """`settings` are those of this team."""
    return Wish(
        enabled=settings.enabled,
        name=names.bucket(space.team, namespace_uid),
        owner=make_owner(space.hub_namespace, space.team, space.namespace, namespace_uid),
        endpoint=settings.endpoint,
        region=settings.region,
        quota=Quota(size=int(quantity(settings.size)), objects=settings.objects or UNLIMITED),
        rotation=rotation,
        leave=leave,
    )


def make_owner(hub_namespace: str, team: str, namespace: str, namespace_uid: str) -> str:
    """The mark that a user in the object store bears, as its display name."""
    return (
        f"Spectrum: team {team} of the hub in {hub_namespace}, "
        f"namespace {namespace} ({namespace_uid})"
    )


def make_secret(space: TeamSpace, wish: Wish, key: Key | None, *, keys_made: str = "") -> Object:
    """What servers read their keys from; without a key it only says which bucket is kept.

    Values are base64, as the API server gives them back.
    """
    metadata = make_metadata(space)
    metadata["annotations"][ANNOTATION_BUCKET] = wish.name
    metadata["annotations"][ANNOTATION_ENDPOINT] = wish.endpoint
    if key is not None:
        metadata["annotations"][ANNOTATION_KEYS_MADE] = keys_made
        metadata["annotations"][names.ANNOTATION_ROTATE_KEYS] = wish.rotation
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": names.BUCKET_SECRET,
            "namespace": space.namespace,
            **metadata,
        },
        "type": "Opaque",
        "data": {} if key is None else _make_data(wish, key),
    }


def _make_data(wish: Wish, key: Key) -> dict[str, str]:
    values = {
        "AWS_ACCESS_KEY_ID": key.access,
        "AWS_SECRET_ACCESS_KEY": key.secret,
        "AWS_ENDPOINT_URL": wish.endpoint,
        "AWS_DEFAULT_REGION": wish.region,
        "BUCKET_NAME": wish.name,
    }
    return {name: base64.b64encode(text.encode()).decode() for name, text in values.items()}


def read_key(secret: Object) -> Key | None:
    """The key pair in a Secret, None if it holds none."""
    data = secret.get("data") or {}
    try:
        access, hidden = (
            base64.b64decode(data[name], validate=True).decode()
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        )
    except (KeyError, ValueError):
        return None
    return Key(access=access, secret=hidden)


def find_place(secret: Object | None, before: Mapping[str, Any]) -> Place | None:
    """Where a team's bucket was when it was right last, None if it never was.

    Its Secret knows, or else `before`, which is `status.storage.bucket` of its Team: a back-up may
    bring back one without the other.
    """
    marks = (ANNOTATION_ENDPOINT, ANNOTATION_BUCKET)
    endpoint, name = (annotation(secret, key) if secret else "" for key in marks)
    if not name:
        endpoint, name = before.get("endpoint", ""), before.get("name", "")
    return Place(endpoint=endpoint, name=name) if name else None


def find_usable(keys: tuple[Key, ...], held: Key | None = None) -> tuple[Key, ...]:
    """Keys of a user that can be handed out: that which a Secret holds, else those known whole.

    A gateway may give the access keys alone.
    """
    for key in keys:
        if held is not None and key.access == held.access and key.secret in ("", held.secret):
            return (held,)
    return tuple(key for key in keys if key.secret)


def trim_secret(secret: Object) -> Object:
    """A Secret without what is secret: `digest` tells whether anything in it changed."""
    metadata = secret["metadata"]
    kept = ("name", "namespace", "uid", "labels", "annotations", "deletionTimestamp")
    slim = {key: metadata[key] for key in kept if key in metadata}
    text = json.dumps([slim, secret.get("data")], sort_keys=True)
    return {"metadata": slim, "digest": hashlib.sha256(text.encode()).hexdigest()}


def choose_quota(wanted: Quota, live: Quota, held: Bucket) -> Quota:
    """The quota that a bucket gets: what is wanted, but never less than it holds."""
    return Quota(
        size=_choose(wanted.size, live.size, held.size),
        objects=_choose(wanted.objects, live.objects, held.objects),
    )


def _choose(wanted: int, live: int, held: int) -> int:
    if wanted == UNLIMITED or held <= wanted:
        return wanted
    # what went over a limit by a little does not move it
    return max(wanted, held if live == UNLIMITED else min(live, held))


def judge_quota(wish: Wish, quota: Quota, held: Bucket) -> Finding | None:
    """What is to be said of a quota that could not become as small as is wanted."""
    if quota == wish.quota:
        return None
    what = (
        f"{_show(held.size)}, more than the {_show(wish.quota.size)}"
        if quota.size != wish.quota.size
        else f"{held.objects} objects, more than the {wish.quota.objects}"
    )
    sentence = (
        f"Bucket {wish.name} holds {what} that it may: nothing is deleted, and it takes no more "
        "until enough is."
    )
    return Finding(reason="Smaller", message=sentence, is_problem=False)


def _show(size: int) -> str:
    if size >= _GIBIBYTE:
        return f"{size / _GIBIBYTE:.3g} GiB"
    return f"{size / _MEBIBYTE:.3g} MiB"


def explain(error: Exception, wish: Wish) -> Finding:
    """What is to be said of a look that failed: by Taken, Moved, a GatewayError or a KubeError."""
    if isinstance(error, Taken):
        return Finding(reason="BucketTaken", message=str(error))
    if isinstance(error, Moved):
        remedy = (
            f"Bring it back, or annotate the Team with {ANNOTATION_LEAVE}={error.old} to go on "
            "without it."
        )
        return Finding(reason="BucketMoved", message=f"{error} {remedy}")
    if isinstance(error, Refused):
        why = _WHY.get(error.code, "")
        sentence = f"The object store refuses what bucket {wish.name} needs: {error}. {why}"
        return Finding(reason="BucketRefused", message=sentence.rstrip())
    if isinstance(error, GatewayError):
        sentence = f"Bucket {wish.name}: the object store does not answer: {error}."
        return Finding(reason="BucketUnreachable", message=sentence)
    sentence = f"Secret {names.BUCKET_SECRET} could not be written: {error}"
    return Finding(reason="SecretRefused", message=sentence)


_WRONG_KEY = "Check AccessKey and SecretKey in the Secret that storage.bucket.secretName names."
# the gateway's word -> what an administrator does about it
_WHY = {
    "NoKey": _WRONG_KEY,
    "InvalidAccessKeyId": _WRONG_KEY,
    "SignatureDoesNotMatch": _WRONG_KEY,
    "AccessDenied": "The controller's user there needs the caps users=* and buckets=*.",
    "NoSuchBucket": "The Admin Ops API is not switched on at that address.",
    "RequestTimeTooSkewed": "The clocks of controller and object store differ.",
    "TooManyBuckets": "The team's user has a bucket of another name: remove that.",
}
