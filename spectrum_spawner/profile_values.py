"""Profiles and images from Helm values (`profiles.<name>`, `images.<name>`) to records.

Everything that can be wrong with them is found here, when they are read, and named by its place;
nothing is left to be found by the first person who starts a server.
"""

import re
from collections.abc import Mapping
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.profiles import KINDS, LAB, Image, Profile

_MEMORY_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_MEMORY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(Ki|Mi|Gi|Ti)\Z")
_MILLI_CPU = re.compile(r"([0-9]+)m\Z")


class ProfileError(ValueError):
    """A profile or image in the values cannot be used; the text says where and why."""


def read_profiles(profiles: Mapping[str, Any], images: Mapping[str, Any]) -> dict[str, Profile]:
    """Profiles by name from the values tables; raises ProfileError naming profile and field."""
    known = {name: _read_image(name, record) for name, record in images.items()}
    found = {name: _read_profile(name, record, known) for name, record in profiles.items()}
    if not found:
        raise ProfileError("profiles: at least one profile is needed")
    defaults = sorted(name for name, profile in found.items() if profile.default)
    if len(defaults) > 1:
        raise ProfileError(f"profiles: only one may be the default, not {' and '.join(defaults)}")
    by_slug: dict[str, str] = {}
    for name in found:
        other = by_slug.setdefault(names.slug(name.lower()), name)
        if other != name:
            raise ProfileError(f"profiles: {other} and {name} have the same slug")
    return found


def _read_image(name: str, record: Mapping[str, Any]) -> Image:
    place = f"images.{name}"
    _refuse_unknown(place, record, {"title", "image", "python", "pullPolicy"})
    reference = record.get("image")
    if not isinstance(reference, str) or not re.match(
        r"[^\s@]+(@sha256:[0-9a-f]{64})?\Z", reference
    ):
        raise ProfileError(f"{place}.image: {reference!r} is no image reference")
    return Image(
        name=name,
        title=str(record.get("title") or name),
        image=reference,
        python=str(record.get("python") or ""),
        pull_policy=str(record.get("pullPolicy") or "IfNotPresent"),
    )


_PROFILE_KEYS = {
    "title", "kind", "description", "gpu", "gpuResource", "gpuProduct", "cpu", "memory",
    "sharedMemory", "images", "nodeSelector", "tolerations", "teams", "default",
}  # fmt: skip


def _read_profile(name: str, record: Mapping[str, Any], images: Mapping[str, Image]) -> Profile:
    place = f"profiles.{name}"
    _refuse_unknown(place, record, _PROFILE_KEYS)
    cpu, memory = record.get("cpu") or {}, record.get("memory") or {}
    _refuse_unknown(f"{place}.cpu", cpu, {"guarantee", "limit"})
    _refuse_unknown(f"{place}.memory", memory, {"guarantee", "limit"})
    profile = Profile(
        name=name,
        title=str(record.get("title") or name),
        kind=_read_kind(f"{place}.kind", record.get("kind", LAB)),
        description=str(record.get("description") or ""),
        gpu=_read_count(f"{place}.gpu", record.get("gpu", 0)),
        gpu_resource=_read_resource(f"{place}.gpuResource", record.get("gpuResource")),
        gpu_product=str(record.get("gpuProduct") or ""),
        cpu_guarantee=_optional(_read_cpu, f"{place}.cpu.guarantee", cpu.get("guarantee")),
        cpu_limit=_optional(_read_cpu, f"{place}.cpu.limit", cpu.get("limit")),
        memory_guarantee=_optional(
            read_memory, f"{place}.memory.guarantee", memory.get("guarantee")
        ),
        memory_limit=_optional(read_memory, f"{place}.memory.limit", memory.get("limit")),
        shared_memory=_optional(read_memory, f"{place}.sharedMemory", record.get("sharedMemory"))
        or 0,
        images=_read_images(f"{place}.images", record.get("images"), images),
        node_selector=dict(record.get("nodeSelector") or {}),
        tolerations=tuple(record.get("tolerations") or ()),
        teams=frozenset(record.get("teams") or ()),
        default=bool(record.get("default", False)),
    )
    _check_sizes(place, profile)
    return profile


def _check_sizes(place: str, profile: Profile) -> None:
    for what, guarantee, limit in (
        ("cpu", profile.cpu_guarantee, profile.cpu_limit),
        ("memory", profile.memory_guarantee, profile.memory_limit),
    ):
        if guarantee is not None and limit is not None and guarantee > limit:
            raise ProfileError(f"{place}.{what}: the guarantee is above the limit")
    if profile.memory_limit is not None and profile.shared_memory >= profile.memory_limit:
        raise ProfileError(
            f"{place}.sharedMemory: must be below memory.limit, since it counts as memory in use"
        )
    if "/mig-" in profile.gpu_resource and profile.gpu > 1:
        raise ProfileError(
            f"{place}.gpu: a container sees one MIG slice only, so the count must be 1"
        )


def _refuse_unknown(place: str, record: object, known: set[str]) -> None:
    if not isinstance(record, Mapping):
        raise ProfileError(f"{place}: must be a table")
    for key in record:
        if key not in known:
            raise ProfileError(f"{place}.{key}: unknown key, known are {', '.join(sorted(known))}")


def _optional(read: Any, place: str, value: object) -> Any:
    return None if value is None or value == "" else read(place, value)


def _read_kind(place: str, value: object) -> str:
    if value not in KINDS:
        raise ProfileError(f"{place}: {value!r} is none of {', '.join(KINDS)}")
    return str(value)


def _read_count(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProfileError(f"{place}: {value!r} is no whole number of GPUs")
    return value


def _read_resource(place: str, value: object) -> str:
    resource = "nvidia.com/gpu" if value is None else value
    if not isinstance(resource, str) or not re.match(
        r"[a-z0-9.-]+/[a-z0-9][a-z0-9._-]*\Z", resource
    ):
        raise ProfileError(f"{place}: {value!r} is no extended resource such as nvidia.com/gpu")
    return resource


def _read_cpu(place: str, value: object) -> float:
    if isinstance(value, str) and (match := _MILLI_CPU.match(value)):
        return int(match[1]) / 1000
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ProfileError(f"{place}: {value!r} is no number of cores such as 2, 0.5 or 500m")
    return float(value)


def read_memory(place: str, value: object) -> int:
    """Bytes of a size such as `2Gi`; `16GB`, `1.5 Gi` and `-1G` are refused by name."""
    match = _MEMORY.match(value) if isinstance(value, str) else None
    if not match:
        raise ProfileError(f"{place}: {value!r} is no size such as 512Mi or 2Gi")
    return int(float(match[1]) * _MEMORY_UNITS[match[2]])


def _read_images(place: str, value: object, known: Mapping[str, Image]) -> tuple[Image, ...]:
    if not isinstance(value, list) or not value:
        raise ProfileError(f"{place}: a profile needs a list of at least one image")
    for name in value:
        if name not in known:
            raise ProfileError(f"{place}: there is no image {name!r} under images")
    return tuple(known[name] for name in value)
