"""The objects in a team's namespace: made, mended, and told apart from what others did to them."""

import logging
from collections.abc import Iterable

from spectrum_spawner import names
from spectrum_spawner.controller.cluster import Cluster, collection_of, path_of
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.kube import AlreadyExists, Client, Object

_log = logging.getLogger("spectrum.controller")


class Children:
    """Makes and mends objects of team namespaces.

    It remembers how each object was to be when it was right last: one that has to be written
    although nothing else is wanted than before, or nobody knows what was, may have been altered
    or deleted by somebody else.
    """

    def __init__(self, client: Client, cluster: Cluster) -> None:
        self._client = client
        self._cluster = cluster
        self._right: dict[tuple[str, str, str], Object] = {}

    async def ensure(self, wanted: Iterable[Object]) -> list[str]:
        """Make or mend objects in this order; returns those that others may have altered.

        The namespace is ours, so is what carries our fixed names in it.
        """
        altered = []
        for child in wanted:
            written = await self._ensure_one(child)
            altered += self.note(child, written=written)
        return altered

    def note(self, wanted: Object, *, written: bool) -> list[str]:
        """Remember an object that is right now; its name if others may have altered it."""
        kind, metadata = wanted["kind"], wanted["metadata"]
        key = kind, metadata.get("namespace", ""), metadata["name"]
        before, self._right[key] = self._right.get(key), wanted
        return [f"{kind} {metadata['name']}"] if written and before in (None, wanted) else []

    async def drop_policies(self, namespace: str) -> None:
        """Delete our network policies, which are not wanted any more."""
        for name in (names.POLICY_ALLOW, names.POLICY_DENY):
            live = self._cluster.find("NetworkPolicy", name, namespace=namespace)
            if live is not None:
                policy = {"kind": "NetworkPolicy", "metadata": live["metadata"]}
                await self._client.delete(path_of(policy), uid=live["metadata"]["uid"])

    async def _ensure_one(self, wanted: Object) -> bool:
        """Whether anything had to be written."""
        kind, metadata = wanted["kind"], wanted["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        live = self._cluster.find(kind, name, namespace=namespace)
        if live is None:
            try:
                await self._client.create(collection_of(wanted), wanted)
            except AlreadyExists:
                # it lost our label, or was made a moment ago
                live = await self._client.get(path_of(wanted))
            else:
                _log.info("%s %s/%s made", kind, namespace, name)
                return True
        if mending_patch(live, wanted):
            # the view may not have our own last write yet
            live = await self._client.get(path_of(wanted))
        patch = mending_patch(live, wanted)
        if "roleRef" in patch:
            # nothing but a new binding can have another role
            _log.warning("%s %s/%s names another role: made anew", kind, namespace, name)
            await self._client.delete(path_of(wanted), uid=live["metadata"]["uid"])
            await self._client.create(collection_of(wanted), wanted)
        elif patch:
            _log.info("%s %s/%s mended: %s", kind, namespace, name, patch)
            await self._client.patch(path_of(wanted), patch)
        return bool(patch)
