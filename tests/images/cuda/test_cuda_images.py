"""Images for GPUs, as far as a machine without one can tell: they are built, and all loads.

Some gigabytes are fetched for each.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from local.buildah import Buildah, open_buildah
from local.images import REPOSITORY, ensure_stored
from local.paths import CHECKOUT, find_cache

# Loads every library of the CUDA wheels as a server would find it, and prints what TensorFlow or
# PyTorch says of itself. Those of the driver and of RDMA are the node's.
LOAD = """
import ctypes, json, os, pathlib, sys
NODES = ("libcuda.so", "libnvidia-ml.so", "libibverbs.so", "libmlx5.so", "librdmacm.so")
listing = pathlib.Path("/opt/spectrum/share/spectrum/library-path")
if listing.exists() and "LD_LIBRARY_PATH" not in os.environ:
    os.environ["LD_LIBRARY_PATH"] = ":".join(listing.read_text().split())
    os.execv(sys.executable, sys.orig_argv)
found, missing = 0, {}
for path in pathlib.Path(sys.prefix).glob("lib/python3.*/site-packages/nvidia/**/lib*.so*"):
    try:
        ctypes.CDLL(str(path))
        found += 1
    except OSError as error:
        if not any(name in str(error) for name in NODES):
            missing[path.name] = str(error)
"""
SAY_TENSORFLOW = """
import tensorflow as tf
print(json.dumps([found, missing, tf.test.is_built_with_cuda(), float(tf.reduce_sum([1.0, 2.0]))]))
"""
SAY_PYTORCH = """
import torch
cuda = torch.version.cuda is not None
print(json.dumps([found, missing, cuda, float(torch.tensor([1.0, 2.0]).sum())]))
"""


@dataclass(frozen=True)
class Variant:
    folder: str
    base: str
    say: str
    arguments: dict[str, str] = field(default_factory=dict)


VARIANTS = {
    "tensorflow": Variant(
        "tensorflow",
        "foundation",
        SAY_TENSORFLOW,
        {"TENSORFLOW": "tensorflow[and-cuda]==2.21.*"},
    ),
    "pytorch": Variant("pytorch", "foundation-py313", SAY_PYTORCH, {"PYTORCH": "torch==2.*"}),
}


@pytest.fixture
def buildah() -> Iterator[Buildah]:
    with open_buildah(find_cache() / "images", print) as buildah:
        yield buildah


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", VARIANTS)
def test_an_image_for_gpus_is_built_by_an_argument(
    buildah: Buildah, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    variant = VARIANTS[name]
    stored = f"{REPOSITORY}/{name}-cuda:trial"
    needs = {"BASE_IMAGE": ensure_stored(variant.base, buildah), **variant.arguments}
    dockerfile = CHECKOUT / "images" / variant.folder / "Dockerfile"
    buildah.build(f"image {name} for GPUs", dockerfile, CHECKOUT, needs=needs, stored=stored)
    try:
        said = buildah.run_inside(stored, "python", "-c", LOAD + variant.say)
    finally:
        buildah.forget(stored)
    found, missing, has_cuda, three = json.loads(said.splitlines()[-1])
    with capsys.disabled():
        print(f"{name}: {found} libraries of CUDA load")  # noqa: T201 - for people to read
    assert (missing, has_cuda, three) == ({}, True, 3.0)
    assert found > 10
