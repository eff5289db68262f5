"""The spawner's seams, as far as they need no cluster: the whole manifest, state, sentences."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import kubespawner.spawner
import pytest

from spectrum_spawner import kube
from spectrum_spawner.choice import Choice
from spectrum_spawner.kube import Refused
from spectrum_spawner.mounts import Mount, mounts_of
from spectrum_spawner.owner import Owner
from spectrum_spawner.refusals import Exceeded, Refusal, find_exceeded, refusal_of
from spectrum_spawner.spawner import SpectrumSpawner
from spectrum_spawner.teams import Dataset, Scratch, Share, Team, Withheld
from spectrum_spawner.views import Views

IMAGES = {"tensorflow": {"title": "TensorFlow", "image": "registry.example/tf:1"}}
PROFILES: dict[str, Any] = {
    "cpu-small": {
        "cpu": {"guarantee": 0.5, "limit": 2},
        "memory": {"guarantee": "1Gi", "limit": "2Gi"},
        "sharedMemory": "256Mi",
        "images": ["tensorflow"],
    },
    "gpu-1": {"gpu": 1, "gpuProduct": "NVIDIA-A100", "images": ["tensorflow"]},
}
FLIGHT = Team(
    name="flight",
    uid="u-1",
    display_name="{username} & <Flight>",
    groups=frozenset({"flight"}),
    namespace="spectrum-flight",
    gid=100000,
    ready=True,
    share=Share(claim="share"),
    scratch=Scratch(size="20Gi"),
    datasets=(Dataset(name="imagenet", title="ImageNet", claim="dataset-imagenet"),),
)


class Named:
    """Plays the hub's user and hub: attributes are all that is read of them."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@pytest.fixture
async def spawner(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SpectrumSpawner]:
    # nothing here talks to an API server, so there is no configuration of one to be read
    monkeypatch.setattr(kubespawner.spawner, "load_config", lambda **_: None)
    monkeypatch.setattr(kube, "LONGEST_PAUSE", 60.0)
    monkeypatch.setenv("POD_NAMESPACE", "spectrum")
    made = SpectrumSpawner(
        user=Named(name="Ann {username}", id=7, url="/user/ann/", settings={}, groups=[]),
        hub=Named(public_host="", base_url="/hub/", api_url="http://hub.spectrum:8081/hub/api"),
        oauth_client_id="client",
        api_token="secret",
        profiles=PROFILES,
        images=IMAGES,
        proxy_url="http://proxy-public.spectrum",
    )
    yield made
    await Views.close_shared()
    await made.api.api_client.close()


def choose_profile(spawner: SpectrumSpawner, name: str) -> Choice:
    profile = spawner.known_profiles[name]
    choice = Choice(team=FLIGHT, profile=profile, image=profile.images[0], scratch="exp1")
    spawner._apply(choice)
    return choice


def make_mounts(team: Team) -> list[Mount]:
    return mounts_of(team, home="home-ann", scratch="scratch-ann-exp1", disk="exp1")


async def test_the_manifest_of_a_server_without_gpu(spawner: SpectrumSpawner) -> None:
    choose_profile(spawner, "cpu-small")
    pod = await spawner.get_server_manifest(make_mounts(FLIGHT), start_id="s-1")
    container = pod["spec"]["containers"][0]
    env = {entry["name"]: entry.get("value") for entry in container.pop("env")}
    script = pod["spec"]["initContainers"][0]["command"].pop()
    labels = pod["metadata"].pop("labels")
    versions = {"kubespawner-version", "jupyterhub-version"}
    annotations = {
        key: value
        for key, value in pod["metadata"].pop("annotations").items()
        if key.removeprefix("hub.jupyter.org/") not in versions
    }
    assert pod == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jupyter-ann-username--icccbvwgicqgdnn3"},
        "spec": {
            "imagePullSecrets": [],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "serviceAccountName": "spectrum-server",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "supplementalGroups": [100000],
                "fsGroup": 100000,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumes": [
                {"name": "home", "persistentVolumeClaim": {"claimName": "home-ann"}},
                {"name": "share", "persistentVolumeClaim": {"claimName": "share"}},
                {"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch-ann-exp1"}},
                {
                    "name": "dataset-imagenet",
                    "persistentVolumeClaim": {"claimName": "dataset-imagenet", "readOnly": True},
                },
                {"name": "temporary", "emptyDir": {}},
                {"name": "datasets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {
                    "name": "shared-memory",
                    "emptyDir": {"medium": "Memory", "sizeLimit": "268435456"},
                },
            ],
            "initContainers": [
                {
                    "name": "share",
                    "image": "registry.example/tf:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/bin/sh", "-c"],
                    "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1073741824"},
                        "limits": {"cpu": "2", "memory": "2147483648"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "terminationMessagePolicy": "FallbackToLogsOnError",
                    "volumeMounts": [{"name": "share", "mountPath": "/share"}],
                }
            ],
            "containers": [
                {
                    "name": "notebook",
                    "image": "registry.example/tf:1",
                    "imagePullPolicy": "IfNotPresent",
                    "args": ["spectrum-singleuser"],
                    "envFrom": [],
                    "lifecycle": {},
                    "ports": [{"name": "notebook-port", "containerPort": 8888}],
                    "resources": {
                        "requests": {"cpu": "500m", "memory": "1073741824"},
                        "limits": {"cpu": "2", "memory": "2147483648"},
                    },
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [
                        {"name": "home", "mountPath": "/home/jovyan"},
                        {"name": "share", "mountPath": "/home/jovyan/team", "subPath": "team"},
                        {"name": "scratch", "mountPath": "/home/jovyan/scratch"},
                        {"name": "temporary", "mountPath": "/tmp"},
                        {"name": "datasets", "mountPath": "/home/jovyan/datasets"},
                        {
                            "name": "dataset-imagenet",
                            "mountPath": "/home/jovyan/datasets/imagenet",
                            "readOnly": True,
                        },
                        {"name": "shared-memory", "mountPath": "/dev/shm"},
                    ],
                }
            ],
        },
    }
    assert annotations == {
        "hub.jupyter.org/username": "Ann {username}",
        "spectrum.dev/owner-hub": "spectrum",
        "spectrum.dev/owner-team": "flight",
        "spectrum.dev/owner-team-uid": "u-1",
        "spectrum.dev/owner-user": "Ann {username}",
        "spectrum.dev/owner-server": "",
        "spectrum.dev/profile": "cpu-small",
        "spectrum.dev/start-id": "s-1",
    }
    assert (
        labels
        | {
            "app.kubernetes.io/name": "spectrum",
            "app.kubernetes.io/managed-by": "spectrum",
            "app.kubernetes.io/component": "singleuser-server",
            "spectrum.dev/hub": "spectrum",
            "spectrum.dev/team": "flight",
            "spectrum.dev/user": "ann-username--icccbvwgicqgdnn3",
            "spectrum.dev/server": "",
            "spectrum.dev/profile": "cpu-small",
        }
        == labels
    )
    assert (
        env
        | {
            "JUPYTERHUB_API_URL": "http://hub.spectrum:8081/hub/api",
            "JUPYTERHUB_USER": "Ann {username}",
            "CPU_LIMIT": "2.0",
            "MEM_LIMIT": "2147483648",
            "NB_UMASK": "002",
            "NVIDIA_VISIBLE_DEVICES": "void",
            "SPECTRUM_POD_UID": None,  # the kubelet's to fill in
            "SPECTRUM_URL": "http://proxy-public.spectrum/services/spectrum/",
        }
        == env
    )
    assert json.loads(env["SPECTRUM_VOLUMES"] or "") == [
        {"kind": "home", "name": "", "path": "/home/jovyan"},
        {"kind": "share", "name": "", "path": "/home/jovyan/team"},
        {"kind": "scratch", "name": "exp1", "path": "/home/jovyan/scratch"},
        {"kind": "dataset", "name": "imagenet", "path": "/home/jovyan/datasets/imagenet"},
    ]
    assert "100000" in script


async def test_a_share_that_is_prepared_is_only_mounted(spawner: SpectrumSpawner) -> None:
    team = replace(FLIGHT, share=Share(claim="share", prepared=True))
    choice = choose_profile(spawner, "cpu-small")
    spawner._apply(replace(choice, team=team))
    pod = await spawner.get_server_manifest(make_mounts(team), start_id="s-1")
    assert "initContainers" not in pod["spec"]
    assert {"name": "share", "persistentVolumeClaim": {"claimName": "share"}} in (
        pod["spec"]["volumes"]
    )


async def test_a_share_that_is_not_there_yet_is_nobodys_home(spawner: SpectrumSpawner) -> None:
    pending = Withheld(kind="share", why="It is being made.")
    choice = choose_profile(spawner, "cpu-small")
    for withheld, expected in (((), 0), ((pending,), 1)):
        team = replace(FLIGHT, share=None, withheld=withheld)
        spawner._apply(replace(choice, team=team))
        pod = await spawner.get_server_manifest(make_mounts(team), start_id="s-1")
        paths = [m["mountPath"] for m in pod["spec"]["containers"][0]["volumeMounts"]]
        assert paths.count("/home/jovyan/team") == expected


async def test_what_prepares_the_share_asks_for_no_gpu(spawner: SpectrumSpawner) -> None:
    choose_profile(spawner, "gpu-1")
    pod = await spawner.get_server_manifest(make_mounts(FLIGHT), start_id="s-1")
    assert pod["spec"]["initContainers"][0]["resources"] == {"requests": {}, "limits": {}}


async def test_a_gpu_is_a_limit_on_a_node_of_its_product(spawner: SpectrumSpawner) -> None:
    spawner.environment = {"NVIDIA_VISIBLE_DEVICES": "all"}
    choose_profile(spawner, "gpu-1")
    pod = await spawner.get_server_manifest([], start_id="s-1")
    container = pod["spec"]["containers"][0]
    assert container["resources"] == {"requests": {}, "limits": {"nvidia.com/gpu": "1"}}
    assert "NVIDIA_VISIBLE_DEVICES" not in [entry["name"] for entry in container["env"]]
    assert pod["spec"]["affinity"]["nodeAffinity"]


async def test_state_finds_the_pod_that_runs(spawner: SpectrumSpawner) -> None:
    assert spawner.get_state() == {}
    state = {
        "namespace": "spectrum-flight",
        "pod_name": "jupyter-ann",
        "team": "flight",
        "start_id": "s-1",
        "uid": "u-7",
        "options": {"team": "flight", "profile": "gpu-1", "image": "tensorflow"},
        "stopping": True,
        "subject": "https://id.example|7",
    }
    spawner.load_state(state)
    assert spawner.get_state() == state
    assert spawner._run is not None
    assert spawner._run.pod.owner == Owner(
        hub="spectrum",
        team="flight",
        user="Ann {username}",
        server="",
        subject="https://id.example|7",
    )
    spawner.clear_state()
    assert spawner.get_state() == {}
    assert await spawner.poll() == 1


async def test_a_server_that_was_never_started_is_not_running(spawner: SpectrumSpawner) -> None:
    spawner.load_state({})
    assert await spawner.poll() == 1
    await spawner.stop()


async def test_state_of_an_earlier_release_still_finds_the_pod(spawner: SpectrumSpawner) -> None:
    state = {
        "namespace": "spectrum-flight",
        "pod_name": "jupyter-ann",
        "team": "flight",
        "start_id": "s-1",
        "uid": "u-7",
        "options": {},
    }
    spawner.load_state(state)
    assert spawner.get_state() == {**state, "stopping": False, "subject": ""}


FORBIDDEN = 'pods "p" is forbidden: '


@pytest.mark.parametrize(
    ("message", "reason", "sentence"),
    [
        (
            FORBIDDEN + "exceeded quota: spectrum, requested: requests.nvidia.com/gpu=1, "
            "used: requests.nvidia.com/gpu=2, limited: requests.nvidia.com/gpu=2",
            "quota",
            "The quota of team flight is used up: 2 of 2 GPUs in use, 1 more needed. "
            "Stop a server of the team, or request more.",
        ),
        (
            FORBIDDEN + "exceeded quota: spectrum, requested: limits.memory=4Gi,pods=1, "
            "used: limits.memory=30Gi,pods=20, limited: limits.memory=32Gi,pods=20",
            "quota",
            "The quota of team flight is used up: 30Gi of 32Gi memory in use, 4Gi more needed; "
            "20 of 20 pods in use, 1 more needed. "
            "Stop a server of the team, or request more.",
        ),
        (
            FORBIDDEN + "exceeded quota: spectrum, requested: requests.storage=10Gi, "
            "used: requests.storage=95Gi, limited: requests.storage=100Gi",
            "quota",
            "There is no room for your home: the storage quota of team flight is used up, 95Gi of "
            "100Gi storage in use, 10Gi more needed. Ask a cluster administrator for more.",
        ),
        (
            FORBIDDEN + "exceeded quota: spectrum, "
            "requested: fast.storageclass.storage.k8s.io/persistentvolumeclaims=1, "
            "used: fast.storageclass.storage.k8s.io/persistentvolumeclaims=5, "
            "limited: fast.storageclass.storage.k8s.io/persistentvolumeclaims=5",
            "quota",
            "There is no room for your home: the storage quota of team flight is used up, 5 of 5 "
            "fast volumes in use, 1 more needed. Ask a cluster administrator for more.",
        ),
        (
            FORBIDDEN + "unable to create new content in namespace x because it is being "
            "terminated",
            "namespace",
            "The namespace of team flight is being deleted: ask a cluster administrator.",
        ),
        (
            FORBIDDEN + "no",
            "refused",
            'The cluster refused to create your server: pods "p" is forbidden: no. '
            "Ask a cluster administrator.",
        ),
    ],
)
def test_what_the_api_server_refuses_is_said_in_one_sentence(
    message: str, reason: str, sentence: str
) -> None:
    error = Refused(message, status=403, reason="Forbidden")
    what = "your home" if "storage" in message else "your server"
    refusal = refusal_of(error, team="flight", what=what)
    assert (refusal.reason, refusal.jupyterhub_message, refusal.status_code) == (
        reason,
        sentence,
        409,
    )
    assert str(error) in refusal.log_message


def test_an_exceeded_quota_is_read_from_what_the_api_server_says() -> None:
    message = (
        FORBIDDEN + "exceeded quota: spectrum, requested: pods=1,requests.amd.com/gpu=1, "
        "used: pods=20,requests.amd.com/gpu=1k, limited: pods=20,requests.amd.com/gpu=1k"
    )
    exceeded = find_exceeded(Refused(message, status=403, reason="Forbidden"))
    assert exceeded == Exceeded(
        requested={"pods": "1", "requests.amd.com/gpu": "1"},
        used={"pods": "20", "requests.amd.com/gpu": "1k"},
        limited={"pods": "20", "requests.amd.com/gpu": "1k"},
    )
    keys = ("pods", "requests.amd.com/gpu", "cpu")
    assert [exceeded.counts(key) for key in keys] == [True, False, False]
    assert find_exceeded(Refused("no", status=403, reason="Forbidden")) is None


def test_a_refusal_links_to_the_request_that_would_lift_it() -> None:
    refusal = Refusal("<b>Full.", reason="quota", request="quota")
    refusal.link("/services/spectrum/requests", {"team": "a&b", "profile": "gpu-1", "image": "x"})
    assert refusal.jupyterhub_message == "<b>Full."
    assert (
        refusal.jupyterhub_html_message
        == refusal.message_html
        == (
            '&lt;b&gt;Full. <a href="/services/spectrum/requests?kind=quota&amp;team=a%26b&amp;'
            'profile=gpu-1">Request more</a>'
        )
    )


@pytest.mark.parametrize("asked", [{}, {"team": ["a"], "profile": None}])
def test_a_link_names_only_what_was_asked_in_earnest(asked: dict[str, Any]) -> None:
    refusal = Refusal("No.", reason="options", request="team")
    refusal.link("/requests", asked)
    assert 'href="/requests?kind=team"' in str(refusal.message_html)


def test_a_refusal_that_no_request_lifts_has_no_link() -> None:
    refusal = Refusal("No.", reason="options")
    refusal.link("/requests", {})
    assert not hasattr(refusal, "jupyterhub_html_message")


def test_a_refusal_is_no_fault_of_the_hub() -> None:
    refusal = Refusal("No.", reason="options", status_code=403)
    assert (refusal.status_code, refusal.message, refusal.reason) == (403, "No.", "options")
