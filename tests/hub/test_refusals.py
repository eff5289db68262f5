"""Starts that must not happen, as the hub's REST API sees them.

Every one is answered with a 4xx and one sentence; nothing is written to Kubernetes, the options
saved for the next start stay as they were, and the hub does not count it as a failure of its own.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import pytest
import pytest_asyncio

from spectrum_spawner import names
from spectrum_spawner.admission import PATIENCE
from spectrum_spawner.views import Views
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import ADMIN_TOKEN, Answer, Hub
from tests.hub.spawners import FLIGHT, OPS, make_spectrum
from tests.hub.team import Team

Refused = Callable[[Awaitable[Answer]], Awaitable[str]]


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[..., Awaitable[Hub]], flight: Team, ops: Team, hub_namespace: str
) -> Hub:
    """A hub whose user alice has started and stopped a server in her team flight."""
    hub = await start_hub(make_spectrum(hub_namespace))
    assert (await hub.start_server("alice")).status == 201
    assert (await hub.stop_server("alice")).status in (202, 204)
    await hub.wait_absent("alice", within=10)
    return hub


@pytest.fixture
def refused(hub: Hub, cluster: Cluster, fault_proxy: FaultProxy) -> Refused:
    """Checks that a request is refused without a trace; returns what the person reads."""

    async def check(request: Awaitable[Answer]) -> str:
        before = await cluster.list_everything()
        saved = hub.read_options("alice")
        fault_proxy.calls.clear()
        answer = await request
        assert answer.status in range(400, 500), answer
        assert fault_proxy.writes == []
        assert await cluster.list_everything() == before
        assert hub.read_options("alice") == saved
        assert hub.failures == 0
        message = answer.message
        assert message.strip() == message
        assert "\n" not in message
        assert "Traceback" not in message
        assert 0 < len(message) < 500
        return message

    return check


UNKNOWN_OR_FOREIGN = [
    ({"team": "kube-system"}, "not in a team called “kube-system”"),
    ({"team": "ops"}, "not in a team called “ops”"),
    ({"team": "../flight"}, "not in a team called"),
    ({"team": ""}, "not in a team called"),
    ({"profile": "nope"}, "no profile “nope”"),
    ({"profile": ""}, "no profile"),
    ({"profile": "ops-only"}, "not open to team “flight”"),
    ({"profile": "x" * 1_000_000}, "no profile"),
    ({"profile": "<script>alert(1)</script>"}, "no profile"),
    ({"profile": "{0.__class__}"}, "no profile “{0.__class__}”"),
    ({"profile": "cpu-small\n"}, "no profile"),
    ({"image": "nope"}, "no image “nope”"),
    ({"image": "tensorflow\n"}, "no image"),
    ({"image": "localhost/spectrum/tensorflow-notebook:dev"}, "no image"),
    ({"scratch": "data"}, "is offered no scratch disks"),
    *(({"scratch": name}, "cannot be called") for name in ("x" * 64, "x" * 253, "../a", "ä", "\n")),
    ({"namespace": "kube-system"}, "Unknown option"),
    ({"service_account": "default", "cmd": ["sh"]}, "Unknown option"),
]


async def test_options_that_are_unknown_or_somebody_elses(hub: Hub, refused: Refused) -> None:
    for options, says in UNKNOWN_OR_FOREIGN:
        assert says in await refused(hub.start_server("alice", {**FLIGHT, **options}))


async def test_options_of_another_type(hub: Hub, refused: Refused) -> None:
    for key in ("team", "profile", "image", "scratch"):
        for value in ([], ["cpu-small"], {}, {"a": 1}, 0, 1.5, True, None):
            message = await refused(hub.start_server("alice", {**FLIGHT, key: value}))
            assert f"{key} must be a string" in message
    for options in ([], ["cpu-small"], 0, "cpu-small", True):
        await refused(hub.call("POST", "/users/alice/server", {"user_options": options}))


async def test_saved_options_of_a_team_that_one_has_left(hub: Hub, refused: Refused) -> None:
    await hub.call("DELETE", "/groups/flight/users", {"users": ["alice"]})
    message = await refused(hub.call("POST", "/users/alice/server"))
    assert "team" in message


async def test_a_team_is_remembered_over_all_servers_of_a_person(hub: Hub) -> None:
    assert (await hub.start_server("bob", OPS)).status == 201
    assert (await hub.start_server("bob", {}, "second")).status == 201
    assert hub.read_options("bob", "second")["team"] == "ops"


async def test_a_start_by_somebody_in_no_team(hub: Hub, refused: Refused) -> None:
    await hub.call("POST", "/users/carol")
    message = await refused(hub.call("POST", "/users/carol/server"))
    assert "no team" in message
    assert not hub.read_options("carol")


async def test_a_first_start_that_is_refused_saves_no_options(hub: Hub, refused: Refused) -> None:
    await refused(hub.start_server("bob", {"team": "flight", "profile": "nope"}))
    assert not hub.read_options("bob")


@pytest_asyncio.fixture
async def new(hub: Hub, cluster: Cluster, hub_namespace: str) -> dict[str, str]:
    """Options of alice for a team of hers that the controller has not prepared."""
    team = {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.TEAM_KIND,
        "metadata": {"name": "new"},
        "spec": {"groups": ["flight"]},
    }
    await cluster.create(find_teams(hub_namespace), team)
    views = Views.shared(hub_namespace)
    await wait_until(lambda: views.teams.get("new") is not None, within=10)
    return {"team": "new", "profile": "cpu-small"}


async def test_a_team_that_is_not_prepared_yet(
    hub: Hub, refused: Refused, new: dict[str, str], clock: Clock
) -> None:
    with clock.hurry(5):
        message = await refused(hub.start_server("alice", new))
    assert "Team new is not ready yet" in message


async def test_waiting_for_teams_and_for_one_team_share_their_patience(
    hub: Hub,
    refused: Refused,
    new: dict[str, str],
    fault_proxy: FaultProxy,
    hub_namespace: str,
    clock: Clock,
) -> None:
    await hub.kill()
    teams = find_teams(hub_namespace)
    mend = fault_proxy.refuse(lambda call: call.is_list(teams), status=500, times=None)
    await hub.start()

    async def start_while_teams_are_unknown() -> Answer:
        begun = clock.time()
        start = asyncio.create_task(hub.start_server("alice", new))
        await asyncio.sleep(3)
        mend()
        answer = await start
        assert clock.time() - begun < 3 + PATIENCE
        return answer

    with clock.hurry(2):
        message = await refused(start_while_teams_are_unknown())
    assert "Team new is not ready yet" in message


@pytest_asyncio.fixture
async def one_gpu(cluster: Cluster, hub_namespace: str, flight: Team) -> None:
    """Team flight has a quota of one GPU, as its controller says in the Team's status."""
    usage = {"gpus": {"nvidia.com/gpu": {"used": 0, "hard": 1}}}
    path = f"{find_teams(hub_namespace)}/flight/status"
    await cluster.patch(path, {"status": {"usage": usage}})
    view = Views.shared(hub_namespace).teams
    await wait_until(lambda: view.get("flight").gpus_hard, within=10)


GPU = {**FLIGHT, "profile": "gpu-1"}


async def test_a_gpu_that_a_teammate_holds(hub: Hub, refused: Refused, one_gpu: None) -> None:
    assert (await hub.start_server("bob", GPU)).status == 201
    begun = time.monotonic()
    message = await refused(hub.start_server("alice", GPU))
    assert time.monotonic() - begun < PATIENCE  # nothing was waited for
    assert re.fullmatch(
        r"Team flight has 1 of 1 GPU in use \(bob: gpu-1 since \d\d:\d\d UTC\)\. "
        r"Stop one, or request more\.",
        message,
    )


async def test_a_gpu_that_one_holds_oneself(hub: Hub, refused: Refused, one_gpu: None) -> None:
    assert (await hub.start_server("alice", GPU, "first")).status == 201
    message = await refused(hub.start_server("alice", GPU))
    assert message.startswith("Team flight has 1 of 1 GPU in use (you: gpu-1 since ")


async def test_a_gpu_that_was_given_back_is_there_at_once(hub: Hub, one_gpu: None) -> None:
    for _ in range(3):
        assert (await hub.start_server("alice", GPU)).status == 201
        await hub.stop_server("alice")
        await hub.wait_absent("alice", within=10)


async def test_a_start_of_somebody_elses_server(hub: Hub, refused: Refused) -> None:
    token = hub.make_token("bob")
    await refused(hub.call("POST", "/users/alice/server", {"user_options": FLIGHT}, token=token))


async def test_an_admin_has_the_rights_of_whose_server_it_is(
    hub: Hub, refused: Refused, flight: Team, cluster: Cluster
) -> None:
    token = hub.make_token("admin")
    path, options = "/users/alice/server", {"team": "ops", "profile": "cpu-small"}
    message = await refused(hub.call("POST", path, {"user_options": options}, token=token))
    assert "not in a team called “ops”" in message
    answer = await hub.call("POST", path, {"user_options": FLIGHT}, token=token)
    assert answer.status == 201
    assert await cluster.find(flight.find_pod("alice")) is not None


async def test_five_refusals_in_a_row_do_not_end_the_hub(hub: Hub, refused: Refused) -> None:
    for _ in range(6):
        await refused(hub.start_server("alice", {"profile": "nope"}))
    assert (await hub.start_server("alice")).status == 201


NO_NAMES = [
    *("\N{GRINNING FACE}", "\u202eevil", "a\x00b", "a\nb", "..", "a/b", "a%2fb", "!?*"),
    *("A", "Two Words", "x" * 64, "x" * 300, "-a", "a-", "視覚", "<script>"),
]


async def test_server_names_that_are_no_names(hub: Hub, refused: Refused) -> None:
    for server in NO_NAMES:
        path = f"/users/alice/servers/{quote(server, safe='')}"
        await refused(hub.call("POST", path, {"user_options": FLIGHT}))


async def test_valid_server_names_never_share_a_pod(
    hub: Hub, flight: Team, cluster: Cluster
) -> None:
    servers = ["a", "a--b", "0-leading-digit", "x" * 63, "x" * 64, "x" * 65]
    accepted = [s for s in servers if (await hub.start_server("alice", FLIGHT, s)).status == 201]
    pods = await cluster.list(flight.pods)
    owners = {
        pod["metadata"]["annotations"][names.ANNOTATION_SERVER]: pod["metadata"]["name"]
        for pod in pods
    }
    assert owners == {server: names.server_name("alice", server) for server in accepted}
    assert len(set(owners.values())) == len(accepted) > 0


async def test_a_removed_role_of_the_token_is_no_way_in(hub: Hub, refused: Refused) -> None:
    for token in ("", "nonsense", ADMIN_TOKEN[:-1]):
        await refused(hub.call("POST", "/users/alice/server", token=token))
