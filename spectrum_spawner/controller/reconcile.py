"""One team at a time: from what is to what the Team says.

Nothing here remembers anything: Team and namespace are read afresh, everything else is on the
views, so that a look may happen at any time, twice, or after a crash half way. A look that finds
all as it should be writes nothing.
"""

import logging

from spectrum_spawner import names
from spectrum_spawner.controller import objects, ownership, status
from spectrum_spawner.controller.cluster import NAMESPACES, Cluster, collection_of, path_of
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.gids import Gids, GidsExhausted
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.orphans import Orphans, get_namespace, now
from spectrum_spawner.controller.ownership import Claim
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.kube import Client, NotFound, Object, Refused, collection, item

_log = logging.getLogger("spectrum.controller")

_REASONS = {
    Claim.TAKEN: "NamespaceTaken",
    Claim.ORPHANED: "NamespaceOrphaned",
    Claim.TERMINATING: "NamespaceTerminating",
}
TEAMS_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"


class NotReady(Exception):  # noqa: N818 - says what happened
    """A team cannot be served for now; `reason` and the message go into its condition."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Reconciler:
    """Makes one team's namespace and objects, mends them, and says so in the Team's status."""

    def __init__(self, client: Client, cluster: Cluster, gids: Gids, settings: Settings) -> None:
        self._client = client
        self._cluster = cluster
        self._gids = gids
        self._orphans = Orphans(client, cluster, settings)
        self.settings = settings

    async def reconcile(self, name: str) -> None:
        """Bring one team up to date.

        Raises NotReady or a KubeError when that has to be tried again later: what stands in the
        way, such as a foreign namespace, is not watched.
        """
        await self._cluster.wait_synced()
        team = await self._get_team(name)
        if team is None:
            await self._orphans.keep_or_purge(name)
            return
        try:
            space = await self._ensure_space(team)
        except NotReady as error:
            await self._report_not_ready(team, error)
            raise
        except Refused as error:
            await self._report_not_ready(team, NotReady("Refused", f"Kubernetes refused: {error}"))
            raise
        await self._report_ready(team, space)

    async def _get_team(self, name: str) -> Object | None:
        path = item(TEAMS_VERSION, names.TEAM_PLURAL, name, namespace=self.settings.hub_namespace)
        try:
            return await self._client.get(path)
        except NotFound as error:
            # a bare 404 comes from an API server that knows no Teams (yet), not from a lost Team
            if error.reason != "NotFound":
                raise
            return None

    async def _ensure_space(self, team: Object) -> TeamSpace:
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
        await self._ensure_namespace(space, namespace)
        quota = (team.get("spec") or {}).get("quota") or {}
        for child in objects.make_children(space, quota, self.settings):
            await self._ensure_child(child)
        if not self.settings.network.enabled:
            await self._drop_policies(space)
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

    async def _ensure_namespace(self, space: TeamSpace, live: Object | None) -> None:
        wanted = objects.make_namespace(space)
        if live is None:
            _log.info("team %s: making namespace %s", space.team, space.namespace)
            # a name that was taken since we looked is found out by the next look
            await self._client.create(collection(*NAMESPACES), wanted)
            return
        patch = mending_patch(live, wanted)
        for key in (names.ANNOTATION_ORPHANED_AT, names.ANNOTATION_PURGE):
            if ownership.annotation(live, key):
                annotations = patch.setdefault("metadata", {}).setdefault("annotations", {})
                annotations[key] = None
        if patch:
            _log.info("team %s: mending namespace %s: %s", space.team, space.namespace, patch)
            patch.setdefault("metadata", {})["uid"] = live["metadata"]["uid"]
            await self._client.patch(item(*NAMESPACES, space.namespace), patch)

    async def _ensure_child(self, wanted: Object) -> None:
        """Make or mend one object. Its namespace is ours, so is what carries our fixed name."""
        kind, metadata = wanted["kind"], wanted["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        live = self._cluster.find(kind, name, namespace=namespace)
        if live is None:
            live, made = await self._client.create_if_absent(collection_of(wanted), wanted)
            if made:
                _log.info("%s %s/%s made", kind, namespace, name)
                return
        patch = mending_patch(live, wanted)
        if "roleRef" in patch:
            # nothing but a new binding can have another role
            _log.warning("%s %s/%s names another role: made anew", kind, namespace, name)
            await self._client.delete(path_of(wanted), uid=live["metadata"]["uid"])
            await self._client.create(collection_of(wanted), wanted)
        elif patch:
            _log.info("%s %s/%s mended: %s", kind, namespace, name, patch)
            await self._client.patch(path_of(wanted), patch)

    async def _drop_policies(self, space: TeamSpace) -> None:
        for name in (names.POLICY_ALLOW, names.POLICY_DENY):
            live = self._cluster.find("NetworkPolicy", name, namespace=space.namespace)
            if live is not None:
                policy = {"kind": "NetworkPolicy", "metadata": live["metadata"]}
                await self._client.delete(path_of(policy), uid=live["metadata"]["uid"])

    async def _report_ready(self, team: Object, space: TeamSpace) -> None:
        conditions = [
            status.make_condition(
                status.READY, True, "Reconciled", f"Namespace {space.namespace} is ready."
            )
        ]
        quota = self._cluster.find("ResourceQuota", names.QUOTA, namespace=space.namespace)
        if quota is not None:
            conditions.append(status.make_quota_condition(quota))
        wanted = status.make_status(
            team, conditions=conditions, namespace=space.namespace, gid=space.gid, quota=quota
        )
        await self._write_status(team, wanted)

    async def _report_not_ready(self, team: Object, error: NotReady) -> None:
        """Say why; namespace and gid that were ours before stay known, for the data's sake."""
        before = team.get("status") or {}
        condition = status.make_condition(status.READY, False, error.reason, str(error))
        wanted = status.make_status(
            team,
            conditions=[condition],
            namespace=before.get("namespace"),
            gid=before.get("gid"),
        )
        await self._write_status(team, wanted)

    async def _write_status(self, team: Object, wanted: Object) -> None:
        patch = status.status_patch(team, wanted, now=now())
        if not patch:
            return
        metadata = team["metadata"]
        path = item(
            TEAMS_VERSION,
            names.TEAM_PLURAL,
            metadata["name"],
            namespace=metadata["namespace"],
            subresource="status",
        )
        try:
            await self._client.patch(path, {"metadata": {"uid": metadata["uid"]}, "status": patch})
        except NotFound:
            _log.info("team %s was deleted meanwhile", metadata["name"])


def _gid_on(namespace: Object) -> int:
    text = ownership.annotation(namespace, objects.ANNOTATION_GID)
    return int(text) if text.isascii() and text.isdigit() else 0
