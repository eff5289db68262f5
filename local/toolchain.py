"""The Go that builds the cluster's programs."""

import re
import shutil
from pathlib import Path

from local.commands import run
from local.errors import Refusal

# What the go.mod files of local/go and the upstream modules ask for.
NEEDED = (1, 26)
# From this version on, Go fetches a newer Go by itself where its modules ask for one.
FETCHES_NEWER = (1, 21)


def check_go() -> None:
    """Refuse when no Go is there, or one that neither is new enough nor fetches one that is."""
    if shutil.which("go") is None:
        raise Refusal(f"go is missing: {_say_how_to_get()}")
    # A go.mod of the caller's directory would choose the Go that answers.
    answer = run(["go", "env", "GOVERSION", "GOTOOLCHAIN"], directory=Path("/"))
    check_go_version(*answer.splitlines())


def check_go_version(version: str, toolchain: str) -> None:
    """Refuse an older Go; the texts are those of `go env GOVERSION GOTOOLCHAIN`.

    A version that is not numbered, as of a Go that somebody built from source, is let through.
    """
    numbers = re.search(r"go(\d+)\.(\d+)", version)
    if numbers is None:
        return
    found = (int(numbers[1]), int(numbers[2]))
    if found >= NEEDED:
        return
    needed = f"Go {_format(NEEDED)} or newer is needed, and this is {_format(found)}"
    if found < FETCHES_NEWER:
        raise Refusal(f"{needed}: {_say_how_to_get()}")
    if not toolchain.endswith("auto"):
        raise Refusal(
            f"{needed} with GOTOOLCHAIN={toolchain}: set GOTOOLCHAIN=auto, or {_say_how_to_get()}"
        )


def _say_how_to_get() -> str:
    return f"install Go {_format(NEEDED)} or newer (https://go.dev/dl) and put it on PATH"


def _format(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
