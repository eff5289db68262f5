"""Parts of a server's manifest; the whole of it is in test_spawner."""

from dataclasses import replace
from typing import Any

from spectrum_spawner.mounts import Mount
from spectrum_spawner.profiles import Profile
from spectrum_spawner.server_manifest import (
    make_bucket_keys,
    make_environment,
    make_groups,
    make_placement,
    make_resources,
)
from spectrum_spawner.teams import Bucket, Team


def test_cores_and_bytes_become_exact_quantities() -> None:
    profile = Profile(
        name="p", title="p", cpu_guarantee=0.1, cpu_limit=2, memory_limit=2**30, gpu=2
    )
    assert make_resources(profile) == {
        "requests": {"cpu": "100m"},
        "limits": {"cpu": "2", "memory": "1073741824", "nvidia.com/gpu": "2"},
    }
    assert make_resources(Profile(name="p", title="p")) == {"requests": {}, "limits": {}}


def test_only_a_server_with_gpus_tolerates_the_taint_of_gpu_nodes() -> None:
    spot = {"key": "spot", "operator": "Exists"}
    assert make_placement(Profile(name="p", title="p")) == {}
    assert make_placement(
        Profile(name="p", title="p", node_selector={"disk": "ssd"}, tolerations=(spot,))
    ) == {"nodeSelector": {"disk": "ssd"}, "tolerations": [spot]}
    assert make_placement(Profile(name="p", title="p", gpu=1, gpu_product="NVIDIA-A100")) == {
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {
                                    "key": "nvidia.com/gpu.product",
                                    "operator": "In",
                                    "values": ["NVIDIA-A100"],
                                }
                            ]
                        }
                    ]
                }
            }
        },
    }


HOME = [Mount(kind="home", claim="home-alice", path="/home/jovyan")]
VOLUMES = '[{"kind": "home", "name": "", "path": "/home/jovyan"}]'
ALWAYS = {"NB_UMASK": "002", "SPECTRUM_VOLUMES": VOLUMES}


def read(env: list[dict[str, Any]]) -> dict[str, str]:
    """The environment as a process has it, of two values the last; the pod's uid is always last."""
    *told, uid = env
    field = {"fieldRef": {"fieldPath": "metadata.uid"}}
    assert uid == {"name": "SPECTRUM_POD_UID", "valueFrom": field}
    return {entry["name"]: entry["value"] for entry in told}


def test_gpus_are_hidden_from_a_server_that_asked_for_none() -> None:
    env = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}, {"name": "A", "value": "1"}]
    hidden = {"NVIDIA_VISIBLE_DEVICES": "void"}
    cpu = make_environment(env, HOME, service_url="", gpu=0)
    gpu = make_environment(env, HOME, service_url="", gpu=1)
    assert read(cpu) == {"A": "1", **ALWAYS, **hidden}
    assert read(gpu) == {"A": "1", **ALWAYS}


def test_a_server_is_told_of_its_volumes_and_of_the_service_by_nobody_else() -> None:
    url = "http://proxy-public.spectrum/services/spectrum/"
    env = [{"name": name, "value": "x"} for name in ("SPECTRUM_URL", "SPECTRUM_POD_UID", "A")]
    made = make_environment(env, HOME, service_url=url, gpu=1)
    assert [entry["name"] for entry in made].count("SPECTRUM_URL") == 1
    assert read(made) == {"A": "x", **ALWAYS, "SPECTRUM_URL": url}


def test_documents_are_edited_together_where_the_server_is_a_teams() -> None:
    env = [{"name": "SPECTRUM_COLLABORATIVE", "value": "1"}]
    alone = make_environment(env, HOME, service_url="", gpu=1)
    together = make_environment(env, HOME, service_url="", gpu=1, collaborative=True)
    assert read(alone) == ALWAYS
    assert read(together) == {**ALWAYS, "SPECTRUM_COLLABORATIVE": "1"}


def test_volumes_belong_to_the_teams_group_where_there_is_one() -> None:
    assert make_groups(None) == {"supplementalGroups": []}
    assert make_groups(100000) == {
        "supplementalGroups": [100000],
        "fsGroup": 100000,
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def test_a_secret_called_bucket_reaches_servers_only_of_a_team_that_has_a_bucket() -> None:
    without = Team(name="ops", uid="u", display_name="Ops", groups=frozenset({"ops"}))
    keys = {"secretRef": {"name": "spectrum-bucket", "optional": True}}
    assert make_bucket_keys(without) == []
    assert make_bucket_keys(replace(without, bucket=Bucket(name="b", ready=True))) == [keys]
