"""The Spectrum service on a cluster: teams, stops, requests and the audit."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.errors import Refusal
from local.kubectl import Kubectl
from spectrum_spawner import names
from tests.cluster.people import Person
from tests.cluster.servers import FLIGHT_GPU, FLIGHT_TWO_GPUS, OPS_CPU, Servers
from tests.cluster.waiting import wait_until
from tests.conftest import InstalledRelease

GPU = "nvidia.com/gpu"
# What a server can do with its own token: ask by GET and by DELETE; and be entered with it.
FROM_A_SERVER = """
import json, os, urllib.error, urllib.request
def ask(method, path):
    request = urllib.request.Request(
        f"http://proxy-public.{NAMESPACE}/services/spectrum/api/{path}",
        method=method,
        headers={"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]},
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
def enter():
    request = urllib.request.Request(
        "http://127.0.0.1:8888" + os.environ["JUPYTERHUB_SERVICE_PREFIX"] + "api/contents",
        headers={"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]},
    )
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
asked = [ask("GET", "servers"), ask("DELETE", "servers/bob/"), ask("GET", "teams")]
print(json.dumps([*asked, enter()]))
"""


@pytest.fixture
def admin(enter: Callable[[str], Servers]) -> Servers:
    found = enter("admin")
    found.person.visit_service()
    return found


@pytest.fixture
def lead(enter: Callable[[str], Servers]) -> Servers:
    """bob leads ops."""
    found = enter("bob")
    found.person.visit_service()
    return found


def find_records(person: Person, **fields: str) -> list[dict[str, Any]]:
    """Records of the audit with these fields, the newest first."""
    records = person.call_service("GET", "audit").json()["records"]
    return [one for one in records if fields.items() <= one.items()]


def read_servers(person: Person, team: str) -> list[tuple[str, str]]:
    """Owner and profile of each server that the team's page shows."""
    rows = person.call_service("GET", f"servers?team={team}").json()["servers"]
    return [(row["user"], row["profile"]) for row in rows]


def read_hard(kubectl: Kubectl, namespace: str) -> str | None:
    """GPUs that the quota of a team's namespace admits."""
    quota = kubectl.get("-n", namespace, "resourcequota", names.QUOTA)
    found: str | None = quota["spec"].get("hard", {}).get(names.gpu_quota_key(GPU))
    return found


def test_who_is_not_signed_in_is_sent_to_the_hub_and_comes_back(release: InstalledRelease) -> None:
    with Person(release.url, "alice") as alice:
        assert alice.visit_service().url.startswith(f"{release.url}hub/login")
        assert alice.sign_in(release.user_password)
        assert alice.visit_service().url == f"{release.url}services/spectrum/"
        teams = alice.visit_service("teams").text
        assert "Flight" in teams
        assert "Ops" in teams


def test_the_internal_addresses_are_on_no_route(release: InstalledRelease) -> None:
    with Person(release.url, "alice") as alice:
        assert alice.sign_in(release.user_password)
        alice.visit_service()
        for path in ("internal/audit", "services/spectrum/internal/audit"):
            assert alice.visit(f"../{path}").status_code in (403, 404)


def test_a_lead_sees_the_teams_servers_and_stops_one_and_the_audit_says_so(
    release: InstalledRelease, alice: Servers, lead: Servers, admin: Servers
) -> None:
    alice.start(OPS_CPU)
    wait_until(lambda: read_servers(lead.person, "ops") == [("alice", "cpu-small")])
    assert "alice" in lead.person.visit_service("teams/ops").text

    body = {"reason": "The node is needed for the demo."}
    stopped = lead.person.call_service("DELETE", "servers/alice/", body)
    assert stopped.status_code == 202, stopped.text
    wait_until(lambda: not alice.read())
    assert alice.find_pod("ops") == {}

    about = {"user": "alice", "team": "ops"}
    asked = find_records(admin.person, action="stop-request", actor="user:bob", **about)
    assert asked[0]["reason"] == "The node is needed for the demo."

    def done() -> list[dict[str, Any]]:
        return find_records(admin.person, action="stop", actor="service:spectrum", **about)

    wait_until(done)
    page = admin.person.visit_service("audit").text
    assert "The node is needed for the demo." in page


def test_a_lead_neither_sees_nor_stops_servers_of_other_teams(
    alice: Servers, lead: Servers
) -> None:
    alice.start(FLIGHT_GPU)
    assert lead.person.call_service("DELETE", "servers/alice/").status_code == 404
    assert lead.person.visit_service("teams/flight").status_code == 404
    assert alice.read()["ready"]


def test_a_servers_own_token_reads_about_that_server_and_does_nothing(
    release: InstalledRelease, alice: Servers, lead: Servers
) -> None:
    alice.start(OPS_CPU)
    lead.start(OPS_CPU)
    code = FROM_A_SERVER.replace("{NAMESPACE}", release.namespace)
    servers, stopped, teams, entered = json.loads(alice.run("ops", "python3", "-c", code))
    assert [row["user"] for row in servers[1]["servers"]] == ["alice"]
    assert stopped[0] == 403
    assert entered == 403
    # She is in flight as well; her server is not.
    assert [team["name"] for team in teams[1]["teams"]] == ["ops"]
    assert lead.read()["ready"]


@pytest.fixture
def no_grants_are_left(kubectl: Kubectl, release: InstalledRelease) -> Iterator[None]:
    yield
    patch = json.dumps({"spec": {"grants": None}})
    kubectl(*("-n", release.namespace, "patch", "team", "flight", "--type=merge", "--patch", patch))


@pytest.mark.usefixtures("no_grants_are_left")
def test_a_request_that_is_approved_lets_the_team_start_more(
    release: InstalledRelease, kubectl: Kubectl, alice: Servers, admin: Servers
) -> None:
    flight = f"{release.namespace}-flight"
    alice.start(FLIGHT_TWO_GPUS)
    assert "2 of 2 GPUs in use" in alice.refuse(FLIGHT_GPU, "more")[1]

    alice.person.visit_service()
    until = (datetime.now(UTC) + timedelta(days=7)).date().isoformat()
    wanted = {"kind": "quota", "team": "flight", "resource": GPU, "amount": 1}
    body = {**wanted, "reason": "Deadline on Friday.", "until": until}
    asked = alice.person.call_service("POST", "requests", body)
    assert asked.status_code == 201, asked.text
    number = asked.json()["id"]
    path = f"requests/{number}/decide"
    assert alice.person.call_service("POST", path, {"decision": "approve"}).status_code == 403

    decision = {"decision": "approve", "answer": "Good luck."}
    decided = admin.person.call_service("POST", path, decision)
    assert decided.status_code == 204, decided.text
    wait_until(lambda: read_hard(kubectl, flight) == "3")
    (mine,) = alice.person.call_service("GET", "requests").json()["requests"][:1]
    assert (mine["state"], mine["answer"], mine["decidedBy"]) == ("approved", "Good luck.", "admin")
    grant = kubectl.get("-n", release.namespace, "team", "flight")["spec"]["grants"][number]
    assert (grant["gpus"], grant["requestedBy"], grant["approvedBy"]) == (
        {GPU: 1},
        "alice",
        "admin",
    )
    wait_until(lambda: read_columns(kubectl, release, "flight")["GPUS"] == "2/3")
    alice.start(FLIGHT_GPU, "more")


def test_a_refusal_comes_with_a_sentence_and_grants_nothing(
    release: InstalledRelease, kubectl: Kubectl, alice: Servers, admin: Servers
) -> None:
    alice.person.visit_service()
    until = (datetime.now(UTC) + timedelta(days=7)).date().isoformat()
    wanted = {"kind": "quota", "team": "flight", "resource": GPU, "amount": 900}
    asked = alice.person.call_service(
        "POST", "requests", {**wanted, "reason": "More is better.", "until": until}
    )
    number = asked.json()["id"]
    decision = {"decision": "refuse", "answer": "The cluster has four."}
    path = f"requests/{number}/decide"
    assert admin.person.call_service("POST", path, decision).status_code == 204
    (mine, *_) = alice.person.call_service("GET", "requests").json()["requests"]
    assert (mine["state"], mine["answer"]) == ("refused", "The cluster has four.")
    spec = kubectl.get("-n", release.namespace, "team", "flight")["spec"]
    assert number not in spec.get("grants", {})


def test_what_kubectl_changes_of_a_team_is_in_the_audit(
    release: InstalledRelease, kubectl: Kubectl, admin: Servers
) -> None:
    home = ("-n", release.namespace)
    before = kubectl.get(*home, "team", "ops")["spec"]["quota"]["gpus"]

    def patch(gpus: dict[str, int]) -> None:
        text = json.dumps({"spec": {"quota": {"gpus": gpus}}})
        kubectl(*home, "patch", "team", "ops", "--type=merge", "--patch", text)

    def told() -> list[dict[str, Any]]:
        return find_records(admin.person, action="team", team="ops", actor="manager:kubectl-patch")

    patch({GPU: 1})
    try:
        wait_until(told)
    finally:
        patch(before)


def read_columns(kubectl: Kubectl, release: InstalledRelease, team: str) -> dict[str, str]:
    """What `kubectl get teams` shows of a team, by the head of its column."""
    heads, line = kubectl("-n", release.namespace, "get", "teams", team).splitlines()
    return dict(zip(heads.split(), line.split(), strict=True))


def test_kubectl_get_teams_is_worth_reading(
    release: InstalledRelease, kubectl: Kubectl, alice: Servers
) -> None:
    alice.start(FLIGHT_GPU)

    def shown() -> dict[str, str]:
        columns = read_columns(kubectl, release, "flight")
        return {head: text for head, text in columns.items() if head != "AGE"}

    wanted = {
        "NAME": "flight",
        "NAMESPACE": f"{release.namespace}-flight",
        "SERVERS": "1",
        "GPUS": "1/2",
        "READY": "True",
        "REASON": "Reconciled",
    }
    wait_until(lambda: shown() == wanted)


def test_a_group_that_appears_becomes_a_team_by_its_template(
    release: InstalledRelease, kubectl: Kubectl, enter: Callable[[str], Servers]
) -> None:
    found = ("-n", release.namespace, "get", "team", "line-vision", "--ignore-not-found")
    assert kubectl(*found) == ""
    erin = enter("erin")
    home = ("-n", release.namespace)
    wait_until(lambda: kubectl(*found))
    kubectl(*home, "wait", "team/line-vision", "--for=condition=Ready", "--timeout=30s")
    team = kubectl.get(*home, "team", "line-vision")["spec"]
    assert (team["template"], team["groups"]) == ("line", ["line-vision"])
    assert team["quota"] == {"gpus": {GPU: 1}}
    wait_until(lambda: read_hard(kubectl, f"{release.namespace}-line-vision") == "1")
    erin.start({"team": "line-vision", "profile": "gpu-1"})
    erin.stop()


@pytest.mark.parametrize(
    "spec",
    [
        {"template": "line", "groups": ["line-a"], "quota": {"gpus": {GPU: 4}}},
        {"template": "line", "groups": ["line-a", "line-b"]},
        {"template": "other", "groups": ["line-a"]},
        {"groups": ["line-a"]},
        {},
    ],
    ids=["quota", "two groups", "unknown template", "no template", "nothing"],
)
def test_the_hub_can_make_no_team_but_by_naming_a_template(
    release: InstalledRelease, kubectl: Kubectl, spec: dict[str, Any]
) -> None:
    team = {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.TEAM_KIND,
        "metadata": {"name": "line-a"},
        "spec": spec,
    }
    hub = f"--as=system:serviceaccount:{release.namespace}:hub"
    with pytest.raises(Refusal, match=f"{release.namespace}-hub-teams"):
        kubectl("-n", release.namespace, "create", hub, "-f", "-", text=json.dumps(team))
