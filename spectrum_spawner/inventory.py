"""GPU inventory record: what the controller publishes and the hub reads, as one small JSON text.

"Not published yet" is a value of its own, `Inventory.UNKNOWN`, whose numbers are `None`: nobody
must be told that no GPU exists because nobody has counted.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, kw_only=True, order=True)
class GPUs:
    """All GPUs of one resource name and product on the cluster.

    `product` is the nodes' `nvidia.com/gpu.product` label, "" where nodes carry none. `total`
    counts every node that is registered; `free` only what a new pod could get now, on nodes
    that are ready and not cordoned, whoever holds the others.
    """

    resource: str
    product: str
    total: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """GPUs of the cluster, and those that each team holds: `teams[name][resource]`."""

    UNKNOWN: ClassVar["Inventory"]

    gpus: tuple[GPUs, ...] = ()
    teams: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    known: bool = True

    @classmethod
    def from_json(cls, text: str) -> "Inventory":
        """Read what `to_json` wrote; raises ValueError if it is anything else."""
        try:
            record = json.loads(text)
            gpus = (_read_gpus(entry) for entry in record["gpus"])
            teams = {
                str(team): {str(resource): int(count) for resource, count in held.items()}
                for team, held in record["teams"].items()
            }
            return cls(gpus=tuple(sorted(gpus)), teams=teams)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an inventory: {error!r}") from error

    def to_json(self) -> str:
        """The same text for the same numbers, so that texts may be compared."""
        if not self.known:
            raise ValueError("an unknown inventory cannot be published")
        gpus = [
            {"resource": g.resource, "product": g.product, "total": g.total, "free": g.free}
            for g in sorted(self.gpus)
        ]
        return json.dumps({"gpus": gpus, "teams": self.teams}, sort_keys=True)

    def total(self, resource: str, product: str = "") -> int | None:
        """GPUs on the cluster, of one product or ("") of any; `None` if nobody has counted."""
        return sum(g.total for g in self._of(resource, product)) if self.known else None

    def free(self, resource: str, product: str = "") -> int | None:
        """GPUs that a new pod could get now; `None` if nobody has counted."""
        return sum(g.free for g in self._of(resource, product)) if self.known else None

    def held_by(self, team: str, resource: str) -> int | None:
        """GPUs that a team's pods hold on nodes now; `None` if nobody has counted."""
        return self.teams.get(team, {}).get(resource, 0) if self.known else None

    def _of(self, resource: str, product: str) -> list[GPUs]:
        return [g for g in self.gpus if g.resource == resource and product in ("", g.product)]


Inventory.UNKNOWN = Inventory(known=False)


def _read_gpus(entry: Mapping[str, str | int]) -> GPUs:
    return GPUs(
        resource=str(entry["resource"]),
        product=str(entry["product"]),
        total=int(entry["total"]),
        free=int(entry["free"]),
    )
