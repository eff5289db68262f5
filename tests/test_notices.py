"""Notices for the home page: from a service that answers, answers nonsense, or is away."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from spectrum_spawner.notices import Notice, Notices, notice_of_leaving, read_notices
from spectrum_spawner.teams import Team
from tests.hub.clock import Clock, wait_until

ENTRY = {
    "user": "alice",
    "server": "",
    "team": "ops",
    "text": "You are no longer in team Ops.",
    "at": "2026-01-31T09:14:00Z",
    "ends_at": "2026-01-31T10:14:00Z",
}
NOTICE = Notice(text="You are no longer in team Ops.", ends_at="2026-01-31T10:14:00Z")
OPS = Team(name="ops", uid="u", display_name="Ops", groups=frozenset({"ops", "admins"}))


def test_notices_are_found_by_user_and_server() -> None:
    second = {**ENTRY, "server": "second", "ends_at": None, "kind": "idle", "keep": True}
    assert read_notices({"notices": [ENTRY, second, ENTRY]}) == {
        ("alice", ""): [NOTICE, NOTICE],
        ("alice", "second"): [Notice(text=NOTICE.text, keep=True)],
    }


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"notices": 7},
        {"notices": ["a"]},
        {"notices": [{}]},
        {"notices": [{**ENTRY, "text": 7}]},
        {"notices": [{**ENTRY, "ends_at": 7}]},
    ],
)
def test_anything_else_is_no_answer(answer: Any) -> None:
    with pytest.raises(ValueError, match="not a"):
        read_notices(answer)


class Service:
    """A real HTTP server with notices, until it is told to fail."""

    def __init__(self) -> None:
        self.notices: Any = [ENTRY]
        self.status = 200
        self.bearers: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.bearers.append(request.headers["Authorization"])
        return web.json_response({"notices": self.notices}, status=self.status)


@pytest_asyncio.fixture
async def service() -> Service:
    return Service()


@pytest_asyncio.fixture
async def notices(service: Service) -> AsyncIterator[Notices]:
    app = web.Application()
    app.router.add_get("/internal/notices", service.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/internal/notices"
    yield Notices.shared(url, "secret")
    await Notices.close_shared()
    await runner.cleanup()


@pytest_asyncio.fixture
async def clock() -> Clock:
    return Clock(asyncio.get_running_loop())


async def test_what_the_service_says_is_known_within_ten_seconds(
    notices: Notices, service: Service, clock: Clock
) -> None:
    assert notices.of("alice", "") == []
    await wait_until(lambda: notices.of("alice", "") == [NOTICE], within=5)
    assert notices.of("bob", "") == notices.of("alice", "second") == []
    service.notices = []
    with clock.hurry(20):
        await wait_until(lambda: notices.of("alice", "") == [], within=11)
        await asyncio.sleep(60)
    assert 7 <= len(service.bearers) <= 9
    assert set(service.bearers) == {"Bearer secret"}


async def test_a_service_that_fails_is_believed_for_a_minute(
    notices: Notices, service: Service, clock: Clock
) -> None:
    await wait_until(lambda: notices.of("alice", "") == [NOTICE], within=5)
    service.status = 500
    with clock.hurry(20):
        await asyncio.sleep(45)
        assert notices.of("alice", "") == [NOTICE]
        await wait_until(lambda: notices.of("alice", "") == [], within=40)
    service.status, service.notices = 200, "nonsense"
    with clock.hurry(20):
        await asyncio.sleep(20)
        service.notices = [ENTRY]
        await wait_until(lambda: notices.of("alice", "") == [NOTICE], within=15)


async def test_without_a_service_there_are_none() -> None:
    notices = Notices("", "")
    await notices.run()
    assert notices.of("alice", "") == []


def test_the_hub_itself_tells_who_has_left_a_team() -> None:
    left = [Notice(text="You are no longer in team Ops, where this server runs.")]
    assert notice_of_leaving(OPS, "alice", ["flight"]) == left
    assert notice_of_leaving(OPS, "alice", []) == left


def test_a_team_that_one_is_in_or_nobody_knows_is_not_left() -> None:
    assert notice_of_leaving(OPS, "alice", ["admins"]) == []
    assert notice_of_leaving(None, "alice", []) == []
