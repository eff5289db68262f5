"""A month of many servers in moved time: how many that worked were ended.

    local/test bench, or: python -m tests.bench.cull_month

The lives are made up after what is public of real GPUs (tests/culling_life.py). Beside the chart's
rule stands what a culler would do that looks at the GPU alone. Prints a table and one JSON line.
"""

import json
import random
import time
from datetime import timedelta

from spectrum_spawner.activity import CPU, GPU, KERNELS, PROCESSES
from spectrum_spawner.service.culling.rules import Rule
from tests.culling_life import DAYS, live, make_life

SERVERS = 24
EVERY = 5  # minutes between two looks
RULES = {
    "all evidence": Rule(name="all", evidence=(GPU, CPU, KERNELS, PROCESSES)),
    "all evidence, 8 hours": Rule(
        name="long", evidence=(GPU, CPU, KERNELS, PROCESSES), idle=timedelta(hours=8)
    ),
    "any image: GPU and CPU": Rule(name="any", evidence=(GPU, CPU)),
    "GPU alone": Rule(name="gpu", evidence=(GPU,)),
}


def main() -> None:
    lives = [make_life(f"user-{number}", random.Random(number)) for number in range(SERVERS)]
    rows = {}
    for name, rule in RULES.items():
        began = time.process_time()
        rows[name] = live(lives, rule, every=EVERY), time.process_time() - began
    print(f"{'ended in the month':<26}{'working':>9}{'idle':>7}{'idle GPU h':>12}{'CPU s':>7}")
    for name, (month, seconds) in rows.items():
        hours = month.minutes["idle"] / 60
        print(
            f"{name:<26}{month.stopped_busy:>9}{month.stopped_idle:>7}{hours:>12.0f}{seconds:>7.1f}"
        )
    ours, _ = rows["all evidence"]
    never = (SERVERS * DAYS * 1440 - ours.minutes["busy"]) / 60
    print(f"{'no culler':<26}{0:>9}{0:>7}{never:>12.0f}")
    line = {
        "what": "cull month",
        "servers": SERVERS,
        "days": DAYS,
        "busy_culled": ours.stopped_busy,
        "idle_culled": ours.stopped_idle,
        "busy_culled_after_8_hours": rows["all evidence, 8 hours"][0].stopped_busy,
        "busy_culled_by_gpu_alone": rows["GPU alone"][0].stopped_busy,
        "idle_hours": round(ours.minutes["idle"] / 60),
        "idle_hours_without": round(never),
        "met": ours.stopped_busy == 0 and ours.stopped_idle > 0,
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
