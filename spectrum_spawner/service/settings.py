"""What the service was told, read from its environment; anything wrong stops it at once."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.profile_values import ProfileError, read_profiles
from spectrum_spawner.profiles import Profile
from spectrum_spawner.service.culling.metrics import Metric, MetricError, read_metrics
from spectrum_spawner.service.culling.policy_values import PolicyError, read_policy
from spectrum_spawner.service.culling.prometheus import STEP, find_step
from spectrum_spawner.service.culling.rules import Policy
from spectrum_spawner.service.events import Webhook, WebhookError, read_webhook

NAME = "spectrum"  # of the JupyterHub service
ACT_SCOPE = "custom:spectrum:act"  # to ask, decide and stop, not only to read
DEFAULT_DATABASE = "sqlite:////srv/spectrum/ledger.sqlite"
RARE = 300  # seconds between looks, above which ends that were told come late
SELDOM = 120  # seconds between measurements, above which none tells of now
WRITERS = {"hub": "auditTokenHub", "controller": "auditTokenController"}


class SettingsError(ValueError):
    """A setting that cannot be used; the text names it and says why."""


@dataclass(frozen=True, kw_only=True)
class Culling:
    """How idle servers end. While it is not `enabled` they are judged, and nothing is done.

    `every` is in seconds between two looks, `concurrency` how many stops are under way at most.
    `values` is the table that `policy` was read from. Without a `prometheus_url` nothing is
    measured; what is, is looked at in steps of `step`. Namespaces of teams begin with
    `team_prefix`.
    """

    enabled: bool = False
    every: int = 60
    concurrency: int = 10
    policy: Policy = field(default_factory=Policy)
    values: Mapping[str, Any] = field(default_factory=dict)
    prometheus_url: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    step: timedelta = STEP
    team_prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that the service is told.

    `prefix` and `base_url` begin and end with a slash. `writers` maps who may hand in records
    to their token. `leaving_grace` is in seconds, `idle_minutes` the least and the most that a
    lead may set, `budgets` GPU hours a month by team. `webhook` hears of warnings
    and ends.
    """

    hub_namespace: str
    prefix: str
    base_url: str
    api_url: str
    client_id: str
    api_token: str = field(repr=False)
    cookie_secret: bytes = field(repr=False)
    writers: Mapping[str, str] = field(repr=False)
    database: str = field(default=DEFAULT_DATABASE, repr=False)
    port: int = 8082
    leaving_grace: int = 3600
    idle_minutes: tuple[int, int] = (15, 480)
    contact: str = "your cluster administrators"
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    culling: Culling = field(default_factory=Culling)
    budgets: Mapping[str, int] = field(default_factory=dict)
    webhook: Webhook | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read JupyterHub's variables, $SPECTRUM_VALUES (a JSON file) and $SPECTRUM_SECRETS (one
        file per secret); raises SettingsError."""
        values = _read_values(Path(_need(environment, "SPECTRUM_VALUES")))
        secrets = Path(_need(environment, "SPECTRUM_SECRETS"))
        service = values.get("service") or {}
        hub_namespace = _need(environment, "POD_NAMESPACE")
        profiles = _read_profiles(values)
        idle_minutes = _read_idle_minutes(service.get("idleMinutes") or {})
        return cls(
            hub_namespace=hub_namespace,
            prefix=_need(environment, "JUPYTERHUB_SERVICE_PREFIX"),
            base_url=_need(environment, "JUPYTERHUB_BASE_URL"),
            api_url=_need(environment, "JUPYTERHUB_API_URL"),
            client_id=_need(environment, "JUPYTERHUB_CLIENT_ID"),
            api_token=_read_secret(secrets, "serviceToken"),
            cookie_secret=_read_hex(secrets, "serviceCookieSecret"),
            writers={writer: _read_secret(secrets, key) for writer, key in WRITERS.items()},
            database=service.get("dbUrl") or DEFAULT_DATABASE,
            leaving_grace=_read_count("service.leavingGrace", service.get("leavingGrace", 3600)),
            idle_minutes=idle_minutes,
            contact=(values.get("auth") or {}).get("contact") or cls.contact,
            profiles=profiles,
            budgets=_read_budgets((values.get("gpuHours") or {}).get("budgets") or {}),
            webhook=_read_webhook(values, environment.get("SPECTRUM_WEBHOOK")),
            culling=read_culling(
                values, profiles, hub_namespace=hub_namespace, idle_minutes=idle_minutes
            ),
        )


def read_culling(
    values: Mapping[str, Any],
    profiles: Mapping[str, Profile],
    *,
    hub_namespace: str,
    idle_minutes: tuple[int, int],
) -> Culling:
    """Read `culling`, `metrics` and `teamNamespacePrefix`; raises SettingsError."""
    culling, metrics = dict(values.get("culling") or {}), dict(values.get("metrics") or {})
    culling.pop("notify", None)
    prometheus_url = metrics.pop("prometheusUrl", "")
    scrape = _read_count("metrics.scrapeSeconds", metrics.pop("scrapeSeconds", 30), least=1)
    if scrape > SELDOM:
        raise SettingsError(f"metrics.scrapeSeconds: must not be above {SELDOM}")
    enabled = culling.pop("enabled", True)
    if not isinstance(enabled, bool):
        raise SettingsError(f"culling.enabled: {enabled!r} is neither true nor false")
    every = _read_count("culling.every", culling.pop("every", 60), least=10)
    if every > RARE:
        raise SettingsError(f"culling.every: must not be above {RARE}")
    concurrency = _read_count("culling.concurrency", culling.pop("concurrency", 10), least=1)
    try:
        return Culling(
            enabled=enabled,
            every=every,
            concurrency=concurrency,
            policy=read_policy(
                culling, profiles, team_limits=idle_minutes, measured=bool(prometheus_url)
            ),
            values=values.get("culling") or {},
            prometheus_url=prometheus_url or "",
            metrics=read_metrics(metrics),
            step=find_step(timedelta(seconds=scrape)),
            team_prefix=values.get("teamNamespacePrefix") or names.cluster_prefix(hub_namespace),
        )
    except (PolicyError, MetricError) as error:
        raise SettingsError(str(error)) from error


def _need(environment: Mapping[str, str], variable: str) -> str:
    if not environment.get(variable):
        raise SettingsError(f"{variable}: must be set")
    return environment[variable]


def _read_values(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SettingsError(f"SPECTRUM_VALUES: {path} cannot be read: {error}") from error


def _read_secret(directory: Path, key: str) -> str:
    try:
        secret = (directory / key).read_text().strip()
    except OSError as error:
        raise SettingsError(f"SPECTRUM_SECRETS: {key} cannot be read: {error}") from error
    if not secret:
        raise SettingsError(f"SPECTRUM_SECRETS: {key} is empty")
    return secret


def _read_hex(directory: Path, key: str) -> bytes:
    try:
        return bytes.fromhex(_read_secret(directory, key))
    except ValueError as error:
        raise SettingsError(f"SPECTRUM_SECRETS: {key} must be hexadecimal digits") from error


def _read_idle_minutes(record: Mapping[str, object]) -> tuple[int, int]:
    least = _read_count("service.idleMinutes.min", record.get("min", 15))
    most = _read_count("service.idleMinutes.max", record.get("max", 480))
    if least > most:
        raise SettingsError("service.idleMinutes: min must not be above max")
    return least, most


def _read_webhook(values: Mapping[str, Any], secrets: str | None) -> Webhook | None:
    """`secrets` is the directory with the keys of the webhook's Secret, if it has one."""
    notify = (values.get("culling") or {}).get("notify") or {}
    try:
        return read_webhook(notify.get("webhook") or {}, Path(secrets) if secrets else None)
    except WebhookError as error:
        raise SettingsError(str(error)) from error


def _read_budgets(record: Mapping[str, object]) -> dict[str, int]:
    return {
        team: _read_count(f"gpuHours.budgets.{team}", budget, least=1)
        for team, budget in record.items()
        if budget is not None
    }


def _read_count(place: str, value: object, *, least: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        above = f" from {least}" if least else ""
        raise SettingsError(f"{place}: {value!r} is no whole number{above}")
    return value


def _read_profiles(values: Mapping[str, Any]) -> dict[str, Profile]:
    try:
        return read_profiles(values.get("profiles") or {}, values.get("images") or {})
    except ProfileError as error:
        raise SettingsError(str(error)) from error
