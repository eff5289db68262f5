"""What the node's Prometheus asks, by which names, and what it finds."""

from pathlib import Path

import yaml

from local.certificates import Authority
from local.network import NODE_ADDRESS
from local.objects import make_node_service
from local.paths import CHECKOUT
from local.preflight import PORTS
from local.processes import Daemons
from local.prometheus import (
    EXPORTER,
    GPU_METRICS_PORT,
    KUBELET_PORT,
    NAMESPACE,
    PORT,
    RELEASES,
    SERVICE,
    SERVICE_PORT,
    make_configuration,
    start_metrics,
)
from local.trial import NAMESPACE as TRIAL
from spectrum_spawner.service.culling.metrics import METRICS

CONFIGURATION = make_configuration(Authority(Path("/state/pki")), "https://10.0.0.1:6443")
JOBS = {job["job_name"]: job for job in CONFIGURATION["scrape_configs"]}
TLS = {
    "ca_file": "/state/pki/ca.crt",
    "cert_file": "/state/pki/kubelet-client.crt",
    "key_file": "/state/pki/kubelet-client.key",
}


def test_gpus_are_scraped_as_where_an_operator_runs_the_exporter() -> None:
    assert JOBS["gpus"] == {
        "job_name": "gpus",
        "scrape_interval": "5s",
        "static_configs": [{"targets": ["127.0.0.1:9400"], "labels": EXPORTER}],
    }
    # The exporter's own labels of these names move to those by which pods are found.
    assert {f"exported_{name}" for name in EXPORTER} == {"exported_namespace", "exported_pod"}


def test_containers_keep_the_names_that_the_kubelet_gives() -> None:
    assert JOBS["kubelet"] == {
        "job_name": "kubelet",
        "scheme": "https",
        "metrics_path": "/metrics/resource",
        "honor_labels": True,
        "tls_config": TLS,
        "static_configs": [{"targets": [f"{NODE_ADDRESS}:{KUBELET_PORT}"]}],
    }
    names = {key: METRICS["cpu"][key] for key in ("name", "namespace", "pod")}
    assert names == {
        "name": "container_cpu_usage_seconds_total",
        "namespace": "namespace",
        "pod": "pod",
    }


def test_the_services_of_demo_and_tests_are_reached_through_the_api_server() -> None:
    assert RELEASES == ("spectrum", TRIAL)
    assert JOBS["spectrum"] == {
        "job_name": "spectrum",
        "scheme": "https",
        "tls_config": TLS,
        "static_configs": [
            {
                "targets": ["10.0.0.1:6443"],
                "labels": {
                    "namespace": namespace,
                    "__metrics_path__": f"/api/v1/namespaces/{namespace}/services/service:http"
                    "/proxy/metrics",
                },
            }
            for namespace in RELEASES
        ],
    }


def test_the_exporter_tells_what_is_measured_by_default() -> None:
    told = (CHECKOUT / "local" / "go" / "gpu-metrics" / "gpus.go").read_text()
    names = [
        metric[key] for metric in METRICS.values() for key in ("name", "free") if key in metric
    ]
    wanted = [name for name in names if name.startswith("DCGM_")]
    assert [name for name in wanted if f'"{name}"' not in told] == []


def test_the_demo_finds_prometheus_by_its_service() -> None:
    values = yaml.safe_load((CHECKOUT / "local" / "values.yaml").read_text())
    assert values["metrics"] == {"prometheusUrl": "http://prometheus.monitoring.svc:9090"}
    service, endpoints = make_node_service(
        NAMESPACE, SERVICE, port=SERVICE_PORT, address=NODE_ADDRESS, target=PORT
    )
    assert (service["metadata"], service["spec"]) == (
        {"name": "prometheus", "namespace": "monitoring"},
        {"ports": [{"name": "http", "port": 9090, "targetPort": PORT}]},
    )
    assert endpoints["ports"] == [{"name": "http", "port": PORT, "protocol": "TCP"}]
    assert endpoints["endpoints"][0]["addresses"] == [NODE_ADDRESS]


def test_ports_of_both_are_looked_at_before_a_start() -> None:
    found = {port: PORTS[port] for port in (GPU_METRICS_PORT, PORT)}
    assert found == {9400: "gpu-metrics", 19090: "prometheus"}


def test_prometheus_starts_anew_when_its_configuration_changes(tmp_path: Path) -> None:
    daemons = Daemons(tmp_path, die_with_parent=True)
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)

    def start(server: str) -> list[int]:
        start_metrics(
            tmp_path,
            program,
            program,
            authority=Authority(tmp_path / "pki"),
            server=server,
            kubelet_root=tmp_path / "kubelet",
            daemons=daemons,
        )
        return [daemons.find_record(name).pid for name in ("gpu-metrics", "prometheus")]

    try:
        first, again, changed = start("https://a:1"), start("https://a:1"), start("https://b:1")
    finally:
        for name in daemons.list_names():
            daemons.stop(name, kill=True)
    assert (again, changed[0]) == (first, first[0])
    assert changed[1] != first[1]
