"""The server's image: what it may do, how it starts, what it leaves alone."""

import itertools
import json
import os
import signal
import struct
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spectrum_spawner.service.culling.report import read_report
from tests.images.hub import Hub
from tests.images.inside import run_cell, run_line
from tests.images.rootfs import RootFilesystem
from tests.images.server import running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("base-notebook")


def test_the_image_runs_the_single_user_server_under_tini_as_user_1000(
    root: RootFilesystem,
) -> None:
    config = {key: root.config[key] for key in ("User", "Entrypoint", "Cmd", "WorkingDir")}
    assert config == {
        "User": "1000:1000",
        "Entrypoint": ["tini", "-g", "--"],
        "Cmd": ["spectrum-singleuser"],
        "WorkingDir": "/home/jovyan",
    }


def test_the_user_is_jovyan_without_any_way_to_more_rights(
    root: RootFilesystem, home: Path
) -> None:
    printed = root.run("sh", "-c", "id; grep CapBnd /proc/self/status", home=home)
    assert printed.splitlines() == [
        "uid=1000(jovyan) gid=1000(jovyan) groups=1000(jovyan)",
        "CapBnd:\t0000000000000000",
    ]
    set_uid_on_our_part = root.run(
        "find", "/opt", "/home", "/srv", "-xdev", "-perm", "/6000", home=home
    )
    assert set_uid_on_our_part == ""


def test_no_secret_and_no_setting_of_the_building_machine_is_in_the_image(
    root: RootFilesystem,
) -> None:
    environment = root.environment
    assert environment.pop("PATH").split(":")[0] == "/opt/spectrum/bin"
    assert environment == {
        "HOME": "/home/jovyan",
        "JUPYTER_RUNTIME_DIR": "/tmp/jupyter-runtime",
        "LANG": "C.UTF-8",
        "SHELL": "/bin/bash",
    }
    for left in ("etc/pip.conf", "run/build-ca.crt"):
        assert not (root.path / left).exists() or (root.path / left).stat().st_size == 0


@contextmanager
def changing(folder: Path) -> Iterator[None]:
    """Within this context files come and vanish in a folder, as when others work in it."""
    ended = threading.Event()

    def change() -> None:
        for number in itertools.cycle(range(7)):
            if ended.is_set():
                return
            (folder / f"{number}.txt").touch()
            (folder / f"{number}.txt").unlink()

    changes = threading.Thread(target=change)
    changes.start()
    yield
    ended.set()
    changes.join()


def test_a_folder_is_listed_though_files_vanish_from_it(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    folder = home / "team"
    folder.mkdir()
    (folder / "plan.ipynb").touch()
    with running_server(root, home=home, hub_port=hub.server_port) as server, changing(folder):
        for _ in range(200):
            answer = server.get("api/contents/team?content=1")
            assert answer.status == 200, answer
            names = [entry["name"] for entry in json.loads(answer.text)["content"]]
            assert "plan.ipynb" in names
        assert server.get("api/contents/nowhere?content=1").status == 404


def test_the_server_answers_as_a_jupyterhub_server(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        answer = server.get("api", token=None)
        assert (answer.status, answer.headers["X-JupyterHub-Version"]) == (200, "6.1.1")
        assert server.get("api/contents", token=None).status == 403
        assert server.get("api/contents", token="wrong").status == 403
        assert server.get_json("api/me")["identity"]["username"] == "alice"  # type: ignore[index]
        assert '"hubServerUser": "alice"' in server.get("lab").text
        sign_in = server.get("lab", token=None)
        assert sign_in.status == 302
        assert sign_in.headers["Location"].startswith("/hub/api/oauth2/authorize?")


def test_the_server_reports_its_activity_to_the_hub(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port):
        body = hub.wait_for_post("/hub/api/users/alice/activity")
    assert body["servers"][""]["last_activity"] == body["last_activity"]


def test_an_answer_of_the_hub_is_trusted_for_ten_seconds_at_most(
    root: RootFilesystem, home: Path
) -> None:
    script = """
from jupyter_server.serverapp import ServerApp
from spectrum_lab.server import import_singleuser
import_singleuser()
from jupyterhub.singleuser.extension import JupyterHubIdentityProvider
app = ServerApp()
app.load_config_file()
print(JupyterHubIdentityProvider(parent=app).hub_auth.cache_max_age)
"""
    printed = root.run("python", "-c", script, home=home)
    assert printed.splitlines()[-1] == "10"


def test_a_server_imports_neither_the_hub_nor_what_no_server_uses(
    root: RootFilesystem, home: Path
) -> None:
    script = """
import json, sys
from spectrum_lab.server import import_singleuser
import_singleuser()
names = ["alembic", "jupyterhub.handlers", "jupyterhub.singleuser.mixins", "lark", "tensorflow"]
print(json.dumps([name for name in names if name in sys.modules]))
"""
    assert root.run("python", "-c", script, home=home) == "[]\n"


def test_what_was_left_out_is_there_for_who_imports_it(root: RootFilesystem, home: Path) -> None:
    script = """
from spectrum_lab.server import import_singleuser
import_singleuser()
from jupyterhub import orm
from jupyterhub.handlers.pages import HealthCheckHandler

print(orm.User.__tablename__, HealthCheckHandler.__mro__[1].__name__)
"""
    printed = root.run("python", "-c", script, home=home)
    assert printed.split()[:2] == ["users", "BaseHandler"]


def test_all_bytecode_is_compiled_and_belongs_to_its_source(root: RootFilesystem) -> None:
    stale = [str(path) for path in root.packages.rglob("*.py") if not _has_bytecode(path)]
    assert stale == []


def _has_bytecode(source: Path) -> bool:
    """Tell whether the interpreter will use the source's cached bytecode, or could not have any."""
    cached = source.parent / "__pycache__" / f"{source.stem}.cpython-311.pyc"
    if not cached.exists():
        try:
            compile(source.read_bytes(), source, "exec")
        except (SyntaxError, ValueError):
            return True
        return False
    flags, mtime, size = struct.unpack("<4xIII", cached.read_bytes()[:16])
    status = source.stat()
    return (flags, mtime, size) == (0, int(status.st_mtime), status.st_size)


def test_files_are_writable_by_the_group_whoever_makes_them(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    (home / "team").mkdir()
    (home / "team").chmod(0o2777)
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        made = server.put("api/contents/team/by-server", {"type": "directory"})
        assert made.status == 201
        text = {"type": "file", "format": "text", "content": "text"}
        assert server.put("api/contents/team/by-server/file", text).status == 201
        run_cell(
            server, "import os; os.mkdir('by-kernel'); open('by-kernel/file', 'w')", path="team/n"
        )
        run_line(server, "cd ~/team; mkdir by-terminal; touch by-terminal/file")
    modes = {
        str(path.relative_to(home / "team")): f"{path.stat().st_mode & 0o7777:o}"
        for path in sorted((home / "team").rglob("*"))
    }
    makers = ("by-kernel", "by-server", "by-terminal")
    assert modes == {
        **dict.fromkeys(makers, "2775"),
        **{f"{maker}/file": "664" for maker in makers},
    }


def test_temporary_files_of_notebooks_and_terminals_are_not_in_the_home(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        code = """
import tempfile, jupyter_core.paths
print(tempfile.gettempdir(), jupyter_core.paths.jupyter_runtime_dir())
"""
        assert run_cell(server, code) == "/tmp /tmp/jupyter-runtime\n"
        assert run_line(server, "dirname $(mktemp)") == "/tmp"


def test_terminals_find_the_programs_of_the_environment(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        assert run_line(server, "command -v python pip jupyter aws spectrum") == (
            "/opt/spectrum/bin/python\n/opt/spectrum/bin/pip\n"
            "/opt/spectrum/bin/jupyter\n/opt/spectrum/bin/aws\n/opt/spectrum/bin/spectrum"
        )


def test_the_server_tells_the_service_how_full_its_volumes_are(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    paths = [("home", "/home/jovyan"), ("share", "/nowhere")]
    listed = json.dumps([{"kind": kind, "name": "", "path": path} for kind, path in paths])
    url = f"http://127.0.0.1:{hub.server_port}/services/spectrum/"
    told = {"SPECTRUM_URL": url, "SPECTRUM_VOLUMES": listed}
    with running_server(root, home=home, hub_port=hub.server_port, environment=told) as server:
        report = hub.wait_for_post("/services/spectrum/api/report")
        warnings = server.get_json("spectrum/banner")
        assert server.get("spectrum/banner", token=None).status in (302, 403)
        status = server.get_json("api/status")
    found = os.statvfs(home)
    home_told, share_told = report["volumes"]
    assert home_told["total"] <= found.f_blocks * found.f_frsize
    assert (home_told["kind"], home_told["read_only"], home_told["error"]) == ("home", False, "")
    assert share_told["error"] == "No such file or directory"
    assert warnings == {
        "warnings": ["The team's share (/nowhere) cannot be read: No such file or directory."],
        "notices": [],
        "page": "/services/spectrum/gpus/alice/",
        "board": "/services/spectrum/",
        "home": "/hub/home",
        "standing": {
            "gpus": 0,
            "utilisation": None,
            "memory": None,
            "ends_at": None,
            "held_until": None,
            "sentence": "",
        },
        "silence": "",
        "own": True,
    }
    # neither the report nor the banner's question counts as a person at work
    assert status["last_activity"] == status["started"]  # type: ignore[index]


def test_the_server_tells_the_service_what_works_in_it(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    url = f"http://127.0.0.1:{hub.server_port}/services/spectrum/"
    told = {"SPECTRUM_URL": url, "SPECTRUM_POD_UID": "uid"}
    work = "while True: pass"
    with running_server(root, home=home, hub_port=hub.server_port, environment=told) as server:
        path = "/services/spectrum/api/report"
        first = hub.wait_for_post(path)["activity"]
        run_line(server, f"(nohup python -c '{work}' > /dev/null 2>&1 &)")
        run_cell(server, "import threading\ndef work():\n    " + work + "\n"
                 "threading.Thread(target=work, daemon=True).start()")  # fmt: skip
        later = hub.wait_for_post(path, after=1)["activity"]
        read = read_report(later, now=datetime.now(UTC))
    assert (first["kernels"], first["terminals"], first["processes"]) == ([], [], [])
    assert read.kernels is not None
    assert (read.kernels.pod_uid, read.kernels.doubtful) == ("uid", 0)
    assert read.processes is not None
    working = {each.name for each in read.processes.found if each.works}
    assert {"python -c", "python3 -m ipykernel_launcher"} <= working
    assert "bash" in {each.name for each in read.processes.found}
    assert read.terminals is not None
    assert read.terminals.last_activity is not None


def test_a_server_lets_the_persons_script_run_before_its_end(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    script = home / ".spectrum" / "pre-stop"
    script.parent.mkdir()
    script.write_text('#!/bin/sh\nsleep 1\nps x | grep -c "[i]pykernel_launcher"\n')
    script.chmod(0o755)
    script.parent.chmod(0o777)
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        run_cell(server, "1")
        began = time.monotonic()
        os.kill(server.find_pid(below=1), signal.SIGTERM)
        server.process.wait(30)
        assert 1 <= time.monotonic() - began < 15
    kernels, verdict = (script.parent / "pre-stop.log").read_text().splitlines()
    assert kernels == "1"
    assert "pre-stop ended with 0 after 1." in verdict


def test_what_reaches_a_bucket_is_there_and_small(root: RootFilesystem, home: Path) -> None:
    printed = root.run("python", "-c", "import boto3, s3fs; print(boto3.client('s3'))", home=home)
    assert "botocore.client.S3" in printed
    # what aws knows of a service is read, and fails only where there is no account
    printed = root.run("sh", "-c", "aws s3 ls 2>&1 || true", home=home)
    assert "Unable to locate credentials" in printed
    package = root.packages / "awscli"
    assert sum(path.stat().st_size for path in package.rglob("*") if path.is_file()) < 40e6


def test_databases_stay_off_the_home(root: RootFilesystem, home: Path, hub: Hub) -> None:
    notebook = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (home / "empty.ipynb").write_text(json.dumps(notebook))
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        assert server.get("api/contents/empty.ipynb").status == 200
        root.run("ipython", "-c", "1 + 1", home=home)
    assert [*home.rglob("*.sqlite"), *home.rglob("*.db")] == []


def test_a_person_can_install_a_package_for_the_time_of_the_server(
    root: RootFilesystem, home: Path
) -> None:
    wheel = home / "probe-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("probe.py", "print('installed')")
        archive.writestr("probe-1.0.dist-info/METADATA", "Name: probe\nVersion: 1.0\n")
        archive.writestr("probe-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("probe-1.0.dist-info/RECORD", "")
    install = f"pip install --quiet --no-index {wheel.name} && python -m probe"
    printed = root.run("sh", "-c", f"{install} && pip uninstall --quiet --yes probe", home=home)
    assert "installed" in printed.splitlines()


def test_a_server_starts_in_a_home_that_cannot_be_written(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    home.chmod(0o755)
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        assert server.get("lab").status == 200


def test_a_person_s_own_settings_win_over_the_image_s(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    (home / ".jupyter").mkdir()
    settings = home / ".jupyter" / "jupyter_server_config.py"
    settings.write_text('c = get_config()\nc.LabApp.extension_manager = "pypi"\n')
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        assert "Extension Manager is 'pypi'" in server.log.read_text()
