"""What the JSON API takes and gives, as an OpenAPI document."""

from pathlib import Path
from typing import Any

import yaml

from spectrum_spawner import __version__

_DOCUMENT = yaml.safe_load(Path(__file__).with_name("openapi.yaml").read_text())


def describe(prefix: str) -> dict[str, Any]:
    """The document of a service whose pages begin with `prefix`, which ends with a slash."""
    info = {**_DOCUMENT["info"], "version": __version__}
    return {**_DOCUMENT, "info": info, "servers": [{"url": f"{prefix}api"}]}
