"""The few calls on a RADOS gateway: Admin Ops for users and quotas, S3 for making a bucket.

Failures are classed by what the caller has to do, and carry no key:

- `Unreachable`: nobody knows whether it happened (time limit, connection, 5xx): ask again;
- `Refused`: the gateway understood and said no, `code` is its own word for why.
"""

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

TIMEOUT = 10.0  # seconds that one call may take
PURGE_TIMEOUT = 600.0  # a bucket is emptied object by object; the gateway goes on without us
UNLIMITED = -1  # what the gateway calls no limit
NO_BUCKETS = -1  # limit of buckets by which a user cannot make any

# What the gateway calls a key that is to be removed and is not there.
_NO_KEY = "InvalidAccessKeyId"
_CODE = re.compile(rb"<Code>(\w+)</Code>")


class GatewayError(Exception):
    """A call that did not succeed."""


class Unreachable(GatewayError):  # noqa: N818 - reads as the answer that it is
    """No answer, or one that says "not now"."""


class Refused(GatewayError):  # noqa: N818
    """The gateway said no; `code` is e.g. `SignatureDoesNotMatch`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Key:
    """An S3 key pair."""

    access: str
    secret: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What a bucket may hold: bytes and objects, UNLIMITED for any amount."""

    size: int = UNLIMITED
    objects: int = UNLIMITED


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of the gateway; `quota` is that of each of its buckets."""

    name: str
    display_name: str
    keys: tuple[Key, ...]
    quota: Quota
    max_buckets: int
    suspended: bool = False


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket: the user it belongs to, and what it holds in bytes and objects."""

    name: str
    owner: str
    size: int
    objects: int


class Gateway:
    """One gateway at `endpoint`, asked as the user whose key `read_key` gives at each call.

    That user needs the caps `users=*` and `buckets=*`, and nothing else.
    """

    def __init__(self, endpoint: str, region: str, read_key: Callable[[], Key]) -> None:
        self._endpoint = endpoint
        self._region = region
        self._read_key = read_key
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def find_user(self, name: str) -> User | None:
        answer = await self._find("/admin/user", {"uid": name}, "NoSuchUser")
        return None if answer is None else _read_user(answer)

    async def create_user(self, name: str, display_name: str) -> User:
        """A user who may make one bucket; Refused `UserAlreadyExists` if the name is taken."""
        query = {"uid": name, "display-name": display_name, "max-buckets": "1"}
        return _read_user(await self._admin("PUT", "/admin/user", query))

    async def limit_buckets(self, name: str, limit: int) -> None:
        """Let a user have as many buckets, or NO_BUCKETS more than it has."""
        await self._admin("POST", "/admin/user", {"uid": name, "max-buckets": str(limit)})

    async def set_quota(self, name: str, quota: Quota) -> None:
        query = {
            "quota": "",
            "uid": name,
            "quota-type": "bucket",
            "max-size": str(quota.size),
            "max-objects": str(quota.objects),
            "enabled": "true",
        }
        await self._admin("PUT", "/admin/user", query)

    async def create_key(self, user: User) -> Key:
        """One more key of a user; the gateway makes it, so that no log sees it on its way."""
        answer = await self._admin("PUT", "/admin/user", {"key": "", "uid": user.name})
        known = {key.access for key in user.keys}
        return next(key for key in _read_keys(answer) if key.access not in known)

    async def remove_key(self, name: str, access: str) -> None:
        query = {"key": "", "uid": name, "access-key": access}
        await self._remove("/admin/user", query, _NO_KEY)

    async def remove_user(self, name: str) -> None:
        """Refused while the user has a bucket."""
        await self._remove("/admin/user", {"uid": name}, "NoSuchUser")

    async def find_bucket(self, name: str) -> Bucket | None:
        query = {"bucket": name, "stats": "true"}
        answer = await self._find("/admin/bucket", query, "NoSuchBucket")
        if answer is None:
            return None
        # unfinished uploads are counted by themselves; the quota counts whole blocks
        usage = (answer.get("usage") or {}).values()
        return Bucket(
            name=name,
            owner=answer["owner"],
            size=sum(part["size_actual"] for part in usage),
            objects=sum(part["num_objects"] for part in usage),
        )

    async def create_bucket(self, name: str, key: Key) -> None:
        """Make a bucket of the user whose key it is; Refused `BucketAlreadyExists` if taken."""
        await self._call("PUT", f"/{name}", {}, key)

    async def purge_bucket(self, name: str) -> None:
        """Delete a bucket with all that is in it; Unreachable while that goes on."""
        query = {"bucket": name, "purge-objects": "true"}
        await self._remove("/admin/bucket", query, "NoSuchBucket", timeout=PURGE_TIMEOUT)

    async def _find(self, path: str, query: Mapping[str, str], absent: str) -> Any:
        """The answer, None if the gateway refuses with the code `absent`."""
        try:
            return await self._admin("GET", path, query)
        except Refused as error:
            if error.code != absent:
                raise
            return None

    async def _remove(
        self, path: str, query: Mapping[str, str], absent: str, *, timeout: float = TIMEOUT
    ) -> None:
        try:
            await self._admin("DELETE", path, query, timeout=timeout)
        except Refused as error:
            if error.code != absent:
                raise

    async def _admin(
        self, method: str, path: str, query: Mapping[str, str], *, timeout: float = TIMEOUT
    ) -> Any:
        body = await self._call(method, path, query, self._read_key(), timeout=timeout)
        try:
            return json.loads(body) if body else None
        except ValueError as error:
            raise Unreachable(f"{self._endpoint} is no object gateway: no JSON comes") from error

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        key: Key,
        *,
        timeout: float = TIMEOUT,
    ) -> bytes:
        if not self._endpoint:
            raise Unreachable("storage.bucket.endpoint is empty")
        url = f"{self._endpoint}{path}"
        if query:
            url = f"{url}?{urlencode(query, quote_via=quote)}"
        headers = await asyncio.to_thread(_sign, method, url, key, self._region)
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.request(
                method,
                URL(url, encoded=True),
                headers=headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=timeout),
            ) as response:
                body = await response.read()
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(f"{method} {self._endpoint}{path}: {what}") from error
        if response.status >= 300:
            raise _make_error(f"{method} {path}", response.status, body)
        return body


def _sign(method: str, url: str, key: Key, region: str) -> dict[str, str]:
    """Headers of a request without a body that prove, by AWS's signature 4, whose key signed it."""
    # a release without buckets does without its 25 MB; the first import takes its time
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    request = AWSRequest(method, url, data=b"")
    S3SigV4Auth(Credentials(key.access, key.secret), "s3", region).add_auth(request)
    return dict(request.headers.items())


def _make_error(what: str, status: int, body: bytes) -> GatewayError:
    code = _find_code(body)
    if status == 429 or status >= 500 or not code:
        return Unreachable(f"{what}: {status} {code or 'from something that is no gateway'}")
    return Refused(f"{what}: {status} {code}", code)


def _find_code(body: bytes) -> str:
    """The gateway's own word for what is wrong; Admin Ops writes JSON, S3 XML."""
    if match := _CODE.search(body):
        return match[1].decode()
    try:
        answer = json.loads(body)
    except ValueError:
        return ""
    return str(answer.get("Code", "")) if isinstance(answer, dict) else ""


def _read_user(answer: Mapping[str, Any]) -> User:
    limits = answer["bucket_quota"]
    quota = Quota(size=limits["max_size"], objects=limits["max_objects"])
    return User(
        name=answer["user_id"],
        display_name=answer["display_name"],
        keys=_read_keys(answer["keys"]),
        quota=quota if limits["enabled"] else Quota(),
        max_buckets=answer["max_buckets"],
        suspended=bool(answer["suspended"]),
    )


def _read_keys(answer: list[Mapping[str, str]]) -> tuple[Key, ...]:
    return tuple(
        Key(access=each["access_key"], secret=each.get("secret_key", "")) for each in answer
    )
