"""Reading servers from the hub: in pages, at most every few seconds, and honest about its age."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from yarl import URL

from spectrum_spawner.service import hub as hub_module
from spectrum_spawner.service.hub import Hub, HubError
from spectrum_spawner.service.servers import Person
from spectrum_spawner.service.settings import Settings
from spectrum_spawner.service.snapshot import Snapshot
from tests.hub import hub as hub_of_tests
from tests.hub.service.place import POOR_TOKEN

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module")
async def asking(settings: Settings) -> AsyncIterator[Hub]:
    """A connection to the hub with the service's token."""
    async with Hub(settings.api_url, settings.api_token) as asking:
        yield asking


@pytest_asyncio.fixture(loop_scope="module")
async def running(hub: hub_of_tests.Hub) -> hub_of_tests.Hub:
    """A hub with a server of alice and two of bob; admin has none."""
    for name, server in (("alice", ""), ("bob", ""), ("bob", "gpu")):
        assert (await hub.start_server(name, server=server)).status == 201
    return hub


class CountingHub(Hub):
    """Counts how often it is asked for the list."""

    lists = 0

    async def list_active(self) -> list[Person]:
        self.lists += 1
        return await super().list_active()


async def ask_people(
    hub: hub_of_tests.Hub, query: str, token: str, names: object = None
) -> dict[str, Any]:
    """The hub's page about everybody, or about `names`."""
    url = URL(f"{hub.url.removesuffix('/api')}/spectrum/people{query}")
    headers = {"Authorization": f"token {token}"}
    body = names and {"names": names}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.request("POST" if body else "GET", url, json=body) as answer,
    ):
        found: dict[str, Any] = await answer.json()
        return found


def titles(people: list[Person]) -> list[str]:
    return [server.title for person in people for server in person.servers]


@pytest.mark.parametrize("page", [1, 2, 200])
async def test_everybody_with_a_server_is_found_whatever_the_pages(
    running: hub_of_tests.Hub, asking: Hub, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "PAGE", page)
    people = await asking.list_active()
    assert titles(people) == ["alice", "bob", "bob/gpu"]
    assert [person.groups for person in people] == [{"flight"}, {"flight", "ops"}]
    (server, *_) = people[0].servers
    assert (server.team, server.profile, server.pending) == ("flight", "cpu-small", "")
    assert server.started is not None


async def test_somebody_without_a_server_is_found_by_name(
    running: hub_of_tests.Hub, asking: Hub
) -> None:
    assert await asking.find_person("admin") == Person(name="admin", groups=frozenset({"ops"}))
    assert await asking.find_person("nobody") is None


async def test_of_many_the_hub_is_asked_together(
    running: hub_of_tests.Hub, asking: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "PAGE", 2)
    people, unreadable = await asking.find_people(["bob", "nobody", "admin", "alice", "bob"])
    assert list(people) == ["admin", "alice", "bob"]
    assert list(people.values()) == [await asking.find_person(name) for name in people]
    assert titles(list(people.values())) == ["alice", "bob", "bob/gpu"]
    assert unreadable == {}


async def test_nobody_is_missed_by_what_ends_between_two_pages(
    running: hub_of_tests.Hub, settings: Settings
) -> None:
    first = await ask_people(running, "?limit=1", settings.api_token)
    assert [model["name"] for model in first["people"]] == ["alice"]
    await running.stop_server("alice")
    await running.wait_absent("alice", within=10)
    second = await ask_people(running, f"?limit=1&after={first['after']}", settings.api_token)
    assert [model["name"] for model in second["people"]] == ["bob"]
    last = await ask_people(running, f"?after={second['after']}", settings.api_token)
    assert last == {"people": [], "after": None}


async def test_a_server_that_starts_or_stops_says_so(
    running: hub_of_tests.Hub, asking: Hub
) -> None:
    spawner = running.find_spawner("bob", "gpu")
    for pending in ("spawn", "stop"):
        setattr(spawner, f"_{pending}_pending", True)
        person = await asking.find_person("bob")
        setattr(spawner, f"_{pending}_pending", False)
        assert person
        assert [server.pending for server in person.servers] == ["", pending]


@pytest.mark.parametrize(
    ("query", "names", "sentence"),
    [
        ("?after=-1", None, "after must be a number from 0 on."),
        ("?after=", None, "after must be a number from 0 on."),
        ("?after=" + "9" * 19, None, "after must be a number from 0 on."),
        ("?limit=\u0663", None, "limit must be a number from 1 on."),
        ("?limit=0", None, "limit must be a number from 1 on."),
        ("", "bob", "names must be a list of texts."),
        ("", ["bob", 7], "names must be a list of texts."),
        ("", ["bob"] * 1001, "Ask for 1000 people at most."),
    ],
)
async def test_a_question_that_cannot_be_meant_is_refused(
    running: hub_of_tests.Hub, settings: Settings, query: str, names: object, sentence: str
) -> None:
    shown = await ask_people(running, query, settings.api_token, names)
    assert (shown["status"], shown["message"]) == (400, sentence)


async def test_of_everybody_it_tells_nobody_who_may_not_read_that(
    running: hub_of_tests.Hub,
) -> None:
    for token in (running.make_token("alice"), running.find_spawner("alice").api_token):
        for names in (None, ["alice"]):
            assert (await ask_people(running, "", token, names))["status"] == 403


async def test_stopping_what_ended_already_is_fine(running: hub_of_tests.Hub, asking: Hub) -> None:
    await asking.stop("bob", "gpu", by="user:bob", reason="Done.")
    await running.wait_absent("bob", "gpu", within=10)
    for name, server in (("bob", "gpu"), ("bob", "nope"), ("admin", ""), ("nobody", "")):
        await asking.stop(name, server, by="user:bob", reason="Done.")


async def test_a_token_without_rights_is_no_empty_list(
    running: hub_of_tests.Hub, settings: Settings
) -> None:
    async with Hub(settings.api_url, POOR_TOKEN) as asking:
        with pytest.raises(HubError):
            await asking.list_active()


async def test_a_server_is_found_by_its_owner_and_name(
    running: hub_of_tests.Hub, asking: Hub
) -> None:
    snapshot = Snapshot(asking, lambda: datetime.now(UTC))
    assert snapshot.find("bob", "gpu") is None
    await snapshot.refresh()
    found = [snapshot.find(*key) for key in (("bob", "gpu"), ("alice", ""), ("alice", "gpu"))]
    assert [server and server.title for server in found] == ["bob/gpu", "alice", None]


async def test_many_pages_at_once_are_one_question(
    running: hub_of_tests.Hub, settings: Settings
) -> None:
    async with CountingHub(settings.api_url, settings.api_token) as asking:
        snapshot = Snapshot(asking, lambda: datetime.now(UTC))
        await asyncio.gather(*(snapshot.refresh() for _ in range(20)))
        await snapshot.refresh()
        assert asking.lists == 1
        snapshot.forget()
        await snapshot.refresh()
        assert asking.lists == 2


async def test_what_was_asked_before_a_change_is_not_the_answer_after_it(
    running: hub_of_tests.Hub, settings: Settings
) -> None:
    async with CountingHub(settings.api_url, settings.api_token) as asking:
        snapshot = Snapshot(asking, lambda: datetime.now(UTC))
        early = asyncio.create_task(snapshot.refresh())
        await asyncio.sleep(0)
        snapshot.forget()
        await asyncio.gather(early, snapshot.refresh())
        await snapshot.refresh()
        assert asking.lists == 2
    assert titles(list(snapshot.people)) == ["alice", "bob", "bob/gpu"]


async def test_a_visitor_who_goes_away_does_not_take_the_answer_from_others(
    running: hub_of_tests.Hub, asking: Hub
) -> None:
    snapshot = Snapshot(asking, lambda: datetime.now(UTC))
    first = asyncio.create_task(snapshot.refresh())
    second = asyncio.create_task(snapshot.refresh())
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert titles(list(snapshot.people)) == ["alice", "bob", "bob/gpu"]


async def test_while_the_hub_is_away_the_last_list_stays(
    running: hub_of_tests.Hub, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the connections of a hub that ends here stay open, and nobody answers
    monkeypatch.setattr(hub_module, "TIMEOUT", 3.0)
    async with Hub(settings.api_url, settings.api_token) as asking:
        read_at = datetime(2026, 1, 31, 12, 3, tzinfo=UTC)
        snapshot = Snapshot(asking, lambda: read_at)
        await snapshot.refresh()
        await running.kill()
        snapshot.forget()
        await snapshot.refresh()
        assert titles(list(snapshot.people)) == ["alice", "bob", "bob/gpu"]
        assert snapshot.as_of == read_at
        assert snapshot.error
        await running.start()
        snapshot.forget()
        await snapshot.refresh()
        assert not snapshot.error
