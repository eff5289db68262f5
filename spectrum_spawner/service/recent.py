"""What servers told last of their volumes, until it is written down. Pure.

A report is a server's whole word: the next one takes its place.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass, field

from spectrum_spawner.service.reports import Figures, Report, Volume


@dataclass(frozen=True)
class Recent:
    """Reports that the ledger's database does not have yet: one of each server in each team."""

    _reports: dict[tuple[str, str], Report] = field(default_factory=dict)

    def keep(self, report: Report) -> None:
        key = (report.team, report.server)
        self._reports.pop(key, None)  # to stand behind those that came before
        self._reports[key] = report

    def list_reports(self) -> list[Report]:
        """In the order in which they came."""
        return list(self._reports.values())

    def drop(self, written: Iterable[Report]) -> None:
        """Forget reports that are written down; what came of a server meanwhile stays."""
        for report in written:
            key = (report.team, report.server)
            if self._reports.get(key) is report:
                del self._reports[key]

    def find(self, *, user: str, teams: Container[str]) -> dict[Volume, Figures]:
        """The last word on each volume of a person, and on what these teams have in common."""
        told = (r for r in self._reports.values() if r.user == user or r.team in teams)
        return {
            each.volume: each for each in find_last(told) if is_shown(each, user=user, teams=teams)
        }


def find_last(reports: Iterable[Report]) -> list[Figures]:
    """The last word on each volume in reports that came in this order."""
    return list({each.volume: each for report in reports for each in report.figures}.values())


def is_shown(figures: Figures, *, user: str, teams: Container[str]) -> bool:
    return figures.user == user if figures.user else figures.team in teams
