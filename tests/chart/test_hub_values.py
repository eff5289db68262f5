"""From the administrator's values to the hub: what the chart writes, the hub's config reads."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from traitlets.config import Config, PyFileConfigLoader

from tests.chart.helm import ACCEPTED, OAUTH, Helm, merge

ROOT = Path(__file__).parent.parent.parent
LOCAL = yaml.safe_load((ROOT / "local" / "values.yaml").read_text())


@pytest.mark.parametrize("values", [ACCEPTED, LOCAL], ids=["shipped", "local"])
def test_the_hub_reads_what_the_chart_writes(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> None:
    config = load_config(helm, tmp_path, monkeypatch, values)
    expected = merge(yaml.safe_load((ROOT / "helm/spectrum/values.yaml").read_text()), values)
    assert config.SpectrumSpawner.profiles == expected["profiles"]
    assert config.SpectrumSpawner.images == expected["images"]
    assert config.TableAuthenticator.members == expected["auth"]["groups"]
    assert config.JupyterHub.base_url == expected["hub"]["baseUrl"]


def test_the_hub_reads_an_identity_provider(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"groupsClaim": "realm_access.roles", "adminGroups": ["platform/admins"]}
    values = merge(OAUTH, {"auth": {"oauth": chosen, "groupsMaxAge": 60}})
    config = load_config(helm, tmp_path, monkeypatch, values)
    provider = OAUTH["auth"]["oauth"]
    assert config.OAuthenticator.client_id == provider["clientId"]
    assert config.OAuthenticator.client_secret == "ab" * 32
    assert config.OAuthenticator.token_url == provider["tokenUrl"]
    assert config.OAuthenticator.admin_groups == ["platform/admins"]
    assert config.ProviderIdentity.groups_claim == "realm_access.roles"
    assert config.ProviderIdentity.groups_max_age == 60
    assert "TableAuthenticator" not in config


def test_the_demo_accounts_are_alice_bob_carol_and_admin(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(helm, tmp_path, monkeypatch, LOCAL)
    assert config.TableAuthenticator.allowed_users == ["admin", "alice", "bob", "carol"]
    assert config.TableAuthenticator.admin_users == ["admin"]


def load_config(
    helm: Helm, directory: Path, monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]
) -> Config:
    """The hub's configuration as it would be in its pod, from rendered ConfigMap and Secret."""
    written = helm.find("ConfigMap", "hub", values)["data"]["values.json"]
    (directory / "values.json").write_text(written)
    for key in helm.find("Secret", "hub", values)["data"]:
        (directory / key).write_text("ab" * 32)
    monkeypatch.setenv("POD_NAMESPACE", "spectrum")
    monkeypatch.setenv("SPECTRUM_VALUES", str(directory / "values.json"))
    monkeypatch.setenv("SPECTRUM_SECRETS", str(directory))
    assert json.loads(written)
    return PyFileConfigLoader(str(ROOT / "hub_config" / "jupyterhub_config.py")).load_config()
