"""What was typed and what is printed, as people write and read it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any


def read_until(text: str, now: datetime) -> datetime:
    """A time of day, the next one, or a day and a time; in the zone of `now`. Raises ValueError."""
    try:
        hour = datetime.strptime(text, "%H:%M").time()
    except ValueError:
        until = datetime.fromisoformat(text)
        return until if until.tzinfo else until.replace(tzinfo=now.tzinfo)
    until = datetime.combine(now.date(), hour, now.tzinfo)
    return until if until > now else until + timedelta(days=1)


def name_server(text: str) -> str:
    """A server as the API names it: an unnamed one may be typed as its owner alone."""
    return text if "/" in text else f"{text}/"


def make_table(columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Lines of the values by the columns' keys, below their titles."""
    lines = [list(columns.values()), *([_show(row.get(key)) for key in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_join(line, widths) for line in lines)


def _join(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip()


def _show(value: Any) -> str:
    """Moments to the minute, in UTC; what could move the cursor is no text of ours."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.3g}"
    text = str(value)
    if len(text) == 27 and text[10] == "T" and text.endswith("Z"):
        return f"{text[:10]} {text[11:16]}"
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
