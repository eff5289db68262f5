"""The image of hub, team controller and service."""

from collections.abc import Callable
from pathlib import Path

import pytest

from local.paths import CHECKOUT
from tests.images.rootfs import RootFilesystem

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="session")
def root(unpacked: Callable[[str], RootFilesystem]) -> RootFilesystem:
    return unpacked("hub")


def test_the_image_runs_jupyterhub_under_tini_as_user_1000(root: RootFilesystem) -> None:
    config = {key: root.config[key] for key in ("User", "Entrypoint", "Cmd", "WorkingDir")}
    assert config == {
        "User": "1000:1000",
        "Entrypoint": ["tini", "-g", "--"],
        "Cmd": ["jupyterhub", "-f", "/usr/local/etc/jupyterhub/jupyterhub_config.py"],
        "WorkingDir": "/srv/jupyterhub",
    }


def test_the_hub_may_write_its_working_directory_and_not_its_code(
    root: RootFilesystem, home: Path
) -> None:
    root.run("touch", "/srv/jupyterhub/probe", home=home)
    printed = root.run("sh", "-c", "touch /opt/spectrum/probe || echo refused", home=home)
    assert printed.splitlines()[-1] == "refused"


def test_jupyterhub_is_whole(root: RootFilesystem, home: Path) -> None:
    assert root.run("jupyterhub", "--version", home=home).strip().startswith("6.1.")
    assert root.run("pip", "check", home=home) == "No broken requirements found.\n"
    assert (root.path / "opt/spectrum/share/jupyterhub/static/css/style.min.css").exists()


@pytest.mark.parametrize(
    "module", ["spawner", "providers", "controller.__main__", "service.__main__"]
)
def test_what_runs_from_the_image_can_be_imported(
    root: RootFilesystem, home: Path, module: str
) -> None:
    root.run("python", "-c", f"import spectrum_spawner.{module}", home=home)


def test_the_service_finds_its_pages(root: RootFilesystem, home: Path) -> None:
    script = (
        "import jinja2; "
        "pages = jinja2.PackageLoader('spectrum_spawner.service').list_templates(); "
        "print(*pages, sep='\\n')"
    )
    templates = CHECKOUT / "spectrum_spawner" / "service" / "templates"
    found = root.run("python", "-c", script, home=home).split()
    assert found == sorted(path.name for path in templates.iterdir())


def test_the_image_holds_this_checkout_s_code(root: RootFilesystem) -> None:
    installed = root.packages / "spectrum_spawner"
    config = root.path / "usr/local/etc/jupyterhub"
    assert list_sources(installed) == list_sources(CHECKOUT / "spectrum_spawner")
    assert list_sources(config) == list_sources(CHECKOUT / "hub_config")


def list_sources(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
