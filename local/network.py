"""The node's own address, the pods' bridge, and the kernel settings both need."""

import json
from pathlib import Path

from local.commands import run, succeeds
from local.control_plane import SERVICE_NETWORK
from local.files import write_if_changed

CNI_BINARIES = "/usr/lib/cni"
# An interface of our own carries the node's address, so that the cluster works without a network
# and survives a change of the machine's addresses. It is a bridge without ports, since some
# kernels lack dummy interfaces. Private ranges: user pods' policies exclude them.
NODE_INTERFACE = "spectrum0"
NODE_ADDRESS = "10.231.255.1"
POD_BRIDGE = "spectrum-pods"
POD_NETWORK = "10.231.0.0/24"
# The CNI plugins write this name into their rules.
CNI_NETWORK = "spectrum"
# Least values; what is higher already stays.
SETTINGS = {
    "net.ipv4.ip_forward": 1,
    "net.bridge.bridge-nf-call-iptables": 1,
    # A kubelet, a controller and servers with file watchers soon use up the default of 128.
    "fs.inotify.max_user_instances": 8192,
}


def make_cni_configuration(state: Path) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_NETWORK}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(state / "pod-addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": POD_BRIDGE,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    plugins = [bridge, {"type": "portmap", "capabilities": {"portMappings": True}}]
    return {"cniVersion": "1.0.0", "name": CNI_NETWORK, "plugins": plugins}


def prepare_network(state: Path) -> None:
    """Set up what is not there; note the kernel settings of before for `remove_network`."""
    configuration = state / "cni" / "10-spectrum.conflist"
    write_if_changed(configuration, json.dumps(make_cni_configuration(state), indent=2))
    if not succeeds(["ip", "link", "show", NODE_INTERFACE]):
        run(["ip", "link", "add", NODE_INTERFACE, "type", "bridge"])
    run(["ip", "address", "replace", f"{NODE_ADDRESS}/32", "dev", NODE_INTERFACE])
    run(["ip", "link", "set", NODE_INTERFACE, "up"])
    # Nobody answers there. What goes to a Service without endpoints would leave this machine by
    # the default route, since kube-router accepts it before kube-proxy's rules refuse it; and
    # without a default route, this machine itself would reach no Service.
    run(["ip", "route", "replace", SERVICE_NETWORK, "dev", NODE_INTERFACE])
    if not _find_setting("net.bridge.bridge-nf-call-iptables").exists():
        run(["modprobe", "br_netfilter"])
    _change_settings(state / "sysctl.json")


def remove_network(state: Path) -> None:
    """Remove the interfaces and put the kernel settings back."""
    for interface in (POD_BRIDGE, NODE_INTERFACE):
        succeeds(["ip", "link", "delete", interface])
    note = state / "sysctl.json"
    if note.exists():
        for name, value in json.loads(note.read_text()).items():
            _find_setting(name).write_text(str(value))


def _change_settings(note: Path) -> None:
    before = {name: int(_find_setting(name).read_text()) for name in SETTINGS}
    if not note.exists():
        note.write_text(json.dumps(before))
    for name, value in SETTINGS.items():
        if before[name] < value:
            _find_setting(name).write_text(str(value))


def _find_setting(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")
