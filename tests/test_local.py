import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
from pathlib import Path
from unittest.mock import ANY

import pytest

from local import listeners, preflight
from local.__main__ import make_parser
from local.addons import make_corefile, make_storage_class
from local.archive import write_binary_archive
from local.certificates import Authority, Identity
from local.cgroups import list_processes
from local.commands import run
from local.control_plane import find_free_ports
from local.errors import Refusal
from local.firewall import make_removal
from local.listeners import find_free_port, find_listener
from local.lock import hold_lock
from local.mounts import list_mounts, parse_mounts
from local.network import make_cni_configuration
from local.node import find_name_servers, make_resolv_conf
from local.owner import become_owner, check_owner, find_owner, forget_owner
from local.paths import CHECKOUT, find_cache, find_state
from local.preflight import check_machine, check_ports, check_space
from local.processes import Daemons
from local.progress import Progress, format_elapsed
from local.release import is_rolled_out, is_team_ready, make_image_values
from local.suite import Counts, choose_parts, read_counts
from local.toolchain import NEEDED, check_go, check_go_version
from local.up import list_accounts
from local.versions import find_go_tool, load_versions

SLEEP = ["sleep", "600"]


@pytest.fixture
def daemons(tmp_path):
    daemons = Daemons(tmp_path, die_with_parent=True)
    yield daemons
    for name in daemons.list_names():
        daemons.stop(name, kill=True)


class Terminal(io.StringIO):
    """Collects what a person would see."""

    @property
    def texts(self):
        return [line.split("] ", 1)[1] for line in self.getvalue().splitlines()]


# versions


def test_the_go_module_of_kube_pins_what_versions_toml_says():
    lines = (CHECKOUT / "local/go/kube/go.mod").read_text().splitlines()
    pins = dict(line.split()[:2] for line in lines if len(line.split()) == 2)
    kube = load_versions()["kube"]
    assert pins["k8s.io/kubernetes"] == kube["kubernetes"]
    assert pins["go.etcd.io/etcd/server/v3"] == kube["etcd"]


def test_a_tool_of_a_module_root_is_the_module():
    assert find_go_tool("coredns").import_paths == ["github.com/coredns/coredns"]
    assert find_go_tool("helm").import_paths == ["helm.sh/helm/v3/cmd/helm"]


def test_the_go_that_is_asked_for_is_the_one_of_the_go_modules():
    asked = {
        line.split()[1]
        for module in CHECKOUT.glob("local/go/*/go.mod")
        for line in module.read_text().splitlines()
        if line.startswith("go ")
    }
    assert asked == {".".join(map(str, (*NEEDED, 0)))}


# the command line


def test_files_are_named_from_the_directory_that_the_caller_is_in(tmp_path):
    for name in ("my-cluster", "my-values.yaml"):
        (tmp_path / name).touch()
    # A module of that directory is none of ours.
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    ended = subprocess.run(
        [
            CHECKOUT / "local/up",
            "--kubeconfig=my-cluster",
            "--values=my-values.yaml",
            "--gpu-taint",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (
        1,
        "local/up: --gpu-taint, --no-ceph and --cluster-only are for the local cluster alone\n",
    )


@pytest.mark.parametrize(
    ("words", "wanted"), [([], None), (["--gpu-taint"], True), (["--no-gpu-taint"], False)]
)
def test_the_gpu_taint_stays_as_it_is_unless_told(words, wanted):
    assert make_parser().parse_args(["up", *words]).gpu_taint is wanted


# paths


def test_the_cache_and_the_state_lie_where_the_environment_says(monkeypatch):
    monkeypatch.setenv("SPECTRUM_CACHE", "/big/cache")
    monkeypatch.setenv("SPECTRUM_STATE", "/big/state")
    assert (find_cache(), find_state()) == (Path("/big/cache"), Path("/big/state"))


def test_the_cache_is_below_the_xdg_directory(monkeypatch):
    monkeypatch.delenv("SPECTRUM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/alice/.cache-elsewhere")
    assert find_cache() == Path("/home/alice/.cache-elsewhere/spectrum")


# progress


def test_a_step_says_when_it_begins_and_how_long_it_took():
    terminal = Terminal()
    with Progress(terminal).step("building kube"):
        pass
    assert terminal.texts == ["building kube …", "building kube: done in 0.0s"]


def test_a_step_that_takes_time_says_what_it_waits_for():
    terminal = Terminal()
    with Progress(terminal, heartbeat=0.01).step("starting the node") as step:
        step.wait_for(
            "node Ready", lambda: any("waiting" in text for text in terminal.texts), timeout=10
        )
    assert terminal.texts[1].startswith("starting the node … 0.")
    assert terminal.texts[-2].endswith("s, waiting for node Ready")


def test_what_does_not_come_in_time_is_named_with_its_cause():
    step_of = Progress(Terminal()).step("starting DNS")
    with pytest.raises(Refusal) as refusal, step_of as step:
        step.wait_for("the answer", lambda: False, timeout=0, hint=lambda: "no route to host")
    assert str(refusal.value) == (
        "starting DNS: the answer did not come within 0 s. no route to host"
    )


@pytest.mark.parametrize(("seconds", "text"), [(4.21, "4.2s"), (190, "3m10s"), (3725, "1h02m")])
def test_elapsed_time_is_short(seconds, text):
    assert format_elapsed(seconds) == text


# processes


def test_a_process_that_runs_as_wanted_is_left_alone(daemons):
    assert daemons.ensure("sleeper", SLEEP) is True
    before = daemons.find_record("sleeper")
    assert daemons.ensure("sleeper", SLEEP) is False
    assert daemons.find_record("sleeper") == before


def test_a_killed_process_is_started_again(daemons):
    daemons.ensure("sleeper", SLEEP)
    before = daemons.find_record("sleeper")
    os.kill(before.pid, 9)
    with Progress(Terminal()).step("waiting") as step:
        step.wait_for("the end", lambda: not daemons.is_alive("sleeper"), timeout=10)
    assert daemons.ensure("sleeper", SLEEP) is True
    assert daemons.find_record("sleeper").pid != before.pid


def test_a_changed_configuration_file_restarts_the_process(daemons, tmp_path):
    configuration = tmp_path / "settings"
    configuration.write_text("a")
    daemons.ensure("sleeper", SLEEP, configuration=[configuration])
    configuration.write_text("b")
    assert daemons.ensure("sleeper", SLEEP, configuration=[configuration]) is True


def test_a_stopped_process_is_gone_and_forgotten(daemons):
    daemons.ensure("sleeper", SLEEP)
    pid = daemons.find_record("sleeper").pid
    daemons.stop("sleeper")
    assert (daemons.find_record("sleeper"), Path(f"/proc/{pid}").exists()) == (None, False)


def test_a_process_that_got_the_pid_of_a_recorded_one_is_never_stopped(daemons, tmp_path):
    daemons.ensure("sleeper", SLEEP)
    record = daemons.records / "sleeper.json"
    written = record.read_text()
    record.write_text(json.dumps(json.loads(written) | {"started": 1}))
    Daemons(tmp_path).stop("sleeper")
    record.write_text(written)
    assert daemons.is_alive("sleeper") is True


def test_a_signal_to_a_process_that_has_ended_goes_nowhere(daemons):
    daemons.ensure("sleeper", SLEEP)
    record = daemons.find_record("sleeper")
    daemons.stop("sleeper", kill=True)
    record.send(signal.SIGTERM)
    assert record.is_alive() is False


def test_a_command_that_ends_at_once_leaves_its_message(daemons):
    daemons.ensure("sleeper", ["no-such-command"])
    with Progress(Terminal()).step("waiting") as step:
        step.wait_for("the end", lambda: not daemons.is_alive("sleeper"), timeout=10)
    assert "no-such-command" in daemons.read_last_line("sleeper")


# certificates


def test_a_certificate_is_made_once_and_anew_for_another_address(tmp_path):
    authority = Authority(tmp_path)
    authority.ensure_authority()
    authority.ensure_certificate(Identity("server", "server", addresses=("127.0.0.1", "here")))
    first = authority.find_certificate("server").read_bytes()
    authority.ensure_certificate(Identity("server", "server", addresses=("127.0.0.1", "here")))
    assert authority.find_certificate("server").read_bytes() == first
    authority.ensure_certificate(Identity("server", "server", addresses=("127.0.0.2",)))
    assert authority.find_certificate("server").read_bytes() != first


def test_a_certificate_names_its_owner_and_is_signed_by_the_authority(tmp_path):
    authority = Authority(tmp_path)
    authority.ensure_authority()
    authority.ensure_certificate(
        Identity("kubelet", "system:node:n", "system:nodes", ("10.0.0.1",))
    )
    certificate = authority.find_certificate("kubelet")
    run(["openssl", "verify", "-CAfile", authority.certificate, certificate])
    text = run(
        ["openssl", "x509", "-in", certificate, "-noout", "-subject", "-ext", "subjectAltName"]
    )
    assert text.splitlines() == [
        "subject=O = system:nodes, CN = system:node:n",
        "X509v3 Subject Alternative Name: ",
        "    IP Address:10.0.0.1",
    ]


# refusals


def test_a_user_who_is_not_root_is_told_so(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refusal, match=r"needs root: run it again with sudo$"):
        check_machine()


def test_another_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(preflight.platform, "machine", lambda: "aarch64")
    with pytest.raises(Refusal, match=r"needs Linux on x86_64, and this is Linux on aarch64$"):
        check_machine()


def test_a_missing_go_is_named_with_the_way_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refusal) as refusal:
        check_go()
    assert str(refusal.value) == (
        "go is missing: install Go 1.26 or newer (https://go.dev/dl) and put it on PATH"
    )


@pytest.mark.parametrize(
    ("version", "toolchain", "found"),
    [
        ("go1.19.8", "", "1.19: install Go"),
        ("go1.24.4", "local", "1.24 with GOTOOLCHAIN=local: set GOTOOLCHAIN=auto, or install Go"),
        ("go1.25.0", "go1.25.0", "1.25 with GOTOOLCHAIN=go1.25.0: set GOTOOLCHAIN=auto, or"),
    ],
)
def test_a_go_that_is_too_old_is_refused(version, toolchain, found):
    with pytest.raises(Refusal) as refusal:
        check_go_version(version, toolchain)
    assert str(refusal.value).startswith(f"Go 1.26 or newer is needed, and this is {found}")


@pytest.mark.parametrize(
    ("version", "toolchain"),
    [
        ("go1.26.8", "local"),
        ("go1.26rc1", "local"),
        ("go2.0", "local"),
        ("go1.21.1", "auto"),
        ("go1.22.0", "go1.22.0+auto"),
        ("devel +a1b2c3", ""),
    ],
)
def test_a_go_that_is_new_enough_or_fetches_one_is_taken(version, toolchain):
    check_go_version(version, toolchain)


def test_a_full_disk_is_refused(tmp_path):
    with pytest.raises(Refusal) as refusal:
        check_space(tmp_path / "not" / "yet", needed=10**18)
    assert str(refusal.value).startswith(f"{tmp_path} has ")
    assert "GB free, and 1000000000 GB are needed" in str(refusal.value)


def test_a_taken_port_is_named_with_its_holder(daemons):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = Path("/proc/self/comm").read_text().strip()
        with pytest.raises(Refusal) as refusal:
            check_ports(daemons, {port: "etcd"})
    assert str(refusal.value) == (
        f"port {port} is taken by {command} (pid {os.getpid()}): stop it and run again"
    )


def test_a_port_of_our_own_process_is_fine(daemons):
    port = find_free_ports().etcd
    server = "import socket,sys,time; s = socket.create_server(('', int(sys.argv[1])))"
    daemons.ensure("etcd", [sys.executable, "-c", f"{server}; time.sleep(600)", str(port)])
    with Progress(Terminal()).step("waiting") as step:
        step.wait_for("the listener", lambda: find_listener(port), timeout=10)
    check_ports(daemons, {port: "etcd"})


def test_the_machines_cluster_is_left_to_the_state_directory_that_it_is_of(tmp_path):
    note = tmp_path / "run" / "owner"
    mine, other = tmp_path / "mine", tmp_path / "other"
    check_owner(other, note)
    become_owner(mine, note)
    check_owner(mine, note)
    with pytest.raises(Refusal) as refusal:
        check_owner(other, note)
    assert str(refusal.value) == (
        f"this machine has one cluster, and its state is in {mine}: set SPECTRUM_STATE={mine}, "
        f"or stop it with SPECTRUM_STATE={mine} local/down"
    )
    forget_owner(note)
    check_owner(other, note)
    assert find_owner(note) is None


def test_a_second_command_says_that_it_waits_for_the_first(tmp_path):
    first, second = Terminal(), Terminal()

    def run_second():
        with hold_lock(tmp_path / "lock", Progress(second)):
            pass

    with hold_lock(tmp_path / "lock", Progress(first)):
        thread = threading.Thread(target=run_second)
        thread.start()
        with Progress(Terminal()).step("waiting") as step:
            step.wait_for("the second's line", second.getvalue, timeout=10)
    thread.join(timeout=10)
    assert (first.texts, second.texts) == (
        [],
        [
            "waiting for another command of local/ to end …",
            ANY,
        ],
    )


def test_a_failed_command_is_refused_with_its_last_line():
    with pytest.raises(Refusal) as refusal:
        run(["/bin/sh", "-c", "echo no; echo such thing >&2; exit 3"])
    assert str(refusal.value) == "sh echo no; echo such thing >&2; exit 3 failed: such thing"


def test_an_unknown_part_is_refused_in_one_line():
    ended = subprocess.run(
        [CHECKOUT / "local" / "test", "units"], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == (
        "local/test: no part units; there are unit, chart, hub, faults, service, images, cluster, "
        "storage, browser, cuda, outages, keycloak, bench, life\n"
    )


def test_a_free_port_is_none_that_an_outgoing_connection_may_take_meanwhile():
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    ports = {find_free_port() for _ in range(50)}
    assert not ports & set(range(int(first), int(last) + 1))
    assert not ports & set(range(30000, 32768))  # Kubernetes gives these to Services


def test_a_port_that_was_drawn_is_not_drawn_again_before_it_can_be_in_use(monkeypatch):
    monkeypatch.setattr(listeners, "FREE_PORTS", range(12000, 12200))
    ports = [find_free_port() for _ in range(listeners.RESERVED)]
    assert len(set(ports)) == len(ports)


# what is generated


def test_the_archive_of_a_binary_is_an_image_of_just_that_file(tmp_path):
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF")
    archive = tmp_path / "pause.tar"
    write_binary_archive(archive, "localhost/spectrum/pause:1", binary)
    with tarfile.open(archive) as tar:
        (manifest,) = json.load(tar.extractfile("manifest.json"))
        config = json.load(tar.extractfile(manifest["Config"]))
        with tarfile.open(fileobj=tar.extractfile("layer.tar")) as layer:
            files = [(entry.name, oct(entry.mode)) for entry in layer]
    assert manifest["RepoTags"] == ["localhost/spectrum/pause:1"]
    assert config["config"] == {"Entrypoint": ["/pause"]}
    assert files == [("pause", "0o755")]


def test_the_same_binary_gives_the_same_archive(tmp_path):
    binary = tmp_path / "pause"
    binary.write_bytes(b"\x7fELF")
    archives = [tmp_path / "a.tar", tmp_path / "b.tar"]
    for archive in archives:
        write_binary_archive(archive, "localhost/spectrum/pause:1", binary)
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_pods_get_addresses_from_the_clusters_own_directory():
    bridge, portmap = make_cni_configuration(Path("/state"))["plugins"]
    assert bridge["ipam"] == {
        "type": "host-local",
        "ranges": [[{"subnet": "10.231.0.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/state/pod-addresses",
    }
    assert portmap == {"type": "portmap", "capabilities": {"portMappings": True}}


def test_the_default_storage_class_is_standard():
    assert make_storage_class() == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": "standard",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "rancher.io/local-path",
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
    }


def test_dns_without_an_upstream_forwards_nothing():
    assert "forward" in make_corefile(True)
    assert "forward" not in make_corefile(False)


def test_name_servers_on_loopback_are_not_given_to_pods():
    assert not any(server.startswith("127.") for server in find_name_servers())
    assert make_resolv_conf(["192.0.2.53"]) == "nameserver 192.0.2.53\n"


def test_mounts_are_listed_with_their_type():
    assert (Path("/proc"), "proc") in list_mounts()


def test_the_path_of_a_mount_may_hold_any_character():
    table = (
        "36 35 0:31 / /proc rw,nosuid - proc proc rw\n"
        "37 35 0:32 / /srv/Jürgen\\040Groß\\134x rw shared:1 - ext4 /dev/sda1 rw\n"
    )
    assert parse_mounts(table.encode()) == [
        (Path("/proc"), "proc"),
        (Path("/srv/Jürgen Groß\\x"), "ext4"),
    ]


# what down takes away


def test_processes_are_listed_while_their_groups_vanish(tmp_path):
    (tmp_path / "cgroup.procs").write_text("1\n2\n")
    done = threading.Event()

    def come_and_go():
        while not done.is_set():
            group = tmp_path / "pod" / "container"
            group.mkdir(parents=True)
            (group / "cgroup.procs").write_text("3\n")
            shutil.rmtree(tmp_path / "pod")

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        found = [list_processes(tmp_path) for _ in range(500)]
    finally:
        done.set()
        thread.join(timeout=10)
    assert all({1, 2} <= pids <= {1, 2, 3} for pids in found)


def test_a_group_that_is_not_there_holds_no_process(tmp_path):
    assert list_processes(tmp_path / "spectrum") == set()


SAVED = r"""# Generated by iptables-save
*filter
:INPUT ACCEPT [9:540]
:KUBE-FIREWALL - [0:0]
:MINE - [0:0]
-A INPUT -m comment --comment "not KUBE- but mine" -j MINE
-A INPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -j DROP
COMMIT
*nat
:POSTROUTING ACCEPT [9:540]
:CNI-46614300216f119a0c516333 - [0:0]
:CNI-ffffffffffffffffffffffff - [0:0]
-A POSTROUTING -s 10.231.0.2/32 -m comment --comment "name: \"spectrum\" id: \"7d\"" -j CNI-46614300216f119a0c516333
-A POSTROUTING -s 10.88.0.2/32 -m comment --comment "name: \"podman\" id: \"8e\"" -j CNI-ffffffffffffffffffffffff
-A CNI-46614300216f119a0c516333 ! -d 224.0.0.0/4 -m comment --comment "name: \"spectrum\" id: \"7d\"" -j MASQUERADE
-A CNI-ffffffffffffffffffffffff ! -d 224.0.0.0/4 -m comment --comment "name: \"podman\" id: \"8e\"" -j MASQUERADE
COMMIT
# Completed
"""  # noqa: E501 (as iptables-save prints it)
REMOVAL_OF_NETWORK = r"""*nat
-D POSTROUTING -s 10.231.0.2/32 -m comment --comment "name: \"spectrum\" id: \"7d\"" -j CNI-46614300216f119a0c516333
-F CNI-46614300216f119a0c516333
-X CNI-46614300216f119a0c516333
COMMIT
"""  # noqa: E501 (as iptables-restore takes it)
REMOVAL_OF_KUBERNETES = """*filter
-D INPUT -j KUBE-FIREWALL
-F KUBE-FIREWALL
-X KUBE-FIREWALL
COMMIT
"""


def test_rules_of_other_software_stay():
    assert make_removal(SAVED, of_kubernetes=False) == REMOVAL_OF_NETWORK
    assert make_removal(SAVED, of_kubernetes=True) == REMOVAL_OF_KUBERNETES + REMOVAL_OF_NETWORK


def test_where_nothing_of_ours_is_nothing_is_removed():
    assert make_removal("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n", of_kubernetes=True) == ""


def test_image_values_name_each_build():
    references = {
        "hub": "localhost/spectrum/hub:1",
        "proxy": "registry.example:5000/spectrum/proxy:2",
        "base-notebook": "localhost/spectrum/base-notebook:3",
        "tensorflow-notebook": "localhost/spectrum/tensorflow-notebook:4",
        "tensorflow-notebook-py313": "localhost/spectrum/tensorflow-notebook-py313:5",
        "pytorch-notebook": "localhost/spectrum/pytorch-notebook:6",
    }
    assert make_image_values(references) == {
        "hub": {"image": {"name": "localhost/spectrum/hub", "tag": "1"}},
        "proxy": {"image": {"name": "registry.example:5000/spectrum/proxy", "tag": "2"}},
        "images": {
            "tensorflow": {"image": "localhost/spectrum/tensorflow-notebook:4"},
            "tensorflow-py313": {"image": "localhost/spectrum/tensorflow-notebook-py313:5"},
            "pytorch": {"image": "localhost/spectrum/pytorch-notebook:6"},
            "lab": {"image": "localhost/spectrum/base-notebook:3"},
        },
    }


# a release


def test_up_says_who_may_sign_in_with_which_password():
    auth = {
        "users": ["carol"],
        "groups": {"flight": ["alice"], "ops": ["alice", "bob"]},
        "admins": ["admin"],
    }
    assert list_accounts(auth, {"userPassword": "one", "adminPassword": "another"}) == [
        "people: alice (flight, ops); bob (ops); carol (no team)",
        "their password: one",
        "administrators: admin",
        "their password: another",
    ]


def make_deployment(*, generation=1, **status):
    whole = {
        "observedGeneration": 1,
        "replicas": 1,
        "updatedReplicas": 1,
        "availableReplicas": 1,
    }
    return {
        "metadata": {"generation": generation},
        "spec": {"replicas": 1},
        "status": whole | status,
    }


@pytest.mark.parametrize(
    ("deployment", "done"),
    [
        (make_deployment(), True),
        (make_deployment(generation=2), False),
        (make_deployment(availableReplicas=0), False),
        (make_deployment(replicas=2), False),
    ],
)
def test_a_deployment_is_rolled_out_once_only_new_pods_are_there(deployment, done):
    assert is_rolled_out(deployment) is done


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}, False),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "False"}]}, False),
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True"}]}, True),
    ],
)
def test_a_team_is_ready_once_its_newest_version_is_reconciled(status, ready):
    assert is_team_ready({"metadata": {"generation": 2}, "status": status}) is ready


# the suite


def test_parts_run_the_cheapest_first_and_long_ones_only_when_asked_for():
    short = ["unit", "chart", "hub", "faults", "service", "images"]
    every_day = [*short, "cluster", "storage", "browser"]
    assert choose_parts([], long=False) == every_day
    assert choose_parts([], long=True) == [
        *every_day,
        "cuda",
        "outages",
        "keycloak",
        "bench",
        "life",
    ]
    assert choose_parts(["bench", "unit"], long=False) == ["unit", "bench"]


def test_a_report_is_counted(tmp_path):
    report = tmp_path / "report.xml"
    report.write_text(
        '<testsuites><testsuite tests="10" failures="1" errors="2" skipped="3"/></testsuites>'
    )
    assert read_counts(report) == Counts(passed=4, failed=3, skipped=3)
    assert str(read_counts(report)) == "4 passed, 3 failed, 3 skipped"
