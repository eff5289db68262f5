"""A real HTTP server that takes a webhook's events, refuses them, or is slow."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Receiver:
    """Answers with the first of `statuses` that are left, else 204; `got` are body and token."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    got: list[tuple[Any, str]] = field(default_factory=list)
    pause: float = 0.0

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.got.append((await request.json(), request.headers.get("Authorization", "")))
        await asyncio.sleep(self.pause)
        status = self.statuses.pop(0) if self.statuses else 204
        return web.Response(status=status, headers={"Location": "/elsewhere"})


@asynccontextmanager
async def running_receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    runner = web.ServerRunner(web.Server(receiver.answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    yield receiver
    await runner.cleanup()
