"""A release on the cluster: who may do what, who may sign in, and what an upgrade changes."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.release import CHART
from tests.cluster.people import Person
from tests.conftest import InstalledRelease

GOLDEN = Path(__file__).parent / "golden"
HUB_NAMESPACE = "<hub namespace>"
OPS = {"team": "ops", "profile": "cpu-small"}

# Golden file: service account, its namespace, and the namespace that it acts in.
ACCOUNTS = {
    "hub": ("hub", "{hub}", "{hub}"),
    "hub-in-team": ("hub", "{hub}", "{hub}-flight"),
    "hub-elsewhere": ("hub", "{hub}", "kube-system"),
    "service": ("service", "{hub}", "{hub}"),
    "service-in-team": ("service", "{hub}", "{hub}-flight"),
    "controller": ("controller", "{hub}", "{hub}"),
    "controller-elsewhere": ("controller", "{hub}", "kube-system"),
    "proxy": ("proxy", "{hub}", "{hub}"),
    "server-in-team": ("spectrum-server", "{hub}-flight", "{hub}-flight"),
}


@pytest.mark.parametrize("golden", ACCOUNTS)
def test_a_service_account_may_do_what_the_golden_file_says_and_no_more(
    release: InstalledRelease, golden: str
) -> None:
    account, home, place = (part.format(hub=release.namespace) for part in ACCOUNTS[golden])
    listed = release.kubectl(
        *("auth", "can-i", "--list", "-n", place),
        f"--as=system:serviceaccount:{home}:{account}",
    )
    assert sort_rights(listed, release.namespace) == (GOLDEN / f"{golden}.txt").read_text()


def sort_rights(listed: str, namespace: str) -> str:
    """The table of `kubectl auth can-i --list`, one space between columns, rows in order."""
    rows = [re.sub(r" {2,}", " ", row).strip() for row in listed.splitlines()[1:]]
    return "\n".join(sorted(rows)).replace(f"[{namespace}-", f"[{HUB_NAMESPACE}-") + "\n"


@pytest.mark.parametrize(
    ("name", "groups", "admin"),
    [
        ("alice", ["flight", "ops"], False),
        ("bob", ["ops"], False),
        ("carol", [], False),
        ("admin", [], True),
    ],
)
def test_the_demo_accounts_sign_in_with_their_groups(
    release: InstalledRelease, name: str, groups: list[str], admin: bool
) -> None:
    password = release.admin_password if admin else release.user_password
    with Person(release.url, name) as person:
        assert person.sign_in(password)
        assert read_account(person) == {"name": name, "groups": groups, "admin": admin}


@pytest.mark.parametrize("name", ["mallory", "flight", "al ice", ""])
def test_nobody_else_signs_in(release: InstalledRelease, name: str) -> None:
    with Person(release.url, name) as person:
        assert not person.sign_in(release.user_password)


def test_each_password_opens_its_own_accounts_only(release: InstalledRelease) -> None:
    with Person(release.url, "admin") as admin, Person(release.url, "alice") as alice:
        assert not admin.sign_in(release.user_password)
        assert not alice.sign_in(release.admin_password)


def test_after_signing_in_a_person_chooses_a_server(release: InstalledRelease) -> None:
    with Person(release.url, "alice") as alice:
        assert alice.sign_in(release.user_password)
        assert alice.visit("").url == f"{release.url}hub/spawn"


@pytest.fixture
def ops_without_bob(release: InstalledRelease) -> Iterator[Any]:
    """Call it to upgrade to values that no longer list bob; the former ones come back."""

    def upgrade() -> None:
        values = '{"auth": {"groups": {"ops": ["alice"]}, "users": ["carol", "bob"]}}'
        helm(release, "upgrade", CHART, "--reuse-values", "-f", "-", text=values)
        release.wait_until_ready()

    yield upgrade
    helm(release, "rollback")
    release.wait_until_ready()


def helm(release: InstalledRelease, verb: str, *arguments: object, text: str = "") -> None:
    subprocess.run(
        [
            *(release.chart.helm, verb, release.namespace, *arguments),
            *("-n", release.namespace, "--kubeconfig", release.kubectl.kubeconfig),
        ],
        input=text,
        text=True,
        check=True,
        capture_output=True,
    )


def test_who_is_taken_out_of_a_group_loses_it_with_the_upgrade_though_signed_in(
    release: InstalledRelease, ops_without_bob: Any
) -> None:
    with Person(release.url, "bob") as bob:
        assert bob.sign_in(release.user_password)
        assert read_account(bob)["groups"] == ["ops"]
        before = release.chart.read_secret()

        ops_without_bob()

        assert read_account(bob)["groups"] == []
        refused = bob.call("POST", "users/bob/server", {"user_options": OPS})
        assert refused.status_code == 403
        assert "You are in no team" in refused.json()["message"]
        assert release.chart.read_secret() == before


def read_account(person: Person) -> dict[str, Any]:
    account = person.call("GET", "user").json()
    return {
        "name": account["name"],
        "groups": sorted(account["groups"]),
        "admin": account["admin"],
    }
