"""TensorFlow, the example and TensorBoard, in the image as a pod would run it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.hub import Hub
from tests.images.inside import run_cell
from tests.images.rootfs import RootFilesystem
from tests.images.server import running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)


# Each variant with the Python that it is there for.
VARIANTS = {"tensorflow-notebook": "3.11", "tensorflow-notebook-py313": "3.13"}


@pytest.fixture(scope="session", params=VARIANTS)
def variant(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem], variant: str) -> RootFilesystem:
    return unpacked(variant)


def test_the_image_keeps_the_base_s_way_to_start(root: RootFilesystem) -> None:
    config = {key: root.config[key] for key in ("User", "Entrypoint", "Cmd", "WorkingDir")}
    assert config == {
        "User": "1000:1000",
        "Entrypoint": ["tini", "-g", "--"],
        "Cmd": ["spectrum-singleuser"],
        "WorkingDir": "/home/jovyan",
    }
    assert root.environment["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


def test_the_image_never_asks_for_gpus_by_itself(root: RootFilesystem) -> None:
    assert "NVIDIA_VISIBLE_DEVICES" not in root.environment


def test_tensorflow_computes_and_says_how_many_gpus_it_sees(
    root: RootFilesystem, home: Path
) -> None:
    script = """
import tensorflow as tf
print(tf.__version__.rsplit(".", 1)[0])
print(float(tf.reduce_sum(tf.matmul(tf.ones((3, 3)), tf.ones((3, 3))))))
print(len(tf.config.list_physical_devices("GPU")))
"""
    printed = root.run("python", "-c", script, home=home)
    assert printed.splitlines()[-3:] == ["2.21", "27.0", "0"]


CELL = """
import sys
import tensorflow as tf
print(*sys.version_info[:2], sep=".")
print(float(tf.reduce_sum(tf.matmul(tf.ones((3, 3)), tf.ones((3, 3))))))
"""


def test_a_cell_computes_in_the_python_of_the_variant_and_no_other_is_listed(
    root: RootFilesystem, home: Path, hub: Hub, variant: str
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        printed = run_cell(server, CELL).splitlines()  # TensorFlow itself tells a lot before
        assert printed[-2:] == [VARIANTS[variant], "27.0"]
        kernels = server.get_json("api/kernelspecs")["kernelspecs"]  # type: ignore[index]
    assert list(kernels) == ["python3"]


def test_packages_fit_each_other(root: RootFilesystem, home: Path) -> None:
    assert root.run("pip", "check", home=home) == "No broken requirements found.\n"


def test_plots_need_no_font_search_at_their_first_use(root: RootFilesystem, home: Path) -> None:
    printed = root.run("python", "-c", "import matplotlib.pyplot", home=home)
    assert printed == ""


def test_the_example_trains_and_tensorboard_shows_its_curves(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        maps = Path(f"/proc/{server.find_pid()}/maps").read_text()
        assert "libtensorflow" not in maps, "the server itself has loaded TensorFlow"
        assert (home / "examples/digits.ipynb").exists()

        notebook = "examples/digits.ipynb"
        root.run("jupyter", "execute", "--inplace", notebook, home=home, timeout=180)
        assert "accuracy on digits never seen in training" in (home / notebook).read_text()

        apps = server.get_json("server-proxy/servers-info")
        tiles = {entry["name"]: entry for entry in apps["server_processes"]}  # type: ignore[index]
        assert tiles["tensorboard"]["launcher_entry"]["title"] == "TensorBoard"
        assert "<title>TensorBoard</title>" in server.get("tensorboard/").text
        runs = server.get_json("tensorboard/data/runs")
        assert sorted(run.rsplit("/", 1)[1] for run in runs) == ["train", "validation"]  # type: ignore[attr-defined]
        assert server.get("server-proxy/icon/tensorboard").text.startswith("<svg")
        assert server.get("tensorboard/", token=None).status in (302, 403)


def test_tensorboard_reads_the_folder_that_the_environment_names(
    root: RootFilesystem, home: Path
) -> None:
    script = "import spectrum_lab.tensorboard as t; print(t.make_server()['command'][1])"
    chosen = {"SPECTRUM_TB_LOGDIR": "~/team/logs"}
    assert root.run("python", "-c", script, home=home) == "--logdir=/home/jovyan/logs\n"
    printed = root.run("python", "-c", script, home=home, environment=chosen)
    assert printed == "--logdir=/home/jovyan/team/logs\n"
