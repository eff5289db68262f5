"""The command `spectrum` in the terminal of an idle server, on the real service."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from local.paths import CHECKOUT
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX
from tests.hub.service.conftest import Running, Wall
from tests.hub.service.floor import GPU, HOUR, MINUTE, Floor, start_floor
from tests.hub.service.measuring import PrometheusStub
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "from spectrum_lab.command import main; raise SystemExit(main())"


@dataclass(frozen=True)
class Terminal:
    """A terminal in alice's server, as far as the command is concerned."""

    floor: Floor

    async def type(self, *words: str) -> tuple[int, str]:
        """The command's status, and what it printed."""
        environment = {
            **os.environ,
            "TZ": "UTC",
            "PYTHONPATH": str(CHECKOUT / "images" / "spectrum_lab"),
            "SPECTRUM_URL": f"{self.floor.running.url}{PREFIX}",
            "JUPYTERHUB_API_TOKEN": self.floor.hub.find_spawner("alice").api_token,
            "JUPYTERHUB_USER": "alice",
            "JUPYTERHUB_SERVER_NAME": "",
        }
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, *words),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await command.communicate()
        return command.returncode or 0, printed.decode().strip()


@pytest_asyncio.fixture(loop_scope="module")
async def terminal(
    start_service: Callable[..., Awaitable[Running]], hub: Hub, teams: dict[str, Team]
) -> AsyncIterator[Terminal]:
    """Alice's server holds a GPU, does nothing, and has ten minutes left."""
    assert (await hub.start_server("alice", GPU)).status == 201
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start_service, stub, hub, teams["flight"])
        floor.idle()
        await floor.look()
        await floor.pass_idle(56 * MINUTE)
        yield Terminal(floor)


async def test_status_tells_the_end_that_is_near_and_keep_puts_it_off_once(
    terminal: Terminal,
) -> None:
    code, told = await terminal.type("status")
    assert code == 0
    assert "This server has done nothing since" in told
    assert "It ends at" in told
    assert told.endswith("`spectrum keep` keeps it.")
    code, told = await terminal.type("keep")
    assert (code, "It ends at" in told) == (0, False), told
    assert (await terminal.floor.read("extend"))[0][1] == "server:alice/"
    assert await terminal.type("keep") == (
        1,
        "spectrum: No end of this server is near, so there is nothing to extend.",
    )


async def test_a_hold_keeps_the_server_until_its_end(terminal: Terminal) -> None:
    until = terminal.floor.now + 2 * HOUR
    told = until.strftime("%Y-%m-%d %H:%M")
    code, printed = await terminal.type("hold", "--until", told, "--reason", "a training")
    assert (code, printed) == (0, f"This server is held until {told} UTC.")
    await terminal.floor.pass_idle(HOUR)
    assert await terminal.floor.hub.is_ready("alice")
    _, printed = await terminal.type("status")
    assert f"Held until {told} UTC by somebody in the server of alice: a training." in printed
    assert await terminal.type("hold", "--end") == (0, "This server is not held any more.")
    assert "Held" not in (await terminal.type("status"))[1]
    late = (until + 100 * HOUR).strftime("%Y-%m-%d %H:%M")
    code, printed = await terminal.type("hold", "--until", late)
    assert (code, printed[:41]) == (1, "spectrum: Rule gpu allows a hold until 20"), printed


async def test_release_ends_the_server_and_is_written_down(terminal: Terminal) -> None:
    assert await terminal.type("release", "--reason", "done") == (
        0,
        "This server ends now. Its files stay.",
    )
    await terminal.floor.hub.wait_absent("alice", within=10)
    assert await terminal.floor.read("release") == [("release", "server:alice/", "done")]
