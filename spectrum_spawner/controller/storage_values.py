"""Storage from the values' table `storage` to records; what is wrong with it is named by place."""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from spectrum_spawner.controller.storage_settings import (
    BucketSettings,
    CephFSSettings,
    DatasetSettings,
    StorageSettings,
    VolumeSettings,
)

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_NAME = r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
# What a text must be like, and what is said of one that is not.
_SIZE = r"[1-9][0-9]{0,5}([.][0-9]{1,3})?(Mi|Gi|Ti)", "is no size such as 512Mi or 10Gi"
_CLASS = f"({_NAME})?", "is no name of a StorageClass"
_OBJECT = _NAME, "is no name of an object in Kubernetes"
_HOST = r"([-A-Za-z0-9._]+|\[[0-9A-Fa-f:.]+\])"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_URL = rf"(https?://{_HOST}(:{_PORT})?(/[^\s?#]*)?)?", "is no http or https URL of a gateway"
_WORD = r"\S{1,253}", "must be one word"
_TITLE = r"[^\x00-\x1f\x7f]{0,200}", "must be one line of at most 200 characters"
# neither the root nor a way out of the directory
_PATH = (
    r"(/(?!\.{1,2}(/|\Z))[^/\s]+)+",
    "is no path such as /volumes/datasets/imagenet; it holds no . or .. and ends in no slash",
)


class StorageError(ValueError):
    """Values of `storage` cannot be used; the text names the place and says why."""


def read_storage(values: object) -> StorageSettings:
    """Settings from the table `storage`, of which any part may be absent; raises StorageError."""
    known = ("home", "share", "scratch", "bucket", "cephfs", "datasets")
    parts = {**{key: {} for key in known}, **_check_table("storage", values, known)}
    settings = StorageSettings(
        home=_read_volume("storage.home", parts["home"], ("size", "storageClass")),
        share=_read_volume("storage.share", parts["share"]),
        scratch=_read_volume("storage.scratch", parts["scratch"]),
        bucket=_read_bucket("storage.bucket", parts["bucket"]),
        cephfs=_read_cephfs("storage.cephfs", parts["cephfs"]),
        datasets=tuple(_read_datasets("storage.datasets", parts["datasets"])),
    )
    if settings.datasets and not all(vars(settings.cephfs).values()):
        raise StorageError("storage.cephfs: must be whole where there are datasets")
    return settings


_VOLUME_KEYS = ("enabled", "size", "storageClass")


def _read_volume(
    place: str, values: object, known: tuple[str, ...] = _VOLUME_KEYS
) -> VolumeSettings:
    table = _check_table(place, values, known)
    return VolumeSettings(
        enabled=_read_flag(place, table, default="enabled" not in known),
        size=_read_text(place, table, "size", _SIZE, default=VolumeSettings.size),
        storage_class=_read_text(place, table, "storageClass", _CLASS),
    )


_BUCKET_KEYS = ("enabled", "endpoint", "region", "secretName", "size", "objects", "peers")


def _read_bucket(place: str, values: object) -> BucketSettings:
    table = _check_table(place, values, _BUCKET_KEYS)
    bucket = BucketSettings(
        enabled=_read_flag(place, table, default=False),
        endpoint=_read_text(place, table, "endpoint", _URL).rstrip("/"),
        region=_read_text(place, table, "region", _WORD, default=BucketSettings.region),
        size=_read_text(place, table, "size", _SIZE, default=BucketSettings.size),
        objects=_read_count(f"{place}.objects", table.get("objects", 0)),
        peers=_read_peers(f"{place}.peers", table.get("peers", [])),
    )
    try:
        urlsplit(bucket.endpoint)
    except ValueError as error:
        raise StorageError(f"{place}.endpoint: {error}") from error
    if bucket.enabled and not bucket.endpoint:
        raise StorageError(f"{place}.endpoint: is missing; it is the S3 URL of the gateway")
    return bucket


def _read_cephfs(place: str, values: object) -> CephFSSettings:
    table = _check_table(place, values, ("driver", "clusterID", "fsName", "nodeSecret"))
    secret_place = f"{place}.nodeSecret"
    secret = _check_table(secret_place, table.get("nodeSecret", {}), ("name", "namespace"))
    return CephFSSettings(
        driver=_read_text(place, table, "driver", _WORD),
        cluster_id=_read_text(place, table, "clusterID", _WORD),
        fs_name=_read_text(place, table, "fsName", _WORD),
        secret_name=_read_text(secret_place, secret, "name", _OBJECT),
        secret_namespace=_read_text(secret_place, secret, "namespace", _OBJECT),
    )


def _read_datasets(place: str, values: object) -> Iterator[DatasetSettings]:
    for name, record in sorted(_check_table(place, values).items()):
        if not _LABEL.match(name):
            raise StorageError(
                f"{place}: {name!r} cannot name a dataset: use at most 63 of a-z, 0-9 and -"
            )
        own = f"{place}.{name}"
        table = _check_table(own, record, ("title", "path", "size", "teams"))
        teams = table.get("teams") or []
        if not isinstance(teams, list) or not all(isinstance(team, str) for team in teams):
            raise StorageError(f"{own}.teams: must be a list of names of teams")
        yield DatasetSettings(
            name=name,
            title=_read_text(own, table, "title", _TITLE) or name,
            path=_read_text(own, table, "path", _PATH, default=None),
            size=_read_text(own, table, "size", _SIZE, default=None),
            teams=frozenset(teams),
        )


def _read_peers(place: str, values: object) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(values, list):
        raise StorageError(f"{place}: must be a list of peers of a NetworkPolicy")
    for peer in values:
        selectors = _check_table(place, peer, ("namespaceSelector", "podSelector", "ipBlock"))
        if not selectors or not all(isinstance(part, Mapping) for part in selectors.values()):
            raise StorageError(f"{place}: {peer!r} is no peer of a NetworkPolicy")
        if selectors.get("namespaceSelector") == {} and not selectors.get("podSelector"):
            raise StorageError(f"{place}: {peer!r} opens every team to every other")
        if "ipBlock" in selectors:
            if len(selectors) > 1:
                raise StorageError(f"{place}: {peer!r}: a range of addresses selects no pods")
            _check_block(f"{place}.ipBlock", selectors["ipBlock"])
    return tuple(values)


def _check_block(place: str, value: object) -> None:
    block = _check_table(place, value, ("cidr", "except"))
    network = _read_network(f"{place}.cidr", block.get("cidr"))
    if network.prefixlen == 0:
        raise StorageError(f"{place}.cidr: {network} opens everything")
    holes = block.get("except", [])
    if not isinstance(holes, list):
        raise StorageError(f"{place}.except: must be a list of ranges of addresses")
    for text in holes:
        hole = _read_network(f"{place}.except", text)
        if hole.version != network.version or not hole.subnet_of(network) or hole == network:
            raise StorageError(f"{place}.except: {hole} is no part of {network}")


def _read_network(place: str, text: object) -> Any:
    if not isinstance(text, str) or "/" not in text:
        raise StorageError(f"{place}: {text!r} is no range of addresses such as 10.1.2.3/32")
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise StorageError(f"{place}: {error}") from error


def _check_table(
    place: str, value: object, known: tuple[str, ...] | None = None
) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise StorageError(f"{place}: must be a table")
    for key in value:
        if known is not None and key not in known:
            raise StorageError(f"{place}.{key}: unknown key, known are {', '.join(known)}")
    return value


def _read_text(
    place: str,
    table: Mapping[str, Any],
    key: str,
    rule: tuple[str, str],
    *,
    default: str | None = "",
) -> str:
    """The text under `key`; an absent one is `default`, which no rule binds."""
    if key not in table and default is not None:
        return default
    value, (pattern, refusal) = table.get(key), rule
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise StorageError(f"{place}.{key}: {value!r} {refusal}")
    return value


def _read_flag(place: str, table: Mapping[str, Any], *, default: bool) -> bool:
    value = table.get("enabled", default)
    if not isinstance(value, bool):
        raise StorageError(f"{place}.enabled: {value!r} is neither true nor false")
    return value


def _read_count(place: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise StorageError(f"{place}: {value!r} is no number of objects; 0 is any number")
    return value
