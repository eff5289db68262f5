"""Namespaces whose Team is gone: kept with all that is in them, until somebody says purge.

Quota, policies and the hub's role stay in force: what runs there runs on and can be stopped by
its people, and nothing new starts, because the hub starts servers for Teams that exist only.
"""

import datetime
import logging

from spectrum_spawner import names
from spectrum_spawner.controller import ownership
from spectrum_spawner.controller.bucket import Moved
from spectrum_spawner.controller.buckets import Buckets
from spectrum_spawner.controller.changes import find_annotator
from spectrum_spawner.controller.cluster import NAMESPACES, Cluster
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.ownership import Taken
from spectrum_spawner.controller.rgw import GatewayError
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.kube import Client, NotFound, Object, item

_log = logging.getLogger("spectrum.controller")


class Orphans:
    """Marks the namespaces that a Team left behind, and deletes one when its name is given."""

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        buckets: Buckets,
        journal: Journal,
        settings: Settings,
    ) -> None:
        self._client = client
        self._buckets = buckets
        self._journal = journal
        self._cluster = cluster
        self._settings = settings
        self._said: set[tuple[str, str]] = set()  # uids of namespaces, and why they stayed

    async def keep_or_purge(self, team: str) -> None:
        """Look after all namespaces of a team whose Team object certainly does not exist.

        Raises what is in the way of a purge, a KubeError or that of its bucket: a namespace stays
        until its bucket is gone, since only it knows of it.
        """
        own = names.team_namespace(team, prefix=self._settings.prefix)
        found = {ns["metadata"]["name"] for ns in self._cluster.namespaces_of(team)} | {own}
        for name in sorted(found):
            namespace = await get_namespace(self._client, name)
            if namespace is None or not self._is_left_by(team, namespace):
                continue
            if not ownership.is_to_be_purged(namespace):
                await self.mark(namespace)
                await self._buckets.on_absence(namespace)
                continue
            await self._purge_bucket(namespace)
            _log.warning("team %s is gone: purging namespace %s as annotated", team, name)
            manager = find_annotator(namespace, names.ANNOTATION_PURGE)
            self._journal.on_space_purge(namespace, manager=manager)
            await self._client.delete(item(*NAMESPACES, name), uid=namespace["metadata"]["uid"])

    async def _purge_bucket(self, namespace: Object) -> None:
        """Write down, once, what a namespace stays for although it is to go."""
        try:
            await self._buckets.on_absence(namespace)
        except (GatewayError, Taken, Moved) as error:
            reason = (namespace["metadata"]["uid"], str(error))
            if reason not in self._said:
                self._said.add(reason)
                manager = find_annotator(namespace, names.ANNOTATION_PURGE)
                self._journal.on_refused_space_purge(namespace, str(error), manager=manager)
            raise

    async def mark(self, namespace: Object) -> None:
        """Mark once. A purge that was asked for before this moment was not about an orphan."""
        if ownership.is_orphaned(namespace):
            return
        metadata = namespace["metadata"]
        # written first: once marked, the namespace is nobody's news any more
        self._journal.on_deletion(
            ownership.annotation(namespace, names.ANNOTATION_TEAM),
            ownership.annotation(namespace, names.ANNOTATION_TEAM_UID),
        )
        _log.warning("namespace %s has no Team any more: kept, marked orphaned", metadata["name"])
        annotations = {names.ANNOTATION_ORPHANED_AT: now(), names.ANNOTATION_PURGE: None}
        await self._client.patch(
            item(*NAMESPACES, metadata["name"]),
            {"metadata": {"uid": metadata["uid"], "annotations": annotations}},
        )

    def _is_left_by(self, team: str, namespace: Object) -> bool:
        hub_namespace = self._settings.hub_namespace
        if namespace["metadata"].get("deletionTimestamp"):
            return False
        return ownership.is_of_team(namespace, hub_namespace=hub_namespace, team=team)


async def get_namespace(client: Client, name: str) -> Object | None:
    """A namespace as it stands now, whoever owns it."""
    try:
        return await client.get(item(*NAMESPACES, name))
    except NotFound:
        return None


def now() -> str:
    """The time as Kubernetes writes it (RFC 3339, UTC, seconds)."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
