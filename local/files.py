"""Generated configuration files."""

from pathlib import Path


def write_if_changed(path: Path, text: str) -> None:
    """Write the file unless it holds just this text."""
    if path.exists() and path.read_text() == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
