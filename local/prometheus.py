"""Prometheus on the node, and what it asks: the fake GPUs, the kubelet, and Spectrum itself."""

import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local.api import Api
from local.certificates import Authority
from local.files import write_if_changed
from local.network import NODE_ADDRESS
from local.node import NODE
from local.objects import apply_namespace, apply_object, make_node_service
from local.processes import Daemons

# How pods reach it: http://prometheus.monitoring.svc:9090
NAMESPACE = "monitoring"
SERVICE = "prometheus"
SERVICE_PORT = 9090
# Whoever has a Prometheus of their own has it at 9090.
PORT = 19090
GPU_METRICS_PORT = 9400
KUBELET_PORT = 10250
# A Prometheus operator gives what it scrapes the namespace and the pod of the exporter as labels,
# and those of the measured pod become exported_namespace and exported_pod.
EXPORTER = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-local"}
# namespaces of the demo and of the tests' release, whose services tell of themselves
RELEASES = ("spectrum", "spectrum-test")
KEPT = ("30d", "1GB")  # what is older, or more, is forgotten


def make_configuration(authority: Authority, server: str) -> dict[str, Any]:
    """Build the configuration: what is scraped, how often, and by which labels.

    `server` is the URL of kube-apiserver, by which the services of releases are reached: Debian's
    Prometheus is built without what finds pods, and asks no DNS but the machine's.
    """
    api = urlsplit(server)
    tls = {
        "ca_file": str(authority.certificate),
        "cert_file": str(authority.find_certificate("kubelet-client")),
        "key_file": str(authority.find_key("kubelet-client")),
    }
    exporter = {"targets": [f"127.0.0.1:{GPU_METRICS_PORT}"], "labels": EXPORTER}
    releases = [
        {
            "targets": [api.netloc],
            "labels": {
                "namespace": namespace,
                "__metrics_path__": f"/api/v1/namespaces/{namespace}/services/service:http/proxy"
                "/metrics",
            },
        }
        for namespace in RELEASES
    ]
    return {
        "global": {"scrape_interval": "15s", "scrape_timeout": "5s"},
        "scrape_configs": [
            # Tests wait for the GPUs, and to ask for them costs nothing.
            {"job_name": "gpus", "scrape_interval": "5s", "static_configs": [exporter]},
            {
                "job_name": "kubelet",
                "scheme": "https",
                "metrics_path": "/metrics/resource",
                "honor_labels": True,
                "tls_config": tls,
                "static_configs": [{"targets": [f"{NODE_ADDRESS}:{KUBELET_PORT}"]}],
            },
            {
                "job_name": "spectrum",
                "scheme": api.scheme,
                "tls_config": tls,
                "static_configs": releases,
            },
        ],
    }


def start_metrics(
    state: Path,
    gpu_metrics: Path,
    prometheus: Path,
    *,
    authority: Authority,
    server: str,
    kubelet_root: Path,
    daemons: Daemons,
) -> None:
    """Start the exporter of the fake GPUs and Prometheus, which keeps what it had."""
    daemons.ensure(
        "gpu-metrics",
        [
            *(gpu_metrics, f"-listen=127.0.0.1:{GPU_METRICS_PORT}", f"-node={NODE}"),
            f"-socket={kubelet_root / 'pod-resources' / 'kubelet.sock'}",
        ],
    )
    configuration = state / "prometheus.json"
    write_if_changed(configuration, json.dumps(make_configuration(authority, server), indent=2))
    age, size = KEPT
    daemons.ensure(
        "prometheus",
        [
            *(prometheus, f"--config.file={configuration}", "--log.level=warn"),
            f"--web.listen-address={NODE_ADDRESS}:{PORT}",
            f"--storage.tsdb.path={state / 'prometheus'}",
            *(f"--storage.tsdb.retention.time={age}", f"--storage.tsdb.retention.size={size}"),
        ],
        configuration=[configuration],
    )


def apply_metrics_objects(api: Api) -> None:
    """Give Prometheus the name by which pods reach it."""
    apply_namespace(api, NAMESPACE)
    for one in make_node_service(
        NAMESPACE, SERVICE, port=SERVICE_PORT, address=NODE_ADDRESS, target=PORT
    ):
        apply_object(api, one)


def answers_prometheus() -> bool:
    """Tell whether Prometheus takes queries: it first reads what it wrote down before."""
    connection = http.client.HTTPConnection(NODE_ADDRESS, PORT, timeout=2)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
