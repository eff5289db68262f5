"""Groups that become teams: what the hub may do, what it does, and what the controller makes of it.

The policy is the chart's own, enforced by a real kube-apiserver against the hub's own account.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from kubernetes_asyncio.client import Configuration

from local.binaries import ensure_go_tool
from local.control_plane import ControlPlane
from spectrum_spawner import names
from spectrum_spawner.kube import Client, Refused
from spectrum_spawner.team_templates import ensure_teams, make_team, read_templates
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View
from tests.chart.helm import ACCEPTED, Helm, merge
from tests.hub.account import ADMISSION, POLICY_KINDS
from tests.hub.clock import wait_until
from tests.hub.cluster import Cluster, connect, find_teams
from tests.hub.controller import GPU, Controller, Teams
from tests.hub.team import create_hub_namespace, create_hub_token

HUB = "templates"
TEMPLATES: dict[str, dict[str, Any]] = {
    "research": {
        "pattern": "research/[a-z]+",
        "max": 3,
        "spec": {"profiles": ["gpu-1"], "quota": {"pods": 4, "gpus": {GPU: 1}}},
    },
    "wrong": {"pattern": "wrong/.*", "max": 9, "spec": {"quota": {"cpu": "many"}}},
}


@pytest.fixture(scope="module")
def controller(
    plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Controller]:
    """The hub's namespace with the chart's policy in force, and its controller."""
    directory = tmp_path_factory.mktemp("controller")
    with Controller(plane, HUB, directory, TEMPLATES) as controller:
        asyncio.run(prepare(plane, controller))
        yield controller


async def prepare(plane: ControlPlane, controller: Controller) -> None:
    helm = Helm(ensure_go_tool("helm") / "helm")
    # of the one with a wrong spec, the chart would have none
    named = {name: {**template, "spec": {}} for name, template in TEMPLATES.items()}
    values = merge(ACCEPTED, {"teamTemplates": named})
    async with connect(plane) as admin:
        await create_hub_namespace(admin, HUB)
        for manifest in helm.render(values, namespace=HUB):
            if manifest["kind"] in POLICY_KINDS:
                await admin.create(f"{ADMISSION}/{POLICY_KINDS[manifest['kind']]}", manifest)
        async with connect_as_hub(plane, admin) as hub:
            await wait_until(lambda: is_in_force(hub), within=30, what="the policy")
    await controller.wait_until_healthy()


async def is_in_force(hub: Client) -> bool:
    """A policy takes a moment; until then nothing is refused that it is to refuse."""
    team = make_team(HUB, "probe", "none-such")
    try:
        await create(hub, team, query={"dryRun": "All"})
    except Refused:
        return True
    return False


@asynccontextmanager
async def connect_as_hub(
    plane: ControlPlane, admin: Cluster, server: str = ""
) -> AsyncIterator[Client]:
    """The client that the hub has: by its service account's token."""
    configuration = Configuration(host=server or plane.server)
    configuration.ssl_ca_cert = str(plane.authority.certificate)
    token = await create_hub_token(admin, HUB)
    configuration.api_key = {"BearerToken": f"Bearer {token}"}
    client = Client(configuration)
    yield client
    await client.close()


async def create(hub: Client, manifest: dict[str, Any], **more: Any) -> dict[str, Any]:
    return await hub.request("POST", find_teams(HUB), body=manifest, **more)


@pytest.fixture
def teams(cluster: Cluster, controller: Controller) -> Teams:
    return Teams(cluster, HUB)


@pytest_asyncio.fixture
async def hub(plane: ControlPlane, cluster: Cluster, teams: Teams) -> AsyncIterator[Client]:
    async with connect_as_hub(plane, cluster) as hub:
        yield hub


@pytest_asyncio.fixture
async def view(hub: Client) -> AsyncIterator[View[Team]]:
    """The teams as the hub sees them."""
    view: View[Team] = View(hub, find_teams(HUB), trim=Team.from_object)
    view.start()
    await view.wait_synced()
    yield view
    await view.close()


def change(**parts: Any) -> dict[str, Any]:
    """The team that the hub may make, with its metadata or spec changed."""
    team = make_team(HUB, "research/forbidden", "research")
    for part, changes in parts.items():
        team[part] = {**team.get(part, {}), **changes}
    return team


SENTENCES = {
    "metadata": "the hub may give a team a name and no other metadata",
    "spec": "the hub may set a team's template and groups, and nothing else",
    "template": "the hub must name one of the templates: research, wrong",
    "group": "the hub must name one group, and one only",
    "create": "the hub may create teams in its own namespace, and never change or delete one",
}
FORBIDDEN = {
    "a label": (change(metadata={"labels": {"a": "b"}}), "metadata"),
    "an annotation": (change(metadata={"annotations": {"spectrum.dev/x": "y"}}), "metadata"),
    "a mark that it is filled": (
        change(metadata={"annotations": {"spectrum.dev/filled-from": "research"}}),
        "metadata",
    ),
    "an orphan to adopt": (
        change(metadata={"annotations": {"spectrum.dev/adopt-orphan": "templates-ops"}}),
        "metadata",
    ),
    "a finalizer": (change(metadata={"finalizers": ["example.com/x"]}), "metadata"),
    "an owner": (
        change(
            metadata={
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Namespace", "name": "x", "uid": "1"}
                ]
            }
        ),
        "metadata",
    ),
    "a quota": (change(spec={"quota": {"gpus": {GPU: 99}}}), "spec"),
    "an empty quota": (change(spec={"quota": {}}), "spec"),
    "leads": (change(spec={"leads": ["mallory"]}), "spec"),
    "lead groups": (change(spec={"leadGroups": ["everybody"]}), "spec"),
    "a grant": (
        change(spec={"grants": {"r-1": {"profiles": ["a"], "until": "2099-01-01T00:00:00Z"}}}),
        "spec",
    ),
    "a name for people": (change(spec={"displayName": "Ops"}), "spec"),
    "no template": (change(spec={"template": None}), "template"),
    "another template": (change(spec={"template": "gone"}), "template"),
    "two groups": (change(spec={"groups": ["research/a", "everybody"]}), "group"),
    "no group": (change(spec={"groups": []}), "group"),
    "nothing but a name": ({**change(), "spec": {}}, "template"),
    "no spec at all": ({k: v for k, v in change().items() if k != "spec"}, "spec"),
}


@pytest.mark.parametrize("what", FORBIDDEN)
async def test_the_hub_can_say_no_more_than_a_template_and_a_group(hub: Client, what: str) -> None:
    manifest, sentence = FORBIDDEN[what]
    with pytest.raises(Refused) as refusal:
        await create(hub, manifest)
    assert refusal.value.status == 422
    assert SENTENCES[sentence] in str(refusal.value)


async def test_the_hub_can_neither_change_nor_delete_a_team(
    hub: Client, teams: Teams, cluster: Cluster
) -> None:
    await teams.create("fixed")
    path = teams.path("fixed")
    calls = (lambda: hub.patch(path, {"spec": {"leads": ["mallory"]}}), lambda: hub.delete(path))
    for call in calls:
        assert "is forbidden" in await read_refusal(call)
    await widen_rights(cluster)

    async def is_wide() -> bool:
        return "cannot patch" not in await read_refusal(calls[0])

    await wait_until(is_wide, within=10, what="the wider rights")
    for call in calls:
        assert SENTENCES["create"] in await read_refusal(call)


async def read_refusal(call: Callable[[], Awaitable[Any]]) -> str:
    with pytest.raises(Refused) as refusal:
        await call()
    return str(refusal.value)


async def widen_rights(cluster: Cluster) -> None:
    """Give the hub every right on teams, so that nothing but the policy is in its way."""
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HUB}"
    rule = {"apiGroups": [names.API_GROUP], "resources": ["*"], "verbs": ["*"]}
    await cluster.create(f"{rbac}/roles", {"metadata": {"name": "wide"}, "rules": [rule]})
    account = {"kind": "ServiceAccount", "name": names.HUB_SERVICE_ACCOUNT, "namespace": HUB}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "wide"}
    binding = {"metadata": {"name": "wide"}, "roleRef": role, "subjects": [account]}
    await cluster.create(f"{rbac}/rolebindings", binding)


async def test_others_than_the_hub_are_not_held_to_it(teams: Teams) -> None:
    await teams.create_ready("written", leads=["alice"], quota={"pods": 1})


async def test_a_new_group_becomes_a_team_that_its_template_fills_once(
    hub: Client, view: View[Team], teams: Teams, controller: Controller
) -> None:
    name = names.slug("research/bio")
    groups = ["research/bio", "others"]
    assert await ensure_teams(hub, HUB, groups, view, read_templates(TEMPLATES)) == [name]
    team = await teams.wait_for(name, "Reconciled")
    assert team["spec"] == {
        "displayName": "research/bio",
        "template": "research",
        "groups": ["research/bio"],
        "profiles": ["gpu-1"],
        "quota": {"pods": 4, "gpus": {GPU: 1}},
    }
    assert await teams.is_as_wanted(name)
    assert controller.read_reasons(name)[0] == ("hub", f"Team {name} was made.")
    actor, reason = controller.read_reasons(name)[1]
    assert actor == "controller"
    assert reason.startswith("Filled from template research. ")
    await teams.cluster.patch(teams.path(name), {"spec": {"profiles": None}})
    team = await teams.wait_for(name, "Reconciled")
    assert "profiles" not in team["spec"]
    await wait_until(lambda: any(t.name == name for t in view), within=5, what="the view")
    assert await ensure_teams(hub, HUB, groups, view, read_templates(TEMPLATES)) == []


async def test_a_team_that_was_made_a_moment_ago_is_met_and_left_alone(
    hub: Client, view: View[Team], teams: Teams, caplog: pytest.LogCaptureFixture
) -> None:
    await view.close()  # what comes now, it does not see
    await teams.create(names.slug("research/twice"), groups=["research/twice"])
    await teams.create(names.slug("research/other"), groups=["somebody else's"])
    groups = ["research/twice", "research/other"]
    assert await ensure_teams(hub, HUB, groups, view, read_templates(TEMPLATES)) == []
    assert caplog.messages == [
        f"team {names.slug('research/other')} is of other groups than ['research/other']"
    ]


async def test_nothing_is_made_before_all_teams_are_known(hub: Client) -> None:
    unsynced: View[Team] = View(hub, find_teams(HUB), trim=Team.from_object)
    assert await ensure_teams(hub, HUB, ["research/x"], unsynced, read_templates(TEMPLATES)) == []


async def test_a_sign_in_survives_a_refusal_and_an_api_server_that_is_away(
    plane: ControlPlane, cluster: Cluster, view: View[Team], hub: Client
) -> None:
    templates = read_templates({"stranger": {"pattern": "strange/.*", "max": 3}})
    assert await ensure_teams(hub, HUB, ["strange/a"], view, templates) == []
    async with connect_as_hub(plane, cluster, "https://127.0.0.1:1") as nowhere:
        found = await ensure_teams(nowhere, HUB, ["research/y"], view, read_templates(TEMPLATES))
    assert found == []


REFUSED = {
    "TemplateUnknown": ("gone", {"template": "gone", "groups": ["gone"]}),
    "TemplateMismatch": ("ops", {"template": "research", "groups": ["research/ops"]}),
    "Refused": (names.slug("wrong/a"), {"template": "wrong", "groups": ["wrong/a"]}),
}


@pytest.mark.parametrize("reason", REFUSED)
async def test_a_team_that_cannot_be_filled_says_why_and_gets_no_namespace(
    teams: Teams, controller: Controller, reason: str
) -> None:
    name, spec = REFUSED[reason]
    await teams.create(name, **spec)
    team = await teams.wait_for(name, reason)
    assert team["spec"] == spec
    assert team["status"]["conditions"][0]["status"] == "False"
    assert await teams.find_namespace(name) is None
    message = team["status"]["conditions"][0]["message"]
    assert ("controller", f"Team {name} is not ready: {message}") in controller.read_reasons(name)


async def test_a_template_makes_as_many_teams_as_it_may_and_the_next_one_waits(
    teams: Teams,
) -> None:
    groups = [f"research/{letter}" for letter in "stuvw"]
    for group in groups:
        await teams.create(names.slug(group), template="research", groups=[group])

    async def read_reasons() -> list[str]:
        return [teams.reason(await teams.get(names.slug(group))) for group in groups]

    async def are_settled() -> bool:
        return all(await read_reasons())

    await wait_until(are_settled, within=20, what="an answer for each")
    filled = [t for t in await teams.cluster.list(find_teams(HUB)) if is_filled(t)]
    assert len(filled) == TEMPLATES["research"]["max"]
    reasons = zip(groups, await read_reasons(), strict=True)
    waiting = [group for group, reason in reasons if reason == "TemplateFull"]
    assert waiting == groups[-len(waiting) :]
    assert await teams.find_namespace(names.slug(waiting[0])) is None
    await teams.delete(filled[0]["metadata"]["name"])
    await teams.wait_for(names.slug(waiting[0]), "Reconciled")


def is_filled(team: dict[str, Any]) -> bool:
    return "spectrum.dev/filled-from" in team["metadata"].get("annotations", {})
