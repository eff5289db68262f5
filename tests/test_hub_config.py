"""The hub's configuration: values become traits, and wrong values stop it with one sentence."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jupyterhub.app import JupyterHub
from jupyterhub.crypto import CryptKeeper
from jupyterhub.proxy import ConfigurableHTTPProxy
from traitlets.config import Config, PyFileConfigLoader

import spectrum_spawner
from spectrum_spawner.identity import TableAuthenticator
from spectrum_spawner.spawner import SpectrumSpawner

CONFIG = Path(__file__).parent.parent / "hub_config" / "jupyterhub_config.py"

SECRETS = {
    "proxyToken": "t" * 64,
    "cookieSecret": "ab" * 32,
    "cryptKey": "cd" * 32,
    "userPassword": "u" * 16,
    "adminPassword": "a" * 40,
}

IMAGES = {
    "tensorflow": {
        "title": "TensorFlow 2.21",
        "image": "localhost/spectrum/tensorflow-notebook:dev",
        "python": "3.11",
        "pullPolicy": "IfNotPresent",
    }
}

PROFILES = {
    "cpu-small": {
        "title": "Small CPU",
        "cpu": {"guarantee": 0.5, "limit": 2},
        "memory": {"guarantee": "1Gi", "limit": "4Gi"},
        "images": ["tensorflow"],
        "default": True,
    },
    "gpu-1": {"title": "One GPU", "gpu": 1, "images": ["tensorflow"]},
}

VALUES: dict[str, Any] = {
    "hub": {"baseUrl": "/"},
    "auth": {
        "method": "shared-password",
        "acceptSharedPassword": True,
        "admins": ["admin"],
        "users": ["carol"],
        "groups": {"flight": ["alice"], "ops": ["alice", "bob"]},
        "contact": "your cluster administrators",
    },
    "images": IMAGES,
    "profiles": PROFILES,
    "singleuser": {
        "startTimeout": 300,
        "httpTimeout": 60,
        "homeSize": "10Gi",
        "homeStorageClass": "",
        "defaultUrl": "/lab",
    },
}


class Hub:
    """The place where the hub finds its values and secrets."""

    def __init__(self, directory: Path) -> None:
        self.values = directory / "values.json"
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        for key, text in SECRETS.items():
            (self.secrets / key).write_text(text + "\n")

    def load(self, values: dict[str, Any]) -> Config:
        self.values.write_text(json.dumps(values))
        return PyFileConfigLoader(str(CONFIG)).load_config()

    def read_refusal(self, values: dict[str, Any]) -> str:
        with pytest.raises(SystemExit) as stopped:
            self.load(values)
        return str(stopped.value)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path)
    monkeypatch.setenv("POD_NAMESPACE", "spectrum")
    monkeypatch.setenv("SPECTRUM_VALUES", str(hub.values))
    monkeypatch.setenv("SPECTRUM_SECRETS", str(hub.secrets))
    return hub


def change(path: str, value: Any) -> dict[str, Any]:
    """The values with one of them set, named by a path such as `hub/baseUrl`."""
    values = copy.deepcopy(VALUES)
    *above, last = path.split("/")
    table = values
    for key in above:
        table = table[key]
    table[last] = value
    return values


def test_the_whole_configuration_follows_from_values_and_secrets(hub: Hub) -> None:
    assert hub.load(VALUES) == {
        "JupyterHub": {
            "allow_named_servers": True,
            "authenticator_class": "spectrum_spawner.identity.TableAuthenticator",
            "base_url": "/",
            "cleanup_servers": False,
            "cookie_secret": bytes.fromhex("ab" * 32),
            "db_url": "sqlite:////srv/jupyterhub/jupyterhub.sqlite",
            "hub_bind_url": "http://0.0.0.0:8081",
            "hub_connect_url": "http://hub.spectrum:8081",
            "named_server_limit_per_user": 5,
            "spawner_class": "spectrum_spawner.spawner.SpectrumSpawner",
            "template_paths": [str(Path(spectrum_spawner.__file__).parent / "templates")],
            "upgrade_db": True,
        },
        "TableAuthenticator": {
            "admin_password": "a" * 40,
            "admin_users": ["admin"],
            "allowed_users": ["admin", "alice", "bob", "carol"],
            "members": {"flight": ["alice"], "ops": ["alice", "bob"]},
            "user_password": "u" * 16,
        },
        "SpectrumSpawner": {
            "consecutive_failure_limit": 0,
            "contact": "your cluster administrators",
            "default_url": "/lab",
            "home_size": "10Gi",
            "home_storage_class": "",
            "http_timeout": 60,
            "hub_namespace": "spectrum",
            "images": IMAGES,
            "profiles": PROFILES,
            "start_timeout": 300,
        },
        "ConfigurableHTTPProxy": {
            "api_url": "http://proxy-api:8001",
            "auth_token": "t" * 64,
            "should_start": False,
        },
        "CryptKeeper": {"keys": [bytes.fromhex("cd" * 32)]},
    }


def test_every_trait_of_the_configuration_exists(hub: Hub) -> None:
    classes = [JupyterHub, TableAuthenticator, SpectrumSpawner, ConfigurableHTTPProxy, CryptKeeper]
    known = {cls.__name__: cls.class_trait_names(config=True) for cls in classes}
    unknown = [
        f"{section}.{trait}"
        for section, traits in hub.load(VALUES).items()
        for trait in traits
        if trait not in known[section]
    ]
    assert unknown == []


def test_the_authenticator_takes_the_configuration(hub: Hub) -> None:
    authenticator = TableAuthenticator(config=hub.load(VALUES))
    assert authenticator.allowed_users == {"admin", "alice", "bob", "carol"}
    assert authenticator.admin_users == {"admin"}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (change("culling", {}), "culling: unknown key, known are"),
        (change("hub/baseURL", "/"), "hub.baseURL: unknown key, known are hub.baseUrl"),
        (change("singleuser/timeout", 1), "singleuser.timeout: unknown key, known are singleuser."),
        (change("auth/method", "oauth"), "the only method so far is shared-password"),
        (change("auth/acceptSharedPassword", False), "can sign in as anybody"),
        (change("auth/acceptSharedPassword", "true"), "can sign in as anybody"),
        (change("profiles", {}), "profiles: at least one profile is needed"),
        (change("profiles/gpu-1/gpu", "1.5"), "profiles.gpu-1.gpu: '1.5' is no whole number"),
        (
            change("profiles/gpu-1/nodeselector", {}),
            "profiles.gpu-1.nodeselector: unknown key",
        ),
        (
            change("profiles/GPU-1", PROFILES["gpu-1"]),
            "profiles: gpu-1 and GPU-1 have the same slug",
        ),
        (
            change("profiles/cpu-small/cpu/guarantee", 4),
            "profiles.cpu-small.cpu: the guarantee is above the limit",
        ),
        (change("images", {}), "there is no image 'tensorflow' under images"),
    ],
)
def test_wrong_values_stop_the_hub_with_a_sentence(
    hub: Hub, values: dict[str, Any], sentence: str
) -> None:
    refusal = hub.read_refusal(values)
    assert refusal.startswith("The values are wrong. ")
    assert sentence in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("missing", ["auth", "profiles", "images"])
def test_absent_tables_stop_the_hub_with_a_sentence(hub: Hub, missing: str) -> None:
    values = {key: table for key, table in VALUES.items() if key != missing}
    assert hub.read_refusal(values).startswith("The values are wrong. ")
