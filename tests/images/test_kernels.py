"""What a person installs is in their home: the next server has it too."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.hub import Hub
from tests.images.inside import run_cell
from tests.images.rootfs import RootFilesystem
from tests.images.server import running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

WHEEL = "greeting-1.0-py3-none-any.whl"
# The packages of the image are there too, those of the environment first.
MAKE_KERNEL = """
python3 -m venv ~/envs/mine
echo {packages} > "$(echo ~/envs/mine/lib/python3.*/site-packages)/image.pth"
~/envs/mine/bin/pip install --no-index ~/{wheel}
~/envs/mine/bin/python -m ipykernel install --user --name mine --display-name Mine
"""


@pytest.fixture(scope="session", params=["base-notebook", "tensorflow-notebook-py313"])
def root(
    unpacked: Callable[[str], RootFilesystem], request: pytest.FixtureRequest
) -> RootFilesystem:
    return unpacked(request.param)


@pytest.fixture
def wheel(home: Path) -> str:
    """A package that is nowhere else, in the home."""
    about = "greeting-1.0.dist-info"
    files = {
        "greeting.py": 'WORD = "hello"',
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(home / WHEEL, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return WHEEL


def test_what_pip_installs_for_a_person_is_there_in_the_next_server(
    root: RootFilesystem, home: Path, hub: Hub, wheel: str
) -> None:
    root.run("pip", "install", "--user", "--no-index", wheel, home=home)
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        assert run_cell(server, "import greeting; print(greeting.WORD)") == "hello\n"


def test_an_environment_of_ones_own_is_a_kernel_in_the_next_server(
    root: RootFilesystem, home: Path, hub: Hub, wheel: str
) -> None:
    make = MAKE_KERNEL.format(packages="/" / root.packages.relative_to(root.path), wheel=wheel)
    root.run("sh", "-ec", make, home=home)
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        kernels = server.get_json("api/kernelspecs")["kernelspecs"]  # type: ignore[index]
        assert sorted(kernels) == ["mine", "python3"]
        script = "import sys, greeting; print(sys.prefix, greeting.WORD)"
        assert run_cell(server, script, kernel="mine") == "/home/jovyan/envs/mine hello\n"
