"""The one-node cluster as a whole: start it, or go on where a killed start stopped; stop it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from local.addons import (
    COREDNS_IMAGE,
    VOLUME_HELPER_IMAGE,
    answers_dns,
    apply_addons,
    start_provisioner,
)
from local.archive import write_binary_archive
from local.binaries import (
    ensure_csi,
    ensure_go_tool,
    ensure_gpu_metrics,
    ensure_kube,
    ensure_pause,
    ensure_prometheus,
    ensure_volume_helper,
)
from local.ceph import Ceph
from local.ceph_objects import apply_ceph_objects
from local.cgroups import prepare_cgroups
from local.containerd import PAUSE_IMAGE, Containerd
from local.control_plane import ControlPlane
from local.csi import start_csi
from local.dataset import ensure_dataset
from local.network import NODE_ADDRESS, prepare_network
from local.node import NODE, Node
from local.owner import become_owner
from local.paths import RUNTIME
from local.processes import Daemons
from local.progress import Progress, Step
from local.prometheus import answers_prometheus, apply_metrics_objects, start_metrics


@dataclass(frozen=True)
class Binaries:
    """Where the built programs lie; `csi` is None for a cluster without Ceph."""

    kube: Path
    containerd: Path
    helm: Path
    coredns: Path
    kube_router: Path
    local_path_provisioner: Path
    pause: Path
    volume_helper: Path
    gpu_metrics: Path
    prometheus: Path
    csi: Path | None


def ensure_binaries(progress: Progress, *, with_ceph: bool = True) -> Binaries:
    """Build what is not in the cache, one after the other: linking takes all memory and cores."""
    return Binaries(
        kube=ensure_kube(progress),
        containerd=ensure_go_tool("containerd", progress),
        helm=ensure_go_tool("helm", progress) / "helm",
        coredns=ensure_go_tool("coredns", progress) / "coredns",
        kube_router=ensure_go_tool("kube-router", progress) / "kube-router",
        local_path_provisioner=ensure_go_tool("local-path-provisioner", progress)
        / "local-path-provisioner",
        pause=ensure_pause(progress),
        volume_helper=ensure_volume_helper(progress),
        gpu_metrics=ensure_gpu_metrics(progress),
        prometheus=ensure_prometheus(progress),
        csi=ensure_csi(progress) if with_ceph else None,
    )


class Cluster:
    """The cluster of one state directory; `ceph` is None for one without."""

    def __init__(self, state: Path, binaries: Binaries) -> None:
        self.state = state
        self.binaries = binaries
        self.daemons = Daemons(state)
        self.plane = ControlPlane(state, binaries.kube, address=NODE_ADDRESS, daemons=self.daemons)
        self.containerd = Containerd(state, RUNTIME, binaries.containerd, self.daemons)
        self.node = Node(
            state, binaries.kube, binaries.kube_router, self.plane, self.containerd, self.daemons
        )
        self.ceph = make_ceph(state, self.daemons) if binaries.csi else None

    def start(self, progress: Progress, *, gpu_taint: bool | None = None) -> None:
        """Start what does not run, and return once pods can be scheduled and find names.

        `gpu_taint` None leaves the node's taint as it is.
        """
        self.state.mkdir(parents=True, exist_ok=True, mode=0o755)
        become_owner(self.state)
        prepare_cgroups()
        prepare_network(self.state)
        # Ceph needs none of the others: it starts while they do.
        with ThreadPoolExecutor(1) as background:
            ceph = background.submit(self._start_ceph, progress)
            self._start_kubernetes(progress, gpu_taint)
            ceph.result()
        with progress.step("starting DNS, storage and metrics") as step:
            apply_addons(self.plane.api)
            start_provisioner(
                self.state,
                self.binaries.local_path_provisioner,
                self.plane.kubeconfig,
                self.daemons,
            )
            self._start_csi()
            self._start_metrics()
            step.wait_for("the answer of the cluster's DNS", answers_dns, timeout=120)
            self._wait_for_metrics(step)

    def _start_ceph(self, progress: Progress) -> None:
        if self.ceph is None:
            return
        with progress.step("starting Ceph") as step:
            self.ceph.start(step)
            step.awaited = "the demo's dataset"
            ensure_dataset(self.ceph, RUNTIME / "dataset")

    def _start_csi(self) -> None:
        if self.ceph is None or self.binaries.csi is None:
            return
        apply_ceph_objects(self.plane.api, self.ceph)
        start_csi(
            self.state,
            self.binaries.csi,
            self.ceph,
            self.plane.kubeconfig,
            self.node.kubelet_root,
            self.daemons,
        )

    def _start_metrics(self) -> None:
        apply_metrics_objects(self.plane.api)
        start_metrics(
            self.state,
            self.binaries.gpu_metrics,
            self.binaries.prometheus,
            authority=self.plane.authority,
            server=self.plane.server,
            kubelet_root=self.node.kubelet_root,
            daemons=self.daemons,
        )

    def _wait_for_metrics(self, step: Step) -> None:
        step.wait_for(
            "the answer of Prometheus",
            answers_prometheus,
            timeout=60,
            hint=lambda: self.daemons.read_last_line("prometheus"),
        )

    def _start_kubernetes(self, progress: Progress, gpu_taint: bool | None) -> None:
        self.plane.prepare()
        self.node.prepare()
        with progress.step("starting the control plane and containerd") as step:
            self.plane.start_etcd()
            self.containerd.start()
            step.wait_for("the answer of etcd", self.plane.is_etcd_healthy, timeout=60)
            self.plane.start_apiserver()
            step.wait_for("the answer of containerd", self.containerd.is_ready, timeout=60)
            self._import_system_images()
            step.awaited = "kube-apiserver to be ready"
            self.plane.wait_until_ready()
            self.plane.start_controller_manager()
            self.plane.start_scheduler()
        with progress.step("starting the node") as step:
            since = datetime.now(UTC) if self.node.start_kubelet() else None
            self.node.start_proxy()
            self.node.start_fake_gpus()
            step.wait_for(
                f"node {NODE}, Ready and with its GPUs,",
                lambda: self.node.is_ready(since),
                timeout=120,
                hint=lambda: self.daemons.read_last_line("kubelet"),
            )
            self.node.label()
            if gpu_taint is not None:
                self.node.set_gpu_taint(gpu_taint)
            self.node.start_policy_enforcer()

    def _import_system_images(self) -> None:
        for reference, binary in (
            (PAUSE_IMAGE, self.binaries.pause),
            (COREDNS_IMAGE, self.binaries.coredns),
            (VOLUME_HELPER_IMAGE, self.binaries.volume_helper),
        ):
            archive = binary.with_name(f"{binary.parent.name}.tar")
            write_binary_archive(archive, reference, binary)
            if not self.containerd.is_loaded(archive, reference):
                self.containerd.import_archive(archive, reference)


def make_ceph(state: Path, daemons: Daemons) -> Ceph:
    """Return the Ceph of the cluster of that state directory, whether it runs or not."""
    return Ceph(state, daemons, address=NODE_ADDRESS, sockets=RUNTIME / "ceph")
