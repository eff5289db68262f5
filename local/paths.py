"""Where things lie: the checkout, the build cache and the cluster's state."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
# Sockets and mounts: a short path, since that of a socket may have 107 characters at most.
RUNTIME = Path("/run/spectrum")


def find_cache() -> Path:
    """Return the directory of builds that outlive a cluster: $SPECTRUM_CACHE, else the XDG one."""
    if chosen := os.environ.get("SPECTRUM_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spectrum"


def find_state() -> Path:
    """Return the directory of the one cluster's state: $SPECTRUM_STATE, else /var/lib/spectrum."""
    return Path(os.environ.get("SPECTRUM_STATE") or "/var/lib/spectrum").absolute()
