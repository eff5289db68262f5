"""A view against a small HTTP server that plays the API server's list and watch."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from spectrum_spawner import kube, watch
from spectrum_spawner.kube import Client
from spectrum_spawner.watch import View

PODS = "/api/v1/namespaces/flight/pods"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ApiServer:
    """Plays back one scripted answer a request, and then keeps every further watch open."""

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.requests: list[str] = []
        self.closing = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        self.requests.append(
            f"watch {request.query['resourceVersion']}"
            if is_watch
            else f"list {request.query.get('continue', '')}".strip()
        )
        if self.script:
            return await self.script.pop(0)(request)
        return await watching()(request) if is_watch else await listing("1")(request)


API = web.AppKey("api", ApiServer)


def pod(name: str, version: str, phase: str = "Running") -> dict:
    return {
        "metadata": {"name": name, "namespace": "flight", "resourceVersion": version},
        "status": {"phase": phase},
    }


def phase_of(obj: dict) -> str:
    return obj["status"]["phase"]


def listing(version: str, *pods: dict, following: str = "") -> Answer:
    async def answer(request: web.Request) -> web.Response:
        metadata = {"resourceVersion": version, **({"continue": following} if following else {})}
        return web.json_response({"metadata": metadata, "items": list(pods)})

    return answer


def refusing(status: int, reason: str, message: str) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        body = {"kind": "Status", "reason": reason, "message": message, "code": status}
        return web.json_response(body, status=status)

    return answer


def event(kind: str, obj: dict) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def watching(*chunks: bytes, end: str = "stay") -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if end == "cut" and request.transport is not None:
            request.transport.abort()
        elif end == "stay":
            await request.app[API].closing.wait()
        return response

    return answer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api = ApiServer()
    application = web.Application()
    application[API] = api
    application.router.add_get("/{path:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield api
    api.closing.set()
    await runner.cleanup()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    found = Client(Configuration(host=server.url))
    yield found
    await found.close()


@pytest.fixture
async def view(client: Client, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[View[str]]:
    monkeypatch.setattr(kube, "LONGEST_PAUSE", 0.02)
    found = View(client, PODS, trim=phase_of)
    yield found
    await found.close()


async def test_a_view_reads_all_pages_and_then_follows_changes(
    server: ApiServer, view: View[str]
) -> None:
    server.script = [
        listing("10", pod("a", "1"), following="more"),
        listing("10", pod("b", "2", "Pending")),
        watching(
            event("MODIFIED", pod("b", "11")),
            event("DELETED", pod("a", "12")),
            event("ADDED", pod("c", "13", "Pending")),
        ),
    ]
    view.start()
    await view.wait(lambda: view.get("c"), timeout=30)
    assert view.synced
    assert view.items() == [("b", "Running"), ("c", "Pending")]
    assert server.requests == ["list", "list more", "watch 10"]


async def test_a_failed_first_list_leaves_the_view_unsynced_until_a_later_one_succeeds(
    server: ApiServer, view: View[str]
) -> None:
    server.script = [
        refusing(500, "InternalError", "etcd has no leader"),
        refusing(403, "Forbidden", "pods is forbidden"),
        listing("10", pod("a", "1")),
    ]
    view.start()
    await view.wait(lambda: view.error, timeout=30)
    assert not view.synced
    assert view.error == "500 InternalError etcd has no leader"
    assert view.stale_since is not None
    await view.wait_synced(timeout=30)
    await view.wait(lambda: not view.error, timeout=30)
    assert view.get("a") == "Running"
    assert view.stale_since is None


async def test_a_view_keeps_its_last_state_while_the_server_refuses_it(
    server: ApiServer, view: View[str]
) -> None:
    server.script = [
        listing("10", pod("a", "1")),
        watching(end="close"),
        *[refusing(403, "Forbidden", "pods is forbidden")] * 3,
        watching(event("MODIFIED", pod("a", "11", "Failed"))),
    ]
    view.start()
    await view.wait(lambda: view.error, timeout=30)
    assert (view.synced, view.get("a")) == (True, "Running")
    await view.wait(lambda: view.get("a") == "Failed", timeout=30)
    assert view.error == ""
    assert server.requests == ["list", *["watch 10"] * 5]


async def test_a_watch_that_is_cut_within_a_line_resumes_where_it_was(
    server: ApiServer, view: View[str]
) -> None:
    half = event("MODIFIED", pod("a", "12", "Failed"))[:40]
    server.script = [
        listing("10", pod("a", "1")),
        watching(event("MODIFIED", pod("a", "11", "Pending")), half, end="cut"),
        watching(event("MODIFIED", pod("a", "12", "Failed"))),
    ]
    view.start()
    await view.wait(lambda: view.get("a") == "Failed", timeout=30)
    assert server.requests == ["list", "watch 10", "watch 11"]


@pytest.mark.parametrize(
    "gone",
    [
        refusing(410, "Expired", "too old resource version"),
        watching(event("ERROR", {"code": 410, "reason": "Expired", "message": "too old"})),
    ],
    ids=["as answer", "as event"],
)
async def test_an_expired_version_costs_one_list_and_loses_no_change(
    server: ApiServer, client: Client, gone: Answer
) -> None:
    changes: list[tuple[str, str | None, str | None]] = []
    view = View(client, PODS, trim=phase_of, on_change=lambda *change: changes.append(change))
    server.script = [
        listing("10", pod("a", "1"), pod("b", "2")),
        gone,
        listing("20", pod("b", "15", "Failed"), pod("c", "16")),
    ]
    view.start()
    await view.wait(lambda: view.get("c"), timeout=30)
    await view.close()
    assert sorted(changes[2:]) == [
        ("a", "Running", None),
        ("b", "Running", "Failed"),
        ("c", None, "Running"),
    ]
    assert server.requests[:3] == ["list", "watch 10", "list"]


async def test_a_bookmark_moves_the_version_from_which_a_watch_resumes(
    server: ApiServer, view: View[str]
) -> None:
    server.script = [
        listing("10"),
        watching(event("BOOKMARK", {"metadata": {"resourceVersion": "99"}}), end="close"),
        watching(event("ADDED", pod("a", "100"))),
    ]
    view.start()
    await view.wait(lambda: view.get("a"), timeout=30)
    assert server.requests == ["list", "watch 10", "watch 99"]


async def test_a_silent_watch_is_opened_again_from_the_same_version(
    server: ApiServer, view: View[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SILENCE", 0.1)
    server.script = [listing("10"), watching(), watching(event("ADDED", pod("a", "11")))]
    view.start()
    await view.wait(lambda: view.get("a"), timeout=30)
    assert server.requests[:3] == ["list", "watch 10", "watch 10"]
    assert view.error == ""


async def test_many_waiters_of_one_object_wake_and_others_time_out(
    server: ApiServer, view: View[str]
) -> None:
    server.script = [listing("10"), watching(event("ADDED", pod("a", "11")))]
    waiting = [
        asyncio.create_task(view.wait(lambda: view.get("a"), key="a", timeout=30))
        for _ in range(50)
    ]
    view.start()
    assert await asyncio.gather(*waiting) == ["Running"] * 50
    with pytest.raises(TimeoutError):
        await view.wait(lambda: view.get("b"), key="b", timeout=0.01)


async def test_closing_a_view_cancels_whoever_waits(server: ApiServer, view: View[str]) -> None:
    view.start()
    await view.wait_synced(timeout=30)
    waiting = asyncio.create_task(view.wait(lambda: view.get("a")))
    await asyncio.sleep(0)
    await view.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_an_object_that_cannot_be_read_does_not_end_the_view(
    server: ApiServer, view: View[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube.Backoff, "next", lambda self, at_least=0.0: 0.0)
    unreadable = {"metadata": {"name": "x", "resourceVersion": "11"}}
    server.script = [
        listing("10"),
        watching(event("ADDED", unreadable)),
        listing("20", pod("a", "15")),
    ]
    view.start()
    await view.wait(lambda: view.get("a"), timeout=30)
