"""People known by a provider, on a real Kubernetes: their teams of now, and their homes."""

import re
import shlex
from collections.abc import Awaitable, Callable, Iterator

import pytest
import pytest_asyncio

from spectrum_spawner import accounts, names, sharing
from spectrum_spawner.identity import TableAuthenticator
from spectrum_spawner.oauth import TOLD_AT
from spectrum_spawner.views import Views
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.provider import Browser, Provider, read_error, set_crypt_key
from tests.hub.spawners import FLIGHT, OPS, Setup, make_spectrum
from tests.hub.team import Team
from tests.hub.volumes import find_claims, list_claims, offer_storage


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as provider:
        yield provider


def make_setup(provider: Provider, namespace: str, **traits: object) -> Setup:
    """A hub whose people the provider knows, with these traits of its authenticator."""
    set_crypt_key("k")
    setup = make_spectrum(namespace)
    del setup.config.JupyterHub["load_groups"]
    setup.config.merge(provider.make_config(**traits))
    return setup


@pytest_asyncio.fixture
async def hub(
    start_hub: Callable[..., Awaitable[Hub]],
    provider: Provider,
    flight: Team,
    ops: Team,
    hub_namespace: str,
) -> Hub:
    """A hub with the teams flight and ops, whose people the provider knows."""
    return await start_hub(make_setup(provider, hub_namespace))


@pytest_asyncio.fixture
async def visited_hub(
    start_hub: Callable[..., Awaitable[Hub]], provider: Provider, flight: Team, hub_namespace: str
) -> Hub:
    """A hub that asks about visitors each second, and about others each five minutes."""
    rounds = {"auth_refresh_age": 300, "visitors_refresh_age": 1}
    return await start_hub(
        make_setup(provider, hub_namespace, hub_namespace=hub_namespace, **rounds)
    )


@pytest.fixture
def sign_in(hub: Hub, provider: Provider) -> Callable[..., Awaitable[None]]:
    """Lets somebody in, of whom the provider tells this from now on."""

    async def sign_in(sub: str, **claims: object) -> None:
        provider.tell(sub, **claims)
        async with Browser(find_url(hub)) as browser:
            page = await browser.sign_in(sub)
            assert page.status == 200, read_error(page)

    return sign_in


SignIn = Callable[..., Awaitable[None]]


async def start_and_stop(hub: Hub, user: str) -> None:
    assert (await hub.start_server(user)).status == 201
    await hub.stop_server(user)
    await hub.wait_absent(user, within=10)


def find_url(hub: Hub) -> str:
    return f"http://127.0.0.1:{hub.config.JupyterHub.hub_port}"


async def find_home(cluster: Cluster, team: Team, user: str) -> str:
    """Name of the claim that a person's pod has as its home."""
    volumes = (await cluster.get(team.find_pod(user)))["spec"]["volumes"]
    (home,) = (volume for volume in volumes if volume["name"] == "home")
    return home["persistentVolumeClaim"]["claimName"]


async def list_homes(cluster: Cluster, team: Team) -> list[str]:
    return list(await list_claims(cluster, team))


async def test_who_is_removed_from_a_group_starts_nothing_there_and_loses_nothing_that_runs(
    hub: Hub, provider: Provider, sign_in: SignIn, cluster: Cluster, flight: Team
) -> None:
    await sign_in("s-1", name="alice", groups=["/flight", "/ops"])
    assert (await hub.start_server("alice")).status == 201
    provider.tell("s-1", name="alice", groups=["/ops"])
    answer = await hub.start_server("alice", server="two")
    assert (answer.status, "not in a team called “flight”" in answer.message) == (403, True)
    assert (await hub.start_server("alice", OPS, "three")).status == 201
    assert await hub.is_ready("alice")
    assert await cluster.find(flight.find_pod("alice"))


@pytest.mark.parametrize("visit", ["by browser", "by a token"])
@pytest.mark.parametrize("how", ["leaves the team", "is sent away"])
async def test_whoever_is_in_servers_of_others_is_asked_about_and_out_without_a_request_of_theirs(
    visited_hub: Hub, provider: Provider, how: str, visit: str
) -> None:
    hub, account = visited_hub, accounts.account_of("flight")
    for sub in ("alice", "bob"):
        provider.tell(sub, groups=["flight"])
        async with Browser(find_url(hub)) as browser:
            assert (await browser.sign_in(sub)).status == 200
    for owner in (account, "bob"):
        assert (await hub.start_server(owner)).status == 201
    server, of_bob = (hub.find_spawner(owner).orm_spawner for owner in (account, "bob"))

    def is_in(*names: str) -> Callable[[], bool]:
        return lambda: sorted(share.user.name for share in server.shares) == sorted(names)

    await wait_until(is_in("alice", "bob"), within=10, what="the members")
    sharing.share(hub.app.db, of_bob, hub.find_spawner("bob").team, "alice", hours=1)
    # what her browser gets for the visit, and the server asks the hub with, or one of her own
    client = server.oauth_client
    of_browser = {"client_id": client.identifier, "scopes": client.allowed_scopes}
    token = hub.app.users["alice"].new_api_token(**of_browser if visit == "by browser" else {})
    assert (await hub.call("GET", "/user", token=token)).status == 200
    for sub in ("alice", "bob"):
        if how == "leaves the team":
            provider.tell(sub, groups=["choir"])
        else:
            provider.revoke(sub)
    # of bob, who is not there, the provider is asked later
    await wait_until(is_in("bob"), within=10, what="the end of her rights")
    await wait_until(lambda: not of_bob.shares, within=10, what="the end of being a guest")


async def test_no_start_while_nobody_knows_the_groups_and_nothing_is_written_for_it(
    hub: Hub,
    provider: Provider,
    sign_in: SignIn,
    cluster: Cluster,
    flight: Team,
    fault_proxy: FaultProxy,
) -> None:
    await sign_in("s-1", name="alice", groups=["flight"])
    assert (await hub.start_server("alice")).status == 201
    provider.stop()
    user = hub.app.users["alice"]
    await user.save_auth_state({**await user.get_auth_state(), TOLD_AT: 0})
    fault_proxy.calls.clear()
    answer = await hub.start_server("alice", server="two")
    assert answer.status == 403
    assert answer.message.startswith("The identity provider has not told the groups of alice")
    assert fault_proxy.writes == []
    assert hub.failures == 0
    assert await cluster.find(flight.find_pod("alice"))
    assert (await hub.stop_server("alice")).status in (202, 204)


@pytest_asyncio.fixture
async def templates_hub(
    start_hub: Callable[..., Awaitable[Hub]], provider: Provider, hub_namespace: str
) -> Hub:
    """A hub in which groups of labs become teams."""
    templates = {"labs": {"pattern": "labs/.+", "max": 9}}
    return await start_hub(
        make_setup(provider, hub_namespace, hub_namespace=hub_namespace, team_templates=templates)
    )


async def test_a_group_that_a_template_matches_is_offered_as_a_team_at_sign_in(
    templates_hub: Hub, provider: Provider, cluster: Cluster, hub_namespace: str
) -> None:
    await Views.shared(hub_namespace).teams.wait_synced(20)
    provider.tell("s-1", name="alice", groups=["/labs/vision", "/choir"])
    async with Browser(find_url(templates_hub)) as browser:
        assert (await browser.sign_in("s-1")).status == 200
    (team,) = await cluster.list(find_teams(hub_namespace))
    assert team["metadata"]["name"] == names.slug("labs/vision")
    assert team["spec"] == {"template": "labs", "groups": ["labs/vision"]}


async def test_a_group_of_the_table_is_offered_as_a_team_too(
    start_hub: Callable[..., Awaitable[Hub]], cluster: Cluster, hub_namespace: str
) -> None:
    setup = make_spectrum(hub_namespace)
    del setup.config.JupyterHub["load_groups"]
    setup.config.JupyterHub.authenticator_class = TableAuthenticator
    table = setup.config.TableAuthenticator
    table.user_password, table.allowed_users = "u" * 16, {"alice"}
    table.members = {"labs/vision": ["alice"]}
    table.hub_namespace = hub_namespace
    table.team_templates = {"labs": {"pattern": "labs/.+", "max": 9}}
    hub = await start_hub(setup)
    await Views.shared(hub_namespace).teams.wait_synced(20)
    await hub.app.authenticator.authenticate(None, {"username": "alice", "password": "u" * 16})
    (team,) = await cluster.list(find_teams(hub_namespace))
    assert team["spec"] == {"template": "labs", "groups": ["labs/vision"]}


async def test_a_cluster_that_makes_no_teams_keeps_nobody_out(
    templates_hub: Hub, provider: Provider, fault_proxy: FaultProxy
) -> None:
    await templates_hub.kill()
    templates_hub.config.GenericProvider.hub_namespace = "elsewhere"
    await templates_hub.start()
    provider.tell("s-1", name="alice", groups=["/labs/vision"])
    async with Browser(find_url(templates_hub)) as browser:
        assert (await browser.sign_in("s-1")).status == 200
    assert fault_proxy.writes == []


async def test_a_person_who_is_renamed_keeps_their_home(
    hub: Hub, sign_in: SignIn, cluster: Cluster, flight: Team
) -> None:
    await sign_in("s-1", name="alice", groups=["flight"])
    await start_and_stop(hub, "alice")
    await sign_in("s-1", name="alice.smith", groups=["flight"])
    assert (await hub.start_server("alice.smith")).status == 201
    assert await find_home(cluster, flight, "alice.smith") == names.home_claim("alice")
    assert await list_homes(cluster, flight) == [names.home_claim("alice")]


async def test_a_person_who_is_renamed_keeps_their_disks_and_uses_them_once(
    hub: Hub, sign_in: SignIn, cluster: Cluster, flight: Team, hub_namespace: str
) -> None:
    exp1 = {**FLIGHT, "scratch": "exp1"}
    await sign_in("s-1", name="alice", groups=["flight"])
    await start_and_stop(hub, "alice")
    await offer_storage(cluster, hub_namespace, "flight")
    teams = Views.shared(hub_namespace).teams
    await wait_until(lambda: teams.get("flight").scratch, within=10)
    assert (await hub.start_server("alice", exp1)).status == 201
    await sign_in("s-1", name="alice.smith", groups=["flight"])
    answer = await hub.start_server("alice.smith", exp1)
    assert (answer.status, "disk “exp1” is in use by" in answer.message) == (409, True)
    await hub.stop_server("alice")
    await hub.wait_absent("alice", within=10)
    assert (await hub.start_server("alice.smith", exp1)).status == 201
    assert len(await list_claims(cluster, flight)) == 2


async def test_another_person_of_the_same_name_does_not_get_the_home(
    hub: Hub, sign_in: SignIn, cluster: Cluster, flight: Team
) -> None:
    await sign_in("s-1", name="alice", groups=["flight"])
    await start_and_stop(hub, "alice")
    await hub.call("DELETE", "/users/alice")
    await sign_in("s-2", name="alice", groups=["flight"])
    answer = await hub.start_server("alice")
    assert answer.status == 409
    assert answer.message.startswith("The home home-alice was made for another person named alice.")
    assert await cluster.find(flight.find_pod("alice")) is None
    await give_home(cluster, answer.message)
    assert (await hub.start_server("alice")).status == 201


async def test_a_home_from_before_people_were_known_is_given_by_an_administrator(
    hub: Hub, sign_in: SignIn, cluster: Cluster, flight: Team
) -> None:
    await sign_in("s-1", name="alice", groups=["flight"])
    await start_and_stop(hub, "alice")
    unknown = {"annotations": {names.ANNOTATION_SUBJECT: None}}
    unknown["labels"] = {names.LABEL_SUBJECT: None}
    await cluster.patch(f"{find_claims(flight)}/home-alice", {"metadata": unknown})
    answer = await hub.start_server("alice")
    assert answer.status == 409
    assert answer.message.startswith("The home home-alice was made for nobody in particular.")
    await give_home(cluster, answer.message)
    await start_and_stop(hub, "alice")
    await sign_in("s-1", name="alice.smith", groups=["flight"])
    assert (await hub.start_server("alice.smith")).status == 201
    assert await find_home(cluster, flight, "alice.smith") == "home-alice"


async def give_home(cluster: Cluster, sentence: str) -> None:
    """Do what the sentence tells an administrator to do."""
    found = re.search(r"kubectl annotate .*", sentence)
    assert found
    annotate, label = found[0].split(" && ")
    for command, kind in ((annotate, "annotations"), (label, "labels")):
        _, _, _, namespace, _, _, claim, change = shlex.split(command)
        key, _, value = change.partition("=")
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        await cluster.patch(path, {"metadata": {kind: {key: value}}})
