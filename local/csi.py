"""CSI on the node: the driver of local/go/csi and upstream's csi-provisioner and csi-resizer.

They run beside the kubelet, as processes of the machine. The driver's FUSE processes outlive it;
a volume is served until it is unmounted.
"""

import os
import signal
import threading
import time
from pathlib import Path

from local.ceph import Ceph
from local.commands import succeeds
from local.mounts import unmount_below
from local.node import NODE
from local.processes import Daemons

# short name of a driver, as in the names of its processes → its name in Kubernetes
DRIVERS = {"cephfs": "rook-ceph.cephfs.csi.ceph.com", "rbd": "rook-ceph.rbd.csi.ceph.com"}
CLUSTER_ID = "rook-ceph"
FUSE_PROGRAMS = (b"ceph-fuse", b"rbd-fuse")
# How long volumes may take to be written and unmounted before their processes are killed, seconds.
RELEASE_SECONDS = 20


def start_csi(
    state: Path,
    binaries: Path,
    ceph: Ceph,
    kubeconfig: Path,
    kubelet_root: Path,
    daemons: Daemons,
) -> None:
    """Start the driver and its companions; `binaries` is what ensure_csi returned."""
    command: list[str | Path] = [
        *(binaries / "csi", f"-kubelet={kubelet_root}", f"-state={state / 'csi'}"),
        *(f"-conf={ceph.conf}", f"-cluster-id={CLUSTER_ID}", f"-node={NODE}"),
    ]
    if daemons.ensure("csi-driver", command):
        # They end by themselves when they lose their driver, only not at once.
        for name in list_companions():
            daemons.stop(name)
    for short, driver in DRIVERS.items():
        common = [
            f"--csi-address={kubelet_root / 'plugins' / driver / 'csi.sock'}",
            *(f"--kubeconfig={kubeconfig}", "--leader-election=false", "--timeout=60s"),
            # What waits for Ceph goes on soon after it is back.
            "--retry-interval-max=15s",
        ]
        daemons.ensure(f"csi-{short}-provisioner", [binaries / "csi-provisioner", *common])
        # Volumes grow while they are in use, so no pods need to be watched.
        words = [*common, "--handle-volume-inuse-error=false"]
        daemons.ensure(f"csi-{short}-resizer", [binaries / "csi-resizer", *words])


def list_companions() -> list[str]:
    """List the names of the processes that need the driver."""
    return [f"csi-{short}-{role}" for short in DRIVERS for role in ("provisioner", "resizer")]


def list_fuse_servers(state: Path) -> set[int]:
    """List the processes that serve volumes of the cluster of this state directory."""
    servers = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # The mount point is the first argument.
        is_ours = len(words) > 1 and Path(os.fsdecode(words[1])).is_relative_to(state)
        if is_ours and os.path.basename(words[0]) in FUSE_PROGRAMS:
            servers.add(int(process.name))
    return servers


def release_mounts(state: Path, *, seconds: float = RELEASE_SECONDS) -> None:
    """Unmount every volume and return once all that was written is in Ceph.

    Nothing may use them any more. After `seconds` the processes behind them are killed, and what
    they still held is lost: so it is when Ceph does not answer.
    """
    work = threading.Thread(target=_release, args=[state], daemon=True)
    work.start()
    work.join(seconds)
    if work.is_alive():
        for pid in list_fuse_servers(state):
            _kill(pid)
        # Without them every call that waited returns with an error.
        work.join(seconds)


def _release(state: Path) -> None:
    for device in find_loops(state / "csi"):
        # One that is in use goes with the last view of its file system.
        succeeds(["losetup", "--detach", device])
    unmount_below(state / "kubelet")
    unmount_below(state / "csi")
    while list_fuse_servers(state):
        time.sleep(0.05)


def find_loops(directory: Path) -> list[Path]:
    """Find the loop devices of files below the directory."""
    devices = []
    for holder in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = Path(os.fsdecode(holder.read_bytes().rstrip(b"\n")))
        except OSError:
            continue
        if file.is_relative_to(directory):
            devices.append(Path("/dev") / holder.parts[3])
    return devices


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
