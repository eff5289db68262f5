"""The identity providers that the values can name, each with its own defaults."""

from collections.abc import Mapping
from typing import Any

from oauthenticator.azuread import AzureAdOAuthenticator
from oauthenticator.generic import GenericOAuthenticator
from oauthenticator.github import GitHubOAuthenticator
from oauthenticator.google import GoogleOAuthenticator
from traitlets import default

from spectrum_spawner import claims
from spectrum_spawner.oauth import ProviderIdentity


class GenericProvider(ProviderIdentity, GenericOAuthenticator):
    """Any provider of OpenID Connect, such as Keycloak."""

    @default("username_claim")
    def _default_username_claim(self) -> str:
        return "preferred_username"

    @default("scope")
    def _default_scope(self) -> list[str]:
        return ["openid", "profile", "email"]


class GitHubProvider(ProviderIdentity, GitHubOAuthenticator):
    """GitHub; a group is a team of an organization, such as `acme/flight`."""

    @default("subject_claim")
    def _default_subject_claim(self) -> str:
        return "id"

    @default("scope")
    def _default_scope(self) -> list[str]:
        return ["read:user", "read:org"]

    @default("populate_teams_in_auth_state")
    def _default_populate_teams_in_auth_state(self) -> bool:
        return True

    def find_groups(self, auth_state: Mapping[str, Any]) -> frozenset[str]:
        return claims.read_github_teams(auth_state.get("teams"))


class GoogleProvider(ProviderIdentity, GoogleOAuthenticator):
    """Google; its groups are read with a service account (`allowed_google_groups`)."""

    @default("subject_claim")
    def _default_subject_claim(self) -> str:
        return "id"

    @default("groups_claim")
    def _default_groups_claim(self) -> str:
        return "google_groups"


class AzureAdProvider(ProviderIdentity, AzureAdOAuthenticator):
    """Microsoft Entra ID of one tenant, by its endpoints of version 2."""

    @property
    def tells_in_token(self) -> bool:
        return True

    @default("username_claim")
    def _default_username_claim(self) -> str:
        return "preferred_username"

    @default("scope")
    def _default_scope(self) -> list[str]:
        # without the last there is no refresh token, and so no news
        return ["openid", "profile", "email", "offline_access"]

    @default("authorize_url")
    def _default_authorize_url(self) -> str:
        return f"{self.graph_url}/{self.tenant_id}/oauth2/v2.0/authorize"

    @default("token_url")
    def _default_token_url(self) -> str:
        return f"{self.graph_url}/{self.tenant_id}/oauth2/v2.0/token"


PROVIDERS: dict[str, type[ProviderIdentity]] = {
    "generic": GenericProvider,
    "github": GitHubProvider,
    "google": GoogleProvider,
    "azuread": AzureAdProvider,
}
