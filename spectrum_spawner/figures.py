"""Figures: how full volumes are, as servers last told the service."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import aiohttp

TIMEOUT = 1.0  # seconds that an answer may take; a page waits for it


class NoFigures(Exception):  # noqa: N818 - reads as the state that it is
    """The service does not answer, or not as it should; the text says how."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What `server` told of a volume `at` a moment (RFC 3339).

    `total` and `used` are in bytes, None where the volume did not tell; `error` is why it did
    not. File systems without a limit on files have no figures of them.
    """

    total: int | None = None
    used: int | None = None
    files_total: int | None = None
    files_used: int | None = None
    read_only: bool | None = None
    error: str = ""
    at: str = ""
    server: str = ""


# by team, kind and name of the volume
FiguresByVolume = Mapping[tuple[str, str, str], Figures]


async def fetch_figures(
    http: aiohttp.ClientSession, url: str, token: str, *, user: str, teams: Iterable[str]
) -> FiguresByVolume:
    """The figures of a person's volumes and of their teams'; raises NoFigures."""
    query = [("user", user), *(("team", team) for team in teams)]
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with http.get(
            url,
            params=query,
            headers=headers,
            raise_for_status=True,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT),
        ) as answer:
            return read_figures(await answer.json())
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        raise NoFigures(str(error) or type(error).__name__) from error


def read_figures(answer: Any) -> FiguresByVolume:
    """The figures in an answer of the service; raises ValueError if it holds anything else."""
    keys = [field.name for field in fields(Figures)]
    try:
        return {
            (entry["team"], entry["kind"], entry["name"]): Figures(**{k: entry[k] for k in keys})
            for entry in answer["volumes"]
        }
    except (LookupError, TypeError) as error:
        raise ValueError(f"not a list of figures: {error!r}") from error
