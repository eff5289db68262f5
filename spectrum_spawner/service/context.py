"""What everything that the service does has at hand."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jupyterhub.services.auth import HubOAuth

from spectrum_spawner import names
from spectrum_spawner.audit import Record
from spectrum_spawner.kube import Client, collection, item
from spectrum_spawner.service.appeals import Appeal
from spectrum_spawner.service.background import Background
from spectrum_spawner.service.culler import Culler
from spectrum_spawner.service.culling.report import Told
from spectrum_spawner.service.culling.sweep import Key
from spectrum_spawner.service.documents import OpenDocuments
from spectrum_spawner.service.gpu_table import GpuTable
from spectrum_spawner.service.hours import Budget
from spectrum_spawner.service.hub import Hub
from spectrum_spawner.service.ledger import Ledger
from spectrum_spawner.service.metering import Meter
from spectrum_spawner.service.problem import Problem, quoted
from spectrum_spawner.service.recent import Recent
from spectrum_spawner.service.records import make_record
from spectrum_spawner.service.reporters import Reporters
from spectrum_spawner.service.rights import Viewer, may_see_team
from spectrum_spawner.service.settings import Settings
from spectrum_spawner.service.snapshot import Snapshot
from spectrum_spawner.service.stock import Stock
from spectrum_spawner.service.team_sheet import TeamSheet
from spectrum_spawner.service.telemetry import Telemetry
from spectrum_spawner.watch import View

API = f"{names.API_GROUP}/{names.API_VERSION}"


@dataclass(frozen=True, kw_only=True)
class Context:
    """One running service.

    `sign_in` says who is behind a cookie or token, `now` the time of all that is written down.
    Who holds `asking` asks for something; each request is counted before the next one is. Who
    holds `trying` tries a policy, one at a time. `told` is what each server last told of what
    works in it. `reporters` are the servers that report, `figures` what they told and nobody wrote
    down yet, `documents` what they have open. `table` are the rows of the board, `appeals` the
    last on each server, `releasing` servers whose end was asked for with that of others, until the
    hub hears of it. `near_budgets` are budgets of GPU hours of which leads have heard this month.
    """

    settings: Settings
    ledger: Ledger
    hub: Hub
    sign_in: HubOAuth
    snapshot: Snapshot
    stock: Stock
    client: Client
    teams: View[TeamSheet]
    now: Callable[[], datetime]
    told: Told
    telemetry: Telemetry
    culler: Culler
    meter: Meter
    background: Background
    table: GpuTable = field(default_factory=GpuTable)
    appeals: dict[Key, Appeal] = field(default_factory=dict)
    releasing: set[Key] = field(default_factory=set)
    near_budgets: list[Budget] = field(default_factory=list)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    trying: asyncio.Lock = field(default_factory=asyncio.Lock)
    reporters: Reporters = field(default_factory=Reporters)
    figures: Recent = field(default_factory=Recent)
    documents: OpenDocuments = field(default_factory=OpenDocuments)

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
        return make_record(action, actor, at=self.now(), **rest)

    def title_of(self, team: str) -> str:
        """What people call a team; its name while it is not known."""
        sheet = self.teams.get(team)
        return sheet.team.display_name if sheet else team
