"""The work queue: nothing is lost, nothing is done twice at a time, what fails comes again."""

import asyncio

import pytest

from spectrum_spawner.controller import work
from spectrum_spawner.controller.work import Work
from tests.hub.clock import Clock, wait_until

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "SETTLE", 0)


@pytest.fixture
async def clock() -> Clock:
    return Clock(asyncio.get_running_loop())


class Doer:
    """Counts calls, and lets a test hold them, or fail the first few.

    Each call asks to be called again after as many seconds as `again` says.
    """

    def __init__(self, *, failures: int = 0) -> None:
        self.again: float | None = None
        self.calls: list[str] = []
        self.running = self.most = 0
        self.succeeded = asyncio.Event()
        self.open = asyncio.Event()
        self.open.set()
        self._failures = failures

    async def __call__(self, key: str) -> float | None:
        self.calls.append(key)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.open.wait()
        finally:
            self.running -= 1
        if self._failures:
            self._failures -= 1
            raise RuntimeError("not yet")
        self.succeeded.set()
        return self.again


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_adding_a_waiting_key_again_changes_nothing() -> None:
    do = Doer()
    queue = Work(do)
    for _ in range(5):
        queue.add("flight")
    await settle()
    assert do.calls == ["flight"]


async def test_a_key_added_during_its_call_is_called_once_more_and_not_at_the_same_time() -> None:
    do = Doer()
    do.open.clear()
    queue = Work(do)
    queue.add("flight")
    await settle()
    for _ in range(3):
        queue.add("flight")
    await settle()
    assert do.calls == ["flight"]
    do.open.set()
    await settle()
    assert do.calls == ["flight", "flight"]
    assert do.most == 1


async def test_one_key_does_not_wait_for_another() -> None:
    do = Doer()
    do.open.clear()
    queue = Work(do)
    queue.add("flight")
    queue.add("ops")
    await settle()
    assert do.running == 2
    await queue.close()


async def test_a_call_that_fails_is_repeated_until_it_succeeds() -> None:
    do = Doer(failures=3)
    queue = Work(do)
    queue.add("flight")
    async with asyncio.timeout(30):
        await do.succeeded.wait()
    await settle()
    assert do.calls == ["flight"] * 4


async def test_a_change_cuts_the_pause_after_a_failure_short() -> None:
    do = Doer(failures=1)
    queue = Work(do)
    queue.add("flight")
    await settle()
    assert len(do.calls) == 1
    queue.add("flight")
    await settle()
    assert len(do.calls) == 2


async def test_a_call_says_when_its_key_comes_again(clock: Clock) -> None:
    do = Doer()
    do.again = DAY
    queue = Work(do)
    queue.add("flight")
    await settle()
    began = clock.time()
    with clock.hurry(1e7):
        await wait_until(lambda: len(do.calls) == 3, within=3 * DAY)
    assert clock.time() - began >= 2 * DAY
    await queue.close()


async def test_the_last_call_has_the_last_word_on_when_its_key_comes_again(clock: Clock) -> None:
    do = Doer()
    do.again = DAY
    queue = Work(do)
    queue.add("flight")
    await settle()
    do.again = None
    queue.add("flight")
    await settle()
    with clock.hurry(1e7):
        await asyncio.sleep(3 * DAY)
    assert do.calls == ["flight", "flight"]


async def test_closing_ends_what_runs_and_what_waits() -> None:
    do = Doer()
    do.open.clear()
    queue = Work(do)
    queue.add("flight")
    await settle()
    await queue.close()
    assert do.running == 0


async def test_what_is_added_after_the_end_is_not_done() -> None:
    do = Doer()
    queue = Work(do)
    await queue.close()
    queue.add("flight")
    await settle()
    assert do.calls == []
