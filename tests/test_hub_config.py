"""The hub's configuration: values become traits, and wrong values stop it with one sentence."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from jupyterhub import orm, scopes
from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator
from jupyterhub.crypto import CryptKeeper
from jupyterhub.proxy import ConfigurableHTTPProxy
from oauthenticator.oauth2 import OAuthenticator
from traitlets.config import Config, PyFileConfigLoader

import spectrum_spawner
from spectrum_spawner import hub_pages
from spectrum_spawner.identity import Identity, TableAuthenticator
from spectrum_spawner.oauth import ProviderIdentity
from spectrum_spawner.providers import PROVIDERS
from spectrum_spawner.spawner import SpectrumSpawner
from tests.hub.hub import TEST_ROLE, TEST_SERVICE
from tests.hub.hub import Hub as RunningHub
from tests.hub.node import ServerStub
from tests.hub.noting import NotingSpawner
from tests.hub.spawners import Setup

CONFIG = Path(__file__).parent.parent / "hub_config" / "jupyterhub_config.py"

SECRETS = {
    "proxyToken": "t" * 64,
    "cookieSecret": "ab" * 32,
    "cryptKey": "cd" * 32,
    "userPassword": "u" * 16,
    "adminPassword": "a" * 40,
    "oauthClientSecret": "s" * 32,
    "serviceToken": "v" * 64,
    "auditTokenHub": "h" * 64,
}

IMAGES = {
    "tensorflow": {
        "title": "TensorFlow 2.21",
        "image": "localhost/spectrum/tensorflow-notebook:dev",
        "python": "3.11",
        "pullPolicy": "IfNotPresent",
    }
}

PROFILES = {
    "cpu-small": {
        "title": "Small CPU",
        "cpu": {"guarantee": 0.5, "limit": 2},
        "memory": {"guarantee": "1Gi", "limit": "4Gi"},
        "images": ["tensorflow"],
        "default": True,
    },
    "gpu-1": {"title": "One GPU", "gpu": 1, "images": ["tensorflow"]},
}

VALUES: dict[str, Any] = {
    "hub": {"baseUrl": "/"},
    "auth": {
        "method": "shared-password",
        "acceptSharedPassword": True,
        "admins": ["admin"],
        "users": ["carol"],
        "groups": {"flight": ["alice"], "ops": ["alice", "bob"]},
        "contact": "your cluster administrators",
        "refreshAge": 300,
    },
    "teamTemplates": {"labs": {"pattern": "labs/[a-z]+", "max": 20}},
    "images": IMAGES,
    "profiles": PROFILES,
    "singleuser": {
        "startTimeout": 300,
        "httpTimeout": 60,
        "defaultUrl": "/lab",
    },
    "storage": {"home": {"size": "10Gi", "storageClass": "rook-cephfs"}},
}

# As the chart writes them for a provider, before anything is said about it.
OAUTH: dict[str, Any] = {
    "provider": "generic",
    "clientId": "spectrum",
    "callbackUrl": "https://hub.acme.test/hub/oauth_callback",
    "authorizeUrl": "https://idp.acme.test/authorize",
    "tokenUrl": "https://idp.acme.test/token",
    "userdataUrl": "https://idp.acme.test/userinfo",
    "scopes": [],
    "usernameClaim": "",
    "subjectClaim": "",
    "groupsClaim": "",
    "allowedGroups": ["/staff"],
    "adminGroups": ["/spectrum/admins"],
    "allowAll": False,
    "extra": {},
}
NO_URLS = {"authorizeUrl": "", "tokenUrl": "", "userdataUrl": ""}


def make_oauth_values(**oauth: Any) -> dict[str, Any]:
    """The values with sign-in by a provider, some of its settings changed."""
    auth = {
        "method": "oauth",
        "contact": "your cluster administrators",
        "refreshAge": 300,
        "visitorsRefreshAge": 15,
        "groupsMaxAge": 3600,
        "oauth": {**OAUTH, **oauth},
    }
    return {**VALUES, "auth": auth}


class Hub:
    """The place where the hub finds its values and secrets."""

    def __init__(self, directory: Path) -> None:
        self.values = directory / "values.json"
        self.secrets = directory / "secrets"
        self.secrets.mkdir()
        for key, text in SECRETS.items():
            (self.secrets / key).write_text(text + "\n")

    def load(self, values: dict[str, Any]) -> Config:
        self.values.write_text(json.dumps(values))
        return PyFileConfigLoader(str(CONFIG)).load_config()

    def read_refusal(self, values: dict[str, Any]) -> str:
        with pytest.raises(SystemExit) as stopped:
            self.load(values)
        return str(stopped.value)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path)
    monkeypatch.setenv("POD_NAMESPACE", "spectrum")
    monkeypatch.setenv("SPECTRUM_VALUES", str(hub.values))
    monkeypatch.setenv("SPECTRUM_SECRETS", str(hub.secrets))
    return hub


def change(path: str, value: Any) -> dict[str, Any]:
    """The values with one of them set, named by a path such as `hub/baseUrl`."""
    values = copy.deepcopy(VALUES)
    *above, last = path.split("/")
    table = values
    for key in above:
        table = table[key]
    table[last] = value
    return values


def test_the_whole_configuration_follows_from_values_and_secrets(hub: Hub) -> None:
    assert hub.load(VALUES) == {
        "JupyterHub": {
            "allow_named_servers": True,
            "authenticator_class": "spectrum_spawner.identity.TableAuthenticator",
            "base_url": "/",
            "cleanup_servers": False,
            "cookie_secret": bytes.fromhex("ab" * 32),
            "custom_scopes": {
                "custom:spectrum:act": {
                    "description": "Ask for, decide and stop things in Spectrum for oneself."
                },
                "custom:spectrum:report": {
                    "description": "Tell Spectrum about one's own servers, as they do."
                },
            },
            "db_url": "sqlite:////srv/jupyterhub/jupyterhub.sqlite",
            "extra_handlers": hub_pages.SETTINGS["extra_handlers"],
            "hub_bind_url": "http://0.0.0.0:8081",
            "hub_connect_url": "http://hub.spectrum:8081",
            "load_roles": [
                {
                    "name": "user",
                    "scopes": [
                        "self",
                        "access:services!service=spectrum",
                        "custom:spectrum:act",
                        "custom:spectrum:report!user",
                    ],
                },
                {
                    "name": "server",
                    "scopes": [
                        "users:activity!user",
                        "custom:spectrum:report!server",
                        "access:services!service=spectrum",
                    ],
                },
                {
                    "name": "spectrum-service",
                    "services": ["spectrum"],
                    "scopes": [
                        "list:users",
                        "read:users:name",
                        "read:users:groups",
                        "read:servers",
                        "delete:servers",
                        "start:servers",
                        "read:shares",
                    ],
                },
            ],
            "named_server_limit_per_user": 5,
            "services": [
                {
                    "name": "spectrum",
                    "url": "http://service.spectrum:8082",
                    "api_token": "v" * 64,
                    "timeout": 1,
                    "oauth_client_id": "service-spectrum",
                    "oauth_no_confirm": True,
                    "display": True,
                    "oauth_client_allowed_scopes": [
                        "access:services!service=spectrum",
                        "custom:spectrum:act",
                    ],
                }
            ],
            "spawner_class": "spectrum_spawner.spawner.SpectrumSpawner",
            "template_paths": [str(Path(spectrum_spawner.__file__).parent / "templates")],
            "template_vars": hub_pages.SETTINGS["template_vars"],
            "upgrade_db": True,
        },
        "Authenticator": {"auth_refresh_age": 300},
        "Identity": {
            "audit_file": "/srv/jupyterhub/audit.sqlite",
            "audit_token": "h" * 64,
            "audit_url": "http://service.spectrum:8082/internal/audit",
            "hub_namespace": "spectrum",
            "team_templates": {"labs": {"pattern": "labs/[a-z]+", "max": 20}},
        },
        "TableAuthenticator": {
            "admin_password": "a" * 40,
            "admin_users": ["admin"],
            "allowed_users": ["admin", "alice", "bob", "carol"],
            "members": {"flight": ["alice"], "ops": ["alice", "bob"]},
            "user_password": "u" * 16,
        },
        "SpectrumSpawner": {
            "audit_file": "/srv/jupyterhub/audit.sqlite",
            "audit_token": "h" * 64,
            "audit_url": "http://service.spectrum:8082/internal/audit",
            "consecutive_failure_limit": 0,
            "contact": "your cluster administrators",
            "continue_url": "http://service.spectrum:8082/internal/continue",
            "default_url": "/lab",
            "home_size": "10Gi",
            "home_storage_class": "rook-cephfs",
            "http_timeout": 60,
            "hub_namespace": "spectrum",
            "images": IMAGES,
            "keep_url": "http://service.spectrum:8082/internal/keep",
            "notices_url": "http://service.spectrum:8082/internal/notices",
            "profiles": PROFILES,
            "proxy_url": "http://proxy-public.spectrum",
            "start_timeout": 300,
            "volumes_url": "http://service.spectrum:8082/internal/volumes",
        },
        "ConfigurableHTTPProxy": {
            "api_url": "http://proxy-api:8001",
            "auth_token": "t" * 64,
            "should_start": False,
        },
        "CryptKeeper": {"keys": [bytes.fromhex("cd" * 32)]},
    }


def test_sign_in_by_a_provider_follows_from_the_values(hub: Hub) -> None:
    passwords, oauth = hub.load(VALUES), hub.load(make_oauth_values())
    same = oauth.keys() & passwords.keys() - {"JupyterHub"}
    assert {key: oauth[key] for key in same} == {key: passwords[key] for key in same}
    assert oauth.JupyterHub == {
        **passwords.JupyterHub,
        "authenticator_class": "spectrum_spawner.providers.GenericProvider",
    }
    assert {key: oauth[key] for key in oauth.keys() - same - {"JupyterHub"}} == {
        "OAuthenticator": {
            "admin_groups": ["/spectrum/admins"],
            "allow_all": False,
            "allowed_groups": ["/staff"],
            "authorize_url": "https://idp.acme.test/authorize",
            "client_id": "spectrum",
            "client_secret": "s" * 32,
            "custom_403_message": (
                "You are in no group that may sign in here: ask your cluster administrators."
            ),
            "oauth_callback_url": "https://hub.acme.test/hub/oauth_callback",
            "token_url": "https://idp.acme.test/token",
            "userdata_url": "https://idp.acme.test/userinfo",
        },
        "ProviderIdentity": {"groups_max_age": 3600, "visitors_refresh_age": 15},
    }


PROVIDER_VALUES = {
    "generic": make_oauth_values(groupsClaim="realm_access.roles", subjectClaim="oid"),
    "github": make_oauth_values(
        provider="github", **NO_URLS, extra={"allowed_organizations": ["acme"]}
    ),
    "google": make_oauth_values(
        provider="google", **NO_URLS, extra={"hosted_domain": ["acme.test"]}
    ),
    "azuread": make_oauth_values(provider="azuread", **NO_URLS, extra={"tenant_id": "t-1"}),
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_each_provider_works_by_values_alone(hub: Hub, provider: str) -> None:
    config = hub.load(PROVIDER_VALUES[provider])
    made = PROVIDERS[provider](config=config)
    assert f"{type(made).__module__}.{type(made).__name__}" == config.JupyterHub.authenticator_class
    assert {
        "pkce": made.enable_pkce,
        "groups": made.manage_groups,
        "auth state": made.enable_auth_state,
        "asked before starts": made.refresh_pre_spawn,
        "asked before stops": made.refresh_pre_stop,
        "strict": made.auth_refresh_strict,
        "age": made.auth_refresh_age,
        "by existence": made.allow_existing_users,
        "admins": made.admin_groups,
    } == {
        "pkce": True,
        "groups": True,
        "auth state": True,
        "asked before starts": True,
        "asked before stops": True,
        "strict": True,
        "age": 300,
        "by existence": False,
        "admins": {"spectrum/admins"},
    }


@pytest.mark.parametrize(
    ("provider", "host", "name", "subject", "groups"),
    [
        ("generic", "idp.acme.test", "preferred_username", "oid", "realm_access.roles"),
        ("github", "github.com", "login", "id", "groups"),
        ("google", "accounts.google.com", "email", "id", "google_groups"),
        ("azuread", "login.microsoftonline.com", "preferred_username", "sub", "groups"),
    ],
)
def test_each_provider_has_claims_of_its_own(
    hub: Hub, provider: str, host: str, name: str, subject: str, groups: str
) -> None:
    made = PROVIDERS[provider](config=hub.load(PROVIDER_VALUES[provider]))
    found = made.subject_issuer, made.username_claim, made.subject_claim, made.groups_claim
    assert found == (host, name, subject, groups)


@pytest.mark.parametrize("values", [VALUES, *PROVIDER_VALUES.values()])
def test_every_trait_of_the_configuration_exists(hub: Hub, values: dict[str, Any]) -> None:
    classes = [
        *(JupyterHub, SpectrumSpawner, ConfigurableHTTPProxy, CryptKeeper),
        *(Authenticator, OAuthenticator, Identity, TableAuthenticator, ProviderIdentity),
        *PROVIDERS.values(),
    ]
    known = {cls.__name__: cls.class_trait_names(config=True) for cls in classes}
    unknown = [
        f"{section}.{trait}"
        for section, traits in hub.load(values).items()
        for trait in traits
        if trait not in known[section]
    ]
    assert unknown == []


def test_the_authenticator_takes_the_configuration(hub: Hub) -> None:
    authenticator = TableAuthenticator(config=hub.load(VALUES))
    assert authenticator.allowed_users == {"admin", "alice", "bob", "carol"}
    assert authenticator.admin_users == {"admin"}
    assert authenticator.refresh_pre_stop
    assert authenticator.audit_url == "http://service.spectrum:8082/internal/audit"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (change("culling", {}), "culling: unknown key, known are"),
        (change("hub/baseURL", "/"), "hub.baseURL: unknown key, known are hub.baseUrl"),
        (change("storage/share", {}), "storage.share: unknown key, known are storage.home.size"),
        (change("singleuser/timeout", 1), "singleuser.timeout: unknown key, known are singleuser."),
        (change("auth/method", "ldap"), "auth.method: 'ldap' is none of shared-password, oauth"),
        (change("auth/oauth", {}), "auth.oauth: unknown key, known are auth."),
        (change("auth/refreshAge", 0), "auth.refreshAge: 0 is no number of seconds from 1 on"),
        (
            change("teamTemplates/labs/pattern", "("),
            "teamTemplates.labs.pattern: '(' is no regular",
        ),
        (change("auth/acceptSharedPassword", False), "can sign in as anybody"),
        (change("auth/acceptSharedPassword", "true"), "can sign in as anybody"),
        (change("profiles", {}), "profiles: at least one profile is needed"),
        (change("profiles/gpu-1/gpu", "1.5"), "profiles.gpu-1.gpu: '1.5' is no whole number"),
        (
            change("profiles/gpu-1/nodeselector", {}),
            "profiles.gpu-1.nodeselector: unknown key",
        ),
        (
            change("profiles/GPU-1", PROFILES["gpu-1"]),
            "profiles: gpu-1 and GPU-1 have the same slug",
        ),
        (
            change("profiles/cpu-small/cpu/guarantee", 4),
            "profiles.cpu-small.cpu: the guarantee is above the limit",
        ),
        (change("images", {}), "there is no image 'tensorflow' under images"),
    ],
)
def test_wrong_values_stop_the_hub_with_a_sentence(
    hub: Hub, values: dict[str, Any], sentence: str
) -> None:
    refusal = hub.read_refusal(values)
    assert refusal.startswith("The values are wrong. ")
    assert sentence in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("oauth", "sentence"),
    [
        ({"provider": "myspace"}, "auth.oauth.provider: 'myspace' is none of generic, github,"),
        ({"provider": ""}, "auth.oauth.provider: '' is none of"),
        ({"clientId": ""}, "auth.oauth.clientId: is needed to sign in by provider generic"),
        ({"callbackUrl": ""}, "auth.oauth.callbackUrl: is needed"),
        ({"authorizeUrl": ""}, "auth.oauth.authorizeUrl: is needed"),
        ({"tokenUrl": ""}, "auth.oauth.tokenUrl: is needed"),
        ({"userdataUrl": ""}, "auth.oauth.userdataUrl: is needed"),
        ({"clientId": "<your client id>"}, "auth.oauth.clientId: '<your client id>' is a place"),
        ({"clientId": "CHANGE-ME"}, "auth.oauth.clientId: 'CHANGE-ME' is a placeholder"),
        (
            {"tokenUrl": "https://idp.example.com/token"},
            "auth.oauth.tokenUrl: 'https://idp.example.com/token' is a placeholder",
        ),
        ({"tokenUrl": "idp.acme.test/token"}, "auth.oauth.tokenUrl: 'idp.acme.test/token' is no"),
        ({"callbackURL": "x"}, "auth.oauth.callbackURL: unknown key, known are auth.oauth."),
        ({"allowedGroups": [], "adminGroups": []}, "auth.oauth: nobody may sign in"),
        (
            {"extra": {"tenant": "t-1"}},
            "auth.oauth.extra.tenant: is no setting of provider generic",
        ),
        ({"extra": {"manage_groups": False}}, "auth.oauth.extra.manage_groups: is no setting"),
        ({"extra": {"client_id": "other"}}, "auth.oauth.extra.client_id: is no setting"),
        ({"extra": {"audit_file": ""}}, "auth.oauth.extra.audit_file: is no setting"),
        ({"extra": {"post_auth_hook": "print"}}, "auth.oauth.extra.post_auth_hook: is no setting"),
        ({"provider": "azuread", **NO_URLS}, "auth.oauth.extra.tenant_id: is needed"),
    ],
)
def test_a_provider_that_cannot_work_stops_the_hub_with_a_sentence(
    hub: Hub, oauth: dict[str, Any], sentence: str
) -> None:
    refusal = hub.read_refusal(make_oauth_values(**oauth))
    assert refusal.startswith("The values are wrong. ")
    assert sentence in refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("text", [None, "", "<secret>", "changeme"])
def test_a_missing_client_secret_stops_the_hub_with_a_sentence(hub: Hub, text: str | None) -> None:
    secret = hub.secrets / "oauthClientSecret"
    secret.unlink()
    if text is not None:
        secret.write_text(text)
    what = "a placeholder" if text else "missing or empty"
    refusal = hub.read_refusal(make_oauth_values())
    assert refusal == f"The values are wrong. Secret hub: the key oauthClientSecret is {what}"
    hub.load(VALUES)  # who signs in by password needs none


@pytest.mark.parametrize("missing", ["auth", "profiles", "images"])
def test_absent_tables_stop_the_hub_with_a_sentence(hub: Hub, missing: str) -> None:
    values = {key: table for key, table in VALUES.items() if key != missing}
    assert hub.read_refusal(values).startswith("The values are wrong. ")


async def test_the_hub_gives_each_token_the_rights_that_the_service_relies_on(
    hub: Hub, tmp_path: Path
) -> None:
    told = hub.load(VALUES).JupyterHub
    config = Config()
    config.JupyterHub.custom_scopes = told.custom_scopes
    config.JupyterHub.services = [TEST_SERVICE, *told.services]
    config.JupyterHub.load_roles = [TEST_ROLE, *told.load_roles]
    NotingSpawner.started, NotingSpawner.stopped = [], []
    async with ServerStub() as stub:
        config.Spawner.port = stub.port
        running = RunningHub(tmp_path, Setup(NotingSpawner, config, {}))
        await running.start()
        await running.call("POST", "/users/alice")
        assert (await running.start_server("alice")).status == 201
        spawner, db = running.find_spawner("alice"), running.app.db
        of_server = scopes.get_scopes_for(orm.APIToken.find(db, spawner.api_token))
        of_user = scopes.get_scopes_for(spawner.user.orm_user)
        of_service = scopes.get_scopes_for(orm.Service.find(db, "spectrum"))
        await running.kill()
    assert "custom:spectrum:act" in of_user
    assert "access:services!service=spectrum" in of_user & of_server
    assert "custom:spectrum:act" not in of_server
    assert not any(scope.startswith(("servers", "read:users!", "tokens")) for scope in of_server)
    assert {scope for scope in of_service if "!" not in scope} == {
        *("list:users", "read:users:name", "read:users:groups", "read:servers", "delete:servers"),
        *("start:servers", "read:shares"),
    }
