"""What others are told of by a webhook: events, made of the audit's records. Pure."""

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from spectrum_spawner.audit import Record

# event of a record, by its action; a notice is told apart by its details
_EVENTS = {
    "warn": "warned",
    **dict.fromkeys(("extend", "hold"), "kept"),
    **dict.fromkeys(("cull", "release", "stop-request", "continue"), "ended"),
    "notice": "noted",
}
FIELDS = frozenset(
    {
        *("event", "id", "at", "team", "user", "server", "by", "text", "rule", "ends_at", "path"),
        *("leads", "lead_groups"),
    }
)


class WebhookError(ValueError):
    """The webhook in the values cannot be used; the text says where and why."""


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where events are sent: an address, and a bearer token unless that is empty.

    `body` is a JSON value in whose texts `{user}` and the like stand for the fields of an event;
    None sends the event itself.
    """

    url: str = field(repr=False)
    token: str = field(default="", repr=False)
    body: Any = None


def read_webhook(record: Mapping[str, Any], secrets: Path | None) -> Webhook | None:
    """Read `culling.notify.webhook` and the keys `url` and `token` of its Secret, a directory.

    None where it has no address; raises WebhookError.
    """
    place = "culling.notify.webhook"
    if extra := sorted(record.keys() - {"url", "secretName", "body"}):
        raise WebhookError(f"{place}.{extra[0]}: unknown key, known are body, secretName, url")
    kept = {key: _read_secret(secrets, key) for key in ("url", "token")} if secrets else {}
    url = kept.get("url") or record.get("url") or ""
    if not url:
        if record.get("secretName") or record.get("body"):
            raise WebhookError(f"{place}: neither url nor its Secret says where events are sent")
        return None
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise WebhookError(f"{place}.url: is no URL that begins with http:// or https://")
    body = record.get("body") or None
    _check_body(f"{place}.body", body)
    return Webhook(url=url, token=kept.get("token", ""), body=body)


def make_event(
    record: Record, *, leads: Iterable[str], lead_groups: Iterable[str], prefix: str
) -> dict[str, Any] | None:
    """The event that a record of the service is, None for one of which nobody is told.

    `leads` and `lead_groups` are of the record's team, `prefix` is the service's. `path` is the
    page of the server below the address where people sign in.
    """
    kind = _EVENTS.get(record.action)
    if record.writer != "service" or kind is None:
        return None
    details = record.details
    if record.action == "notice" and "mark" in details:
        kind = "budget"
    elif record.action == "notice" and details.get("decision") == "unknown-long":
        kind = "unknown"
    path = f"{prefix}gpus/{quote(record.user, safe='')}/{quote(record.server, safe='')}"
    return {
        "event": kind,
        "id": record.id,
        "at": record.at,
        "team": record.team,
        "leads": sorted(leads),
        "lead_groups": sorted(lead_groups),
        "user": record.user,
        "server": record.server,
        "by": record.actor,
        "text": record.reason,
        "rule": str(details.get("rule") or ""),
        "ends_at": str(details.get("ends_at") or ""),
        "path": path if record.user else f"{prefix}hours",
    }


def fill(body: Any, event: Mapping[str, Any]) -> Any:
    """What is sent of an event."""
    if body is None:
        return dict(event)
    if isinstance(body, Mapping):
        return {
            key: fill(value, event) if value is not None else None for key, value in body.items()
        }
    if isinstance(body, list):
        return [fill(value, event) if value is not None else None for value in body]
    if isinstance(body, str):
        shown = {k: ", ".join(v) if isinstance(v, list) else v for k, v in event.items()}
        return body.format(**shown)
    return body


def _check_body(place: str, body: Any) -> None:
    """Raises WebhookError for a text with a field that no event has."""
    if isinstance(body, Mapping):
        for key, value in body.items():
            _check_body(f"{place}.{key}", value)
    elif isinstance(body, list):
        for number, value in enumerate(body):
            _check_body(f"{place}[{number}]", value)
    elif isinstance(body, str):
        try:
            parts = list(string.Formatter().parse(body))
        except ValueError as error:
            raise WebhookError(f"{place}: {error}; write {{{{ for a brace") from error
        for _, name, spec, conversion in parts:
            if name is not None and (name not in FIELDS or spec or conversion):
                known = ", ".join(sorted(FIELDS))
                raise WebhookError(f"{place}: {{{name}}} is no field of an event, such are {known}")


def _read_secret(directory: Path, key: str) -> str:
    """A key of the Secret, "" for one that it does not have."""
    path = directory / key
    try:
        return path.read_text().strip() if path.is_file() else ""
    except (OSError, ValueError) as error:
        raise WebhookError(f"culling.notify.webhook.secretName: {key} cannot be read") from error
