"""What a team's server reaches and what each account may do: both tables, shown by the tests.

A connection that is refused proves something only where somebody listens, so each row names a
witness: a pod that may connect, and does.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from local.errors import Refusal
from local.kubectl import Kubectl
from spectrum_spawner import names
from tests.cluster.outside import answering
from tests.cluster.pods import OTHER_PORT, SERVER_PORT, Pod, make_pod, start_pod
from tests.cluster.reviews import Right, find_allowed
from tests.cluster.teams import made_team
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

GOLDEN = Path(__file__).parent / "golden"
DEMO = "spectrum"
METADATA = "169.254.169.254"
INTERNET = "198.51.100.7"  # for documentation: nobody's
VERBS = ("get", "list", "watch", "create", "patch", "delete")
RESOURCES = (
    *("secrets", "persistentvolumeclaims", "pods", "pods/log", "pods/exec"),
    *("services", "configmaps", "teams"),
)


@dataclass(frozen=True)
class Target:
    """`allowed` is whether a team's server may connect; `witness` is who may in any case."""

    name: str
    address: str
    allowed: bool
    witness: str


@pytest.fixture(scope="module")
def west(release: InstalledRelease) -> Iterator[str]:
    """Namespace of a team."""
    with made_team(release, "west", {"pods": 2, "gpus": {}}) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def east(release: InstalledRelease) -> Iterator[str]:
    """Namespace of another team."""
    with made_team(release, "east", {"pods": 4, "gpus": {}}) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def elsewhere(kubectl: Kubectl) -> Iterator[str]:
    """A namespace that has nothing to do with Spectrum, and no policies."""
    kubectl("create", "namespace", "elsewhere")
    yield "elsewhere"
    kubectl("delete", "namespace", "elsewhere", "--wait=false")


@pytest.fixture(scope="module")
def pods(
    release: InstalledRelease, kubectl: Kubectl, image: str, west: str, east: str, elsewhere: str
) -> dict[str, Pod]:
    """Pods by what they are called in the table."""
    hub = release.namespace
    return {
        "server": start_pod(kubectl, east, "server", image, is_server=True),
        "teammate": start_pod(kubectl, east, "teammate", image, is_server=True),
        "rival": start_pod(kubectl, west, "rival", image, is_server=True),
        "rival's teammate": start_pod(kubectl, west, "teammate", image, is_server=True),
        "stranger": start_pod(kubectl, elsewhere, "stranger", image),
        "hub": find_pod(kubectl, hub, "hub"),
        "controller": find_pod(kubectl, hub, "controller"),
        "service": find_pod(kubectl, hub, "service"),
        "demo's service": find_pod(kubectl, DEMO, "service"),
    }


def find_pod(kubectl: Kubectl, namespace: str, component: str) -> Pod:
    """The one pod of a component; it has Python."""
    selector = f"{names.LABEL_COMPONENT}={component}"
    (found,) = kubectl.get("-n", namespace, "pods", "-l", selector)["items"]
    return Pod(kubectl, namespace, found["metadata"]["name"])


@pytest.fixture(scope="module")
def targets(
    release: InstalledRelease, kubectl: Kubectl, pods: dict[str, Pod]
) -> Iterator[list[Target]]:
    hub = release.namespace
    endpoints = kubectl.get("-n", "default", "endpointslice", "kubernetes")
    api = f"{endpoints['endpoints'][0]['addresses'][0]}:{endpoints['ports'][0]['port']}"
    node = kubectl.get("nodes")["items"][0]["status"]["addresses"][0]["address"]
    rival, teammate = pods["rival"].address, pods["teammate"].address
    controller = pods["controller"].address
    with answering([METADATA, INTERNET]):
        yield [
            # By name, so that DNS works, too.
            Target("cluster's DNS", "kube-dns.kube-system:53", True, "stranger"),
            Target("hub", f"hub.{hub}:8081", True, "service"),
            Target("proxy", f"proxy-public.{hub}:80", True, "stranger"),
            Target("own team's pod, server port", f"{teammate}:{SERVER_PORT}", True, "server"),
            Target("own team's pod, other port", f"{teammate}:{OTHER_PORT}", True, "server"),
            Target("internet", f"{INTERNET}:80", True, "stranger"),
            Target("other team's server", f"{rival}:{SERVER_PORT}", False, "rival's teammate"),
            Target("other team's other port", f"{rival}:{OTHER_PORT}", False, "rival's teammate"),
            Target("Kubernetes API, service", "kubernetes.default.svc:443", False, "stranger"),
            Target("Kubernetes API, node", api, False, "stranger"),
            Target("kubelet", f"{node}:10250", False, "stranger"),
            Target("metadata address", f"{METADATA}:80", False, "stranger"),
            Target("proxy's API", f"proxy-api.{hub}:8001", False, "hub"),
            Target("service, /internal", f"service.{hub}:8082", False, "hub"),
            Target("controller", f"{controller}:8080", False, "stranger"),
            Target("other release's hub", f"hub.{DEMO}:8081", False, "demo's service"),
            Target("other release's proxy", f"proxy-public.{DEMO}:80", False, "stranger"),
            Target("pod outside", f"{pods['stranger'].address}:{OTHER_PORT}", False, "server"),
        ]


def test_a_server_reaches_what_it_needs_and_nothing_else(
    pods: dict[str, Pod], targets: list[Target], request: pytest.FixtureRequest
) -> None:
    addresses = {target.name: target.address for target in targets}
    wanted = {target.name: target.allowed for target in targets}
    found = reach_until(pods["server"], addresses, wanted)
    show(request, "from a team's server to", draw_reached(targets, found))
    assert found == wanted


def test_each_of_these_addresses_answers_whoever_may_ask(
    pods: dict[str, Pod], targets: list[Target]
) -> None:
    # A stranger's own port is its own; it is no row of another pod.
    rows = [target for target in targets if target.witness != "server"]
    for witness in sorted({target.witness for target in rows}):
        addresses = {target.name: target.address for target in rows if target.witness == witness}
        wanted = dict.fromkeys(addresses, True)
        assert reach_until(pods[witness], addresses, wanted) == wanted, witness


# Who may connect to a server, at its port and at any other.
CALLERS = {
    "hub": (True, False),
    "teammate": (True, True),
    "service": (False, False),
    "controller": (False, False),
    "rival": (False, False),
    "stranger": (False, False),
    "demo's service": (False, False),
}


def test_a_server_is_reached_by_hub_and_teammates_alone(
    pods: dict[str, Pod], request: pytest.FixtureRequest
) -> None:
    server = pods["server"].address
    ports = {"server port": f"{server}:{SERVER_PORT}", "other port": f"{server}:{OTHER_PORT}"}
    found = {
        caller: reach_until(pods[caller], ports, dict(zip(ports, wanted, strict=True)))
        for caller, wanted in CALLERS.items()
    }
    answers = {caller: tuple(reached.values()) for caller, reached in found.items()}
    rows = [f"{caller:20} {say(one):10} {say(other)}" for caller, (one, other) in answers.items()]
    show(request, "to a team's server, its port and others, from", rows)
    assert answers == CALLERS


def test_only_servers_reach_the_hub_from_a_teams_namespace(
    release: InstalledRelease, kubectl: Kubectl, pods: dict[str, Pod], east: str, image: str
) -> None:
    other = start_pod(kubectl, east, "other", image)
    hub = {"hub": f"hub.{release.namespace}:8081", "service": f"service.{release.namespace}:8082"}
    for pod in (other, pods["stranger"]):
        assert reach_until(pod, hub, refused := dict.fromkeys(hub, False)) == refused


def test_the_hubs_database_can_neither_be_reached_nor_mounted(
    release: InstalledRelease, kubectl: Kubectl, pods: dict[str, Pod], east: str, image: str
) -> None:
    hub = pods["hub"].address
    ports = {str(port): f"{hub}:{port}" for port in (3306, 5432, 8000, 8080, 8082)}
    assert not any(pods["server"].reach(ports).values())

    home = kubectl.get("-n", release.namespace, "pvc", "hub-db")["spec"]["volumeName"]
    path = kubectl.get("pv", home)["spec"]["hostPath"]["path"]
    by_path = with_volume(make_pod("thief", image), {"hostPath": {"path": path}})
    with pytest.raises(Refusal, match="violates PodSecurity"):
        kubectl("-n", east, "create", "-f", "-", text=json.dumps(by_path))

    claim = {"persistentVolumeClaim": {"claimName": "hub-db"}}
    by_claim = with_volume(make_pod("thief", image), claim)
    kubectl("-n", east, "create", "-f", "-", text=json.dumps(by_claim))
    try:
        wait_until(lambda: "not found" in read_waiting(kubectl, east, "thief"))
    finally:
        kubectl("-n", east, "delete", "pod", "thief", "--now")


def with_volume(pod: dict, volume: Mapping[str, object]) -> dict:
    pod["spec"]["volumes"] = [{"name": "stolen", **volume}]
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "stolen", "mountPath": "/stolen"}]
    return pod


def read_waiting(kubectl: Kubectl, namespace: str, pod: str) -> str:
    """Why the scheduler does not place a pod."""
    path = 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].message}'
    return kubectl("-n", namespace, "get", "pod", pod, "-o", path)


def test_a_server_has_no_kubernetes_token(pods: dict[str, Pod]) -> None:
    script = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'))"
    assert pods["server"].run("python3", "-c", script).strip() == "False"


def test_each_account_may_do_what_the_golden_table_says(
    release: InstalledRelease, kubectl: Kubectl, request: pytest.FixtureRequest
) -> None:
    hub, own, other = release.namespace, f"{release.namespace}-flight", f"{release.namespace}-ops"
    accounts = {"server": f"{own}:{names.SERVER_SERVICE_ACCOUNT}"}
    accounts |= {name: f"{hub}:{name}" for name in ("hub", "service", "controller", "proxy")}
    places = {
        "own team": own,
        "other team": other,
        "hub's namespace": hub,
        "other release": DEMO,
        "other release's team": f"{DEMO}-flight",
        "kube-system": "kube-system",
    }
    cells = product(accounts.values(), VERBS, RESOURCES, places.values())
    allowed = find_allowed(kubectl, (Right(*cell) for cell in cells))
    rows = [
        f"{name:10} | {place:20} | {list_rights(allowed, account, namespace)}"
        for (name, account), (place, namespace) in product(accounts.items(), places.items())
    ]
    show(request, "account | in | may", rows)
    assert "\n".join(rows) + "\n" == (GOLDEN / "rights.txt").read_text()


def list_rights(allowed: set[Right], account: str, namespace: str) -> str:
    """Such as `pods: get list`; `nothing` where there is no right."""
    found = []
    for resource in RESOURCES:
        rights = (Right(account, verb, resource, namespace) for verb in VERBS)
        verbs = [right.verb for right in rights if right in allowed]
        found += [f"{resource}: {' '.join(verbs)}"] if verbs else []
    return "; ".join(found) or "nothing"


def test_nobody_but_hub_service_and_controllers_reads_the_tokens_in_a_teams_pods(
    release: InstalledRelease, kubectl: Kubectl, east: str
) -> None:
    """A pod's environment holds its JUPYTERHUB_API_TOKEN; the cluster's own parts may read it."""
    listed = kubectl.get("serviceaccounts", "--all-namespaces")["items"]
    accounts = [
        f"{one['metadata']['namespace']}:{one['metadata']['name']}"
        for one in listed
        if not one["metadata"]["namespace"].startswith("kube-")
    ]
    assert f"{east}:{names.SERVER_SERVICE_ACCOUNT}" in accounts
    ways = [("get", "pods"), ("list", "pods"), ("watch", "pods"), ("create", "pods/exec")]
    ways += [("get", "secrets"), ("list", "secrets")]
    asked = (Right(account, *way, east) for account, way in product(accounts, ways))
    readers = {right.account for right in find_allowed(kubectl, asked)}
    ours = {f"{release.namespace}:{name}" for name in ("hub", "service", "controller")}
    assert readers == {*ours, f"{DEMO}:controller"}


def reach_until(
    pod: Pod, addresses: Mapping[str, str], wanted: Mapping[str, bool]
) -> dict[str, bool]:
    """What the pod reaches; a new pod's rules are in force moments after its start."""
    deadline = time.monotonic() + 20
    while (found := pod.reach(addresses)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return found


def say(reached: bool) -> str:
    return "allowed" if reached else "refused"


def draw_reached(targets: Sequence[Target], found: Mapping[str, bool]) -> list[str]:
    return [
        f"{target.name:30} {say(found[target.name])}"
        + ("" if found[target.name] == target.allowed else f", and should be {say(target.allowed)}")
        for target in targets
    ]


def show(request: pytest.FixtureRequest, title: str, rows: Sequence[str]) -> None:
    """Print a table though its test passes."""
    terminal = request.config.get_terminal_writer()
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        terminal.line()
        terminal.line(title)
        for row in rows:
            terminal.line(f"  {row}")
