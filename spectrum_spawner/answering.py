"""Waiting until a server that was just started answers.

JupyterHub waits as well once `start` has returned, but with pauses that grow to 5 s, in which a
server that has long been ready keeps its person waiting. Asked at a small fixed interval
before, it answers JupyterHub's first question.
"""

import asyncio

import aiohttp

INTERVAL = 0.1  # seconds between two questions
_LIMITS = aiohttp.ClientTimeout(total=5, sock_connect=2)


async def wait_for_answer(session: aiohttp.ClientSession, url: str) -> None:
    """Return at the first HTTP answer from `url`, of whatever status; bounded by the caller."""
    while not await is_answering(session, url):  # noqa: ASYNC110 - no event tells of a port
        await asyncio.sleep(INTERVAL)


async def is_answering(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(url, timeout=_LIMITS, allow_redirects=False):
            return True
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
