"""The Team definition on the cluster, kept at least as new as the one in this package."""

import logging
from importlib.resources import files
from typing import Any

import yaml

from spectrum_spawner import names
from spectrum_spawner.kube import Client, NotFound, item

ANNOTATION_REVISION = f"{names.API_GROUP}/revision"

_log = logging.getLogger("spectrum.controller")


class DefinitionMissing(Exception):  # noqa: N818 - says what happened
    """The cluster does not know Teams, and making it know them is not ours to do."""


def read_definition() -> dict[str, Any]:
    """The CustomResourceDefinition that this package was written for."""
    text = files("spectrum_spawner.controller").joinpath("teams-crd.yaml").read_text()
    return yaml.safe_load(text)


async def ensure_definition(client: Client) -> None:
    """Raise the cluster's definition to our revision; a higher one is another release's.

    Helm installs `crds/` once and never upgrades it, so the controller does. It has no right to
    create definitions: raises DefinitionMissing if there is none.
    """
    ours = read_definition()
    name = ours["metadata"]["name"]
    path = item("apiextensions.k8s.io/v1", "customresourcedefinitions", name)
    try:
        live = await client.get(path)
    except NotFound as error:
        raise DefinitionMissing(
            f"CustomResourceDefinition {name} is not installed: "
            "kubectl apply --server-side -f helm/spectrum/crds/teams.yaml"
        ) from error
    if _revision(live) < _revision(ours):
        _log.info("raising %s from revision %s to %s", name, _revision(live), _revision(ours))
        annotations = ours["metadata"]["annotations"]
        await client.patch(path, {"metadata": {"annotations": annotations}, "spec": ours["spec"]})


def _revision(definition: dict[str, Any]) -> int:
    annotations = definition["metadata"].get("annotations") or {}
    return int(annotations.get(ANNOTATION_REVISION, 0))
