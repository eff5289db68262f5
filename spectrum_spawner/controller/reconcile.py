"""One team at a time: from what is to what the Team says.

Nothing that is decided here is remembered: Team and namespace are read afresh, everything else
is on the views, so that a look may happen at any time, twice, or after a crash half way. A look
that finds all as it should be writes nothing.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller import objects, status
from spectrum_spawner.controller.buckets import Buckets
from spectrum_spawner.controller.cluster import Cluster
from spectrum_spawner.controller.filling import Filler
from spectrum_spawner.controller.grants import Granted, make_effective_quota, sum_grants
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.orphans import Orphans, now
from spectrum_spawner.controller.purges import Purges
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.spaces import Spaces
from spectrum_spawner.controller.status import Finding, NotReady
from spectrum_spawner.controller.storage import Provided, Storage
from spectrum_spawner.kube import Client, NotFound, Object, Refused, item

_log = logging.getLogger("spectrum.controller")

# Seconds until somebody looks whether what is in the way, and is not watched, is gone.
PAUSE = 300.0

TEAMS_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"


class Reconciler:
    """Brings one team up to date, and says so in the Team's status.

    `again` is called with the names of teams that are to be looked at once more: another one's
    end may help them, or there is news of their buckets. `count_servers`
    gives the servers that run in a namespace, None while that is not known; `prepared_at` when a
    pod was made that has prepared its share, "" if none is known; `clock` gives the time by which
    grants lapse.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        journal: Journal,
        settings: Settings,
        *,
        again: Callable[[str], None],
        count_servers: Callable[[str], int | None],
        prepared_at: Callable[[str], str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._journal = journal
        self._settings = settings
        self._again = again
        self._count_servers = count_servers
        self._clock = clock
        self._filler = Filler(client, settings)
        self.buckets = Buckets(client, cluster, journal, settings, on_change=again)
        self._orphans = Orphans(client, cluster, self.buckets, journal, settings)
        self._purges = Purges(client, cluster, journal, settings.hub_namespace)
        self._storage = Storage(client, cluster, journal, settings, prepared_at=prepared_at)
        self.spaces = Spaces(client, cluster, self._orphans, journal, settings)

    async def reconcile(self, name: str) -> float | None:
        """Bring one team up to date; returns the seconds until it has to be looked at again.

        That is when a grant lapses, or what stands in the way of its storage may be gone.

        Raises NotReady or a KubeError when that has to be tried again later: what stands in the
        way, such as a foreign namespace, is not watched.
        """
        await self._cluster.wait_synced()
        team = await self._get_team(name)
        purging = await self._purges.purge(name)
        if team is None:
            self._journal.on_absence(name)
            self._filler.waiting.discard(name)
            for waiting in self._filler.waiting:
                self._again(waiting)
            await self._storage.drop_left(name)
            await self._orphans.keep_or_purge(name)
            return _find_pause(purging)
        self._journal.on_team(team)
        try:
            return await self._make_ready(team, purging)
        except NotReady as error:
            await self._report_not_ready(team, error)
            if name in self._filler.waiting:
                return None
            raise
        except Refused as error:
            await self._report_not_ready(team, NotReady("Refused", f"Kubernetes refused: {error}"))
            raise

    async def _get_team(self, name: str) -> Object | None:
        path = item(TEAMS_VERSION, names.TEAM_PLURAL, name, namespace=self._settings.hub_namespace)
        try:
            return await self._client.get(path)
        except NotFound as error:
            # a bare 404 comes from an API server that knows no Teams (yet), not from a lost Team
            if error.reason != "NotFound":
                raise
            return None

    async def _make_ready(self, team: Object, purging: list[Finding]) -> float | None:
        team = await self._filler.fill(team)
        self._journal.on_team(team)
        spec = team.get("spec") or {}
        granted = sum_grants(spec, self._clock())
        quota = make_effective_quota(spec.get("quota") or {}, granted)
        space = await self.spaces.ensure(team, quota)
        provided = await self._provide(team, space)
        bucket = self.buckets.ensure(team, space)
        findings = [*purging, *provided.findings, *([bucket.finding] if bucket.finding else [])]
        storage = {**provided.status, **({"bucket": bucket.status} if bucket.status else {})}
        counted = self._find_counted_quota(space, quota)
        await self._report_ready(team, space, counted, granted, storage, findings)
        pauses = [_find_pause(findings)]
        if granted.until is not None:
            pauses.append(max(0.0, (granted.until - self._clock()).total_seconds()))
        return min((pause for pause in pauses if pause is not None), default=None)

    async def _provide(self, team: Object, space: TeamSpace) -> Provided:
        """Storage as far as Kubernetes lets us: a team without some of it still works."""
        try:
            return await self._storage.ensure(team, space)
        except Refused as error:
            before = (team.get("status") or {}).get("storage") or {}
            kept = {key: value for key, value in before.items() if key != "bucket"}
            refused = Finding(reason="Refused", message=f"Kubernetes refused: {error}.", again=True)
            return Provided(status=kept, findings=(refused,))

    def _find_counted_quota(self, space: TeamSpace, quota: dict[str, Any]) -> Object:
        """The quota as it is wanted, with how far Kubernetes counts by it."""
        live = self._cluster.find("ResourceQuota", names.QUOTA, namespace=space.namespace) or {}
        wanted = objects.make_quota(space, quota, self._settings.accelerators)
        return {**wanted, "status": live.get("status") or {}}

    async def _report_ready(
        self,
        team: Object,
        space: TeamSpace,
        quota: Object,
        granted: Granted,
        storage: Mapping[str, Any],
        findings: Iterable[Finding],
    ) -> None:
        sentence = f"Namespace {space.namespace} is ready."
        wanted = status.make_status(
            team,
            conditions=[
                status.make_condition(status.READY, True, "Reconciled", sentence),
                status.make_quota_condition(quota),
                status.make_storage_condition(findings),
            ],
            namespace=space.namespace,
            gid=space.gid,
            quota=quota,
            servers=self._servers_of(team, space.namespace),
            granted=granted.to_status(),
            storage=storage,
        )
        await self._write_status(team, wanted)

    async def _report_not_ready(self, team: Object, error: NotReady) -> None:
        """Say why; namespace, gid and storage that were ours stay known, for the data's sake."""
        self._journal.on_not_ready(team, error)
        before = team.get("status") or {}
        namespace = before.get("namespace")
        wanted = status.make_status(
            team,
            conditions=[status.make_condition(status.READY, False, error.reason, str(error))],
            namespace=namespace,
            gid=before.get("gid"),
            servers=self._servers_of(team, namespace) if namespace else None,
            storage=before.get("storage"),
        )
        await self._write_status(team, wanted)

    def _servers_of(self, team: Object, namespace: str) -> int | None:
        """Servers that run; what was known before, for as long as nothing is known."""
        count = self._count_servers(namespace)
        return (team.get("status") or {}).get("servers") if count is None else count

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


def _find_pause(findings: Iterable[Finding]) -> float | None:
    return PAUSE if any(finding.again for finding in findings) else None
