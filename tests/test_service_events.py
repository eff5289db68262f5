"""Events for a webhook: what is told of which record, and what a template makes of it."""

from pathlib import Path
from typing import Any

import pytest

from spectrum_spawner.audit import make_record
from spectrum_spawner.service.events import Webhook, WebhookError, fill, make_event, read_webhook

PREFIX = "/services/spectrum/"
URL = "https://chat.example.org/hook"


def event_of(action: str, *, writer: str = "service", **rest: Any) -> dict[str, Any] | None:
    told = {"user": "alice", "server": "lab/1", "team": "vision", **rest}
    record = make_record(writer=writer, action=action, actor="service:spectrum", **told)
    return make_event(record, leads={"carol", "bob"}, lead_groups={"chiefs"}, prefix=PREFIX)


def test_a_warning_says_whom_it_concerns_and_what_comes_when() -> None:
    details = {"rule": "gpu", "ends_at": "2026-01-31T12:00:00.000000Z", "evidence": []}
    event = event_of("warn", id="7", reason="It does nothing.", details=details)
    assert event is not None
    assert event.pop("at")
    assert event == {
        "event": "warned",
        "id": "7",
        "team": "vision",
        "leads": ["bob", "carol"],
        "lead_groups": ["chiefs"],
        "user": "alice",
        "server": "lab/1",
        "by": "service:spectrum",
        "text": "It does nothing.",
        "rule": "gpu",
        "ends_at": "2026-01-31T12:00:00.000000Z",
        "path": "/services/spectrum/gpus/alice/lab%2F1",
    }


@pytest.mark.parametrize(
    ("action", "details", "kind"),
    [
        ("extend", {}, "kept"),
        ("hold", {}, "kept"),
        ("cull", {}, "ended"),
        ("release", {}, "ended"),
        ("stop-request", {}, "ended"),
        ("continue", {}, "ended"),
        ("notice", {}, "noted"),
        ("notice", {"decision": "unknown-long"}, "unknown"),
        ("notice", {"mark": 80}, "budget"),
    ],
)
def test_what_kind_of_event_a_record_is(action: str, details: dict[str, Any], kind: str) -> None:
    event = event_of(action, details=details)
    assert event
    assert event["event"] == kind


def test_of_preferences_and_of_what_others_write_nobody_is_told() -> None:
    assert event_of("preference") is None
    assert event_of("notice", writer="hub") is None


def test_a_template_is_json_with_fields_in_its_texts() -> None:
    event = event_of("warn", reason="It does nothing.")
    assert event
    body = {"text": "{user}: {text}", "to": ["{leads}", 7, None], "{x}": {"a": "{{b}}"}}
    assert fill(body, event) == {
        "text": "alice: It does nothing.",
        "to": ["bob, carol", 7, None],
        "{x}": {"a": "{b}"},
    }
    assert fill(None, event) == event
    # what people write is no template
    assert fill("{text}", {**event, "text": "{leads.__class__}"}) == "{leads.__class__}"


def test_the_secret_says_the_token_and_where_to(tmp_path: Path) -> None:
    assert read_webhook({}, None) is None
    assert read_webhook({"url": ""}, tmp_path) is None
    assert read_webhook({"url": URL}, None) == Webhook(url=URL)
    (tmp_path / "token").write_text("t\n")
    assert read_webhook({"url": URL, "secretName": "x"}, tmp_path) == Webhook(url=URL, token="t")
    (tmp_path / "url").write_text("http://other.example.org/secret\n")
    assert read_webhook({"url": URL, "secretName": "x"}, tmp_path) == Webhook(
        url="http://other.example.org/secret", token="t"
    )


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"url": "chat.example.org"}, "culling.notify.webhook.url: is no URL that begins with"),
        ({"url": "file:///etc/passwd"}, "culling.notify.webhook.url: is no URL that begins with"),
        ({"secretName": "hook"}, "culling.notify.webhook: neither url nor its Secret says where"),
        ({"uri": URL}, "culling.notify.webhook.uri: unknown key, known are body, secretName, url"),
        ({"url": URL, "body": {"a": ["{who}"]}}, "culling.notify.webhook.body.a[0]: {who} is no"),
        ({"url": URL, "body": {"a": "{user.x}"}}, "culling.notify.webhook.body.a: {user.x} is no"),
        ({"url": URL, "body": {"a": "{user!r}"}}, "culling.notify.webhook.body.a: {user} is no f"),
        ({"url": URL, "body": {"a": "{"}}, "culling.notify.webhook.body.a: "),
    ],
)
def test_a_webhook_that_cannot_be_used_is_refused(record: dict[str, Any], sentence: str) -> None:
    with pytest.raises(WebhookError) as refused:
        read_webhook(record, None)
    assert str(refused.value)[: len(sentence)] == sentence
