"""Changes of membership in words, and rounds of asking that one person cannot end."""

from types import SimpleNamespace
from typing import Any

import pytest

from spectrum_spawner import membership
from spectrum_spawner.audit import Record, make_record


@pytest.mark.parametrize(
    ("gained", "lost", "reason"),
    [
        (["flight"], [], "alice joined flight."),
        ([], ["flight"], "alice left flight."),
        (["labs", "ops"], ["flight"], "alice joined labs, ops and left flight."),
    ],
)
def test_a_change_is_said_in_one_sentence(gained: list[str], lost: list[str], reason: str) -> None:
    assert membership.describe_change("alice", gained, lost) == {
        "action": "membership",
        "user": "alice",
        "reason": reason,
        "details": {"gained": gained, "lost": lost},
    }


@pytest.mark.parametrize("letter", ["a", "é", "😀", '"'])
@pytest.mark.parametrize("length", [5, 255, 5000])
def test_a_change_of_very_many_groups_is_cut_to_what_the_ledger_takes(
    letter: str, length: int
) -> None:
    groups = [f"{number:04}{letter * length}" for number in range(5000)]
    told = membership.describe_change("alice", groups, groups)
    record = make_record(writer="hub", actor="identity-provider", **told)
    assert Record.from_dict(record.as_dict()) == record


def test_a_sentence_names_ten_groups() -> None:
    groups = [f"team-{number}" for number in range(5000)]
    told = membership.describe_change("alice", groups, [])
    assert told["reason"].endswith("team-8, team-9 and 4990 more.")
    assert len(told["details"]["gained"]) > 100


class FailsForBob:
    """An authenticator that trips over one of the people it is asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def refresh_user(self, user: Any, handler: Any = None) -> bool:
        self.asked.append(user.name)
        if user.name == "bob":
            raise RuntimeError("nobody expected this")
        return True


async def test_one_persons_trouble_does_not_end_the_round() -> None:
    def make_user(name: str, *, active: bool) -> Any:
        return SimpleNamespace(name=name, spawners={"": SimpleNamespace(active=active)})

    asks = FailsForBob()
    users = [make_user(name, active=name != "dave") for name in ("alice", "bob", "carol", "dave")]
    await membership.refresh_all(membership.list_running(users), asks)
    assert asks.asked == ["alice", "bob", "carol"]
    # nobody said anything new of them, so a page of theirs asks for itself
    assert not any(hasattr(user, "_auth_refreshed") for user in users)
