"""What the controller makes, whose a namespace is, and what counts as drift."""

import copy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spectrum_spawner.controller.crd import read_definition
from spectrum_spawner.controller.drift import exact_patch, mending_patch
from spectrum_spawner.controller.objects import TeamSpace, make_children, make_namespace
from spectrum_spawner.controller.ownership import (
    Claim,
    claim_of,
    explain,
    is_of_team,
    is_to_be_purged,
)
from spectrum_spawner.controller.settings import (
    AuditRules,
    NetworkRules,
    Settings,
    SettingsError,
)
from spectrum_spawner.controller.status import make_condition, make_status, status_patch
from spectrum_spawner.controller.storage_settings import StorageSettings, VolumeSettings
from spectrum_spawner.quantities import quantity

CHECKOUT = Path(__file__).resolve().parents[1]

SPACE = TeamSpace(
    hub_namespace="spectrum",
    team="flight",
    uid="uid-1",
    namespace="spectrum-flight",
    gid=100003,
)
SETTINGS = Settings(
    hub_namespace="spectrum",
    prefix="spectrum-",
    accelerators=("nvidia.com/gpu", "nvidia.com/mig-1g.10gb"),
    network=NetworkRules(internet_except=("10.0.0.0/8", "169.254.0.0/16")),
)
LABELS = {
    "app.kubernetes.io/managed-by": "spectrum",
    "spectrum.dev/hub": "spectrum",
    "spectrum.dev/team": "flight",
}
OWNER = {
    "spectrum.dev/owner-hub": "spectrum",
    "spectrum.dev/owner-team": "flight",
    "spectrum.dev/owner-team-uid": "uid-1",
}
QUOTA = {"cpu": 16, "memory": "32Gi", "pods": 20, "gpus": {"nvidia.com/gpu": 2}}


def metadata(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "namespace": "spectrum-flight",
        "labels": LABELS,
        "annotations": OWNER,
    }


def component(name: str) -> dict[str, Any]:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "spectrum"}},
        "podSelector": {
            "matchLabels": {
                "app.kubernetes.io/name": "spectrum",
                "app.kubernetes.io/component": name,
            }
        },
    }


def tcp(port: int) -> list[dict[str, Any]]:
    return [{"protocol": "TCP", "port": port}]


def test_the_namespace_carries_its_owner_and_the_restricted_standard() -> None:
    assert make_namespace(SPACE) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": "spectrum-flight",
            "labels": {
                **LABELS,
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
            "annotations": {**OWNER, "spectrum.dev/gid": "100003"},
        },
    }


def test_a_team_namespace_holds_these_objects_and_the_hubs_role_comes_last() -> None:
    assert make_children(SPACE, QUOTA, SETTINGS) == [
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": metadata("spectrum"),
            "spec": {
                "hard": {
                    "requests.cpu": "16",
                    "requests.memory": "32Gi",
                    "pods": "20",
                    "requests.nvidia.com/gpu": "2",
                    "requests.nvidia.com/mig-1g.10gb": "0",
                }
            },
        },
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": metadata("spectrum"),
            "spec": {
                "limits": [
                    {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "128Mi"}}
                ]
            },
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata("spectrum-default-deny"),
            "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
        },
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata("spectrum-allow"),
            "spec": {
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {"from": [component("hub"), component("proxy")], "ports": tcp(8888)},
                    {"from": [{"podSelector": {}}]},
                ],
                "egress": [
                    {"to": [{"podSelector": {}}]},
                    {"to": [component("hub")], "ports": tcp(8081)},
                    {"to": [component("proxy")], "ports": tcp(8000)},
                    {
                        "to": [
                            {
                                "namespaceSelector": {
                                    "matchLabels": {"kubernetes.io/metadata.name": "kube-system"}
                                }
                            }
                        ],
                        "ports": [{"protocol": "UDP", "port": 53}, *tcp(53)],
                    },
                    {
                        "to": [
                            {
                                "ipBlock": {
                                    "cidr": "0.0.0.0/0",
                                    "except": ["10.0.0.0/8", "169.254.0.0/16"],
                                }
                            }
                        ]
                    },
                ],
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": metadata("spectrum-server"),
            "automountServiceAccountToken": False,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata("spectrum-service"),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "spectrum-service-in-team",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "service", "namespace": "spectrum"}],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata("spectrum-hub"),
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "spectrum-hub-in-team",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "hub", "namespace": "spectrum"}],
        },
    ]


def hard_of(quota: dict[str, Any]) -> Any:
    return make_children(SPACE, quota, SETTINGS)[0]["spec"].get("hard")


def test_a_team_without_a_gpu_table_is_not_limited_in_gpus() -> None:
    assert hard_of({"pods": 3}) == {"pods": "3"}
    assert hard_of({}) is None


def test_an_empty_gpu_table_allows_no_gpu_by_whatever_name() -> None:
    assert hard_of({"gpus": {}}) == {
        "requests.nvidia.com/gpu": "0",
        "requests.nvidia.com/mig-1g.10gb": "0",
    }


def test_a_storage_quota_counts_by_class() -> None:
    storage = {"rook-cephfs": {"size": "1Ti", "claims": 50}, "rook-ceph-block": {"claims": 0}}
    assert hard_of({"storage": storage}) == {
        "rook-cephfs.storageclass.storage.k8s.io/requests.storage": "1Ti",
        "rook-cephfs.storageclass.storage.k8s.io/persistentvolumeclaims": "50",
        "rook-ceph-block.storageclass.storage.k8s.io/persistentvolumeclaims": "0",
    }
    assert hard_of({"storage": {"fast": {"size": "10Gi"}}}) == {
        "fast.storageclass.storage.k8s.io/requests.storage": "10Gi"
    }


def test_without_network_rules_there_are_no_policies_and_without_internet_no_rule_for_it() -> None:
    off = Settings(hub_namespace="a", prefix="a-", network=NetworkRules(enabled=False))
    assert "NetworkPolicy" not in [child["kind"] for child in make_children(SPACE, {}, off)]
    inside = Settings(hub_namespace="a", prefix="a-", network=NetworkRules(internet=False))
    allow = make_children(SPACE, {}, inside)[3]
    assert not [rule for rule in allow["spec"]["egress"] if "ipBlock" in rule["to"][0]]


@pytest.mark.parametrize(
    ("live", "change", "patch"),
    [
        pytest.param({"hard": {"pods": "20"}}, {}, {}, id="as wanted"),
        pytest.param(
            {"hard": {"pods": "99"}}, {}, {"spec": {"hard": {"pods": "20"}}}, id="another number"
        ),
        pytest.param(
            {"hard": {"pods": "20", "services": "1"}},
            {},
            {"spec": {"hard": {"services": None}}},
            id="one entry more",
        ),
        pytest.param({}, {}, {"spec": {"hard": {"pods": "20"}}}, id="entry gone"),
        pytest.param(
            {"hard": {"pods": "20"}},
            {"labels": {"spectrum.dev/hub": "other", "cost": "42"}},
            {"metadata": {"labels": {"spectrum.dev/hub": "spectrum"}}},
            id="our label changed, others' kept",
        ),
    ],
)
def test_drift_is_mended_and_what_others_add_beside_it_is_not_drift(
    live: dict[str, Any], change: dict[str, Any], patch: dict[str, Any]
) -> None:
    wanted = {
        "kind": "ResourceQuota",
        "metadata": {"labels": {"spectrum.dev/hub": "spectrum"}},
        "spec": {"hard": {"pods": "20"}},
    }
    found = {"metadata": {"labels": {"spectrum.dev/hub": "spectrum"}, **change}, "spec": live}
    assert mending_patch(found, wanted) == patch


def test_objects_that_came_back_from_the_server_need_no_mending() -> None:
    for wanted in make_children(SPACE, QUOTA, SETTINGS):
        live = copy.deepcopy(wanted)
        live["metadata"].update(uid="1", resourceVersion="5", labels={**LABELS, "more": "x"})
        live["status"] = {"hard": {}}
        del live["kind"], live["apiVersion"]
        assert mending_patch(live, wanted) == {}


def test_quantities_are_compared_by_value() -> None:
    assert exact_patch({"cpu": "500m", "memory": "1Gi"}, {"cpu": "0.5", "memory": "1024Mi"}) == {}
    assert exact_patch({"cpu": "500m"}, {"cpu": "0.6"}) == {"cpu": "0.6"}
    assert quantity("1.5Gi") == 3 * 2**29
    assert (quantity("1e3"), quantity("2E"), quantity("5u")) == (1000, 2 * 10**18, Decimal("5e-6"))
    with pytest.raises(ValueError, match="no quantity"):
        quantity("16GB")


def team(**annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "flight",
            "uid": "uid-1",
            "generation": 4,
            "annotations": annotations,
        }
    }


def namespace(name: str = "spectrum-flight", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": {**OWNER, **more.pop("marks", {})}, **more}}


UNMARKED = {"metadata": {"name": "kube-system", "labels": LABELS}}


@pytest.mark.parametrize(
    ("live", "claim"),
    [
        pytest.param(None, Claim.FREE, id="absent"),
        pytest.param(namespace(), Claim.OURS, id="all marks are right"),
        pytest.param(UNMARKED, Claim.TAKEN, id="labels prove nothing"),
        pytest.param(
            namespace(marks={"spectrum.dev/owner-hub": "spectrum-test"}),
            Claim.TAKEN,
            id="another hub's",
        ),
        pytest.param(
            namespace(marks={"spectrum.dev/owner-team": "ops"}), Claim.TAKEN, id="another team's"
        ),
        pytest.param(
            namespace(marks={"spectrum.dev/owner-team-uid": ""}), Claim.TAKEN, id="without uid"
        ),
        pytest.param(
            namespace(marks={"spectrum.dev/owner-team-uid": "uid-0"}),
            Claim.ORPHANED,
            id="an earlier team's",
        ),
        pytest.param(
            namespace(deletionTimestamp="2026-01-01T00:00:00Z"),
            Claim.TERMINATING,
            id="being deleted",
        ),
    ],
)
def test_a_namespace_is_a_teams_only_if_every_owner_mark_says_so(live: Any, claim: Claim) -> None:
    assert claim_of(live, hub_namespace="spectrum", team=team()) is claim


def test_an_orphan_is_taken_over_only_by_its_full_name() -> None:
    left = namespace(marks={"spectrum.dev/owner-team-uid": "uid-0"})
    right = team(**{"spectrum.dev/adopt-orphan": "spectrum-flight"})
    wrong = team(**{"spectrum.dev/adopt-orphan": "spectrum-ops"})
    assert claim_of(left, hub_namespace="spectrum", team=right) is Claim.OURS
    assert claim_of(left, hub_namespace="spectrum", team=wrong) is Claim.ORPHANED


def test_adoption_does_not_reach_foreign_namespaces() -> None:
    greedy = team(**{"spectrum.dev/adopt-orphan": "kube-system"})
    assert claim_of(UNMARKED, hub_namespace="spectrum", team=greedy) is Claim.TAKEN
    assert not is_of_team(UNMARKED, hub_namespace="spectrum", team="flight")


@pytest.mark.parametrize(
    ("marks", "purged"),
    [
        ({}, False),
        ({"spectrum.dev/purge": "spectrum-flight"}, False),
        ({"spectrum.dev/orphaned-at": "2026-01-01T00:00:00Z"}, False),
        ({"spectrum.dev/orphaned-at": "x", "spectrum.dev/purge": "true"}, False),
        ({"spectrum.dev/orphaned-at": "x", "spectrum.dev/purge": "spectrum-flight"}, True),
    ],
)
def test_data_is_purged_only_when_orphaned_and_named(marks: dict[str, str], purged: bool) -> None:
    assert is_to_be_purged(namespace(marks=marks)) is purged


def test_refusals_say_whose_the_namespace_is_and_what_to_do() -> None:
    assert explain(Claim.TAKEN, UNMARKED) == (
        "Namespace kube-system exists and is not Spectrum's, so nothing in it is touched. "
        "Give the team another name, or remove the namespace."
    )
    other = namespace(marks={"spectrum.dev/owner-hub": "lab"})
    assert explain(Claim.TAKEN, other) == (
        "Namespace spectrum-flight exists and belongs to team flight of the hub in lab, so "
        "nothing in it is touched. Give the team another name, or remove the namespace."
    )


READY = make_condition("Ready", True, "Reconciled", "Namespace spectrum-flight is ready.")


def test_the_status_shows_gpus_as_kubernetes_counts_them() -> None:
    quota = {
        "status": {
            "hard": {"pods": "20", "requests.cpu": "16", "requests.nvidia.com/gpu": "2"},
            "used": {"pods": "1", "requests.cpu": "500m", "requests.nvidia.com/gpu": "1"},
        }
    }
    status = make_status(
        team(), conditions=[READY], namespace="spectrum-flight", gid=100003, quota=quota
    )
    assert status == {
        "observedGeneration": 4,
        "conditions": [READY],
        "namespace": "spectrum-flight",
        "gid": 100003,
        "usage": {"gpus": {"nvidia.com/gpu": {"used": 1, "hard": 2}}},
        "gpus": "1/2",
    }


def test_a_status_that_is_right_is_not_written_again() -> None:
    wanted = make_status(team(), conditions=[READY], namespace="spectrum-flight", gid=100003)
    fresh = team()
    fresh["status"] = status_patch(fresh, wanted, now="2026-01-01T00:00:00Z")
    assert fresh["status"]["conditions"] == [
        {**READY, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    ]
    assert status_patch(fresh, wanted, now="2026-02-02T00:00:00Z") == {}


def test_a_condition_that_turns_gets_a_new_time_and_stale_parts_are_removed() -> None:
    before = team()
    before["status"] = {
        "observedGeneration": 4,
        "conditions": [{**READY, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "gpus": "1/2",
    }
    refused = make_condition("Ready", False, "NamespaceTaken", "No.")
    patch = status_patch(
        before, make_status(team(), conditions=[refused]), now="2026-02-02T00:00:00Z"
    )
    assert patch == {
        "conditions": [{**refused, "lastTransitionTime": "2026-02-02T00:00:00Z"}],
        "gpus": None,
    }


def test_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    (tmp_path / "auditTokenController").write_text("secret\n")
    assert Settings.from_environment(
        {
            "HUB_NAMESPACE": "spectrum",
            "AUDIT_URL": "http://service.spectrum:8082/internal/audit",
            "SPECTRUM_SECRETS": str(tmp_path),
            "ACCELERATORS": '["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/gpu"]',
            "NETWORK_POLICY": '{"enabled": true, "internet": {"except": ["10.0.0.0/8"]}}',
            "STORAGE": '{"share": {"enabled": true, "size": "50Gi"}}',
            "RGW_SECRETS": "/run/gateway",
            "TEAM_GIDS": "200000-200009",
        }
    ) == Settings(
        hub_namespace="spectrum",
        prefix="spectrum-",
        accelerators=("amd.com/gpu", "nvidia.com/gpu"),
        network=NetworkRules(internet_except=("10.0.0.0/8", "169.254.0.0/16")),
        storage=StorageSettings(share=VolumeSettings(enabled=True, size="50Gi")),
        rgw_secrets=Path("/run/gateway"),
        audit=AuditRules(url="http://service.spectrum:8082/internal/audit", token="secret"),
        first_gid=200000,
        last_gid=200009,
    )


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HUB_NAMESPACE", ""),
        ("TEAM_NAMESPACE_PREFIX", "Team_"),
        ("TEAM_NAMESPACE_PREFIX", "x" * 41),
        ("ACCELERATORS", "nvidia.com/gpu"),
        ("ACCELERATORS", '["gpu"]'),
        ("NETWORK_POLICY", '{"internet": {"except": ["10.0.0.1/8"]}}'),
        ("NETWORK_POLICY", '{"internet": {"except": ["0.0.0.0/0"]}}'),
        ("NETWORK_POLICY", '{"internet": {"except": [10]}}'),
        ("NETWORK_POLICY", "[]"),
        ("TEAM_TEMPLATES", "research"),
        ("TEAM_TEMPLATES", '{"research": {"pattern": "(a+)+", "max": 1}}'),
        ("STORAGE", "50Gi"),
        ("STORAGE", '{"share": {"size": 50}}'),
        ("SPECTRUM_SECRETS", "/nowhere"),
        ("TEAM_GIDS", "0-10"),
        ("TEAM_GIDS", "200000"),
        ("TEAM_GIDS", "200000-100000"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable}: "):
        Settings.from_environment({"HUB_NAMESPACE": "spectrum", "AUDIT_URL": "x", variable: value})


def test_the_chart_installs_the_definition_that_the_controller_knows() -> None:
    chart = (CHECKOUT / "helm/spectrum/crds/teams.yaml").read_text()
    package = (CHECKOUT / "spectrum_spawner/controller/teams-crd.yaml").read_text()
    assert chart == package
    assert read_definition()["metadata"]["name"] == "teams.spectrum.dev"
