"""Documents that are open in more than one server: who hears of it, and who does not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spectrum_spawner.service.documents import OpenDocuments
from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.servers import Server

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ALICE, BOB = ("alice", ""), ("bob", "gpu")
SAID = (
    "“plan.ipynb” in the team's folder is open in the server of “bob/gpu” too: who saves last "
    "wins. Close it here or there, or edit it together on a server of the team."
)


def tell(documents: OpenDocuments, key: tuple[str, str], *paths: str, team: str = "ops") -> None:
    server = Server(user=key[0], name=key[1], team=team, profile="p")
    documents.keep(server, list(paths), now=NOON)


def test_both_hear_of_a_document_that_both_have_open() -> None:
    documents = OpenDocuments()
    tell(documents, ALICE, "plan.ipynb", "alone.ipynb")
    tell(documents, BOB, "plan.ipynb")
    assert documents.list_warnings(ALICE, now=NOON) == [SAID]
    assert documents.list_warnings(BOB, now=NOON) == [SAID.replace("bob/gpu", "alice")]


def test_nobody_hears_of_another_teams_or_of_what_is_closed_or_long_untold() -> None:
    documents = OpenDocuments()
    tell(documents, ALICE, "plan.ipynb")
    tell(documents, BOB, "plan.ipynb", team="flight")
    assert documents.list_warnings(ALICE, now=NOON) == []
    tell(documents, BOB, "plan.ipynb")
    assert documents.list_warnings(ALICE, now=NOON + 4 * MINUTE) == []
    tell(documents, BOB)
    assert documents.list_warnings(ALICE, now=NOON) == []


def test_of_a_server_that_ended_nothing_is_known() -> None:
    documents = OpenDocuments()
    tell(documents, ALICE, "plan.ipynb")
    tell(documents, BOB, "plan.ipynb")
    documents.forget_all_but({ALICE})
    assert documents.list_warnings(ALICE, now=NOON) == []
    assert documents.list_warnings(BOB, now=NOON) == []


def test_very_many_are_said_in_three_sentences() -> None:
    documents = OpenDocuments()
    for key in (ALICE, BOB):
        tell(documents, key, *(f"{number}.ipynb" for number in range(100)))
    assert len(documents.list_warnings(ALICE, now=NOON)) == 3


@pytest.mark.parametrize("paths", ["plan.ipynb", [7], ["x"] * 201, ["x" * 1001], {"a": 1}])
def test_what_is_no_list_of_paths_is_refused_and_the_last_word_stays(paths: Any) -> None:
    documents = OpenDocuments()
    tell(documents, ALICE, "plan.ipynb")
    tell(documents, BOB, "plan.ipynb")
    server = Server(user="bob", name="gpu", team="ops", profile="p")
    with pytest.raises(Problem, match="documents must be a list of 200 paths"):
        documents.keep(server, paths, now=NOON)
    assert documents.list_warnings(ALICE, now=NOON) == [SAID]


def test_an_older_image_tells_nothing_of_them() -> None:
    documents = OpenDocuments()
    documents.keep(Server(user="bob", name="gpu", team="ops", profile="p"), None, now=NOON)
    assert documents.list_warnings(BOB, now=NOON) == []
