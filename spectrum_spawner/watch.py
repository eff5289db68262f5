"""A synced view of one kind of object: list, then watch, and never give up.

A view is the only thing that reads state from Kubernetes again and again; everybody else waits
on it. What it does not know it does not claim: before the first complete list `synced` is
False, and an outage later on keeps the last state and says so in `error` and `stale_since`.
"""

import asyncio
import json
import logging
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Generic, TypeVar

import aiohttp

from spectrum_spawner.kube import TIMEOUT, Backoff, Client, KubeError, Object, Refused, error_of

T = TypeVar("T")
R = TypeVar("R")

PAGE = 500  # objects a list request
WATCH_SECONDS = (300, 600)  # life of one watch, at random so that many views do not meet
# gone for good, or from a future that a restored etcd forgot
_EXPIRED = (400, 410, 504)
LONG_ENOUGH = 10.0  # seconds after which the end of a watch is nothing unusual
REFUSED_PAUSE = 30.0  # seconds at most between tries without rights; they may be given any time
SILENCE = 150.0  # seconds without a byte before a watch counts as dead: two bookmarks missed

_log = logging.getLogger("spectrum.watch")


class _Expired(Exception):  # noqa: N818
    """The API server no longer knows the resource version: only a new list helps."""


def name(obj: Object) -> str:
    """Key of an object within one namespace."""
    return obj["metadata"]["name"]


def namespaced_name(obj: Object) -> str:
    """Key of an object in a view over all namespaces: `namespace/name`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


class View(Generic[T]):
    """What is known of one collection: a mapping of key to trimmed object.

    `trim` turns an object into the record that is kept, and should keep little. `on_change` is
    called with (key, old, new) once a change is in the view; None stands for absent. Of changes
    that happen while the view cannot watch, only the sum is reported. `on_refused` is called
    each time the API server refuses the view, which then tries again all the same.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        trim: Callable[[Object], T],
        key: Callable[[Object], str] = name,
        label_selector: str = "",
        field_selector: str = "",
        on_change: Callable[[str, T | None, T | None], None] | None = None,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self.path = path
        self.error = ""
        self.stale_since: float | None = None
        self.last_heard: float | None = None
        self._client = client
        self._trim = trim
        self._key = key
        self._selectors = {
            parameter: value
            for parameter, value in (
                ("labelSelector", label_selector),
                ("fieldSelector", field_selector),
            )
            if value
        }
        self._on_change = on_change
        self._on_refused = on_refused
        self._objects: dict[str, T] = {}
        self._synced = False
        self._closed = False
        self._resource_version = ""
        self._backoff = Backoff()
        self._refusals = Backoff(longest=REFUSED_PAUSE)
        self._waiters: defaultdict[str | None, set[asyncio.Future[None]]] = defaultdict(set)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<View {self.path} synced={self._synced} objects={len(self._objects)}>"

    def start(self) -> None:
        """Begin to list and watch in the background; needs a running event loop."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Stop watching, and cancel whoever still waits: nothing will be known any more."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._wake_all()

    @property
    def synced(self) -> bool:
        """Whether a complete list was read: only then does absence mean anything."""
        return self._synced

    def get(self, key: str) -> T | None:
        return self._objects.get(key)

    def __iter__(self) -> Iterator[T]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def items(self) -> list[tuple[str, T]]:
        return list(self._objects.items())

    async def wait(
        self,
        predicate: Callable[[], R | None],
        *,
        key: str | None = None,
        timeout: float | None = None,
    ) -> R:
        """The first true answer of `predicate`, asked now and after each change.

        With `key` only changes of that object (and of the view's own health) ask again. Raises
        TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while True:
                if answer := predicate():
                    return answer
                if self._closed:
                    raise asyncio.CancelledError(f"{self!r} is closed")
                await self._changed(key)

    async def wait_synced(self, timeout: float | None = None) -> None:
        await self.wait(lambda: self._synced, timeout=timeout)

    async def _changed(self, key: str | None) -> None:
        waiter = asyncio.get_running_loop().create_future()
        waiters = self._waiters[key]
        waiters.add(waiter)
        try:
            await waiter
        finally:
            waiters.discard(waiter)
            if not waiters and self._waiters.get(key) is waiters:
                del self._waiters[key]

    async def _run(self) -> None:
        while True:
            try:
                if not self._resource_version:
                    await self._list()
                began = asyncio.get_running_loop().time()
                await self._watch()
                if asyncio.get_running_loop().time() - began > LONG_ENOUGH:
                    self._backoff.reset()
                # an end that came at once and brought nothing must not become a busy loop
                pause = self._backoff.next()
            except _Expired:
                self._resource_version = ""
                pause = self._backoff.next()
            except Refused as error:
                self._mark_stale(str(error))
                if self._on_refused is not None:
                    self._on_refused()
                pause = self._refusals.next()
            except KubeError as error:
                self._mark_stale(str(error))
                pause = self._backoff.next(at_least=getattr(error, "retry_after", 0.0))
            except Exception as error:
                # a view that ends is worse than any single object that cannot be read
                _log.exception("view of %s failed, listing again", self.path)
                self._resource_version = ""
                self._mark_stale(f"{type(error).__name__}: {error}")
                pause = self._backoff.next(at_least=1.0)
            await asyncio.sleep(pause)

    async def _list(self) -> None:
        found: dict[str, T] = {}
        query = {"limit": str(PAGE), **self._selectors}
        while True:
            try:
                page = await self._client.list(self.path, query)
            except KubeError as error:
                # 410 here says that the list took longer than its token lives
                if error.status == 410:
                    raise _Expired from error
                raise
            for obj in page.get("items") or []:
                found[self._key(obj)] = self._trim(obj)
            following = page["metadata"].get("continue")
            if not following:
                break
            query["continue"] = following
        self._heard()
        self._replace(found)
        self._resource_version = page["metadata"]["resourceVersion"]

    def _replace(self, found: dict[str, T]) -> None:
        before, self._objects = self._objects, found
        newly_synced, self._synced = not self._synced, True
        for key in before.keys() | found.keys():
            old, new = before.get(key), found.get(key)
            if old != new:
                self._report(key, old, new)
        if newly_synced:
            self._wake_all()

    async def _watch(self) -> None:
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._resource_version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),
            **self._selectors,
        }
        # connecting is bounded like any request, an open watch by silence alone
        limits = aiohttp.ClientTimeout(total=None, sock_connect=TIMEOUT, sock_read=SILENCE)
        opened = False
        try:
            async with self._client.stream("GET", self.path, query=query, timeout=limits) as answer:
                opened = True
                self._mark_fresh()
                async for line in _lines(answer):
                    self._heard()
                    self._take(json.loads(line))
        except KubeError as error:
            if error.status in _EXPIRED:
                raise _Expired from error
            if not opened:
                raise
            # cut or silent: only the next try tells whether anything is wrong
            _log.debug("watch of %s ended: %s", self.path, error)

    def _take(self, event: Object) -> None:
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise error_of(
                obj.get("code") or 500,
                reason=obj.get("reason") or "",
                message=obj.get("message") or "the watch ended with an error",
            )
        self._backoff.reset()
        self._resource_version = obj["metadata"]["resourceVersion"]
        if kind == "BOOKMARK":
            return
        key = self._key(obj)
        old = self._objects.get(key)
        if kind == "DELETED":
            self._objects.pop(key, None)
            self._report(key, old, None)
        else:
            new = self._objects[key] = self._trim(obj)
            if old != new:
                self._report(key, old, new)

    def _report(self, key: str, old: T | None, new: T | None) -> None:
        self._wake(key)
        self._wake(None)
        if self._on_change is not None:
            try:
                self._on_change(key, old, new)
            except Exception:
                _log.exception("on_change of the view of %s failed for %s", self.path, key)

    def _heard(self) -> None:
        self.last_heard = asyncio.get_running_loop().time()

    def _mark_fresh(self) -> None:
        self._heard()
        if self.stale_since is not None:
            _log.info("view of %s is up to date again", self.path)
            self.error, self.stale_since = "", None
            self._refusals.reset()
            self._wake_all()

    def _mark_stale(self, error: str) -> None:
        if self.stale_since is None:
            self.stale_since = asyncio.get_running_loop().time()
            _log.warning("view of %s keeps its last state: %s", self.path, error)
        if self.error != error:
            self.error = error
            self._wake_all()

    def _wake(self, key: str | None) -> None:
        for waiter in self._waiters.get(key) or ():
            if not waiter.done():
                waiter.set_result(None)

    def _wake_all(self) -> None:
        for key in list(self._waiters):
            self._wake(key)


async def _lines(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Whole lines of a stream; what is left of a line when the stream ends is dropped."""
    pending = bytearray()
    async for chunk in answer.content.iter_any():
        pending += chunk
        while (end := pending.find(b"\n")) >= 0:
            line = bytes(pending[:end])
            del pending[: end + 1]
            if line.strip():
                yield line
