"""etcd, kube-apiserver, kube-controller-manager and kube-scheduler in a directory.

No part of it needs root. The cluster starts all four; tests that need nothing but a real
kube-apiserver use the `control_plane` context manager.
"""

import http.client
import ssl
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local.api import Api
from local.binaries import ensure_kube
from local.certificates import Authority, Identity
from local.errors import Refusal
from local.kubeconfig import write_kubeconfig
from local.listeners import find_free_port
from local.processes import Daemons

SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE = "10.96.0.1"


@dataclass(frozen=True)
class Ports:
    """TCP ports that the control plane listens on."""

    apiserver: int = 6443
    etcd: int = 2379
    etcd_peer: int = 2380
    controller_manager: int = 10257
    scheduler: int = 10259


class ControlPlane:
    """The control plane of one directory: certificates, kubeconfigs, processes, data."""

    def __init__(
        self,
        directory: Path,
        kube: Path,
        *,
        address: str = "127.0.0.1",
        ports: Ports = Ports(),
        daemons: Daemons | None = None,
    ) -> None:
        """`kube` is the multi-call binary; `address` is where kube-apiserver listens."""
        self.directory = directory
        self.address = address
        self.ports = ports
        self.authority = Authority(directory / "pki")
        self.daemons = daemons or Daemons(directory)
        self._kube = kube

    @property
    def server(self) -> str:
        """The URL of kube-apiserver."""
        return f"https://{self.address}:{self.ports.apiserver}"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of a cluster administrator."""
        return self.directory / "kubeconfig"

    @property
    def api(self) -> Api:
        return Api(self.kubeconfig)

    def find_kubeconfig(self, identity: str) -> Path:
        return self.directory / f"{identity}.kubeconfig"

    def prepare(self) -> None:
        """Make certificates and kubeconfigs that are not there yet."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.authority.ensure_authority()
        local = ("127.0.0.1", "localhost")
        services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
        addresses = (*dict.fromkeys((self.address, *local)), KUBERNETES_SERVICE, *services)
        for identity in (
            Identity("etcd", "etcd", addresses=local),
            Identity("kube-apiserver", "kube-apiserver", addresses=addresses),
            Identity("kubelet-client", "kubelet-client", "system:masters"),
            Identity("admin", "admin", "system:masters"),
            Identity("kube-controller-manager", "system:kube-controller-manager"),
            Identity("kube-scheduler", "system:kube-scheduler"),
        ):
            self.authority.ensure_certificate(identity)
        write_kubeconfig(self.kubeconfig, self.authority, self.server, "admin")
        for name in ("kube-controller-manager", "kube-scheduler"):
            self.write_kubeconfig(name)

    def write_kubeconfig(self, identity: str) -> None:
        write_kubeconfig(self.find_kubeconfig(identity), self.authority, self.server, identity)

    def start_etcd(self) -> bool:
        pki = self.authority
        client = f"https://127.0.0.1:{self.ports.etcd}"
        peer = f"https://127.0.0.1:{self.ports.etcd_peer}"
        files = ["etcd.crt", "etcd.key", "ca.crt"]
        certificate, key, authority = (f"{pki.directory / name}" for name in files)
        return self.daemons.ensure(
            "etcd",
            [
                *(self._kube, "etcd", f"--data-dir={self.directory / 'etcd'}", "--name=local"),
                *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
                *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
                f"--initial-cluster=local={peer}",
                *(f"--cert-file={certificate}", f"--key-file={key}", "--client-cert-auth"),
                f"--trusted-ca-file={authority}",
                *(f"--peer-cert-file={certificate}", f"--peer-key-file={key}"),
                *(f"--peer-trusted-ca-file={authority}", "--peer-client-cert-auth"),
                # Data of a throw-away cluster: after a power cut it is made anew.
                *("--unsafe-no-fsync", "--log-level=warn", "--auto-compaction-retention=1h"),
            ],
        )

    def start_apiserver(self) -> bool:
        """Start kube-apiserver unless it runs; returns whether it was started."""
        pki = self.authority
        loopback = self.address.startswith("127.")
        return self.daemons.ensure(
            "kube-apiserver",
            [
                *(self._kube, "kube-apiserver", f"--bind-address={self.address}"),
                f"--secure-port={self.ports.apiserver}",
                # Pods cannot reach a loopback address: nothing is published for them then. The
                # flag's own default is the address of a default route, which may be missing.
                f"--advertise-address={'192.0.2.1' if loopback else self.address}",
                f"--endpoint-reconciler-type={'none' if loopback else 'lease'}",
                f"--etcd-servers=https://127.0.0.1:{self.ports.etcd}",
                f"--etcd-cafile={pki.certificate}",
                f"--etcd-certfile={pki.find_certificate('etcd')}",
                f"--etcd-keyfile={pki.find_key('etcd')}",
                f"--tls-cert-file={pki.find_certificate('kube-apiserver')}",
                f"--tls-private-key-file={pki.find_key('kube-apiserver')}",
                f"--client-ca-file={pki.certificate}",
                f"--kubelet-certificate-authority={pki.certificate}",
                f"--kubelet-client-certificate={pki.find_certificate('kubelet-client')}",
                f"--kubelet-client-key={pki.find_key('kubelet-client')}",
                "--kubelet-preferred-address-types=InternalIP",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={pki.directory / 'service-account.pub'}",
                f"--service-account-signing-key-file={pki.find_key('service-account')}",
                f"--service-cluster-ip-range={SERVICE_NETWORK}",
                *("--authorization-mode=Node,RBAC", "--allow-privileged=true"),
                *("--enable-admission-plugins=NodeRestriction", "--profiling=false"),
            ],
        )

    def start_controller_manager(self) -> bool:
        pki = self.authority
        kubeconfig = self.find_kubeconfig("kube-controller-manager")
        return self.daemons.ensure(
            "kube-controller-manager",
            [
                *(self._kube, "kube-controller-manager", f"--kubeconfig={kubeconfig}"),
                *("--bind-address=127.0.0.1", f"--secure-port={self.ports.controller_manager}"),
                f"--root-ca-file={pki.certificate}",
                f"--service-account-private-key-file={pki.find_key('service-account')}",
                *("--use-service-account-credentials=true", "--leader-elect=false"),
                *("--controllers=*,-certificatesigningrequest-signing-controller",),
                *("--profiling=false", "--namespace-sync-period=1m"),
            ],
        )

    def start_scheduler(self) -> bool:
        kubeconfig = self.find_kubeconfig("kube-scheduler")
        return self.daemons.ensure(
            "kube-scheduler",
            [
                *(self._kube, "kube-scheduler", f"--kubeconfig={kubeconfig}"),
                *("--bind-address=127.0.0.1", f"--secure-port={self.ports.scheduler}"),
                *("--leader-elect=false", "--profiling=false"),
            ],
        )

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop kube-apiserver alone, so that clients see an outage; etcd goes on."""
        self.daemons.stop("kube-apiserver", kill=kill)

    def is_etcd_healthy(self) -> bool:
        tls = ssl.create_default_context(cafile=self.authority.certificate)
        etcd = self.authority.find_certificate("etcd"), self.authority.find_key("etcd")
        tls.load_cert_chain(*etcd)
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.ports.etcd, context=tls, timeout=5
        )
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def wait_until_ready(self, timeout: float = 180) -> None:
        """Return once kube-apiserver says it is ready; refuse after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        api = self.api
        while not api.is_ready():
            for name in ("etcd", "kube-apiserver"):
                if not self.daemons.is_alive(name):
                    raise Refusal(f"{name} ended: {self.daemons.read_last_line(name)}")
            if time.monotonic() > deadline:
                log = self.daemons.find_log("kube-apiserver")
                raise Refusal(f"kube-apiserver is not ready after {timeout:.0f} s; see {log}")
            time.sleep(0.1)

    def stop(self, *, kill: bool = False) -> None:
        for name in reversed(self.daemons.list_names()):
            self.daemons.stop(name, kill=kill)


def find_free_ports() -> Ports:
    """Choose ports that nobody listens on now."""
    ports: set[int] = set()
    while len(ports) < 5:
        ports.add(find_free_port())
    return Ports(*ports)


@contextmanager
def control_plane(directory: Path | None = None) -> Iterator[ControlPlane]:
    """Run etcd and kube-apiserver, and nothing else, for the length of the block.

    Takes free ports on 127.0.0.1. The processes die with the caller. Without a directory a
    temporary one is used and removed.
    """
    with tempfile.TemporaryDirectory(prefix="spectrum-plane-") as temporary:
        home = directory or Path(temporary)
        daemons = Daemons(home, die_with_parent=True)
        plane = ControlPlane(home, ensure_kube(), ports=find_free_ports(), daemons=daemons)
        plane.prepare()
        try:
            plane.start_etcd()
            plane.start_apiserver()
            plane.wait_until_ready()
            yield plane
        finally:
            plane.stop(kill=True)
