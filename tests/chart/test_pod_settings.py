"""From the administrator's values to controller and service: each reads what the chart writes."""

import base64
from datetime import timedelta
from pathlib import Path
from typing import Any

from spectrum_spawner.controller.settings import Settings as ControllerSettings
from spectrum_spawner.controller.storage_settings import VolumeSettings
from spectrum_spawner.service.settings import Settings as ServiceSettings
from tests.chart.helm import ACCEPTED, Helm, merge

VALUES = merge(
    ACCEPTED,
    {
        "hub": {"baseUrl": "/gpu/"},
        "auth": {"contact": "the help desk"},
        "service": {"leavingGrace": 60, "idleMinutes": {"min": 12, "max": 20}},
        "culling": {"every": 30, "rules": {"gpu": {"idleMinutes": 90}}},
        "metrics": {"prometheusUrl": "http://prometheus:9090", "power": None},
        "teamTemplates": {
            "line": {"pattern": "line-.+", "max": 2, "spec": {"leads": ["alice"]}},
        },
        "storage": {
            "share": {"size": "1Ti"},
            "bucket": {"enabled": True, "endpoint": "http://rgw.rook-ceph.svc"},
            "datasets": {"digits": {"path": "/volumes/datasets/digits", "size": "1Gi"}},
        },
    },
)

# The Secret that an administrator brings.
RGW = {"AccessKey": base64.b64encode(b"who"), "SecretKey": base64.b64encode(b"hush")}


def lay_out(helm: Helm, component: str, root: Path) -> dict[str, str]:
    """Put a pod's secrets below `root` as its volumes do; returns its environment."""
    manifests = {(m["kind"], m["metadata"]["name"]): m for m in helm.render(VALUES)}
    pod = manifests["Deployment", component]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        if secret := volumes[mount["name"]].get("secret"):
            name = secret["secretName"]
            data = RGW if name == "rgw-admin" else manifests["Secret", name]["data"]
            directory = root / mount["mountPath"].lstrip("/")
            directory.mkdir(parents=True)
            for item in secret.get("items", [{"key": key, "path": key} for key in data]):
                (directory / item["path"]).write_bytes(base64.b64decode(data[item["key"]]))
    return {entry["name"]: place(entry, root) for entry in container["env"]}


def place(entry: dict[str, Any], root: Path) -> str:
    """An environment variable's value, paths of mounts below `root`."""
    value = str(entry.get("value", "spectrum"))  # the others are the pod's namespace
    return str(root / value.lstrip("/")) if value.startswith("/etc/") else value


def test_the_service_reads_what_the_chart_writes(helm: Helm, tmp_path: Path) -> None:
    settings = ServiceSettings.from_environment(lay_out(helm, "service", tmp_path))
    assert settings.hub_namespace == "spectrum"
    assert (settings.prefix, settings.base_url) == ("/gpu/services/spectrum/", "/gpu/")
    assert settings.api_url == "http://hub.spectrum:8081/gpu/hub/api"
    assert settings.port == 8082
    assert (settings.leaving_grace, settings.idle_minutes) == (60, (12, 20))
    assert settings.contact == "the help desk"
    assert sorted(settings.profiles) == ["cpu-small", "gpu-1", "tensorboard"]
    culling = settings.culling
    assert (culling.enabled, culling.every, culling.concurrency) == (True, 30, 10)
    board, rule = culling.policy.rules
    assert (board.name, board.profiles) == ("tensorboard", {"tensorboard"})
    assert (board.idle, board.evidence) == (timedelta(minutes=240), ("hub",))
    assert (rule.name, rule.gpu, rule.idle) == ("gpu", True, timedelta(minutes=90))
    assert rule.evidence == ("gpu", "cpu", "kernels", "processes")
    assert culling.policy.team_limits == (12, 20)
    assert (culling.prometheus_url, culling.team_prefix) == ("http://prometheus:9090", "spectrum-")
    assert sorted(culling.metrics) == ["cpu", "engine", "memory", "utilisation"]
    secrets = tmp_path / "etc/spectrum/secrets"
    assert settings.api_token == (secrets / "serviceToken").read_text()
    assert settings.writers["hub"] == (secrets / "auditTokenHub").read_text()


def test_the_controller_reads_what_the_chart_writes(helm: Helm, tmp_path: Path) -> None:
    settings = ControllerSettings.from_environment(lay_out(helm, "controller", tmp_path))
    (template,) = settings.templates.values()
    assert (template.name, template.pattern.pattern, template.max) == ("line", "line-.+", 2)
    assert template.spec == {"leads": ["alice"]}
    assert settings.audit.url == "http://service.spectrum:8082/internal/audit"
    assert len(settings.audit.token) == 64
    assert settings.accelerators == ("nvidia.com/gpu",)
    assert settings.storage.share == VolumeSettings(
        enabled=True, size="1Ti", storage_class="rook-cephfs"
    )
    assert settings.storage.bucket.endpoint == "http://rgw.rook-ceph.svc"
    assert [dataset.name for dataset in settings.storage.datasets] == ["digits"]
    keys = [(settings.rgw_secrets / key).read_text() for key in ("AccessKey", "SecretKey")]
    assert keys == ["who", "hush"]
