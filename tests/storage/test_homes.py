"""Homes that take nothing more, not for want of room: servers start all the same, and say so."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from local.ceph_config import FILE_SYSTEM
from local.cluster import make_ceph
from local.commands import run
from local.kubectl import Kubectl
from local.paths import find_state
from local.processes import Daemons
from tests.cluster.servers import OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

# Makes files until no other one may be made; a client's count is a little late.
FILL = """
import errno, os
os.makedirs("/home/jovyan/many")
try:
    for number in range(5000):
        open(f"/home/jovyan/many/{number}", "w").close()
except OSError as error:
    assert error.errno == errno.EDQUOT, error
else:
    raise SystemExit("it takes any number of files")
"""


@pytest.fixture
def home(kubectl: Kubectl, release: InstalledRelease, alice: Servers) -> dict[str, Any]:
    """The volume behind alice's home, which a server of hers has used."""
    alice.start(OPS_CPU)
    claim = kubectl.get("-n", f"{release.namespace}-ops", "pvc", "home-alice")
    volume: dict[str, Any] = kubectl.get("pv", claim["spec"]["volumeName"])
    return volume


@pytest.fixture
def limit_files(home: dict[str, Any], tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """Set how many files the home may have, which is none too many again afterwards."""
    ceph = make_ceph(find_state(), Daemons(find_state()))
    run(["ceph-fuse", "-c", ceph.conf, f"--client_fs={FILE_SYSTEM}", tmp_path])
    directory = f"{tmp_path}{home['spec']['csi']['volumeAttributes']['subvolumePath']}"

    def limit(more: int) -> None:
        used = int(os.getxattr(directory, "ceph.dir.rentries"))
        os.setxattr(directory, "ceph.quota.max_files", str(used + more).encode())

    yield limit
    os.setxattr(directory, "ceph.quota.max_files", b"0")
    run(["umount", tmp_path])


def test_a_home_that_takes_no_further_file_lets_a_server_start(
    alice: Servers, limit_files: Callable[[int], None]
) -> None:
    limit_files(100)
    alice.run("ops", "python3", "-c", FILL)
    alice.stop()

    alice.start(OPS_CPU)
    assert alice.person.visit_server("lab").ok
    assert read_warning(alice).startswith("Your home (/home/jovyan) takes no further file")
    # its first report may be from before, and another one comes a minute later
    wait_until(lambda: is_told_full_of_files(alice))

    alice.run("ops", "rm", "-r", "/home/jovyan/many")
    made = {"type": "file", "format": "text", "content": "kept"}
    ask = alice.person.call_server
    wait_until(lambda: ask("PUT", "contents/more.txt", made).ok)


@pytest.fixture
def read_only_home(kubectl: Kubectl, alice: Servers, home: dict[str, Any]) -> Iterator[None]:
    """The home is one that nodes mount for reading, until the end."""

    def remount(*options: str) -> None:
        alice.stop_all()
        wait_until(lambda: not is_mounted(home))
        flags = {"spec": {"mountOptions": list(options)}}
        kubectl("patch", "pv", home["metadata"]["name"], "-p", json.dumps(flags))

    remount("ro")
    yield
    remount()


def is_mounted(volume: dict[str, Any]) -> bool:
    """Whether the node has it yet: it lets go a moment after the last pod has."""
    handle = volume["spec"]["csi"]["volumeHandle"]
    return hashlib.sha256(handle.encode()).hexdigest() in Path("/proc/mounts").read_text()


@pytest.mark.usefixtures("read_only_home")
def test_a_home_that_can_only_be_read_lets_a_server_start(alice: Servers) -> None:
    alice.start(OPS_CPU)
    said = alice.run("ops", "sh", "-c", "touch ~/new 2>&1 || true")
    assert "Read-only file system" in said
    assert alice.person.visit_server("lab").ok
    assert read_warning(alice).startswith("Your home (/home/jovyan) cannot be written")
    wait_until(lambda: read_home(alice)["read_only"])


def read_warning(servers: Servers) -> str:
    """The one sentence of the banner in JupyterLab."""
    (warning,) = servers.person.visit_server("spectrum/banner").json()["warnings"]
    return str(warning)


def is_told_full_of_files(alice: Servers) -> bool:
    home = read_home(alice)
    return home["files_total"] is not None and home["files_used"] >= home["files_total"]


def read_home(servers: Servers) -> dict[str, Any]:
    """The home of team ops by the home page's figures."""
    told = servers.person.visit("spectrum/volumes").json()["volumes"]
    found: dict[str, Any]
    (found,) = (each for each in told if (each["team"], each["kind"]) == ("ops", "home"))
    return found
