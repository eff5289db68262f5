"""Teams and databases that outlive an upgrade, an uninstall, and values without them."""

import json

from tests.chart.helm import merge
from tests.chart.release import FULL, Release


def test_what_was_granted_and_chosen_for_a_team_outlives_an_upgrade(release: Release) -> None:
    release.upgrade()
    grant = {"profiles": ["gpu-1"], "until": "2030-01-31T18:00:00Z", "approvedBy": "admin"}
    chosen = {"grants": {"r1": grant}, "defaultProfile": "gpu-1", "idle": {"minutes": 60}}
    patch = json.dumps({"spec": chosen})
    release.kubectl("patch", "team", "ops", "--type=merge", "--patch", patch)
    release.upgrade(merge(FULL, {"teams": {"ops": {"quota": {"cpu": "1"}}}}))
    assert release.get("team", "ops")["spec"] == {"quota": {"cpu": "1"}, **chosen}


def test_teams_come_with_the_values_and_stay_until_they_are_deleted(release: Release) -> None:
    assert "delete team" not in release.upgrade()
    assert release.names("teams") == ["flight", "ops"]
    assert release.get("team", "ops")["spec"] == {"quota": {"cpu": "500m"}}
    without = merge(FULL, {"teams": {"ops": None}})
    notes = release.upgrade(without)
    assert release.names("teams") == ["flight", "ops"]
    assert f"kubectl -n {release.namespace} delete team ops\n" in notes
    release.kubectl("delete", "team", "ops")
    assert "delete team" not in release.upgrade(without)


def test_an_uninstall_leaves_both_databases_and_an_install_takes_them_up(
    release: Release,
) -> None:
    def read_uids() -> list[str]:
        return [release.get("pvc", name)["metadata"]["uid"] for name in release.names("pvc")]

    release.upgrade()
    before = read_uids()
    release.uninstall()
    assert release.names("pvc") == ["hub-db", "service-db"]
    assert release.names("deployments") == []
    release.upgrade()
    assert read_uids() == before


def test_teams_outlive_an_uninstall_and_an_install_takes_them_up(release: Release) -> None:
    def read_uids() -> dict[str, str]:
        return {
            name: release.get("team", name)["metadata"]["uid"] for name in release.names("teams")
        }

    release.upgrade()
    team = {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": "asked-for"},
        "spec": {"groups": ["vision"]},
    }
    release.kubectl("create", "-f", "-", text=json.dumps(team))
    before = read_uids()
    release.uninstall()
    release.upgrade()
    assert read_uids() == before
    assert sorted(before) == ["asked-for", "flight", "ops"]


def test_audit_in_a_database_elsewhere_leaves_the_claim_of_before_alone(release: Release) -> None:
    release.upgrade()
    release.upgrade(merge(FULL, {"service": {"db": {"url": "postgresql://db.example.org/s"}}}))
    assert release.names("pvc") == ["hub-db", "service-db"]
    volumes = release.get("deployment", "service")["spec"]["template"]["spec"]["volumes"]
    assert [volume["name"] for volume in volumes] == ["values", "secrets", "tmp"]
