"""The stops of idle servers: the culler's and jupyterhub-idle-culler's on the same hub.

    local/test bench, or: python -m tests.bench.cull_stops [--servers N] [--idle N]

A JupyterHub of its own, with its database in SQLite, believes that so many servers run; a stop of
one costs its spawner a set time. Each culler ends as many of them, ten at a time if it can: ours
asks the hub about each once more, writes each stop into a ledger and then asks for it; the other
reads the whole list first. Prints a table, and one JSON line at the end.
"""

import argparse
import asyncio
import json
import time
from typing import Any

from tests.crowded_hub import (
    CONCURRENCY,
    DAYS,
    LATELY,
    Idle,
    Place,
    Running,
    cull_theirs,
    make_subject,
    make_warned,
    open_ours,
    serve,
)

BARS = {1.0: 6.0, 0.02: 1.4}  # times as fast, by the seconds that a stop costs


async def cull_ours(place: Place, numbers: range) -> float:
    """Seconds in which servers whose time is over are ended."""
    subjects = [make_subject(number) for number in numbers]
    async with open_ours(place, Running(), Idle()) as ours:
        await ours.standings.change({subject.key: make_warned(subject) for subject in subjects})
        begun = time.monotonic()
        ours.ends.offer(subjects)
        await ours.wait_ended()
        return time.monotonic() - begun


def play(servers: int, idle: int, cost: float) -> dict[str, Any]:
    unused = [DAYS] * idle + [LATELY] * (servers - idle)
    with serve(unused, cost) as place:
        theirs = cull_theirs(place)
        their_most, left = place.take_most(), len(place.list_active())
        if left != servers - idle:
            raise SystemExit(f"jupyterhub-idle-culler left {left} of {servers} servers")
        ours = asyncio.run(cull_ours(place, range(idle, 2 * idle)))
        our_most, left = place.take_most(), len(place.list_active())
        if left != servers - 2 * idle:
            raise SystemExit(f"the culler left {left} of {servers - idle} servers")
    return {
        "cost": cost,
        "ours": round(ours, 2),
        "theirs": round(theirs, 2),
        "times": round(theirs / ours, 2),
        "in_flight": our_most,
        "in_flight_theirs": their_most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare how fast idle servers are stopped.")
    parser.add_argument("--servers", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=300)
    parser.add_argument("--costs", type=float, nargs="+", default=list(BARS))
    arguments = parser.parse_args()
    rows = [play(arguments.servers, arguments.idle, cost) for cost in arguments.costs]
    print(f"{arguments.idle} stops of {arguments.servers} servers, in seconds")
    print(
        f"{'a stop':>8}{'ours':>9}{'at once':>9}{'theirs':>9}{'at once':>9}{'times':>8}{'bar':>6}"
    )
    for row in rows:
        print(
            f"{row['cost']:>8g}{row['ours']:>9.1f}{row['in_flight']:>9}{row['theirs']:>9.1f}"
            f"{row['in_flight_theirs']:>9}{row['times']:>8.1f}{BARS.get(row['cost'], 1.0):>6g}"
        )
    flights = [row["in_flight"] for row in rows]
    fast = all(row["times"] >= BARS.get(row["cost"], 1.0) for row in rows)
    met = fast and max(flights) == CONCURRENCY
    print(json.dumps({"what": "cull stops", "rows": rows, "met": met}))


if __name__ == "__main__":
    main()
