"""The service's own metrics, as Prometheus reads them, and the dashboard that stands on them."""

import json
import re
from collections.abc import Awaitable, Callable

import aiohttp
import pytest

from local.paths import CHECKOUT
from spectrum_spawner.audit import make_record
from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.service.culling.policy_values import read_policy
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.settings import Culling
from tests.hub.hub import Hub
from tests.hub.service.browser import PREFIX
from tests.hub.service.conftest import Running
from tests.hub.service.place import Place
from tests.hub.spawners import IMAGES, PROFILES

pytestmark = pytest.mark.asyncio(loop_scope="module")

DASHBOARD = CHECKOUT / "helm" / "spectrum" / "files" / "dashboard.json"
EXPORTER = CHECKOUT / "local" / "go" / "gpu-metrics" / "gpus.go"
RULES = {"gpu": {"order": 1, "gpu": True, "evidence": ["gpu", "kernels", "processes"]}}
CULLING = Culling(policy=read_policy({"rules": RULES}, read_profiles(PROFILES, IMAGES)))

StartService = Callable[..., Awaitable[Running]]


async def scrape(place: Place) -> str:
    """What Prometheus gets, inside the cluster."""
    url = f"http://127.0.0.1:{place.port}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert (answer.status, answer.content_type) == (200, "text/plain")
        return await answer.text()


def read(text: str, name: str) -> dict[str, float]:
    """The series of one metric: labels → number."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {
        series.removeprefix(name): float(number)
        for series, _, number in lines
        if series.partition("{")[0] == name
    }


async def test_servers_and_gpus_are_told_by_team_and_nobody_by_name(
    start_service: StartService, place: Place, hub: Hub
) -> None:
    service = await start_service(culling=CULLING)
    options = {"team": "flight", "profile": "gpu-1"}
    assert (await hub.start_server("alice", options)).status == 201
    assert (await hub.start_server("bob", {"team": "ops", "profile": "cpu-small"})).status == 201
    service.context.snapshot.forget()  # the list that the service read when it began
    await service.context.snapshot.refresh()
    await service.context.culler.look()

    text = await scrape(place)
    assert read(text, "spectrum_servers") == {
        '{state="running",team="flight"}': 1,
        '{state="running",team="ops"}': 1,
    }
    # Nobody measures here.
    assert read(text, "spectrum_gpus") == {'{product="GPU",state="unknown",team="flight"}': 1}
    assert read(text, "spectrum_culls_total") == {'{rule="gpu",team="flight"}': 0}
    assert read(text, "spectrum_sweep_seconds_count")[""] >= 1
    assert read(text, "spectrum_hub_answers") == {"": 1}
    at = service.context.culler.round.at
    assert at
    assert read(text, "spectrum_last_sweep_timestamp_seconds") == {"": at.timestamp()}
    assert not re.search("alice|bob", text)


async def test_a_ledger_that_is_full_is_told(
    service: Running, place: Place, break_ledger: Callable[[], None]
) -> None:
    assert read(await scrape(place), "spectrum_ledger_errors_total") == {"": 0}
    break_ledger()
    record = make_record(writer="service", action="notice", actor="service:spectrum")
    with pytest.raises(LedgerError):
        await service.context.ledger.add([record])
    assert read(await scrape(place), "spectrum_ledger_errors_total") == {"": 1}


async def test_a_hub_that_refuses_to_answer_is_told(
    start_service: StartService, place: Place
) -> None:
    service = await start_service(api_token="wrong")
    await service.context.snapshot.refresh()
    assert read(await scrape(place), "spectrum_hub_answers") == {"": 0}


async def test_people_do_not_reach_them(service: Running) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/metrics", f"{PREFIX}metrics", f"{PREFIX}../metrics"):
            async with session.get(service.url + path) as answer:
                assert "spectrum_servers" not in await answer.text()


async def test_every_metric_of_the_dashboard_is_there(service: Running, place: Place) -> None:
    types = re.findall("^# TYPE (\\S+) (\\S+)$", await scrape(place), re.MULTILINE)
    there = set(re.findall('"(DCGM_[A-Z_]+)"', EXPORTER.read_text()))
    for name, kind in types:
        histogram = kind == "histogram"
        there |= {f"{name}_{part}" for part in ("bucket", "sum", "count")} if histogram else {name}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    asked += [one["query"]["query"] for one in dashboard["templating"]["list"][1:]]
    wanted = set(re.findall(r"\b(?:spectrum|DCGM)_\w+", " ".join(asked)))
    assert len(wanted) > 10
    assert wanted - there == set()
