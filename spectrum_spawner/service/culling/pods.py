"""Which servers run, as the API server shows: a view of pods for each team's namespace.

A namespace whose view is not complete or not of now is `unknown`, and so is what runs there.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress

from spectrum_spawner import kube, names, pods
from spectrum_spawner.activity import Run
from spectrum_spawner.pods import Pod
from spectrum_spawner.service.culling.rules import Subject
from spectrum_spawner.service.moments import read_moment
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

FIRST_LIST = 5.0  # seconds that a look waits for views that are new


class Pods:
    """The servers of one hub, followed by `client`; ended by `close`."""

    def __init__(self, client: kube.Client, hub_namespace: str) -> None:
        self._client = client
        self._hub_namespace = hub_namespace
        self._views: dict[str, View[Pod]] = {}

    async def follow(self, namespaces: Iterable[str]) -> None:
        """Watch these namespaces, and no others any more."""
        wanted = set(namespaces)
        for namespace in self._views.keys() - wanted:
            await self._views.pop(namespace).close()
        new = [self._open(namespace) for namespace in wanted - self._views.keys()]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST):
                await asyncio.gather(*(view.wait_synced() for view in new))

    @property
    def unknown(self) -> frozenset[str]:
        """Namespaces of which nobody knows now what runs there."""
        return frozenset(
            namespace
            for namespace, view in self._views.items()
            if not view.synced or view.stale_since is not None
        )

    def find(self, subject: Subject) -> Pod | None:
        """The pod of a server, as long as it is that very one and runs."""
        view = self._views.get(subject.namespace)
        pod = view.get(subject.pod) if view else None
        return pod if pod and pod.uid == subject.run.pod_uid and _runs(pod) else None

    def list_subjects(self, teams: Mapping[str, Team]) -> list[Subject]:
        """Every server that is known to run, in teams by name."""
        by_namespace = {team.namespace: team for team in teams.values() if team.namespace}
        return [
            _make_subject(pod, by_namespace[namespace], namespace)
            for namespace in self._views.keys() & by_namespace.keys() - self.unknown
            for pod in self._views[namespace]
            if _runs(pod) and self._is_of(pod, by_namespace[namespace])
        ]

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


def _runs(pod: Pod) -> bool:
    """Whether its server has begun, and is not about to end."""
    return bool(pod.started) and not pod.deleting and not pod.ended


def _make_subject(pod: Pod, team: Team, namespace: str) -> Subject:
    return Subject(
        user=pod.owner.user,
        server=pod.owner.server or "",
        team=team.name,
        profile=pod.profile,
        namespace=namespace,
        pod=pod.name,
        run=Run(pod_uid=pod.uid, started=read_moment(pod.started), gpus=sum(pod.gpus.values())),
        idle_minutes=team.idle_minutes,
    )
