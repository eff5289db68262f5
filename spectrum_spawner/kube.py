"""The few verbs on the Kubernetes API, and what its answers mean.

Objects are plain dicts and addressed by REST path (`collection`, `item`), so that custom
resources are handled like pods. Every failure is one of four, by what the caller has to do:

- `NotFound`: it is not there;
- `Conflict`: somebody else was first (`AlreadyExists`), or the object changed meanwhile;
- `Refused`: the API server understood and said no (quota, rights, validation): not worth a
  repeat, worth telling somebody; `reason` and `message` are the API server's own;
- `Unreachable`: nobody knows whether it happened (timeout, connection, 5xx, 429): ask again.
"""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote

import aiohttp
from kubernetes_asyncio import config
from kubernetes_asyncio.client import ApiClient, Configuration

R = TypeVar("R")
Object = dict[str, Any]

FIELD_MANAGER = "spectrum"
TIMEOUT = 10.0  # seconds that one request may take
LONGEST_PAUSE = 5.0  # seconds between two tries at most, unless the server asks for more


class KubeError(Exception):
    """An answer that is no success. `status` is the HTTP status, 0 when there was none."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason

    def __str__(self) -> str:
        return " ".join(
            part for part in (str(self.status or ""), self.reason, self.message) if part
        )


class NotFound(KubeError):  # noqa: N818 - reads as the answer that it is
    """The object, its namespace or its kind does not exist."""


class Conflict(KubeError):  # noqa: N818
    """The object changed meanwhile, or a precondition such as its uid does not hold."""


class AlreadyExists(Conflict):
    """An object of that name is there; whose it is has yet to be found out."""


class Refused(KubeError):  # noqa: N818
    """The API server said no: quota, rights, validation, admission."""


class Unreachable(KubeError):  # noqa: N818
    """No answer, or one that says "not now"; the request may or may not have been done."""

    def __init__(
        self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


def collection(api_version: str, plural: str, *, namespace: str | None = None) -> str:
    """REST path of a collection, e.g. `/api/v1/namespaces/flight/pods`."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    within = f"/namespaces/{quote(namespace, safe='')}" if namespace is not None else ""
    return f"{root}{within}/{plural}"


def item(
    api_version: str,
    plural: str,
    name: str,
    *,
    namespace: str | None = None,
    subresource: str = "",
) -> str:
    """REST path of one object or of its subresource, e.g. `…/teams/flight/status`."""
    path = f"{collection(api_version, plural, namespace=namespace)}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


async def load_configuration() -> Configuration:
    """How to reach the API server: the service account's way in a pod, else the kubeconfig."""
    configuration = Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        await config.load_kube_config(client_configuration=configuration)
    return configuration


class Backoff:
    """Pauses between tries: doubling from 0.1 s up to `longest`, with jitter, and reset at will."""

    def __init__(self, *, longest: float | None = None) -> None:
        self._longest = longest
        self._tries = 0

    def reset(self) -> None:
        self._tries = 0

    def next(self, *, at_least: float = 0.0) -> float:
        """Seconds to pause now; `at_least` is what the server asked for (`Retry-After`)."""
        longest = LONGEST_PAUSE if self._longest is None else self._longest
        pause = min(longest, 0.1 * 2 ** min(self._tries, 16))
        self._tries += 1
        return max(at_least, pause * random.uniform(0.5, 1.0))


async def persist(call: Callable[[], Awaitable[R]], *, tries: int | None = None) -> R:
    """Repeat a call while the API server is unreachable: `tries` times, or for ever.

    Only for calls whose repetition does no harm.
    """
    backoff = Backoff()
    while True:
        try:
            return await call()
        except Unreachable as error:
            if tries is not None:
                tries -= 1
                if tries <= 0:
                    raise
            await asyncio.sleep(backoff.next(at_least=error.retry_after))


class Parts(TypedDict, total=False):
    """What a request may have besides method and path; the content type is JSON by default."""

    query: Mapping[str, str] | None
    body: Object
    content_type: str


class Client:
    """A connection pool to one API server, without a limit on connections.

    Whoever watches has a client of its own, so that no watch can keep a request waiting. Made
    within a running event loop, and closed by `close`.
    """

    def __init__(self, configuration: Configuration | None = None) -> None:
        # a deep copy keeps the hook that re-reads a rotated service account token
        configuration = configuration or Configuration.get_default_copy()
        configuration.connection_pool_maxsize = 0
        self._api = ApiClient(configuration)

    async def close(self) -> None:
        await self._api.close()

    def to_dict(self, model: Any) -> Object:
        """The manifest that a model of kubernetes_asyncio stands for."""
        return self._api.sanitize_for_serialization(model)

    async def get(self, path: str, *, timeout: float = TIMEOUT) -> Object:
        return await self.request("GET", path, timeout=timeout)

    async def list(self, path: str, query: Mapping[str, str] | None = None) -> Object:
        """One page of a collection; the caller follows `metadata.continue`."""
        return await self.request("GET", path, query=query)

    async def create(self, path: str, manifest: Object, *, timeout: float = TIMEOUT) -> Object:
        return await self.request(
            "POST", path, body=manifest, query={"fieldManager": FIELD_MANAGER}, timeout=timeout
        )

    async def create_if_absent(self, path: str, manifest: Object) -> tuple[Object, bool]:
        """The object of the manifest's name as it now stands, and whether this call made it.

        An object that was there already is as yet anybody's: the caller compares the owner.
        """
        name = manifest["metadata"]["name"]
        while True:
            try:
                return await self.get(f"{path}/{quote(name, safe='')}"), False
            except NotFound:
                pass
            try:
                return await self.create(path, manifest), True
            except AlreadyExists:
                continue  # made by somebody else between the two calls

    async def apply(self, path: str, manifest: Object, *, force: bool = True) -> Object:
        """Server-side apply: the fields of the manifest are ours from now on."""
        return await self.request(
            "PATCH",
            path,
            body=manifest,
            query={"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"},
            content_type="application/apply-patch+yaml",
        )

    async def patch(self, path: str, body: Object) -> Object:
        """Merge patch (RFC 7386): a `None` removes a key."""
        return await self.request(
            "PATCH",
            path,
            body=body,
            query={"fieldManager": FIELD_MANAGER},
            content_type="application/merge-patch+json",
        )

    async def delete(self, path: str, *, uid: str | None = None, grace: int | None = None) -> bool:
        """Ask for deletion; False when there was nothing to delete.

        With `uid` only that very object is deleted: Conflict says that another one stands there.
        `grace` is in seconds, by default what the object itself says.
        """
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            await self.request("DELETE", path, body=options)
        except NotFound:
            return False
        return True

    async def request(
        self,
        method: str,
        path: str,
        *,
        timeout: float = TIMEOUT,
        **parts: Unpack[Parts],
    ) -> Object:
        """One request and its whole answer; raises a KubeError."""
        limits = aiohttp.ClientTimeout(total=timeout)
        async with self.stream(method, path, timeout=limits, **parts) as response:
            return json.loads(await response.read())

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        **parts: Unpack[Parts],
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer to one request while it comes in; raises a KubeError, also in the body."""
        content_type = parts.get("content_type", "application/json")
        try:
            response = await self._api.call_api(
                path,
                method,
                query_params=list((parts.get("query") or {}).items()),
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=parts.get("body"),
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=timeout,
            )
            async with response:
                if response.status >= 400:
                    raise _error(response, await response.read())
                yield response
        except (TimeoutError, aiohttp.ClientError, OSError, json.JSONDecodeError) as error:
            what = str(error) or type(error).__name__
            raise Unreachable(f"{method} {path}: {what}") from error


def _error(response: aiohttp.ClientResponse, body: bytes) -> KubeError:
    status = _status_object(body)
    message = status.get("message") or f"{response.method} {response.url.path}: {response.reason}"
    return error_of(
        response.status,
        reason=status.get("reason") or "",
        message=message,
        retry_after=_seconds(response.headers.get("Retry-After")),
    )


def error_of(status: int, *, reason: str, message: str, retry_after: float = 0.0) -> KubeError:
    """The KubeError for an HTTP status and the reason and message of a `Status` object."""
    if status == 404:
        return NotFound(message, status=status, reason=reason)
    if status == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        return kind(message, status=status, reason=reason)
    if status in (408, 429) or status >= 500:
        return Unreachable(message, status=status, reason=reason, retry_after=retry_after)
    return Refused(message, status=status, reason=reason)


def _status_object(body: bytes) -> Object:
    try:
        status = json.loads(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) else {}


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdigit() else 0.0
