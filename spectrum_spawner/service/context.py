"""What everything that the service does has at hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from jupyterhub.services.auth import HubOAuth

from spectrum_spawner import names
from spectrum_spawner.audit import Record, make_record
from spectrum_spawner.kube import Client, collection, item
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.moments import stamp
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.recent import Recent
from spectrum_spawner.service.reporters import Reporters
from spectrum_spawner.service.rights import Viewer, may_see_team
from spectrum_spawner.service.settings import NAME, Settings
from spectrum_spawner.service.snapshot import Snapshot
from spectrum_spawner.service.team_sheet import TeamSheet
from spectrum_spawner.watch import View

API = f"{names.API_GROUP}/{names.API_VERSION}"


@dataclass(frozen=True, kw_only=True)
class Context:
    """One running service.

    `sign_in` says who is behind a cookie or token, `now` the time of all that is written down.
    Who holds `asking` asks for something; each request is counted before the next one is.
    `reporters` are the servers that report, `figures` what they told and nobody wrote down yet.
    """

    settings: Settings
    ledger: Ledger
    hub: Hub
    sign_in: HubOAuth
    snapshot: Snapshot
    client: Client
    teams: View[TeamSheet]
    now: Callable[[], datetime]
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    reporters: Reporters = field(default_factory=Reporters)
    figures: Recent = field(default_factory=Recent)

    @staticmethod
    def find_teams_path(hub_namespace: str) -> str:
        return collection(API, names.TEAM_PLURAL, namespace=hub_namespace)

    def team_path(self, name: str) -> str:
        return item(API, names.TEAM_PLURAL, name, namespace=self.settings.hub_namespace)

    @property
    def sheets(self) -> dict[str, TeamSheet]:
        """Every team by name; Problem while nobody knows them."""
        if not self.teams.synced:
            raise Problem(
                "The Kubernetes API has not told yet which teams there are: try again in a minute.",
                status=503,
            )
        return dict(self.teams.items())

    def find_team(self, viewer: Viewer, name: str) -> TeamSheet:
        """A team that somebody may see; that it exists is not told to others."""
        sheet = self.sheets.get(name)
        if sheet is None or not may_see_team(viewer, name):
            raise Problem(
                f"There is no team {quoted(name)} that you are in: look at your teams.", status=404
            )
        return sheet

    def make_record(self, action: str, actor: str, **rest: Any) -> Record:
        """A record of now that the service writes."""
        record = make_record(writer="service", action=action, actor=actor, **rest)
        return replace(record, at=stamp(self.now()))

    def title_of(self, team: str) -> str:
        """What people call a team; its name while it is not known."""
        sheet = self.teams.get(team)
        return sheet.team.display_name if sheet else team


SERVICE = f"service:{NAME}"  # how records call the service where it acts by itself
