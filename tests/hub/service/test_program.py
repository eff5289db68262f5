"""The command `spectrum` of admins, leads and CI, on the real service."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.paths import CHECKOUT
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX
from tests.hub.service.conftest import Wall
from tests.hub.service.floor import GPU, HOUR, MINUTE, Floor, StartService, start_floor
from tests.hub.service.measuring import PrometheusStub
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "from spectrum_spawner.command.program import main; raise SystemExit(main())"


@dataclass(frozen=True)
class Shell:
    """A shell of somebody who has a token and the address of the service."""

    floor: Floor

    async def type(self, who: str, *words: str) -> tuple[int, str]:
        """The command's status, and what it printed."""
        environment = {
            **os.environ,
            "TZ": "UTC",
            "PYTHONPATH": str(CHECKOUT),
            "SPECTRUM_URL": f"{self.floor.running.url}{PREFIX}",
            "SPECTRUM_TOKEN": self.floor.hub.make_token(who),
        }
        command = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, *words),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await command.communicate()
        return command.returncode or 0, printed.decode().strip()

    async def read(self, who: str, *words: str) -> Any:
        code, printed = await self.type(who, *words, "--json")
        assert code == 0, printed
        return json.loads(printed)


@pytest_asyncio.fixture(loop_scope="module")
async def shell(
    start_service: StartService, hub: Hub, teams: dict[str, Team]
) -> AsyncIterator[Shell]:
    """Alice's server holds a GPU, does nothing, and has ten minutes left."""
    assert (await hub.call("POST", "/users/carol")).status == 201  # she is in no team
    assert (await hub.start_server("alice", GPU)).status == 201
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(start_service, stub, hub, teams["flight"])
        floor.idle()
        await floor.look()
        await floor.pass_idle(56 * MINUTE)
        yield Shell(floor)


async def test_who_holds_gpus_and_what_comes_is_printed(shell: Shell) -> None:
    code, printed = await shell.type("admin", "gpus")
    assert code == 0
    head, row = printed.splitlines()
    assert head.split()[:5] == ["STATE", "GPU", "COUNT", "TEAM", "SERVER"]
    assert row.split()[:5] == ["ending", "GPU", "1", "flight", "alice/"]
    answer = await shell.read("admin", "gpus", "--team", "flight", "--state", "ending")
    assert [(each["user"], each["rule"]) for each in answer["gpus"]] == [("alice", "gpu")]
    assert (await shell.read("admin", "gpus", "--state", "working"))["gpus"] == []
    # nobody sees more here than on the board
    assert (await shell.read("carol", "gpus"))["gpus"] == []
    code, printed = await shell.type("admin", "servers")
    assert (code, printed.splitlines()[1].split()[:2]) == (0, ["flight", "alice/"])


async def test_a_policy_is_tried_from_a_file_of_values(shell: Shell, tmp_path: Path) -> None:
    code, printed = await shell.type("admin", "cull", "--dry-run")
    assert code == 0
    assert printed.startswith("By the current policy: stop 0, warn 1, unknown-long 0, keep 0\n")
    rule = {"order": 1, "gpu": True, "idleMinutes": 30, "evidence": ["gpu", "kernels", "cpu"]}
    values = tmp_path / "values.yaml"
    for text in ({"culling": {"rules": {"short": rule}}}, {"rules": {"short": rule}}):
        values.write_text(json.dumps(text))
        answer = await shell.read("admin", "cull", "--dry-run", "--values", str(values))
        assert (answer["policy"], answer["counts"]["stop"]) == ("edited", 1)
        assert [each["rule"] for each in answer["servers"]] == ["short"]
    values.write_text(json.dumps({"rules": {"short": {**rule, "idleMinutes": -1}}}))
    code, printed = await shell.type("admin", "cull", "--dry-run", "--values", str(values))
    assert code == 1
    assert "culling.rules.short.idleMinutes: -1 is no whole number" in printed
    code, printed = await shell.type("alice", "cull", "--dry-run")
    assert (code, printed[:41]) == (1, "spectrum: What a policy would end is for ")


async def test_a_server_is_held_by_those_who_may_and_the_audit_tells(shell: Shell) -> None:
    until = (shell.floor.now + 2 * HOUR).strftime("%Y-%m-%d %H:%M")
    said = ("hold", "alice", "--until", until, "--reason", "a training")
    assert await shell.type("admin", *said) == (0, f"alice/ is held until {until} UTC.")
    (row,) = (await shell.read("admin", "gpus"))["gpus"]
    assert (row["state"], row["hold"]["reason"]) == ("held", "a training")
    assert await shell.type("admin", "hold", "alice/", "--end") == (
        0,
        "alice/ is not held any more.",
    )
    code, printed = await shell.type("admin", "hold", "alice/", "--end")
    assert (code, printed[:33]) == (1, "spectrum: Nobody holds this serve")
    assert (await shell.type("carol", *said))[0] == 1
    code, printed = await shell.type("admin", "audit", "--person", "alice", "--action", "hold")
    assert code == 0
    assert [line.split("  ")[-1] for line in printed.splitlines()[1:]] == [
        "The hold was ended.",
        f"It is held until {until} UTC: a training",
    ]
    newest = await shell.read("admin", "audit", "--all", "--action", "hold")
    assert [each["actor"] for each in newest["records"]] == ["user:admin", "user:admin"]


async def test_what_is_released_ends_and_what_is_not_is_told(shell: Shell) -> None:
    code, printed = await shell.type("admin", "release", "alice", "bob/none", "--reason", "demo")
    told = printed.splitlines()
    assert (code, told[0]) == (1, "alice/ ends.")
    assert told[1].startswith("bob/none: There is no such server")
    await shell.floor.hub.wait_absent("alice", within=10)
    assert await shell.floor.read("release") == [("release", "user:admin", "demo")]
    code, printed = await shell.type("alice", "release")
    assert (code, printed[:35]) == (1, "spectrum: Name servers as a list, o")
