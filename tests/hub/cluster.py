"""What a cluster administrator and the team controller do in a test: raw objects in and out."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from local.control_plane import ControlPlane
from spectrum_spawner import names
from tests.hub.clock import wait_until

CRD = Path(__file__).resolve().parents[2] / "helm" / "spectrum" / "crds" / "teams.yaml"
WATCHED_KINDS = (
    "configmaps",
    "events",
    "namespaces",
    "persistentvolumeclaims",
    "pods",
    "secrets",
    "serviceaccounts",
    "services",
)


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class Cluster:
    """Administrator's calls to the API server itself, past any fault proxy."""

    def __init__(self, server: str, session: aiohttp.ClientSession) -> None:
        self.server = server
        self._session = session

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        return await self._call("GET", path, query=query)

    async def find(self, path: str) -> dict[str, Any] | None:
        """The object, or None when there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, path: str) -> list[dict[str, Any]]:
        return (await self.get(path))["items"]

    async def create(self, path: str, manifest: Mapping[str, Any]) -> dict[str, Any]:
        return await self._call("POST", path, body=manifest)

    async def patch(self, path: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Merge-patch an object; a path that ends in `/status` patches the status alone."""
        return await self._call("PATCH", path, body=changes, kind="application/merge-patch+json")

    async def delete(self, path: str, options: Mapping[str, Any] | None = None) -> None:
        """Delete an object; that it is gone already is fine."""
        try:
            await self._call("DELETE", path, body=options or {})
        except ApiError as error:
            if error.status != 404:
                raise

    async def read(self, path: str, accept: str = "*/*") -> str:
        """The answer as text, in whatever form is asked for."""
        async with self._session.get(self.server + path, headers={"Accept": accept}) as answer:
            await _check(answer)
            return await answer.text()

    async def watch(self, path: str, version: str) -> AsyncIterator[dict[str, Any]]:
        """Changes after a resource version, until the server ends the watch."""
        query = {"watch": "1", "resourceVersion": version}
        async with self._session.get(self.server + path, params=query) as answer:
            await _check(answer)
            async for line in answer.content:
                yield json.loads(line)

    async def list_everything(self) -> dict[str, str]:
        """Resource version by kind, namespace and name of all that a start could touch."""
        found = {}
        for kind in WATCHED_KINDS:
            for item in await self.list(f"/api/v1/{kind}"):
                meta = item["metadata"]
                where = f"{kind}/{meta.get('namespace', '')}/{meta['name']}"
                found[where] = meta["resourceVersion"]
        return found

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        kind: str = "application/json",
    ) -> dict[str, Any]:
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, self.server + path, params=query, data=data, headers={"Content-Type": kind}
        ) as answer:
            await _check(answer)
            return await answer.json()


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 400:
        raise ApiError(answer.status, (await answer.text())[:500])


@asynccontextmanager
async def connect(plane: ControlPlane) -> AsyncIterator[Cluster]:
    """Calls as the administrator of a control plane."""
    pki = plane.authority
    context = ssl.create_default_context(cafile=pki.certificate)
    context.load_cert_chain(pki.find_certificate("admin"), pki.find_key("admin"))
    # The server compresses long answers otherwise, and pauses the stream of a watch to do so.
    headers = {"Accept-Encoding": "identity"}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        headers=headers,
    ) as session:
        yield Cluster(plane.server, session)
    # A test closes its loop right after: connections that either side has closed by now still
    # need a turn of it.
    await asyncio.sleep(0.02)


async def serve_teams(cluster: Cluster) -> None:
    """Teach the API server the Team kind, unless it knows it."""
    crd = _read_crd()
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if await cluster.find(f"{path}/{crd['metadata']['name']}") is None:
        await cluster.create(path, crd)
    await wait_until(lambda: _serves_teams(cluster), within=20, what="serving Team objects")


def _read_crd() -> dict[str, Any]:
    return yaml.safe_load(CRD.read_text())


async def _serves_teams(cluster: Cluster) -> bool:
    group = f"/apis/{names.API_GROUP}/{names.API_VERSION}"
    try:
        return await cluster.find(f"{group}/{names.TEAM_PLURAL}") is not None
    except ApiError as error:
        if error.status != 429:  # "storage is (re)initializing"
            raise
        return False


def find_pods(namespace: str) -> str:
    """Path of the pods of a namespace."""
    return f"/api/v1/namespaces/{namespace}/pods"


def find_teams(hub_namespace: str) -> str:
    """Path of the Team objects of a hub's namespace."""
    group = f"/apis/{names.API_GROUP}/{names.API_VERSION}"
    return f"{group}/namespaces/{hub_namespace}/{names.TEAM_PLURAL}"
