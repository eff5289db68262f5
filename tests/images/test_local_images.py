"""Which change rebuilds which image, and what a killed build may leave; no image is built."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from local.buildah import open_buildah
from local.errors import Refusal
from local.images import DEBIANS, IMAGES, estimate_compressed, list_states, make_keys
from local.paths import CHECKOUT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what goes into the images."""
    for source in {source for image in IMAGES for source in image.sources}:
        target = tmp_path / source
        target.parent.mkdir(parents=True, exist_ok=True)
        if (CHECKOUT / source).is_dir():
            shutil.copytree(CHECKOUT / source, target)
        else:
            shutil.copy2(CHECKOUT / source, target)
    return tmp_path


TENSORFLOW = {"tensorflow-notebook", "tensorflow-notebook-py313"}
NOTEBOOKS = {"base-notebook", "pytorch-notebook", *TENSORFLOW}
BASES = {image.base for image in IMAGES} - set(DEBIANS)


@pytest.mark.parametrize(
    ("path", "rebuilt"),
    [
        ("spectrum_spawner/names.py", {"hub"}),
        ("hub_config/jupyterhub_config.py", {"hub"}),
        ("images/proxy/Dockerfile", {"proxy"}),
        (
            "images/tensorflow/examples/digits.ipynb",
            {"tensorflow", "tensorflow-py313", *TENSORFLOW},
        ),
        ("images/foundation/Dockerfile", {*BASES, *NOTEBOOKS}),
        # ours stands on all that is large, and a change of it builds none of that again
        ("images/spectrum_lab/spectrum_lab/server.py", NOTEBOOKS),
        ("images/notebook/jupyter_server_config.py", NOTEBOOKS),
        ("images/spectrum_lab/lab/src/banner.ts", {"lab", *NOTEBOOKS}),
        ("images/spectrum_lab/lab/node_modules/typescript/package.json", set()),
        ("images/spectrum_lab/lab/build/src/banner.js", set()),
        ("README.md", set()),
        ("spectrum_spawner/__pycache__/names.cpython-311.pyc", set()),
    ],
)
def test_a_change_rebuilds_the_images_that_hold_it(
    checkout: Path, path: str, rebuilt: set[str]
) -> None:
    before = make_keys(checkout)
    changed = checkout / path
    changed.parent.mkdir(parents=True, exist_ok=True)
    with changed.open("a") as file:
        file.write("# changed\n")
    after = make_keys(checkout)
    assert {name for name in before if before[name] != after[name]} == rebuilt


def test_times_and_places_of_a_checkout_change_nothing(checkout: Path) -> None:
    os.utime(checkout / "spectrum_spawner/names.py", (0, 0))
    assert make_keys(checkout) == make_keys(CHECKOUT)


def test_what_an_image_needs_stands_before_it() -> None:
    there = set(DEBIANS)
    for image in IMAGES:
        assert there.issuperset(image.needs.values()), image.name
        there.add(image.name)


def test_no_step_that_others_are_built_on_holds_anything_of_ours() -> None:
    for image in IMAGES:
        if image.name in BASES:
            assert image.copies == (), image.name


def test_earlier_states_of_an_image_are_not_those_of_one_with_a_longer_name(tmp_path: Path) -> None:
    key = "0123456789abcdef"
    for name in ("lab", "lab-py313"):
        (tmp_path / f"{name}-{key}.tar").touch()
        (tmp_path / f"{name}-{key}").mkdir()
    assert list_states(tmp_path, "lab") == [tmp_path / f"lab-{key}"]
    assert list_states(tmp_path, "lab", ".tar") == [tmp_path / f"lab-{key}.tar"]


def test_every_dockerfile_copies_no_more_than_its_key_knows() -> None:
    for image in IMAGES:
        dockerfile = (CHECKOUT / "images" / image.folder / "Dockerfile").read_text()
        words = [line.split() for line in dockerfile.splitlines() if line.startswith("COPY")]
        sources = {
            source
            for line in words
            if not any(word.startswith("--from") for word in line)
            for source in [word for word in line[1:-1] if not word.startswith("--")]
        }
        unknown = {source for source in sources if not source.startswith(image.sources)}
        assert unknown == set(), image.name


def test_sizes_are_estimated_from_a_sample(tmp_path: Path) -> None:
    archive = tmp_path / "image.tar"
    archive.write_bytes(os.urandom(4 << 20) + bytes(4 << 20))
    assert estimate_compressed(archive, every=2) == pytest.approx(4 << 20, rel=0.02)
    archive.write_bytes(b"")
    assert estimate_compressed(archive) == 0


def test_a_failed_command_is_refused_with_its_step_and_its_log(tmp_path: Path) -> None:
    said: list[str] = []
    script = "echo 'STEP 2/3: RUN false'; echo no space left >&2; exit 1"
    with open_buildah(tmp_path, said.append) as buildah, pytest.raises(Refusal) as refusal:
        buildah.run("image hub", ["sh", "-c", script])
    log = tmp_path / "image-hub.log"
    expected = f"image hub failed, in STEP 2/3: RUN false; the log is {log}"
    assert (str(refusal.value), said) == (expected, ["image hub …"])
    assert log.read_text() == "STEP 2/3: RUN false\nno space left\n"


def test_what_a_killed_build_left_is_gone_when_the_next_one_begins(tmp_path: Path) -> None:
    left = tmp_path / "scratch" / "mmdebstrap.abc"
    left.mkdir(parents=True)
    (left / "half").write_text("half")
    with open_buildah(tmp_path, print) as buildah:
        assert list(buildah.scratch.iterdir()) == []
        (buildah.scratch / "image.tar").write_text("half")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_second_build_waits_until_the_first_one_s_last_command_is_gone(tmp_path: Path) -> None:
    script = f"""
import os, pathlib, subprocess
from local.buildah import open_buildah
with open_buildah(pathlib.Path({str(tmp_path)!r}), print) as buildah:
    buildah.run("orphan", ["sh", "-c", "kill -9 $PPID; read line < {tmp_path}/go; echo done"])
"""
    os.mkfifo(tmp_path / "go")
    first = subprocess.run([sys.executable, "-c", script], cwd=CHECKOUT, check=False)
    assert first.returncode == -9
    said: list[str] = []

    def let_the_orphan_end(line: str) -> None:
        said.append(line)
        (tmp_path / "go").write_text("go\n")

    with open_buildah(tmp_path, let_the_orphan_end):
        assert (tmp_path / "orphan.log").read_text() == "done\n"
    assert said == ["waiting for another build of the images to end"]
