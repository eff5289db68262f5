"""Accounts of teams: told from people by their names."""

import pytest

from spectrum_spawner.accounts import account_of, is_account, team_of


@pytest.mark.parametrize("team", ["ops", "line-vision", "x.y"])
def test_an_account_is_its_teams(team: str) -> None:
    assert team_of(account_of(team)) == team
    assert is_account(account_of(team))


@pytest.mark.parametrize("name", ["ops", "team-ops", "team", "steam:ops", "alice@example.com"])
def test_a_person_is_no_account(name: str) -> None:
    assert (team_of(name), is_account(name)) == (None, False)
