"""Stop a cluster by what it recorded, and take away what it left on the machine."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from local.cgroups import list_pod_processes, remove_cgroups
from local.cluster import make_ceph
from local.csi import list_fuse_servers, release_mounts
from local.firewall import remove_rules
from local.mounts import unmount_below
from local.network import remove_network
from local.node import DEVICE_PLUGINS
from local.owner import check_owner, find_owner, forget_owner
from local.paths import RUNTIME
from local.processes import Daemons
from local.progress import Progress

# The CNI library's notes of interfaces that it made, each with its network namespace's path.
CNI_RESULTS = Path("/var/lib/cni/results")
# Our own builds in the cache; whatever else lies there is left alone.
CACHE_PARTS = ("bin", "images", "venv")


def stop_cluster(state: Path, progress: Progress) -> None:
    """Stop every process and container and unmount; data, images and builds stay.

    The cluster of another state directory is left alone: a Refusal.
    """
    check_owner(state)
    daemons = Daemons(state)
    with progress.step("stopping the cluster") as step:
        # Nothing starts containers anew once the kubelet has gone.
        daemons.stop("kubelet")
        ceph = make_ceph(state, daemons)
        if not ceph.serves_volumes():
            # What waits for a volume of it could not end.
            end_processes(lambda: list_fuse_servers(state), grace=0)
        step.awaited = "the containers' processes to end"
        end_processes(list_pod_processes, grace=5)
        if daemons.is_alive("containerd"):
            step.awaited = "containerd to see them end"
            wait_until_none(list_shims, seconds=3)
        step.awaited = "volumes to be written and unmounted"
        release_mounts(state)
        step.awaited = "Ceph to end"
        ceph.stop()
        for name in reversed(daemons.list_names()):
            step.awaited = f"{name} to end"
            daemons.stop(name)
        end_processes(list_shims, grace=1)
        step.awaited = "mounts to go"
        unmount_below(state, RUNTIME)
        remove_rules(of_kubernetes=find_owner() is not None)
        forget_owner()


def purge(state: Path, cache: Path, progress: Progress) -> None:
    """Remove everything of a stopped cluster: data, images, volumes, settings, builds."""
    with progress.step(f"removing {state} and the builds in {cache}"):
        remove_network(state)
        remove_cgroups()
        parts = [cache / part for part in CACHE_PARTS]
        unmount_below(*parts)
        for directory in (state, RUNTIME, DEVICE_PLUGINS, *parts):
            shutil.rmtree(directory, ignore_errors=True)
        for result in CNI_RESULTS.glob("*"):
            if str(RUNTIME) in result.read_text():
                result.unlink()
        for directory in (DEVICE_PLUGINS.parent, CNI_RESULTS, CNI_RESULTS.parent, cache):
            if directory.exists() and not any(directory.iterdir()):
                directory.rmdir()


def list_shims() -> set[int]:
    """List the shims of our containerd; their command line names its socket."""
    mark = f"\0-address\0{RUNTIME / 'containerd.sock'}\0".encode()
    shims = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "cmdline").read_bytes():
                shims.add(int(process.name))
        except OSError:
            continue
    return shims


def end_processes(list_pids: Callable[[], set[int]], *, grace: float) -> None:
    """Ask the processes to end, and kill those that still run after `grace` seconds."""
    _signal_all(list_pids(), signal.SIGTERM)
    if not wait_until_none(list_pids, seconds=grace):
        _signal_all(list_pids(), signal.SIGKILL)
        wait_until_none(list_pids, seconds=10)


def wait_until_none(list_pids: Callable[[], set[int]], *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while list_pids():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _signal_all(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
