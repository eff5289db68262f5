"""What people write is theirs and their team's: it outlives servers, mistakes and full homes."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from local.ceph import Ceph
from local.ceph_config import FILE_SYSTEM, VOLUME_GROUP
from local.cluster import make_ceph
from local.kubectl import Kubectl
from local.paths import find_state
from local.processes import Daemons
from tests.cluster.pods import Pod, make_pod
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease
from tests.storage.volumes import MIB, try_to

MOVING = {**OPS_CPU, "scratch": "moving"}
PLACES = ("/home/jovyan", "/home/jovyan/team", "/home/jovyan/scratch")
TEAM = "/home/jovyan/team"
# A file's size counts, not what it takes on disk; figures are in blocks of 4 MiB.
FILL = """
import errno, os
room = os.statvfs("/home/jovyan")
with open("/home/jovyan/big", "ab", buffering=0) as file:
    file.truncate((room.f_bavail - 1) * room.f_frsize)
    for size in (2**20, 2**10, 1):
        try:
            for _ in range(2**12):
                file.write(bytes(size))
        except OSError as error:
            assert error.errno == errno.EDQUOT, error
        else:
            raise SystemExit("it is not full")
"""


def test_a_server_that_was_removed_finds_its_files_again_though_its_home_is_full(
    alice: Servers,
) -> None:
    alice.start(MOVING, "moving")
    for place in PLACES:
        alice.run("ops", "sh", "-c", f"echo kept > {place}/note.txt", name="moving")
    alice.run("ops", "python3", "-c", FILL, name="moving")
    alice.remove("moving")

    alice.start(MOVING, "moving")
    for place in PLACES:
        assert alice.run("ops", "cat", f"{place}/note.txt", name="moving") == "kept\n"
    assert alice.person.visit_server("moving/lab").ok
    (warning,) = alice.person.visit_server("moving/spectrum/banner").json()["warnings"]
    assert warning.startswith("Your home (/home/jovyan) is full")
    wait_until(lambda: is_told_full(alice))

    ask = alice.person.call_server
    made = {"type": "file", "format": "text", "content": 2 * MIB * "."}
    assert ask("PUT", "contents/more.txt", made, server="moving").status_code == 500
    assert ask("DELETE", "contents/big", server="moving").status_code == 204
    assert ask("PUT", "contents/more.txt", made, server="moving").status_code in (200, 201)
    size = alice.run("ops", "stat", "-c", "%s", "/home/jovyan/more.txt", name="moving")
    assert int(size) == 2 * MIB


def is_told_full(servers: Servers) -> bool:
    """Whether the home of team ops is full by the home page's figures."""
    told = servers.person.visit("spectrum/volumes").json()["volumes"]
    (home,) = (each for each in told if (each["team"], each["kind"]) == ("ops", "home"))
    return home["total"] is not None and home["total"] - home["used"] < MIB


@pytest.fixture
def ceph() -> Ceph:
    """The cluster's Ceph, as an administrator has it."""
    return make_ceph(find_state(), Daemons(find_state()))


def test_people_restore_a_file_from_a_snapshot_of_their_teams_volume(
    kubectl: Kubectl, release: InstalledRelease, ceph: Ceph, alice: Servers
) -> None:
    def run(command: str) -> str:
        return alice.run("ops", "sh", "-c", f"cd {TEAM}; {command}")

    alice.start(OPS_CPU)
    run("mkdir -p plans; echo monday > plans/results.ipynb")
    claim = kubectl.get("-n", f"{release.namespace}-ops", "pvc", "share")
    with snapshot(ceph, kubectl.get("pv", claim["spec"]["volumeName"]), "monday"):
        run("rm plans/results.ipynb")
        (name,) = run("ls .snap").split()
        assert name.startswith("_monday_")
        assert "Read-only file system" in run(f"touch .snap/{name}/new 2>&1 || true")
        run(f"cp -a .snap/{name}/plans/results.ipynb plans/results.ipynb")
        assert run("cat plans/results.ipynb") == "monday\n"


@contextmanager
def snapshot(ceph: Ceph, volume: dict[str, Any], name: str) -> Iterator[None]:
    """Within this context there is a snapshot of a file volume."""
    subvolume = volume["spec"]["csi"]["volumeAttributes"]["subvolumeName"]
    words = (FILE_SYSTEM, subvolume, name, "--group_name", VOLUME_GROUP)
    ceph.ceph("fs", "subvolume", "snapshot", "create", *words)
    try:
        yield
    finally:
        ceph.ceph("fs", "subvolume", "snapshot", "rm", *words)


@pytest.fixture
def enter_share(
    kubectl: Kubectl, release: InstalledRelease, image: str
) -> Iterator[Callable[..., Pod]]:
    """Start a pod of some uid and groups that mounts what the members of team ops share."""
    namespace = f"{release.namespace}-ops"
    started = []

    def start(user: int, groups: list[int]) -> Pod:
        name = f"user-{user}"
        manifest = make_pod(name, image)
        (container,) = manifest["spec"]["containers"]
        container["command"] = ["sleep", "infinity"]
        container["securityContext"] |= {"runAsUser": user, "runAsGroup": user}
        container["volumeMounts"] = [{"name": "share", "mountPath": TEAM, "subPath": "team"}]
        manifest["spec"]["securityContext"] = {"supplementalGroups": groups}
        claim = {"claimName": "share"}
        manifest["spec"]["volumes"] = [{"name": "share", "persistentVolumeClaim": claim}]
        kubectl("-n", namespace, "create", "-f", "-", text=json.dumps(manifest))
        started.append(name)
        ready = ("--for=condition=Ready", "--timeout=60s")
        kubectl("-n", namespace, "wait", f"pod/{name}", *ready)
        return Pod(kubectl, namespace, name)

    yield start
    for name in started:
        kubectl("-n", namespace, "delete", "pod", name)


def test_members_of_any_uid_change_each_others_files_and_nobody_else_does(
    kubectl: Kubectl,
    release: InstalledRelease,
    alice: Servers,
    enter_share: Callable[..., Pod],
) -> None:
    alice.start(OPS_CPU)
    gid = kubectl.get("-n", release.namespace, "team", "ops")["status"]["gid"]
    member, stranger = enter_share(10002, [gid]), enter_share(10003, [])

    def as_alice(command: str) -> str:
        return alice.run("ops", "sh", "-c", f"umask 0002; cd {TEAM}; {command}")

    def as_member(command: str) -> str:
        return member.run("sh", "-c", f"umask 0002; cd {TEAM}; {command}")

    for maker, other in ((as_alice, as_member), (as_member, as_alice)):
        maker("mkdir work; echo made > work/a.ipynb")
        assert maker("stat -c %a:%g work work/a.ipynb").split() == [f"2775:{gid}", f"664:{gid}"]
        other("echo edited >> work/a.ipynb; mv work/a.ipynb work/b.ipynb")
        assert maker("cat work/b.ipynb") == "made\nedited\n"
        # as Jupyter saves: the file is another one afterwards
        other("echo saved > work/.~b.ipynb; mv work/.~b.ipynb work/b.ipynb")
        maker("echo again >> work/b.ipynb")
        assert other("cat work/b.ipynb") == "saved\nagain\n"
        for command in (f"ls {TEAM}", f"cat {TEAM}/work/b.ipynb", f"touch {TEAM}/new"):
            assert "Permission denied" in try_to(stranger, command)
        other("rm -r work")
        assert "work" not in maker("ls")
