"""`python -m spectrum_spawner.service`: read the settings, then serve until told to stop."""

import asyncio
import logging
import os
import signal
import sys

from spectrum_spawner.kube import load_configuration
from spectrum_spawner.service.app import serve
from spectrum_spawner.service.ledger import LedgerError
from spectrum_spawner.service.settings import Settings, SettingsError


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # JupyterHub's part writes a line for each cookie that it looks at
    logging.getLogger("tornado.application").setLevel(logging.ERROR)
    try:
        asyncio.run(_run(Settings.from_environment(os.environ)))
    except (SettingsError, LedgerError) as error:
        sys.exit(str(error))


async def _run(settings: Settings) -> None:
    told_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop.set)
    async with serve(settings, await load_configuration()):
        await told_to_stop.wait()


if __name__ == "__main__":
    main()
