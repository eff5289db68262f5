"""What the last look at all servers found, for pages and API. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spectrum_spawner.activity import Evidence
from spectrum_spawner.service.culling.memory import Memory
from spectrum_spawner.service.culling.policy import Verdict
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.standing import Standing
from spectrum_spawner.service.culling.sweep import Key


@dataclass(frozen=True, kw_only=True)
class Round:
    """One look. `at` is None before the first, and everything is empty then.

    While `enabled` is False every server is judged, and nothing follows from it. `memory` is of
    servers of whose GPUs it is known.
    """

    at: datetime | None = None
    enabled: bool = False
    policy: Policy = field(default_factory=Policy)
    subjects: Mapping[Key, Subject] = field(default_factory=dict)
    evidence: Mapping[Key, Evidence] = field(default_factory=dict)
    verdicts: Mapping[Key, Verdict] = field(default_factory=dict)
    standings: Mapping[Key, Standing] = field(default_factory=dict)
    memory: Mapping[Key, Memory] = field(default_factory=dict)
