"""Which servers run, as the API server shows: a view of pods for each team's namespace.

A namespace whose view is not complete or not of now is `unknown`, and so is what runs there. The
same holds where a team cannot be read: its servers run on, and nobody knows by which rules.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress

from spectrum_spawner import kube, names, pods
from spectrum_spawner.activity import Run
from spectrum_spawner.pods import Pod
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

FIRST_LIST = 5.0  # seconds that a look waits for views that are new
# how resources begin that are GPUs; network cards are nvidia.com/hostdev
GPUS = ("nvidia.com/gpu", "nvidia.com/mig-", "amd.com/gpu", "gpu.intel.com/")
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Pods:
    """The servers of one hub, followed by `client`; ended by `close`.

    Extended resources count as GPUs if a vendor of GPUs or one of `gpu_resources` names them.
    """

    def __init__(
        self, client: kube.Client, hub_namespace: str, gpu_resources: Collection[str] = ()
    ) -> None:
        self._client = client
        self._hub_namespace = hub_namespace
        self._gpu_resources = frozenset(gpu_resources)
        self._views: dict[str, View[Pod]] = {}
        self._teams: dict[str, Team] = {}  # by namespace, those that can be read
        self._namespaces: dict[str, str] = {}  # by team, as last known

    async def follow(self, teams: Mapping[str, Team | None]) -> None:
        """Watch the servers of all teams that exist, by name, and of no others any more.

        None is a team that cannot be read now: what ran in its namespace stays followed.
        """
        self._teams = {
            team.namespace: team for team in teams.values() if team is not None and team.namespace
        }
        found = {team.name: namespace for namespace, team in self._teams.items()}
        self._namespaces = {
            name: namespace
            for name in teams
            if (namespace := found.get(name) or self._namespaces.get(name))
        }
        wanted = set(self._namespaces.values())
        for namespace in self._views.keys() - wanted:
            await self._views.pop(namespace).close()
        new = [self._open(namespace) for namespace in wanted - self._views.keys()]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST):
                await asyncio.gather(*(view.wait_synced() for view in new))

    @property
    def unknown(self) -> frozenset[str]:
        """Namespaces of which nobody knows now what runs there, or by which rules."""
        return frozenset(
            namespace
            for namespace, view in self._views.items()
            if not view.synced or view.stale_since is not None or namespace not in self._teams
        )

    def find(self, subject: Subject) -> Pod | None:
        """The pod of a server, as long as it is that very one and runs."""
        view = self._views.get(subject.namespace)
        pod = view.get(subject.pod) if view else None
        return pod if pod and pod.uid == subject.run.pod_uid and _runs(pod) else None

    def list_subjects(self) -> tuple[list[Subject], list[str]]:
        """Every server that is known to run, and what of those cannot be read, in words."""
        found: list[Subject] = []
        unreadable = []
        for namespace in self._views.keys() - self.unknown:
            team = self._teams[namespace]
            for pod in self._views[namespace]:
                try:
                    if _runs(pod) and self._is_of(pod, team):
                        found.append(self._make_subject(pod, team, namespace))
                except _UNREADABLE as error:
                    unreadable.append(f"{namespace}/{pod.name}: {error!r}")
        return found, unreadable

    async def close(self) -> None:
        for view in self._views.values():
            await view.close()

    def _open(self, namespace: str) -> View[Pod]:
        view = self._views[namespace] = View(
            self._client,
            kube.collection("v1", "pods", namespace=namespace),
            trim=pods.trim,
            label_selector=(
                f"{names.LABEL_HUB}={self._hub_namespace},"
                f"{names.LABEL_COMPONENT}={names.COMPONENT_SERVER}"
            ),
        )
        view.start()
        return view

    def _is_of(self, pod: Pod, team: Team) -> bool:
        return (pod.owner.hub, pod.owner.team) == (self._hub_namespace, team.name)

    def _make_subject(self, pod: Pod, team: Team, namespace: str) -> Subject:
        return Subject(
            user=pod.owner.user,
            server=pod.owner.server or "",
            team=team.name,
            profile=pod.profile,
            namespace=namespace,
            pod=pod.name,
            run=Run(
                pod_uid=pod.uid,
                started=read_moment(pod.started),
                gpus=count_gpus(pod, self._gpu_resources),
            ),
            idle_minutes=team.idle_minutes,
        )


def count_gpus(pod: Pod, resources: Collection[str]) -> int:
    """How many GPUs a pod has, by the `resources` that profiles name and those of vendors of GPUs:
    other extended resources, such as network cards, are measured by nobody."""
    held = pod.gpus.items()
    return sum(count for name, count in held if name in resources or name.startswith(GPUS))


def _runs(pod: Pod) -> bool:
    """Whether its server has begun, and is not about to end."""
    return bool(pod.started) and not pod.deleting and not pod.ended
