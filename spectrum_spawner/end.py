"""The last end of a server, as its owner's home page tells it until the next start."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_WHAT = {"stop": "Stopped", "end": "Ended", "refuse": "Did not start"}


@dataclass(frozen=True, kw_only=True)
class End:
    """What ended a server: `action` is stop, end or refuse, `at` is RFC 3339.

    `by` is the actor behind a stop, `reason` a sentence, or "" if there is no more to say.
    """

    action: str
    at: str
    by: str = ""
    reason: str = ""

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "End | None":
        """The end that a spawner's saved state holds, if it holds one."""
        return cls(**state["end"]) if "end" in state else None

    @property
    def state(self) -> dict[str, Any]:
        """What `from_state` reads."""
        return {"end": asdict(self)}

    @property
    def what(self) -> str:
        """How a sentence about it begins."""
        return _WHAT[self.action]

    @property
    def who(self) -> str:
        """Who stopped it, as a page calls them; "" where nobody did."""
        kind, _, name = self.by.partition(":")
        if kind == "service":
            return "Spectrum" if name == "spectrum" else f"service {name}"
        if kind == "server":
            return "somebody in it"  # whose token was used, guests have it as well
        return name if kind == "user" else self.by and "the hub"
