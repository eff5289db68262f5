"""What tests have stopped is started again, as a person does it; it outlives the tests."""

import sys

from local.commands import run
from local.paths import CHECKOUT


def start_what_does_not_run() -> None:
    run([sys.executable, "-m", "local", "up", "--cluster-only"], directory=CHECKOUT)
