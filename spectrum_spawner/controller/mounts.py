"""Which pods stand in the way of a claim's end. Asked, not watched: only deletions want to know."""

from collections import defaultdict
from collections.abc import Mapping

from spectrum_spawner import pods
from spectrum_spawner.kube import Client, collection


async def find_mounts(client: Client, namespace: str) -> Mapping[str, list[str]]:
    """Names of the pods that mount a claim or are about to, by the claim's name, as of now."""
    mounts: defaultdict[str, list[str]] = defaultdict(list)
    for obj in (await client.list(collection("v1", "pods", namespace=namespace)))["items"]:
        pod = pods.trim(obj)
        if pod.holds_quota:
            for claim in pod.claims:
                mounts[claim].append(pod.name)
    return mounts
