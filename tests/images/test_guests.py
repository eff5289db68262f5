"""Open connections of people who lost access: closed, and nobody else's."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.images.hub import TOKEN, Hub
from tests.images.rootfs import RootFilesystem
from tests.images.server import Server, running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

ACCESS = ["access:servers!server=alice/"]
SOON = 20.0  # seconds, for looks that are 10 apart


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


@pytest.fixture
def server(root: RootFilesystem, home: Path, hub: Hub, tmp_path: Path) -> Iterator[Server]:
    """alice's server, in which bob and carol may be."""
    hub.visitors |= {"bob": ACCESS, "carol": ACCESS}
    log = tmp_path / "server.log"
    with running_server(root, home=home, hub_port=hub.server_port, log=log) as server:
        yield server


@asynccontextmanager
async def connected(
    server: Server, *tokens: str
) -> AsyncIterator[list[aiohttp.ClientWebSocketResponse]]:
    """Within this context these people have a websocket open, as JupyterLab's pages do."""
    url = f"http://127.0.0.1:{server.port}{server.prefix}api/events/subscribe"
    async with aiohttp.ClientSession() as session:
        yield [
            await session.ws_connect(url, headers={"Authorization": f"token {token}"})
            for token in tokens
        ]


async def wait_closed(channel: aiohttp.ClientWebSocketResponse, *, within: float) -> bool:
    """Whether the other side closes it within so many seconds."""
    try:
        async with asyncio.timeout(within):
            while (await channel.receive()).type not in (
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.CLOSING,
            ):
                pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("how", ["without the scope", "without a valid token"])
async def test_who_loses_access_is_cut_off_and_gets_in_no_more(
    server: Server, hub: Hub, how: str
) -> None:
    async with connected(server, "bob", "carol", TOKEN) as (bob, carol, alice):
        if how == "without the scope":
            hub.visitors["bob"] = []
        else:
            del hub.visitors["bob"]
        assert await wait_closed(bob, within=SOON)
        assert bob.close_code == 4403
        with pytest.raises(aiohttp.WSServerHandshakeError):
            async with connected(server, "bob"):
                pass
        assert not await wait_closed(carol, within=1)
        assert not await wait_closed(alice, within=1)


async def test_while_the_hub_does_not_answer_everybody_stays(server: Server, hub: Hub) -> None:
    async with connected(server, "bob") as (bob,):
        hub.broken = 503
        hub.visitors["bob"] = []
        assert not await wait_closed(bob, within=SOON)
        hub.broken = 0
        assert await wait_closed(bob, within=SOON)
