"""The node's fake GPUs: what they do, and what Prometheus knows of it."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from local.network import NODE_ADDRESS
from local.prometheus import GPU_METRICS_PORT, PORT

EXPORTER = f"http://127.0.0.1:{GPU_METRICS_PORT}"
PROMETHEUS = f"http://{NODE_ADDRESS}:{PORT}"


def list_gpus() -> list[dict[str, Any]]:
    """Every GPU with the pod that has it."""
    found: list[dict[str, Any]] = json.loads(_ask("GET", f"{EXPORTER}/gpus"))
    return found


def find_gpus(namespace: str, pod: str) -> list[str]:
    """UUIDs of the GPUs that a pod has."""
    mine = (namespace, pod)
    return [gpu["UUID"] for gpu in list_gpus() if (gpu["namespace"], gpu["pod"]) == mine]


@contextmanager
def working(uuid: str, **does: float | str | None) -> Iterator[None]:
    """Let a GPU do something for the length of the block: utilisation, memory, power."""
    _ask("PUT", f"{EXPORTER}/gpus/{uuid}", json.dumps(does).encode())
    try:
        yield
    finally:
        _ask("DELETE", f"{EXPORTER}/gpus/{uuid}")


def query(text: str) -> list[tuple[dict[str, str], float]]:
    """Labels and numbers, as Prometheus answers now."""
    answer = json.loads(_ask("GET", f"{PROMETHEUS}/api/v1/query?{urlencode({'query': text})}"))
    return [(one["metric"], float(one["value"][1])) for one in answer["data"]["result"]]


def _ask(method: str, url: str, body: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, body, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        found: bytes = answer.read()
    return found
