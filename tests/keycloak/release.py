"""A release whose people come from Keycloak, and what its administrator sees of it."""

import json
from typing import Any

import yaml

from local.realm import CLIENT, EVERYBODY, Realm
from local.release import Release
from local.trial import TEST_VALUES, URL
from local.up import DEMO_VALUES
from tests.keycloak.conftest import Account

CALLBACK_URL = f"{URL}hub/oauth_callback"
GRACE = 60  # seconds that a server goes on after its owner has left the team
ADMIN_GROUP = "spectrum-admins"
SERVER = "app.kubernetes.io/component=singleuser-server"


def make_values(realm: Realm, account: Account) -> dict[str, Any]:
    """Build the chart's values over those of the demo, whose accounts go."""
    endpoints = realm.endpoints
    return {
        "auth": {
            "method": "oauth",
            "acceptSharedPassword": False,
            "users": [],
            "groups": dict.fromkeys(list_tables_groups()),
            "refreshAge": 5,
            "oauth": {
                "clientId": CLIENT,
                "clientSecret": account.client_secret,
                "callbackUrl": CALLBACK_URL,
                "authorizeUrl": endpoints["authorization_endpoint"],
                "tokenUrl": endpoints["token_endpoint"],
                "userdataUrl": endpoints["userinfo_endpoint"],
                "allowedGroups": [EVERYBODY],
                "adminGroups": [ADMIN_GROUP],
            },
        },
        "service": {"leavingGrace": GRACE},
        "teamTemplates": {
            "company": {
                "pattern": "company/.+",
                "max": 3,
                "spec": {"quota": {"gpus": {"nvidia.com/gpu": 1}}},
            }
        },
    }


def list_tables_groups() -> list[str]:
    """List the groups that other files of values have tables of: the provider's go instead."""
    files = [yaml.safe_load(path.read_text()) for path in (DEMO_VALUES, TEST_VALUES)]
    return [group for values in files for group in values.get("auth", {}).get("groups", {})]


def find_team(release: Release, group: str) -> dict[str, Any]:
    """The Team of just this group; empty while there is none."""
    teams = release.kubectl.get("-n", release.namespace, "teams")["items"]
    return next((team for team in teams if team["spec"].get("groups") == [group]), {})


def read_runs(release: Release, team: str) -> dict[str, tuple[str, int]]:
    """The servers of a team: pod → its uid and how often its container was started anew."""
    text = release.kubectl(
        *("get", "pods", "-n", f"{release.namespace}-{team}", "-l", SERVER, "-o", "json")
    )
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            sum(one["restartCount"] for one in pod["status"]["containerStatuses"]),
        )
        for pod in json.loads(text)["items"]
    }
