"""A person's home in a team: made at the first start, compared at every one, never deleted."""

from spectrum_spawner import kube
from spectrum_spawner.kube import Client, KubeError, NotFound, Object, Refused
from spectrum_spawner.owner import Owner
from spectrum_spawner.patience import Patience
from spectrum_spawner.refusals import Refusal, refusal_of


async def ensure_home(client: Client, manifest: Object, *, namespace: str) -> None:
    """Make the claim if it is absent. Raises Refusal, also if it belongs to somebody else."""
    path = kube.collection("v1", "persistentvolumeclaims", namespace=namespace)
    owner = Owner.of(manifest)
    try:
        claim = await _create_if_absent(client, path, manifest)
    except (Refused, NotFound) as error:
        raise refusal_of(error, team=owner.team, what="your home volume") from error
    if Owner.of(claim) != owner:
        raise Refusal(
            f"A volume named {claim['metadata']['name']} that belongs to somebody else is in the "
            "way: ask a cluster administrator.",
            reason="foreign-claim",
            status_code=409,
            log_message=f"{namespace}: owner is {Owner.of(claim)}",
        )
    if "deletionTimestamp" in claim["metadata"]:
        raise Refusal(
            "Your home volume is being deleted: ask a cluster administrator.",
            reason="claim-deleted",
            status_code=409,
        )


async def _create_if_absent(client: Client, path: str, manifest: Object) -> Object:
    patience = Patience()
    while True:
        try:
            claim, _ = await client.create_if_absent(path, manifest)
            return claim
        except KubeError as error:
            await patience.wait(error)
