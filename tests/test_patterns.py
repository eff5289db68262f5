"""Patterns from the values answer soon, whatever name they are matched against."""

import time

import pytest

from spectrum_spawner.patterns import PatternError, read_pattern

HOSTILE = ["a" * 255, "/" * 255, "a/" * 127, "-" * 254 + "!", "ab" * 127 + "\n"]


@pytest.mark.parametrize(
    "text",
    [
        "research-[a-z0-9-]+",
        "^(ml|bio|ops)-[a-z0-9-]+-(dev|prod)$",
        "[^/]+/[^/]+/[^/]+",
        ".*a.*a.*X",
        "(?i)Team-.{1,40}",
        "(corp/)?[a-z]{2}[0-9]{4}",
        "(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)b",
    ],
)
def test_what_is_taken_answers_soon_for_the_worst_of_names(text: str) -> None:
    pattern = read_pattern(text)
    began = time.process_time()  # what else the machine does is no concern of this test
    for name in HOSTILE:
        pattern.fullmatch(name)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("(a+)+", "only a single character or a [set] may be repeated, not a group"),
        ("(a|a)*b", "only a single character or a [set] may be repeated, not a group"),
        (".*.*.*.*X", "could take for ever to match"),
        ("a?" * 30 + "a" * 30, "could take for ever to match"),
        ("(a|a)" * 30, "could take for ever to match"),
        (r"(a)\1", "groupref may not be used"),
        ("(?=a)a", "assert may not be used"),
        ("a*+", "possessive_repeat may not be used"),
        ("[", "is no regular expression: unterminated character set"),
        ("[[:alpha:]]+", "is no regular expression: Possible nested set"),
        ("a{1,99999999999}", "is no regular expression"),
        ("a" * 201, "201 characters are too many, 200 may be used"),
        ("", "a regular expression is needed"),
        (None, "a regular expression is needed"),
        (["a"], "a regular expression is needed"),
    ],
)
def test_what_could_take_for_ever_or_is_no_pattern_is_refused(text: object, sentence: str) -> None:
    with pytest.raises(PatternError) as refusal:
        read_pattern(text)
    assert sentence in str(refusal.value)
