"""Releases on a real API server: secrets that an upgrade keeps, and what it tells."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from local.binaries import ensure_kube
from tests.chart.helm import OAUTH, Helm, HelmError, merge
from tests.chart.release import FULL, Release

DEPLOYMENTS = ("hub", "proxy", "controller", "service")


def test_the_first_install_makes_every_secret(release: Release) -> None:
    release.upgrade()
    secrets = release.secrets()
    assert {key: len(text) for key, text in secrets.items()} == {
        "proxyToken": 64,
        "cookieSecret": 64,
        "cryptKey": 64,
        "userPassword": 16,
        "adminPassword": 40,
        "serviceToken": 64,
        "serviceCookieSecret": 64,
        "auditTokenHub": 64,
        "auditTokenController": 64,
    }
    for key in ("cookieSecret", "cryptKey", "serviceCookieSecret"):
        assert len(bytes.fromhex(secrets[key])) == 32
    assert len(set(secrets.values())) == len(secrets)


def test_an_upgrade_keeps_the_secrets_and_restarts_nothing(release: Release) -> None:
    release.upgrade()
    before = release.secrets(), *map(release.annotations, DEPLOYMENTS)
    release.upgrade()
    assert (release.secrets(), *map(release.annotations, DEPLOYMENTS)) == before


def test_a_password_that_an_administrator_changed_is_kept_and_restarts_the_hub_alone(
    release: Release,
) -> None:
    release.upgrade()
    before = {name: release.annotations(name) for name in DEPLOYMENTS}
    changed = json.dumps({"stringData": {"userPassword": "correct horse battery"}})
    release.kubectl("patch", "secret", "hub", "--patch", changed)

    release.upgrade()

    assert release.secrets()["userPassword"] == "correct horse battery"
    assert [name for name in before if release.annotations(name) != before[name]] == ["hub"]


@pytest.mark.parametrize(
    ("change", "restarted"),
    [
        ({"op": "remove", "path": "/data/cryptKey"}, ["hub"]),
        ({"op": "remove", "path": "/data/auditTokenController"}, ["controller", "service"]),
        ({"op": "replace", "path": "/data/serviceToken", "value": ""}, ["hub", "service"]),
    ],
    ids=lambda given: given["path"] if isinstance(given, dict) else "",
)
def test_a_secret_that_is_missing_or_empty_is_made_and_the_others_stay(
    release: Release, change: dict[str, str], restarted: list[str]
) -> None:
    release.upgrade()
    secrets = release.secrets()
    before = {name: release.annotations(name) for name in DEPLOYMENTS}
    release.kubectl("patch", "secret", "hub", "--type=json", "--patch", json.dumps([change]))

    release.upgrade()

    after = release.secrets()
    assert after.keys() == secrets.keys()
    changed = [key for key in secrets if secrets[key] != after[key]]
    assert changed == [change["path"].removeprefix("/data/")]
    assert after[changed[0]]
    assert [name for name in before if release.annotations(name) != before[name]] == restarted


def test_the_client_secret_is_kept_until_values_bring_another(release: Release) -> None:
    release.upgrade(OAUTH)
    assert release.secrets()["oauthClientSecret"] == "of the provider"
    before = {name: release.annotations(name) for name in DEPLOYMENTS}

    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": ""}}}))
    assert release.secrets()["oauthClientSecret"] == "of the provider"
    assert {name: release.annotations(name) for name in DEPLOYMENTS} == before

    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": "a new one"}}}))
    assert release.secrets()["oauthClientSecret"] == "a new one"
    assert [name for name in before if release.annotations(name) != before[name]] == ["hub"]


def test_a_client_secret_that_was_put_into_the_cluster_need_not_be_in_values(
    release: Release,
) -> None:
    release.upgrade()
    text = json.dumps({"stringData": {"oauthClientSecret": "by hand"}})
    release.kubectl("patch", "secret", "hub", "--patch", text)
    release.upgrade(merge(OAUTH, {"auth": {"oauth": {"clientSecret": ""}}}))
    assert release.secrets()["oauthClientSecret"] == "by hand"


def test_wrong_values_leave_nothing_behind(release: Release) -> None:
    with pytest.raises(HelmError, match="can sign in as anybody"):
        release.upgrade({})
    assert release.names("deployments") == []
    assert release.names("secrets") == []


def test_two_releases_live_side_by_side_and_one_namespace_takes_one(
    release: Release, helm: Helm, kubeconfig: Path
) -> None:
    release.upgrade()
    other = Release(helm, kubeconfig, f"{release.namespace}-b")
    other.upgrade()
    assert other.secrets()["adminPassword"] != release.secrets()["adminPassword"]
    other.uninstall()
    assert release.get("clusterrole", f"{release.namespace}-hub-in-team")


def test_the_notes_say_how_to_reach_it_and_how_to_read_both_passwords(release: Release) -> None:
    notes = release.upgrade(
        merge(FULL, {"proxy": {"service": {"type": "NodePort", "nodePort": 30088}}})
    )
    assert "http://<any node>:30088/" in notes
    commands = [line.strip() for line in notes.splitlines() if "get secret" in line]
    secrets = release.secrets()
    assert [read_password(release, command) for command in commands] == [
        secrets["userPassword"],
        secrets["adminPassword"],
    ]


def test_with_an_identity_provider_the_notes_name_its_client_and_no_password(
    release: Release,
) -> None:
    notes = release.upgrade(OAUTH)
    assert "https://gpu.flight.test/hub/oauth_callback" in notes
    assert "get secret" not in notes


def read_password(release: Release, command: str) -> str:
    """What the command of the notes prints, typed into a shell."""
    kubectl = f'{ensure_kube()} kubectl --kubeconfig "{release.kubeconfig}"'
    typed = re.sub(r"^kubectl", lambda _: kubectl, command)
    result = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    return result.stdout.strip()
