"""What Prometheus knows of GPUs, containers and the service, and who reaches it."""

import json

import pytest

from local.binaries import GO_SOURCES
from local.commands import run
from local.kubectl import Kubectl
from local.network import NODE_ADDRESS
from local.paths import CHECKOUT
from local.prometheus import GPU_METRICS_PORT, NAMESPACE, PORT, SERVICE, SERVICE_PORT
from spectrum_spawner import names
from tests.cluster.gpus import find_gpus, list_gpus, query, working
from tests.cluster.pods import Pod
from tests.cluster.servers import FLIGHT_GPU, FLIGHT_TWO_GPUS, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

ADDRESS = f"{SERVICE}.{NAMESPACE}.svc:{SERVICE_PORT}"
ASK = f"""
import urllib.request
print(urllib.request.urlopen("http://{ADDRESS}/-/ready", timeout=10).read().decode())
"""
POD = names.server_name("alice", "")


@pytest.fixture
def flight(release: InstalledRelease) -> str:
    return f"{release.namespace}-flight"


def find_utilisation(namespace: str) -> dict[str, float]:
    """Utilisation by UUID of the GPUs that alice's server has, by the labels that culling reads."""
    selector = f'exported_namespace="{namespace}",exported_pod="{POD}"'
    return {labels["UUID"]: value for labels, value in query(f"DCGM_FI_DEV_GPU_UTIL{{{selector}}}")}


def test_the_exporter_passes_its_own_tests() -> None:
    sources = GO_SOURCES / "gpu-metrics"
    assert run(["gofmt", "-l", "."], directory=sources) == ""
    environment = {"CGO_ENABLED": "0", "GOWORK": "off"}
    for words in (["vet", "."], ["test", "."]):
        run(["go", *words], directory=sources, environment=environment)


def test_a_gpu_is_measured_under_the_name_of_the_server_that_has_it(
    alice: Servers, flight: str
) -> None:
    alice.start(FLIGHT_GPU)
    (uuid,) = find_gpus(flight, POD)
    wait_until(lambda: find_utilisation(flight) == {uuid: 0})
    with working(uuid, utilisation=85, memory=70000, power=300):
        wait_until(lambda: find_utilisation(flight) == {uuid: 85})
        found = query(f'DCGM_FI_PROF_GR_ENGINE_ACTIVE{{UUID="{uuid}"}}')
        assert [value for _, value in found] == [0.85]
        assert query(f'DCGM_FI_DEV_POWER_USAGE{{UUID="{uuid}"}}')[0][1] == 300
        assert query(f'DCGM_FI_DEV_FB_USED{{UUID="{uuid}"}}')[0][1] == 70000
        assert query(f'DCGM_FI_DEV_FB_FREE{{UUID="{uuid}"}}')[0][1] == 81920 - 70000
    with working(uuid, utilisation=None):
        wait_until(lambda: not find_utilisation(flight))
    alice.stop()
    assert find_gpus(flight, POD) == []
    wait_until(lambda: not find_utilisation(flight))


def test_both_gpus_of_a_server_are_measured_each_for_itself(alice: Servers, flight: str) -> None:
    alice.start(FLIGHT_TWO_GPUS)
    one, other = find_gpus(flight, POD)
    with working(other, utilisation=40):
        wait_until(lambda: find_utilisation(flight) == {one: 0, other: 40})
    assert len(list_gpus()) == 4


def test_the_cpu_of_a_server_is_measured(alice: Servers, flight: str) -> None:
    alice.start(FLIGHT_GPU)
    selector = f'namespace="{flight}",pod="{POD}",container="notebook"'
    wait_until(lambda: query(f"container_cpu_usage_seconds_total{{{selector}}}"))


def test_the_service_reaches_prometheus_and_servers_do_not(
    release: InstalledRelease, kubectl: Kubectl, alice: Servers, flight: str
) -> None:
    answer = kubectl("-n", release.namespace, "exec", "deploy/service", "--", "python", "-c", ASK)
    assert answer == "Prometheus Server is Ready.\n\n"
    alice.start(FLIGHT_GPU)
    targets = {
        "by its name": ADDRESS,
        "by its address": f"{NODE_ADDRESS}:{PORT}",
        "what sets the GPUs": f"{NODE_ADDRESS}:{GPU_METRICS_PORT}",
    }
    assert Pod(kubectl, flight, POD).reach(targets) == dict.fromkeys(targets, False)


def test_prometheus_reads_the_service_and_people_do_not(
    release: InstalledRelease, alice: Servers
) -> None:
    labels = f'job="spectrum",namespace="{release.namespace}"'
    wait_until(lambda: query(f"up{{{labels}}} == 1"))
    wait_until(lambda: query(f"spectrum_hub_answers{{{labels}}} == 1"))
    for path in ("services/spectrum/metrics", "metrics"):
        assert "spectrum_hub_answers" not in alice.person.visit(f"../{path}").text


def test_prometheus_takes_every_question_of_the_dashboard() -> None:
    dashboard = json.loads(
        (CHECKOUT / "helm" / "spectrum" / "files" / "dashboard.json").read_text()
    )
    variables = [one["name"] for one in dashboard["templating"]["list"]]
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name in variables:
                expression = expression.replace(f"${name}", ".*")
            query(expression)  # what is wrong is refused
