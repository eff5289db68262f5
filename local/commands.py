"""Other programs' commands, run to their end."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from local.errors import Refusal


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    text: str | None = None,
    directory: Path | None = None,
) -> str:
    """Run the command and return what it printed; a failure is a Refusal with its last line.

    `directory` is where it runs, by default that of the caller; `text` is its input.
    """
    words = [str(word) for word in command]
    try:
        result = subprocess.run(
            words,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            input=text,
            stdin=subprocess.DEVNULL if text is None else None,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise Refusal(f"{words[0]} is missing") from None
    if result.returncode != 0:
        lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
        message = lines[-1] if lines else "no message"
        raise Refusal(f"{make_short_name(words)} failed: {message}")
    return result.stdout


def make_short_name(words: Sequence[str]) -> str:
    """Name a command by its program and the first words that are neither options nor paths."""
    plain = [word for word in words[1:] if not word.startswith(("-", "/"))]
    return " ".join([Path(words[0]).name, *plain[:2]])


def succeeds(command: Sequence[str | Path]) -> bool:
    """Tell whether the command is there and exits with 0, whatever it prints."""
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
