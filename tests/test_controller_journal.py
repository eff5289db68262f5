"""What becomes of Teams is written down once, with who did it."""

import json
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spectrum_spawner.controller.growth import Step
from spectrum_spawner.controller.journal import Journal
from spectrum_spawner.controller.status import NotReady
from spectrum_spawner.controller.volumes import VolumeClaim
from spectrum_spawner.outbox import Outbox

GPU = "nvidia.com/gpu"
SPEC = {"groups": ["flight"], "quota": {"gpus": {GPU: 1}}}
GRANT = {"gpus": {GPU: 2}, "until": "2026-03-01T12:00:00Z"}


class Ledger:
    """Journals on one outbox, one after the other as after a restart, and what they wrote."""

    def __init__(self, path: Path) -> None:
        self._outbox = Outbox(path, "", "")
        self.journal = self.restart()

    def restart(self) -> Journal:
        self.journal = Journal(self._outbox)
        return self.journal

    def read(self) -> list[dict[str, Any]]:
        """All records, without the times and ids that are different each time."""
        with sqlite3.connect(self._outbox.path) as database:
            rows = database.execute("SELECT body FROM pending ORDER BY place").fetchall()
        database.close()
        records = [json.loads(body) for (body,) in rows]
        return [{key: r[key] for key in ("actor", "reason", "details")} for r in records]

    def read_users(self) -> list[str]:
        """Whom the records are about."""
        with sqlite3.connect(self._outbox.path) as database:
            rows = database.execute("SELECT body FROM pending ORDER BY place").fetchall()
        database.close()
        return [json.loads(body)["user"] for (body,) in rows]

    async def close(self) -> None:
        await self._outbox.close()


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[Ledger]:
    ledger = Ledger(tmp_path / "audit.sqlite")
    yield ledger
    await ledger.close()


def make_team(
    generation: int = 1,
    *,
    observed: int = 0,
    by: str = "kubectl-create",
    at: int = 0,
    uid: str = "uid-1",
    spec: dict[str, Any] | None = None,
    ready: tuple[str, str] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    """A Team as read back; `by` wrote its spec `at` seconds after it was made."""
    time = f"2026-01-01T00:00:{at:02}Z"
    writing = {"manager": by, "time": time, "fieldsV1": {"f:spec": {}}}
    status: dict[str, Any] = {"observedGeneration": observed} if observed else {}
    if ready:
        kind = dict(zip(("status", "reason"), ready, strict=True))
        status["conditions"] = [{"type": "Ready", **kind, "lastTransitionTime": time}]
    marks = {"name": "flight", "uid": uid, "generation": generation, **metadata}
    spec = SPEC if spec is None else spec
    return {"metadata": {**marks, "managedFields": [writing]}, "spec": spec, "status": status}


MADE = {
    "actor": "manager:kubectl-create",
    "reason": "Team flight was made.",
    "details": {"spec": SPEC},
}


async def test_a_new_team_is_reported_once_however_often_it_is_looked_at(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team())
    ledger.journal.on_team(make_team())
    ledger.restart().on_team(make_team())
    ledger.restart().on_team(make_team(observed=1))
    assert ledger.read() == [MADE]


async def test_a_change_tells_which_keys_from_what_to_what_and_by_whom(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(4, observed=4))
    more = {**SPEC, "quota": {"gpus": {GPU: 3}}}
    ledger.journal.on_team(make_team(5, observed=4, by="kubectl-edit", at=9, spec=more))
    assert ledger.read() == [
        {
            "actor": "manager:kubectl-edit",
            "reason": "Team flight was changed: quota.gpus.nvidia.com/gpu from 1 to 3.",
            "details": {"changes": {"quota.gpus.nvidia.com/gpu": {"from": 1, "to": 3}}},
        }
    ]


async def test_a_change_by_the_service_names_the_request(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(observed=1))
    granted = {**SPEC, "grants": {"r-17": GRANT}}
    ledger.journal.on_team(make_team(2, observed=1, by="spectrum-service", at=9, spec=granted))
    (record,) = ledger.read()
    assert record["actor"] == "manager:spectrum-service"
    assert record["reason"].startswith("Request r-17. Team flight was changed: grants from nothing")


async def test_a_team_that_the_service_made_names_its_request(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(by="spectrum-service", spec={"grants": {"r-3": GRANT}}))
    assert ledger.read()[0]["reason"] == "Request r-3. Team flight was made."


async def test_teams_from_templates_are_made_by_the_hub_and_filled_by_the_controller(
    ledger: Ledger,
) -> None:
    named = {"template": "crew", "groups": ["flight"]}
    ledger.journal.on_team(make_team(by="spectrum-hub", spec=named))
    filled = make_team(
        2,
        by="spectrum",
        at=1,
        spec={**named, "quota": {"pods": 5}},
        annotations={"spectrum.dev/filled-from": "crew"},
    )
    ledger.journal.on_team(filled)
    assert [(record["actor"], record["reason"]) for record in ledger.read()] == [
        ("hub", "Team flight was made."),
        (
            "controller",
            "Filled from template crew. Team flight was changed: "
            'quota from nothing to {"pods": 5}.',
        ),
    ]


@pytest.mark.parametrize("name", ["spectrum-hub", "spectrum"])
async def test_who_takes_the_name_of_hub_or_controller_is_told_by_that_name_only(
    ledger: Ledger, name: str
) -> None:
    ledger.journal.on_team(make_team(observed=1, by="helm"))
    more = {**SPEC, "quota": {"gpus": {GPU: 9}}}
    ledger.journal.on_team(make_team(2, observed=1, by=name, at=9, spec=more))
    assert [record["actor"] for record in ledger.read()] == [f"manager:{name}"]


async def test_who_took_something_away_is_not_guessed(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(observed=1))
    ledger.journal.on_team(make_team(2, observed=1, spec={"groups": ["flight"]}))
    (record,) = ledger.read()
    assert (record["actor"], record["reason"]) == (
        "manager:unknown",
        "Kubernetes does not say by whom. Team flight was changed: "
        'quota from {"gpus": {"nvidia.com/gpu": 1}} to nothing.',
    )


async def test_a_change_while_the_controller_was_away_is_reported_with_what_is(
    ledger: Ledger,
) -> None:
    ledger.journal.on_team(make_team(7, observed=6, by="helm"))
    assert ledger.read() == [
        {
            "actor": "manager:helm",
            "reason": "Team flight was changed while the controller was away.",
            "details": {"spec": SPEC},
        }
    ]


async def test_a_deletion_is_reported_once_also_if_it_is_found_twice(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(observed=1))
    ledger.journal.on_absence("flight")
    ledger.journal.on_absence("flight")
    ledger.journal.on_deletion("flight", "uid-1")
    assert ledger.read() == [
        {
            "actor": "manager:unknown",
            "reason": "Team flight was deleted; its data are kept. "
            "Kubernetes does not say by whom.",
            "details": {},
        }
    ]


async def test_a_team_of_the_same_name_is_another_team(ledger: Ledger) -> None:
    ledger.journal.on_team(make_team(observed=1))
    ledger.journal.on_team(make_team(uid="uid-2"))
    assert [record["reason"].partition(";")[0] for record in ledger.read()] == [
        "Team flight was deleted",
        "Team flight was made.",
    ]


@pytest.mark.parametrize(
    ("first", "when"),
    [(False, "it was altered or deleted"), (True, "it was found otherwise at the start")],
)
async def test_what_was_put_back_is_named(ledger: Ledger, first: bool, when: str) -> None:
    mended = ["ResourceQuota spectrum", "Namespace spectrum-flight"]
    ledger.journal.on_mended("flight", mended, first=first)
    assert ledger.read() == [
        {
            "actor": "controller",
            "reason": f"Put back in team flight after {when}: "
            "ResourceQuota spectrum, Namespace spectrum-flight.",
            "details": {"mended": mended},
        }
    ]


async def test_why_a_team_is_not_ready_is_reported_once_for_each_reason(ledger: Ledger) -> None:
    taken = NotReady("NamespaceTaken", "Namespace x exists.")
    ledger.journal.on_not_ready(make_team(observed=1, ready=("True", "Reconciled")), taken)
    ledger.journal.on_not_ready(make_team(observed=1, ready=("True", "Reconciled")), taken)
    ledger.journal.on_not_ready(make_team(observed=1, ready=("False", "NamespaceTaken")), taken)
    gone = NotReady("TemplateUnknown", "There is no template.")
    ledger.journal.on_not_ready(make_team(observed=1, ready=("False", "NamespaceTaken")), gone)
    assert [(record["reason"], record["details"]) for record in ledger.read()] == [
        ("Team flight is not ready: Namespace x exists.", {"reason": "NamespaceTaken"}),
        ("Team flight is not ready: There is no template.", {"reason": "TemplateUnknown"}),
    ]


async def test_a_spec_that_is_too_long_for_a_record_is_told_by_its_keys(ledger: Ledger) -> None:
    long = {"groups": [f"{number:0250}" for number in range(200)], "leads": ["alice"]}
    ledger.journal.on_team(make_team(spec=long))
    assert ledger.read()[0]["details"] == {"spec": ["groups", "leads"]}


SCRATCH = VolumeClaim(
    name="scratch-alice-big",
    namespace="spectrum-flight",
    uid="uid-9",
    component="scratch",
    team="flight",
    user="alice",
    volume="big",
    size="10Gi",
    purge="scratch-alice-big",
)


async def test_claims_of_another_size_are_told_in_one_record(ledger: Ledger) -> None:
    share = VolumeClaim(name="share", namespace="spectrum-flight", uid="uid-8", size="50Gi")
    steps = [Step(claim=SCRATCH, size="20Gi"), Step(claim=share, size="100Gi")]
    ledger.journal.on_grown("flight", steps)
    ledger.restart().on_grown("flight", steps)
    assert ledger.read() == [
        {
            "actor": "controller",
            "reason": "Other sizes for claims of team flight: scratch-alice-big from 10Gi to "
            "20Gi, share from 50Gi to 100Gi.",
            "details": {
                "claims": {
                    "scratch-alice-big": {"from": "10Gi", "to": "20Gi", "uid": "uid-9"},
                    "share": {"from": "50Gi", "to": "100Gi", "uid": "uid-8"},
                }
            },
        }
    ]


async def test_a_purge_is_told_once_with_whose_data_went_and_who_asked(ledger: Ledger) -> None:
    ledger.journal.on_purge(SCRATCH, manager="kubectl-annotate")
    ledger.restart().on_purge(SCRATCH, manager="kubectl-annotate")
    assert ledger.read() == [
        {
            "actor": "manager:kubectl-annotate",
            "reason": "Claim scratch-alice-big of team flight, the scratch big of alice, is "
            "deleted for good, as its annotation spectrum.dev/purge asks.",
            "details": {
                "namespace": "spectrum-flight",
                "claim": "scratch-alice-big",
                "size": "10Gi",
            },
        }
    ]
    assert ledger.read_users() == ["alice"]


async def test_a_purge_that_is_refused_is_told_once_for_each_value(ledger: Ledger) -> None:
    for value in ("true", "true", "yes"):
        claim = replace(SCRATCH, purge=value)
        ledger.journal.on_refused_purge(claim, "the name is another.", manager=None)
    refused = {
        "actor": "manager:unknown",
        "reason": "Claim scratch-alice-big of team flight stays: the name is another.",
        "details": {
            "namespace": "spectrum-flight",
            "claim": "scratch-alice-big",
            "size": "10Gi",
        },
    }
    assert ledger.read() == [refused, refused]


async def test_the_purge_of_a_whole_namespace_is_told(ledger: Ledger) -> None:
    namespace = {
        "metadata": {
            "name": "spectrum-flight",
            "uid": "uid-3",
            "annotations": {"spectrum.dev/owner-team": "flight"},
        }
    }
    ledger.journal.on_space_purge(namespace, manager="kubectl-annotate")
    assert ledger.read() == [
        {
            "actor": "manager:kubectl-annotate",
            "reason": "Namespace spectrum-flight of team flight is deleted for good with all the "
            "data in it, as its annotation spectrum.dev/purge asks.",
            "details": {},
        }
    ]
