"""What the controller sees: views of its own objects everywhere, kept by kind."""

import asyncio
from collections.abc import Callable, Iterator

from spectrum_spawner import names
from spectrum_spawner.controller.ownership import annotation
from spectrum_spawner.kube import Client, Object, collection, item
from spectrum_spawner.watch import View, name, namespaced_name

NAMESPACES = ("v1", "namespaces")

# kind -> (API version, plural) of what a team namespace holds
CHILDREN = {
    "ResourceQuota": ("v1", "resourcequotas"),
    "LimitRange": ("v1", "limitranges"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings"),
}


def path_of(manifest: Object) -> str:
    """REST path of an object that a team namespace holds."""
    metadata = manifest["metadata"]
    api_version, plural = CHILDREN[manifest["kind"]]
    return item(api_version, plural, metadata["name"], namespace=metadata["namespace"])


def collection_of(manifest: Object) -> str:
    """REST path of the collection to which such an object belongs."""
    api_version, plural = CHILDREN[manifest["kind"]]
    return collection(api_version, plural, namespace=manifest["metadata"]["namespace"])


class Cluster:
    """The namespaces that carry this hub's label, and our objects in them, as last seen.

    `on_team` is called with a team's name when anything that belongs to it changes.
    """

    def __init__(
        self, client: Client, hub_namespace: str, *, on_team: Callable[[str], None]
    ) -> None:
        self._hub_namespace = hub_namespace
        self._on_team = on_team
        self.namespaces = self._make_view(client, *NAMESPACES)
        self._children = {
            kind: self._make_view(client, *resource) for kind, resource in CHILDREN.items()
        }

    def start(self) -> None:
        for view in self._views():
            view.start()

    async def close(self) -> None:
        await asyncio.gather(*(view.close() for view in self._views()))

    async def wait_synced(self) -> None:
        for view in self._views():
            await view.wait_synced()

    def find(self, kind: str, name: str, *, namespace: str) -> Object | None:
        """One of our objects in a team namespace; None also if it lost our label."""
        return self._children[kind].get(f"{namespace}/{name}")

    def namespaces_of(self, team: str) -> list[Object]:
        """Namespaces that say they were made for a team of that name."""
        return [ns for ns in self.namespaces if annotation(ns, names.ANNOTATION_TEAM) == team]

    def team_of(self) -> dict[str, str]:
        """The team of each team namespace of this hub."""
        return {
            ns["metadata"]["name"]: annotation(ns, names.ANNOTATION_TEAM)
            for ns in self.namespaces
            if annotation(ns, names.ANNOTATION_HUB) == self._hub_namespace
        }

    def _views(self) -> Iterator[View[Object]]:
        yield self.namespaces
        yield from self._children.values()

    def _make_view(self, client: Client, api_version: str, plural: str) -> View[Object]:
        return View(
            client,
            collection(api_version, plural),
            trim=trim,
            key=name if plural == "namespaces" else namespaced_name,
            label_selector=f"{names.LABEL_HUB}={self._hub_namespace}",
            on_change=self._on_change,
        )

    def _on_change(self, key: str, old: Object | None, new: Object | None) -> None:
        teams = {annotation(obj, names.ANNOTATION_TEAM) for obj in (old, new) if obj is not None}
        # an object that lost its marks is still the namespace's, and the namespace has them
        namespace = self.namespaces.get(key.partition("/")[0])
        if namespace is not None:
            teams.add(annotation(namespace, names.ANNOTATION_TEAM))
        for team in teams - {""}:
            self._on_team(team)


def trim(obj: Object) -> Object:
    """An object without what changes by itself or is never read here."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "labels", "annotations", "deletionTimestamp")
    slim = {key: metadata[key] for key in kept if key in metadata}
    return {**obj, "metadata": slim}
