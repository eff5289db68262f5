"""The few calls to kube-apiserver that the local cluster itself needs."""

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit


class ApiError(Exception):
    """kube-apiserver answered with an error; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Api:
    """Requests as the identity of one of our own kubeconfig files."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        user = config["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._host, self._port = address.hostname or "", address.port
        self._tls = ssl.create_default_context(
            cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)

    def is_ready(self) -> bool:
        """Tell whether kube-apiserver answers and says that it is ready."""
        try:
            return self._request("GET", "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def find(self, path: str) -> Any | None:
        """Return the object, or None when there is none."""
        try:
            return self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def apply(self, path: str, manifest: dict[str, Any]) -> Any:
        """Server-side apply one object; unchanged content writes nothing."""
        query = "?fieldManager=spectrum-local&force=true"
        return self._call("PATCH", path + query, manifest, "application/apply-patch+yaml")

    def patch(self, path: str, changes: Any, *, content_type: str) -> Any:
        return self._call("PATCH", path, changes, content_type)

    def delete(self, path: str) -> None:
        """Delete the object; that it is already gone is fine."""
        try:
            self._call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def _call(self, method: str, path: str, body: Any = None, content_type: str = "") -> Any:
        headers = {"Content-Type": content_type} if content_type else {}
        data = json.dumps(body) if body is not None else None
        status, text = self._request(method, path, data, headers)
        if status >= 400:
            raise ApiError(status, text[:500])
        return json.loads(text)

    def _request(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, str]:
        connection = http.client.HTTPSConnection(
            self._host, self._port, context=self._tls, timeout=10
        )
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        finally:
            connection.close()
