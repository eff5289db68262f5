"""What changed in a Team's spec, and through whom."""

from typing import Any

import pytest

from spectrum_spawner.controller.changes import (
    Change,
    find_annotator,
    find_changed_grants,
    find_changes,
    find_writer,
    find_writers,
    is_removal,
)

GPU = "nvidia.com/gpu"


def test_changes_are_named_by_the_key_that_changed_however_deep() -> None:
    before = {"displayName": "Flight", "groups": ["a"], "quota": {"pods": 3, "gpus": {GPU: 1}}}
    after = {"groups": ["a", "b"], "quota": {"pods": 3, "gpus": {GPU: 2}}, "idle": {"minutes": 30}}
    changes = find_changes(before, after)
    assert changes == [
        Change(key="displayName", before="Flight", after=None),
        Change(key="groups", before=["a"], after=["a", "b"]),
        Change(key="idle", before=None, after={"minutes": 30}),
        Change(key=f"quota.gpus.{GPU}", before=1, after=2),
    ]
    assert "; ".join(map(str, changes)) == (
        'displayName from Flight to nothing; groups from ["a"] to ["a", "b"]; '
        'idle from nothing to {"minutes": 30}; quota.gpus.nvidia.com/gpu from 1 to 2'
    )


@pytest.mark.parametrize(
    ("before", "after", "grants"),
    [
        ({}, {"grants": {"r-1": {}, "r-2": {}}}, {"r-1", "r-2"}),
        ({"grants": {"r-1": {}}}, {}, {"r-1"}),
        ({"grants": {"r-1": {}}}, {"grants": {"r-1": {}, "r-2": {"until": "x"}}}, {"r-2"}),
        (
            {"grants": {"r-1": {"gpus": {GPU: 1}}}},
            {"grants": {"r-1": {"gpus": {GPU: 2}}}, "idle": {}},
            {"r-1"},
        ),
        ({}, {"idle": {"minutes": 5}}, set()),
    ],
)
def test_the_requests_that_a_change_is_about_are_those_of_its_grants(
    before: dict[str, Any], after: dict[str, Any], grants: set[str]
) -> None:
    assert find_changed_grants(find_changes(before, after)) == grants


def entry(manager: str, time: str, fields: str = "f:spec", **more: str) -> dict[str, Any]:
    return {"manager": manager, "time": time, "fieldsV1": {fields: {}}, **more}


def test_writers_are_those_who_own_something_of_the_spec() -> None:
    fields = [
        entry("kubectl-create", "2026-01-01T00:00:00Z"),
        entry("kubectl-edit", "2026-01-03T00:00:00Z"),
        entry("kubectl-edit", "2026-01-02T00:00:00Z", operation="Apply"),
        entry("kubectl-label", "2026-01-09T00:00:00Z", "f:metadata"),
        entry("spectrum", "2026-01-09T00:00:00Z", "f:status", subresource="status"),
    ]
    assert find_writers({"metadata": {"managedFields": fields}}) == {
        "kubectl-create": "2026-01-01T00:00:00Z",
        "kubectl-edit": "2026-01-03T00:00:00Z",
    }
    assert find_writers({"metadata": {}}) == {}


MORE = [Change(key="quota.pods", before=3, after=5)]
LESS = [Change(key="quota.pods", before=3, after=None)]


@pytest.mark.parametrize(
    ("before", "after", "changes", "writer"),
    [
        pytest.param({}, {"helm": "1", "edit": "2"}, [], "edit", id="the newest of all"),
        pytest.param({"helm": "1"}, {"helm": "1", "edit": "1"}, MORE, "edit", id="a new one"),
        pytest.param(
            {"helm": "1", "edit": "2"}, {"helm": "3", "edit": "2"}, MORE, "helm", id="again"
        ),
        pytest.param({"helm": "1"}, {"helm": "1"}, MORE, "helm", id="twice in a second"),
        pytest.param({"helm": "1"}, {"helm": "1"}, LESS, None, id="taken away without a trace"),
        pytest.param({"helm": "1"}, {"helm": "2"}, LESS, "helm", id="taken away by an apply"),
        pytest.param({}, {}, MORE, None, id="nobody"),
    ],
)
def test_the_writer_is_who_set_something_since(
    before: dict[str, str], after: dict[str, str], changes: list[Change], writer: str | None
) -> None:
    assert find_writer(before, after, changes) == writer


@pytest.mark.parametrize(
    ("before", "after", "removal"),
    [
        ({"idle": {"minutes": 5}}, {}, True),
        ({"groups": ["a", "b"]}, {"groups": ["b"]}, True),
        ({"groups": ["a", "b"]}, {"groups": ["c"]}, False),
        ({"idle": {"minutes": 5}}, {"displayName": "x"}, False),
        ({"quota": {"gpus": {GPU: 2}}}, {"quota": {"gpus": {GPU: 1}}}, False),
    ],
)
def test_a_change_that_only_takes_away_is_told_from_others(
    before: dict[str, Any], after: dict[str, Any], removal: bool
) -> None:
    assert is_removal(find_changes(before, after)) is removal


def test_who_annotated_is_the_last_who_owns_that_very_annotation() -> None:
    def annotating(manager: str, time: str, key: str) -> dict[str, Any]:
        fields = {"f:metadata": {"f:annotations": {f"f:{key}": {}}}}
        return {"manager": manager, "time": time, "fieldsV1": fields}

    fields = [
        annotating("hub", "2026-01-03T00:00:00Z", "spectrum.dev/owner-team"),
        annotating("kubectl-annotate", "2026-01-02T00:00:00Z", "spectrum.dev/purge"),
        annotating("argocd", "2026-01-01T00:00:00Z", "spectrum.dev/purge"),
        entry("kubectl-edit", "2026-01-04T00:00:00Z"),
    ]
    claim = {"metadata": {"managedFields": fields}}
    assert find_annotator(claim, "spectrum.dev/purge") == "kubectl-annotate"
    assert find_annotator({"metadata": {}}, "spectrum.dev/purge") is None
