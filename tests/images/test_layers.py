"""What images have in common, as nodes keep it and registries send it: layers by their digests."""

import json
import tarfile
from pathlib import Path

import pytest

# The first test of a session builds what has changed.
pytestmark = pytest.mark.timeout(1500)

OURS = 2e6  # bytes at most that a change of our code sends anew


def read_layers(archive: Path) -> dict[str, int]:
    """The bytes of each layer by its name, the lowest first."""
    with tarfile.open(archive) as tar:
        file = tar.extractfile("manifest.json")
        assert file is not None
        names = json.load(file)[0]["Layers"]
        return {name: tar.getmember(name).size for name in names}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("base-notebook", "tensorflow-notebook"),
        ("tensorflow-notebook-py313", "pytorch-notebook"),
    ],
)
def test_images_on_one_debian_have_all_but_the_library_and_ours_in_common(
    archives: dict[str, Path], one: str, other: str
) -> None:
    first, second = read_layers(archives[one]), read_layers(archives[other])
    common = [name for name in first if name in second]
    assert list(first)[: len(common)] == common
    assert sum(first[name] for name in common) > 500e6


@pytest.mark.parametrize(
    "name",
    ["base-notebook", "tensorflow-notebook", "tensorflow-notebook-py313", "pytorch-notebook"],
)
def test_ours_comes_last_and_is_small(archives: dict[str, Path], name: str) -> None:
    sizes = list(read_layers(archives[name]).values())
    last_large = max(number for number, size in enumerate(sizes) if size > OURS)
    assert 0 < sum(sizes[last_large + 1 :]) < OURS


def test_without_a_library_an_image_is_ours_on_what_all_have(archives: dict[str, Path]) -> None:
    plain, other = (read_layers(archives[f"{name}-notebook"]) for name in ("base", "tensorflow"))
    assert sum(size for name, size in plain.items() if name not in other) < OURS
