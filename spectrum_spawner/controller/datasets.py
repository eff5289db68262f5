"""Datasets of a team: pairs of volume and claim that only point at data which is not ours.

So they are deleted when they are not wanted any more, once nobody mounts them; the data stay.
Until then a pair that points elsewhere than it should by now is offered as it is.
"""

import logging
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from spectrum_spawner import names
from spectrum_spawner.controller.adoption import create_or_adopt, is_of_same_owner
from spectrum_spawner.controller.cluster import CLAIMS, VOLUMES, Cluster
from spectrum_spawner.controller.growth import name_some
from spectrum_spawner.controller.mounts import find_mounts
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.ownership import Taken, annotation
from spectrum_spawner.controller.shares import refusal
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.storage_settings import CephFSSettings, DatasetSettings
from spectrum_spawner.controller.volumes import (
    VolumeClaim,
    make_dataset_claim,
    make_dataset_volume,
)
from spectrum_spawner.kube import Client, Object, Refused, collection, item

_log = logging.getLogger("spectrum.controller")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """The datasets that servers of a team can mount, and why they cannot mount the others.

    `withheld` is by the dataset's name; `findings` are all that there is to say.
    """

    datasets: tuple[DatasetSettings, ...] = ()
    withheld: Mapping[str, Finding]
    findings: tuple[Finding, ...] = ()


class Datasets:
    """Makes and deletes the volumes and claims by which teams read datasets."""

    def __init__(self, client: Client, cluster: Cluster, cephfs: CephFSSettings) -> None:
        self._client = client
        self._cluster = cluster
        self._cephfs = cephfs

    async def ensure(self, space: TeamSpace, wanted: Sequence[DatasetSettings]) -> Offer:
        """Bring the pairs of a team up to date as far as servers do not stand in the way."""
        look = _Look(self._client, space, self._cluster.claims_in(space.namespace))
        there, withheld, findings = [], {}, []
        for dataset in wanted:
            finding = await self._ensure_one(look, dataset)
            findings += [finding] if finding else []
            claim = look.claims.get(names.dataset_claim(dataset.name))
            if finding is None or finding.reason == "InUse":
                finding = _why_unbound(dataset, claim)
                findings += [finding] if finding else []
            if finding is None:
                there.append(dataset)
            else:
                withheld[dataset.name] = finding
        findings += await self._drop_others(look, {dataset.name for dataset in wanted})
        return Offer(datasets=tuple(there), withheld=withheld, findings=tuple(findings))

    async def drop_left(self, team: str) -> None:
        """Delete volumes of a team that is gone, where its namespace is gone as well."""
        for volume in self._cluster.volumes_of(team):
            namespace = (volume["spec"].get("claimRef") or {}).get("namespace", "")
            is_bound = (volume.get("status") or {}).get("phase") == "Bound"
            is_left = self._cluster.namespaces.get(namespace) is None and not is_bound
            if is_left and _is_volume_in(volume, namespace):
                await self._delete_volume(volume)

    async def _ensure_one(self, look: "_Look", dataset: DatasetSettings) -> Finding | None:
        """What there is to say of its pair, beyond what the claim says itself."""
        space = look.space
        pair = _Pair(
            claim=look.claims.get(names.dataset_claim(dataset.name)),
            volume=self._cluster.volumes.get(names.dataset_volume(space.namespace, dataset.name)),
        )
        volume = make_dataset_volume(space, dataset, self._cephfs)
        try:
            if pair.claim and not _is_claim_of(pair.claim, space, dataset.name):
                raise Taken(pair.claim.name)
            if pair.volume and not is_of_same_owner(pair.volume, volume):
                raise Taken(pair.volume["metadata"]["name"])
            if pair.is_ending:
                return await self._end(look, dataset.name, pair)
            if pair.is_other_than(volume):
                if pods := await look.find_pods(pair.claim):
                    return _say_in_use(
                        f"Dataset {dataset.name} is offered as it was: it changes", pods
                    )
                return await self._end(look, dataset.name, pair)
            if pair.volume is None:
                await create_or_adopt(self._client, collection(*VOLUMES), volume)
            else:
                await self._keep_data(pair.volume)
            if pair.claim is None:
                path = collection(*CLAIMS, namespace=space.namespace)
                await create_or_adopt(self._client, path, make_dataset_claim(space, dataset))
        except Taken as error:
            sentence = (
                f"Dataset {dataset.name} is not offered, since {error} is there and is not this "
                "team's; it is not touched."
            )
            return Finding(reason="Taken", message=sentence, again=True)
        except Refused as error:
            return refusal(error, f"Dataset {dataset.name} is not offered")
        return None

    async def _drop_others(self, look: "_Look", wanted: Set[str]) -> list[Finding]:
        """Delete what is left of datasets that the team is not to have any more."""
        space = look.space
        claims = {
            claim.volume: claim
            for claim in look.claims.values()
            if _is_claim_of(claim, space, claim.volume)
        }
        volumes = {
            _dataset_of(volume): volume
            for volume in self._cluster.volumes_of(space.team)
            if _is_volume_in(volume, space.namespace)
        }
        findings = []
        for dataset in sorted((claims.keys() | volumes.keys()) - wanted):
            pair = _Pair(claim=claims.get(dataset), volume=volumes.get(dataset))
            findings.append(await self._end(look, dataset, pair))
        return findings

    async def _end(self, look: "_Look", dataset: str, pair: "_Pair") -> Finding:
        """Delete a pair unless a pod mounts it; what comes then is up to the next look."""
        claim, volume = pair.claim, pair.volume
        if claim is not None and not claim.deleting:
            if pods := await look.find_pods(claim):
                return _say_in_use(f"Dataset {dataset} is offered no more: it goes", pods)
            _log.info("team %s: dataset %s: deleting %s", look.space.team, dataset, claim.name)
            path = item(*CLAIMS, claim.name, namespace=claim.namespace)
            await self._client.delete(path, uid=claim.uid)
        if volume is not None and not volume["metadata"].get("deletionTimestamp"):
            await self._delete_volume(volume)
        sentence = f"What was there of dataset {dataset} is being removed; its data stay."
        return Finding(reason="Removing", message=sentence, is_problem=False)

    async def _delete_volume(self, volume: Object) -> None:
        metadata = volume["metadata"]
        await self._keep_data(volume)
        await self._client.delete(item(*VOLUMES, metadata["name"]), uid=metadata["uid"])

    async def _keep_data(self, volume: Object) -> None:
        """See to it that no storage deletes the data when their volume goes."""
        if volume["spec"].get("persistentVolumeReclaimPolicy") == "Retain":
            return
        metadata = volume["metadata"]
        await self._client.patch(
            item(*VOLUMES, metadata["name"]),
            {
                "metadata": {"uid": metadata["uid"]},
                "spec": {"persistentVolumeReclaimPolicy": "Retain"},
            },
        )


class _Look:
    """One look at a team: its claims by name, and which pods mount them, asked once if at all."""

    def __init__(self, client: Client, space: TeamSpace, claims: Sequence[VolumeClaim]) -> None:
        self.space = space
        self.claims = {claim.name: claim for claim in claims}
        self._client = client
        self._mounts: Mapping[str, list[str]] | None = None

    async def find_pods(self, claim: VolumeClaim | None) -> list[str]:
        """The pods that mount a claim or are about to; of no claim there are none."""
        if claim is None:
            return []
        if self._mounts is None:
            self._mounts = await find_mounts(self._client, self.space.namespace)
        return self._mounts.get(claim.name, [])


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """What there is of a dataset in one team."""

    claim: VolumeClaim | None
    volume: Object | None

    @property
    def is_ending(self) -> bool:
        """Whether one of the two is going or has lost the other, so that neither serves again."""
        if self.claim and (self.claim.deleting or self.claim.phase == "Lost"):
            return True
        if self.volume is None:
            return False
        is_released = (self.volume.get("status") or {}).get("phase") in ("Released", "Failed")
        return is_released or bool(self.volume["metadata"].get("deletionTimestamp"))

    def is_other_than(self, wanted: Object) -> bool:
        """Whether they point at something else than is wanted, which cannot be changed."""
        if self.volume is None:
            return False
        live, source = self.volume["spec"].get("csi") or {}, wanted["spec"]["csi"]
        return live.get("volumeHandle") != source["volumeHandle"]


def _why_unbound(dataset: DatasetSettings, claim: VolumeClaim | None) -> Finding | None:
    """Why servers would wait for a dataset; a claim that is not seen yet was made just now."""
    if claim is not None and claim.phase == "Bound":
        return None
    sentence = f"Dataset {dataset.name} is not bound to its volume yet."
    return Finding(reason="Pending", message=sentence)


def _say_in_use(what: str, pods: list[str]) -> Finding:
    sentence = f"{what} once no pod mounts it; now it is mounted by {name_some(pods)}."
    return Finding(reason="InUse", message=sentence, is_problem=False, again=True)


def _is_claim_of(claim: VolumeClaim, space: TeamSpace, dataset: str) -> bool:
    """Whether a claim is the one that we made for a dataset: not one that may hold data."""
    found = (claim.component, claim.volume, claim.name, claim.volume_name, claim.storage_class)
    return claim.is_of(space) and found == (
        names.COMPONENT_DATASET,
        dataset,
        names.dataset_claim(dataset),
        names.dataset_volume(space.namespace, dataset),
        "",
    )


def _is_volume_in(volume: Object, namespace: str) -> bool:
    """Whether a volume is one that we made for a dataset in that namespace."""
    claim = volume["spec"].get("claimRef") or {}
    found = (volume["metadata"]["name"], claim.get("namespace"), claim.get("name"))
    dataset = _dataset_of(volume)
    return found == (
        names.dataset_volume(namespace, dataset),
        namespace,
        names.dataset_claim(dataset),
    )


def _dataset_of(volume: Object) -> str:
    return annotation(volume, names.ANNOTATION_VOLUME)
