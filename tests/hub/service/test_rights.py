"""Who may do what: every kind of person and token against the running service.

The table that is checked is printed.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest

from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster
from tests.hub.hub import Hub
from tests.hub.service.browser import Browser, Shown
from tests.hub.service.conftest import Running
from tests.hub.service.place import GPU, POOR_TOKEN
from tests.hub.service.tokens import Token, read_server_token
from tests.hub.team import Team

pytestmark = pytest.mark.asyncio(loop_scope="module")

MORE = {
    "kind": "quota",
    "team": "flight",
    "resource": GPU,
    "reason": "The spring model.",
}

# Columns: an anonymous visitor, a member of team flight, a member of another team, the lead of
# flight, an administrator in another team, somebody who was taken out of flight after signing
# in, the token of a server in flight, the token of a service without further scopes.
VIEWERS = ("anonymous", "member", "other", "lead", "admin", "revoked", "server", "service")
TABLE = """
                           anonymous member other lead admin revoked server service
see the team               -         yes    -     yes  yes   -       yes    -
see teammates' servers     -         yes    -     yes  yes   -       -      -
see one's own server       -         yes    yes   yes  yes   yes     yes    -
keep one's own server      -         yes    yes   yes  yes   yes     yes    -
hold one's own server      -         yes    yes   yes  yes   yes     yes    -
keep a teammate's server   -         -      -     yes  yes   -       -      -
hold a teammate's server   -         -      -     yes  yes   -       -      -
stop one's own server      -         yes    yes   yes  yes   yes     -      -
stop a teammate's server   -         -      -     yes  yes   -       -      -
release one's own server   -         yes    yes   yes  yes   yes     yes    -
release a teammate's       -         -      -     yes  yes   -       -      -
see how many GPUs are held -         yes    yes   yes  yes   yes     yes    -
see the team's GPUs        -         yes    -     yes  yes   -       -      -
try another policy         -         -      -     yes  yes   -       -      -
set the team's preferences -         -      -     yes  yes   -       -      -
ask for more for the team  -         yes    -     yes  -     -       -      -
ask for a new team         -         yes    yes   yes  yes   yes     -      -
withdraw one's request     -         yes    yes   yes  yes   yes     -      -
withdraw another's request -         -      -     -    -     -       -      -
decide a request           -         -      -     -    yes   -       -      -
read records of the team   -         -      -     yes  yes   -       -      -
read stops in the team     -         yes    -     yes  yes   -       -      -
download the audit         -         -      -     -    yes   -       -      -
report volumes             -         -      -     -    -     -       yes    -
read the inside            -         -      -     -    -     -       -      -
"""


@dataclass
class Scene:
    """Everybody at their place; `owners` says whose server is a viewer's own."""

    hub: Hub
    service: Running
    people: dict[str, Browser | Token]
    owners: dict[str, str]

    async def can(self, viewer: str, action: str) -> bool:
        """Whether somebody can do something, by doing it."""
        person = self.people[viewer]
        own = self.owners.get(viewer, "")
        match action:
            case "see the team":
                return _is_done(await person.call("GET", "teams/flight"))
            case "see teammates' servers":
                return "erin" in await self._read_owners(person)
            case "see one's own server":
                return own in await self._read_owners(person)
            case "stop one's own server":
                return await self._stop(person, own)
            case "stop a teammate's server":
                return await self._stop(person, "erin")
            case "keep one's own server":
                return await self._handle(person, own, "keep")
            case "hold one's own server":
                return await self._handle(person, own, "hold")
            case "release one's own server":
                return await self._release(person, own)
            case "keep a teammate's server":
                return await self._handle(person, "erin", "keep")
            case "hold a teammate's server":
                return await self._handle(person, "erin", "hold")
            case "release a teammate's":
                return await self._release(person, "erin")
            case "see how many GPUs are held":
                return _is_done(await person.call("GET", "gpus"))
            case "see the team's GPUs":
                shown = await person.call("GET", "gpus")
                return shown.status == 200 and "frank" in [r["user"] for r in shown.body["gpus"]]
            case "try another policy":
                return _is_done(await person.call("POST", "cull/dry-run", {"culling": {}}))
            case "set the team's preferences":
                wanted = {"defaultProfile": "gpu-1", "idleMinutes": 60}
                return _is_done(await person.call("PUT", "teams/flight/preferences", wanted))
            case "ask for more for the team":
                return await self._ask(person, MORE)
            case "ask for a new team":
                return await self._ask(person, {**MORE, "kind": "team", "team": f"new-{viewer}"})
            case "withdraw one's request":
                return await self._withdraw(person, await self._request_of(own or "frank"))
            case "withdraw another's request":
                return await self._withdraw(person, await self._request_of("frank"))
            case "decide a request":
                return await self._decide(person)
            case "report volumes":
                return _is_done(await person.call("POST", "report", {"volumes": []}))
            case "read records of the team":
                return "start" in await self._read_actions(person)
            case "read stops in the team":
                return "stop" in await self._read_actions(person)
            case "download the audit":
                return _is_done(await person.open("audit/download?format=json"))
            case "read the inside":
                inside = Token(f"http://127.0.0.1:{self.service.context.settings.port}", "")
                if isinstance(person, Token):
                    inside._headers = person._headers
                return _is_done(await inside.visit("/internal/notices"))
        raise AssertionError(action)

    async def _read_owners(self, person: Browser | Token) -> list[str]:
        shown = await person.call("GET", "servers")
        self.service.context.snapshot.forget()
        return [each["user"] for each in shown.body["servers"]] if shown.status == 200 else []

    async def _handle(self, person: Browser | Token, owner: str, verb: str) -> bool:
        """Whether the rights suffice: that no end is near is no matter of rights."""
        until = (self.service.wall() + timedelta(hours=1)).isoformat()
        fields = {"until": until} if verb == "hold" else None
        shown = await person.call("POST", f"servers/{owner}//{verb}", fields)
        return shown.status == 409 or _is_done(shown)

    async def _stop(self, person: Browser | Token, owner: str) -> bool:
        reason = {"reason": "To see who can."}
        shown = await person.call("DELETE", f"servers/{owner}/", reason)
        return _is_done(shown) and await self._see_end(owner)

    async def _release(self, person: Browser | Token, owner: str) -> bool:
        # who left cannot start another, and has one more for this
        name = "more" if owner == "dave" else ""
        path, reason = f"servers/{owner}/{name}/release", {"reason": "To see who can."}
        return _is_done(await person.call("POST", path, reason)) and await self._see_end(owner)

    async def _see_end(self, owner: str) -> bool:
        """A server that can be started again is."""
        if owner != "dave":
            await self.hub.wait_absent(owner, within=10)
            await self.start_server(owner)
        return True

    async def start_server(self, owner: str) -> None:
        team = "flight" if owner in ("alice", "dave", "erin") else "ops"
        options = {"team": team, "profile": "cpu-small"}
        answer = await self.hub.start_server(owner, options)
        assert answer.status == 201, answer
        self.service.context.snapshot.forget()

    async def _ask(self, person: Browser | Token, fields: dict[str, str]) -> bool:
        until = (self.service.wall() + timedelta(days=30)).date()
        fields = {**fields, "amount": 1, "until": until.isoformat()}
        return _is_done(await person.call("POST", "requests", fields))

    async def _request_of(self, asker: str) -> str:
        """An open request of somebody, made where there is none."""
        ledger = self.service.context.ledger
        if not await ledger.list_requests(asked_by=asker, states=["open"]):
            asking = Token(self.service.url, self.hub.make_token(asker))
            await self._ask(asking, {**MORE, "kind": "team", "team": f"more-{asker}"})
        return (await ledger.list_requests(asked_by=asker, states=["open"]))[0].id

    async def _withdraw(self, person: Browser | Token, id: str) -> bool:
        return _is_done(await person.call("POST", f"requests/{id}/withdraw"))

    async def _decide(self, person: Browser | Token) -> bool:
        id = await self._request_of("frank")
        answer = {"decision": "refuse", "answer": "To see who can."}
        return _is_done(await person.call("POST", f"requests/{id}/decide", answer))

    async def _read_actions(self, person: Browser | Token) -> list[str]:
        """Actions of the records about erin's server in flight."""
        shown = await person.call("GET", "audit?team=flight&person=erin")
        return [each["action"] for each in shown.body["records"]] if shown.status == 200 else []


def _is_done(shown: Shown) -> bool:
    """Whether it was done; what was not is a refusal in one sentence."""
    if shown.status < 300:
        return True
    assert shown.status in (302, 403, 404), shown
    if shown.status != 302:
        assert shown.problem.endswith("."), shown
    return False


@pytest.fixture
def table() -> dict[str, dict[str, bool]]:
    """TABLE by action and viewer."""
    _, head, *rows = TABLE.splitlines()
    assert tuple(head.split()) == VIEWERS
    found = {}
    for row in rows:
        action, cells = row[:27].strip(), row[27:].split()
        found[action] = dict(zip(VIEWERS, (cell == "yes" for cell in cells), strict=True))
    return found


def show(results: dict[str, dict[str, bool]]) -> str:
    """Results as TABLE is written."""
    lines = ["", " " * 27 + " ".join(VIEWERS)]
    for action, cells in results.items():
        shown = [("yes" if cells[v] else "-").ljust(len(v)) for v in VIEWERS]
        lines.append(action.ljust(27) + " ".join(shown).rstrip())
    return "\n".join([*lines, ""])


async def test_who_may_do_what(
    hub: Hub,
    service: Running,
    sign_in: Callable[[str], Awaitable[Browser]],
    teams: dict[str, Team],
    cluster: Cluster,
    table: dict[str, dict[str, bool]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("carol", "dave", "erin", "frank"):
        assert (await hub.call("POST", f"/users/{name}")).status == 201
    await _join(hub, "flight", "dave", "erin")
    await _join(hub, "ops", "carol")
    owners = {"member": "alice", "other": "carol", "lead": "bob", "admin": "admin"}
    owners |= {"revoked": "dave", "server": "alice"}
    scene = Scene(hub, service, {}, owners)
    for owner in ("alice", "erin", "carol", "bob", "admin", "dave"):
        await scene.start_server(owner)
    scene.people = {
        "anonymous": Token(service.url, ""),
        "member": await sign_in("alice"),
        "other": await sign_in("carol"),
        "lead": await sign_in("bob"),
        "admin": await sign_in("admin"),
        "revoked": await sign_in("dave"),
        "service": Token(service.url, POOR_TOKEN),
    }
    await _join(hub, "flight", "frank")
    for user, server, profile in (("frank", "", "gpu-1"), ("dave", "more", "cpu-small")):
        answer = await hub.start_server(user, {"team": "flight", "profile": profile}, server)
        assert answer.status == 201, answer
    service.context.snapshot.forget()
    await service.context.culler.look()
    await _record_life(service)
    await _leave_while_signed_in(hub, scene.people["revoked"])

    results: dict[str, dict[str, bool]] = {}
    for action in table:
        results[action] = {}
        for viewer in VIEWERS:
            if viewer == "server":
                # each stop begins a new run of the server, with a new token
                token = await read_server_token(cluster, teams["flight"], "alice")
                scene.people["server"] = Token(service.url, token)
            results[action][viewer] = await scene.can(viewer, action)
    with capsys.disabled():
        print(show(results))  # noqa: T201 - who may do what is for people to read
    assert results == table


async def _join(hub: Hub, group: str, *users: str) -> None:
    answer = await hub.call("POST", f"/groups/{group}/users", {"users": list(users)})
    assert answer.status == 200, answer


async def _leave_while_signed_in(hub: Hub, dave: Browser) -> None:
    """Membership of now decides: within seconds the same cookie opens the team no more."""
    assert (await dave.open("teams/flight")).status == 200
    answer = await hub.call("DELETE", "/groups/flight/users", {"users": ["dave"]})
    assert answer.status == 200, answer

    async def is_shut() -> bool:
        return (await dave.open("teams/flight")).status == 404

    await wait_until(is_shut, within=10, what="the end of dave's rights")


async def _record_life(service: Running) -> None:
    """A start and a stop of erin's server, as the hub hands them in."""
    for action in ("start", "stop"):
        record = service.context.make_record(action, "hub", user="erin", team="flight")
        await service.context.ledger.add([record])
