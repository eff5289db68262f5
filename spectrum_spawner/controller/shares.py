"""The share of each team: one claim, made when it is missing, and never deleted here."""

from dataclasses import replace

from spectrum_spawner import names
from spectrum_spawner.controller.adoption import create_or_adopt
from spectrum_spawner.controller.cluster import CLAIMS, Cluster
from spectrum_spawner.controller.objects import TeamSpace
from spectrum_spawner.controller.ownership import Taken
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.storage_settings import VolumeSettings
from spectrum_spawner.controller.volumes import (
    VolumeClaim,
    find_class,
    make_share_claim,
    trim_claim,
)
from spectrum_spawner.kube import Client, Refused, collection, item


class NoShare(Exception):  # noqa: N818 - says what happened
    """There is no share to be mounted for now; `finding` says why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Shares:
    """Finds a team's share by its owner marks, under whatever name, or makes it."""

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster

    async def ensure(
        self, space: TeamSpace, wanted: VolumeSettings, *, prepared_at: str
    ) -> VolumeClaim:
        """The claim that servers are to mount; raises NoShare where that would keep them waiting.

        `prepared_at` is when a pod was made that has prepared the share, "" if none has. A pod
        that is older than the claim has prepared another one.
        """
        claim = self._find(space) or await self._make(space, wanted)
        if claim.deleting:
            sentence = f"{claim.name} is being deleted; it is made anew once it is gone."
            raise NoShare(Finding(reason="Pending", message=sentence))
        if claim.phase != "Bound" and not self._waits_for_mount(claim):
            raise NoShare(_say_unbound(claim))
        if claim.prepared or not prepared_at or prepared_at < claim.created:
            return claim
        await self._client.patch(
            item(*CLAIMS, claim.name, namespace=claim.namespace),
            {
                "metadata": {
                    "uid": claim.uid,
                    "annotations": {names.ANNOTATION_PREPARED: "true"},
                }
            },
        )
        return replace(claim, prepared=True)

    def judge(self, claim: VolumeClaim) -> Finding | None:
        """What there is to say of a claim that servers mount."""
        if claim.phase == "Bound":
            return None
        sentence = f"{claim.name} gets its volume when the first server mounts it."
        return Finding(reason="Waiting", message=sentence, is_problem=False)

    def _waits_for_mount(self, claim: VolumeClaim) -> bool:
        """Whether it gets its volume from the first server that mounts it."""
        found = find_class(self._cluster.classes, claim.storage_class)
        return claim.phase == "Pending" and found is not None and found.waits

    def _find(self, space: TeamSpace) -> VolumeClaim | None:
        ours = [
            claim
            for claim in self._cluster.claims_in(space.namespace)
            if claim.component == names.COMPONENT_SHARE and claim.is_of(space)
        ]
        return min(ours, key=_preference, default=None)

    async def _make(self, space: TeamSpace, wanted: VolumeSettings) -> VolumeClaim:
        if find_class(self._cluster.classes, wanted.storage_class) is None:
            # a claim is bound to its class for ever, so none is made for one that may be a typo
            raise NoShare(missing_class(wanted.storage_class, names.SHARE_CLAIM))
        path = collection(*CLAIMS, namespace=space.namespace)
        try:
            return trim_claim(
                await create_or_adopt(self._client, path, make_share_claim(space, wanted))
            )
        except Taken as error:
            sentence = (
                f"A claim {error} is there that says it belongs to somebody else or to nobody, so "
                "it is neither used nor touched; remove it, or give it another name."
            )
            raise NoShare(Finding(reason="Taken", message=sentence, again=True)) from error
        except Refused as error:
            raise NoShare(refusal(error, f"{names.SHARE_CLAIM} is not made")) from error


def missing_class(storage_class: str, what: str) -> Finding:
    """What is said where `what` waits for a StorageClass."""
    if storage_class:
        sentence = f"There is no StorageClass {storage_class}, which {what} asks for."
    else:
        sentence = f"There is no default StorageClass, and {what} names none."
    return Finding(reason="ClassMissing", message=sentence)


def refusal(error: Refused, what: str) -> Finding:
    """What is said of something that the API server refused, in its own words."""
    is_quota = error.status == 403 and "exceeded quota" in error.message
    reason = "QuotaExceeded" if is_quota else "Refused"
    return Finding(reason=reason, message=f"{what}: {error.message}.", again=not is_quota)


def _say_unbound(claim: VolumeClaim) -> Finding:
    if claim.phase == "Lost":
        return Finding(reason="Lost", message=f"{claim.name} has lost the volume behind.")
    sentence = (
        f"{claim.name} has no volume yet; why, `kubectl --namespace {claim.namespace} "
        f"describe persistentvolumeclaim {claim.name}` may tell."
    )
    return Finding(reason="Pending", message=sentence)


def _preference(claim: VolumeClaim) -> tuple[bool, bool, str, str]:
    return claim.deleting, claim.name != names.SHARE_CLAIM, claim.created, claim.name
