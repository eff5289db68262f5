"""Releases on a real API server: what an upgrade keeps and what an uninstall leaves."""

import base64
import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.binaries import ensure_kube
from local.control_plane import control_plane
from tests.chart.helm import ACCEPTED, Helm, HelmError, merge

TEAMS = {"teams": {"flight": {"displayName": "Flight"}, "ops": {"quota": {"cpu": "500m"}}}}
FULL = merge(ACCEPTED, TEAMS)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    with control_plane() as plane:
        yield plane.kubeconfig


@pytest.fixture
def release(helm: Helm, kubeconfig: Path) -> "Release":
    """A release of its own for each test, in a namespace of its own."""
    return Release(helm, kubeconfig, f"release-{next(NUMBERS)}")


class Release:
    """The chart, installed where nothing runs its pods."""

    def __init__(self, helm: Helm, kubeconfig: Path, namespace: str) -> None:
        self.helm, self.kubeconfig, self.namespace = helm, kubeconfig, namespace

    def upgrade(self, values: dict[str, Any] = FULL, *more: str) -> str:
        return self.helm.upgrade(self.kubeconfig, self.namespace, values, *more)

    def uninstall(self) -> None:
        self.helm.uninstall(self.kubeconfig, self.namespace)

    def kubectl(self, *arguments: str) -> str:
        program = [str(ensure_kube()), "kubectl", "--kubeconfig", str(self.kubeconfig)]
        whole = [*program, "-n", self.namespace, *arguments]
        return subprocess.run(whole, capture_output=True, text=True, check=True).stdout

    def get(self, kind: str, name: str) -> Any:
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    def secrets(self) -> dict[str, str]:
        data = self.get("secret", "hub")["data"]
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def annotations(self, deployment: str) -> dict[str, str]:
        """What decides whether the deployment's pod is replaced."""
        found = self.get("deployment", deployment)["spec"]["template"]["metadata"]["annotations"]
        return dict(found)

    def names(self, kind: str) -> list[str]:
        return self.kubectl("get", kind, "-o", "jsonpath={.items[*].metadata.name}").split()


def test_the_first_install_makes_every_secret(release: Release) -> None:
    release.upgrade()
    secrets = release.secrets()
    assert {key: len(text) for key, text in secrets.items()} == {
        "proxyToken": 64,
        "cookieSecret": 64,
        "cryptKey": 64,
        "userPassword": 16,
        "adminPassword": 40,
    }
    assert len(bytes.fromhex(secrets["cookieSecret"])) == 32
    assert len(bytes.fromhex(secrets["cryptKey"])) == 32
    assert len(set(secrets.values())) == 5


def test_an_upgrade_keeps_the_secrets_and_restarts_nothing(release: Release) -> None:
    release.upgrade()
    before = release.secrets(), *map(release.annotations, ("hub", "proxy"))
    release.upgrade()
    assert (release.secrets(), *map(release.annotations, ("hub", "proxy"))) == before


def test_a_password_that_an_administrator_changed_is_kept_and_restarts_the_hub_alone(
    release: Release,
) -> None:
    release.upgrade()
    hub, proxy = map(release.annotations, ("hub", "proxy"))
    changed = json.dumps({"stringData": {"userPassword": "correct horse battery"}})
    release.kubectl("patch", "secret", "hub", "--patch", changed)

    release.upgrade()

    assert release.secrets()["userPassword"] == "correct horse battery"
    assert release.annotations("hub") != hub
    assert release.annotations("proxy") == proxy


def test_a_secret_that_is_missing_is_made_and_the_others_stay(release: Release) -> None:
    release.upgrade()
    before = release.secrets()
    drop = json.dumps([{"op": "remove", "path": "/data/cryptKey"}])
    release.kubectl("patch", "secret", "hub", "--type=json", "--patch", drop)

    release.upgrade()

    after = release.secrets()
    assert after.keys() == before.keys()
    assert [key for key in before if before[key] != after[key]] == ["cryptKey"]


def test_teams_come_and_go_with_the_values(release: Release) -> None:
    release.upgrade()
    assert release.names("teams") == ["flight", "ops"]
    assert release.get("team", "ops")["spec"] == {"quota": {"cpu": "500m"}}
    release.upgrade(merge(FULL, {"teams": {"ops": None}}))
    assert release.names("teams") == ["flight"]


def test_an_uninstall_leaves_the_hubs_database_and_an_install_takes_it_up(
    release: Release,
) -> None:
    release.upgrade()
    uid = release.get("pvc", "hub-db")["metadata"]["uid"]
    release.uninstall()
    assert release.names("pvc") == ["hub-db"]
    assert release.names("deployments") == []
    release.upgrade()
    assert release.get("pvc", "hub-db")["metadata"]["uid"] == uid


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


def read_password(release: Release, command: str) -> str:
    """What the command of the notes prints, typed into a shell."""
    kubectl = f'{ensure_kube()} kubectl --kubeconfig "{release.kubeconfig}"'
    typed = re.sub(r"^kubectl", lambda _: kubectl, command)
    result = subprocess.run(["sh", "-c", typed], capture_output=True, text=True, check=True)
    return result.stdout.strip()
