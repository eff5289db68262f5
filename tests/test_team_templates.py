"""Which groups become teams by themselves, and which templates are no templates."""

from typing import Any

import pytest

from spectrum_spawner.team_templates import (
    MOST_AT_ONCE,
    TeamTemplate,
    TemplateError,
    find_missing,
    make_team,
    read_templates,
)
from spectrum_spawner.teams import Team

RESEARCH = {"pattern": "research-[a-z]+", "max": 3, "spec": {"quota": {"gpus": {}}}}
TEMPLATES = read_templates({"research": RESEARCH, "units": {"pattern": "units/.*", "max": 99}})


def make(name: str, *groups: str, template: str | None = None) -> Team:
    return Team(name=name, uid=name, display_name=name, groups=frozenset(groups), template=template)


def test_templates_are_read_whole_and_the_hub_is_told_no_spec() -> None:
    research, units = TEMPLATES.values()
    assert research == TeamTemplate(
        name="research", pattern=research.pattern, max=3, spec={"quota": {"gpus": {}}}
    )
    assert (research.pattern.pattern, units.spec) == ("research-[a-z]+", {})


@pytest.mark.parametrize(
    ("group", "matches"),
    [
        ("research-bio", True),
        ("my-research-bio", False),
        ("research-bio2", False),
        ("research-bio\n", False),
        ("units/" + "x" * 249, True),
        ("units/" + "x" * 250, False),
        ("", False),
    ],
)
def test_a_pattern_matches_the_whole_of_a_group_that_a_team_can_hold(
    group: str, matches: bool
) -> None:
    assert any(template.matches(group) for template in TEMPLATES.values()) is matches


def test_an_empty_group_becomes_no_team_even_if_the_pattern_would_have_it() -> None:
    (anything,) = read_templates({"anything": {"pattern": ".*", "max": 1}}).values()
    assert not anything.matches("")
    assert not anything.matches("  ")


def test_groups_that_no_team_claims_and_a_template_matches_become_teams() -> None:
    teams = [make("flight", "flight", "research-claimed")]
    groups = ["flight", "research-claimed", "research-new", "units/A b", "others"]
    assert find_missing(groups, teams, TEMPLATES) == {
        "research-new": "research",
        "units/A b": "units",
    }


def test_a_full_template_makes_no_more_and_counts_what_it_is_about_to_make() -> None:
    teams = [make(name, name, template="research") for name in ("research-a", "research-b")]
    groups = ["research-x", "research-y", "research-z"]
    assert find_missing(groups, teams, TEMPLATES) == {"research-x": "research"}


def test_one_sign_in_makes_a_few_teams_only() -> None:
    groups = [f"units/{number}" for number in range(5000)]
    assert len(find_missing(groups, [], TEMPLATES)) == MOST_AT_ONCE


def test_a_team_of_that_name_that_has_other_groups_is_left_alone() -> None:
    teams = [make("research-bio", "biologists")]
    assert find_missing(["research-bio"], teams, TEMPLATES) == {}


def test_the_hub_names_a_template_and_one_group_and_nothing_else() -> None:
    assert make_team("spectrum", "units/A b", "units") == {
        "apiVersion": "spectrum.dev/v1alpha1",
        "kind": "Team",
        "metadata": {"name": "units-a-b--x72a4eig7xzsv2ep", "namespace": "spectrum"},
        "spec": {"template": "units", "groups": ["units/A b"]},
    }


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ([], "teamTemplates: must be a table"),
        ({"a b": RESEARCH}, "teamTemplates.a b: a template's name is 1 to 63 letters"),
        ({"x": []}, "teamTemplates.x: must be a table"),
        ({"x": {**RESEARCH, "patern": "a"}}, "teamTemplates.x.patern: unknown key"),
        ({"x": {"max": 3}}, "teamTemplates.x.pattern: a regular expression is needed"),
        ({"x": {**RESEARCH, "pattern": "(a+)+"}}, "teamTemplates.x.pattern: only a single"),
        ({"x": {"pattern": "a"}}, "teamTemplates.x.max: None is no number of teams"),
        ({"x": {**RESEARCH, "max": 0}}, "teamTemplates.x.max: 0 is no number of teams"),
        ({"x": {**RESEARCH, "max": True}}, "teamTemplates.x.max: True is no number of teams"),
        ({"x": {**RESEARCH, "max": 1001}}, "teamTemplates.x.max: 1001 is no number of teams"),
        ({"x": {**RESEARCH, "spec": ["a"]}}, "teamTemplates.x.spec: must be a table"),
        ({"x": {**RESEARCH, "spec": {"groups": []}}}, "teamTemplates.x.spec.groups: each team"),
    ],
)
def test_a_template_that_cannot_be_used_is_named_by_its_place(values: Any, sentence: str) -> None:
    with pytest.raises(TemplateError) as refusal:
        read_templates(values)
    assert str(refusal.value).startswith(sentence)
