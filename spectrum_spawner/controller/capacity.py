"""How many GPUs the cluster has, how many are free, which teams' servers run, and what they did.

Pure: trimmed nodes and pods in.

Every pod on the cluster counts, whoever made it: what a node's kubelet and the scheduler count is
what the next pod will meet.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names, pods
from spectrum_spawner.inventory import GPUs, Inventory
from spectrum_spawner.quantities import quantity

# Pods that hold what they asked for: bound to a node and not at their end.
HOLDING_PODS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


@dataclass(frozen=True, kw_only=True)
class Node:
    """What is kept of a node. `usable`: ready and not cordoned."""

    name: str
    product: str
    usable: bool
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Holder:
    """What is kept of a pod: which node it is on and what it holds there.

    `team` is the team whose server it runs, "" if it is none of this hub's servers. `prepared` is
    the team in whose share it has made the team's directory, and when the pod was made.
    """

    namespace: str
    node: str
    held: Mapping[str, int] = field(default_factory=dict)
    team: str = ""
    prepared: tuple[str, str] | None = None


NO_HOLDER = Holder(namespace="", node="")  # shared by all pods that hold nothing and run no server


def make_node_trim(accelerators: Iterable[str]) -> Callable[[Mapping[str, Any]], Node]:
    """A function that keeps of a Node object what `count` needs."""
    wanted = frozenset(accelerators)

    def trim(node: Mapping[str, Any]) -> Node:
        metadata, status = node["metadata"], node.get("status") or {}
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
        return Node(
            name=metadata["name"],
            product=(metadata.get("labels") or {}).get(names.GPU_PRODUCT_LABEL, ""),
            usable=conditions.get("Ready") == "True"
            and not (node.get("spec") or {}).get("unschedulable", False),
            capacity=_pick(status.get("capacity"), wanted),
            allocatable=_pick(status.get("allocatable"), wanted),
        )

    return trim


def make_pod_trim(
    accelerators: Iterable[str], hub_namespace: str
) -> Callable[[Mapping[str, Any]], Holder]:
    """A function that keeps of a Pod object what the counts here and `find_prepared` need."""
    wanted = frozenset(accelerators)

    def trim(pod: Mapping[str, Any]) -> Holder:
        held, team = requested(pod["spec"], wanted), _team_of(pod, hub_namespace)
        is_running = (pod.get("status") or {}).get("phase") == "Running"
        prepared = _preparation(pod, team) if team else None
        if not held and not prepared and not (team and is_running):
            return NO_HOLDER
        return Holder(
            namespace=pod["metadata"]["namespace"],
            node=pod["spec"].get("nodeName", ""),
            held=held,
            team=team if is_running else "",
            prepared=prepared,
        )

    return trim


def requested(spec: Mapping[str, Any], accelerators: Iterable[str]) -> dict[str, int]:
    """Accelerators that a pod needs at a time, as the scheduler counts.

    Init containers run one after the other, each beside the sidecars that began before it; the
    containers run together, beside all sidecars.
    """
    wanted = frozenset(accelerators)
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or []:
        own = Counter(_of_container(container, wanted))
        most |= sidecars + own
        if container.get("restartPolicy") == "Always":
            sidecars += own
    together = sum((Counter(_of_container(c, wanted)) for c in spec["containers"]), sidecars)
    return dict(most | together)


def count(
    nodes: Iterable[Node], holders: Iterable[Holder], team_of: Mapping[str, str]
) -> Inventory:
    """The inventory. `team_of` gives the team of each team namespace of this hub.

    `total` is what nodes register (capacity), so that a node or device plugin that restarts does
    not make a request look as if it could never fit; `free` is what may be allocated on usable
    nodes and is not held.
    """
    held_on: dict[str, Counter[str]] = {}
    teams: dict[str, Counter[str]] = {}
    for holder in holders:
        held_on.setdefault(holder.node, Counter()).update(holder.held)
        if holder.namespace in team_of and holder.held:
            teams.setdefault(team_of[holder.namespace], Counter()).update(holder.held)
    total: Counter[tuple[str, str]] = Counter()
    free: Counter[tuple[str, str]] = Counter()
    for node in nodes:
        held = held_on.get(node.name, Counter())
        for resource, number in node.capacity.items():
            total[resource, node.product] += number
            if node.usable:
                left = node.allocatable.get(resource, 0) - held[resource]
                free[resource, node.product] += max(0, left)
    gpus = (
        GPUs(resource=resource, product=product, total=number, free=free[resource, product])
        for (resource, product), number in total.items()
    )
    by_name = {team: dict(sorted(held.items())) for team, held in sorted(teams.items())}
    return Inventory(gpus=tuple(sorted(gpus)), teams=by_name)


def count_servers(holders: Iterable[Holder], team_of: Mapping[str, str]) -> Counter[str]:
    """Servers that run in each team namespace; a pod that names another team is none."""
    return Counter(
        holder.namespace
        for holder in holders
        if holder.team and team_of.get(holder.namespace) == holder.team
    )


def find_prepared(holders: Iterable[Holder], team_of: Mapping[str, str]) -> dict[str, str]:
    """When the youngest pod was made that has prepared the share, by team namespace."""
    found: dict[str, str] = {}
    for holder in holders:
        if holder.prepared and holder.prepared[0] == team_of.get(holder.namespace):
            created = holder.prepared[1]
            found[holder.namespace] = max(created, found.get(holder.namespace, ""))
    return found


def _team_of(pod: Mapping[str, Any], hub_namespace: str) -> str:
    """The team whose server a pod is, by its owner marks; a label alone makes no server."""
    metadata = pod["metadata"]
    component = (metadata.get("labels") or {}).get(names.LABEL_COMPONENT)
    marks = metadata.get("annotations") or {}
    is_ours = marks.get(names.ANNOTATION_HUB) == hub_namespace
    if component != names.COMPONENT_SERVER or not is_ours:
        return ""
    return marks.get(names.ANNOTATION_TEAM, "")


def _preparation(pod: Mapping[str, Any], team: str) -> tuple[str, str] | None:
    record = pods.trim(pod)
    return (team, record.created) if record.share_prepared else None


def _of_container(container: Mapping[str, Any], wanted: frozenset[str]) -> dict[str, int]:
    resources = container.get("resources") or {}
    return _pick({**(resources.get("limits") or {}), **(resources.get("requests") or {})}, wanted)


def _pick(resources: Mapping[str, Any] | None, wanted: frozenset[str]) -> dict[str, int]:
    picked = {
        name: int(quantity(value)) for name, value in (resources or {}).items() if name in wanted
    }
    return {name: value for name, value in picked.items() if value > 0}
