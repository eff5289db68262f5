"""Which Teams are filled from their template, and why others are not."""

from typing import Any

import pytest

from spectrum_spawner import names
from spectrum_spawner.controller.filling import is_to_be_filled, make_filling_patch
from spectrum_spawner.controller.status import NotReady
from spectrum_spawner.team_templates import read_templates

QUOTA = {"gpus": {"nvidia.com/gpu": 1}}
TEMPLATES = read_templates(
    {
        "research": {
            "pattern": "research-[a-z]+",
            "max": 2,
            "spec": {"profiles": ["gpu-1"], "quota": QUOTA},
        },
        "units": {"pattern": "units/.*", "max": 1, "spec": {"displayName": "A unit"}},
    }
)


def make_team(
    group: str = "research-bio",
    *,
    name: str = "",
    template: str = "research",
    made: int = 0,
    filled: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    name = name or group
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": f"2026-01-01T00:00:{made:02}Z",
            **({"annotations": {"spectrum.dev/filled-from": template}} if filled else {}),
        },
        "spec": {"template": template, "groups": [group], **spec},
    }


def test_a_team_gets_what_its_template_says_once_and_in_one_write() -> None:
    team = make_team()
    assert is_to_be_filled(team)
    assert make_filling_patch(team, [team], TEMPLATES) == {
        "metadata": {
            "uid": "uid-research-bio",
            "resourceVersion": "7",
            "annotations": {"spectrum.dev/filled-from": "research"},
        },
        "spec": {
            "displayName": "research-bio",
            "profiles": ["gpu-1"],
            "quota": QUOTA,
            "template": "research",
            "groups": ["research-bio"],
        },
    }


def test_what_an_administrator_wrote_into_it_stays() -> None:
    own = {"displayName": "Biology", "quota": {"pods": 3}}
    patch = make_filling_patch(make_team(**own), [], TEMPLATES)
    assert {key: patch["spec"][key] for key in own} == own


@pytest.mark.parametrize(
    ("group", "shown"), [("units/a", "A unit"), ("units/" + "x" * 200, "A unit")]
)
def test_a_template_may_name_its_teams_for_people(group: str, shown: str) -> None:
    team = make_team(group, name=names.slug(group), template="units")
    assert make_filling_patch(team, [], TEMPLATES)["spec"]["displayName"] == shown


@pytest.mark.parametrize(
    "team",
    [make_team(filled=True), {"metadata": {"name": "flight"}, "spec": {"groups": ["flight"]}}],
)
def test_a_team_is_not_filled_twice_nor_without_a_template(team: dict[str, Any]) -> None:
    assert not is_to_be_filled(team)


@pytest.mark.parametrize(
    ("team", "reason", "sentence"),
    [
        (make_team(template="gone"), "TemplateUnknown", "There is no template gone in the"),
        (make_team("research-7"), "TemplateMismatch", "does not match the whole of its group"),
        (make_team("/units/a", template="units"), "TemplateMismatch", "without the slashes"),
        (make_team(name="ops"), "TemplateMismatch", "research-bio is called research-bio."),
        (make_team(groups=[]), "TemplateMismatch", "it has 0 groups where one is needed"),
        (
            make_team(groups=["research-bio", "everybody"]),
            "TemplateMismatch",
            "it has 2 groups where one is needed",
        ),
    ],
)
def test_a_team_that_its_template_does_not_fit_gets_nothing_and_is_told_why(
    team: dict[str, Any], reason: str, sentence: str
) -> None:
    with pytest.raises(NotReady) as refusal:
        make_filling_patch(team, [team], TEMPLATES)
    assert refusal.value.reason == reason
    assert sentence in str(refusal.value)


def is_full(team: dict[str, Any], *others: dict[str, Any]) -> bool:
    try:
        make_filling_patch(team, [team, *others], TEMPLATES)
    except NotReady as error:
        return error.reason == "TemplateFull"
    return False


def test_the_oldest_teams_get_the_places_that_a_template_has() -> None:
    one, two, three = (make_team(f"research-{n}", made=made) for made, n in enumerate("abc"))
    assert not is_full(one, two, three)
    assert not is_full(two, one, three)
    assert is_full(three, one, two)


def test_filled_teams_keep_their_places_and_teams_that_do_not_fit_take_none() -> None:
    filled = [make_team(f"research-{letter}", made=9, filled=True) for letter in "xy"]
    assert is_full(make_team(), *filled)
    assert not is_full(make_team(), filled[0])
    misfits = [make_team("research-x", name="ops"), make_team("nobody"), make_team("units/a")]
    assert not is_full(make_team(made=5), filled[0], *misfits)
