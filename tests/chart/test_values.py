"""Values: the schema is closed, and wrong ones stop the install with a sentence."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from spectrum_spawner.profile_values import ProfileError, read_profiles
from tests.chart.helm import ACCEPTED, CHART, OAUTH, Helm, merge

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def profile(**fields: Any) -> dict[str, Any]:
    """Values with the shipped profile gpu-1 changed."""
    return {"profiles": {"gpu-1": fields}}


WRONG_PROFILES = [
    (profile(gpu="1.5"), "at '/profiles/gpu-1/gpu': got string, want integer"),
    (profile(gpu=1.5), "at '/profiles/gpu-1/gpu': got number, want integer"),
    (profile(gpu=-1), "at '/profiles/gpu-1/gpu': minimum: got -1, want 0"),
    (profile(gpu=True), "at '/profiles/gpu-1/gpu': got boolean, want integer"),
    (profile(nodeselector={"a": "b"}), "additional properties 'nodeselector' not allowed"),
    (profile(node_selector={"a": "b"}), "additional properties 'node_selector' not allowed"),
    (profile(memory={"limit": "16GB"}), "'16GB' does not match pattern"),
    (profile(memory={"limit": "1.5 Gi"}), "'1.5 Gi' does not match pattern"),
    (profile(memory={"limit": "-1G"}), "'-1G' does not match pattern"),
    (profile(memory={"limit": 1024}), "at '/profiles/gpu-1/memory/limit': got number"),
    (profile(cpu={"limit": 0}), "at '/profiles/gpu-1/cpu/limit': exclusiveMinimum: got 0, want 0"),
    (profile(cpu={"limit": "two"}), "'two' does not match pattern"),
    (profile(cpu={"maximum": 4}), "additional properties 'maximum' not allowed"),
    (profile(gpuResource="gpu"), "'gpu' does not match pattern"),
    (profile(images=[]), "minItems: got 0, want 1"),
    (profile(images=["torch"]), 'profiles.gpu-1.images: there is no image "torch" under images'),
    (
        profile(cpu={"guarantee": 5, "limit": 4}),
        "profiles.gpu-1.cpu: the guarantee is above the limit",
    ),
    (
        profile(cpu={"guarantee": "4001m", "limit": 4}),
        "profiles.gpu-1.cpu: the guarantee is above the limit",
    ),
    (
        profile(memory={"guarantee": "16.5Gi", "limit": "16896Mi"}, sharedMemory="16896Mi"),
        "profiles.gpu-1.sharedMemory: must be below memory.limit",
    ),
    (
        profile(memory={"guarantee": "1Ti", "limit": "1023Gi"}),
        "profiles.gpu-1.memory: the guarantee is above the limit",
    ),
    (
        profile(gpu=2, gpuResource="nvidia.com/mig-1g.10gb"),
        "profiles.gpu-1.gpu: a container sees one MIG slice only",
    ),
    (
        {"profiles": {"GPU-1": {"images": ["tensorflow"]}}},
        "profiles: GPU-1 and gpu-1 have the same slug",
    ),
    (
        {"profiles": {"cpu-small": {"default": True}, "gpu-1": {"default": True}}},
        "profiles: only one may be the default, not cpu-small and gpu-1",
    ),
    (
        {"profiles": {"cpu-small": None, "gpu-1": None, "tensorboard": None}},
        "minProperties: got 0, want 1",
    ),
    (
        {"profiles": {"cpu-small": None, "gpu-1": None, "tensorboard": None, "gpu-2": None}},
        "profiles: at least one profile is needed",
    ),
    (
        {"images": {"tensorflow": {"image": "localhost/tf:1@evil"}}},
        "'localhost/tf:1@evil' does not match pattern",
    ),
    ({"images": {"tensorflow": {"image": ""}}}, "'' does not match pattern"),
    ({"images": {"tensorflow": {"tag": "1"}}}, "additional properties 'tag' not allowed"),
]

WRONG_ELSEWHERE = [
    ({"cull": {}}, "additional properties 'cull' not allowed"),
    ({"hub": {"replicas": 2}}, "additional properties 'replicas' not allowed"),
    ({"hub": {"baseUrl": "spectrum"}}, "'spectrum' does not match pattern"),
    ({"hub": {"db": {"size": "1GB"}}}, "'1GB' does not match pattern"),
    ({"proxy": {"service": {"type": "Ingress"}}}, "at '/proxy/service/type': value must be one of"),
    ({"proxy": {"service": {"nodePort": "30080"}}}, "at '/proxy/service/nodePort': got string"),
    ({"singleuser": {"startTimeout": -1}}, "at '/singleuser/startTimeout': minimum: got -1"),
    ({"singleuser": {"httpTimeout": 0}}, "at '/singleuser/httpTimeout': minimum: got 0"),
    ({"singleuser": {"homeSize": "10Gi"}}, "additional properties 'homeSize' not allowed"),
    ({"networkPolicy": {"internet": {"except": ["everything"]}}}, "does not match pattern"),
    ({"networkPolicy": {"internet": {"except": ["256.0.0.0/8"]}}}, "does not match pattern"),
    ({"networkPolicy": {"internet": {"except": ["0.0.0.0/0"]}}}, "does not match pattern"),
    ({"auth": {"method": "ldap"}}, "at '/auth/method': value must be one of 'shared-password'"),
    ({"auth": {"refreshAge": 0}}, "at '/auth/refreshAge': minimum: got 0, want 1"),
    ({"auth": {"refreshAge": 86401}}, "at '/auth/refreshAge': maximum: got 86,401, want 86,400"),
    (
        {"auth": {"visitorsRefreshAge": 0}},
        "at '/auth/visitorsRefreshAge': minimum: got 0, want 1",
    ),
    ({"auth": {"groupsMaxAge": 10**9}}, "at '/auth/groupsMaxAge': maximum: got"),
    ({"auth": {"groupsMaxAge": "1h"}}, "at '/auth/groupsMaxAge': got string, want integer"),
    ({"service": {"replicas": 2}}, "additional properties 'replicas' not allowed"),
    ({"service": {"leavingGrace": -1}}, "at '/service/leavingGrace': minimum: got -1, want 0"),
    ({"service": {"leavingGrace": 10**15}}, "at '/service/leavingGrace': maximum: got"),
    ({"service": {"db": {"url": "ledger.sqlite"}}}, "'ledger.sqlite' does not match pattern"),
    ({"service": {"idleMinutes": {"min": 60, "max": 30}}}, "idleMinutes: min is above max"),
    ({"auth": {"groups": {"flight": "alice"}}}, "at '/auth/groups/flight': got string, want array"),
    ({"auth": {"admins": ["Admin"]}}, 'auth: "Admin" cannot sign in: names are lower case'),
    ({"auth": {"users": ["a b"]}}, 'auth: "a b" cannot sign in: names are lower case'),
    ({"auth": {"groups": {"ops": ["a/b"]}}}, 'auth: "a/b" cannot sign in: names are lower case'),
    ({"teams": {"flight": {"quota": {"gpus": 2}}}}, "at '/teams/flight/quota/gpus': got number"),
    (
        {"teams": {"flight": {"quota": {"gpus": {"nvidia.com/gpu": 1.5}}}}},
        "at '/teams/flight/quota/gpus/nvidia.com~1gpu': got number, want integer",
    ),
    ({"teams": {"flight": {"quota": {"gpu": 2}}}}, "additional properties 'gpu' not allowed"),
    ({"teams": {"ML Vision": {}}}, 'teams: "ML Vision" cannot name a team'),
    ({"teams": {"视觉": {}}}, 'teams: "视觉" cannot name a team'),
    ({"teams": {"": {}}}, 'teams: "" cannot name a team'),
    ({"teams": {"t" * 64: {}}}, "cannot name a team: use at most 63 of a-z"),
    (
        {"teams": {"flight": {"defaultProfile": "gpu-9"}}},
        'teams.flight.defaultProfile: there is no profile "gpu-9"',
    ),
    (
        {"teams": {"flight": {"profiles": ["gpu-1"], "defaultProfile": "cpu-small"}}},
        """teams.flight.defaultProfile: "cpu-small" is not among the team's profiles""",
    ),
    (
        {"teams": {"flight": {"profiles": ["gpu-9"]}}},
        'teams.flight.profiles: there is no profile "gpu-9"',
    ),
    ({"teams": {"flight": {"idle": {"minutes": 1}}}}, "'/teams/flight/idle/minutes': minimum"),
    ({"teams": {"flight": {"leadGroups": "leads"}}}, "'/teams/flight/leadGroups': got string"),
    (
        {"teams": {"flight": {"grants": {"r1": {"gpus": {"nvidia.com/gpu": 1}}}}}},
        "at '/teams/flight/grants/r1': missing property 'until'",
    ),
    (
        {"teams": {"flight": {"grants": {"r1": {"until": "tomorrow", "profiles": ["gpu-1"]}}}}},
        "'tomorrow' does not match pattern",
    ),
    (
        {"teams": {"flight": {"grants": {"r1": {"until": "2030-01-31T18:00:00Z"}}}}},
        "teams.flight.grants.r1: must give gpus or profiles",
    ),
    (
        {"teamTemplates": {"line": {"pattern": "line-.*", "spec": {}}}},
        "at '/teamTemplates/line': missing property 'max'",
    ),
    (
        {"teamTemplates": {"line": {"pattern": "(", "max": 5, "spec": {}}}},
        "missing closing )",
    ),
    (
        {"teamTemplates": {"line": {"pattern": "a", "max": 5, "spec": {"groups": ["a"]}}}},
        "additional properties 'groups' not allowed",
    ),
    (
        {"teamTemplates": {"a line": {"pattern": "a", "max": 5, "spec": {}}}},
        'teamTemplates: "a line" cannot name a template',
    ),
    (
        {"teamTemplates": {"line": {"pattern": "a", "max": 5, "spec": {"profiles": ["b"]}}}},
        'teamTemplates.line.spec.profiles: there is no profile "b"',
    ),
    ({"teamNamespacePrefix": "Team_"}, 'teamNamespacePrefix: "Team_" must be'),
    ({"teamNamespacePrefix": "t" * 41}, "must be at most 40 of a-z"),
    ({"teamNamespacePrefix": "k"}, 'kube-... and default, could begin with "k"'),
    ({"teamNamespacePrefix": "kube-"}, 'could begin with "kube-"'),
    ({"teamNamespacePrefix": "kube-teams-"}, 'could begin with "kube-teams-"'),
    ({"teamNamespacePrefix": "def"}, 'could begin with "def"'),
]

# What stops an install that has an identity provider.
WRONG_OAUTH = [
    ({"clientId": ""}, "auth.oauth.clientId: is missing"),
    ({"clientSecret": ""}, "auth.oauth.clientSecret: is missing; set it, or put it as"),
    ({"callbackUrl": ""}, 'auth.oauth.callbackUrl: "" must be the address that people open'),
    (
        {"callbackUrl": "https://gpu.flight.test/oauth_callback"},
        "must be the address that people open with /hub/oauth_callback behind it",
    ),
    ({"callbackUrl": "gpu.flight.test/hub/oauth_callback"}, "does not match pattern"),
    ({"authorizeUrl": ""}, "auth.oauth.authorizeUrl: is missing; the provider's /.well-known"),
    ({"tokenUrl": ""}, "auth.oauth.tokenUrl: is missing"),
    ({"userdataUrl": ""}, "auth.oauth.userdataUrl: is missing"),
    ({"provider": "github"}, "auth.oauth.authorizeUrl: provider github has its own"),
    ({"provider": ["github", "google"]}, "at '/auth/oauth/provider': value must be one of"),
    ({"provider": "gitlab"}, "at '/auth/oauth/provider': value must be one of"),
    ({"github": {}}, "additional properties 'github' not allowed"),
    ({"allowAll": False}, "auth.oauth: nobody could sign in"),
    ({"allowedGroups": "flight"}, "at '/auth/oauth/allowedGroups': got string, want array"),
    ({"groupsClaim": ["groups"]}, "at '/auth/oauth/groupsClaim': got array, want string"),
]

# Keys of a profile that a team with a quota on cores or memory cannot be without.
UNMEASURED = [
    ({"cpu": 4}, {"memory": {"guarantee": "1Gi"}}, "profiles.plain.cpu: a guarantee is needed"),
    ({"memory": "4Gi"}, {"cpu": {"limit": 1}}, "profiles.plain.memory: a guarantee is needed"),
]


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    """Every part of the schema that describes a table."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for part in schema.values():
            yield from objects(part)


@pytest.mark.parametrize(("values", "sentence"), WRONG_PROFILES + WRONG_ELSEWHERE)
def test_wrong_values_stop_the_install_with_a_sentence(
    helm: Helm, values: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(ACCEPTED, values))


@pytest.mark.parametrize(("provider", "sentence"), WRONG_OAUTH)
def test_an_incomplete_identity_provider_stops_the_install_with_a_sentence(
    helm: Helm, provider: dict[str, Any], sentence: str
) -> None:
    assert sentence in helm.read_refusal(merge(OAUTH, {"auth": {"oauth": provider}}))


@pytest.mark.parametrize("provider", ["github", "google", "azuread"])
def test_other_providers_need_no_addresses(helm: Helm, provider: str) -> None:
    known = {"provider": provider, "authorizeUrl": "", "tokenUrl": "", "userdataUrl": ""}
    extra = {"extra": {"tenant_id": "flight"}} if provider == "azuread" else {}
    assert helm.render(merge(OAUTH, {"auth": {"oauth": {**known, **extra}}}))


def test_entra_needs_a_tenant(helm: Helm) -> None:
    known = {"provider": "azuread", "authorizeUrl": "", "tokenUrl": "", "userdataUrl": ""}
    refusal = helm.read_refusal(merge(OAUTH, {"auth": {"oauth": known}}))
    assert "auth.oauth.extra.tenant_id: is missing" in refusal


def test_who_may_sign_in_can_be_said_by_a_providers_own_trait(helm: Helm) -> None:
    allowed = {"allowAll": False, "extra": {"allowed_organizations": ["acme"]}}
    assert helm.render(merge(OAUTH, {"auth": {"oauth": allowed}}))


def test_people_sign_in_by_one_method(helm: Helm) -> None:
    both = merge(OAUTH, {"auth": {"method": "shared-password", "acceptSharedPassword": True}})
    assert "people sign in by one of the two" in helm.read_refusal(both)
    for table in ({"users": ["carol"]}, {"groups": {"ops": ["bob"]}}):
        refusal = helm.read_refusal(merge(OAUTH, {"auth": table}))
        assert f"auth.{next(iter(table))}: with method oauth the identity provider" in refusal
    assert helm.render(merge(OAUTH, {"auth": {"groups": {"ops": None}}}))


@pytest.mark.parametrize(("quota", "sizes", "sentence"), UNMEASURED)
def test_a_missing_limit_is_found_when_values_are_read(
    helm: Helm, quota: dict[str, Any], sizes: dict[str, Any], sentence: str
) -> None:
    plain = {"profiles": {"plain": {"images": ["lab"], **sizes}}}
    teams = {"flight": {"quota": quota}, "ops": {}}
    templates = {"line": {"pattern": "line-.*", "max": 1, "spec": {"quota": quota}}}
    for place, more in (
        ("teams.flight", {"teams": teams}),
        ("teamTemplates.line.spec", {"teamTemplates": templates}),
    ):
        refusal = helm.read_refusal(merge(ACCEPTED, plain, more))
        assert f"{sentence}, since {place} has a quota of it" in refusal


def test_a_profile_without_limits_may_be_there_for_teams_without_such_a_quota(helm: Helm) -> None:
    plain = {"images": ["lab"], "teams": ["ops"]}
    teams = {"flight": {"quota": {"cpu": 4, "memory": "8Gi"}}, "ops": {}}
    assert helm.render(merge(ACCEPTED, {"profiles": {"plain": plain}, "teams": teams}))
    limited = {"flight": {"profiles": ["gpu-1"], "quota": {"cpu": 4}}}
    open_to_all = {"images": ["lab"]}
    assert helm.render(merge(ACCEPTED, {"profiles": {"plain": open_to_all}, "teams": limited}))


@pytest.mark.parametrize("values", [wrong for wrong, _ in WRONG_PROFILES])
def test_the_hub_refuses_the_same_profiles_and_images(values: dict[str, Any]) -> None:
    tables = merge(DEFAULTS, values)
    profiles, images = (
        {name: record for name, record in tables[table].items() if record is not None}
        for table in ("profiles", "images")
    )
    with pytest.raises(ProfileError):
        read_profiles(profiles, images)


def test_an_entry_that_a_later_file_makes_null_is_no_entry(helm: Helm) -> None:
    gone = {
        "auth": {"groups": {"ops": None}},
        "teams": {"ops": None},
        "teamTemplates": {"line": None},
        "images": {"torch": None},
        "profiles": {"gpu-1": None, "gpu-2": None, "tensorboard": None},
    }
    manifests = helm.render(merge(ACCEPTED, gone))
    (written,) = (m["data"]["values.json"] for m in manifests if m["kind"] == "ConfigMap")
    values = json.loads(written)
    assert values["auth"]["groups"] == {}
    assert values["teamTemplates"] == {}
    assert list(values["images"]) == ["lab", "pytorch", "tensorflow", "tensorflow-py313"]
    assert list(values["profiles"]) == ["cpu-small"]
    assert "Team" not in {manifest["kind"] for manifest in manifests}


def test_shared_passwords_must_be_accepted_by_name(helm: Helm) -> None:
    assert (
        "auth.acceptSharedPassword: with method shared-password anybody who knows the password "
        "can sign in as anybody; set it to true if that is acceptable here"
    ) in helm.read_refusal({})


def test_the_schema_is_a_valid_one_and_takes_the_shipped_values() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(DEFAULTS)


def test_every_table_of_the_schema_is_closed_or_keyed_by_name() -> None:
    open_tables = [table for table in objects(SCHEMA) if "additionalProperties" not in table]
    assert open_tables == []
    for table in objects(SCHEMA):
        if "properties" in table:
            assert table["additionalProperties"] is False, table


def test_the_shipped_values_show_every_key_outside_the_named_tables() -> None:
    def keys(schema: dict[str, Any], values: dict[str, Any], place: str = "") -> Iterator[str]:
        for key, part in schema["properties"].items():
            if key not in values:
                yield place + key
            elif "properties" in part:
                yield from keys(part, values[key], f"{place}{key}.")

    assert list(keys(SCHEMA, DEFAULTS)) == []
