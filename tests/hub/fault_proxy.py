"""An HTTP proxy before the API server that does what networks and servers do on a bad day.

Clients speak plain HTTP to it and send a bearer token; it passes both on by TLS. Every request is
recorded, so that a test can say how often somebody asked and what for.
"""

import asyncio
import json
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

_HOP_BY_HOP = ("Connection", "Content-Length", "Host", "Transfer-Encoding", "Accept-Encoding")
_WRITES = ("POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the API server; `grace` is a DELETE's grace period in seconds if given."""

    method: str
    path: str
    watch: bool = False
    grace: int | None = None

    def is_list(self, path: str) -> bool:
        return self.method == "GET" and self.path == path and not self.watch

    def is_watch(self, path: str) -> bool:
        return self.watch and self.path == path

    def is_create(self, path: str) -> bool:
        return self.method == "POST" and self.path == path

    def is_delete(self, path: str) -> bool:
        """Whether this deletes an object of the collection at `path`."""
        return self.method == "DELETE" and self.path.startswith(f"{path}/")


Match = Callable[[Call], bool]


@dataclass(kw_only=True)
class _Fault:
    """What happens to the next `times` calls that match; `times` is None for "until mended"."""

    match: Match
    times: int | None
    status: int | None = None  # answered instead of the server's; None with `reset`
    retry_after: int | None = None
    reset: bool = False
    delay: float = 0.0  # seconds between the server's answer and ours


@dataclass(eq=False)
class _Stream:
    """One open watch on its way through the proxy."""

    call: Call
    transport: asyncio.Transport
    silent: bool = False
    cut: asyncio.Event = field(default_factory=asyncio.Event)


class FaultProxy:
    """Use as an async context manager; `server` is its URL."""

    def __init__(self, upstream: str, authority: Path) -> None:
        """`upstream` is the API server's URL, `authority` the certificate that signed its own."""
        self.calls: list[Call] = []
        self._upstream = upstream
        self._tls = ssl.create_default_context(cafile=authority)
        self._faults: list[_Fault] = []
        self._streams: set[_Stream] = set()
        self._transports: set[asyncio.Transport] = set()
        self._down = False
        self._port = 0

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.method in _WRITES and not _is_review(call)]

    def count(self, match: Match) -> int:
        return sum(map(match, self.calls))

    def refuse(
        self, match: Match, *, status: int, times: int | None = 1, retry_after: int | None = None
    ) -> Callable[[], None]:
        """Answer the next calls with an error; returns what mends it before its time.

        `retry_after` is the header of that name, in seconds.
        """
        return self._add(_Fault(match=match, times=times, status=status, retry_after=retry_after))

    def reset(self, match: Match, *, times: int | None = 1) -> Callable[[], None]:
        """Close the connection instead of an answer."""
        return self._add(_Fault(match=match, times=times, reset=True))

    def delay_answer(self, match: Match, seconds: float, *, times: int | None = 1) -> None:
        """Let the server commit the next calls, and hold its answer back."""
        self._add(_Fault(match=match, times=times, delay=seconds))

    def silence_watches(self) -> None:
        """Open watches stay open, and nothing comes through them any more."""
        for stream in self._streams:
            stream.silent = True

    def count_watches(self, path: str) -> int:
        """Watches of `path` that are open and not silenced."""
        return sum(s.call.path == path and not s.silent for s in self._streams)

    def cut_watches(self) -> None:
        """End open watches in the middle of a line, as a broken connection does."""
        for stream in self._streams:
            stream.cut.set()

    async def go_down(self) -> None:
        """Refuse connections and break those that are open, until `come_up`."""
        self._down = True
        await self._site.stop()
        for transport in list(self._transports):
            transport.abort()

    async def come_up(self) -> None:
        self._down = False
        await self._listen()

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        server = web.Server(self._handle, handler_cancellation=True)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        for transport in list(self._transports):
            transport.abort()
        await self._runner.cleanup()
        await self._session.close()

    async def _listen(self) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True)
        await self._site.start()
        self._port = self._runner.addresses[0][1]

    def _add(self, fault: _Fault) -> Callable[[], None]:
        self._faults.append(fault)
        return lambda: self._faults.remove(fault)

    def _take(self, call: Call) -> _Fault | None:
        for fault in self._faults:
            if fault.times != 0 and fault.match(call):
                if fault.times is not None:
                    fault.times -= 1
                return fault
        return None

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        if self._down:
            transport.abort()
        self._transports = {t for t in self._transports if not t.is_closing()} | {transport}
        body = await request.read()
        call = _read_call(request, body)
        self.calls.append(call)
        fault = self._take(call)
        if fault and fault.reset:
            transport.abort()
        if fault and fault.status:
            return _make_error(fault.status, fault.retry_after)
        headers = CIMultiDict(request.headers)
        for name in _HOP_BY_HOP:
            headers.popall(name, None)
        headers["Accept-Encoding"] = "identity"
        url = self._upstream + request.path_qs
        async with self._session.request(
            request.method, url, headers=headers, data=body or None
        ) as answer:
            if call.watch and answer.status == 200:
                return await self._stream(request, answer, _Stream(call, transport))
            content = await answer.read()
        if fault and fault.delay:
            await asyncio.sleep(fault.delay)
        kept = {k: v for k, v in answer.headers.items() if k not in _HOP_BY_HOP}
        return web.Response(status=answer.status, body=content, headers=kept)

    async def _stream(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, stream: _Stream
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        self._streams.add(stream)
        cut = asyncio.ensure_future(stream.cut.wait())
        copy = asyncio.ensure_future(self._copy(answer, response, stream))
        try:
            await asyncio.wait({cut, copy}, return_when=asyncio.FIRST_COMPLETED)
            if stream.cut.is_set():
                await response.write(b'{"type":"MODIFIED","object":{"kind":"Po')
                stream.transport.close()
        finally:
            self._streams.discard(stream)
            for task in (cut, copy):
                task.cancel()
            await asyncio.gather(cut, copy, return_exceptions=True)
        return response

    async def _copy(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, stream: _Stream
    ) -> None:
        async for chunk in answer.content.iter_any():
            if not stream.silent:
                await response.write(chunk)
        if stream.silent:
            await asyncio.Event().wait()


def _read_call(request: web.BaseRequest, body: bytes) -> Call:
    watch = request.query.get("watch", "").lower() in ("1", "true")
    grace = None
    if request.method == "DELETE":
        options = json.loads(body or b"null") or {}
        asked = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        grace = None if asked is None else int(asked)
    return Call(method=request.method, path=request.path, watch=watch, grace=grace)


def _is_review(call: Call) -> bool:
    """A POST that asks what one may do, and writes nothing."""
    return call.path.startswith("/apis/authorization.k8s.io/")


def _make_error(status: int, retry_after: int | None) -> web.Response:
    answer: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"the fault proxy answers {status}",
        "code": status,
    }
    if status == 410:
        answer["reason"] = "Expired"
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response(answer, status=status, headers=headers)
