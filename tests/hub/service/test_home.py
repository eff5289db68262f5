"""The home page's part about storage: claims of the cluster, with the figures of the service."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser as Chromium
from playwright.async_api import Page

from spectrum_spawner import figures, names
from spectrum_spawner.service.reports import read_report
from tests.hub.clock import wait_until
from tests.hub.cluster import find_teams
from tests.hub.hub import ADMIN_TOKEN, Answer, Hub
from tests.hub.service.claims import Claims, find_claims
from tests.hub.service.conftest import Running
from tests.hub.service.place import Place
from tests.hub.team import Team, admit_hub, revoke_hub

pytestmark = pytest.mark.asyncio(loop_scope="module")

GIB = 2**30
LONG = "department-of_very.long.names.that.nobody.can.break-at.subsidiary"[:63]
NARROW = {"width": 375, "height": 800}
WIDE = {"width": 1200, "height": 900}
UNKNOWN = "How full your volumes are is not known now: try again in a minute."
HOME = "· yours, in all your servers of the team"
SCRATCH = "· yours, in one server at a time"
SHARED = "· everybody's in the team"
Visit = Callable[..., Awaitable[Page]]
Offer = Callable[..., Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="module")
async def claims(place: Place, hub: Hub) -> AsyncIterator[Claims]:
    claims = Claims(place.cluster, place.namespace, place.teams.values())
    yield claims
    await claims.tidy()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that runs many tests at once may take longer than a page waits."""
    monkeypatch.setattr(figures, "TIMEOUT", 20.0)


@pytest.fixture
def flight(teams: dict[str, Team]) -> Team:
    return teams["flight"]


@pytest.fixture
def ops(teams: dict[str, Team]) -> Team:
    return teams["ops"]


@pytest_asyncio.fixture(loop_scope="module")
async def offer(place: Place, hub: Hub) -> AsyncIterator[Offer]:
    """Datasets and a bucket for flight, as the controller tells of them."""
    path = f"{find_teams(place.namespace)}/flight/status"
    teams = hub.find_spawner("alice").views.teams

    async def offer(datasets: list[str], *, bucket: str = "flight-bucket", ready: bool) -> None:
        offered = [{"name": n, "title": n.title(), "claim": f"dataset-{n}"} for n in datasets]
        made = {"name": bucket, "endpoint": "http://rgw", "ready": ready}
        storage = {"datasets": offered, "bucket": made}
        await place.cluster.patch(path, {"status": {"storage": storage}})
        await wait_until(lambda: teams.get("flight").bucket, within=10)

    yield offer
    await place.cluster.patch(path, {"status": {"storage": None}})
    await wait_until(lambda: teams.get("flight").bucket is None, within=10)


async def ask(hub: Hub, token: str) -> Answer:
    url = f"{hub.url.removesuffix('/api')}/spectrum/volumes"
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"token {token}"}) as session,
        session.get(url) as answer,
    ):
        return Answer(answer.status, await answer.json())


async def ask_as(hub: Hub, user: str) -> dict[str, Any]:
    answer = await ask(hub, hub.make_token(user))
    assert answer.status == 200, answer
    return answer.body


def tell(service: Running, kind: str, name: str = "", **changes: Any) -> None:
    """Figures in flight, as alice's server would tell them."""
    at = (service.wall() - timedelta(seconds=1)).isoformat()
    told = {"total": GIB, "used": GIB // 2, "read_only": False, "error": "", "at": at}
    body = {"volumes": [{"kind": kind, "name": name, **told, **changes}]}
    # a report is all that its server has to tell: each of these volumes is told by another one
    report = read_report(
        body,
        team="flight",
        user="alice",
        server="" if kind == "home" else f"with-{name or kind}",
        datasets={name},
        now=service.context.now(),
    )
    service.context.figures.keep(report)


async def test_a_person_sees_their_own_volumes_and_what_their_teams_have_in_common(
    hub: Hub, service: Running, claims: Claims, flight: Team, ops: Team
) -> None:
    for team, user in ((flight, "alice"), (flight, "bob"), (ops, "alice")):
        await claims.add_home(team, user)
    await claims.add_common(flight, "share", names.COMPONENT_SHARE)
    tell(service, "home", at="2026-01-31T09:14:00Z")
    told = {"total": GIB, "used": GIB // 2, "read_only": False}
    told |= {"server": "alice", "at": "2026-01-31T09:14:00.000000Z"}
    common = {
        "team": "flight",
        "team_title": "Flight",
        "name": "",
        "size": "1Gi",
        "wanted": "1Gi",
        "state": "ready",
        "message": "",
        "files_total": None,
        "files_used": None,
        "error": "",
    }
    untold = {"total": None, "used": None, "read_only": None, "server": "", "at": ""}
    home = {"kind": "home", "title": "Home", "mount": "~", "claim": "home-alice"}
    share = {"kind": "share", "title": "Team volume", "mount": "~/team", "claim": "share"}
    assert await ask_as(hub, "alice") == {
        "volumes": [{**common, **told, **home}, {**common, **untold, **share}],
        "notes": [],
    }


async def test_of_each_team_only_ones_own_and_the_common_claims_are_asked_for(
    hub: Hub, service: Running, claims: Claims, flight: Team, ops: Team, place: Place
) -> None:
    await claims.add_home(flight, "bob")
    await claims.add_scratch(ops, "bob", "default")
    await claims.add_home(flight, "alice", phase="Pending", capacity=None)
    begun = len(place.way.calls)
    shown = (await ask_as(hub, "bob"))["volumes"]
    assert [(v["team"], v["title"]) for v in shown] == [
        ("flight", "Home"),
        ("ops", "Scratch disk “default”"),
    ]
    asked = Counter(
        call.path for call in place.way.calls[begun:] if call.path.endswith(("claims", "events"))
    )
    # somebody else's claim that waits is none of bob's, and nor are its events
    assert asked == {find_claims(team): 2 for team in (flight, ops)}


async def test_why_a_volume_is_not_there_yet(
    hub: Hub, service: Running, claims: Claims, flight: Team, place: Place
) -> None:
    await claims.add_home(flight, "alice", phase="Pending", capacity=None)
    (home,) = (await ask_as(hub, "alice"))["volumes"]
    assert (home["state"], home["message"]) == ("pending", "It is being made.")
    event = {
        "metadata": {"name": "home-alice.1"},
        "involvedObject": {
            "kind": "PersistentVolumeClaim",
            "namespace": flight.namespace,
            "name": "home-alice",
        },
        "type": "Warning",
        "reason": "ProvisioningFailed",
        "message": 'storageclass.storage.k8s.io "rook-cephfs" not found',
    }
    await place.cluster.create(f"/api/v1/namespaces/{flight.namespace}/events", event)
    (home,) = (await ask_as(hub, "alice"))["volumes"]
    assert home["message"] == "It cannot be made yet: storage class “rook-cephfs” does not exist."


async def test_the_bucket_and_the_datasets_of_a_team_are_shown(
    hub: Hub, service: Running, claims: Claims, flight: Team, offer: Offer
) -> None:
    await claims.add_common(flight, "dataset-imagenet", names.COMPONENT_DATASET)
    await offer(["imagenet"], ready=False)
    shown = (await ask_as(hub, "alice"))["volumes"]
    assert [(v["kind"], v["title"], v["mount"], v["state"]) for v in shown] == [
        ("dataset", "Imagenet", "~/datasets/imagenet", "ready"),
        ("bucket", "Bucket", "s3://flight-bucket", "pending"),
    ]


async def test_without_the_service_the_volumes_are_shown_all_the_same(
    hub: Hub, claims: Claims, flight: Team
) -> None:
    await claims.add_home(flight, "alice")
    shown = await ask_as(hub, "alice")
    assert [volume["title"] for volume in shown["volumes"]] == ["Home"]
    assert shown["notes"] == [UNKNOWN]


async def test_a_team_that_cannot_be_listed_is_told_and_the_others_are_shown(
    hub: Hub, service: Running, claims: Claims, flight: Team, ops: Team, place: Place
) -> None:
    await claims.add_home(flight, "bob")
    await revoke_hub(place.cluster, ops)
    try:
        shown = await ask_as(hub, "bob")
    finally:
        await admit_hub(place.cluster, ops, place.namespace)
    assert [volume["team"] for volume in shown["volumes"]] == ["flight"]
    assert shown["notes"] == [
        "The volumes of team ops cannot be listed now: try again in a minute. "
        "Servers and data are not affected."
    ]


async def test_somebody_in_no_team_has_nothing(hub: Hub, service: Running) -> None:
    assert (await hub.call("POST", "/users/carol")).status == 201
    assert await ask_as(hub, "carol") == {"volumes": [], "notes": []}


async def test_neither_strangers_nor_servers_nor_services_see_volumes(
    hub: Hub, service: Running, claims: Claims
) -> None:
    assert (await hub.start_server("alice")).status == 201
    for token in ("nonsense", hub.find_spawner("alice").api_token, ADMIN_TOKEN):
        assert (await ask(hub, token)).status == 403


@pytest_asyncio.fixture(loop_scope="module")
async def visit(service: Running, chromium: Chromium) -> AsyncIterator[Visit]:
    """Opens the home page of a person who signs in: `page = await visit("alice")`."""
    async with AsyncExitStack() as stack:

        async def visit(name: str, viewport=WIDE, *, wait: bool = True, **settings: str) -> Page:
            context = await chromium.new_context(viewport=viewport, **settings)
            stack.push_async_callback(context.close)
            page = await context.new_page()
            await page.goto(f"{service.url}/hub/login?next=/hub/home")
            await page.fill("#username_input", name)
            await page.fill("#password_input", "any")
            await page.click("#login_submit")
            if wait:
                await page.wait_for_selector("#storage[aria-busy=false]")
            return page

        yield visit


async def read_rows(page: Page) -> list[str]:
    """Each volume that is seen, as a person reads it; a bar counts as its share in percent."""
    script = r"""rows => rows.filter(row => row.innerText).map(row => {
        const bar = row.querySelector('[role=progressbar]')
        return (bar ? bar.ariaValueNow + '% ' : '') + row.innerText.replace(/\s+/g, ' ')
    })"""
    return await page.locator("#storage li").evaluate_all(script)


async def test_a_new_person_is_told_where_a_home_comes_from(visit: Visit) -> None:
    page = await visit("alice")
    assert await page.locator("#volumes").inner_text() == (
        "You have no volumes yet: your home is made when you first start a server in a team."
    )


async def test_bars_and_sentences_say_how_full_volumes_are(
    service: Running, claims: Claims, flight: Team, offer: Offer, visit: Visit
) -> None:
    await claims.add_home(flight, "alice")
    await claims.add_scratch(flight, "alice", "default")
    await claims.add_scratch(flight, "alice", "envs")
    await claims.add_common(flight, "share", names.COMPONENT_SHARE)
    await claims.add_common(flight, "dataset-imagenet", names.COMPONENT_DATASET)
    await offer(["imagenet"], ready=True)
    tell(service, "home")
    tell(service, "scratch", "default", used=int(0.93 * GIB))
    tell(service, "scratch", "envs", used=GIB - 4 * 2**20)
    tell(service, "share", read_only=True)
    tell(service, "dataset", "imagenet", read_only=True, used=GIB)
    page = await visit("alice")
    assert await read_rows(page) == [
        f"50% Home ~ {HOME} 512 MiB of 1 GiB used",
        f"93% Scratch disk “default” ~/scratch {SCRATCH} 952 MiB of 1 GiB used "
        "Nearly full: 72 MiB are free.",
        f"100% Scratch disk “envs” ~/scratch {SCRATCH} 1020 MiB of 1 GiB used "
        "Full: nothing can be saved there until something is deleted. "
        f"Claim {names.scratch_claim('alice', 'envs')}",
        f"50% Team volume ~/team {SHARED} 512 MiB of 1 GiB used "
        "Nothing can be written there now. Claim share",
        f"Bucket s3://flight-bucket {SHARED} "
        "boto3, s3fs and aws reach it from your servers without settings.",
        "1 dataset to read",
    ]


async def test_what_grows_waits_fails_or_is_old_says_so(
    service: Running, claims: Claims, flight: Team, visit: Visit
) -> None:
    growing = {"capacity": {"storage": "512Mi"}}
    waiting = {"type": "FileSystemResizePending", "status": "True"}
    refused = {"type": "ControllerResizeError", "status": "True", "message": "no room left"}
    pending = {"phase": "Pending", "capacity": None}
    await claims.add_home(flight, "alice", **growing)
    await claims.add_scratch(flight, "alice", "a", **growing, conditions=[waiting])
    await claims.add_scratch(flight, "alice", "b", **growing, conditions=[refused])
    await claims.add_scratch(flight, "alice", "c", **pending)
    await claims.add_common(flight, "share", names.COMPONENT_SHARE)
    long_ago = (service.wall() - timedelta(hours=3)).isoformat()
    tell(service, "home", at=long_ago)
    tell(service, "share", total=None, used=None, error="does not answer")
    page = await visit("alice")
    size = "512 MiB. How much is used is known once a server runs."
    grows = "Growing from 512 MiB to 1 GiB."
    assert await page.locator("#storage .alert").all_inner_texts() == []
    assert await read_rows(page) == [
        f"50% Home ~ {HOME} 512 MiB of 1 GiB used, as of 3 hours ago {grows} Claim home-alice",
        f"Scratch disk “a” ~/scratch {SCRATCH} {size} {grows} "
        "The next server that mounts it sees it grown. "
        f"Claim {names.scratch_claim('alice', 'a')}",
        f"Scratch disk “b” ~/scratch {SCRATCH} {size} It cannot grow to 1Gi: no room left. "
        f"Claim {names.scratch_claim('alice', 'b')}",
        f"Scratch disk “c” ~/scratch {SCRATCH} 1 GiB It is being made. "
        f"Claim {names.scratch_claim('alice', 'c')}",
        f"Team volume ~/team {SHARED} 1 GiB. How much is used is known once a server runs. "
        "It could not be read: does not answer. Servers and data are not affected. Claim share",
    ]


async def test_a_failure_to_look_says_so_and_is_tried_again_at_a_click(visit: Visit) -> None:
    page = await visit("alice")
    await page.route("**/spectrum/volumes", lambda route: route.abort())
    await page.reload()
    await page.wait_for_selector("#storage[aria-busy=false]")
    shown = page.locator("#volumes")
    assert "Your volumes cannot be shown now: the hub does not answer." in await shown.inner_text()
    await page.unroute("**/spectrum/volumes")
    await page.get_by_role("button", name="Try again").focus()
    await page.keyboard.press("Enter")
    await shown.get_by_text("You have no volumes yet").wait_for()


async def test_fifty_volumes_of_long_names_fit_a_phone_and_open_by_keyboard(
    hub: Hub,
    service: Running,
    claims: Claims,
    flight: Team,
    offer: Offer,
    visit: Visit,
    place: Place,
) -> None:
    called = [f"{'a-very-long-name-of-data' * 2}-{i}" for i in range(50)]
    await asyncio.gather(
        claims.add_scratch(flight, "alice", LONG),
        *(claims.add_common(flight, f"dataset-{n}", names.COMPONENT_DATASET) for n in called),
    )
    await offer(called, bucket="x" * 63, ready=True)
    tell(service, "scratch", LONG)
    page = await visit("alice", NARROW)
    assert await page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    last = page.get_by_text(f"~/datasets/{called[-1]}", exact=True)
    assert not await last.is_visible()
    await page.get_by_text("50 datasets to read").focus()
    await page.keyboard.press("Enter")
    assert await last.is_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
