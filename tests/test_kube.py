"""What the API server's answers mean, and the verbs that decide by them."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from kubernetes_asyncio.client import Configuration

from spectrum_spawner import kube
from spectrum_spawner.kube import (
    AlreadyExists,
    Backoff,
    Client,
    Conflict,
    KubeError,
    NotFound,
    Refused,
    Unreachable,
    collection,
    error_of,
    item,
    persist,
)

PODS = collection("v1", "pods", namespace="flight")
POD = {"metadata": {"name": "p"}}


class ApiServer:
    """Answers one scripted (status, body) after the other, and remembers what was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict]] = []
        self.requests: list[tuple[str, str, dict | None]] = []
        self.headers: list[str] = []

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.requests.append((request.method, request.path, json.loads(text) if text else None))
        self.headers.append(f"{request.content_type} {request.query_string}")
        status, body = self.answers.pop(0)
        return web.json_response(body, status=status, headers={"Retry-After": "0"})


def refusal(status: int, reason: str) -> tuple[int, dict]:
    return status, {"kind": "Status", "reason": reason, "message": "because", "code": status}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api = ApiServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", api.handle)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield api
    await runner.cleanup()


@pytest.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    found = Client(Configuration(host=server.url))
    yield found
    await found.close()


def test_objects_are_addressed_by_path() -> None:
    assert collection("v1", "nodes") == "/api/v1/nodes"
    assert PODS == "/api/v1/namespaces/flight/pods"
    assert (
        item("spectrum.dev/v1alpha1", "teams", "a/b", namespace="spectrum", subresource="status")
        == "/apis/spectrum.dev/v1alpha1/namespaces/spectrum/teams/a%2Fb/status"
    )


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (403, "Forbidden", Refused),
        (422, "Invalid", Refused),
        (401, "Unauthorized", Refused),
        (429, "TooManyRequests", Unreachable),
        (500, "InternalError", Unreachable),
        (504, "Timeout", Unreachable),
    ],
)
def test_an_error_is_classed_by_what_the_caller_has_to_do(
    status: int, reason: str, kind: type[KubeError]
) -> None:
    error = error_of(status, reason=reason, message="because")
    assert (type(error), str(error)) == (kind, f"{status} {reason} because")


async def test_what_is_there_is_not_made_again(server: ApiServer, client: Client) -> None:
    server.answers = [(200, POD)]
    assert await client.create_if_absent(PODS, POD) == (POD, False)
    assert server.requests == [("GET", f"{PODS}/p", None)]


async def test_what_somebody_else_made_meanwhile_is_read(server: ApiServer, client: Client) -> None:
    server.answers = [refusal(404, "NotFound"), refusal(409, "AlreadyExists"), (200, POD)]
    assert await client.create_if_absent(PODS, POD) == (POD, False)
    assert [method for method, *_ in server.requests] == ["GET", "POST", "GET"]


async def test_a_deletion_names_the_very_object(server: ApiServer, client: Client) -> None:
    server.answers = [(200, POD), refusal(404, "NotFound"), refusal(409, "Conflict")]
    assert await client.delete(f"{PODS}/p", uid="u-1", grace=30)
    assert server.requests == [
        (
            "DELETE",
            f"{PODS}/p",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "preconditions": {"uid": "u-1"},
                "gracePeriodSeconds": 30,
            },
        )
    ]
    assert not await client.delete(f"{PODS}/p", uid="u-1")
    with pytest.raises(Conflict):
        await client.delete(f"{PODS}/p", uid="u-1")


async def test_a_patch_says_which_kind_it_is_and_who_sends_it(
    server: ApiServer, client: Client
) -> None:
    server.answers = [(200, POD), (200, POD)]
    await client.patch(f"{PODS}/p", POD)
    await client.apply(f"{PODS}/p", POD)
    assert server.headers == [
        "application/merge-patch+json fieldManager=spectrum",
        "application/apply-patch+yaml fieldManager=spectrum&force=true",
    ]


async def test_a_call_is_repeated_only_while_nobody_knows(
    server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube, "LONGEST_PAUSE", 0.0)
    server.answers = [refusal(503, "ServiceUnavailable"), refusal(500, "InternalError"), (200, POD)]
    assert await persist(lambda: client.get(f"{PODS}/p")) == POD
    server.answers = [refusal(403, "Forbidden")]
    with pytest.raises(Refused, match="403 Forbidden because"):
        await persist(lambda: client.get(f"{PODS}/p"))
    server.answers = [refusal(503, "ServiceUnavailable")] * 2
    with pytest.raises(Unreachable):
        await persist(lambda: client.get(f"{PODS}/p"), tries=2)


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    client = Client(Configuration(host="http://127.0.0.1:1"))
    with pytest.raises(Unreachable):
        await client.get(f"{PODS}/p")
    await client.close()


def test_pauses_grow_to_the_longest_and_heed_the_server() -> None:
    backoff = Backoff(longest=5.0)
    pauses = [backoff.next() for _ in range(20)]
    assert pauses[0] <= 0.1
    assert max(pauses) <= 5.0
    assert min(pauses[10:]) >= 2.5
    assert backoff.next(at_least=17.0) == 17.0
    backoff.reset()
    assert backoff.next() <= 0.1
