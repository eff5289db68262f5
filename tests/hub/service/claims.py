"""Claims as starts and the controller make them, with a state that no provisioner gives them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.owner import Owner
from spectrum_spawner.storage import make_home_claim, make_scratch_claim
from tests.hub.cluster import Cluster
from tests.hub.team import Team

CLASS = "rook-cephfs"


@dataclass(frozen=True)
class Claims:
    """Makes claims in the namespaces of a hub's teams, and takes all away again."""

    cluster: Cluster
    hub_namespace: str
    teams: Iterable[Team]

    async def add_home(self, team: Team, user: str, **status: Any) -> None:
        owner = Owner(hub=self.hub_namespace, team=team.name, user=user)
        claim = make_home_claim(owner, team_uid="uid", size="1Gi", storage_class=CLASS)
        await self.add(team, claim, **status)

    async def add_scratch(self, team: Team, user: str, volume: str, **status: Any) -> None:
        owner = Owner(hub=self.hub_namespace, team=team.name, user=user)
        claim = make_scratch_claim(owner, volume, team_uid="uid", size="1Gi", storage_class="rbd")
        await self.add(team, claim, **status)

    async def add_common(self, team: Team, name: str, component: str, **status: Any) -> None:
        """A claim that a team has in common: its share or a dataset."""
        labels = {names.LABEL_MANAGED_BY: names.MANAGED_BY, names.LABEL_COMPONENT: component}
        marks = {names.ANNOTATION_HUB: self.hub_namespace, names.ANNOTATION_TEAM: team.name}
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": CLASS,
        }
        metadata = {"name": name, "labels": labels, "annotations": marks}
        await self.add(team, {"metadata": metadata, "spec": spec}, **status)

    async def add(self, team: Team, claim: dict[str, Any], **status: Any) -> None:
        """The claim, bound to all that it asks for unless told otherwise."""
        path = find_claims(team)
        await self.cluster.create(path, claim)
        size = claim["spec"]["resources"]["requests"]
        bound = {"phase": "Bound", "capacity": size, **status}
        path = f"{path}/{claim['metadata']['name']}/status"
        await self.cluster.patch(path, {"status": bound})

    async def tidy(self) -> None:
        """Nobody else is there who would take the finalizer of claims off."""
        for path in map(find_claims, self.teams):
            for claim in await self.cluster.list(path):
                name = claim["metadata"]["name"]
                await self.cluster.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
                await self.cluster.delete(f"{path}/{name}")


def find_claims(team: Team) -> str:
    """Path of the claims of a team's namespace."""
    return f"/api/v1/namespaces/{team.namespace}/persistentvolumeclaims"
