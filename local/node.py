"""The one node: kubelet, kube-proxy, the NetworkPolicy enforcer and the fake GPUs."""

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from local import cgroups
from local.certificates import Identity
from local.containerd import Containerd
from local.control_plane import SERVICE_NETWORK, ControlPlane
from local.files import write_if_changed
from local.network import NODE_ADDRESS, POD_NETWORK
from local.processes import Daemons

NODE = "spectrum-local"
CLUSTER_DNS = "10.96.0.10"
# Every kubelet listens for device plugins here, whatever its --root-dir.
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
GPU_COUNT = 4
# As GPU feature discovery labels a node with four A100 cards.
GPU_LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.count": str(GPU_COUNT),
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.family": "ampere",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/mig.capable": "true",
}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@dataclass(frozen=True)
class Node:
    """The node's processes; `binaries` maps kube and kube-router to their files."""

    state: Path
    kube: Path
    kube_router: Path
    plane: ControlPlane
    containerd: Containerd
    daemons: Daemons

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    def prepare(self) -> None:
        """Make the certificates, kubeconfigs and configuration files of the node's processes."""
        names = (NODE, NODE_ADDRESS)
        pki = self.plane.authority
        pki.ensure_certificate(Identity("kubelet", f"system:node:{NODE}", "system:nodes", names))
        pki.ensure_certificate(Identity("kube-proxy", "system:kube-proxy"))
        for identity in ("kubelet", "kube-proxy"):
            self.plane.write_kubeconfig(identity)
        kubelet = self.make_kubelet_configuration()
        proxy = make_proxy_configuration(self.plane.find_kubeconfig("kube-proxy"))
        write_if_changed(self.state / "resolv.conf", make_resolv_conf(find_name_servers()))
        write_if_changed(self.state / "kubelet.json", json.dumps(kubelet, indent=2))
        write_if_changed(self.state / "kube-proxy.json", json.dumps(proxy, indent=2))

    def make_kubelet_configuration(self) -> dict[str, Any]:
        pki = self.plane.authority
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_ADDRESS,
            "healthzBindAddress": "127.0.0.1",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(pki.certificate)},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(pki.find_certificate("kubelet")),
            "tlsPrivateKeyFile": str(pki.find_key("kubelet")),
            "containerRuntimeEndpoint": f"unix://{self.containerd.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroups.NAME}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "nodeStatusUpdateFrequency": "4s",
            # How often it looks at a pod that does not change: then it sees that a volume grew.
            "syncFrequency": "20s",
            "clusterDNS": [CLUSTER_DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.state / "resolv.conf"),
            "podLogsDir": str(self.state / "pod-logs"),
            # A laptop's disk is full of other things: evict late, and never throw away images
            # that no registry could give back.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "imageMaximumGCAge": "0s",
            "maxPods": 110,
            "enableProfilingHandler": False,
        }

    def start_kubelet(self) -> bool:
        configuration = self.state / "kubelet.json"
        return self.daemons.ensure(
            "kubelet",
            [
                *(self.kube, "kubelet", f"--config={configuration}"),
                f"--kubeconfig={self.plane.find_kubeconfig('kubelet')}",
                *(f"--root-dir={self.kubelet_root}", f"--cert-dir={self.kubelet_root / 'pki'}"),
                *(f"--hostname-override={NODE}", f"--node-ip={NODE_ADDRESS}"),
            ],
            configuration=[configuration, self.state / "resolv.conf"],
        )

    def start_proxy(self) -> bool:
        configuration = self.state / "kube-proxy.json"
        return self.daemons.ensure(
            "kube-proxy",
            [self.kube, "kube-proxy", f"--config={configuration}"],
            configuration=[configuration],
        )

    def start_policy_enforcer(self) -> bool:
        return self.daemons.ensure(
            "kube-router",
            [
                *(self.kube_router, f"--kubeconfig={self.plane.kubeconfig}"),
                *("--run-firewall=true", "--run-router=false", "--run-service-proxy=false"),
                *(f"--hostname-override={NODE}", "--enable-ipv6=false"),
                *(f"--service-cluster-ip-range={SERVICE_NETWORK}", "--health-port=0"),
            ],
        )

    def start_fake_gpus(self) -> bool:
        return self.daemons.ensure(
            "fake-gpu-plugin", [self.kube, "fake-gpu-plugin", "-count", str(GPU_COUNT)]
        )

    def is_ready(self, since: datetime | None) -> bool:
        """Tell whether the node is Ready and offers its GPUs, by a report not before `since`.

        A kubelet that was just started finds the report of the one before it.
        """
        node = self.plane.api.find(f"/api/v1/nodes/{NODE}")
        if node is None:
            return False
        conditions = {one["type"]: one for one in node["status"]["conditions"]}
        ready = conditions.get("Ready", {"status": "Unknown"})
        gpus = node["status"].get("allocatable", {}).get("nvidia.com/gpu")
        if ready["status"] != "True" or gpus != str(GPU_COUNT):
            return False
        reported = datetime.fromisoformat(ready["lastHeartbeatTime"])
        return since is None or reported >= since.replace(microsecond=0)

    def label(self) -> None:
        """Put the GPU labels on the node; nothing is written when they are there."""
        path = f"/api/v1/nodes/{NODE}"
        if not GPU_LABELS.items() <= self.plane.api.get(path)["metadata"]["labels"].items():
            changes = {"metadata": {"labels": GPU_LABELS}}
            self.plane.api.patch(path, changes, content_type="application/merge-patch+json")

    def set_gpu_taint(self, wanted: bool) -> None:
        """Put the taint of GPU nodes on the node, or take it off; other taints stay."""
        path = f"/api/v1/nodes/{NODE}"
        before = self.plane.api.get(path)["spec"].get("taints", [])
        taints = [taint for taint in before if taint["key"] != GPU_TAINT["key"]]
        if wanted:
            taints.append(GPU_TAINT)
        if taints != before:
            changes = {"spec": {"taints": taints}}
            self.plane.api.patch(path, changes, content_type="application/merge-patch+json")


def make_proxy_configuration(kubeconfig: Path) -> dict[str, Any]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": NODE,
        "mode": "iptables",
        "clusterCIDR": POD_NETWORK,
        "detectLocalMode": "ClusterCIDR",
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # The demo's passwords are shared ones: node ports answer this machine alone.
        "nodePortAddresses": ["127.0.0.0/8", f"{NODE_ADDRESS}/32"],
        "iptables": {"localhostNodePorts": True},
        # The machine's conntrack limits are its own.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def find_name_servers() -> list[str]:
    """Return the machine's name servers that pods can reach: not those on a loopback address."""
    for path in (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf")):
        if path.exists():
            words = [line.split() for line in path.read_text().splitlines()]
            servers = [line[1] for line in words if len(line) > 1 and line[0] == "nameserver"]
            return [server for server in servers if not server.startswith(("127.", "::1"))]
    return []


def make_resolv_conf(servers: list[str]) -> str:
    return "".join(f"nameserver {server}\n" for server in servers)
