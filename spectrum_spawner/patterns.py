"""Patterns from the values that are matched against names which others choose.

Python's regular expressions can take for ever on a name made for it. A pattern is therefore
read before it is used: its parts are few, and the ways to match them are counted.
"""

import math
import re
import warnings
from collections.abc import Iterable
from re import _constants as constants  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONGEST = 200  # characters of a pattern
MOST_WAYS = 5_000_000  # ways to match that may have to be tried: some 0.1 s
NAME = 255  # characters of the longest name that is matched

_SINGLE = {constants.LITERAL, constants.NOT_LITERAL, constants.ANY, constants.IN}
_REPEATS = {constants.MAX_REPEAT, constants.MIN_REPEAT}


class PatternError(ValueError):
    """A pattern cannot be used; the text says why."""


def read_pattern(text: object) -> re.Pattern[str]:
    """A pattern that answers soon whatever the name is; raises PatternError."""
    if not isinstance(text, str) or not text:
        raise PatternError("a regular expression is needed")
    if len(text) > LONGEST:
        raise PatternError(f"{len(text)} characters are too many, {LONGEST} may be used")
    try:
        with warnings.catch_warnings():
            # such as [[:alpha:]], which other dialects read otherwise
            warnings.simplefilter("error", FutureWarning)
            parts = parser.parse(text)
        compiled = re.compile(text)
    except (re.error, OverflowError, RecursionError, FutureWarning) as error:
        raise PatternError(f"{text!r} is no regular expression: {error}") from error
    repeats: list[int] = []
    ways = _count(parts, repeats)
    # n repeats share the characters of a name between them
    ways *= math.comb(NAME + len(repeats), len(repeats)) if repeats else 1
    if ways > MOST_WAYS:
        raise PatternError(
            f"{text!r} could take for ever to match: use at most three repeats, and few choices"
        )
    return compiled


def _count(parts: Iterable[tuple[Any, Any]], repeats: list[int]) -> int:
    """Ways to match by choices; repeats are collected, since they count together."""
    ways = 1
    for kind, value in parts:
        if kind in _REPEATS:
            ways *= _count_repeat(value, repeats)
        elif kind is constants.BRANCH:
            ways *= sum(_count(branch, repeats) for branch in value[1])
        elif kind is constants.SUBPATTERN:
            ways *= _count(value[-1], repeats)
        elif kind not in _SINGLE and kind is not constants.AT:
            raise PatternError(f"{str(kind).lower()} may not be used")
    return ways


def _count_repeat(value: tuple[int, int, Any], repeats: list[int]) -> int:
    least, most, inner = value
    if most == 1:
        return 1 + _count(inner, repeats)
    if len(inner) != 1 or inner[0][0] not in _SINGLE:
        raise PatternError("only a single character or a [set] may be repeated, not a group")
    if least != most:
        repeats.append(most)
    return 1
