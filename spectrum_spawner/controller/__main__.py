"""`python -m spectrum_spawner.controller`: read the settings, then run until told to stop."""

import logging
import os
import sys

import kopf

from spectrum_spawner.controller.handlers import Controller, make_registry
from spectrum_spawner.controller.settings import Settings, SettingsError


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # probes and events that came in are no news
    for name in ("aiohttp.access", "kopf.activities", "kopf.objects"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        sys.exit(str(error))
    kopf.run(
        registry=make_registry(Controller(settings)),
        standalone=True,
        namespaces=[settings.hub_namespace],
        liveness_endpoint=f"http://0.0.0.0:{settings.health_port}/healthz",
    )


if __name__ == "__main__":
    main()
