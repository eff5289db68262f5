"""The life of a local cluster, from killed starts to its purge, in the order of the tests."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from local.ceph import NAMES
from local.kubectl import Kubectl
from local.paths import CHECKOUT
from local.processes import Daemons
from local.progress import Progress
from local.release import Release
from local.up import ADDRESS, DEMO_VALUES, answers_health
from tests.cluster.people import Person
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease
from tests.life.machine import Place, read_kernel
from tests.storage.volumes import BLOCKS, FILES, Volumes

pytestmark = pytest.mark.timeout(600)

EVERY_VOLUME = {**OPS_CPU, "scratch": "own"}
NOTES = "note team/note scratch/note"
SECONDS = 60.0  # from a cluster that is down to a demo that answers


def make_demo(place: Place) -> Release:
    """The demo, whether it is installed just now or not."""
    kube, helm = (next(place.cache.glob(f"bin/{name}-*/{name}")) for name in ("kube", "helm"))
    return Release(helm, Kubectl((str(kube), "kubectl"), place.state / "kubeconfig"))


@pytest.fixture
def demo(place: Place) -> Release:
    return make_demo(place)


@pytest.fixture
def plain(place: Place) -> Iterator[Place]:
    """Directories of a cluster that never has a Ceph; the builds are the same."""
    plain = Place(place.state.with_name(f"{place.state.name}-plain"), place.cache)
    yield plain
    plain.run("down")
    shutil.rmtree(plain.state)


@contextmanager
def sign_in(demo: Release, name: str) -> Iterator[Servers]:
    """Somebody's servers in the demo, by the password that `local/up` prints."""
    secret = demo.read_secret()
    installed = InstalledRelease(
        url=ADDRESS,
        namespace=demo.namespace,
        user_password=secret["userPassword"],
        admin_password=secret["adminPassword"],
        kubectl=demo.kubectl,
        chart=demo,
    )
    with Person(ADDRESS, name) as person:
        assert person.sign_in(installed.user_password)
        yield Servers(installed, person)


def read_builds(place: Place) -> dict[Path, int]:
    """All builds of the cache: the path of each, and when it was made."""
    return {path: path.stat().st_mtime_ns for path in place.cache.rglob("*") if path.is_file()}


def read_running(place: Place) -> dict[str, int]:
    """The pids of the cluster's daemons."""
    daemons = Daemons(place.state)
    records = {name: daemons.find_record(name) for name in daemons.list_names()}
    return {name: record.pid for name, record in records.items() if record and record.is_alive()}


def read_versions(release: Release) -> dict[str, str]:
    """What an upgrade would change: generations of the release's objects and its Helm records."""
    kinds = "deployments,services,configmaps,secrets,teams.spectrum.dev"
    objects = release.kubectl.get("-n", release.namespace, kinds)["items"]
    return {
        f"{one['kind']} {one['metadata']['name']}": f"{one['metadata']['uid']} "
        f"{one['metadata'].get('generation', one['metadata']['resourceVersion'])}"
        for one in objects
        if one["metadata"]["name"] != "gpu-inventory"
    }


def read_storage(release: Release) -> dict[str, Any]:
    """What of storage the team ops is offered."""
    team = release.kubectl.get("-n", release.namespace, "team", "ops")
    storage: dict[str, Any] = team["status"]["storage"]
    return storage


def read_classes(release: Release) -> list[str]:
    classes = release.kubectl.get("storageclasses")["items"]
    return sorted(one["metadata"]["name"] for one in classes)


def test_without_ceph_people_work_on_directories_of_the_machine(
    plain: Place, vacant_kernel: dict[str, Any]
) -> None:
    plain.run("up", "--no-ceph")
    demo = make_demo(plain)
    assert read_classes(demo) == ["standard"]
    assert not [name for name in read_running(plain) if name.startswith(("ceph-", "csi-"))]
    wait_until(lambda: "share" in read_storage(demo))
    with sign_in(demo, "bob") as bob:
        bob.start(EVERY_VOLUME)
        bob.run("ops", "sh", "-c", f"cd && for note in {NOTES}; do echo kept > $note; done")
        bob.stop()
    plain.run("down")
    plain.run("up", "--no-ceph")
    with sign_in(demo, "bob") as bob:
        bob.start(EVERY_VOLUME)
        assert bob.run("ops", "sh", "-c", f"cd && cat {NOTES}") == "kept\n" * 3
        bob.stop()


def test_a_cluster_may_begin_without_ceph(place: Place, vacant_kernel: dict[str, Any]) -> None:
    place.run("up", "--no-ceph", "--cluster-only")
    assert not [name for name in read_running(place) if name.startswith(("ceph-", "csi-"))]
    place.run("down")


@pytest.mark.parametrize(
    "step",
    [
        "starting Ceph",
        "starting the control plane and containerd",
        "starting the node",
        "starting DNS, storage and metrics",
        "loading image tensorflow-notebook",
        "installing the chart as release spectrum",
        "starting release spectrum",
    ],
)
def test_up_may_be_killed(place: Place, vacant_kernel: dict[str, Any], step: str) -> None:
    place.run_until(f"{step} …", "up")


def test_up_goes_on_where_killed_ones_stopped_and_builds_nothing(
    place: Place, demo: Release
) -> None:
    before = read_builds(place)
    place.run("up")
    status, _ = demo.find_status() or ("", "")
    assert (answers_health(), status) == (True, "deployed")
    assert read_builds(place) == before
    # It had none of Ceph at first.
    assert read_classes(demo) == ["rook-ceph-block", "rook-cephfs", "standard"]


def test_up_again_changes_nothing(place: Place, demo: Release) -> None:
    before = read_running(place), read_versions(demo), read_kernel()["links"]
    place.run("up")
    assert (read_running(place), read_versions(demo), read_kernel()["links"]) == before


def test_up_goes_on_after_a_helm_that_was_killed_in_its_work(
    place: Place, demo: Release, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("auth: {contact: the help desk}")
    pending = [
        *(*demo.kubectl.program, *demo.kubectl.make_options(), "-n", demo.namespace, "get"),
        *("secrets", "-l", "owner=helm,status=pending-upgrade", "--watch-only", "-o", "name"),
    ]
    with subprocess.Popen(pending, stdout=subprocess.PIPE) as watch:
        with place.start("up", "--values", str(other)) as command:
            watch.stdout.readline()  # type: ignore[union-attr]
            os.killpg(command.pid, signal.SIGKILL)
        watch.kill()
    status, _ = demo.find_status() or ("", "")
    assert status == "pending-upgrade"
    place.run("up", "--values", str(other))
    assert demo.read_values()["auth"]["contact"] == "the help desk"


def test_down_stops_and_unmounts_all_and_up_brings_it_back_within_a_minute(
    place: Place, demo: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, builds = demo.read_secret(), read_builds(place)
    place.run("down")
    assert (place.list_processes(), place.list_mounts()) == ([], [])

    began = time.monotonic()
    place.run("up")
    seconds = time.monotonic() - began
    with capsys.disabled():
        print(f" up after down: {seconds:.1f} s")
    assert answers_health()
    assert seconds <= SECONDS
    assert read_builds(place) == builds
    assert demo.read_secret() == secret


def test_down_ends_what_waits_for_a_ceph_that_was_killed(place: Place, demo: Release) -> None:
    demo.kubectl("create", "namespace", "writers")
    image = str(next(iter(demo.read_values()["images"].values()))["image"])
    volumes = Volumes(demo.kubectl, "writers", image)
    claims = {f"/{name}": volumes.claim(name, name) for name in (FILES, BLOCKS)}
    writer = volumes.start_pod("writer", claims)
    for path in claims:
        command = f"while dd if=/dev/zero of={path}/file bs=1M count=50 conv=fsync; do :; done"
        writer.run("sh", "-c", f"({command}) >/dev/null 2>&1 &")
    daemons = Daemons(place.state)
    for name in NAMES:
        daemons.stop(name, kill=True)
    place.run("down")
    assert (place.list_processes(), place.list_mounts()) == ([], [])

    place.run("up")
    volumes.wait_running("writer", 120)
    demo.kubectl("delete", "namespace", "writers")


def test_a_cluster_of_somebodys_own_gets_the_chart(
    place: Place, demo: Release, tmp_path: Path
) -> None:
    """By a kubeconfig whose current context is another, and by files in the caller's directory."""
    demo.remove(Progress())
    config = json.loads(demo.kubectl.kubeconfig.read_text())
    config["contexts"][0]["name"] = "ours"
    config["clusters"].append({"name": "gone", "cluster": {"server": "https://127.0.0.1:9"}})
    gone = {"cluster": "gone", "user": config["contexts"][0]["context"]["user"]}
    config["contexts"].append({"name": "theirs", "context": gone})
    config["current-context"] = "theirs"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    (tmp_path / "ours.yaml").write_text("auth: {contact: the help desk}")
    daemons = read_running(place)

    place.run(
        *("up", "--kubeconfig", "kubeconfig", "--context", "ours", "--values", str(DEMO_VALUES)),
        *("--values", str(place.state / "image-values.json"), "--values", "ours.yaml"),
        cwd=tmp_path,
    )

    assert answers_health()
    assert demo.read_values()["auth"]["contact"] == "the help desk"
    assert read_running(place) == daemons


def test_purge_leaves_the_machine_as_it_was(place: Place, vacant_kernel: dict[str, Any]) -> None:
    foreign = place.cache / "somebody-elses"
    foreign.write_text("stays")
    place.run("down", "--purge", cwd=CHECKOUT.parent)
    assert (place.list_processes(), place.list_mounts(), place.list_files()) == ([], [], [])
    assert read_kernel() == vacant_kernel
    assert foreign.read_text() == "stays"
    foreign.unlink()
    foreign.parent.rmdir()
