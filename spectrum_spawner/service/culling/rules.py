"""Rules: when a server is idle and what follows. `policy_values` makes them of the values. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from spectrum_spawner.activity import CPU, GPU, POWER, SKEW, Run

DAY = 24 * 60  # minutes
HOUR = timedelta(hours=1)
# How far back a measurement is asked for at most. What is idle for longer is remembered from look
# to look; more would cost Prometheus a step for each minute of each pod.
LONGEST_LOOKBACK = 2 * HOUR


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """A running server as the rules see it; all but `run` are names.

    `idle_minutes` is what its team asked for, None for nothing.
    """

    user: str
    server: str
    team: str
    profile: str
    namespace: str
    pod: str
    run: Run
    idle_minutes: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.user, self.server

    def is_of(self, asked: datetime) -> bool:
        """Whether its pod may be of a start that was asked for then: not if it ran before."""
        return asked <= self.run.started + SKEW


@dataclass(frozen=True, kw_only=True)
class Window:
    """Times of the week, by the wall clock, in which another idle time holds.

    `days` count from Monday = 0 and say when it begins; `start` and `end` are minutes of the day,
    and a window whose end is not after its start goes on into the next day.
    """

    name: str
    days: frozenset[int]
    start: int
    end: int
    idle: timedelta

    def is_open(self, local: datetime) -> bool:
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.start < self.end:
            return day in self.days and self.start <= minute < self.end
        began_today = day in self.days and minute >= self.start
        return began_today or ((day - 1) % 7 in self.days and minute < self.end)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. An empty set of profiles or teams is all of them, `gpu` None both kinds.

    `idle` is the time without work after which a server ends, zero for never; it begins `grace`
    after the start at the earliest, and no idle server ends before `minimum`. `evidence` names
    the sources that must all say idle. GPUs below `gpu_floor` percent, `power_floor` watts and
    containers below `cpu_floor` cores do nothing. `lifetime` ends a server whatever it does, zero
    never. People hear of an end `warn` before; each of at most `extensions` clicks adds `extend`.
    Holds without work between them last `hold` at most, together. `unknown` is how long nobody may
    know what a server does before people are told.
    """

    name: str
    profiles: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    gpu: bool | None = None
    idle: timedelta = HOUR
    evidence: tuple[str, ...] = ()
    gpu_floor: float = 1.0
    power_floor: float = 0.0
    cpu_floor: float = 0.1
    grace: timedelta = HOUR / 4
    minimum: timedelta = timedelta()
    lifetime: timedelta = timedelta()
    warn: timedelta = HOUR / 6
    extend: timedelta = HOUR
    extensions: int = 2
    hold: timedelta = 24 * HOUR
    unknown: timedelta = 2 * HOUR
    zone: ZoneInfo | None = None
    windows: tuple[Window, ...] = ()

    def matches(self, subject: Subject) -> bool:
        return (
            (not self.profiles or subject.profile in self.profiles)
            and (not self.teams or subject.team in self.teams)
            and self.gpu in (None, subject.run.gpus > 0)
        )

    @cached_property
    def criteria(self) -> str:
        """By what it calls a server idle: idle by one is not idle by another."""
        return ", ".join(f"{source}<{self.floor_of(source):g}" for source in self.evidence)

    @property
    def notice(self) -> timedelta:
        """How long before people hear of the end of a lifetime: whatever runs then is lost."""
        return max(self.warn, self.lifetime / 7)

    def floor_of(self, source: str) -> float:
        if source == GPU:
            return self.gpu_floor
        if source == POWER:
            return self.power_floor
        return self.cpu_floor if source == CPU else 0

    def find_window(self, now: datetime) -> Window | None:
        if not self.windows:
            return None
        local = now.astimezone(self.zone)
        return next((window for window in self.windows if window.is_open(local)), None)


@dataclass(frozen=True, kw_only=True)
class Exemption:
    """Servers that no rule ends until a moment; an empty set is everybody, at least one is not."""

    name: str
    until: datetime
    users: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    profiles: frozenset[str] = frozenset()
    reason: str = ""

    def holds(self, subject: Subject, now: datetime) -> bool:
        return (
            now < self.until
            and (not self.users or subject.user in self.users)
            and (not self.teams or subject.team in self.teams)
            and (not self.profiles or subject.profile in self.profiles)
        )


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All rules in their order, of which the first that matches counts.

    `team_limits` are the least and the most minutes that a team's own wish may set. Where nothing
    is `measured`, it is no news that nobody knows what GPUs do.
    """

    rules: tuple[Rule, ...] = ()
    exemptions: tuple[Exemption, ...] = ()
    team_limits: tuple[int, int] = (15, 480)
    measured: bool = True

    def find_rule(self, subject: Subject) -> Rule | None:
        return next((rule for rule in self.rules if rule.matches(subject)), None)

    def find_exemption(self, subject: Subject, now: datetime) -> Exemption | None:
        return next((each for each in self.exemptions if each.holds(subject, now)), None)

    def idle_of(self, rule: Rule, subject: Subject, now: datetime) -> timedelta:
        """The time without work that ends a server now; zero for never.

        A team's wish counts within the limits, where the rule ends idle servers at all, and never
        loosens what holds at set times of the week.
        """
        window = rule.find_window(now)
        idle = window.idle if window else rule.idle
        if subject.idle_minutes is None or not idle:
            return idle
        least, most = self.team_limits
        wish = timedelta(minutes=min(max(subject.idle_minutes, least), most))
        return min(wish, idle) if window else wish

    def find_lookback(self, source: str, wishes: Iterable[int | None]) -> timedelta:
        """How far back a source is to be asked for, given what teams wish."""
        rules = [rule for rule in self.rules if source in rule.evidence]
        times = [rule.idle for rule in rules]
        times += [window.idle for rule in rules for window in rule.windows]
        times += [timedelta(minutes=wish) for wish in wishes if wish and rules]
        return min(max(times, default=HOUR), LONGEST_LOOKBACK)

    def list_floors(self, source: str) -> tuple[float, ...]:
        """The floors of one source that any rule asks for."""
        asked = {rule.floor_of(source) for rule in self.rules if source in rule.evidence}
        return tuple(sorted(asked))
