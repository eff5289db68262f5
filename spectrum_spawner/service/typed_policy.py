"""A policy as somebody types it: YAML of a table, read with doubt. Pure."""

import json
from datetime import date
from typing import Any

import yaml

from spectrum_spawner.service.problem import Problem

MOST = 48 * 1024  # characters of a policy


class _Loader(yaml.SafeLoader):
    """Takes no aliases: nine short lines of them are a table of a hundred million parts."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem_mark=self.peek_event().start_mark)
        return super().compose_node(parent, index)


def read_typed(typed: str) -> dict[str, Any]:
    """The table `culling` that somebody typed, with that key above it or without. Raises Problem.

    It takes a while, so it is called in a thread.
    """
    if len(typed) > MOST:
        raise Problem(f"A policy has {MOST} characters at most: please shorten it.")
    try:
        read = yaml.load(typed, _Loader)
        # moments are texts in values of a release
        values = json.loads(json.dumps(read, default=_to_text, allow_nan=False))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise Problem(
            f"The policy is no YAML without aliases{where}: please correct it."
        ) from error
    if isinstance(values, dict) and values.keys() == {"culling"}:
        values = values["culling"]
    if not isinstance(values, dict):
        raise Problem("The policy must be a table with rules and exemptions: please correct it.")
    return values


def _to_text(value: object) -> str:
    if not isinstance(value, date):
        raise TypeError(value)
    return value.isoformat()
