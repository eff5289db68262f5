"""One look at all servers: what each has coming, and what is to be done now. Pure.

Its time grows with the number of servers alone. A dry run is a sweep whose actions nobody carries
out, with whatever policy is given.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from spectrum_spawner.activity import Evidence
from spectrum_spawner.service.culling.policy import Verdict, judge
from spectrum_spawner.service.culling.rules import Policy, Subject
from spectrum_spawner.service.culling.standing import Action, Standing, step
from spectrum_spawner.service.culling.uncollected import uncollected

Key = tuple[str, str]  # owner and name of a server
NOTHING = Evidence()


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What a look found. `standings` are of those who run now, for the next look.

    Servers that could not be judged are in `failures` alone, with what was met: nothing follows
    for them.
    """

    verdicts: dict[Key, Verdict] = field(default_factory=dict)
    standings: dict[Key, Standing] = field(default_factory=dict)
    actions: list[tuple[Subject, Action]] = field(default_factory=list)
    failures: dict[Key, Exception] = field(default_factory=dict)


def sweep(
    subjects: Iterable[Subject],
    evidence: Mapping[Key, Evidence],
    standings: Mapping[Key, Standing],
    policy: Policy,
    *,
    now: datetime,
    used_at: Mapping[Key, datetime] | None = None,
) -> Sweep:
    """Judge every server once, and take its standing one step on.

    A server without evidence is one of which nobody knows. The last look at those that
    `Step.CHECK` names is a sweep over them alone, with new evidence and `used_at`.
    """
    with uncollected():
        return _sweep(subjects, evidence, standings, policy, now, used_at or {})


def _sweep(
    subjects: Iterable[Subject],
    evidence: Mapping[Key, Evidence],
    standings: Mapping[Key, Standing],
    policy: Policy,
    now: datetime,
    used_at: Mapping[Key, datetime],
) -> Sweep:
    found = Sweep()
    for subject in subjects:
        key = subject.key
        before = find_standing(subject, standings)
        try:
            verdict = judge(
                subject, evidence.get(key, NOTHING), policy, now=now, memory=before.memory
            )
            after, actions = step(before, verdict, now, used_at=used_at.get(key))
        except Exception as error:
            # one of thousands must not stop the others
            found.failures[key] = error
            continue
        found.verdicts[key], found.standings[key] = verdict, after
        found.actions.extend((subject, action) for action in actions)
    return found


def find_standing(subject: Subject, standings: Mapping[Key, Standing]) -> Standing:
    """How a server stands; a new run of it begins anew."""
    before = standings.get(subject.key)
    if before is None or before.pod_uid != subject.run.pod_uid:
        return Standing(pod_uid=subject.run.pod_uid)
    return before
