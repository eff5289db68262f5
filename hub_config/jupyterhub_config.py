"""JupyterHub's configuration: values of the Helm chart become traits, by tables.

Reads the JSON file that $SPECTRUM_VALUES names and one file per secret in the directory that
$SPECTRUM_SECRETS names. Asks nothing of the cluster. Whatever is wrong with the values stops
the hub with one sentence that names the place.
"""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import spectrum_spawner
from spectrum_spawner.profile_values import ProfileError, read_profiles

c = get_config()

# Which trait each value sets. A value that is in no table is a misplaced key.
TRAITS = {
    "hub.baseUrl": "JupyterHub.base_url",
    "auth.admins": "TableAuthenticator.admin_users",
    "auth.users": "TableAuthenticator.allowed_users",
    "auth.groups": "TableAuthenticator.members",
    "auth.contact": "SpectrumSpawner.contact",
    "images": "SpectrumSpawner.images",
    "profiles": "SpectrumSpawner.profiles",
    "singleuser.startTimeout": "SpectrumSpawner.start_timeout",
    "singleuser.httpTimeout": "SpectrumSpawner.http_timeout",
    "singleuser.homeSize": "SpectrumSpawner.home_size",
    "singleuser.homeStorageClass": "SpectrumSpawner.home_storage_class",
    "singleuser.defaultUrl": "SpectrumSpawner.default_url",
}

# Values that have one answer so far, and what another answer is told.
ANSWERS = {
    "auth.method": ("shared-password", "auth.method: the only method so far is shared-password"),
    "auth.acceptSharedPassword": (
        True,
        "auth.acceptSharedPassword: with method shared-password anybody who knows the password "
        "can sign in as anybody; set it to true if that is acceptable here",
    ),
}

SECRETS = {
    "proxyToken": ("ConfigurableHTTPProxy.auth_token", str),
    "cookieSecret": ("JupyterHub.cookie_secret", bytes.fromhex),
    "cryptKey": ("CryptKeeper.keys", lambda text: [bytes.fromhex(text)]),
    "userPassword": ("TableAuthenticator.user_password", str),
    "adminPassword": ("TableAuthenticator.admin_password", str),
}


def main() -> None:
    namespace = os.environ["POD_NAMESPACE"]
    found = dict(find_values(read_values()))
    for place, (answer, sentence) in ANSWERS.items():
        if found.pop(place, None) != answer:
            stop(sentence)
    try:
        read_profiles(found.get("profiles", {}), found.get("images", {}))
    except ProfileError as error:
        stop(str(error))
    # JupyterHub makes an account for each of these names, and lets nobody else sign in.
    tables = found.get("auth.admins", []), *found.get("auth.groups", {}).values()
    found["auth.users"] = sorted({*found.get("auth.users", []), *chain.from_iterable(tables)})
    for place, value in found.items():
        set_trait(TRAITS[place], value)
    for key, (trait, read) in SECRETS.items():
        set_trait(trait, read(read_secret(key)))
    for trait, value in make_fixed(namespace).items():
        set_trait(trait, value)


def make_fixed(namespace: str) -> dict[str, Any]:
    """Traits that no value changes."""
    return {
        "JupyterHub.spawner_class": "spectrum_spawner.spawner.SpectrumSpawner",
        "JupyterHub.authenticator_class": "spectrum_spawner.identity.TableAuthenticator",
        "JupyterHub.template_paths": [
            str(Path(spectrum_spawner.__file__).with_name("templates")),
        ],
        "JupyterHub.hub_bind_url": "http://0.0.0.0:8081",
        # Servers live in other namespaces, so the address must say in which one the hub is.
        "JupyterHub.hub_connect_url": f"http://hub.{namespace}:8081",
        "JupyterHub.db_url": "sqlite:////srv/jupyterhub/jupyterhub.sqlite",
        "JupyterHub.upgrade_db": True,
        # Servers outlive the hub: an upgrade or a crash of it stops nobody's work.
        "JupyterHub.cleanup_servers": False,
        "JupyterHub.allow_named_servers": True,
        "JupyterHub.named_server_limit_per_user": 5,
        "ConfigurableHTTPProxy.should_start": False,
        "ConfigurableHTTPProxy.api_url": "http://proxy-api:8001",
        "SpectrumSpawner.hub_namespace": namespace,
        # One team's broken image must not restart the hub for everybody.
        "SpectrumSpawner.consecutive_failure_limit": 0,
    }


def read_values() -> dict[str, Any]:
    return json.loads(Path(os.environ["SPECTRUM_VALUES"]).read_text())


def read_secret(key: str) -> str:
    return (Path(os.environ["SPECTRUM_SECRETS"]) / key).read_text().strip()


def find_values(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Places such as `hub.baseUrl` with their values; a place that no table knows stops the hub."""
    known = {*TRAITS, *ANSWERS}
    for key, value in values.items():
        place = above + key
        if place in known:
            yield place, value
        elif isinstance(value, Mapping) and any(k.startswith(f"{place}.") for k in known):
            yield from find_values(value, f"{place}.")
        else:
            near = sorted(k for k in known if k.startswith(above))
            stop(f"{place}: unknown key, known are {', '.join(near)}")


def set_trait(name: str, value: Any) -> None:
    section, trait = name.split(".")
    c[section][trait] = value


def stop(sentence: str) -> NoReturn:
    sys.exit(f"The values are wrong. {sentence}")


main()
