"""Teams that name a template: whether one may be filled from it, and with what."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from spectrum_spawner import names
from spectrum_spawner.controller.ownership import annotation
from spectrum_spawner.controller.settings import Settings
from spectrum_spawner.controller.status import NotReady
from spectrum_spawner.kube import Client, Object, collection, item
from spectrum_spawner.team_templates import TeamTemplate

_log = logging.getLogger("spectrum.controller")

# Set with the spec, in one write: what an administrator changes afterwards is never filled again.
ANNOTATION_FILLED = f"{names.API_GROUP}/filled-from"
LONGEST_DISPLAY_NAME = 120
_TEAMS = f"{names.API_GROUP}/{names.API_VERSION}", names.TEAM_PLURAL


class Filler:
    """Fills Teams from their templates, one after the other, so that no `max` is exceeded.

    `waiting` are the names of Teams that got nothing. What may change that is another Team's end
    or a change of their own, so there is no use in trying again and again.
    """

    def __init__(self, client: Client, settings: Settings) -> None:
        self.waiting: set[str] = set()
        self._client = client
        self._settings = settings
        self._lock = asyncio.Lock()

    async def fill(self, team: Object) -> Object:
        """The Team with its spec filled; as it is if there is nothing to fill.

        Raises NotReady, or a KubeError such as Refused for a spec that no Team may have.
        """
        name, namespace = team["metadata"]["name"], self._settings.hub_namespace
        if is_to_be_filled(team):
            self.waiting.add(name)  # before the list, so that no end of a Team is missed
            async with self._lock:
                teams = await self._client.list(collection(*_TEAMS, namespace=namespace))
                patch = make_filling_patch(team, teams["items"], self._settings.templates)
                _log.info("team %s: filling it from template %s", name, team["spec"]["template"])
                team = await self._client.patch(item(*_TEAMS, name, namespace=namespace), patch)
        self.waiting.discard(name)
        return team


def is_to_be_filled(team: Mapping[str, Any]) -> bool:
    """Whether a Team names a template from which it was not filled yet."""
    template = (team.get("spec") or {}).get("template")
    return bool(template) and not annotation(team, ANNOTATION_FILLED)


def make_filling_patch(
    team: Mapping[str, Any], teams: Iterable[Object], templates: Mapping[str, TeamTemplate]
) -> Object:
    """Merge patch that fills a Team's spec; what it has of its own stays. Raises NotReady.

    `teams` are all Teams of the hub. The teams that have been filled count towards the
    template's `max`, then those that wait, the oldest first.
    """
    spec = team["spec"]
    template = templates.get(spec["template"])
    if template is None:
        raise NotReady(
            "TemplateUnknown",
            f"There is no template {spec['template']} in the release's values: name one of "
            f"teamTemplates, or remove template from this Team.",
        )
    _check_match(team, template)
    if _is_full(team, teams, template):
        raise NotReady(
            "TemplateFull",
            f"Template {template.name} has made all {template.max} teams that it may make: raise "
            "its max in the release's values, or fill in this Team and remove its template.",
        )
    return {
        "metadata": {
            # the same object, and as it was when it was checked
            **{key: team["metadata"][key] for key in ("uid", "resourceVersion")},
            "annotations": {ANNOTATION_FILLED: template.name},
        },
        "spec": {**_name_for_people(spec["groups"][0]), **template.spec, **spec},
    }


def _check_match(team: Mapping[str, Any], template: TeamTemplate) -> None:
    problem = _find_mismatch(team, template)
    if problem:
        raise NotReady(
            "TemplateMismatch", f"Template {template.name} does not fit this Team: {problem}."
        )


def _find_mismatch(team: Mapping[str, Any], template: TeamTemplate) -> str:
    groups = team["spec"].get("groups") or []
    if len(groups) != 1:
        return f"it has {len(groups)} groups where one is needed"
    (group,) = groups
    if group != names.plain_group(group):
        return f"group {group} is to be written without the slashes around it"
    if not template.matches(group):
        return f"{template.pattern.pattern} does not match the whole of its group {group}"
    if team["metadata"]["name"] != names.slug(group):
        return f"the team of group {group} is called {names.slug(group)}"
    return ""


def _is_full(team: Mapping[str, Any], teams: Iterable[Object], template: TeamTemplate) -> bool:
    filled, waiting = 0, []
    for other in teams:
        if (other.get("spec") or {}).get("template") != template.name:
            continue
        if not is_to_be_filled(other):
            filled += 1
        elif other["metadata"]["uid"] != team["metadata"]["uid"]:
            waiting.append(other)
    older = [o for o in waiting if _age(o) < _age(team) and not _find_mismatch(o, template)]
    return filled + len(older) >= template.max


def _age(team: Mapping[str, Any]) -> tuple[str, str]:
    return team["metadata"]["creationTimestamp"], team["metadata"]["name"]


def _name_for_people(group: str) -> dict[str, str]:
    """The group's name as displayName, where the Team definition takes it as one."""
    fits = len(group) <= LONGEST_DISPLAY_NAME and group.isprintable()
    return {"displayName": group} if fits else {}
