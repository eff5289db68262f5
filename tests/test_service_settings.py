"""What the service is told."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from spectrum_spawner.service.events import Webhook
from spectrum_spawner.service.settings import Culling, Settings, SettingsError

SECRETS = {
    "serviceToken": "t" * 32,
    "serviceCookieSecret": "ab" * 32,
    "auditTokenHub": "h" * 32,
    "auditTokenController": "c" * 32,
}
VALUES = {
    "hub": {"baseUrl": "/jupyter/"},
    "service": {"dbUrl": "", "leavingGrace": 60, "idleMinutes": {"min": 20, "max": 50}},
    "auth": {"contact": "the help desk"},
    "images": {"lab": {"image": "registry.example/lab:1"}},
    "profiles": {"small": {"title": "Small", "images": ["lab"]}},
    "culling": {
        "enabled": True,
        "every": 30,
        "concurrency": 5,
        "rules": {"night": {"order": 1, "idleMinutes": 90, "evidence": ["kernels"]}, "gpu": None},
        "exemptions": {},
    },
    "metrics": {"prometheusUrl": "http://prometheus:9090", "power": None},
    "teamNamespacePrefix": "lab-",
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    write(tmp_path, VALUES, SECRETS)
    return {
        "SPECTRUM_VALUES": str(tmp_path / "values.json"),
        "SPECTRUM_SECRETS": str(tmp_path),
        "POD_NAMESPACE": "spectrum",
        "JUPYTERHUB_SERVICE_PREFIX": "/jupyter/services/spectrum/",
        "JUPYTERHUB_BASE_URL": "/jupyter/",
        "JUPYTERHUB_API_URL": "http://hub.spectrum:8081/jupyter/hub/api",
        "JUPYTERHUB_CLIENT_ID": "service-spectrum",
    }


def write(directory: Path, values: object, secrets: dict[str, str]) -> None:
    (directory / "values.json").write_text(json.dumps(values))
    for key, secret in secrets.items():
        (directory / key).write_text(f"{secret}\n")


def test_everything_is_read(environment) -> None:
    settings = Settings.from_environment(environment)
    assert settings == Settings(
        hub_namespace="spectrum",
        prefix="/jupyter/services/spectrum/",
        base_url="/jupyter/",
        api_url="http://hub.spectrum:8081/jupyter/hub/api",
        client_id="service-spectrum",
        api_token="t" * 32,
        cookie_secret=b"\xab" * 32,
        writers={"hub": "h" * 32, "controller": "c" * 32},
        database="sqlite:////srv/spectrum/ledger.sqlite",
        leaving_grace=60,
        idle_minutes=(20, 50),
        contact="the help desk",
        profiles=settings.profiles,
        culling=Culling(
            enabled=True,
            every=30,
            concurrency=5,
            policy=settings.culling.policy,
            values=VALUES["culling"],
            prometheus_url="http://prometheus:9090",
            metrics=settings.culling.metrics,
            team_prefix="lab-",
        ),
    )
    assert settings.profiles["small"].title == "Small"
    (rule,) = settings.culling.policy.rules
    assert (rule.name, rule.idle, settings.culling.policy.team_limits) == (
        "night",
        timedelta(minutes=90),
        (20, 50),
    )
    assert settings.culling.metrics.keys() == {"engine", "utilisation", "cpu", "memory"}


def test_without_a_word_of_culling_no_rule_ends_anything(environment, tmp_path) -> None:
    unsaid = ("culling", "metrics", "teamNamespacePrefix")
    write(tmp_path, {key: VALUES[key] for key in VALUES.keys() - set(unsaid)}, {})
    culling = Settings.from_environment(environment).culling
    assert (culling.policy.rules, culling.prometheus_url, culling.team_prefix) == (
        (),
        "",
        "spectrum-",
    )


@pytest.mark.parametrize(("told", "step"), [({}, 60), ({"scrapeSeconds": 60}, 120)])
def test_what_is_measured_seldom_is_looked_at_in_longer_steps(
    environment, tmp_path, told, step
) -> None:
    metrics = {"prometheusUrl": "http://prometheus:9090", **told}
    write(tmp_path, {**VALUES, "metrics": metrics}, {})
    culling = Settings.from_environment(environment).culling
    assert (culling.step, culling.policy.measured) == (timedelta(seconds=step), True)


@pytest.mark.parametrize("seconds", [0, 121, "30", True])
def test_measurements_that_tell_nothing_of_now_are_refused(environment, tmp_path, seconds) -> None:
    write(tmp_path, {**VALUES, "metrics": {"scrapeSeconds": seconds}}, {})
    with pytest.raises(SettingsError, match=r"metrics\.scrapeSeconds"):
        Settings.from_environment(environment)


def test_a_webhook_takes_its_address_and_token_from_a_secret(environment, tmp_path) -> None:
    notify = {"webhook": {"url": "", "secretName": "chat", "body": {"text": "{text}"}}}
    values = {**VALUES, "culling": {**VALUES["culling"], "notify": notify}}
    write(tmp_path, {**values, "gpuHours": {"budgets": {"flight": 9, "ops": None}}}, {})
    (tmp_path / "webhook").mkdir()
    write(tmp_path / "webhook", None, {"url": "http://chat.example/secret", "token": "t-secret"})
    told = Settings.from_environment({**environment, "SPECTRUM_WEBHOOK": str(tmp_path / "webhook")})
    assert told.webhook == Webhook(
        url="http://chat.example/secret", token="t-secret", body={"text": "{text}"}
    )
    assert "secret" not in repr(told.webhook)
    assert told.budgets == {"flight": 9}
    with pytest.raises(SettingsError, match="neither url nor its Secret says where"):
        Settings.from_environment(environment)
    write(tmp_path, {**VALUES, "gpuHours": {"budgets": {"flight": 0}}}, {})
    with pytest.raises(SettingsError, match=r"gpuHours\.budgets\.flight: 0 is no whole number"):
        Settings.from_environment(environment)


def test_secrets_are_not_shown(environment) -> None:
    shown = repr(Settings.from_environment(environment))
    assert not any(secret in shown for secret in SECRETS.values())


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"service": {"leavingGrace": -1}}, "service.leavingGrace: -1 is no whole number"),
        ({"service": {"leavingGrace": "1h"}}, "service.leavingGrace: '1h' is no whole number"),
        ({"service": {"idleMinutes": {"min": 9, "max": 8}}}, "min must not be above max"),
        ({"profiles": {}}, "at least one profile is needed"),
        ({"culling": {"enabled": "yes"}}, "culling.enabled: 'yes' is neither true nor false"),
        ({"culling": {"every": 5}}, "culling.every: 5 is no whole number from 10"),
        ({"culling": {"every": 301}}, "culling.every: must not be above 300"),
        ({"culling": {"concurrency": 0}}, "culling.concurrency: 0 is no whole number from 1"),
        ({"culling": {"rules": {"a": {"order": 1}}}}, "culling.rules.a.evidence: name what must"),
        ({"metrics": {"engine": {"nam": "x"}}}, "metrics.engine.nam: unknown key"),
    ],
)
def test_wrong_values_stop_it(environment, tmp_path, values, sentence) -> None:
    write(tmp_path, {**VALUES, **values}, {})
    with pytest.raises(SettingsError, match=sentence):
        Settings.from_environment(environment)


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("serviceToken", "", "serviceToken is empty"),
        ("serviceCookieSecret", "no hex", "must be hexadecimal digits"),
        ("values.json", "{", "cannot be read"),
    ],
)
def test_wrong_files_stop_it(environment, tmp_path, key, text, sentence) -> None:
    (tmp_path / key).write_text(text)
    with pytest.raises(SettingsError, match=sentence):
        Settings.from_environment(environment)


def test_a_missing_secret_or_variable_stops_it(environment, tmp_path) -> None:
    with pytest.raises(SettingsError, match="POD_NAMESPACE: must be set"):
        Settings.from_environment({**environment, "POD_NAMESPACE": ""})
    (tmp_path / "auditTokenHub").unlink()
    with pytest.raises(SettingsError, match="auditTokenHub cannot be read"):
        Settings.from_environment(environment)


def test_the_program_ends_with_the_sentence(environment) -> None:
    told = {**environment, "POD_NAMESPACE": "", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "spectrum_spawner.service"]
    ended = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "POD_NAMESPACE: must be set\n")
