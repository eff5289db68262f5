"""Profiles and images as values give them: read whole, or refused by their place."""

from typing import Any

import pytest

from spectrum_spawner.profile_values import ProfileError, read_profiles
from spectrum_spawner.profiles import Image, Profile

IMAGES: dict[str, Any] = {
    "tensorflow": {"title": "TensorFlow 2.21", "image": "registry.example/tf:1", "python": "3.11"},
    "base": {"image": "registry.example/base:1", "pullPolicy": "Always"},
}
PROFILES: dict[str, Any] = {
    "cpu-small": {
        "title": "Small",
        "cpu": {"guarantee": "500m", "limit": 2},
        "memory": {"guarantee": "1Gi", "limit": "2Gi"},
        "sharedMemory": "256Mi",
        "images": ["tensorflow", "base"],
        "default": True,
    },
    "gpu-1": {"gpu": 1, "gpuProduct": "NVIDIA-A100", "images": ["tensorflow"]},
    "ops-only": {"kind": "tensorboard", "images": ["base"], "teams": ["ops"]},
}


def test_a_profile_is_read_whole_with_sizes_as_numbers() -> None:
    tensorflow = Image(
        name="tensorflow", title="TensorFlow 2.21", image="registry.example/tf:1", python="3.11"
    )
    base = Image(name="base", title="base", image="registry.example/base:1", pull_policy="Always")
    assert read_profiles(PROFILES, IMAGES) == {
        "cpu-small": Profile(
            name="cpu-small",
            title="Small",
            cpu_guarantee=0.5,
            cpu_limit=2.0,
            memory_guarantee=2**30,
            memory_limit=2 * 2**30,
            shared_memory=256 * 2**20,
            images=(tensorflow, base),
            default=True,
        ),
        "gpu-1": Profile(
            name="gpu-1", title="gpu-1", gpu=1, gpu_product="NVIDIA-A100", images=(tensorflow,)
        ),
        "ops-only": Profile(
            name="ops-only",
            title="ops-only",
            kind="tensorboard",
            images=(base,),
            teams=frozenset({"ops"}),
        ),
    }


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu": "1.5"}, "profiles.p.gpu: '1.5' is no whole number of GPUs"),
        ({"kind": "notebook"}, "profiles.p.kind: 'notebook' is none of lab, tensorboard"),
        ({"gpu": -1}, "profiles.p.gpu: -1 is no whole number of GPUs"),
        ({"gpu": True}, "profiles.p.gpu: True is no whole number of GPUs"),
        ({"cpu": {"guarantee": 2, "limit": 1}}, "profiles.p.cpu: the guarantee is above the limit"),
        ({"memory": {"limit": "16GB"}}, "profiles.p.memory.limit: '16GB' is no size"),
        ({"memory": {"limit": "-1Gi"}}, "profiles.p.memory.limit: '-1Gi' is no size"),
        ({"memory": {"limit": "1.5 Gi"}}, "profiles.p.memory.limit: '1.5 Gi' is no size"),
        ({"sharedMemory": "2Gi", "memory": {"limit": "1Gi"}}, "profiles.p.sharedMemory: must be"),
        ({"nodeSelectr": {}}, "profiles.p.nodeSelectr: unknown key"),
        ({"images": []}, "profiles.p.images: a profile needs a list of at least one image"),
        ({"images": ["nope"]}, "profiles.p.images: there is no image 'nope' under images"),
        ({"gpu": 2, "gpuResource": "nvidia.com/mig-1g.5gb"}, "profiles.p.gpu: a container sees"),
        ({"gpuResource": "gpu"}, "profiles.p.gpuResource: 'gpu' is no extended resource"),
    ],
)
def test_a_profile_that_cannot_be_used_is_named_by_its_place(
    change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ProfileError) as found:
        read_profiles({"p": {"images": ["base"], **change}}, IMAGES)
    assert str(found.value).startswith(sentence)


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ([], "profiles: at least one profile is needed"),
        (["Gpu", "gpu"], "profiles: Gpu and gpu have the same slug"),
    ],
)
def test_profiles_that_do_not_go_together_are_refused(names: list[str], sentence: str) -> None:
    with pytest.raises(ProfileError, match=sentence):
        read_profiles({name: {"images": ["base"]} for name in names}, IMAGES)


@pytest.mark.parametrize(
    "reference",
    [
        *("", " ", "a b", "registry.example/x@evil.example/y", "registry.example/x\n"),
        "registry.example/x@sha256:0",
    ],
)
def test_an_image_that_is_no_reference_is_refused(reference: str) -> None:
    with pytest.raises(ProfileError, match=r"images\.i\.image"):
        read_profiles({"p": {"images": ["i"]}}, {"i": {"image": reference}})
