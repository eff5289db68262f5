"""Servers that are TensorBoards: one that nobody has looked at for long ends, told before."""

from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.profiles import TENSORBOARD
from spectrum_spawner.service import gpus
from spectrum_spawner.service.culling.policy import Cause
from spectrum_spawner.service.culling.policy_values import read_policy
from tests.hub.hub import Hub
from tests.hub.service.conftest import Wall
from tests.hub.service.floor import (
    ALICE,
    GPU,
    HOUR,
    MINUTE,
    RULES,
    Floor,
    StartService,
    start_floor,
)
from tests.hub.service.measuring import PrometheusStub
from tests.hub.spawners import FLIGHT, IMAGES, PROFILES
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

KNOWN = read_profiles(PROFILES, IMAGES)
BOARDS = {**KNOWN, "cpu-small": replace(KNOWN["cpu-small"], kind=TENSORBOARD)}
REST = {"order": 200, "idleMinutes": 0, "lifetimeMinutes": 10080}


@pytest_asyncio.fixture(loop_scope="module")
async def floor(
    start_service: StartService, hub: Hub, teams: dict[str, Team]
) -> AsyncIterator[Floor]:
    """Alice's TensorBoard in flight, which has run for an hour, without a Prometheus."""
    assert (await hub.start_server("alice", FLIGHT)).status == 201
    policy = read_policy({"rules": {**RULES, "rest": REST}}, BOARDS, measured=False)
    async with PrometheusStub(Wall()) as stub:
        floor = await start_floor(
            start_service, stub, hub, teams["flight"], policy=policy, prometheus_url=""
        )
        await floor.wait_seen()
        floor.running.wall.ahead += HOUR
        yield floor


async def pass_by(floor: Floor, time: timedelta) -> None:
    """Time goes by, and the hub is asked anew."""
    floor.running.context.snapshot.forget()
    await floor.look(later=time)


def visit(floor: Floor, hub: Hub) -> datetime:
    """Somebody looks at alice's server, and the hub hears of it."""
    at = floor.now
    hub.find_spawner("alice").orm_spawner.last_activity = at.astimezone(UTC).replace(tzinfo=None)
    hub.app.db.commit()
    return at


async def test_one_that_nobody_looked_at_for_hours_is_told_of_and_then_ends(
    floor: Floor, hub: Hub
) -> None:
    seen = visit(floor, hub)
    await pass_by(floor, MINUTE)
    assert floor.culler.round.verdicts[ALICE].cause is Cause.BUSY
    await pass_by(floor, 3 * HOUR)
    assert seen < floor.culler.round.verdicts[ALICE].idle_since < seen + 2 * MINUTE
    assert await floor.actions() == []

    await pass_by(floor, 50 * MINUTE)
    (notice,) = gpus.list_notices(floor.running.context)
    assert (notice["user"], notice["server"]) == ALICE
    assert "rule tensorboard ends what is idle for 4 h" in notice["text"]
    assert await hub.is_ready("alice")

    await pass_by(floor, 11 * MINUTE)
    await hub.wait_absent("alice", within=10)
    (warned, culled) = await floor.read()
    assert (warned[:2], culled[:2]) == (("warn", "service:spectrum"), ("cull", "service:spectrum"))
    details = await floor.details("cull")
    assert (details["rule"], details["cause"]) == ("tensorboard", "idle")
    assert [(each["source"], each["answer"], each["text"]) for each in details["evidence"]] == [
        ("hub", "idle", "no browser, no API")
    ]


async def test_whoever_looks_at_it_at_the_last_moment_keeps_it(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit(floor, hub)
    await pass_by(floor, 3 * HOUR + 55 * MINUTE)
    assert await floor.actions() == ["warn"]
    ask = floor.running.context.hub.find_people

    async def find_people(names: Iterable[str]) -> object:
        # longer ago than what is left alone in any case, and after the list that the look had
        visit(floor, hub)
        floor.running.wall.ahead += timedelta(seconds=20)
        return await ask(names)

    with monkeypatch.context() as patched:
        patched.setattr(floor.running.context.hub, "find_people", find_people)
        await pass_by(floor, 11 * MINUTE)
    assert await hub.is_ready("alice")
    await pass_by(floor, MINUTE)
    assert await floor.actions() == ["warn", "notice"]
    assert floor.culler.round.verdicts[ALICE].cause is Cause.BUSY


async def test_while_the_hub_does_not_tell_it_runs_on(floor: Floor, hub: Hub) -> None:
    visit(floor, hub)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(floor.running.context.hub, "_url", "http://127.0.0.1:9/hub")
        await pass_by(floor, 5 * HOUR)
        assert floor.culler.round.verdicts[ALICE].cause is Cause.UNKNOWN
    assert await floor.actions() == []
    assert await hub.is_ready("alice")


async def test_the_hub_is_asked_for_all_servers_only_where_one_is_a_tensorboard(
    floor: Floor, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ask = floor.running.context.hub.list_active

    async def list_active() -> object:
        asked.append(floor.now)
        return await ask()

    monkeypatch.setattr(floor.running.context.hub, "list_active", list_active)
    await pass_by(floor, MINUTE)
    assert len(asked) == 1
    assert (await hub.stop_server("alice")).status in (202, 204)
    await hub.wait_absent("alice", within=10)
    assert (await hub.start_server("alice", GPU)).status == 201
    await floor.wait_seen()
    await pass_by(floor, MINUTE)
    rule = floor.culler.round.verdicts[ALICE].rule
    assert (rule and rule.name, len(asked)) == ("gpu", 1)
