"""What the hub hears of visits to a server that is no JupyterLab: no image."""

import asyncio
import logging
from datetime import UTC, datetime

import pytest
from spectrum_lab.visits import Visits

from tests.images.hub import Hub, running_hub
from tests.images.server import make_environment

pytestmark = pytest.mark.asyncio

PATH = "/hub/api/users/alice/activity"


class Clock:
    """Seconds, as a test moves them."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_visits(port: int, clock: Clock) -> Visits:
    environment = make_environment(port, 1) | {"JUPYTERHUB_SERVER_NAME": "exp 1"}
    return Visits(environment, clock=clock)


async def count_after(visits: Visits, hub: Hub) -> int:
    """How often the hub was told, once the last word is there."""
    assert visits._telling is not None
    await visits._telling
    return len([path for path, _ in hub.posts if path == PATH])


async def test_the_hub_hears_at_once_and_again_of_whoever_stays() -> None:
    clock, began = Clock(), datetime.now(UTC)
    with running_hub() as hub:
        visits = make_visits(hub.server_port, clock)
        assert visits.note(None) is True
        assert await count_after(visits, hub) == 1
        ((path, body),) = hub.posts
        at = body["last_activity"]
        assert (path, body) == (
            PATH,
            {"servers": {"exp 1": {"last_activity": at}}, "last_activity": at},
        )
        assert began <= datetime.fromisoformat(at) <= datetime.now(UTC)
        clock.now += 29
        visits.note(None)
        assert await count_after(visits, hub) == 1
        clock.now += 1
        visits.note(None)
        assert await count_after(visits, hub) == 2


async def test_a_hub_that_does_not_answer_is_told_later(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with running_hub() as hub:
        port = hub.server_port
    visits = make_visits(port, clock)
    with caplog.at_level(logging.WARNING):
        visits.note(None)
        assert visits._telling is not None
        await asyncio.wait_for(visits._telling, 20)
    assert "The hub does not hear that somebody is here" in caplog.text
