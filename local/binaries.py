"""Programs written in Go, built once for each pinned version and kept in the cache.

A set lies in `<cache>/bin/<name>-<key>/`; the key is a hash of the pin and of our own Go sources.
A set is built beside its place and renamed into it, so a killed build leaves nothing half done.
"""

import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from local.errors import Refusal
from local.packages import find_program, unpack_package
from local.paths import CHECKOUT, find_cache
from local.progress import Progress
from local.toolchain import check_go
from local.versions import GoTool, find_go_tool, load_versions

GO_SOURCES = CHECKOUT / "local" / "go"
GO_TOOLS = ("containerd", "helm", "coredns", "kube-router", "local-path-provisioner")


def ensure_kube(progress: Progress | None = None) -> Path:
    """Return the multi-call Kubernetes binary; build it if its pins or sources changed."""
    return _ensure_own("kube", _make_kube_flags(), progress) / "kube"


def ensure_pause(progress: Progress | None = None) -> Path:
    """Return the program that holds a pod's namespaces open."""
    return _ensure_own("pause", "-s -w", progress) / "pause"


def ensure_volume_helper(progress: Progress | None = None) -> Path:
    """Return the program that makes and removes the directories of volumes."""
    return _ensure_own("volume-helper", "-s -w", progress) / "volume-helper"


def ensure_csi(progress: Progress | None = None) -> Path:
    """Return the directory with csi, csi-provisioner and csi-resizer.

    One module holds the three, so that what they share is compiled once.
    """
    return _ensure_own("csi", "-s -w", progress, packages=(".", "tool"))


def ensure_gpu_metrics(progress: Progress | None = None) -> Path:
    """Return the program that tells Prometheus of the fake GPUs."""
    return _ensure_own("gpu-metrics", "-s -w", progress) / "gpu-metrics"


def ensure_prometheus(progress: Progress | None = None) -> Path:
    """Return the machine's own Prometheus, or else Debian's; promtool lies beside it.

    Debian's is unpacked into the cache: installed, the package would start a server of its own.
    """
    if installed := find_program("prometheus"):
        return installed
    key = hashlib.sha256(f"{platform.machine()} prometheus of Debian".encode()).hexdigest()[:16]

    def unpack(target: Path) -> None:
        unpack_package("prometheus", target / "package")
        for name in ("prometheus", "promtool"):
            (target / "package" / "usr" / "bin" / name).rename(target / name)
        shutil.rmtree(target / "package")

    place = _ensure_built("prometheus", key, unpack, progress, verb="fetching", awaited="apt-get")
    return place / "prometheus"


def ensure_go_tool(name: str, progress: Progress | None = None) -> Path:
    """Return the directory with the commands of one upstream module of versions.toml."""
    tool = find_go_tool(name)

    def build(target: Path) -> None:
        module = target / "src"
        module.mkdir()
        go = ("go", "mod", "init", f"spectrum.local/{tool.name}")
        _run_go(go, module)
        _run_go(("go", "get", *(f"{path}@{tool.version}" for path in tool.import_paths)), module)
        flags = ["-mod=mod", *_make_build_flags("-s -w", tool.tags)]
        _run_go(("go", "build", *flags, "-o", f"{target}/", *tool.import_paths), module)
        shutil.rmtree(module)

    return _ensure_built(tool.name, _make_tool_key(tool), build, progress)


def _ensure_own(
    name: str, linker_flags: str, progress: Progress | None, *, packages: Sequence[str] = (".",)
) -> Path:
    sources = GO_SOURCES / name
    digest = hashlib.sha256(f"{platform.machine()} {linker_flags}".encode())
    for path in sorted(sources.iterdir()):
        if path.name.endswith("_test.go"):
            continue
        digest.update(path.name.encode() + b"\0" + path.read_bytes())

    def build(target: Path) -> None:
        flags = _make_build_flags(linker_flags, ())
        _run_go(("go", "build", *flags, "-o", f"{target}/", *packages), sources)

    return _ensure_built(name, digest.hexdigest()[:16], build, progress)


def _ensure_built(
    name: str,
    key: str,
    build: Callable[[Path], None],
    progress: Progress | None,
    *,
    verb: str = "building",
    awaited: str = "go build",
) -> Path:
    home = find_cache() / "bin"
    place = home / f"{name}-{key}"
    if place.is_dir():
        return place
    check_go()
    home.mkdir(parents=True, exist_ok=True)
    target = home / f".{name}-{key}-{os.getpid()}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    try:
        with (progress or Progress()).step(f"{verb} {name}") as step:
            step.awaited = awaited
            build(target)
        target.rename(place)
    finally:
        shutil.rmtree(target, ignore_errors=True)
    _remove_older(home, name, place)
    return place


def _remove_older(home: Path, name: str, place: Path) -> None:
    """Keep the two newest builds of a name: those of this checkout and of the one before."""
    builds = sorted(home.glob(f"{name}-{'[0-9a-f]' * 16}"), key=lambda path: path.stat().st_mtime)
    for path in builds[:-2]:
        if path != place:
            shutil.rmtree(path, ignore_errors=True)


def _make_tool_key(tool: GoTool) -> str:
    pin = [platform.machine(), tool.version, *tool.import_paths, *tool.tags]
    return hashlib.sha256(" ".join(pin).encode()).hexdigest()[:16]


def _make_kube_flags() -> str:
    version = load_versions()["kube"]["kubernetes"]
    major, minor, _ = version.removeprefix("v").split(".")
    # Without the stamp kube-apiserver reports v0.0.0 and clients refuse it.
    stamps = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(
        f"-X k8s.io/component-base/version.{field}={value}" for field, value in stamps.items()
    )


def _make_build_flags(linker_flags: str, tags: Sequence[str]) -> list[str]:
    return ["-trimpath", f"-ldflags={linker_flags}", f"-tags={','.join(tags)}"]


def _run_go(command: Sequence[str], directory: Path) -> None:
    result = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOWORK": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        reason = "; ".join(result.stderr.strip().splitlines()[-3:]) or "no message"
        raise Refusal(f"{' '.join(command[:2])} failed in {directory}: {reason}")
