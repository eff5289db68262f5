"""Data that somebody wants deleted: one claim at a time, by its own name, and written down.

Nothing else deletes a claim with people's data in it: neither the end of a server, a person or a
team, nor another size or class.
"""

import logging

from spectrum_spawner import names
from spectrum_spawner.controller.changes import find_annotator
from spectrum_spawner.controller.cluster import CLAIMS, Cluster
from spectrum_spawner.controller.growth import name_some
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.mounts import find_mounts
from spectrum_spawner.controller.status import Finding
from spectrum_spawner.controller.volumes import VolumeClaim, trim_claim
from spectrum_spawner.kube import Client, Conflict, NotFound, Refused, item

PURGEABLE = frozenset({names.COMPONENT_HOME, names.COMPONENT_SHARE, names.COMPONENT_SCRATCH})
LONGEST_SHOWN = 60  # characters of a wrong value

_log = logging.getLogger("spectrum.controller")


class Purges:
    """Deletes claims that ask for it: their `spectrum.dev/purge` must be their own name."""

    def __init__(
        self, client: Client, cluster: Cluster, journal: Journal, hub_namespace: str
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._journal = journal
        self._hub_namespace = hub_namespace
        self._said: set[tuple[str, str]] = set()  # claims' uids, and what they asked for in vain

    async def purge(self, team: str) -> list[Finding]:
        """Look after the claims of a team, whether or not the Team still exists."""
        findings = []
        for namespace in self._cluster.namespaces_of(team):
            for claim in self._cluster.claims_in(namespace["metadata"]["name"]):
                owner = (claim.hub, claim.team)
                if claim.purge and not claim.deleting and owner == (self._hub_namespace, team):
                    findings += await self._purge(claim)
        return findings

    async def _purge(self, claim: VolumeClaim) -> list[Finding]:
        if why := explain_refusal(claim):
            await self._refuse(claim, why)
            return [Finding(reason="PurgeRefused", message=why)]
        try:
            mounts = await find_mounts(self._client, claim.namespace)
            if pods := mounts.get(claim.name):
                sentence = f"{claim.name} is deleted once it is not mounted by {name_some(pods)}."
                return [Finding(reason="Purging", message=sentence, is_problem=False, again=True)]
            await self._delete(claim)
        except (NotFound, Conflict):
            return []  # gone meanwhile, or another one by now, which is looked at next
        except Refused as error:
            sentence = f"{claim.name} is not deleted: {error.message}."
            return [Finding(reason="PurgeRefused", message=sentence, again=True)]
        return []

    async def _delete(self, claim: VolumeClaim) -> None:
        """Delete it if it still asks for that; written down first, by whoever asked."""
        path = item(*CLAIMS, claim.name, namespace=claim.namespace)
        live = await self._client.get(path)
        now = trim_claim(live)
        if (now.uid, now.purge, now.hub, now.team) != (
            claim.uid,
            claim.purge,
            claim.hub,
            claim.team,
        ):
            return
        self._journal.on_purge(now, manager=find_annotator(live, names.ANNOTATION_PURGE))
        _log.warning("purging claim %s as annotated", claim.key)
        await self._client.delete(path, uid=claim.uid)

    async def _refuse(self, claim: VolumeClaim, why: str) -> None:
        """Write down, once, that a claim was not deleted."""
        if (claim.uid, claim.purge) in self._said:
            return
        try:
            live = await self._client.get(item(*CLAIMS, claim.name, namespace=claim.namespace))
        except NotFound:
            return
        manager = find_annotator(live, names.ANNOTATION_PURGE)
        self._journal.on_refused_purge(claim, why, manager=manager)
        _log.warning("%s: %s", claim.namespace, why)
        self._said.add((claim.uid, claim.purge))


def explain_refusal(claim: VolumeClaim) -> str:
    """Why a claim is not deleted although somebody seems to ask for it; "" if nothing is wrong."""
    if claim.component not in PURGEABLE:
        return f"{claim.name} is not deleted: it holds no data of the team's own."
    if claim.purge != claim.name:
        shown = claim.purge[:LONGEST_SHOWN]
        return (
            f"{claim.name} is not deleted: its annotation {names.ANNOTATION_PURGE} is {shown!r}, "
            "and must be the claim's own name."
        )
    return ""
