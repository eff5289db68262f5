"""Requests: from the form to the Team object, over crashes and refusals."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from spectrum_spawner.service import approvals
from spectrum_spawner.service.asking import Request
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, find_teams
from tests.hub.fault_proxy import FaultProxy
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser
from tests.hub.service.conftest import Running
from tests.hub.service.place import GPU

pytestmark = pytest.mark.asyncio(loop_scope="module")

SignIn = Callable[[str], Awaitable[Browser]]


@pytest_asyncio.fixture(loop_scope="module")
async def alice(sign_in: SignIn) -> Browser:
    return await sign_in("alice")


@pytest_asyncio.fixture(loop_scope="module")
async def admin(sign_in: SignIn) -> Browser:
    return await sign_in("admin")


@pytest_asyncio.fixture(loop_scope="module")
async def read_spec(cluster: Cluster, hub_namespace: str) -> Callable[[str], Awaitable[Any]]:
    """The spec of a Team as the API server has it."""

    async def read(team: str) -> Any:
        found = await cluster.find(f"{find_teams(hub_namespace)}/{team}")
        return found and found["spec"]

    return read


def make_form(service: Running, **changes: str) -> dict[str, str]:
    """What a browser sends for two more GPUs for a month: all fields of the form."""
    form = {
        "kind": "quota",
        "team": "flight",
        "new_team": "",
        "group": "",
        "resource": GPU,
        "amount": "2",
        "profile": "cpu-small",
        "reason": "The spring model.",
        "until": find_day(service),
    }
    return {**form, **changes}


def find_day(service: Running) -> str:
    return (service.wall() + timedelta(days=30)).date().isoformat()


async def find_request(service: Running) -> Request:
    return (await service.context.ledger.list_requests())[0]


async def ask(person: Browser, service: Running, **changes: str) -> Request:
    shown = await person.send("requests", **make_form(service, **changes))
    assert (shown.status, shown.path) == (200, "/services/spectrum/requests"), shown
    assert "Your request is in the queue." in shown.text
    return await find_request(service)


async def test_a_request_is_asked_answered_granted_and_written_down(
    service: Running, alice: Browser, admin: Browser, read_spec: Any
) -> None:
    request = await ask(alice, service)
    queue = await admin.open("requests")
    assert "2 × nvidia.com/gpu for team flight" in queue.text
    assert "The spring model." in queue.text
    shown = await admin.send(
        f"requests/{request.id}/decide", decision="approve", answer="Until the paper is out."
    )
    assert "The answer is given." in shown.text
    assert (await read_spec("flight"))["grants"] == {
        request.id: {
            "gpus": {GPU: 2},
            "until": f"{find_day(service)}T23:59:59Z",
            "reason": "The spring model.",
            "requestedBy": "alice",
            "approvedBy": "admin",
        }
    }
    assert "Until the paper is out." in (await alice.open("requests")).text
    assert await service.read_audit() == [
        (
            "request",
            "user:alice",
            "alice",
            "Asks for 2 × nvidia.com/gpu for team flight: The spring model.",
        ),
        (
            "grant",
            "user:admin",
            "alice",
            "Granted 2 × nvidia.com/gpu for team flight: Until the paper is out.",
        ),
    ]


async def test_a_profile_is_granted(
    service: Running, alice: Browser, admin: Browser, read_spec: Any
) -> None:
    request = await ask(alice, service, kind="profile", profile="ops-only")
    await admin.send(f"requests/{request.id}/decide", decision="approve", answer="")
    assert (await read_spec("flight"))["grants"][request.id]["profiles"] == ["ops-only"]
    decided = await find_request(service)
    assert (decided.state, decided.answer) == ("approved", "")
    assert (await service.read_audit())[-1] == (
        "grant",
        "user:admin",
        "alice",
        "Granted profile ops-only for team flight.",
    )


async def test_a_new_team_is_made_of_its_group_with_granted_gpus_only(
    service: Running, sign_in: SignIn, admin: Browser, read_spec: Any, hub: Hub
) -> None:
    carol = await sign_in("carol")
    assert "You are in no team yet" in (await carol.open()).text
    request = await ask(carol, service, kind="team", new_team="vision", group="/research/vision")
    await admin.send(f"requests/{request.id}/decide", decision="approve", answer="Welcome.")
    spec = await read_spec("vision")
    assert spec["groups"] == ["research/vision"]
    assert spec["quota"] == {"gpus": {GPU: 0}}
    assert spec["grants"][request.id]["gpus"] == {GPU: 2}


async def test_a_refusal_needs_a_sentence_and_changes_no_team(
    service: Running, alice: Browser, admin: Browser, read_spec: Any
) -> None:
    request = await ask(alice, service)
    before = await read_spec("flight")
    path = f"requests/{request.id}/decide"
    silent = await admin.send(path, decision="refuse", answer=" ")
    assert (silent.status, silent.problem) == (400, "An answer is needed: one sentence is enough.")
    await admin.send(path, decision="refuse", answer="All GPUs are taken until May.")
    assert "All GPUs are taken until May." in (await alice.open("requests")).text
    assert await read_spec("flight") == before


async def test_an_answer_that_cannot_be_given_is_still_in_the_form(
    service: Running, alice: Browser, admin: Browser
) -> None:
    request = await ask(alice, service)
    long = "x" * 501
    shown = await admin.send(f"requests/{request.id}/decide", decision="approve", answer=long)
    assert shown.status == 400
    assert f'value="{long}"' in shown.text


async def test_what_was_typed_survives_an_error(service: Running, alice: Browser) -> None:
    typed = make_form(service, amount="2000", reason='For "x" <b>&', until="2020-01-01")
    shown = await alice.send("requests", **typed)
    assert shown.status == 400
    assert shown.problem == "The end date is past: choose one that lies ahead."
    assert 'value="2000"' in shown.text
    assert "For &#34;x&#34; &lt;b&gt;&amp;</textarea>" in shown.text
    assert 'value="2020-01-01"' in shown.text
    assert await service.context.ledger.list_requests() == []
    assert await service.read_audit() == []


async def test_the_second_of_two_answers_comes_too_late(
    service: Running, alice: Browser, admin: Browser
) -> None:
    request = await ask(alice, service)
    withdrawn = await alice.send(f"requests/{request.id}/withdraw")
    assert "The request is withdrawn." in withdrawn.text
    late = await admin.send(f"requests/{request.id}/decide", decision="approve", answer="")
    assert (late.status, late.problem) == (
        409,
        "The request is withdrawn already: look at it again.",
    )


async def test_the_same_thing_is_not_asked_twice(service: Running, alice: Browser) -> None:
    await ask(alice, service)
    again = await alice.send("requests", **make_form(service))
    assert again.status == 409
    assert again.problem.startswith("You asked for that already")


async def test_twenty_requests_wait_at_most(service: Running, alice: Browser) -> None:
    asking = (alice.send("requests", **make_form(service, amount=str(n))) for n in range(1, 26))
    shown = await asyncio.gather(*asking)
    assert sorted(each.status for each in shown) == [200] * 20 + [429] * 5
    refused = next(each for each in shown if each.status == 429)
    assert refused.problem == "You have 20 open requests: withdraw one first."
    assert len(await service.read_audit()) == 20


async def test_one_asks_fifty_times_a_day(
    service: Running, alice: Browser, sign_in: SignIn
) -> None:
    for _ in range(50):
        request = await ask(alice, service)
        await alice.call("POST", f"requests/{request.id}/withdraw")
    shown = await alice.send("requests", **make_form(service))
    assert (shown.status, shown.problem) == (
        429,
        "You made 50 requests in the last 24 hours: ask again later.",
    )
    assert len(await service.read_audit()) == 100
    await ask(await sign_in("bob"), service)
    service.wall.ahead += timedelta(hours=25)
    await ask(alice, service)


async def test_one_asks_for_teams_of_ones_own(service: Running, alice: Browser) -> None:
    for team in ("ops", "nope"):
        shown = await alice.send("requests", **make_form(service, team=team))
        assert shown.status == 403
        assert shown.problem.startswith("You can ask for the teams that you are in")


async def test_an_approval_that_the_api_server_refuses_leaves_the_request_open(
    service: Running,
    alice: Browser,
    admin: Browser,
    cluster: Cluster,
    hub_namespace: str,
    read_spec: Any,
) -> None:
    request = await ask(alice, service)
    grant = {"gpus": {GPU: 1}, "until": "2999-01-01T00:00:00Z"}
    full = {"spec": {"grants": {f"g{number}": grant for number in range(64)}}}
    await cluster.patch(f"{find_teams(hub_namespace)}/flight", full)
    path = f"requests/{request.id}/decide"
    shown = await admin.send(path, decision="approve", answer="")
    assert shown.status == 409
    assert shown.problem.startswith("The request stays open, since the team was not changed:")
    assert "64" in shown.problem
    assert await find_request(service) == request

    lapsed = {"spec": {"grants": {"g0": {"until": "2020-01-01T00:00:00Z"}}}}
    await cluster.patch(f"{find_teams(hub_namespace)}/flight", lapsed)
    await wait_until(
        lambda: len(service.context.teams.get("flight").active_grants(service.wall())) == 63,
        within=10,
    )
    await admin.send(path, decision="approve", answer="")
    grants = (await read_spec("flight"))["grants"]
    assert len(grants) == 64
    assert "g0" not in grants
    assert request.id in grants


async def test_a_name_that_was_taken_meanwhile_leaves_the_request_open(
    service: Running, alice: Browser, admin: Browser, cluster: Cluster, hub_namespace: str
) -> None:
    request = await ask(alice, service, kind="team", new_team="vision")
    taken = {"apiVersion": "spectrum.dev/v1alpha1", "kind": "Team", "metadata": {"name": "vision"}}
    await cluster.create(find_teams(hub_namespace), taken)
    shown = await admin.send(f"requests/{request.id}/decide", decision="approve", answer="")
    assert shown.status == 409
    assert "vision" in shown.problem
    assert await find_request(service) == request


async def test_a_team_that_was_made_again_leaves_the_request_open(
    service: Running,
    alice: Browser,
    admin: Browser,
    cluster: Cluster,
    hub_namespace: str,
    read_spec: Any,
) -> None:
    request = await ask(alice, service)
    path, teams = f"{find_teams(hub_namespace)}/flight", service.context.teams
    team = await cluster.get(path)
    await cluster.delete(path)
    parts = {key: team[key] for key in ("apiVersion", "kind", "spec")}
    await cluster.create(find_teams(hub_namespace), {**parts, "metadata": {"name": "flight"}})
    decision = {"decision": "approve", "answer": ""}
    # whether or not the service has heard of it yet
    early = await admin.send(f"requests/{request.id}/decide", **decision)
    assert early.status == 409
    await wait_until(
        lambda: (found := teams.get("flight")) and found.team.uid != request.team_uid, within=10
    )
    shown = await admin.send(f"requests/{request.id}/decide", **decision)
    assert shown.status == 409
    assert shown.problem == (
        "The request stays open, since the team was not changed: team flight was deleted and "
        "made again since then; refuse the request, and let them ask anew."
    )
    assert "grants" not in await read_spec("flight")
    assert await find_request(service) == request


async def test_an_approval_during_an_outage_is_carried_out_after_it(
    service: Running, alice: Browser, admin: Browser, fault_proxy: FaultProxy, read_spec: Any
) -> None:
    request = await ask(alice, service)
    mend = fault_proxy.reset(lambda call: call.method == "PATCH", times=None)
    shown = await admin.send(f"requests/{request.id}/decide", decision="approve", answer="Yes.")
    assert shown.status == 503
    assert "carried out by itself" in shown.problem
    assert "being written into the team" in shown.text
    mend()
    await approvals.finish(service.context)
    assert request.id in (await read_spec("flight"))["grants"]
    assert (await find_request(service)).state == "approved"


async def test_a_crash_before_the_grant_is_made_good_at_the_next_start(
    start_service: Callable[..., Awaitable[Running]], hub_namespace: str, read_spec: Any
) -> None:
    await _approve_half_way(await start_service())
    again = await start_service(port=0, look_every=0.05)

    async def is_granted() -> bool:
        return (await find_request(again)).state == "approved"

    await wait_until(is_granted, within=10)
    assert list((await read_spec("flight"))["grants"]) == ["r-1"]


async def test_a_crash_after_the_grant_grants_nothing_twice(
    service: Running, read_spec: Any
) -> None:
    await _approve_half_way(service)
    await approvals.finish(service.context)
    granted = await read_spec("flight")
    assert await service.context.ledger.change_request("r-1", was="approved", state="approving")
    await approvals.finish(service.context)
    assert await read_spec("flight") == granted
    assert [action for action, *_ in await service.read_audit()] == ["request", "grant"]


async def test_a_grant_by_kubectl_under_the_requests_id_answers_it(
    service: Running, alice: Browser, cluster: Cluster, hub_namespace: str
) -> None:
    request = await ask(alice, service)
    grant = {"gpus": {GPU: 2}, "until": "2999-01-01T00:00:00Z"}
    path = f"{find_teams(hub_namespace)}/flight"
    await cluster.patch(path, {"spec": {"grants": {request.id: grant}}})
    await wait_until(lambda: service.context.teams.get("flight").grants, within=10)
    await approvals.find_granted(service.context)
    assert "Granted in the Team object." in (await alice.open("requests")).text
    assert [action for action, *_ in await service.read_audit()] == ["request", "grant"]


async def _approve_half_way(service: Running) -> None:
    """A request that was decided, and the service ended before it did anything."""
    now = service.wall()
    request = Request(
        id="r-1",
        kind="quota",
        team="flight",
        team_uid=service.context.teams.get("flight").team.uid,
        resource=GPU,
        amount=2,
        reason="The spring model.",
        until=now + timedelta(days=30),
        asked_by="alice",
        asked_at=now,
    )
    decided = replace(request, state="approving", decided_by="admin", decided_at=now)
    record = service.context.make_record("request", "user:alice", id="asked", user="alice")
    await service.context.ledger.add_request(decided, record)
