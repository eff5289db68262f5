"""The server's image: what it may do, how it starts, what it leaves alone."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.hub import Hub
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
        path, body = hub.posts[0]
    assert path == "/hub/api/users/alice/activity"
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
    packages = root.path / "opt/spectrum/lib/python3.11/site-packages"
    stale = [str(path) for path in packages.rglob("*.py") if not _has_bytecode(path)]
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


def test_files_are_writable_by_the_group(root: RootFilesystem, home: Path, hub: Hub) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        status = Path(f"/proc/{server.find_pid()}/status").read_text()
    assert "Umask:\t0002\n" in status


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
