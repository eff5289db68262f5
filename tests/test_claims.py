"""What a provider's answer says: the one rule for groups, names and subjects, in tables."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrum_spawner import claims
from spectrum_spawner.claims import Doubt

MANY = [f"team-{number}" for number in range(5000)]


@pytest.mark.parametrize(
    ("claim", "groups"),
    [
        (["flight", "ops"], {"flight", "ops"}),
        (["/flight", "ops/"], {"flight", "ops"}),
        (["/flight", "flight"], {"flight"}),
        (["/acme/flight/crew"], {"acme/flight/crew"}),
        (["/acme/flight"], {"acme/flight"}),
        (["Flight", "flight"], {"Flight", "flight"}),
        (["", "/", "flight"], {"flight"}),
        ([], set()),
        ("flight", {"flight"}),
        ("/acme/flight/", {"acme/flight"}),
        ("", set()),
        (["<script>", "{{7*7}}", "{0.__class__}"], {"<script>", "{{7*7}}", "{0.__class__}"}),
        (MANY, set(MANY)),
    ],
)
def test_a_claim_names_groups(claim: Any, groups: set[str]) -> None:
    assert claims.read_groups(claim) == groups


@pytest.mark.parametrize(
    "claim",
    [
        *(None, 7, 0, True, False, 1.5, {"flight": True}, {}),
        *(["flight", 7], ["flight", None], [True], [{"name": "flight"}]),
        *([["flight"]], ["flight", ["ops"]]),
        ["flight", "half a character: \ud800"],
    ],
)
def test_a_claim_of_another_kind_is_doubt_and_not_no_group(claim: Any) -> None:
    with pytest.raises(Doubt):
        claims.read_groups(claim)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("groups", ["flight"]),
        ("realm_access.roles", ["ops"]),
        ("a.b.c", "deep"),
        ("https://idp.test/groups", ["url"]),
        ("empty", []),
        ("no", False),
    ],
)
def test_a_claim_is_found_at_its_path(path: str, value: Any) -> None:
    answer = {
        "groups": ["flight"],
        "realm_access": {"roles": ["ops"]},
        "a": {"b": {"c": "deep"}},
        "https://idp.test/groups": ["url"],
        "empty": [],
        "no": False,
    }
    assert claims.find_claim(answer, path) == value


@pytest.mark.parametrize("path", ["groups", "realm_access.roles", "text.roles", "list.roles", ""])
def test_an_absent_or_null_claim_is_doubt(path: str) -> None:
    answer = {"groups": None, "realm_access": {}, "text": "roles", "list": ["roles"]}
    with pytest.raises(Doubt, match="there is no claim"):
        claims.find_claim(answer, path)


def test_a_team_of_github_is_a_group_within_its_organization() -> None:
    teams = [
        {"slug": "flight", "organization": {"login": "acme"}},
        {"slug": "flight", "organization": {"login": "other"}},
    ]
    assert claims.read_github_teams(teams) == {"acme/flight", "other/flight"}
    assert claims.read_github_teams([]) == set()


@pytest.mark.parametrize("teams", [None, 7, ["flight"], [{"slug": "flight"}], [None]])
def test_teams_that_github_did_not_list_are_doubt(teams: Any) -> None:
    with pytest.raises(Doubt):
        claims.read_github_teams(teams)


@pytest.mark.parametrize(
    ("value", "subject"),
    [("8f2c", "idp.test|8f2c"), (583231, "idp.test|583231"), ("a|b", "idp.test|a|b")],
)
def test_a_subject_is_the_providers_host_and_its_id(value: Any, subject: str) -> None:
    assert claims.read_subject(value, issuer="idp.test") == subject


@pytest.mark.parametrize(
    "value", ["", True, None, 1.5, ["8f2c"], {"id": 1}, "x" * 256, 10**255, "\udfff"]
)
def test_who_has_no_id_has_no_subject(value: Any) -> None:
    with pytest.raises(Doubt):
        claims.read_subject(value, issuer="idp.test")


@pytest.mark.parametrize(
    "name",
    [
        *("alice", "alice@acme.test", "li.wei", "o'neil", "a+b@acme.test", "100%", "李雷"),
        *("ölaf", "é", "x" * 255, "1alice", "_alice", "alice~x", "😀"),
    ],
)
def test_names_of_many_spellings_are_names(name: str) -> None:
    assert claims.why_no_name(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("\N{FULLWIDTH LATIN SMALL LETTER A}lice", "look like others"),
        ("e\N{COMBINING ACUTE ACCENT}", "look like others"),
        ("\N{LATIN SMALL LIGATURE FI}n", "look like others"),
        ("alice ", "blanks"),
        ("a b", "blanks"),
        ("a\tb", "blanks"),
        ("alice\n", "blanks"),
        ("alice\0", "control characters"),
        ("al\N{ZERO WIDTH SPACE}ice", "control characters"),
        ("al\N{RIGHT-TO-LEFT OVERRIDE}ice", "control characters"),
        ("a/b", "slashes"),
        ("acme\\alice", "slashes"),
        ("..", "nothing but dots"),
        (".", "nothing but dots"),
        ("", "nothing but dots"),
        ("x" * 256, "more than 255 characters"),
    ],
)
def test_a_name_that_could_be_taken_for_another_is_refused_with_the_reason(
    name: str, why: str
) -> None:
    assert why in claims.why_no_name(name)


@given(st.lists(st.text(max_size=8)))
def test_reading_groups_twice_changes_nothing(claim: list[str]) -> None:
    groups = claims.read_groups(claim)
    assert claims.read_groups(sorted(groups)) == groups
    assert not any(group.startswith("/") or group.endswith("/") or not group for group in groups)
