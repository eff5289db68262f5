"""A policy that somebody types is a plain table, however they write it."""

import pytest

from spectrum_spawner.service.problem import Problem
from spectrum_spawner.service.typed_policy import MOST, read_typed

MANY = "\n".join(
    ["a: &a [1,1,1,1,1,1,1,1,1]"]
    + [
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
)


def test_the_key_culling_may_stand_above_it() -> None:
    assert read_typed("rules: {}") == read_typed("culling: {rules: {}}") == {"rules": {}}


def test_moments_are_texts_as_in_the_values_of_a_release() -> None:
    typed = "exemptions: {demo: {until: 2026-03-31T18:00:00+00:00, day: 2026-03-31}}"
    assert read_typed(typed) == {
        "exemptions": {"demo": {"until": "2026-03-31T18:00:00+00:00", "day": "2026-03-31"}}
    }


@pytest.mark.parametrize("typed", [MANY, "a: &a {b: 1}\nc: *a", "a: &a {b: 1}\nc: {<<: *a}"])
def test_aliases_are_refused_before_they_grow(typed: str) -> None:
    with pytest.raises(Problem, match="no YAML without aliases in line 2: please correct it"):
        read_typed(typed)


@pytest.mark.parametrize(
    "typed",
    ["rules: [", "!!python/object:os.system {}", "!!binary aGk=", "[" * 5000, "a: .nan", "- a"],
)
def test_what_is_no_plain_table_is_refused(typed: str) -> None:
    with pytest.raises(Problem):
        read_typed(typed)


def test_nothing_longer_than_the_page_takes_is_read() -> None:
    with pytest.raises(Problem, match=f"{MOST} characters at most"):
        read_typed("#" * (MOST + 1))
