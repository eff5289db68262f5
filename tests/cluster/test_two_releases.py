"""The demo and the tests' release on one cluster: neither is any business of the other.

That nothing of the demo changes while the tests run is checked where their release is removed.
"""

import itertools

import pytest

from spectrum_spawner import names
from tests.cluster.people import Person
from tests.cluster.reviews import Right, find_allowed
from tests.conftest import InstalledRelease

DEMO = "spectrum"
DEMO_URL = "http://127.0.0.1:30080/"
VERBS = ("get", "list", "watch", "create", "patch", "delete")
# Resources in the hub's own namespace and in those of its teams.
IN_HUB = ("teams", "secrets", "configmaps", "pods", "events")
IN_TEAM = ("pods", "persistentvolumeclaims", "secrets", "events")


def find_team_namespaces(release: InstalledRelease, hub: str) -> dict[str, str]:
    """Where the teams of a hub have their servers, by the team's name."""
    teams = release.kubectl.get("-n", hub, "teams.spectrum.dev")["items"]
    return {team["metadata"]["name"]: team["status"]["namespace"] for team in teams}


def list_rights(release: InstalledRelease, account: str, hub: str) -> list[str]:
    """What the service account may do in a hub's namespaces, such as `list pods in spectrum`."""
    places = [(hub, IN_HUB)]
    places += [(place, IN_TEAM) for place in find_team_namespaces(release, hub).values()]
    asked = [
        Right(account, verb, resource, place)
        for place, resources in places
        for resource, verb in itertools.product(resources, VERBS)
    ]
    allowed = find_allowed(release.kubectl, asked)
    return [f"{one.verb} {one.resource} in {one.namespace}" for one in asked if one in allowed]


def test_teams_of_the_same_name_have_namespaces_of_their_own(release: InstalledRelease) -> None:
    ours, demos = (find_team_namespaces(release, hub) for hub in (release.namespace, DEMO))
    assert ours.keys() >= {"flight", "ops"} <= demos.keys()
    assert not set(ours.values()) & set(demos.values())
    for hub, spaces in ((release.namespace, ours), (DEMO, demos)):
        for team, space in spaces.items():
            labels = release.kubectl.get("namespace", space)["metadata"]["labels"]
            assert (labels[names.LABEL_HUB], labels[names.LABEL_TEAM]) == (hub, team)


@pytest.mark.parametrize("account", ["hub", "proxy", "service"])
def test_an_account_of_one_release_may_do_nothing_in_the_other(
    release: InstalledRelease, account: str
) -> None:
    hubs = (release.namespace, DEMO)
    for own, other in (hubs, hubs[::-1]):
        assert list_rights(release, f"{own}:{account}", other) == []


def test_each_hub_sees_its_own_teams_and_pods(release: InstalledRelease) -> None:
    for hub in (release.namespace, DEMO):
        flight = find_team_namespaces(release, hub)["flight"]
        needed = {f"list teams in {hub}", f"list pods in {flight}", f"create pods in {flight}"}
        assert needed <= set(list_rights(release, f"{hub}:hub", hub))


def test_who_signed_in_at_one_release_is_nobody_at_the_other(release: InstalledRelease) -> None:
    with Person(release.url, "alice") as alice:
        assert alice.sign_in(release.user_password)
        elsewhere = alice.at(DEMO_URL)
        assert elsewhere.visit("home").url.startswith(f"{DEMO_URL}hub/login")
        assert elsewhere.call("GET", "user").status_code == 403
