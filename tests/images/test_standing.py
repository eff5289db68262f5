"""How a server asks the service for its standing, while pages look: no image."""

import asyncio
from typing import Any

import pytest
from spectrum_lab import standing as standing_module
from spectrum_lab.service import Service, ServiceError
from spectrum_lab.standing import Standing

ROW = {
    "gpus": 1,
    "utilisation": 42.6,
    "memory": {"used": 12_884_901_888, "total": 85_899_345_920},
    "ends_at": None,
    "hold": None,
    "sentence": "It works.",
}
READ = {
    "gpus": 1,
    "utilisation": 42.6,
    "memory": {"used": 12_884_901_888, "total": 85_899_345_920},
    "ends_at": None,
    "held_until": None,
    "sentence": "It works.",
}


class Answering:
    """The service as a server sees it: it counts what it is asked, and may be late or fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: ServiceError | None = None
        self.late = asyncio.Event()
        self.late.set()

    async def read_row(self) -> dict[str, Any]:
        self.asked += 1
        await self.late.wait()
        if self.error:
            raise self.error
        return ROW


async def test_pages_that_look_at_once_or_soon_ask_once() -> None:
    service = Answering()
    standing = Standing(service)  # type: ignore[arg-type]
    await asyncio.gather(standing.look(), standing.look())
    await standing.look()
    assert (service.asked, standing.known) == (1, READ)
    standing.forget()
    await standing.look()
    assert service.asked == 2


async def test_a_late_service_delays_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "PATIENCE", 0.01)
    service = Answering()
    service.late.clear()
    standing = Standing(service)  # type: ignore[arg-type]
    async with asyncio.timeout(1):
        await standing.look()
        assert standing.known is None
        service.late.set()
        await standing.look()
    assert (service.asked, standing.known) == (1, READ)


async def test_a_service_that_refuses_is_left_alone_for_as_long_as_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standing_module, "FRESH", 0.0)
    service = Answering()
    service.error = ServiceError("It does not answer.")
    standing = Standing(service)  # type: ignore[arg-type]
    for _ in range(2):
        await standing.look()
    assert (service.asked, standing.known, standing.silence) == (2, None, "It does not answer.")
    service.error = ServiceError("Too many.", wait=60.0)
    for _ in range(2):
        await standing.look()
    assert (service.asked, standing.silence) == (3, "Too many.")


async def test_of_the_board_a_server_reads_its_own_row(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "gpus": {"gpus": [{"user": "bob", "server": ""}, {"user": "alice", "server": "a b"}]},
        "servers/self": {"state": "idle"},
    }

    async def ask(self: Service, method: str, path: str) -> dict[str, Any]:
        return answers[path]

    monkeypatch.setattr(Service, "_ask", ask)
    service = Service(url="http://service/", token="t", user="alice", server="a b")
    assert await service.read_row() == {"user": "alice", "server": "a b"}
    answers["gpus"] = {"gpus": []}
    assert await service.read_row() == {"state": "idle"}
