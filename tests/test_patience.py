"""Which answers to a creation are waited out, and which are final."""

import asyncio

import pytest

from spectrum_spawner.kube import Conflict, KubeError, NotFound, Refused, Unreachable
from spectrum_spawner.patience import PATIENCE, Patience
from tests.hub.clock import Clock

FORBIDDEN = 'pods "p" is forbidden: '


def refused(message: str) -> Refused:
    return Refused(FORBIDDEN + message, status=403, reason="Forbidden")


NEW_NAMESPACE = [
    refused("error looking up service account x/spectrum-server: serviceaccount not found"),
    refused("status unknown for quota: spectrum, resources: pods"),
]
FINAL = [
    refused("exceeded quota: spectrum, requested: pods=1, used: pods=1, limited: pods=1"),
    refused("unable to create new content in namespace x because it is being terminated"),
    NotFound('namespaces "x" not found', status=404, reason="NotFound"),
]
BUSY = [
    Conflict("the object has been modified", status=409, reason="Conflict"),
    Unreachable("no answer"),
]


@pytest.mark.parametrize("error", FINAL)
async def test_what_another_try_will_not_change_is_raised_at_once(error: KubeError) -> None:
    with pytest.raises(KubeError) as raised:
        await Patience().wait(error)
    assert raised.value is error


@pytest.mark.parametrize("error", NEW_NAMESPACE)
async def test_a_namespace_has_some_time_to_be_complete(error: KubeError) -> None:
    clock, patience = Clock(asyncio.get_running_loop()), Patience()
    await patience.wait(error)
    with clock.hurry(1000):
        await asyncio.sleep(PATIENCE)
    with pytest.raises(Refused):
        await patience.wait(error)


@pytest.mark.parametrize("error", BUSY)
async def test_a_busy_cluster_is_waited_for_without_end(error: KubeError) -> None:
    clock, patience = Clock(asyncio.get_running_loop()), Patience()
    with clock.hurry(1000):
        await asyncio.sleep(10 * PATIENCE)
        await patience.wait(error)


async def test_a_server_that_names_a_pause_gets_it() -> None:
    clock, patience = Clock(asyncio.get_running_loop()), Patience()
    before = clock.time()
    with clock.hurry(1000):
        await patience.wait(Unreachable("busy", status=429, retry_after=30))
    assert clock.time() - before >= 30
