"""What the controller sees: views of its own objects everywhere, kept by kind."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.bucket import trim_secret
from spectrum_spawner.controller.ownership import annotation
from spectrum_spawner.controller.volumes import (
    StorageClass,
    VolumeClaim,
    trim_claim,
    trim_class,
)
from spectrum_spawner.kube import Client, Object, collection, item
from spectrum_spawner.watch import View, name, namespaced_name

NAMESPACES = ("v1", "namespaces")
CLAIMS = ("v1", "persistentvolumeclaims")
VOLUMES = ("v1", "persistentvolumes")
SECRETS = ("v1", "secrets")
CLASSES = ("storage.k8s.io/v1", "storageclasses")

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

    `volumes` are the PersistentVolumes that carry it: those of datasets, which we make. `classes`
    are all StorageClasses, `bucket_secrets` the Secrets of buckets without what is secret.
    `on_team` is called with a team's name when anything that belongs to it changes.
    """

    def __init__(
        self, client: Client, hub_namespace: str, *, on_team: Callable[[str], None]
    ) -> None:
        self._hub_namespace = hub_namespace
        self._on_team = on_team
        self.namespaces = self._make_view(client, *NAMESPACES)
        self.volumes = self._make_view(client, *VOLUMES)
        self.classes: View[StorageClass] = View(
            client, collection(*CLASSES), trim=trim_class, on_change=self._on_class
        )
        # by one name alone, so that the controller needs no right to read others
        self.bucket_secrets = View(
            client,
            collection(*SECRETS),
            trim=trim_secret,
            key=namespaced_name,
            label_selector=f"{names.LABEL_HUB}={hub_namespace}",
            field_selector=f"metadata.name={names.BUCKET_SECRET}",
            on_change=self._on_change,
        )
        self._claims: View[VolumeClaim] = View(
            client,
            collection(*CLAIMS),
            trim=trim_claim,
            key=namespaced_name,
            label_selector=f"{names.LABEL_HUB}={hub_namespace}",
            on_change=self._on_claim,
        )
        self._claims_in: defaultdict[str, dict[str, VolumeClaim]] = defaultdict(dict)
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

    def claims_in(self, namespace: str) -> list[VolumeClaim]:
        """The claims with our label in a namespace, by name; whose they are they say themselves."""
        return [claim for _, claim in sorted(self._claims_in.get(namespace, {}).items())]

    def volumes_of(self, team: str) -> list[Object]:
        """Volumes that say they were made by this hub for a team of that name."""
        marks = {names.ANNOTATION_HUB: self._hub_namespace, names.ANNOTATION_TEAM: team}
        return [
            volume
            for volume in self.volumes
            if all(annotation(volume, key) == value for key, value in marks.items())
        ]

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

    def _views(self) -> Iterator[View[Any]]:
        yield self.namespaces
        yield self.volumes
        yield self.classes
        yield self.bucket_secrets
        yield self._claims
        yield from self._children.values()

    def _make_view(self, client: Client, api_version: str, plural: str) -> View[Object]:
        return View(
            client,
            collection(api_version, plural),
            trim=trim,
            key=name if (api_version, plural) in (NAMESPACES, VOLUMES) else namespaced_name,
            label_selector=f"{names.LABEL_HUB}={self._hub_namespace}",
            on_change=self._on_change,
        )

    def _on_change(self, key: str, old: Object | None, new: Object | None) -> None:
        teams = {annotation(obj, names.ANNOTATION_TEAM) for obj in (old, new) if obj is not None}
        self._tell(teams, namespace=key.partition("/")[0])

    def _on_claim(self, key: str, old: VolumeClaim | None, new: VolumeClaim | None) -> None:
        namespace, _, name = key.partition("/")
        if new is not None:
            self._claims_in[namespace][name] = new
        else:
            self._claims_in[namespace].pop(name, None)
        self._tell({claim.team for claim in (old, new) if claim is not None}, namespace=namespace)

    def _on_class(self, key: str, old: object, new: object) -> None:
        self._tell(set(self.team_of().values()), namespace="")

    def _tell(self, teams: set[str], *, namespace: str) -> None:
        # an object that lost its marks is still the namespace's, and the namespace has them
        found = self.namespaces.get(namespace)
        if found is not None:
            teams = teams | {annotation(found, names.ANNOTATION_TEAM)}
        for team in teams - {""}:
            self._on_team(team)


def trim(obj: Object) -> Object:
    """An object without what changes by itself or is never read here."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "labels", "annotations", "deletionTimestamp")
    slim = {key: metadata[key] for key in kept if key in metadata}
    return {**obj, "metadata": slim}
