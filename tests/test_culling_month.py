"""A month of trainings that pause: none that works is ended, and idle GPUs come back."""

import random
from dataclasses import replace

from spectrum_spawner.activity import CPU, GPU, KERNELS, PROCESSES
from spectrum_spawner.service.culling.rules import Rule
from tests.culling_life import DAYS, MINUTE, live, make_life

RULE = Rule(name="gpu", evidence=(GPU, CPU, KERNELS, PROCESSES), warn=20 * MINUTE)
LIVES = [make_life(f"user-{number}", random.Random(number)) for number in range(4)]


def test_the_month_is_like_those_of_real_gpus() -> None:
    found = [life.list_pauses() for life in LIVES]
    inside, others = (sum(len(spans[i]) for spans in found) for i in (0, 1))
    working = sum(end - start for life in LIVES for start, end in life.gpu)
    jobs = sum(end - start for life in LIVES for start, end in life.jobs)
    assert 0.6 < inside / (inside + others) < 0.75
    assert 0.2 < 1 - working / jobs < 0.4


def test_in_a_month_no_server_is_ended_while_it_works() -> None:
    month = live(LIVES, RULE, every=15)
    assert month.stopped_busy == 0
    assert month.stopped_idle > 100
    assert month.extended > 10
    # of the time in which nobody works, servers run for an hour or two at a time
    idle = len(LIVES) * DAYS * 1440 - month.minutes["busy"]
    assert month.minutes["idle"] < idle / 4


def test_what_is_idle_for_longer_than_is_measured_ends_as_well() -> None:
    month = live(LIVES, replace(RULE, idle=300 * MINUTE), every=15)
    assert month.stopped_busy == 0
    assert month.stopped_idle > 20


def test_a_gpu_that_does_nothing_proves_nothing_alone() -> None:
    month = live(LIVES, Rule(name="gpu", evidence=(GPU,), warn=20 * MINUTE), every=15)
    assert month.stopped_busy > 10
