"""Servers and their volumes: what people find in them, and read when one is in the way."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from local.ceph import Ceph
from local.kubectl import Kubectl
from local.progress import Progress
from spectrum_spawner import names
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.teams import made_team
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease
from tests.storage.volumes import BLOCKS

ROOK = "rook-ceph"  # namespace
LATE = "late"
CREATE = ("create", "-f", "-")
EXP1 = {**OPS_CPU, "scratch": "exp1"}
IN_DOCK = {**OPS_CPU, "team": "dock"}
# Prints where each volume is, whose and with what rights, once something was written to it. Data
# sets take nothing.
LOOK = """
import json, os
found = {}
for volume in json.loads(os.environ["SPECTRUM_VOLUMES"]):
    path = volume["path"]
    info = os.stat(path)
    try:
        open(f"{path}/.written", "w").close()
    except OSError:
        assert volume["kind"] == "dataset"
        continue
    found[volume["kind"]] = [path, oct(info.st_mode & 0o7777), info.st_gid]
    assert os.stat(f"{path}/.written").st_gid == info.st_gid
print(json.dumps(found))
"""


def read_team(kubectl: Kubectl, release: InstalledRelease) -> dict[str, Any]:
    team: dict[str, Any] = kubectl.get("-n", release.namespace, "team", "ops")
    return team["status"]


@pytest.fixture
def choose_class(kubectl: Kubectl, release: InstalledRelease) -> Iterator[Callable[[str], None]]:
    """Set the storage class of the team's scratch disks, which is the release's afterwards."""

    def choose(name: str | None) -> None:
        place = ("-n", release.namespace, "patch", "team", "ops", "--type=merge", "-p")
        scratch = {"storageClass": name} if name else None
        kubectl(*place, json.dumps({"spec": {"storage": {"scratch": scratch}}}))
        wait_until(lambda: read_class(kubectl, release) == (name or BLOCKS))

    yield choose
    choose(None)


def read_class(kubectl: Kubectl, release: InstalledRelease) -> str:
    return str(read_team(kubectl, release)["storage"]["scratch"]["storageClass"])


@pytest.fixture
def unfinished_class(kubectl: Kubectl, release: InstalledRelease) -> Iterator[str]:
    """A class of block volumes whose Secret `late` is not there yet; what was made of it goes."""
    found = kubectl.get("storageclass", BLOCKS)
    key = "csi.storage.k8s.io/provisioner-secret-name"
    parameters = {**found["parameters"], key: LATE}
    kubectl(
        *CREATE, text=json.dumps(found | {"metadata": {"name": LATE}, "parameters": parameters})
    )
    yield LATE
    claims = ("-n", f"{release.namespace}-ops", "delete", "pvc", "--wait=false")
    kubectl(*claims, names.scratch_claim("bob", LATE))
    wait_until(lambda: LATE not in list_classes(kubectl))
    kubectl("-n", ROOK, "delete", "secret", LATE, "--ignore-not-found")
    kubectl("delete", "storageclass", LATE)


def list_classes(kubectl: Kubectl) -> list[str]:
    """The classes of all volumes that there are."""
    return [volume["spec"].get("storageClassName", "") for volume in kubectl.get("pv")["items"]]


def wait_failed(servers: Servers, options: dict[str, str]) -> str:
    """Ask for a server that one does not get: what the page says, maybe only after a while."""
    answer = servers.person.call("POST", f"users/{servers.person.name}/server", options_of(options))
    if answer.status_code != 202:
        return str(answer.json()["message"])
    wait_until(lambda: not servers.read())
    # of pages that failed no header names the encoding, only the page itself
    return servers.person.visit(f"spawn-pending/{servers.person.name}").content.decode()


def options_of(options: dict[str, str]) -> dict[str, Any]:
    return {"user_options": options}


def test_volumes_are_where_people_are_told_and_belong_to_the_teams_group(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers
) -> None:
    wait_until(lambda: read_team(kubectl, release)["storage"].get("share"))
    gid = read_team(kubectl, release)["gid"]
    bob.start(EXP1)
    found = json.loads(bob.run("ops", "python3", "-c", LOOK))
    assert found["share"] == ["/home/jovyan/team", "0o2770", gid]
    assert [found[kind][0] for kind in ("home", "scratch")] == [
        "/home/jovyan",
        "/home/jovyan/scratch",
    ]
    assert {entry[2] for entry in found.values()} == {gid}
    kinds = bob.run("ops", "df", "--output=fstype", "/home/jovyan", "/home/jovyan/scratch")
    assert kinds.split()[1:] == ["fuse.ceph-fuse", "xfs"]


def test_the_share_is_prepared_once(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers
) -> None:
    bob.start(OPS_CPU)
    bob.run("ops", "sh", "-c", "echo shared > ~/team/note.txt")
    wait_until(lambda: read_team(kubectl, release)["storage"]["share"]["prepared"])
    bob.stop()
    bob.start(OPS_CPU)
    assert "initContainers" not in bob.find_pod("ops")["spec"]
    assert bob.run("ops", "cat", "/home/jovyan/team/note.txt") == "shared\n"


def test_a_disk_serves_one_server_after_another(bob: Servers) -> None:
    bob.start(EXP1)
    bob.run("ops", "sh", "-c", "echo kept > ~/scratch/note.txt")
    status, sentence = bob.refuse(EXP1, "second")
    assert (status, sentence) == (
        409,
        "Your scratch disk “exp1” is in use by your default server, and only one server at a time "
        "can use it: stop that one, or start this one with another disk or with none.",
    )
    bob.stop()
    bob.start(EXP1, "second")
    bob.stop("second")
    bob.start(EXP1)
    assert bob.run("ops", "cat", "/home/jovyan/scratch/note.txt") == "kept\n"


def test_a_file_where_a_volume_goes_is_said_and_one_can_help_oneself(bob: Servers) -> None:
    bob.start(OPS_CPU)
    bob.run("ops", "sh", "-c", "rm -rf ~/scratch && touch ~/scratch")
    bob.stop()
    assert (
        "“scratch” in your home is a file, and a volume is to be mounted there. Start it without "
        "a scratch disk and rename it."
    ) in wait_failed(bob, EXP1)
    bob.start(OPS_CPU)
    bob.run("ops", "mv", "/home/jovyan/scratch", "/home/jovyan/scratch.txt")
    bob.stop()
    bob.start(EXP1)


def test_a_dataset_that_cannot_be_mounted_stops_one_start_only(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers
) -> None:
    quota = {"cpu": "1", "memory": "4Gi", "pods": 2, "gpus": {}}
    with made_team(release, "dock", quota, groups=["ops"]):
        offered = ("-n", release.namespace, "wait", "team/dock", "--timeout=60s")
        kubectl(*offered, "--for=jsonpath={.status.storage.datasets[0].name}=gone")
        said = "Dataset “gone” (claim dataset-gone) cannot be mounted:"
        assert said in wait_failed(bob, IN_DOCK)
        bob.start(IN_DOCK)
        assert bob.run("dock", "ls", "/home/jovyan/datasets") == "samples\n"
        told = bob.person.visit("spectrum/volumes").json()["volumes"]
        (gone,) = (each for each in told if (each["team"], each["name"]) == ("dock", "gone"))
        assert gone["state"] == "failed"
        assert gone["message"].endswith("Servers start without it.")
        bob.stop()


def test_before_there_is_a_share_nothing_is_written_where_it_will_be(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers
) -> None:
    quota = {"cpu": "1", "memory": "4Gi", "pods": 2, "gpus": {}}
    share = {"share": {"storageClass": "nowhere"}}
    with made_team(release, "dock", quota, groups=["ops"], storage=share):
        told = ("-n", release.namespace, "wait", "team/dock", "--timeout=60s")
        kubectl(*told, "--for=jsonpath={.status.storage.withheld[0].kind}=share")
        bob.start(IN_DOCK)
        shown = bob.run("dock", "sh", "-c", "ls -A ~/team; touch ~/team/mine 2>&1 || true")
        assert shown.endswith("team/mine': Read-only file system\n")
        assert shown.count("\n") == 1
        bob.stop()


def test_a_disk_of_a_class_that_does_not_exist_is_refused_at_once(
    kubectl: Kubectl, release: InstalledRelease, bob: Servers, choose_class: Callable[[str], None]
) -> None:
    choose_class("nowhere")
    assert read_team(kubectl, release)["storage"]["missingClasses"] == ["nowhere"]
    assert bob.refuse({**OPS_CPU, "scratch": "new"}) == (
        409,
        "Your scratch disk “new” cannot be made: storage class “nowhere” does not exist. Start "
        "your server without a scratch disk, and ask a cluster administrator to set "
        "storage.scratch.storageClass right, in the release's values or in the Team.",
    )
    bob.start(OPS_CPU)


def test_a_start_waits_for_a_disk_that_cannot_be_made_yet_and_says_why(
    kubectl: Kubectl, unfinished_class: str, choose_class: Callable[[str], None], bob: Servers
) -> None:
    choose_class(unfinished_class)
    asked = options_of({**OPS_CPU, "scratch": LATE})
    assert bob.person.call("POST", "users/bob/server", asked).status_code == 202
    claim = names.scratch_claim("bob", LATE)
    said = f"Waiting for your scratch disk “{LATE}” (claim {claim}): Secret {LATE} of its storage"
    wait_until(lambda: said in " ".join(bob.read_progress()))
    secret = kubectl.get("-n", ROOK, "secret", "rook-csi-rbd-provisioner")
    kubectl(*CREATE, text=json.dumps(secret | {"metadata": {"name": LATE, "namespace": ROOK}}))
    wait_until(lambda: bob.read().get("ready"))
    bob.stop()


def test_a_start_waits_for_ceph_and_says_so_while_other_servers_go_on(
    bob: Servers, ceph: Ceph
) -> None:
    bob.start(OPS_CPU, "first")
    ceph.daemons.stop("ceph-mon", kill=True)
    asked = options_of({**OPS_CPU, "scratch": "late"})
    assert bob.person.call("POST", "users/bob/server", asked).status_code == 202
    claim = names.scratch_claim("bob", "late")
    said = f"Waiting for your scratch disk “late” (claim {claim}): Ceph does not answer"
    wait_until(lambda: said in bob.read_progress())
    assert bob.read("first")["ready"]
    with Progress().step("starting Ceph") as step:
        ceph.start(step)
    wait_until(lambda: bob.read().get("ready"), within=180)
    assert bob.read("first")["ready"]
