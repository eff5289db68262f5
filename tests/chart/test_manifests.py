"""Everything that the chart makes, whole, and what holds for all of it."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from spectrum_spawner import names
from tests.chart.helm import ACCEPTED, OAUTH, Helm, mask, merge

GOLDEN = Path(__file__).parent / "golden"

TEAMS = {
    "auth": {"groups": {"flight": ["alice"], "ops": ["alice", "bob"]}, "users": ["carol"]},
    "teams": {
        "flight": {
            "displayName": "Flight",
            "groups": ["flight"],
            "leads": ["alice"],
            "leadGroups": ["flight-leads"],
            "profiles": ["gpu-1"],
            "defaultProfile": "gpu-1",
            "idle": {"minutes": 60},
            "quota": {
                "cpu": "16",
                "memory": "32Gi",
                "pods": 20,
                "gpus": {"nvidia.com/gpu": 2, "nvidia.com/mig-1g.10gb": 0},
                "storage": {"rook-cephfs": {"size": "1Ti", "claims": 50}},
            },
            "storage": {
                "home": {"size": "20Gi", "storageClass": "standard"},
                "share": {"enabled": False},
                "scratch": {"size": "100Gi"},
                "bucket": {"size": "1Ti", "objects": 100000},
            },
        },
        "ops": {},
    },
    "teamTemplates": {
        "line": {
            "pattern": "business/[a-z]+",
            "max": 20,
            "spec": {"leadGroups": ["leads"], "quota": {"gpus": {"nvidia.com/gpu": 1}}},
        },
    },
}
FULL = merge(ACCEPTED, TEAMS)


def describe(manifest: dict[str, Any]) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]


def read_golden() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((GOLDEN / "release.yaml").read_text()))


def pods(manifests: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            yield manifest["metadata"]["name"], manifest["spec"]["template"]


@pytest.fixture(scope="module")
def manifests(helm: Helm) -> list[dict[str, Any]]:
    return [mask(manifest) for manifest in helm.render(FULL)]


def test_the_release_is_made_of_these_objects_and_no_others(
    manifests: list[dict[str, Any]],
) -> None:
    assert sorted(map(describe, manifests)) == sorted(map(describe, read_golden()))


@pytest.mark.parametrize("expected", read_golden(), ids=lambda found: "-".join(describe(found)))
def test_each_object_is_the_golden_one(
    manifests: list[dict[str, Any]], expected: dict[str, Any]
) -> None:
    (found,) = (m for m in manifests if describe(m) == describe(expected))
    assert found == expected


def test_a_chart_without_choices_passes_lint(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm.lint()


def test_every_pod_passes_the_restricted_standard(manifests: list[dict[str, Any]]) -> None:
    for name, pod in pods(manifests):
        assert pod["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }, name
        for container in pod["spec"]["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, name


def test_only_the_proxy_holds_no_kubernetes_token(manifests: list[dict[str, Any]]) -> None:
    assert {name: pod["spec"]["automountServiceAccountToken"] for name, pod in pods(manifests)} == {
        "hub": True,
        "controller": True,
        "service": True,
        "proxy": False,
    }


@pytest.mark.parametrize(
    ("values", "sign_in"),
    [(ACCEPTED, ["userPassword", "adminPassword"]), (OAUTH, ["oauthClientSecret"])],
    ids=["shared-password", "oauth"],
)
def test_each_pod_mounts_the_secrets_that_it_needs(
    helm: Helm, values: dict[str, Any], sign_in: list[str]
) -> None:
    assert {name: find_secrets(pod) for name, pod in pods(helm.render(values))} == {
        "hub": [
            "proxyToken",
            "cookieSecret",
            "cryptKey",
            "serviceToken",
            "auditTokenHub",
            *sign_in,
        ],
        "service": ["serviceToken", "serviceCookieSecret", "auditTokenHub", "auditTokenController"],
        "controller": ["auditTokenController"],
        "proxy": [],
    }


def find_secrets(pod: dict[str, Any]) -> list[str]:
    """Keys of the Secret `hub` that a pod has as files; each is called as its key is."""
    found = [v["secret"] for v in pod["spec"]["volumes"] if v["name"] == "secrets"]
    items = [item for secret in found for item in secret["items"]]
    assert all(item["key"] == item["path"] for item in items)
    assert {secret["secretName"] for secret in found} <= {"hub"}
    return [item["key"] for item in items]


def test_the_client_secret_is_nowhere_but_in_the_secret(helm: Helm) -> None:
    manifests = helm.render(merge(OAUTH, {"auth": {"oauth": {"clientSecret": "hush-hush"}}}))
    holders = [describe(m) for m in manifests if "hush-hush" in str(m) or "aHVzaC1odXNo" in str(m)]
    assert holders == [("Secret", "hub")]


def test_a_database_elsewhere_needs_no_claim_and_its_url_is_a_secret(helm: Helm) -> None:
    url = "postgresql://spectrum:hush@db.example.org/spectrum"
    manifests = helm.render(merge(ACCEPTED, {"service": {"db": {"url": url}}}))
    assert ("PersistentVolumeClaim", "service-db") not in map(describe, manifests)
    assert url not in str(manifests)
    (secret,) = (m for m in manifests if describe(m) == ("Secret", "service"))
    values = json.loads(base64.b64decode(secret["data"]["values.json"]))
    assert values["service"]["dbUrl"] == url


def test_the_service_reads_what_the_contract_with_it_says(helm: Helm) -> None:
    secret = helm.find("Secret", "service", FULL)
    values = json.loads(base64.b64decode(secret["data"]["values.json"]))
    known = {"hub", "service", "auth", "images", "profiles", "culling", "gpuHours", "metrics"}
    assert values.keys() == {*known, "teamNamespacePrefix"}
    assert values["hub"] == {"baseUrl": "/"}
    assert values["auth"] == {"contact": "your cluster administrators"}
    assert values["service"] == {
        "dbUrl": "",
        "leavingGrace": 3600,
        "idleMinutes": {"min": 15, "max": 480},
    }


def test_the_hub_may_make_teams_only_where_templates_are(helm: Helm) -> None:
    def verbs(values: dict[str, Any]) -> set[str]:
        rules = helm.find("Role", "hub", values)["rules"]
        return {verb for rule in rules if "teams" in rule["resources"] for verb in rule["verbs"]}

    assert verbs(ACCEPTED) == {"get", "list", "watch"}
    assert verbs(FULL) == {"get", "list", "watch", "create"}


def test_the_controller_knows_the_templates(helm: Helm) -> None:
    spec = helm.find("Deployment", "controller", FULL)["spec"]["template"]["spec"]
    environment = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert json.loads(str(environment["TEAM_TEMPLATES"])) == TEAMS["teamTemplates"]


def test_nothing_runs_twice_even_during_an_upgrade(manifests: list[dict[str, Any]]) -> None:
    for manifest in manifests:
        if manifest["kind"] == "Deployment":
            assert manifest["spec"]["replicas"] == 1
            assert manifest["spec"]["strategy"] == {"type": "Recreate"}


def test_every_selector_finds_the_pods_of_its_name(manifests: list[dict[str, Any]]) -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in pods(manifests)}
    for manifest in manifests:
        name = manifest["metadata"]["name"].split("-")[0]
        if manifest["kind"] == "Service":
            assert manifest["spec"]["selector"] == labels[name]
        if manifest["kind"] == "NetworkPolicy":
            assert manifest["spec"]["podSelector"]["matchLabels"] == labels[name]


def test_no_rule_has_a_wildcard_and_one_reaches_secrets_of_one_name(
    manifests: list[dict[str, Any]],
) -> None:
    reaching = []
    for manifest in manifests:
        for rule in manifest.get("rules", []):
            words = [word for part in rule.values() for word in part]
            assert not {"*", "escalate", "impersonate"} & set(words), describe(manifest)
            if "secrets" in rule["resources"]:
                names_ = rule.get("resourceNames", [])
                reaching.append((*describe(manifest), names_, rule["verbs"]))
    controller = ("ClusterRole", "spectrum-controller")
    assert reaching == [
        (*controller, [], ["create"]),
        (*controller, ["spectrum-bucket"], ["get", "list", "watch", "patch", "delete"]),
    ]


def test_the_controller_alone_is_bound_over_the_cluster(manifests: list[dict[str, Any]]) -> None:
    bindings = [m for m in manifests if m["kind"] == "ClusterRoleBinding"]
    assert [(b["roleRef"]["name"], b["subjects"]) for b in bindings] == [
        (
            "spectrum-controller",
            [{"kind": "ServiceAccount", "name": "controller", "namespace": "spectrum"}],
        )
    ]


def test_a_policy_holds_the_controller_to_teams_wherever_its_cluster_role_lets_it_write(
    manifests: list[dict[str, Any]],
) -> None:
    (role,) = (m for m in manifests if describe(m) == ("ClusterRole", "spectrum-controller"))
    writing = {"create", "update", "patch", "delete", "deletecollection"}
    written = {
        (group, resource)
        for rule in role["rules"]
        if writing & set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    policy = ("ValidatingAdmissionPolicy", "spectrum-controller")
    (spec,) = (m["spec"] for m in manifests if describe(m) == policy)
    matched = set()
    for rule in spec["matchConstraints"]["resourceRules"]:
        assert rule["operations"] == ["CREATE", "UPDATE", "DELETE"]
        matched |= {(group, name) for group in rule["apiGroups"] for name in rule["resources"]}
    # the one of teams alone, by its name
    definition = ("apiextensions.k8s.io", "customresourcedefinitions")
    assert written - {definition} == matched


def test_two_releases_share_no_name_outside_their_namespaces(helm: Helm) -> None:
    def outside(namespace: str) -> set[tuple[str, str]]:
        found = helm.render(FULL, namespace=namespace)
        return {describe(m) for m in found if "namespace" not in m["metadata"]}

    assert len(outside("one")) == 8
    assert not outside("one") & outside("two")


def test_the_roles_that_the_controller_binds_are_those_that_the_package_names(helm: Helm) -> None:
    for role in (names.hub_role_in_team("physics"), names.service_role_in_team("physics")):
        assert helm.find("ClusterRole", role, namespace="physics")["rules"]


def test_a_base_url_reaches_probes_and_error_pages(helm: Helm) -> None:
    values = merge(ACCEPTED, {"hub": {"baseUrl": "/spectrum/"}})
    (hub,) = helm.find("Deployment", "hub", values)["spec"]["template"]["spec"]["containers"]
    (proxy,) = helm.find("Deployment", "proxy", values)["spec"]["template"]["spec"]["containers"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert hub[probe]["httpGet"]["path"] == "/spectrum/hub/health"
    (service,) = helm.find("Deployment", "service", values)["spec"]["template"]["spec"][
        "containers"
    ]
    environment = {entry["name"]: entry.get("value") for entry in service["env"]}
    assert environment["JUPYTERHUB_SERVICE_PREFIX"] == "/spectrum/services/spectrum/"
    assert environment["JUPYTERHUB_API_URL"] == "http://hub.spectrum:8081/spectrum/hub/api"
    assert "--error-target=http://hub.spectrum:8081/spectrum/hub/error" in proxy["args"]


def test_a_node_port_is_the_one_asked_for(helm: Helm) -> None:
    values = merge(ACCEPTED, {"proxy": {"service": {"type": "NodePort", "nodePort": 30080}}})
    spec = helm.find("Service", "proxy-public", values)["spec"]
    assert spec["type"] == "NodePort"
    assert spec["ports"] == [{"name": "http", "port": 80, "targetPort": "http", "nodePort": 30080}]


@pytest.mark.parametrize("name", ["controller", "service"])
def test_controller_and_service_run_the_hubs_image_unless_they_are_given_one(
    helm: Helm, name: str
) -> None:
    def image(**component: Any) -> str:
        values = merge(ACCEPTED, {"hub": {"image": {"tag": "1.2"}}, name: component})
        spec = helm.find("Deployment", name, values)["spec"]["template"]["spec"]
        return str(spec["containers"][0]["image"])

    assert image() == "localhost/spectrum/hub:1.2"
    assert image(image={"tag": "1.3"}) == "localhost/spectrum/hub:1.3"


def test_quotas_will_name_every_accelerator_that_a_profile_can_ask_for(helm: Helm) -> None:
    more = {"slice": {"gpu": 1, "gpuResource": "nvidia.com/mig-1g.10gb", "images": ["tensorflow"]}}
    values = merge(ACCEPTED, {"profiles": more})
    spec = helm.find("Deployment", "controller", values)["spec"]["template"]["spec"]
    environment = {entry["name"]: entry.get("value") for entry in spec["containers"][0]["env"]}
    assert environment["ACCELERATORS"] == '["nvidia.com/gpu","nvidia.com/mig-1g.10gb"]'


def test_fences_can_be_left_out(helm: Helm) -> None:
    values = merge(ACCEPTED, {"networkPolicy": {"enabled": False}})
    assert "NetworkPolicy" not in {manifest["kind"] for manifest in helm.render(values)}


def test_a_change_of_the_hubs_values_restarts_the_hub_and_nothing_else(helm: Helm) -> None:
    def templates(values: dict[str, Any]) -> dict[str, Any]:
        rendered = dict(pods(helm.render(values)))
        for name, pod in rendered.items():
            # Made anew by each `helm template`, which has no cluster to look the Secret up in.
            for of_secret in ("checksum/secret", "checksum/token"):
                pod["metadata"].get("annotations", {}).pop(of_secret, name)
        return rendered

    before = templates(FULL)
    after = templates(merge(FULL, {"auth": {"groups": {"ops": ["bob"]}}}))
    assert [name for name in before if before[name] != after[name]] == ["hub"]
