"""Storage of one team: what it is to have, what it has, and what stands between the two."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.cluster import CLAIMS, Cluster
from spectrum_spawner.controller.datasets import Datasets, Offer
from spectrum_spawner.controller.growth import Step, judge_steps, plan_growth, room_of
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.shares import NoShare, Shares, missing_class, refusal
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.storage_settings import StorageSettings, VolumeSettings
from spectrum_spawner.controller.volumes import VolumeClaim, find_class
from spectrum_spawner.kube import Client, Conflict, NotFound, Object, Refused, item


@dataclass(frozen=True, kw_only=True)
class Provided:
    """What a team has: `status.storage` of the Team, and what there is to say of it."""

    status: Mapping[str, Any] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


class Storage:
    """Makes the volumes of teams, and lets them grow while servers run.

    `prepared_at` gives the time (RFC 3339) at which a pod was made that has prepared the share of
    a namespace, "" if none has. Whatever Kubernetes refuses is said and stops nothing else.
    """

    def __init__(
        self,
        client: Client,
        cluster: Cluster,
        journal: Journal,
        settings: Settings,
        *,
        prepared_at: Callable[[str], str],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._journal = journal
        self._settings = settings.storage
        self._prepared_at = prepared_at
        self._shares = Shares(client, cluster)
        self._datasets = Datasets(client, cluster, settings.storage.cephfs)

    async def ensure(self, team: Object, space: TeamSpace) -> Provided:
        """Bring the volumes of a team up to date; raises a KubeError if that is unknown."""
        spec = (team.get("spec") or {}).get("storage") or {}
        wanted = self._settings.of_team(space.team, spec)
        share, about_share = await self._ensure_share(space, wanted)
        grown = await self._grow(space, wanted)
        missing = self._find_missing_classes(wanted)
        offer = await self._datasets.ensure(space, wanted.datasets)
        findings = [
            *([about_share] if about_share else []),
            *grown,
            *(missing_class(volume.storage_class, what) for what, volume in missing.items()),
            *offer.findings,
        ]
        status = make_storage_status(
            wanted,
            share,
            offer,
            why_no_share=about_share.message if about_share and share is None else "",
            missing_classes={volume.storage_class for volume in missing.values()},
        )
        return Provided(status=status, findings=tuple(findings))

    async def drop_left(self, team: str) -> None:
        """Clear up after a team that is gone: no claim, and nothing that holds data."""
        await self._datasets.drop_left(team)

    async def _ensure_share(
        self, space: TeamSpace, wanted: StorageSettings
    ) -> tuple[VolumeClaim | None, Finding | None]:
        """The share that servers can mount, and what there is to say of it."""
        if not wanted.share.enabled:
            return None, None
        at = self._prepared_at(space.namespace)
        try:
            claim = await self._shares.ensure(space, wanted.share, prepared_at=at)
        except NoShare as error:
            return None, error.finding
        return claim, self._shares.judge(claim)

    async def _grow(self, space: TeamSpace, wanted: StorageSettings) -> list[Finding]:
        quota = self._cluster.find("ResourceQuota", names.QUOTA, namespace=space.namespace)
        plan = plan_growth(
            (c for c in self._cluster.claims_in(space.namespace) if c.is_of(space)),
            make_sizes(wanted),
            classes=self._cluster.classes,
            room=room_of(quota or {}),
        )
        taken, refused = [], []
        for step in plan.steps:
            try:
                await self._take(step)
            except (NotFound, Conflict):
                continue  # gone meanwhile, or another one by now, which is looked at next
            except Refused as error:
                refused.append(refusal(error, f"{step.claim.name} cannot grow to {step.size}"))
            else:
                taken.append(step)
        if taken:
            self._journal.on_grown(space.team, taken)
        return [*plan.findings, *refused, *judge_steps(taken)]

    async def _take(self, step: Step) -> None:
        claim = step.claim
        await self._client.patch(
            item(*CLAIMS, claim.name, namespace=claim.namespace),
            {
                "metadata": {"uid": claim.uid},
                "spec": {"resources": {"requests": {"storage": step.size}}},
            },
        )

    def _find_missing_classes(self, wanted: StorageSettings) -> dict[str, VolumeSettings]:
        """What the hub would make in vain; of the share it is known where that is made."""
        offered = {"each home": wanted.home}
        if wanted.scratch.enabled:
            offered["each scratch disk"] = wanted.scratch
        return {
            what: volume
            for what, volume in offered.items()
            if find_class(self._cluster.classes, volume.storage_class) is None
        }


def make_sizes(wanted: StorageSettings) -> dict[str, str]:
    """The size that claims are to have, by component; of what is not offered none is known."""
    kinds = {
        names.COMPONENT_HOME: wanted.home,
        names.COMPONENT_SHARE: wanted.share,
        names.COMPONENT_SCRATCH: wanted.scratch,
    }
    return {component: volume.size for component, volume in kinds.items() if volume.enabled}


def make_storage_status(
    wanted: StorageSettings,
    share: VolumeClaim | None,
    offer: Offer,
    *,
    why_no_share: str = "",
    missing_classes: Iterable[str] = (),
) -> dict[str, Any]:
    """`status.storage` of a Team: what its servers can mount, and without what they start.

    `missing_classes` are those that its next homes and scratch disks would ask for, "" being the
    default one.
    """
    status: dict[str, Any] = {}
    if share is not None:
        status["share"] = {
            "claim": share.name,
            "size": share.capacity or share.size,
            "phase": share.phase,
            "prepared": share.prepared,
        }
    if wanted.scratch.enabled:
        status["scratch"] = {"size": wanted.scratch.size}
        if wanted.scratch.storage_class:
            status["scratch"]["storageClass"] = wanted.scratch.storage_class
    if offer.datasets:
        status["datasets"] = [
            {
                "name": dataset.name,
                "title": dataset.title,
                "claim": names.dataset_claim(dataset.name),
                "size": dataset.size,
            }
            for dataset in offer.datasets
        ]
    withheld = [{"kind": "share", "name": "", "why": why_no_share}] if why_no_share else []
    withheld += [
        {"kind": "dataset", "name": name, "why": finding.message}
        for name, finding in offer.withheld.items()
    ]
    if withheld:
        status["withheld"] = withheld
    if missing := sorted(set(missing_classes)):
        status["missingClasses"] = missing
    return status
