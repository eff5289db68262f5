"""JupyterHub's configuration: values of the Helm chart become traits, by tables.

Reads the JSON file that $SPECTRUM_VALUES names and one file per secret in the directory that
$SPECTRUM_SECRETS names. Asks nothing of the cluster. Whatever is wrong with the values stops
the hub with one sentence that names the place.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from spectrum_spawner import hub_pages
from spectrum_spawner.profile_values import ProfileError, read_profiles
from spectrum_spawner.providers import PROVIDERS
from spectrum_spawner.team_templates import TemplateError, read_templates

c = get_config()

# Which trait each value sets. A value that is in no table is a misplaced key.
TRAITS = {
    "hub.baseUrl": "JupyterHub.base_url",
    "auth.contact": "SpectrumSpawner.contact",
    "auth.refreshAge": "Authenticator.auth_refresh_age",
    "images": "SpectrumSpawner.images",
    "profiles": "SpectrumSpawner.profiles",
    "singleuser.startTimeout": "SpectrumSpawner.start_timeout",
    "singleuser.httpTimeout": "SpectrumSpawner.http_timeout",
    "singleuser.defaultUrl": "SpectrumSpawner.default_url",
    "storage.home.size": "SpectrumSpawner.home_size",
    "storage.home.storageClass": "SpectrumSpawner.home_storage_class",
    "teamTemplates": "Identity.team_templates",
}
PASSWORD_TRAITS = {
    "auth.admins": "TableAuthenticator.admin_users",
    "auth.users": "TableAuthenticator.allowed_users",
    "auth.groups": "TableAuthenticator.members",
}
# Of these an empty value says nothing, and leaves what is usual for the provider.
OAUTH_TRAITS = {
    "auth.visitorsRefreshAge": "ProviderIdentity.visitors_refresh_age",
    "auth.groupsMaxAge": "ProviderIdentity.groups_max_age",
    "auth.oauth.clientId": "OAuthenticator.client_id",
    "auth.oauth.callbackUrl": "OAuthenticator.oauth_callback_url",
    "auth.oauth.authorizeUrl": "OAuthenticator.authorize_url",
    "auth.oauth.tokenUrl": "OAuthenticator.token_url",
    "auth.oauth.userdataUrl": "OAuthenticator.userdata_url",
    "auth.oauth.scopes": "OAuthenticator.scope",
    "auth.oauth.usernameClaim": "OAuthenticator.username_claim",
    "auth.oauth.subjectClaim": "ProviderIdentity.subject_claim",
    "auth.oauth.groupsClaim": "ProviderIdentity.groups_claim",
    "auth.oauth.allowedGroups": "OAuthenticator.allowed_groups",
    "auth.oauth.adminGroups": "OAuthenticator.admin_groups",
    "auth.oauth.allowAll": "OAuthenticator.allow_all",
}

# Each secret, what reads it and the traits that it sets.
SECRETS = {
    "proxyToken": (str, ["ConfigurableHTTPProxy.auth_token"]),
    "cookieSecret": (bytes.fromhex, ["JupyterHub.cookie_secret"]),
    "cryptKey": (lambda text: [bytes.fromhex(text)], ["CryptKeeper.keys"]),
    "auditTokenHub": (str, ["SpectrumSpawner.audit_token", "Identity.audit_token"]),
}
PASSWORD_SECRETS = {
    "userPassword": (str, ["TableAuthenticator.user_password"]),
    "adminPassword": (str, ["TableAuthenticator.admin_password"]),
}
OAUTH_SECRETS = {"oauthClientSecret": (str, ["OAuthenticator.client_secret"])}

# How people sign in: tables of a method, and the values that are read by themselves.
METHODS = {
    "shared-password": (PASSWORD_TRAITS, PASSWORD_SECRETS, {"auth.acceptSharedPassword"}),
    "oauth": (OAUTH_TRAITS, OAUTH_SECRETS, {"auth.oauth.provider", "auth.oauth.extra"}),
}
NEEDED = ("auth.oauth.clientId", "auth.oauth.callbackUrl")
NEEDED_URLS = ("auth.oauth.authorizeUrl", "auth.oauth.tokenUrl", "auth.oauth.userdataUrl")
# What identity rests on; everything else of a provider's class may be set as an extra.
NO_EXTRAS = {
    *("manage_groups", "manage_roles", "enable_auth_state", "allow_existing_users"),
    *("refresh_pre_spawn", "refresh_pre_stop", "auth_refresh_strict", "auth_refresh_age"),
    *("hub_namespace", "team_templates", "audit_file", "audit_url", "audit_token", "client_secret"),
    # functions, which values cannot hold
    *("post_auth_hook", "refresh_user_hook", "modify_auth_state_hook", "reconcile_auth_state_hook"),
}
PLACEHOLDER = re.compile(
    r"<.*>|(change|replace)[-_ ]?me|todo|x{3,}|https?://([^/]*\.)?example(\.(com|org|net))?[/:].*",
    re.IGNORECASE,
)

ACT = "custom:spectrum:act"  # a server's own token lacks it
REPORT = "custom:spectrum:report"  # for one server, its own token has it alone


def main() -> None:
    namespace = os.environ["POD_NAMESPACE"]
    values = read_values()
    method = values.get("auth", {}).get("method")
    if method not in METHODS:
        stop(f"auth.method: {method!r} is none of {', '.join(METHODS)}")
    traits, secrets, others = METHODS[method]
    known = {**TRAITS, **traits}
    found = dict(find_values(values, {*known, *others, "auth.method"}))
    check_values(found)
    read_method = read_passwords if method == "shared-password" else read_oauth
    for trait, value in read_method(found).items():
        set_trait(trait, value)
    for place, value in found.items():
        if place in known:
            set_trait(known[place], value)
    for key, (read, targets) in {**SECRETS, **secrets}.items():
        for trait in targets:
            set_trait(trait, read(read_secret(key)))
    fixed = {**make_fixed(namespace), **make_service(namespace, read_secret("serviceToken"))}
    for trait, value in fixed.items():
        set_trait(trait, value)


def check_values(found: Mapping[str, Any]) -> None:
    try:
        read_profiles(found.get("profiles", {}), found.get("images", {}))
        read_templates(found.get("teamTemplates", {}))
    except (ProfileError, TemplateError) as error:
        stop(str(error))
    least_of = {"auth.refreshAge": 1, "auth.visitorsRefreshAge": 1, "auth.groupsMaxAge": 60}
    for place, least in least_of.items():
        value = found.get(place, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            stop(f"{place}: {value!r} is no number of seconds from {least} on")


def read_passwords(found: dict[str, Any]) -> dict[str, Any]:
    """Traits of the method shared-password; makes the list of users whole."""
    if found.get("auth.acceptSharedPassword") is not True:
        stop(
            "auth.acceptSharedPassword: with method shared-password anybody who knows the "
            "password can sign in as anybody; set it to true if that is acceptable here"
        )
    # JupyterHub makes an account for each of these names, and lets nobody else sign in.
    tables = found.get("auth.admins", []), *found.get("auth.groups", {}).values()
    found["auth.users"] = sorted({*found.get("auth.users", []), *chain.from_iterable(tables)})
    return {"JupyterHub.authenticator_class": "spectrum_spawner.identity.TableAuthenticator"}


def read_oauth(found: dict[str, Any]) -> dict[str, Any]:
    """Traits of the method oauth; drops the values that say nothing."""
    for place in OAUTH_TRAITS:
        if found.get(place) in ("", [], None):
            found.pop(place, None)
    provider = found.get("auth.oauth.provider")
    if provider not in PROVIDERS:
        stop(f"auth.oauth.provider: {provider!r} is none of {', '.join(PROVIDERS)}")
    extra = found.get("auth.oauth.extra", {})
    check_oauth(provider, found, extra)
    kind = PROVIDERS[provider]
    known = {*kind.class_trait_names(config=True)} - NO_EXTRAS
    known -= {trait.partition(".")[2] for trait in OAUTH_TRAITS.values()}
    for trait in extra:
        if trait not in known:
            stop(f"auth.oauth.extra.{trait}: is no setting of provider {provider} to be set here")
    contact = found.get("auth.contact") or "a cluster administrator"
    unknown = f"You are in no group that may sign in here: ask {contact}."
    return {
        "JupyterHub.authenticator_class": f"{kind.__module__}.{kind.__name__}",
        "OAuthenticator.custom_403_message": unknown,
        **{f"{kind.__name__}.{trait}": value for trait, value in extra.items()},
    }


def check_oauth(provider: str, found: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
    needed = [*NEEDED, *(NEEDED_URLS if provider == "generic" else ())]
    for place in needed:
        if place not in found:
            stop(f"{place}: is needed to sign in by provider {provider}")
    for place in {*needed, *NEEDED_URLS} & found.keys():
        if PLACEHOLDER.fullmatch(str(found[place])):
            stop(f"{place}: {found[place]!r} is a placeholder")
        if place.endswith("Url") and not re.match(r"https?://[^/]", str(found[place])):
            stop(f"{place}: {found[place]!r} is no URL")
    if provider == "azuread" and not extra.get("tenant_id"):
        stop("auth.oauth.extra.tenant_id: is needed to sign in by provider azuread")
    allowing = ("auth.oauth.allowAll", "auth.oauth.allowedGroups", "auth.oauth.adminGroups")
    if not any(map(found.get, allowing)) and not any(key.startswith("allowed_") for key in extra):
        stop(f"auth.oauth: nobody may sign in; set one of {', '.join(allowing)}")


def make_fixed(namespace: str) -> dict[str, Any]:
    """Traits that no value changes."""
    audit = {
        "audit_url": f"http://service.{namespace}:8082/internal/audit",
        "audit_file": "/srv/jupyterhub/audit.sqlite",
        "hub_namespace": namespace,
    }
    return {
        "JupyterHub.spawner_class": "spectrum_spawner.spawner.SpectrumSpawner",
        **{f"JupyterHub.{trait}": value for trait, value in hub_pages.SETTINGS.items()},
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
        # One team's broken image must not restart the hub for everybody.
        "SpectrumSpawner.consecutive_failure_limit": 0,
        # Servers reach the service as people do: its own port is closed to them.
        "SpectrumSpawner.proxy_url": f"http://proxy-public.{namespace}",
        "SpectrumSpawner.notices_url": f"http://service.{namespace}:8082/internal/notices",
        "SpectrumSpawner.keep_url": f"http://service.{namespace}:8082/internal/keep",
        "SpectrumSpawner.continue_url": f"http://service.{namespace}:8082/internal/continue",
        "SpectrumSpawner.volumes_url": f"http://service.{namespace}:8082/internal/volumes",
        **{f"SpectrumSpawner.{trait}": value for trait, value in audit.items()},
        **{f"Identity.{trait}": value for trait, value in audit.items()},
    }


def make_service(namespace: str, token: str) -> dict[str, Any]:
    """The Spectrum service as the hub knows it, and who may do what there."""
    access = "access:services!service=spectrum"
    return {
        "JupyterHub.services": [
            {
                "name": "spectrum",
                "url": f"http://service.{namespace}:8082",
                "api_token": token,
                # a hub that starts waits this long, in seconds, for a service that is away
                "timeout": 1,
                "oauth_client_id": "service-spectrum",
                "oauth_no_confirm": True,
                "display": True,
                "oauth_client_allowed_scopes": [access, ACT],
            }
        ],
        "JupyterHub.custom_scopes": {
            ACT: {"description": "Ask for, decide and stop things in Spectrum for oneself."},
            REPORT: {"description": "Tell Spectrum about one's own servers, as they do."},
        },
        "JupyterHub.load_roles": [
            {"name": "user", "scopes": ["self", access, ACT, f"{REPORT}!user"]},
            # A server's own token is known to whoever is in it, who may leave the team: it opens no
            # server. JupyterHub's default lets it into the server itself.
            {"name": "server", "scopes": ["users:activity!user", f"{REPORT}!server", access]},
            {
                "name": "spectrum-service",
                "services": ["spectrum"],
                "scopes": [
                    *("list:users", "read:users:name", "read:users:groups"),
                    # to start: what goes on without a GPU was stopped for that
                    *("read:servers", "delete:servers", "start:servers"),
                    # in a server that is shared others have its token as well
                    "read:shares",
                ],
            },
        ],
    }


def read_values() -> dict[str, Any]:
    return json.loads(Path(os.environ["SPECTRUM_VALUES"]).read_text())


def read_secret(key: str) -> str:
    """A secret's text; without one, or with a placeholder, the hub does not start."""
    path = Path(os.environ["SPECTRUM_SECRETS"]) / key
    text = path.read_text().strip() if path.is_file() else ""
    if not text or PLACEHOLDER.fullmatch(text):
        stop(f"Secret hub: the key {key} is {'a placeholder' if text else 'missing or empty'}")
    return text


def find_values(
    values: Mapping[str, Any], known: set[str], above: str = ""
) -> Iterator[tuple[str, Any]]:
    """Places such as `hub.baseUrl` with their values; a place that no table knows stops the hub."""
    for key, value in values.items():
        place = above + key
        if place in known:
            yield place, value
        elif isinstance(value, Mapping) and any(k.startswith(f"{place}.") for k in known):
            yield from find_values(value, known, f"{place}.")
        else:
            near = sorted(k for k in known if k.startswith(above))
            stop(f"{place}: unknown key, known are {', '.join(near)}")


def set_trait(name: str, value: Any) -> None:
    section, trait = name.split(".")
    c[section][trait] = value


def stop(sentence: str) -> NoReturn:
    sys.exit(f"The values are wrong. {sentence}")


main()
