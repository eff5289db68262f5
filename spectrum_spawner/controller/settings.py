"""What the controller was told, read from its environment; anything wrong stops it at once."""

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.storage_settings import StorageSettings
from spectrum_spawner.controller.storage_values import StorageError, read_storage
from spectrum_spawner.team_templates import TeamTemplate, TemplateError, read_templates

LONGEST_PREFIX = 40  # leaves room for a slug that one can still read
# the cloud's metadata service is there, and its credentials are the node's
METADATA_NETWORK = "169.254.0.0/16"

_DOMAIN_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]([-a-z0-9_.]*[a-z0-9])?\Z")


class SettingsError(ValueError):
    """A setting that cannot be used; the text names the variable and says why."""


@dataclass(frozen=True, kw_only=True)
class NetworkRules:
    """What the network policies of a team allow.

    `internet_except` are IPv4 networks in CIDR notation that stay closed.
    """

    enabled: bool = True
    internet: bool = True
    internet_except: tuple[str, ...] = (METADATA_NETWORK,)


@dataclass(frozen=True, kw_only=True)
class AuditRules:
    """Where audit records go: `url` with `token`, and until then the file `outbox`."""

    url: str = ""
    token: str = ""
    outbox: Path = Path("/var/lib/spectrum-controller/audit.sqlite")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that the controller is told.

    `accelerators` are the resource names that any profile can ask for; `rgw_secrets` is the
    directory with AccessKey and SecretKey of the gateway's administrator; `first_gid` and
    `last_gid` bound the gids of teams; `health_port` answers /healthz.
    """

    hub_namespace: str
    prefix: str
    accelerators: tuple[str, ...] = ()
    templates: Mapping[str, TeamTemplate] = field(default_factory=dict)
    network: NetworkRules = NetworkRules()
    storage: StorageSettings = field(default_factory=StorageSettings)
    rgw_secrets: Path = Path("/etc/spectrum/rgw-admin")
    audit: AuditRules = AuditRules()
    first_gid: int = 100_000
    last_gid: int = 199_999
    health_port: int = 8080

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Read HUB_NAMESPACE (needed), TEAM_NAMESPACE_PREFIX, ACCELERATORS, TEAM_TEMPLATES,
        NETWORK_POLICY and STORAGE (all JSON), RGW_SECRETS, TEAM_GIDS (`100000-199999`), AUDIT_URL,
        AUDIT_OUTBOX, SPECTRUM_SECRETS and HEALTH_PORT; raises SettingsError."""
        hub_namespace = environment.get("HUB_NAMESPACE", "")
        if not hub_namespace:
            raise SettingsError("HUB_NAMESPACE: the namespace of the hub is needed")
        first_gid, last_gid = _read_gids(environment.get("TEAM_GIDS") or "100000-199999")
        return cls(
            hub_namespace=hub_namespace,
            prefix=_read_prefix(environment.get("TEAM_NAMESPACE_PREFIX", ""), hub_namespace),
            accelerators=_read_accelerators(environment.get("ACCELERATORS") or "[]"),
            templates=_read_templates(environment.get("TEAM_TEMPLATES") or "{}"),
            network=_read_network(environment.get("NETWORK_POLICY") or "{}"),
            storage=_read_storage(environment.get("STORAGE") or "{}"),
            rgw_secrets=Path(environment.get("RGW_SECRETS") or cls.rgw_secrets),
            audit=_read_audit(environment),
            first_gid=first_gid,
            last_gid=last_gid,
            health_port=int(environment.get("HEALTH_PORT") or 8080),
        )


def _read_prefix(text: str, hub_namespace: str) -> str:
    prefix = text or names.cluster_prefix(hub_namespace)
    if len(prefix) > LONGEST_PREFIX or not re.match(r"[a-z0-9][-a-z0-9]*\Z", prefix):
        raise SettingsError(
            f"TEAM_NAMESPACE_PREFIX: {prefix!r} must be lower-case letters, digits and '-', "
            f"at most {LONGEST_PREFIX} characters"
        )
    return prefix


def _read_accelerators(text: str) -> tuple[str, ...]:
    accelerators = _read_json("ACCELERATORS", text)
    if not isinstance(accelerators, list):
        raise SettingsError("ACCELERATORS: must be a JSON list of resource names")
    for name in accelerators:
        if not isinstance(name, str) or not _DOMAIN_NAME.match(name):
            raise SettingsError(f"ACCELERATORS: {name!r} is no resource such as nvidia.com/gpu")
    return tuple(sorted(set(accelerators)))


def _read_templates(text: str) -> dict[str, TeamTemplate]:
    try:
        return read_templates(_read_json("TEAM_TEMPLATES", text))
    except TemplateError as error:
        raise SettingsError(f"TEAM_TEMPLATES: {error}") from error


def _read_storage(text: str) -> StorageSettings:
    try:
        return read_storage(_read_json("STORAGE", text))
    except StorageError as error:
        raise SettingsError(f"STORAGE: {error}") from error


def _read_audit(environment: Mapping[str, str]) -> AuditRules:
    url = environment.get("AUDIT_URL", "")
    outbox = Path(environment.get("AUDIT_OUTBOX") or AuditRules.outbox)
    if not url:
        return AuditRules(outbox=outbox)
    secret = Path(environment.get("SPECTRUM_SECRETS", "")) / "auditTokenController"
    try:
        return AuditRules(url=url, token=secret.read_text().strip(), outbox=outbox)
    except OSError as error:
        raise SettingsError(f"SPECTRUM_SECRETS: {secret} cannot be read: {error}") from error


def _read_network(text: str) -> NetworkRules:
    record = _read_json("NETWORK_POLICY", text)
    if not isinstance(record, dict) or not isinstance(record.get("internet", {}), dict):
        raise SettingsError("NETWORK_POLICY: must be a JSON table")
    internet = record.get("internet", {})
    networks = [_read_ipv4(network) for network in internet.get("except") or []]
    return NetworkRules(
        enabled=bool(record.get("enabled", True)),
        internet=bool(internet.get("enabled", True)),
        internet_except=add_networks(tuple(networks), [METADATA_NETWORK]),
    )


def add_networks(known: tuple[str, ...], more: list[str]) -> tuple[str, ...]:
    """`known` and those of `more` that lie in none of them; IPv6 is closed anyway."""
    found = [ipaddress.IPv4Network(network) for network in known]
    for text in more:
        network = ipaddress.ip_network(text)
        if isinstance(network, ipaddress.IPv4Network) and not any(
            network.subnet_of(other) for other in found
        ):
            found.append(network)
    return tuple(str(network) for network in found)


def _read_ipv4(text: object) -> str:
    try:
        network = ipaddress.IPv4Network(text if isinstance(text, str) else repr(text))
    except ValueError as error:
        raise SettingsError(f"NETWORK_POLICY: internet.except: {error}") from error
    if network.prefixlen == 0:
        raise SettingsError(
            "NETWORK_POLICY: internet.except: 0.0.0.0/0 leaves nothing; set internet.enabled: false"
        )
    return str(network)


def _read_gids(text: str) -> tuple[int, int]:
    match = re.match(r"([0-9]{1,10})-([0-9]{1,10})\Z", text)
    if not match or not 1000 < int(match[1]) <= int(match[2]) < 2**31:
        raise SettingsError(f"TEAM_GIDS: {text!r} is no range of group ids such as 100000-199999")
    return int(match[1]), int(match[2])


def _read_json(variable: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise SettingsError(f"{variable}: is no JSON: {error}") from error
