"""Team templates: groups of the identity provider that become teams by themselves.

Values say which groups (`pattern`), how many teams at most (`max`) and what such a team gets
(`spec`). The hub makes a Team that names its template and its one group, and nothing else; the
controller checks it and fills in the rest. So whoever holds the hub's rights can give nobody
more than a template gives.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.kube import AlreadyExists, Client, KubeError, Object, collection
from spectrum_spawner.patterns import PatternError, read_pattern
from spectrum_spawner.teams import Team
from spectrum_spawner.watch import View

MOST_AT_ONCE = 5  # teams made at one sign-in; the next one goes on
PATIENCE = 5.0  # seconds that a sign-in may wait for new teams
LONGEST_GROUP = 255  # characters, as the Team definition has it
LARGEST_MAX = 1000
FIELD_MANAGER = "spectrum-hub"  # tells the hub's teams from the controller's changes of them

_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?\Z")
_KEYS = {"pattern", "max", "spec"}
_NOT_IN_SPEC = {"template", "groups", "grants"}  # what a Team has for itself

_log = logging.getLogger("spectrum.teams")


class TemplateError(ValueError):
    """A template in the values cannot be used; the text says where and why."""


@dataclass(frozen=True, kw_only=True)
class TeamTemplate:
    """What the teams of one template have in common.

    `spec` is the Team's spec without template and groups; the hub is told none. `max` is the
    number of teams that the template makes at most.
    """

    name: str
    pattern: re.Pattern[str]
    max: int
    spec: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, group: str) -> bool:
        """Whether the pattern matches the whole name of a group that a Team can hold."""
        fits = len(group) <= LONGEST_GROUP and bool(group.strip())
        return fits and self.pattern.fullmatch(group) is not None


def read_templates(values: Mapping[str, Any]) -> dict[str, TeamTemplate]:
    """Templates by name from the values table; raises TemplateError naming the place."""
    if not isinstance(values, Mapping):
        raise TemplateError("teamTemplates: must be a table")
    return {name: _read_template(name, record) for name, record in values.items()}


def find_missing(
    groups: Iterable[str], teams: Iterable[Team], templates: Mapping[str, TeamTemplate]
) -> dict[str, str]:
    """Groups that no team claims and that should become one, each with its template's name.

    The first template that matches is the group's; a template that has its `max` of teams makes
    no more. At most MOST_AT_ONCE groups.
    """
    known = list(teams)
    claimed = {group for team in known for group in team.groups}
    taken = {team.name for team in known}
    count = Counter(team.template for team in known)
    missing: dict[str, str] = {}
    for group in sorted(set(groups) - claimed):
        template = next((t for t in templates.values() if t.matches(group)), None)
        if template is None or names.slug(group) in taken or count[template.name] >= template.max:
            continue
        count[template.name] += 1
        missing[group] = template.name
        if len(missing) == MOST_AT_ONCE:
            break
    return missing


async def ensure_teams(
    client: Client,
    hub_namespace: str,
    groups: Iterable[str],
    teams: View[Team],
    templates: Mapping[str, TeamTemplate],
) -> list[str]:
    """Make the teams that somebody's groups lack; returns the names of those made.

    Nothing is made before all teams are known. Whatever goes wrong is logged and left to the
    next sign-in.
    """
    made: list[str] = []
    if not teams.synced:
        return made
    try:
        async with asyncio.timeout(PATIENCE):
            for group, template in find_missing(groups, teams, templates).items():
                if await _create(client, make_team(hub_namespace, group, template)):
                    made.append(names.slug(group))
    except (KubeError, TimeoutError) as error:
        _log.warning("not every team for new groups was made: %s", error or "too slow")
    return made


def make_team(hub_namespace: str, group: str, template: str) -> Object:
    """The Team as the hub may make it: chart and API server refuse it anything else."""
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": names.TEAM_KIND,
        "metadata": {"name": names.slug(group), "namespace": hub_namespace},
        "spec": {"template": template, "groups": [group]},
    }


async def _create(client: Client, manifest: Object) -> bool:
    """Whether this call made it: one of that name that is there already is left as it is."""
    metadata, spec = manifest["metadata"], manifest["spec"]
    path = collection(manifest["apiVersion"], names.TEAM_PLURAL, namespace=metadata["namespace"])
    try:
        await client.request("POST", path, body=manifest, query={"fieldManager": FIELD_MANAGER})
    except AlreadyExists:
        live = Team.from_object(await client.get(f"{path}/{metadata['name']}"))
        if not live.groups & set(spec["groups"]):
            _log.warning("team %s is of other groups than %s", live.name, spec["groups"])
        return False
    _log.info("team %s made for group %s by template %s", metadata["name"], *spec.values())
    return True


def _read_template(name: str, record: object) -> TeamTemplate:
    place = f"teamTemplates.{name}"
    if not _NAME.match(name):
        raise TemplateError(f"{place}: a template's name is 1 to 63 letters, digits and '-'")
    if not isinstance(record, Mapping):
        raise TemplateError(f"{place}: must be a table")
    if unknown := sorted(record.keys() - _KEYS):
        raise TemplateError(f"{place}.{unknown[0]}: unknown key, known are {sorted(_KEYS)}")
    try:
        pattern = read_pattern(record.get("pattern"))
    except PatternError as error:
        raise TemplateError(f"{place}.pattern: {error}") from error
    return TeamTemplate(
        name=name,
        pattern=pattern,
        max=_read_max(f"{place}.max", record.get("max")),
        spec=_read_spec(f"{place}.spec", record.get("spec") or {}),
    )


def _read_max(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_MAX:
        raise TemplateError(f"{place}: {value!r} is no number of teams from 1 to {LARGEST_MAX}")
    return value


def _read_spec(place: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TemplateError(f"{place}: must be a table")
    if own := sorted(value.keys() & _NOT_IN_SPEC):
        raise TemplateError(f"{place}.{own[0]}: each team has its own, a template has none")
    return value
