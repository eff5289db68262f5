"""The built images, each unpacked once, with a home and a hub for what runs in them."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from local.images import REPOSITORY, build_all
from local.paths import CHECKOUT, find_cache
from tests.images.hub import Hub, running_hub
from tests.images.rootfs import RootFilesystem, unpack

sys.path.insert(0, str(CHECKOUT / "images" / "spectrum_lab"))


@pytest.fixture(scope="session")
def archives() -> dict[str, Path]:
    """The archive of each image by its short name; what has changed is built first."""
    built = build_all(find_cache(), print)
    return {name.removeprefix(f"{REPOSITORY}/").removesuffix(":dev"): built[name] for name in built}


@pytest.fixture(scope="session")
def unpacked(archives: dict[str, Path]) -> Iterator[Callable[[str], RootFilesystem]]:
    """Return a function that unpacks an image by its short name, at most once."""
    found: dict[str, RootFilesystem] = {}
    folder = Path(tempfile.mkdtemp(prefix="spectrum-images-", dir="/var/tmp"))

    def unpack_once(name: str) -> RootFilesystem:
        if name not in found:
            found[name] = unpack(archives[name], folder / name)
        return found[name]

    yield unpack_once
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def home() -> Iterator[Path]:
    """A new home volume: owned by somebody else, writable by everybody."""
    path = Path(tempfile.mkdtemp(prefix="spectrum-home-", dir="/var/tmp"))
    path.chmod(0o777)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as server:
        yield server
