"""A view of real pods behind a network that breaks in every known way."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest_asyncio

from spectrum_spawner.kube import Client, Object, load_configuration
from spectrum_spawner.watch import View
from tests.hub.clock import Clock, wait_until
from tests.hub.cluster import Cluster
from tests.hub.fault_proxy import Call, FaultProxy
from tests.hub.team import Team, admit_hub, revoke_hub

POD = {
    "metadata": {"name": "one"},
    "spec": {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "one",
                "image": "one",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    },
}


def _make_pod(name: str) -> Object:
    return {**POD, "metadata": {"name": name}}


@pytest_asyncio.fixture
async def view(fault_proxy: FaultProxy, flight: Team) -> AsyncIterator[View[str]]:
    """Names of the pods of team flight, through the fault proxy; not started."""
    client = Client(await load_configuration())
    view = View(client, flight.pods, trim=lambda pod: pod["metadata"]["name"])
    yield view
    await view.close()
    await client.close()


@pytest_asyncio.fixture
async def watching(
    view: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy
) -> View[str]:
    """A view that has listed one pod and watches."""
    await cluster.create(flight.pods, _make_pod("one"))
    view.start()
    await view.wait_synced(timeout=10)
    await wait_until(lambda: fault_proxy.count_watches(flight.pods), within=10)
    return view


def _lists(team: Team) -> Callable[[Call], bool]:
    return lambda call: call.is_list(team.pods)


async def _see(view: View[str], *names: str, within: float = 10) -> None:
    await view.wait(lambda: sorted(view) == sorted(names), timeout=within)


async def test_shows_what_is_there_and_what_changes(
    watching: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy
) -> None:
    await cluster.create(flight.pods, _make_pod("two"))
    await _see(watching, "one", "two")
    await cluster.delete(f"{flight.pods}/one")
    await _see(watching, "two")
    assert fault_proxy.count(_lists(flight)) == 1


async def test_is_not_synced_until_a_list_succeeds(
    view: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy
) -> None:
    await cluster.create(flight.pods, _make_pod("one"))
    mend = fault_proxy.refuse(_lists(flight), status=500, times=None)
    view.start()
    await wait_until(lambda: view.error, within=10)
    assert (view.synced, list(view)) == (False, [])
    mend()
    await _see(view, "one")
    await view.wait(lambda: view.synced and not view.error, timeout=10)


async def test_lists_once_more_after_a_watch_is_refused_as_too_old(
    watching: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy
) -> None:
    fault_proxy.refuse(lambda call: call.is_watch(flight.pods), status=410)
    await cluster.create(flight.pods, _make_pod("two"))
    fault_proxy.cut_watches()
    await _see(watching, "one", "two")
    await wait_until(lambda: fault_proxy.count(_lists(flight)) == 2, within=10)
    await wait_until(lambda: fault_proxy.count_watches(flight.pods), within=10)
    await cluster.create(flight.pods, _make_pod("three"))
    await _see(watching, "one", "two", "three")
    assert fault_proxy.count(_lists(flight)) == 2


async def test_resumes_without_a_list_when_the_stream_is_cut_inside_a_line(
    watching: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    with clock.hurry(50):
        for number in range(60):  # every 2 s for 2 min
            await asyncio.sleep(2)
            if number % 10 == 0:
                await cluster.create(flight.pods, _make_pod(f"more-{number}"))
            fault_proxy.cut_watches()
        more = [f"more-{number}" for number in range(0, 60, 10)]
        await _see(watching, "one", *more, within=30)
    assert fault_proxy.count(_lists(flight)) == 1


async def test_finds_a_silent_watch_within_150_seconds(
    watching: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    fault_proxy.silence_watches()
    await cluster.create(flight.pods, _make_pod("two"))
    with clock.hurry(50):
        await _see(watching, "one", "two", within=170)


async def test_outlives_an_outage_of_ten_minutes(
    watching: View[str], cluster: Cluster, flight: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    await fault_proxy.go_down()
    with clock.hurry(200):
        await asyncio.sleep(600)
    assert (watching.synced, list(watching)) == (True, ["one"])
    assert watching.stale_since is not None
    await cluster.create(flight.pods, _make_pod("two"))
    await fault_proxy.come_up()
    await _see(watching, "one", "two", within=10)
    assert watching.stale_since is None


async def test_keeps_what_it_knew_while_its_rights_are_gone_and_heals(
    watching: View[str],
    cluster: Cluster,
    flight: Team,
    hub_namespace: str,
    fault_proxy: FaultProxy,
    clock: Clock,
) -> None:
    await revoke_hub(cluster, flight)

    def is_refused() -> bool:
        fault_proxy.cut_watches()  # again, until the API server has heard of the change
        return "403" in watching.error

    await wait_until(is_refused, within=60)
    with clock.hurry(30):
        await asyncio.sleep(60)
    assert (watching.synced, list(watching)) == (True, ["one"])
    await cluster.create(flight.pods, _make_pod("two"))
    await admit_hub(cluster, flight, hub_namespace)
    with clock.hurry(10):
        await _see(watching, "one", "two", within=60)
        await watching.wait(lambda: not watching.error, timeout=10)


async def test_asks_less_often_when_told_to_wait(
    watching: View[str], flight: Team, fault_proxy: FaultProxy, clock: Clock
) -> None:
    mend = fault_proxy.refuse(
        lambda call: call.path == flight.pods, status=429, times=None, retry_after=5
    )
    fault_proxy.cut_watches()
    await wait_until(lambda: "429" in watching.error, within=10)
    fault_proxy.calls.clear()
    with clock.hurry(30):
        await asyncio.sleep(60)
    assert 1 <= len(fault_proxy.calls) <= 12
    mend()
    with clock.hurry(10):
        await watching.wait(lambda: not watching.error, timeout=10)
