"""The webhook and budgets of GPU hours: what the service gets of the values, and its Secret."""

import base64
import json
from typing import Any

import pytest

from spectrum_spawner.service.events import Webhook, read_webhook
from tests.chart.helm import ACCEPTED, Helm, merge

URL = "https://chat.example.org/hook"


def webhook(**fields: Any) -> dict[str, Any]:
    return {"culling": {"notify": {"webhook": fields}}}


def render(helm: Helm, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The service's values, and its pod."""
    found = {(m["kind"], m["metadata"]["name"]): m for m in helm.render(merge(ACCEPTED, values))}
    told = base64.b64decode(found["Secret", "service"]["data"]["values.json"])
    return json.loads(told), found["Deployment", "service"]["spec"]["template"]["spec"]


def test_by_default_nobody_is_told_and_no_team_has_a_budget(helm: Helm) -> None:
    values, pod = render(helm, {})
    assert read_webhook(values["culling"]["notify"]["webhook"], None) is None
    assert values["gpuHours"] == {"budgets": {}}
    assert "webhook" not in [volume["name"] for volume in pod["volumes"]]


def test_the_secret_of_a_webhook_is_the_services_to_read(helm: Helm) -> None:
    body = {"text": "{user}: {text}"}
    values, pod = render(helm, webhook(url=URL, secretName="chat", body=body))
    found = read_webhook(values["culling"]["notify"]["webhook"], None)
    assert found == Webhook(url=URL, body=body)
    (volume,) = (v for v in pod["volumes"] if v["name"] == "webhook")
    assert volume["secret"] == {"secretName": "chat", "defaultMode": 0o440}
    (container,) = pod["containers"]
    assert {"name": "webhook", "mountPath": "/etc/spectrum/webhook", "readOnly": True} in container[
        "volumeMounts"
    ]
    assert {"name": "SPECTRUM_WEBHOOK", "value": "/etc/spectrum/webhook"} in container["env"]


@pytest.mark.parametrize(
    "values",
    [
        webhook(url="chat.example.org"),
        webhook(uri=URL),
        webhook(body="text"),
        {"gpuHours": {"budgets": {"flight": 0}}},
        {"gpuHours": {"budgets": {"flight": "many"}}},
        {"gpuHours": {"budget": {}}},
    ],
)
def test_what_cannot_be_meant_stops_the_install(helm: Helm, values: dict[str, Any]) -> None:
    assert helm.read_refusal(merge(ACCEPTED, values))
