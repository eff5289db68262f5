"""The pinned versions of versions.toml."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class GoTool:
    """One upstream Go module and the commands built from it."""

    name: str
    module: str
    version: str
    packages: tuple[str, ...]
    tags: tuple[str, ...]

    @property
    def import_paths(self) -> list[str]:
        return [self.module if p == "." else f"{self.module}/{p}" for p in self.packages]


@cache
def load_versions() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("versions.toml").read_text())


def find_go_tool(name: str) -> GoTool:
    entry = load_versions()["go"][name]
    return GoTool(
        name=name,
        module=entry["module"],
        version=entry["version"],
        packages=tuple(entry["packages"]),
        tags=tuple(entry["tags"]),
    )
