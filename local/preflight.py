"""What must hold before a cluster is started; each refusal is one line that says what to do."""

import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

from local import ceph_config
from local.commands import succeeds
from local.control_plane import Ports
from local.errors import Refusal
from local.listeners import find_listener
from local.processes import Daemons
from local.prometheus import GPU_METRICS_PORT
from local.prometheus import PORT as PROMETHEUS_PORT

NODE_PORT = 30080
FREE_BYTES = 15 * 10**9
CEPH_FREE_BYTES = 5 * 10**9
# port → process of the cluster that listens there; none does where kube-proxy has its rules alone
PORTS = {
    Ports.apiserver: "kube-apiserver",
    Ports.etcd: "etcd",
    Ports.etcd_peer: "etcd",
    Ports.controller_manager: "kube-controller-manager",
    Ports.scheduler: "kube-scheduler",
    10248: "kubelet",
    10250: "kubelet",
    10249: "kube-proxy",
    10256: "kube-proxy",
    GPU_METRICS_PORT: "gpu-metrics",
    PROMETHEUS_PORT: "prometheus",
    NODE_PORT: "",
}
CEPH_PORTS = {
    ceph_config.PORTS.monitor: "ceph-mon",
    ceph_config.PORTS.monitor_v1: "ceph-mon",
    ceph_config.PORTS.gateway: "ceph-rgw",
}
# What mounts volumes of Ceph here, since few machines' kernels have its own client.
DEVICES = {"fuse": Path("/dev/fuse"), "loop": Path("/dev/loop-control")}


def check_machine() -> None:
    """Refuse anything but root on a 64-bit x86 Linux."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        found = f"{platform.system()} on {platform.machine()}"
        raise Refusal(f"the local cluster needs Linux on x86_64, and this is {found}")
    if os.geteuid() != 0:
        raise Refusal("the local cluster needs root: run it again with sudo")


def check_space(*directories: Path, needed: int = FREE_BYTES) -> None:
    for directory in directories:
        existing = next(path for path in (directory, *directory.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if free < needed:
            raise Refusal(
                f"{existing} has {free / 1e9:.1f} GB free, and {needed / 1e9:.0f} GB are needed: "
                "free some, or choose other disks with SPECTRUM_CACHE and SPECTRUM_STATE"
            )


def check_ports(daemons: Daemons, ports: Mapping[int, str] = PORTS) -> None:
    """Refuse when somebody else listens on one of the ports; those of the cluster by default."""
    for port, owner in ports.items():
        listener = find_listener(port)
        if listener is None:
            continue
        pid, command = listener
        record = daemons.find_record(owner) if owner else None
        if record is None or record.pid != pid:
            raise Refusal(f"port {port} is taken by {command} (pid {pid}): stop it and run again")


def check_devices(devices: Mapping[str, Path] = DEVICES) -> None:
    """Refuse when volumes of Ceph could not be mounted; maps kernel modules to their devices."""
    for module, device in devices.items():
        if not device.exists() and not succeeds(["modprobe", module]):
            raise Refusal(
                f"{device} is missing, and volumes of Ceph need it: load the kernel module "
                f"{module}, or run local/up --no-ceph"
            )


def has_ceph(state: Path) -> bool:
    """Tell whether the cluster of that state directory was ever started with Ceph."""
    return (state / "ceph").exists()


def check_no_ceph(state: Path) -> None:
    """Refuse when volumes may be on a Ceph that was there."""
    if has_ceph(state):
        raise Refusal(
            f"the volumes of {state} are on its Ceph: run without --no-ceph, or remove them with "
            "local/down --purge first"
        )
