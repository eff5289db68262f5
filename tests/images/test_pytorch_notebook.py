"""PyTorch in the image as a pod would run it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.images.hub import Hub
from tests.images.inside import run_cell
from tests.images.rootfs import RootFilesystem
from tests.images.server import running_server

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

TRAINING = """
import sys
import torch
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(1)
model = torch.nn.Linear(2, 1)
descent = torch.optim.SGD(model.parameters(), lr=0.1)
points = torch.rand(64, 2)
wanted = points.sum(dim=1, keepdim=True)
with SummaryWriter("logs/fit") as writer:
    for step in range(300):
        loss = torch.nn.functional.mse_loss(model(points), wanted)
        descent.zero_grad()
        loss.backward()
        descent.step()
        writer.add_scalar("loss", loss.item(), step)
print(sys.version_info[:2], torch.__version__.rsplit(".", 1)[0], loss.item() < 0.01)
"""


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("pytorch-notebook")


def test_pytorch_trains_in_a_notebook_and_tensorboard_shows_its_curve(
    root: RootFilesystem, home: Path, hub: Hub
) -> None:
    with running_server(root, home=home, hub_port=hub.server_port) as server:
        maps = Path(f"/proc/{server.find_pid()}/maps").read_text()
        assert "libtorch" not in maps, "the server itself has loaded PyTorch"
        printed = run_cell(server, TRAINING)
        assert printed.splitlines()[-1] == "(3, 13) 2.6 True"
        assert server.get_json("tensorboard/data/runs") == ["fit"]


def test_packages_fit_each_other_but_for_what_debian_itself_joined(
    root: RootFilesystem, home: Path
) -> None:
    printed = root.run("sh", "-c", "pip check || true", home=home)
    assert [line for line in printed.splitlines() if "+debian has requirement" not in line] == []


def test_what_a_person_installs_wins_over_what_debian_has(root: RootFilesystem, home: Path) -> None:
    script = "import sys; print(*sys.path, sep='\\n')"
    places = root.run("python", "-c", script, home=home).splitlines()
    own, debian = (
        next(number for number, place in enumerate(places) if place.startswith(start))
        for start in ("/opt/spectrum/lib", "/usr/lib/python3/dist-packages")
    )
    assert own < debian
