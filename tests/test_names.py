"""Names of objects: valid for Kubernetes, and never the same for two owners."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrum_spawner import names

LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?\Z")
AWKWARD = [
    *("", "-", "a--b", "ML Vision", "視覚", "\u202eevil", "a\x00b", "..", "a/b", "%2f", "0zero"),
    *("x" * 63, "x" * 64, "x" * 65, "x" * 10**6, "kube-system", "Kube-System", "a.b", "a_b", "A"),
]


@pytest.mark.parametrize("name", ["flight", "a", "kube-system", "team-7", "x" * 63])
def test_a_plain_label_stands_for_itself(name: str) -> None:
    assert names.slug(name) == name


def test_whatever_is_no_plain_label_gets_a_suffix_of_its_own() -> None:
    assert names.slug("ML Vision") == "ml-vision--ro5pw4uuw7jal23t"
    assert names.slug("視覚") == "x--cubqumcohurbtr5q"


def test_awkward_names_become_distinct_labels() -> None:
    slugs = [names.slug(name) for name in AWKWARD]
    assert len(set(slugs)) == len(AWKWARD)
    assert [slug for slug in slugs if not LABEL.match(slug)] == []


@given(st.text(), st.text())
def test_two_names_never_share_a_slug(one: str, other: str) -> None:
    assert LABEL.match(names.slug(one))
    assert (names.slug(one) == names.slug(other)) == (one == other)


@given(st.text(min_size=1), st.text())
def test_names_of_objects_are_labels(user: str, server: str) -> None:
    assert LABEL.match(names.server_name(user, server))
    assert LABEL.match(names.home_claim(user))
    assert LABEL.match(names.team_namespace(user, prefix="a-hub-with-a-long-name-"))


def test_a_server_of_one_person_is_never_named_like_the_server_of_another() -> None:
    owners = [("alice", ""), ("alice", "b"), ("alice-b", ""), ("alice--b", ""), ("a", "lice-b")]
    assert len({names.server_name(*owner) for owner in owners}) == len(owners)


def test_a_team_namespace_starts_with_the_prefix_of_its_hub() -> None:
    assert names.team_namespace("flight", prefix="spectrum-") == "spectrum-flight"
    assert names.team_namespace("kube-system", prefix="spectrum-") == "spectrum-kube-system"


def test_accelerators_are_limited_by_their_requests() -> None:
    assert names.gpu_quota_key("nvidia.com/gpu") == "requests.nvidia.com/gpu"
