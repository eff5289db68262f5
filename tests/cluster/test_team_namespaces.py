"""Team namespaces on a running cluster: what their servers reach, and what the quota counts.

The teams `north` and `south` are made for these tests beside the release's own.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from local.errors import Refusal
from local.kubectl import Kubectl
from spectrum_spawner import names
from spectrum_spawner.inventory import Inventory
from tests.conftest import InstalledRelease

GPU = "nvidia.com/gpu"
SERVER_PORT, OTHER_PORT = 8888, 9999
LISTENER = """
import socket, threading
for port in (8888, 9999):
    server = socket.create_server(("0.0.0.0", port))
    def accept(server=server):
        while True:
            server.accept()[0].close()
    threading.Thread(target=accept).start()
"""
CONNECTOR = """
import json, socket, sys
from concurrent.futures import ThreadPoolExecutor
def is_open(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError:
        return False
    return True
targets = json.loads(sys.argv[1])
with ThreadPoolExecutor(len(targets)) as pool:
    found = dict(zip(targets, pool.map(is_open, targets.values())))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Pod:
    """A pod that runs, and may be told to connect."""

    kubectl: Kubectl
    namespace: str
    name: str

    @property
    def address(self) -> str:
        pod = self.kubectl.get("-n", self.namespace, "pod", self.name)
        return str(pod["status"]["podIP"])

    def run(self, *words: str) -> str:
        return self.kubectl("-n", self.namespace, "exec", self.name, "--", *words)

    def reach(self, targets: Mapping[str, str]) -> dict[str, bool]:
        """Whether a connection to each `host:port` is accepted, by the names of `targets`."""
        found: dict[str, bool] = json.loads(
            self.run("python3", "-c", CONNECTOR, json.dumps(dict(targets)))
        )
        return found


@pytest.fixture(scope="module")
def kubectl(release: InstalledRelease) -> Kubectl:
    return release.kubectl


@pytest.fixture(scope="module")
def image(release: InstalledRelease) -> str:
    values: dict[str, Any] = release.chart.read_values()
    return str(next(iter(values["images"].values()))["image"])


@pytest.fixture(scope="module")
def north(release: InstalledRelease) -> Iterator[str]:
    """Namespace of a team that may use one GPU."""
    yield from make_team(release, "north", {"pods": 3, "gpus": {GPU: 1}})


@pytest.fixture(scope="module")
def south(release: InstalledRelease) -> Iterator[str]:
    """Namespace of another team."""
    yield from make_team(release, "south", {"pods": 1, "gpus": {}})


@pytest.fixture(scope="module")
def elsewhere(kubectl: Kubectl) -> Iterator[str]:
    """A namespace that has nothing to do with Spectrum, and no policies."""
    kubectl("create", "namespace", "elsewhere")
    yield "elsewhere"
    kubectl("delete", "namespace", "elsewhere", "--wait=false")


def make_team(release: InstalledRelease, name: str, quota: Mapping[str, Any]) -> Iterator[str]:
    """A team for the length of a fixture; its purge at the end is the one that admins use."""
    kubectl, namespace = release.kubectl, f"{release.namespace}-{name}"
    team = {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": name, "namespace": release.namespace},
        "spec": {"quota": quota},
    }
    kubectl("apply", "-f", "-", text=json.dumps(team))
    home = ("-n", release.namespace)
    kubectl(*home, "wait", f"team/{name}", "--for=condition=Ready", "--timeout=30s")
    kubectl(*home, "wait", f"team/{name}", "--for=condition=QuotaEnforced", "--timeout=30s")
    yield namespace
    kubectl(*home, "delete", "team", name)
    wait_until(lambda: "spectrum.dev/orphaned-at" in find_annotations(kubectl, namespace))
    assert "deletionTimestamp" not in kubectl.get("namespace", namespace)["metadata"]
    kubectl("annotate", "namespace", namespace, f"spectrum.dev/purge={namespace}")
    found = ("get", "namespace", namespace, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
    wait_until(lambda: kubectl(*found) in ("", "Terminating"))


def find_annotations(kubectl: Kubectl, namespace: str) -> dict[str, str]:
    found: dict[str, str] = kubectl.get("namespace", namespace)["metadata"]["annotations"]
    return found


def make_pod(name: str, image: str, *, gpus: int = 0) -> dict[str, Any]:
    limits = {GPU: str(gpus)} if gpus else {}
    container = {
        "name": "notebook",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", LISTENER],
        "resources": {"limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"key": GPU, "operator": "Exists"}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start_pod(
    kubectl: Kubectl,
    namespace: str,
    name: str,
    image: str,
    *,
    gpus: int = 0,
    is_server: bool = False,
) -> Pod:
    """A pod that listens on both ports, once it runs."""
    manifest = make_pod(name, image, gpus=gpus)
    if is_server:
        manifest["metadata"]["labels"] = {names.LABEL_COMPONENT: names.COMPONENT_SERVER}
        manifest["spec"]["serviceAccountName"] = names.SERVER_SERVICE_ACCOUNT
    kubectl("-n", namespace, "create", "-f", "-", text=json.dumps(manifest))
    kubectl("-n", namespace, "wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    return Pod(kubectl, namespace, name)


def wait_until(condition: Callable[[], Any], *, within: float = 10) -> Any:
    """The first true answer; fails after `within` seconds."""
    deadline = time.monotonic() + within
    while not (answer := condition()):
        assert time.monotonic() < deadline, "it has not happened in time"
        time.sleep(0.2)
    return answer


def assert_reaches(pod: Pod, targets: Mapping[str, str], wanted: Mapping[str, bool]) -> None:
    """A new pod's rules are in force moments after its start: asked again until they are."""
    deadline = time.monotonic() + 20
    while (found := pod.reach(targets)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    assert found == wanted


@pytest.fixture(scope="module")
def server(kubectl: Kubectl, north: str, image: str) -> Pod:
    """What a user's server is to the network and to the Kubernetes API."""
    return start_pod(kubectl, north, "server", image, is_server=True)


@pytest.fixture(scope="module")
def teammate(kubectl: Kubectl, north: str, image: str) -> Pod:
    return start_pod(kubectl, north, "teammate", image)


@pytest.fixture(scope="module")
def rival(kubectl: Kubectl, south: str, image: str) -> Pod:
    """A server of another team."""
    return start_pod(kubectl, south, "rival", image)


@pytest.fixture(scope="module")
def stranger(kubectl: Kubectl, elsewhere: str, image: str) -> Pod:
    """A pod that no policy holds: what it reaches is there to be reached."""
    return start_pod(kubectl, elsewhere, "stranger", image)


@pytest.fixture(scope="module")
def hub(kubectl: Kubectl, release: InstalledRelease) -> Pod:
    found = kubectl.get("-n", release.namespace, "pods", "-l", "app.kubernetes.io/component=hub")
    return Pod(kubectl, release.namespace, found["items"][0]["metadata"]["name"])


def test_a_server_reaches_hub_proxy_names_and_its_team_and_nothing_else_inside(
    kubectl: Kubectl,
    release: InstalledRelease,
    server: Pod,
    teammate: Pod,
    rival: Pod,
    stranger: Pod,
) -> None:
    endpoints = kubectl.get("-n", "default", "endpointslice", "kubernetes")
    api = f"{endpoints['endpoints'][0]['addresses'][0]}:{endpoints['ports'][0]['port']}"
    node = kubectl.get("nodes")["items"][0]["status"]["addresses"][0]["address"]
    targets = {
        "hub": f"hub.{release.namespace}:8081",  # by name, so that DNS works, too
        "proxy": f"proxy-public.{release.namespace}:80",
        "teammate": f"{teammate.address}:{OTHER_PORT}",
        "proxy's own API": f"proxy-api.{release.namespace}:8001",
        "Kubernetes API by name": "kubernetes.default.svc:443",
        "Kubernetes API by address": api,
        "kubelet": f"{node}:10250",
        "another team's server": f"{rival.address}:{SERVER_PORT}",
        "another team's other port": f"{rival.address}:{OTHER_PORT}",
        "a stranger": f"{stranger.address}:{OTHER_PORT}",
    }
    allowed = {"hub", "proxy", "teammate"}
    assert_reaches(server, targets, {name: name in allowed for name in targets})


def test_the_internet_that_is_open_leaves_the_metadata_network_out(
    kubectl: Kubectl, north: str
) -> None:
    policy = kubectl.get("-n", north, "networkpolicy", "spectrum-allow")
    blocks = [
        peer["ipBlock"]
        for rule in policy["spec"]["egress"]
        for peer in rule["to"]
        if "ipBlock" in peer
    ]
    assert [block["cidr"] for block in blocks] == ["0.0.0.0/0"]
    assert "169.254.0.0/16" in blocks[0]["except"]


def test_without_a_policy_the_same_addresses_answer(
    kubectl: Kubectl, stranger: Pod, server: Pod, rival: Pod
) -> None:
    node = kubectl.get("nodes")["items"][0]["status"]["addresses"][0]["address"]
    targets = {
        "Kubernetes API by name": "kubernetes.default.svc:443",
        "kubelet": f"{node}:10250",
        "a server": f"{server.address}:{SERVER_PORT}",
        "another team's server": f"{rival.address}:{SERVER_PORT}",
    }
    wanted = {
        "Kubernetes API by name": True,
        "kubelet": True,
        "a server": False,
        "another team's server": False,
    }
    assert_reaches(stranger, targets, wanted)


def test_the_hub_answers_servers_only(
    release: InstalledRelease, teammate: Pod, stranger: Pod
) -> None:
    for pod in (teammate, stranger):
        assert_reaches(pod, {"hub": f"hub.{release.namespace}:8081"}, {"hub": False})


def test_the_hub_reaches_a_server_on_its_port_and_on_no_other(hub: Pod, server: Pod) -> None:
    targets = {
        "server": f"{server.address}:{SERVER_PORT}",
        "other port": f"{server.address}:{OTHER_PORT}",
    }
    assert_reaches(hub, targets, {"server": True, "other port": False})


def test_a_server_has_no_kubernetes_token(server: Pod) -> None:
    script = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'))"
    assert server.run("python3", "-c", script).strip() == "False"


def read_inventory(release: InstalledRelease) -> Inventory:
    found = release.kubectl.get("-n", release.namespace, "configmap", "gpu-inventory")
    return Inventory.from_json(found["data"]["inventory.json"])


def read_gpus(release: InstalledRelease, team: str) -> str:
    status = release.kubectl.get("-n", release.namespace, "team", team)["status"]
    return str(status.get("gpus"))


def test_a_gpu_pod_shows_in_inventory_and_quota_until_it_is_gone(
    release: InstalledRelease, north: str, image: str
) -> None:
    kubectl = release.kubectl
    before = read_inventory(release)
    free = before.free(GPU)
    assert before.total(GPU) == 4
    assert free is not None
    start_pod(kubectl, north, "trainer", image, gpus=1)
    wait_until(lambda: read_inventory(release).held_by("north", GPU) == 1)
    assert read_inventory(release).free(GPU) == free - 1
    wait_until(lambda: read_gpus(release, "north") == "1/1")

    second = json.dumps(make_pod("second", image, gpus=1))
    with pytest.raises(Refusal, match="exceeded quota"):
        kubectl("-n", north, "create", "-f", "-", text=second)

    kubectl("-n", north, "delete", "pod", "trainer")
    wait_until(lambda: read_inventory(release).free(GPU) == free)
    wait_until(lambda: read_gpus(release, "north") == "0/1")


def test_a_team_without_gpus_in_its_quota_gets_none(
    kubectl: Kubectl, south: str, image: str
) -> None:
    pod = json.dumps(make_pod("greedy", image, gpus=1))
    with pytest.raises(Refusal, match="exceeded quota"):
        kubectl("-n", south, "create", "-f", "-", text=pod)


def test_a_pod_that_breaks_the_restricted_standard_is_refused(
    kubectl: Kubectl, north: str, image: str
) -> None:
    pod = make_pod("root", image)
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(Refusal, match="violates PodSecurity"):
        kubectl("-n", north, "create", "-f", "-", text=json.dumps(pod))


@pytest.mark.parametrize(
    "thing",
    [
        "resourcequota/spectrum",
        "limitrange/spectrum",
        "networkpolicy/spectrum-allow",
        "networkpolicy/spectrum-default-deny",
        "serviceaccount/spectrum-server",
        "rolebinding/spectrum-hub",
    ],
)
def test_what_somebody_deletes_is_back_within_seconds(
    kubectl: Kubectl, north: str, thing: str
) -> None:
    kubectl("-n", north, "delete", thing)
    found = ("-n", north, "get", thing, "--ignore-not-found", "-o", "name")
    wait_until(lambda: kubectl(*found), within=5)
