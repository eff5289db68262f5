"""What the proxy is to a browser: one address for the hub and for the service."""

from typing import Self

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

_HOP_BY_HOP = ("Connection", "Content-Length", "Transfer-Encoding", "Content-Encoding")


class Front:
    """Use as an async context manager; `url` is its address, without a slash at the end."""

    def __init__(self, hub: str, service: str, prefix: str) -> None:
        """`hub` and `service` are addresses; to the latter goes what begins with `prefix`."""
        self._hub = hub
        self._service = service
        self._prefix = prefix

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        self._runner = web.ServerRunner(web.Server(self._pass_on), shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.BaseRequest) -> web.Response:
        to = self._service if request.path.startswith(self._prefix) else self._hub
        try:
            async with self._session.request(
                request.method,
                URL(to + request.raw_path, encoded=True),
                headers=_carried(request.headers),
                data=await request.read(),
                allow_redirects=False,
            ) as answer:
                body = await answer.read()
                headers = _carried(answer.headers)
                if encoding := answer.headers.get("Content-Encoding"):
                    headers["Content-Encoding"] = encoding
                return web.Response(status=answer.status, headers=headers, body=body)
        except aiohttp.ClientError:
            return web.Response(status=503, text="Service Unavailable")


def _carried(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    kept = CIMultiDict(headers)
    for name in _HOP_BY_HOP:
        kept.popall(name, None)
    return kept
