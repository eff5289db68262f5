"""The built images, each unpacked once, with a home and a hub for what runs in them."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, sync_playwright

from local.images import REPOSITORY, build_all, list_states
from local.lock import hold_lock
from local.paths import CHECKOUT, find_cache
from local.progress import Progress
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.images.hub import TOKEN, Hub, running_hub
from tests.images.rootfs import RootFilesystem, unpack

READER = {"timezone_id": "Asia/Tokyo", "locale": "en-GB"}

sys.path.insert(0, str(CHECKOUT / "images" / "spectrum_lab"))


@pytest.fixture(scope="session")
def archives() -> dict[str, Path]:
    """The archive of each image by its short name; what has changed is built first."""
    built = build_all(find_cache(), print)
    return {name.removeprefix(f"{REPOSITORY}/").removesuffix(":dev"): built[name] for name in built}


@pytest.fixture(scope="session")
def unpacked(archives: dict[str, Path]) -> Callable[[str], RootFilesystem]:
    """Return a function that unpacks an image by its short name, unless an earlier run has."""

    def unpack_once(name: str) -> RootFilesystem:
        archive = archives[name]
        folder = archive.parent / "unpacked"
        with hold_lock(folder / "lock", Progress()):
            for older in list_states(folder, name):
                if older.name != archive.stem:
                    subprocess.run(["rm", "-rf", str(older)], check=True)
            return unpack(archive, folder / archive.stem)

    return unpack_once


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


@pytest.fixture
def page() -> Iterator[Page]:
    """A browser of alice, in Tokyo."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        headers = {"Authorization": f"token {TOKEN}"}
        page = browser.new_context(extra_http_headers=headers, **READER).new_page()
        page.set_default_timeout(60_000)
        yield page
        browser.close()
