"""Claims that a person's servers in a team may mount: their own, and what the team has in common.

A namespace holds the claims of everybody in the team, so they are never listed whole.
"""

import asyncio

from spectrum_spawner import kube, names
from spectrum_spawner.kube import Client, Object
from spectrum_spawner.owner import Owner

_COMMON = (
    f"{names.LABEL_MANAGED_BY}={names.MANAGED_BY},"
    f"{names.LABEL_COMPONENT} in ({names.COMPONENT_DATASET},{names.COMPONENT_SHARE})"
)


async def list_holdings(client: Client, owner: Owner, *, namespace: str) -> list[Object]:
    """Those claims, by two small requests; raises a KubeError.

    They were found by labels, which prove nothing.
    """
    path = kube.collection("v1", "persistentvolumeclaims", namespace=namespace)
    answers = await asyncio.gather(
        *(client.list(path, {"labelSelector": each}) for each in (select_own(owner), _COMMON))
    )
    return [claim for answer in answers for claim in answer["items"]]


def select_own(owner: Owner) -> str:
    """The label selector of a person's own claims: by subject where they have one."""
    key = names.LABEL_SUBJECT if owner.subject else names.LABEL_USER
    kinds = f"{names.COMPONENT_HOME},{names.COMPONENT_SCRATCH}"
    return f"{names.LABEL_COMPONENT} in ({kinds}),{key}={owner.labels[key]}"
