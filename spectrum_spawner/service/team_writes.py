"""Writing to Team objects, under a name by which the controller tells the service from others."""

from typing import Any

from spectrum_spawner.service.context import Context

FIELD_MANAGER = "spectrum-service"


async def patch_team(context: Context, name: str, changes: dict[str, Any]) -> None:
    """Merge changes into a Team; raises KubeError."""
    await context.client.request(
        "PATCH",
        context.team_path(name),
        body=changes,
        query={"fieldManager": FIELD_MANAGER},
        content_type="application/merge-patch+json",
    )


async def create_team(context: Context, manifest: dict[str, Any]) -> None:
    """Make a Team; raises KubeError, AlreadyExists among them."""
    path = Context.find_teams_path(context.settings.hub_namespace)
    await context.client.request("POST", path, body=manifest, query={"fieldManager": FIELD_MANAGER})
