"""`local/up`: from nothing to a Spectrum that a browser can open."""

import json
import shutil
import tempfile
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.binaries import ensure_go_tool, ensure_kube
from local.ceph_objects import apply_gateway_secret
from local.cluster import Cluster, ensure_binaries
from local.commands import run
from local.errors import Refusal
from local.images import REPOSITORY, build_all
from local.kubectl import Kubectl
from local.owner import check_owner
from local.packages import ensure_packages
from local.paths import CHECKOUT, find_cache, find_state
from local.preflight import (
    CEPH_FREE_BYTES,
    CEPH_PORTS,
    FREE_BYTES,
    NODE_PORT,
    PORTS,
    check_devices,
    check_machine,
    check_no_ceph,
    check_ports,
    check_space,
    has_ceph,
)
from local.processes import Daemons
from local.progress import Progress
from local.release import Release, make_image_values
from local.toolchain import check_go

DEMO_VALUES = CHECKOUT / "local" / "values.yaml"
NO_CEPH_VALUES = CHECKOUT / "local" / "values-no-ceph.yaml"
ADDRESS = f"http://127.0.0.1:{NODE_PORT}/"


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that somebody else runs; images come from `registry` when it is given."""

    kubeconfig: Path
    context: str | None
    registry: str | None


def start_cluster(
    progress: Progress, *, gpu_taint: bool | None = None, with_ceph: bool = True
) -> Cluster:
    """Start the one-node cluster, or what of it does not run; None leaves the taint as it is.

    A cluster that was started without Ceph gets it. The other way is a Refusal: homes may be on it.
    """
    state, cache = find_state(), find_cache()
    check_machine()
    check_owner(state)
    check_go()
    if not with_ceph:
        check_no_ceph(state)
    # Most of it is filled by the first start.
    started_before = (state / "kubeconfig").exists()
    needed = FREE_BYTES // 5 if started_before else FREE_BYTES
    needed += CEPH_FREE_BYTES if with_ceph and not has_ceph(state) else 0
    check_space(cache, state, needed=needed)
    check_ports(Daemons(state), PORTS | (CEPH_PORTS if with_ceph else {}))
    ensure_packages("debian", progress)
    if with_ceph:
        check_devices()
        ensure_packages("debian-ceph", progress)
    cluster = Cluster(state, ensure_binaries(progress, with_ceph=with_ceph))
    cluster.start(progress, gpu_taint=gpu_taint)
    return cluster


def load_images(cluster: Cluster, progress: Progress) -> Path:
    """Build and load Spectrum's images; return the file of chart values that name them."""
    references = {}
    for reference, archive in build_all(find_cache(), progress.say).items():
        name, tag = _split_archive(archive)
        references[name] = f"{REPOSITORY}/{name}:{tag}"
        if cluster.containerd.is_loaded(archive, reference):
            continue
        with progress.step(f"loading image {name}") as step:
            step.awaited = f"ctr to import {archive.stat().st_size / 1e6:.0f} MB"
            cluster.containerd.import_archive(archive, reference, references[name])
    return _write_image_values(cluster.state / "image-values.json", references)


def install_demo(
    cluster: Cluster, values: Sequence[Path], images: Path, progress: Progress
) -> None:
    """Install the chart with the demo's teams and accounts and wait until a browser can come."""
    release = make_release(cluster)
    release.forget_killed_helm()
    prepare_release(cluster, release)
    release.install([*find_demo_values(cluster), images, *values], progress)
    release.wait_until_ready(progress)
    wait_for_answer(ADDRESS, progress)
    remove_old_images(cluster, images)
    _say_how_to_enter(release, ADDRESS, progress)


def find_demo_values(cluster: Cluster) -> list[Path]:
    """Return the files of the demo's values that fit the cluster."""
    return [DEMO_VALUES] if cluster.ceph else [DEMO_VALUES, NO_CEPH_VALUES]


def prepare_release(cluster: Cluster, release: Release) -> None:
    """Give a release what an administrator of Ceph would: the keys for its buckets."""
    if cluster.ceph:
        apply_gateway_secret(cluster.plane.api, cluster.ceph, release.namespace)


def remove_old_images(cluster: Cluster, current: Path) -> None:
    """Remove builds of our images that no pod, no release and not the file of values names."""
    api = cluster.plane.api
    pods = api.get("/api/v1/pods")
    hubs = api.get("/api/v1/configmaps?fieldSelector=metadata.name%3Dhub")
    named = current.read_text() + json.dumps([pods, hubs])
    old = [
        name
        for name in cluster.containerd.list_images()
        if name.startswith(f"{REPOSITORY}/")
        and not name.endswith(":dev")
        and name.rpartition(":")[2] not in named
    ]
    cluster.containerd.remove_images(old)


def make_release(cluster: Cluster, namespace: str = "spectrum") -> Release:
    program = (str(cluster.binaries.kube), "kubectl")
    kubectl = Kubectl(program, cluster.plane.kubeconfig)
    return Release(cluster.binaries.helm, kubectl, namespace)


def wait_for_answer(address: str, progress: Progress) -> None:
    """Wait for the hub: a way to pods that are ready takes the node a moment to learn."""
    with progress.step(f"asking {address}") as step:
        step.wait_for("the hub's answer", lambda: answers_health(address), timeout=60)


def answers_health(address: str = ADDRESS) -> bool:
    """Tell whether the hub answers at the address."""
    try:
        with urllib.request.urlopen(f"{address}hub/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def install_on(existing: ExistingCluster, values: Sequence[Path], progress: Progress) -> None:
    """Install the chart on a cluster that exists; its images must be where that can pull them."""
    helm = shutil.which("helm") or ensure_go_tool("helm", progress) / "helm"
    kubectl = shutil.which("kubectl")
    program = (kubectl,) if kubectl else (str(ensure_kube(progress)), "kubectl")
    release = Release(Path(helm), Kubectl(program, existing.kubeconfig, existing.context))
    release.kubectl("version")
    with tempfile.TemporaryDirectory(prefix="spectrum-") as directory:
        images = []
        if existing.registry:
            images = [_push_images(existing.registry, Path(directory), progress)]
        release.install([*images, *values], progress)
    release.wait_until_ready(progress)
    progress.say(release.read_notes().strip())


def _push_images(registry: str, directory: Path, progress: Progress) -> Path:
    check_machine()
    ensure_packages("debian", progress)
    buildah = ["buildah", "--root", str(directory / "root"), "--runroot", str(directory / "run")]
    # An address with http:// is of a registry without TLS.
    plain = ["--tls-verify=false"] if registry.startswith("http://") else []
    registry = registry.removeprefix("http://").removeprefix("https://").rstrip("/")
    references = {}
    for archive in build_all(find_cache(), progress.say).values():
        name, tag = _split_archive(archive)
        references[name] = f"{registry}/{name}:{tag}"
        with progress.step(f"pushing {references[name]}") as step:
            step.awaited = f"buildah to send {archive.stat().st_size / 1e6:.0f} MB"
            image = run([*buildah, "pull", "-q", f"docker-archive:{archive}"]).split()[-1]
            run([*buildah, "push", "-q", *plain, image, f"docker://{references[name]}"])
            run([*buildah, "rmi", "--force", image])
    return _write_image_values(directory / "image-values.json", references)


def _split_archive(archive: Path) -> tuple[str, str]:
    """Return the image's name and the hash of its build from an archive's file name."""
    name, _, tag = archive.stem.rpartition("-")
    if not name:
        raise Refusal(f"{archive} is not called <image>-<hash>.tar")
    return name, tag


def _write_image_values(path: Path, references: dict[str, str]) -> Path:
    text = json.dumps(make_image_values(references), indent=2, sort_keys=True)
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def _say_how_to_enter(release: Release, address: str, progress: Progress) -> None:
    auth = release.read_values()["auth"]
    progress.say(f"Spectrum is up: {address}")
    if auth["method"] == "shared-password":
        for line in list_accounts(auth, release.read_secret()):
            progress.say(f"  {line}")
    progress.say(f"  teams, requests and audit: {address}services/spectrum/")
    progress.say(
        f"  kubectl: {' '.join([*release.kubectl.program, *release.kubectl.make_options()])}"
    )


def list_accounts(auth: Mapping[str, Any], secret: Mapping[str, str]) -> list[str]:
    """Return lines that say who may sign in with which of the two passwords."""
    people: dict[str, list[str]] = {name: [] for name in auth["users"]}
    for group, members in auth["groups"].items():
        for name in members:
            people.setdefault(name, []).append(group)
    accounts = "; ".join(
        f"{name} ({', '.join(groups) or 'no team'})" for name, groups in sorted(people.items())
    )
    return [
        f"people: {accounts}",
        f"their password: {secret['userPassword']}",
        f"administrators: {', '.join(auth['admins'])}",
        f"their password: {secret['adminPassword']}",
    ]
