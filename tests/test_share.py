"""The directory that the members of a team share: what makes it, run for real."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spectrum_spawner.share import make_share_container

GROUP = os.getgid() or 1000  # root may give a directory to any group
SERVER: dict[str, Any] = {
    "name": "notebook",
    "image": "registry.example/tf:1",
    "imagePullPolicy": "Always",
    "resources": {
        "requests": {"cpu": "1"},
        "limits": {"memory": "1073741824", "nvidia.com/gpu": "2"},
    },
    "securityContext": {"allowPrivilegeEscalation": False},
}


def prepare(root: Path, *, gid: int = GROUP) -> subprocess.CompletedProcess[str]:
    """Run what the container runs, with the share at `root`."""
    *shell, script = make_share_container(SERVER, gid=gid)["command"]
    assert "cd /share\n" in script
    command = [*shell, script.replace("cd /share\n", f"cd '{root}'\n")]
    return subprocess.run(command, capture_output=True, text=True)


def look(directory: Path) -> tuple[str, int]:
    found = directory.stat()
    return oct(found.st_mode & 0o7777), found.st_gid


def test_it_is_the_groups_alone_and_so_is_what_is_made_in_it(tmp_path: Path) -> None:
    assert prepare(tmp_path).returncode == 0
    assert look(tmp_path / "team") == ("0o2770", GROUP)
    (tmp_path / "team" / "notebooks").mkdir()
    assert (tmp_path / "team" / "notebooks").stat().st_gid == GROUP


def test_one_that_is_there_keeps_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "team" / "a.ipynb"
    file.parent.mkdir(mode=0o755)
    file.write_text("{}")
    for _ in range(2):
        assert prepare(tmp_path).returncode == 0
    assert (file.read_text(), look(file.parent)) == ("{}", ("0o2770", GROUP))


@pytest.mark.parametrize("name", ["a file", "no share"])
def test_a_failure_says_why(name: str, tmp_path: Path) -> None:
    (tmp_path / "team").write_text("x")
    done = prepare(tmp_path if name == "a file" else tmp_path / "absent")
    assert done.returncode != 0
    assert done.stderr


def test_it_asks_for_no_more_than_the_server_and_for_no_gpu() -> None:
    made = make_share_container(SERVER, gid=100000)
    assert made["resources"] == {
        "requests": {"cpu": "1"},
        "limits": {"memory": "1073741824"},
    }
    same = ("image", "imagePullPolicy", "securityContext")
    assert {key: made[key] for key in same} == {key: SERVER[key] for key in same}
