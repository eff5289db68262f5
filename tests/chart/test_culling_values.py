"""Rules by which servers end: what cannot be meant stops the install, in the service's words."""

import base64
import json
from typing import Any

import pytest
import yaml

from spectrum_spawner.profile_values import read_profiles
from spectrum_spawner.service.culling.metrics import METRICS, MetricError, read_metrics
from spectrum_spawner.service.culling.policy_values import PolicyError, read_policy
from tests.chart.helm import ACCEPTED, CHART, Helm, merge

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
PROFILES = read_profiles(DEFAULTS["profiles"], DEFAULTS["images"])
NIGHTS = {"from": "20:00", "to": "06:00", "idleMinutes": 20}
CPU_RULE = {"order": 200, "gpu": False, "evidence": ["hub"], "idleMinutes": 480}
BOARDS = {"order": 1, "profiles": ["tensorboard"], "evidence": ["hub"]}
UNTIL = "2026-02-28T18:00:00+01:00"


def rule(**fields: Any) -> dict[str, Any]:
    """The shipped rule, changed."""
    return {"rules": {"gpu": fields}}


def schedule(**windows: Any) -> dict[str, Any]:
    return rule(schedule={"timeZone": "Europe/Berlin", "windows": windows})


def exemption(**fields: Any) -> dict[str, Any]:
    return {"exemptions": {"course": {"until": UNTIL, "users": ["alice"], **fields}}}


# Sentences of the chart that the service says in the same words.
CONTRADICTIONS = [
    (rule(idleMinutes=10), "culling.rules.gpu.idleMinutes: must be above warnMinutes"),
    (
        rule(warnMinutes=20),
        "culling.rules.gpu.warnMinutes: must be below the 15 minutes that a team may set",
    ),
    (rule(profiles=["gpu-9"]), "culling.rules.gpu.profiles: there is no profile 'gpu-9'"),
    (
        rule(evidence=[]),
        "culling.rules.gpu.evidence: name what must be idle, of gpu, power, cpu, kernels, "
        "terminals, processes, hub",
    ),
    (
        rule(evidence=["hub", "cpu"]),
        "culling.rules.gpu.evidence: servers of this rule have GPUs, so gpu must be among it",
    ),
    (
        rule(evidence=["gpu", "kernels"]),
        "culling.rules.gpu.evidence: a GPU that waits for data looks idle while a training goes "
        "on, so cpu or processes must be among it",
    ),
    (
        rule(evidence=["gpu", "processes"]),
        "culling.rules.gpu.evidence: a cell that runs would not count, so name kernels or cpu",
    ),
    (rule(gpu=False), "culling.rules.gpu.evidence: the servers of this rule have no GPU"),
    (
        rule(profiles=["cpu-small"]),
        "culling.rules.gpu.evidence: the servers of this rule have no GPU",
    ),
    (
        rule(powerFloor=50),
        "culling.rules.gpu.evidence: powerFloor counts only with power among the evidence",
    ),
    (
        rule(evidence=["gpu", "cpu", "power"]),
        "culling.rules.gpu.evidence: power needs a powerFloor in watts",
    ),
    (rule(lifetimeMinutes=10), "culling.rules.gpu.lifetimeMinutes: must be above warnMinutes"),
    (rule(lifetimeMinutes=15), "culling.rules.gpu.lifetimeMinutes: must be above graceMinutes"),
    (
        rule(lifetimeMinutes=60, minimumMinutes=60),
        "culling.rules.gpu.lifetimeMinutes: must be above minimumMinutes",
    ),
    (
        rule(lifetimeMinutes=60, holdMinutes=61),
        "culling.rules.gpu.holdMinutes: must not be above lifetimeMinutes",
    ),
    (
        schedule(n={**NIGHTS, "to": "20:00"}),
        "culling.rules.gpu.schedule.windows.n: it ends when it begins; a whole day is 00:00 to "
        "24:00",
    ),
    (
        schedule(n={**NIGHTS, "idleMinutes": 9}),
        "culling.rules.gpu.schedule.windows.n.idleMinutes: must be above warnMinutes",
    ),
    (
        schedule(m={**NIGHTS, "days": ["sun"]}, n={**NIGHTS, "from": "05:00", "days": ["mon"]}),
        "culling.rules.gpu.schedule.windows: m and n overlap",
    ),
    (
        {"rules": {"late": {**CPU_RULE, "order": 100}}},
        "culling.rules.late.order: rule gpu has 100 too",
    ),
    (
        {"rules": {"late": {**DEFAULTS["culling"]["rules"]["gpu"], "order": 101}}},
        "culling.rules.late: never counts, since rule gpu comes first and matches whatever it does",
    ),
    (
        {"rules": {"gpu": {"gpu": None}, "late": {**CPU_RULE, "teams": ["ops"]}}},
        "culling.rules.late: never counts, since rule gpu comes first and matches whatever it does",
    ),
    (
        {"tensorboardIdleMinutes": 14},
        "culling.tensorboardIdleMinutes: must be 0, for never, or 15 at least",
    ),
    (
        {"rules": {"boards": BOARDS}},
        "culling.rules.boards: never counts, since culling.tensorboardIdleMinutes comes first; 0 "
        "takes that out",
    ),
    (
        exemption(users=[]),
        "culling.exemptions.course: name users, teams or profiles; it would exempt everybody",
    ),
    (exemption(profiles=["x"]), "culling.exemptions.course.profiles: there is no profile 'x'"),
]

# Refused by the schema, and by the service in other words.
MALFORMED = [
    ({"rules": {"new": {"idleMinutes": 60}}}, "missing property 'order'"),
    (rule(idleMinuts=60), "additional properties 'idleMinuts' not allowed"),
    (rule(idleMinutes="60"), "at '/culling/rules/gpu/idleMinutes': got string, want integer"),
    (rule(idleMinutes=-1), "at '/culling/rules/gpu/idleMinutes': minimum: got -1, want 0"),
    (rule(warnMinutes=0), "at '/culling/rules/gpu/warnMinutes': minimum: got 0, want 1"),
    (rule(unknownMinutes=4), "at '/culling/rules/gpu/unknownMinutes': minimum: got 4, want 5"),
    (rule(gpuFloor=0), "at '/culling/rules/gpu/gpuFloor': exclusiveMinimum: got 0, want 0"),
    (rule(gpuFloor=101), "at '/culling/rules/gpu/gpuFloor': maximum: got 101, want 100"),
    (rule(gpu="yes"), "at '/culling/rules/gpu/gpu': got string"),
    (rule(teams="ops"), "at '/culling/rules/gpu/teams': got string, want array"),
    (rule(evidence=["gpus"]), "at '/culling/rules/gpu/evidence/0': value must be one of 'gpu'"),
    (schedule(n={**NIGHTS, "from": "8pm"}), "'8pm' does not match pattern"),
    (schedule(n={**NIGHTS, "from": "24:00"}), "'24:00' does not match pattern"),
    (schedule(n={**NIGHTS, "to": "24:01"}), "'24:01' does not match pattern"),
    (schedule(n={**NIGHTS, "days": ["sunday"]}), "value must be one of 'mon'"),
    (schedule(n={"from": "20:00", "to": "21:00"}), "missing property 'idleMinutes'"),
    (rule(schedule={"timeZone": "../etc", "windows": {}}), "'../etc' does not match pattern"),
    (exemption(until="2026-02-28T18:00:00"), "'2026-02-28T18:00:00' does not match pattern"),
    (exemption(until="2026-02-28"), "'2026-02-28' does not match pattern"),
    (exemption(forever=True), "additional properties 'forever' not allowed"),
    ({"tensorboardIdleMinutes": -1}, "at '/culling/tensorboardIdleMinutes': minimum: got -1, want"),
    ({"tensorboardIdleMinutes": 527041}, "at '/culling/tensorboardIdleMinutes': maximum: got"),
    ({"tensorboardIdleMinutes": "4 h"}, "at '/culling/tensorboardIdleMinutes': got string, want"),
]

ELSEWHERE = [
    ({"culling": {"every": 5}}, "at '/culling/every': minimum: got 5, want 10"),
    ({"culling": {"concurrency": 0}}, "at '/culling/concurrency': minimum: got 0, want 1"),
    ({"culling": {"dryRun": True}}, "additional properties 'dryRun' not allowed"),
    ({"metrics": {"prometheusUrl": "prometheus:9090"}}, "does not match pattern"),
    ({"metrics": {"prometheusURL": "http://p"}}, "additional properties 'prometheusURL'"),
    (
        {"service": {"idleMinutes": {"min": 10, "max": 60}}},
        "culling.rules.gpu.warnMinutes: must be below the 10 minutes that a team may set",
    ),
    (
        {"service": {"scrapers": [{"namespaceSelector": {}}]}},
        "service.scrapers: a namespaceSelector that selects every namespace",
    ),
    ({"service": {"dashboard": {"enabled": "yes"}}}, "at '/service/dashboard/enabled': got string"),
]

MALFORMED_METRICS = [
    ({"utilisation": {"nmae": "x"}}, "additional properties 'nmae' not allowed"),
    ({"utilisation": {"name": "x-y"}}, "'x-y' does not match pattern"),
    ({"utilisation": {"pod": ""}}, "'' does not match pattern"),
    ({"utilisation": {"source": "tpu"}}, "value must be one of 'gpu', 'power', 'cpu', 'memory'"),
    ({"memory": {"free": "x-y"}}, "'x-y' does not match pattern"),
    ({"utilisation": {"scale": 0}}, "exclusiveMinimum: got 0, want 0"),
    ({"utilisation": "DCGM"}, "at '/metrics/utilisation': got string, want object"),
    ({"rocm": {"name": "gpu_use"}}, "metrics.rocm.source: must be one of gpu, power, cpu, memory"),
    ({"rocm": {"source": "gpu"}}, "metrics.rocm.name: is missing"),
    ({"rocm": {"source": "memory", "name": "used"}}, "metrics.rocm.free: must be there for source"),
    ({"power": {"free": "x"}}, "metrics.power.free: must be there for source memory, and for no"),
    ({"memory": {"source": "gpu"}}, "metrics.memory.free: must be there for source memory, and"),
    ({"cpu": {"only": {"a-b": "c"}}}, "metrics.cpu: 'a-b' is no label's name"),
]


def read(culling: dict[str, Any]) -> None:
    """The policy as the service reads it from the whole of `culling`."""
    keys = ("tensorboardIdleMinutes", "rules", "exemptions")
    read_policy({key: culling[key] for key in keys}, PROFILES)


@pytest.mark.parametrize(("culling", "sentence"), CONTRADICTIONS)
def test_chart_and_service_refuse_what_contradicts_in_the_same_words(
    helm: Helm, culling: dict[str, Any], sentence: str
) -> None:
    assert f": {sentence}\n" in helm.read_refusal(merge(ACCEPTED, {"culling": culling}))
    with pytest.raises(PolicyError) as refused:
        read(merge(DEFAULTS["culling"], culling))
    assert str(refused.value) == sentence


@pytest.mark.parametrize(("culling", "sentence"), MALFORMED)
def test_the_schema_refuses_what_the_service_would(
    helm: Helm, culling: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, {"culling": culling}))
    with pytest.raises(PolicyError):
        read(merge(DEFAULTS["culling"], culling))


@pytest.mark.parametrize(("metrics", "sentence"), MALFORMED_METRICS)
def test_metrics_that_cannot_be_asked_for_stop_the_install(
    helm: Helm, metrics: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, {"metrics": metrics}))
    with pytest.raises(MetricError):
        read_metrics(metrics)


@pytest.mark.parametrize(("values", "sentence"), ELSEWHERE)
def test_other_wrong_values_stop_the_install_with_a_sentence(
    helm: Helm, values: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, values))


MEANT: dict[str, dict[str, Any]] = {
    "nothing but a lifetime": {
        "rules": {"gpu": None, "all": {"order": 1, "idleMinutes": 0, "lifetimeMinutes": 1440}}
    },
    "a narrower rule before a wider one": {
        "rules": {"ops": {**DEFAULTS["culling"]["rules"]["gpu"], "order": 1, "teams": ["ops"]}}
    },
    "both kinds of servers": {"rules": {"cpu": CPU_RULE}},
    "whatever no other rule is for": {
        "rules": {"rest": {"order": 200, "idleMinutes": 0, "lifetimeMinutes": 1440}}
    },
    "a rule of one's own for TensorBoards": {
        "tensorboardIdleMinutes": 0,
        "rules": {"boards": BOARDS},
    },
    "a rule for TensorBoards and others": {
        "rules": {"small": {**BOARDS, "profiles": ["cpu-small", "tensorboard"]}}
    },
    "windows that touch": schedule(
        night={**NIGHTS, "days": ["mon", "tue", "wed", "thu", "fri"]},
        weekend={"days": ["sat", "sun"], "from": "06:00", "to": "24:00", "idleMinutes": 30},
    ),
    "everything": merge(
        rule(
            profiles=["gpu-1"],
            teams=["ops"],
            evidence=["gpu", "power", "cpu", "kernels", "terminals", "processes", "hub"],
            gpuFloor=2.5,
            powerFloor=80,
            cpuFloor=0.5,
            graceMinutes=5,
            minimumMinutes=10,
            lifetimeMinutes=4320,
            warnMinutes=12,
            extendMinutes=30,
            extensions=3,
            holdMinutes=600,
            unknownMinutes=60,
        ),
        exemption(teams=["ops"], profiles=["gpu-1"], reason="Exams."),
    ),
}


@pytest.mark.parametrize("what", MEANT)
def test_what_can_be_meant_comes_to_the_service_as_it_was_written(helm: Helm, what: str) -> None:
    values = read_values(helm, {"culling": MEANT[what]})
    whole = merge(DEFAULTS["culling"], MEANT[what])
    whole["rules"] = {name: each for name, each in whole["rules"].items() if each is not None}
    assert values["culling"] == whole
    read(values["culling"])


def test_metrics_come_to_the_service_as_they_were_written(helm: Helm) -> None:
    usual = read_values(helm, {})["metrics"]
    assert usual == {"prometheusUrl": "", "scrapeSeconds": 30}
    changed = {
        "prometheusUrl": "http://prometheus.monitoring.svc:9090",
        "power": None,
        "utilisation": {"namespace": "namespace", "pod": "pod", "only": {"job": "dcgm"}},
        "memory": {"namespace": "namespace", "pod": "pod"},
        "rocm": {"name": "gpu_use_percent", "source": "gpu", "device": ["gpu_id"], "slice": ""},
        "rocm-memory": {"name": "vram_used", "free": "vram_free", "source": "memory"},
    }
    told = read_values(helm, {"metrics": changed})["metrics"]
    assert told == {**changed, "scrapeSeconds": usual["scrapeSeconds"]}
    del told["prometheusUrl"], told["scrapeSeconds"]
    assert set(read_metrics(told)) == {*METRICS, "rocm", "rocm-memory"} - {"power"}


def test_the_service_knows_where_teams_are(helm: Helm) -> None:
    assert read_values(helm, {})["teamNamespacePrefix"] == "spectrum-"
    chosen = {"teamNamespacePrefix": "teams-"}
    assert read_values(helm, chosen)["teamNamespacePrefix"] == "teams-"


def test_prometheus_reaches_the_service_where_it_is_named(helm: Helm) -> None:
    peers = [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
        }
    ]

    def ingress(**service: Any) -> Any:
        values = merge(ACCEPTED, {"service": service})
        return helm.find("NetworkPolicy", "service", values)["spec"]["ingress"]

    ports = [{"protocol": "TCP", "port": 8082}]
    assert ingress(scrapers=peers) == [*ingress(), {"ports": ports, "from": peers}]


def test_a_dashboard_is_made_for_grafana_where_it_is_wanted(helm: Helm) -> None:
    wanted = {"enabled": True, "annotations": {"grafana_folder": "GPUs"}}
    values = merge(ACCEPTED, {"service": {"dashboard": wanted}})
    dashboard = helm.find("ConfigMap", "dashboard", values)
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "GPUs"}
    assert all(json.loads(text)["panels"] for text in dashboard["data"].values())


def read_values(helm: Helm, values: dict[str, Any]) -> dict[str, Any]:
    secret = helm.find("Secret", "service", merge(ACCEPTED, values))
    return json.loads(base64.b64decode(secret["data"]["values.json"]))
