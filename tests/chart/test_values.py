"""Values: the schema is closed, and wrong ones stop the install with a sentence."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from spectrum_spawner.profile_values import ProfileError, read_profiles
from tests.chart.helm import ACCEPTED, CHART, Helm, merge

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
    ({"profiles": {"cpu-small": None, "gpu-1": None}}, "minProperties: got 0, want 1"),
    (
        {"profiles": {"cpu-small": None, "gpu-1": None, "gpu-2": None}},
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
    ({"culling": {}}, "additional properties 'culling' not allowed"),
    ({"hub": {"replicas": 2}}, "additional properties 'replicas' not allowed"),
    ({"hub": {"baseUrl": "spectrum"}}, "'spectrum' does not match pattern"),
    ({"hub": {"db": {"size": "1GB"}}}, "'1GB' does not match pattern"),
    ({"proxy": {"service": {"type": "Ingress"}}}, "at '/proxy/service/type': value must be one of"),
    ({"proxy": {"service": {"nodePort": "30080"}}}, "at '/proxy/service/nodePort': got string"),
    ({"singleuser": {"startTimeout": -1}}, "at '/singleuser/startTimeout': minimum: got -1"),
    ({"singleuser": {"httpTimeout": 0}}, "at '/singleuser/httpTimeout': minimum: got 0"),
    ({"singleuser": {"homeSize": "ten"}}, "'ten' does not match pattern"),
    ({"networkPolicy": {"internet": {"except": ["everything"]}}}, "does not match pattern"),
    ({"networkPolicy": {"internet": {"except": ["256.0.0.0/8"]}}}, "does not match pattern"),
    ({"networkPolicy": {"internet": {"except": ["0.0.0.0/0"]}}}, "does not match pattern"),
    ({"auth": {"method": "oauth"}}, "at '/auth/method': value must be 'shared-password'"),
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
    ({"teamNamespacePrefix": "Team_"}, 'teamNamespacePrefix: "Team_" must be'),
    ({"teamNamespacePrefix": "t" * 41}, "must be at most 40 of a-z"),
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
        "images": {"torch": None},
        "profiles": {"gpu-1": None, "gpu-2": None},
    }
    manifests = helm.render(merge(ACCEPTED, gone))
    (written,) = (m["data"]["values.json"] for m in manifests if m["kind"] == "ConfigMap")
    values = json.loads(written)
    assert values["auth"]["groups"] == {}
    assert list(values["images"]) == ["lab", "tensorflow"]
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
