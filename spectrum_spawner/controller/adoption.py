"""An object that is made, or was there: used only if its owner marks say whose we think it is."""

import logging

from spectrum_spawner import names
from spectrum_spawner.controller.drift import mending_patch
from spectrum_spawner.controller.ownership import Taken, annotation
from spectrum_spawner.kube import AlreadyExists, Client, Object

_OWNER = (names.ANNOTATION_HUB, names.ANNOTATION_TEAM, names.ANNOTATION_VOLUME)

_log = logging.getLogger("spectrum.controller")


async def create_or_adopt(client: Client, path: str, manifest: Object) -> Object:
    """The object of the manifest's name in the collection `path`; raises Taken or a KubeError.

    One that is ours already gets its labels back, without which nobody sees it; all else about
    it stays.
    """
    name = manifest["metadata"]["name"]
    try:
        made = await client.create(path, manifest)
    except AlreadyExists:
        return await _adopt(client, f"{path}/{name}", manifest)
    _log.info("%s %s made", manifest["kind"], name)
    return made


def is_of_same_owner(live: Object, wanted: Object) -> bool:
    """Whether two objects of one name are about the same: team, dataset and, of a volume, claim."""
    if any(annotation(live, key) != annotation(wanted, key) for key in _OWNER):
        return False
    return _claim_of(live) == _claim_of(wanted)


async def _adopt(client: Client, path: str, manifest: Object) -> Object:
    live = await client.get(path)
    if not is_of_same_owner(live, manifest):
        raise Taken(manifest["metadata"]["name"])
    patch = mending_patch(live, {"metadata": {"labels": manifest["metadata"]["labels"]}})
    if not patch:
        return live
    patch["metadata"]["uid"] = live["metadata"]["uid"]
    return await client.patch(path, patch)


def _claim_of(obj: Object) -> tuple[str, str]:
    claim = obj["spec"].get("claimRef") or {}
    return claim.get("namespace", ""), claim.get("name", "")
