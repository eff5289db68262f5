"""The culling policy from Helm values (`culling`) to records.

What cannot be meant, by itself or beside another rule, is refused here, by its place.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import combinations
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spectrum_spawner.activity import (
    CPU,
    GPU,
    HIGHEST,
    HUB,
    KERNELS,
    MEASURED,
    POWER,
    PROCESSES,
    SOURCES,
)
from spectrum_spawner.profiles import TENSORBOARD, Profile
from spectrum_spawner.service.culling.rules import DAY, Exemption, Policy, Rule, Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
WORK = frozenset({CPU, PROCESSES})  # what works while a GPU waits for data
MOST = 366 * DAY  # minutes
# minutes in which nobody looked at a TensorBoard, unless the values say; fewer would be rash
UNSEEN, LEAST_UNSEEN = 240, 15
MOST_RULES, MOST_WINDOWS, MOST_FLOORS = 100, 20, 8  # floors of one source: each costs a query

_RULE_KEYS = {
    "order", "profiles", "teams", "gpu", "idleMinutes", "evidence", "gpuFloor", "powerFloor",
    "cpuFloor", "graceMinutes", "minimumMinutes", "lifetimeMinutes", "warnMinutes",
    "extendMinutes", "extensions", "holdMinutes", "unknownMinutes", "schedule",
}  # fmt: skip


class PolicyError(ValueError):
    """A policy cannot be used; the text says where and why."""


def read_policy(
    values: Mapping[str, Any],
    profiles: Mapping[str, Profile],
    *,
    team_limits: tuple[int, int] = (15, 480),
    measured: bool = True,
) -> Policy:
    """The policy from the values table; raises PolicyError naming rule and field.

    Rules are a table by name and say their place by `order`, since tables have none. Before them
    comes the one that `tensorboardIdleMinutes` makes for servers that are TensorBoards.
    """
    _refuse_unknown("culling", values, {"rules", "exemptions", "tensorboardIdleMinutes"})
    ordered: dict[int, Rule] = {}
    for name, record in _few("culling.rules", values.get("rules"), MOST_RULES).items():
        place = f"culling.rules.{name}"
        if record is None:
            continue  # taken out of what the chart gives
        rule = _read_rule(place, name, _table(place, record), profiles, team_limits)
        order = _whole(f"{place}.order", record.get("order"), most=10**6)
        if order in ordered:
            raise PolicyError(f"{place}.order: rule {ordered[order].name} has {order} too")
        ordered[order] = rule
    rules = tuple(ordered[order] for order in sorted(ordered))
    for before, after in combinations(rules, 2):
        if _covers(before, after):
            raise PolicyError(
                f"culling.rules.{after.name}: never counts, since rule {before.name} comes first "
                "and matches whatever it does"
            )
    first = _make_tensorboard_rules(values.get("tensorboardIdleMinutes", UNSEEN), profiles)
    for rule in rules:
        # one for every profile has others left, or waits for them
        if rule.profiles and any(rule.profiles <= each.profiles for each in first):
            raise PolicyError(
                f"culling.rules.{rule.name}: never counts, since culling.tensorboardIdleMinutes "
                "comes first; 0 takes that out"
            )
    exemptions = tuple(
        _read_exemption(f"culling.exemptions.{name}", name, record, profiles)
        for name, record in _table("culling.exemptions", values.get("exemptions")).items()
        if record is not None
    )
    policy = Policy(
        rules=(*first, *rules), exemptions=exemptions, team_limits=team_limits, measured=measured
    )
    for source in MEASURED:
        if len(floors := policy.list_floors(source)) > MOST_FLOORS:
            raise PolicyError(
                f"culling.rules: {source} has {len(floors)} floors, of which {MOST_FLOORS} can be "
                "asked for"
            )
    return policy


def _make_tensorboard_rules(minutes: object, profiles: Mapping[str, Profile]) -> tuple[Rule, ...]:
    """The rule for servers that have no kernels and tell nothing of themselves: only the hub knows
    when somebody last looked. None where there are none, or at 0 minutes."""
    place = "culling.tensorboardIdleMinutes"
    idle = _whole(place, minutes)
    if 0 < idle < LEAST_UNSEEN:
        raise PolicyError(f"{place}: must be 0, for never, or {LEAST_UNSEEN} at least")
    boards = frozenset(name for name, each in profiles.items() if each.kind == TENSORBOARD)
    if not idle or not boards:
        return ()
    idle_time = timedelta(minutes=idle)
    return (Rule(name=TENSORBOARD, profiles=boards, idle=idle_time, evidence=(HUB,)),)


def _read_rule(
    place: str,
    name: str,
    record: Mapping[str, Any],
    profiles: Mapping[str, Profile],
    team_limits: tuple[int, int],
) -> Rule:
    _refuse_unknown(place, record, _RULE_KEYS)

    def minutes(key: str, default: timedelta, *, least: int = 0) -> timedelta:
        given = record.get(key, default // timedelta(minutes=1))
        return timedelta(minutes=_whole(f"{place}.{key}", given, least=least))

    def number(key: str, default: float, most: float) -> float:
        return _number(f"{place}.{key}", record.get(key, default), most)

    zone, windows = _read_schedule(f"{place}.schedule", record.get("schedule"))
    plain = Rule(name=name)
    rule = Rule(
        name=name,
        profiles=_read_profiles(f"{place}.profiles", record.get("profiles"), profiles),
        teams=_names(f"{place}.teams", record.get("teams")),
        gpu=_read_gpu(f"{place}.gpu", record.get("gpu")),
        idle=minutes("idleMinutes", plain.idle),
        evidence=_read_evidence(f"{place}.evidence", record.get("evidence")),
        gpu_floor=number("gpuFloor", plain.gpu_floor, HIGHEST[GPU]),
        power_floor=number("powerFloor", 0, HIGHEST[POWER]) if "powerFloor" in record else 0,
        cpu_floor=number("cpuFloor", plain.cpu_floor, HIGHEST[CPU]),
        grace=minutes("graceMinutes", plain.grace),
        minimum=minutes("minimumMinutes", plain.minimum),
        lifetime=minutes("lifetimeMinutes", plain.lifetime),
        warn=minutes("warnMinutes", plain.warn, least=1),
        extend=minutes("extendMinutes", plain.extend, least=1),
        extensions=_whole(f"{place}.extensions", record.get("extensions", plain.extensions)),
        hold=minutes("holdMinutes", plain.hold),
        unknown=minutes("unknownMinutes", plain.unknown, least=5),
        zone=zone,
        windows=windows,
    )
    _check_times(place, rule, record, team_limits)
    _check_evidence(place, rule, profiles)
    return rule


def _check_times(
    place: str, rule: Rule, given: Mapping[str, Any], team_limits: tuple[int, int]
) -> None:
    """Refuse times that contradict each other."""
    shortest = timedelta(minutes=team_limits[0])
    for what, idle in (
        ("idleMinutes", rule.idle),
        *((f"schedule.windows.{window.name}.idleMinutes", window.idle) for window in rule.windows),
    ):
        if idle and rule.warn >= idle:
            raise PolicyError(f"{place}.{what}: must be above warnMinutes")
    if rule.idle and rule.warn >= shortest:
        raise PolicyError(
            f"{place}.warnMinutes: must be below the {team_limits[0]} minutes that a team may set"
        )
    if not rule.lifetime:
        return
    for key, time in (
        ("warnMinutes", rule.warn),
        ("graceMinutes", rule.grace),
        ("minimumMinutes", rule.minimum),
    ):
        if time >= rule.lifetime:
            raise PolicyError(f"{place}.lifetimeMinutes: must be above {key}")
    if "holdMinutes" in given and rule.hold > rule.lifetime:
        raise PolicyError(f"{place}.holdMinutes: must not be above lifetimeMinutes")


def _check_evidence(place: str, rule: Rule, profiles: Mapping[str, Profile]) -> None:
    """Refuse evidence that cannot tell an idle server from one that works."""
    place = f"{place}.evidence"
    ends_idle = bool(rule.idle or any(window.idle for window in rule.windows))
    if POWER in rule.evidence and not rule.power_floor:
        raise PolicyError(f"{place}: power needs a powerFloor in watts")
    if rule.power_floor and POWER not in rule.evidence:
        raise PolicyError(f"{place}: powerFloor counts only with power among the evidence")
    if not ends_idle:
        return
    if not rule.evidence:
        raise PolicyError(f"{place}: name what must be idle, of {', '.join(SOURCES)}")
    # where no profile has a GPU, a rule for GPUs waits for the first one
    matched = rule.profiles or profiles.keys()
    has_gpu = (rule.gpu and not rule.profiles) or any(profiles[name].gpu for name in matched)
    if rule.gpu is False or not has_gpu:
        if {GPU, POWER} & set(rule.evidence):
            raise PolicyError(f"{place}: the servers of this rule have no GPU")
        return
    if GPU not in rule.evidence:
        raise PolicyError(f"{place}: servers of this rule have GPUs, so gpu must be among it")
    if not WORK & set(rule.evidence):
        raise PolicyError(
            f"{place}: a GPU that waits for data looks idle while a training goes on, so "
            f"{' or '.join(sorted(WORK))} must be among it"
        )
    if not {KERNELS, CPU} & set(rule.evidence):
        raise PolicyError(f"{place}: a cell that runs would not count, so name kernels or cpu")


def _covers(before: Rule, after: Rule) -> bool:
    """Whether nothing is left for the second rule."""
    return (
        (not before.profiles or (bool(after.profiles) and after.profiles <= before.profiles))
        and (not before.teams or (bool(after.teams) and after.teams <= before.teams))
        and before.gpu in (None, after.gpu)
    )


def _read_gpu(place: str, value: object) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise PolicyError(f"{place}: {value!r} is neither true nor false")


def _read_evidence(place: str, value: object) -> tuple[str, ...]:
    named = _names(place, value)
    for source in sorted(named - set(SOURCES)):
        raise PolicyError(f"{place}: there is no {source!r}, known are {', '.join(SOURCES)}")
    return tuple(source for source in SOURCES if source in named)


def _read_profiles(place: str, value: object, profiles: Mapping[str, Profile]) -> frozenset[str]:
    named = _names(place, value)
    for name in sorted(named - profiles.keys()):
        raise PolicyError(f"{place}: there is no profile {name!r}")
    return named


def _read_schedule(place: str, value: object) -> tuple[ZoneInfo | None, tuple[Window, ...]]:
    if value is None:
        return None, ()
    record = _table(place, value)
    _refuse_unknown(place, record, {"timeZone", "windows"})
    zone = _read_zone(f"{place}.timeZone", record.get("timeZone"))
    windows = tuple(
        _read_window(f"{place}.windows.{name}", name, each)
        for name, each in _few(f"{place}.windows", record.get("windows"), MOST_WINDOWS).items()
        if each is not None
    )
    for one, other in combinations(windows, 2):
        if not _minutes_of(one).isdisjoint(_minutes_of(other)):
            raise PolicyError(f"{place}.windows: {one.name} and {other.name} overlap")
    return zone, windows


def _read_zone(place: str, value: object) -> ZoneInfo:
    try:
        if isinstance(value, str) and value:
            return ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PolicyError(f"{place}: there is no time zone {value!r}") from error
    raise PolicyError(f"{place}: a time zone such as Europe/Berlin is needed")


def _read_window(place: str, name: str, value: object) -> Window:
    record = _table(place, value)
    _refuse_unknown(place, record, {"days", "from", "to", "idleMinutes"})
    days = _names(f"{place}.days", record.get("days")) or frozenset(DAYS)
    for day in sorted(days - set(DAYS)):
        raise PolicyError(f"{place}.days: {day!r} is none of {', '.join(DAYS)}")
    start, end = (
        _clock(f"{place}.from", record.get("from")),
        _clock(f"{place}.to", record.get("to")),
    )
    if start in (end, DAY):
        raise PolicyError(f"{place}: it ends when it begins; a whole day is 00:00 to 24:00")
    idle = _whole(f"{place}.idleMinutes", record.get("idleMinutes"))
    return Window(
        name=name,
        days=frozenset(DAYS.index(day) for day in days),
        start=start,
        end=end,
        idle=timedelta(minutes=idle),
    )


def _minutes_of(window: Window) -> frozenset[int]:
    """The minutes of the week in which it is open."""
    length = (window.end - window.start) % DAY or DAY
    return frozenset(
        (day * DAY + window.start + minute) % (7 * DAY)
        for day in window.days
        for minute in range(length)
    )


def _clock(place: str, value: object) -> int:
    """Minutes of the day of a text such as 18:30."""
    hours, _, minutes = value.partition(":") if isinstance(value, str) else ("", "", "")
    if len(hours) == len(minutes) == 2 and hours.isdecimal() and minutes.isdecimal():
        time = int(hours) * 60 + int(minutes)
        if int(minutes) < 60 and time <= DAY:
            return time
    raise PolicyError(f'{place}: {value!r} is no time of the day such as "18:30"')


def _read_exemption(
    place: str, name: str, value: object, profiles: Mapping[str, Profile]
) -> Exemption:
    record = _table(place, value)
    _refuse_unknown(place, record, {"users", "teams", "profiles", "until", "reason"})
    exemption = Exemption(
        name=name,
        until=_moment(f"{place}.until", record.get("until")),
        users=_names(f"{place}.users", record.get("users")),
        teams=_names(f"{place}.teams", record.get("teams")),
        profiles=_read_profiles(f"{place}.profiles", record.get("profiles"), profiles),
        reason=str(record.get("reason") or ""),
    )
    if not (exemption.users or exemption.teams or exemption.profiles):
        raise PolicyError(f"{place}: name users, teams or profiles; it would exempt everybody")
    return exemption


def _moment(place: str, value: object) -> datetime:
    """An exemption has an end; one that is past has lapsed, which is no mistake."""
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise PolicyError(
            f"{place}: {value!r} is no time with a zone such as 2026-12-31T18:00:00+01:00"
        )
    return moment


def _table(place: str, value: object) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise PolicyError(f"{place}: must be a table")
    return value


def _few(place: str, value: object, most: int) -> Mapping[str, Any]:
    table = _table(place, value)
    if len(table) > most:
        raise PolicyError(f"{place}: has {len(table)} entries, {most} at most")
    return table


def _refuse_unknown(place: str, record: Mapping[str, Any], known: set[str]) -> None:
    for key in record:
        if key not in known:
            raise PolicyError(f"{place}.{key}: unknown key, known are {', '.join(sorted(known))}")


def _names(place: str, value: object) -> frozenset[str]:
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise PolicyError(f"{place}: must be a list of names")
    return frozenset(value)


def _whole(place: str, value: object, *, least: int = 0, most: int = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PolicyError(f"{place}: {value!r} is no whole number from {least} to {most}")
    return value


def _number(place: str, value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise PolicyError(f"{place}: {value!r} is no number above 0 and up to {most:g}")
    return float(value)
