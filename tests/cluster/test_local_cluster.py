"""The one-node cluster itself, as pods and its commands see it."""

import json
import os
import signal
import subprocess

import pytest

from local.node import GPU_LABELS, NODE
from local.paths import CHECKOUT, find_state
from local.processes import Daemons
from local.up import answers_health

NAMESPACE = "local-cluster-test"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def kubectl(release):
    release.kubectl("create", "namespace", NAMESPACE)
    yield release.kubectl
    release.kubectl("delete", "namespace", NAMESPACE)


@pytest.fixture(scope="module")
def image():
    """An image with a Python and a shell that the cluster has."""
    hub = json.loads((find_state() / "image-values.json").read_text())["hub"]["image"]
    return f"{hub['name']}:{hub['tag']}"


@pytest.fixture
def run_pod(kubectl, image):
    """Run Python code in a pod to its end and return what it printed."""
    names = []

    def run(name, code, *, limits=None, volumes=(), mounts=()):
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "command": ["python3", "-c", code],
            "securityContext": RESTRICTED,
            "resources": {"limits": limits or {}},
            "volumeMounts": list(mounts),
        }
        spec = {"restartPolicy": "Never", "containers": [container], "volumes": list(volumes)}
        apply(kubectl, "Pod", name, spec)
        names.append(name)
        wait = "--for=jsonpath={.status.phase}=Succeeded"
        kubectl("-n", NAMESPACE, "wait", wait, f"pod/{name}", "--timeout=60s")
        return kubectl("-n", NAMESPACE, "logs", name).strip()

    yield run
    for name in names:
        kubectl("-n", NAMESPACE, "delete", "pod", name, "--now")


def apply(kubectl, kind, name, spec, *, version="v1"):
    manifest = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"test": name}},
        "spec": spec,
    }
    kubectl("apply", "-f", "-", text=json.dumps(manifest))


def run_up(*options):
    subprocess.run([CHECKOUT / "local" / "up", "--cluster-only", *options], check=True)


def find_pids():
    daemons = Daemons(find_state())
    return {name: daemons.find_record(name).pid for name in daemons.list_names()}


def find_taints(kubectl):
    return kubectl.get("node", NODE)["spec"].get("taints", [])


def test_the_node_offers_four_gpus_and_is_labelled_as_gpu_nodes_are(kubectl):
    node = kubectl.get("node", NODE)
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    labels = node["metadata"]["labels"]
    assert {name: labels.get(name) for name in GPU_LABELS} == GPU_LABELS


def test_a_pod_sees_the_gpus_that_it_asked_for(run_pod):
    code = "import os; print(len(os.environ['NVIDIA_VISIBLE_DEVICES'].split(',')))"
    assert run_pod("two-gpus", code, limits={"nvidia.com/gpu": 2}) == "2"


def test_pods_find_services_by_name(run_pod):
    code = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    assert run_pod("resolver", code) == "10.96.0.1"


def test_what_a_pod_sends_to_a_service_without_pods_stays_on_this_machine(kubectl, run_pod):
    empty = {"selector": {"test": "nobody"}, "ports": [{"port": 80}]}
    apply(kubectl, "Service", "empty", empty)
    code = """
import socket
try:
    socket.create_connection(("empty", 80), timeout=30)
    print("answered")
except OSError as error:
    print(error.strerror)
"""
    assert run_pod("caller", code) in ("Connection refused", "No route to host")


def test_what_a_pod_writes_to_a_claim_is_there_for_the_next_pod(kubectl, run_pod):
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Mi"}}}
    apply(kubectl, "PersistentVolumeClaim", "shared", claim)
    disk = {
        "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "shared"}}],
        "mounts": [{"name": "disk", "mountPath": "/disk"}],
    }
    run_pod("writer", "open('/disk/note', 'w').write('kept')", **disk)
    assert run_pod("reader", "print(open('/disk/note').read())", **disk) == "kept"


def test_a_network_policy_is_enforced(kubectl, run_pod):
    code = """
import socket, time
def answers():
    try:
        socket.create_connection(("10.96.0.1", 443), timeout=1).close()
    except OSError:
        return False
    return True
# A new pod's policy is in force a moment after its start.
deadline = time.monotonic() + 20
while answers() is not EXPECTED and time.monotonic() < deadline:
    time.sleep(0.1)
print(answers())
"""
    fenced = {"podSelector": {"matchLabels": {"test": "fenced"}}, "policyTypes": ["Egress"]}
    apply(kubectl, "NetworkPolicy", "fence", fenced, version="networking.k8s.io/v1")
    assert run_pod("free", code.replace("EXPECTED", "True")) == "True"
    assert run_pod("fenced", code.replace("EXPECTED", "False")) == "False"


def test_up_again_changes_nothing(kubectl):
    def read():
        names = ["deployment/coredns", "service/kube-dns", "configmap/coredns"]
        objects = kubectl.get("-n", "kube-system", *names)
        versions = {
            (one["kind"], one["metadata"]["name"]): one["metadata"]["resourceVersion"]
            for one in objects["items"]
        }
        return versions, find_pids()

    run_up()
    before = read()
    run_up()
    assert read() == before


def test_up_starts_again_just_what_was_killed(kubectl):
    before = find_pids()
    os.kill(before["kube-scheduler"], signal.SIGKILL)
    run_up()
    after = find_pids()
    changed = {name for name in before if before[name] != after[name]}
    assert (before.keys(), changed) == (after.keys(), {"kube-scheduler"})


@pytest.fixture
def node_keeps_its_taint(kubectl):
    """The node is left as it was: with the taint, for a demo on tainted nodes, or without."""
    before = find_taints(kubectl)
    yield
    run_up("--gpu-taint" if before else "--no-gpu-taint")
    assert find_taints(kubectl) == before


def test_the_gpu_taint_comes_and_goes_only_as_told(kubectl, node_keeps_its_taint):
    run_up("--gpu-taint")
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    assert find_taints(kubectl) == [taint]
    run_up()
    assert find_taints(kubectl) == [taint]
    run_up("--no-gpu-taint")
    assert find_taints(kubectl) == []


def test_the_node_port_answers_on_this_machine(release):
    assert answers_health(release.url) is True
