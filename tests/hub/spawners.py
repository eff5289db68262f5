"""The spawners under test: unmodified KubeSpawner, and ours, on the same cluster and stubs."""

from dataclasses import dataclass
from typing import Any

from jupyterhub.spawner import Spawner
from kubespawner import KubeSpawner
from traitlets.config import Config

from spectrum_spawner.identity import TableAuthenticator
from spectrum_spawner.spawner import SpectrumSpawner
from tests.hub.team import Team

IMAGE = "localhost/spectrum/tensorflow-notebook:dev"
IMAGES = {"tensorflow": {"title": "TensorFlow", "image": IMAGE}}
PROFILES: dict[str, Any] = {
    "cpu-small": {
        "title": "Small",
        "cpu": {"guarantee": 0.1, "limit": 1},
        "memory": {"guarantee": "256Mi", "limit": "1Gi"},
        "sharedMemory": "64Mi",
        "images": ["tensorflow"],
        "default": True,
    },
    "gpu-1": {
        "title": "One GPU",
        "gpu": 1,
        "cpu": {"guarantee": 0.1, "limit": 1},
        "memory": {"guarantee": "256Mi", "limit": "1Gi"},
        "images": ["tensorflow"],
    },
    "ops-only": {"title": "For ops", "images": ["tensorflow"], "teams": ["ops"]},
}
GROUPS = {"flight": {"users": ["alice", "bob"]}, "ops": {"users": ["bob", "admin"]}}
FLIGHT = {"team": "flight", "profile": "cpu-small"}
OPS = {"team": "ops", "profile": "cpu-small"}
USER_PASSWORD = "a password of all"  # where the hub asks for one
ADMIN_PASSWORD = "another password that is long enough"
OPS_GPU = {"team": "ops", "profile": "gpu-1"}


@dataclass(frozen=True)
class Setup:
    """A spawner, its hub's configuration, and what alice and bob may ask it for."""

    spawner_class: type[Spawner]
    config: Config
    options: dict[str, str]


def make_plain(team: Team) -> Setup:
    """KubeSpawner with its own defaults, in a team's namespace."""
    config = _make_config()
    spawner = config.KubeSpawner
    spawner.namespace = team.namespace
    spawner.image = IMAGE
    spawner.uid = 1000
    # What the namespace's pod security level `restricted` asks for.
    spawner.pod_security_context = {
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spawner.container_security_context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return Setup(KubeSpawner, config, {})


def make_spectrum(hub_namespace: str) -> Setup:
    """SpectrumSpawner with the profiles above; teams are whatever Team objects there are."""
    config = _make_config()
    spawner = config.SpectrumSpawner
    spawner.hub_namespace = hub_namespace
    spawner.images = IMAGES
    spawner.profiles = PROFILES
    spawner.contact = "the test's administrators"
    return Setup(SpectrumSpawner, config, FLIGHT)


def make_signed(hub_namespace: str) -> Setup:
    """SpectrumSpawner behind an authenticator of ours, so that who asks for what is noted."""
    setup = make_spectrum(hub_namespace)
    config = setup.config
    config.JupyterHub.pop("load_groups")
    config.JupyterHub.authenticator_class = TableAuthenticator
    table = config.TableAuthenticator
    table.members = {group: record["users"] for group, record in GROUPS.items()}
    table.allowed_users = {name for record in GROUPS.values() for name in record["users"]}
    table.admin_users = {"admin"}
    table.hub_namespace = hub_namespace
    table.user_password = USER_PASSWORD
    table.admin_password = ADMIN_PASSWORD
    return setup


def _make_config() -> Config:
    config = Config()
    config.JupyterHub.load_groups = GROUPS
    config.Authenticator.admin_users = {"admin"}
    return config
