"""Kubeconfig files; they are JSON, which is YAML too."""

import base64
import json
from pathlib import Path
from typing import Any

from local.certificates import Authority


def make_kubeconfig(authority: Authority, server: str, identity: str) -> dict[str, Any]:
    """Build the kubeconfig of one identity, with its certificates inside."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "spectrum-local",
                "cluster": {
                    "server": server,
                    "certificate-authority-data": _encode(authority.certificate),
                },
            }
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate-data": _encode(authority.find_certificate(identity)),
                    "client-key-data": _encode(authority.find_key(identity)),
                },
            }
        ],
        "contexts": [
            {
                "name": "spectrum-local",
                "context": {"cluster": "spectrum-local", "user": identity},
            }
        ],
        "current-context": "spectrum-local",
    }


def write_kubeconfig(path: Path, authority: Authority, server: str, identity: str) -> None:
    text = json.dumps(make_kubeconfig(authority, server, identity), indent=2)
    if path.exists() and path.read_text() == text:
        return
    path.touch(mode=0o600)
    path.write_text(text)


def _encode(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
