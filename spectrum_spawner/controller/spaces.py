"""A team's namespace and all that it holds: found, made, mended."""

import logging
from collections.abc import Mapping
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller import objects, ownership, status
from spectrum_spawner.controller.children import Children
from spectrum_spawner.controller.cluster import NAMESPACES, Cluster
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.gids import Gids, GidsExhausted
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.orphans import Orphans, get_namespace
from spectrum_spawner.controller.ownership import Claim
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.status import NotReady
from spectrum_spawner.kube import Client, Object, collection, item

_log = logging.getLogger("spectrum.controller")

_REASONS = {
    Claim.TAKEN: "NamespaceTaken",
    Claim.ORPHANED: "NamespaceOrphaned",
    Claim.TERMINATING: "NamespaceTerminating",
}


class Spaces:
    """Makes the namespaces of teams, and mends what others altered in them."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        orphans: Orphans,
        journal: Journal,
        settings: Settings,
    ) -> None:
        self.settings = settings
        self._client = client
        self._cluster = cluster
        self._orphans = orphans
        self._journal = journal
        self._known: set[str] = set()  # namespaces that were right once since the start
        self._gids = Gids(client, settings)
        self._children = Children(client, cluster)

    async def ensure(self, team: Object, quota: Mapping[str, Any]) -> TeamSpace:
        """Namespace and all it holds; raises NotReady if the namespace is not this Team's."""
        namespace = await self._find_namespace(team)
        claim = ownership.claim_of(namespace, hub_namespace=self.settings.hub_namespace, team=team)
        if namespace is not None and claim is not Claim.OURS:
            if claim is Claim.ORPHANED:
                await self._orphans.mark(namespace)
            raise NotReady(_REASONS[claim], ownership.explain(claim, namespace))
        space = TeamSpace(
            hub_namespace=self.settings.hub_namespace,
            team=team["metadata"]["name"],
            uid=team["metadata"]["uid"],
            namespace=self._namespace_name(team, namespace),
            gid=await self._gid_of(team, namespace),
        )
        mended = await self._ensure_namespace(space, namespace)
        mended += await self._children.ensure(objects.make_children(space, quota, self.settings))
        first = space.namespace not in self._known
        self._known.add(space.namespace)
        if mended and (not first or status.is_ready(team)):
            self._journal.on_mended(space.team, mended, first=first)
        if not self.settings.network.enabled:
            await self._children.drop_policies(space.namespace)
        return space

    def _namespace_name(self, team: Object, namespace: Object | None) -> str:
        if namespace is not None:
            return namespace["metadata"]["name"]
        return names.team_namespace(team["metadata"]["name"], prefix=self.settings.prefix)

    async def _find_namespace(self, team: Object) -> Object | None:
        """The team's namespace as it stands now, whoever owns it.

        A namespace with this Team's marks comes first, whatever its name: a release whose prefix
        was changed keeps the teams' data.
        """
        name = team["metadata"]["name"]
        for namespace in self._cluster.namespaces_of(name):
            claim = ownership.claim_of(
                namespace, hub_namespace=self.settings.hub_namespace, team=team
            )
            if claim is Claim.OURS:
                return await get_namespace(self._client, namespace["metadata"]["name"])
        return await get_namespace(self._client, self._namespace_name(team, None))

    async def _gid_of(self, team: Object, namespace: Object | None) -> int:
        recorded = (team.get("status") or {}).get("gid")
        if recorded is not None:
            return recorded
        if namespace is not None and (gid := _gid_on(namespace)):
            return gid
        try:
            return await self._gids.allocate(_gid_on(ns) for ns in self._cluster.namespaces)
        except GidsExhausted as error:
            raise NotReady("GidsExhausted", str(error)) from error

    async def _ensure_namespace(self, space: TeamSpace, live: Object | None) -> list[str]:
        """Make or mend it; names it if somebody else had altered it."""
        wanted = objects.make_namespace(space)
        if live is None:
            _log.info("team %s: making namespace %s", space.team, space.namespace)
            # a name that was taken since we looked is found out by the next look
            await self._client.create(collection(*NAMESPACES), wanted)
            return self._children.note(wanted, written=True)
        patch = mending_patch(live, wanted)
        for key in (names.ANNOTATION_ORPHANED_AT, names.ANNOTATION_PURGE):
            if ownership.annotation(live, key):
                annotations = patch.setdefault("metadata", {}).setdefault("annotations", {})
                annotations[key] = None
        if patch:
            _log.info("team %s: mending namespace %s: %s", space.team, space.namespace, patch)
            patch.setdefault("metadata", {})["uid"] = live["metadata"]["uid"]
            await self._client.patch(item(*NAMESPACES, space.namespace), patch)
        return self._children.note(wanted, written=bool(patch))


def _gid_on(namespace: Object) -> int:
    text = ownership.annotation(namespace, objects.ANNOTATION_GID)
    return int(text) if text.isascii() and text.isdigit() else 0
