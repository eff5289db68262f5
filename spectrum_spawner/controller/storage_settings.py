"""What storage the release gives its teams, and what a Team makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class VolumeSettings:
    """A kind of claim: `size` such as `10Gi`; an empty class is the cluster's default."""

    enabled: bool = False
    size: str = "10Gi"
    storage_class: str = ""


@dataclass(frozen=True, kw_only=True)
class BucketSettings:
    """The bucket of each team: `endpoint` is the gateway's URL without a slash at its end.

    `size` and `objects` are its quota, 0 objects meaning any number; `peers` are where servers
    find the gateway, as a NetworkPolicy names it.
    """

    enabled: bool = False
    endpoint: str = ""
    region: str = "us-east-1"
    size: str = "100Gi"
    objects: int = 0
    peers: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class CephFSSettings:
    """How directories of CephFS that exist already are mounted: the CSI driver and its Secret."""

    driver: str = ""
    cluster_id: str = ""
    fs_name: str = ""
    secret_name: str = ""
    secret_namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class DatasetSettings:
    """A directory of CephFS that servers may read; with no `teams` it is there for all."""

    name: str
    title: str
    path: str
    size: str
    teams: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class StorageSettings:
    """Everything that the release says about storage; what is not said is not offered."""

    home: VolumeSettings = VolumeSettings(enabled=True)
    share: VolumeSettings = VolumeSettings()
    scratch: VolumeSettings = VolumeSettings()
    bucket: BucketSettings = BucketSettings()
    cephfs: CephFSSettings = CephFSSettings()
    datasets: tuple[DatasetSettings, ...] = ()

    def of_team(self, team: str, spec: Mapping[str, Any]) -> "StorageSettings":
        """What one team gets. `spec` is `spec.storage` of its Team, which the API server checked.

        A Team can refuse a bucket or change its quota; where the release has no gateway it gets
        none, whatever it says.
        """
        bucket = spec.get("bucket") or {}
        return replace(
            self,
            home=_override(self.home, spec.get("home") or {}),
            share=_override(self.share, spec.get("share") or {}),
            scratch=_override(self.scratch, spec.get("scratch") or {}),
            bucket=replace(
                self.bucket,
                enabled=bool(self.bucket.endpoint) and bucket.get("enabled", self.bucket.enabled),
                size=bucket.get("size", self.bucket.size),
                objects=bucket.get("objects", self.bucket.objects),
            ),
            datasets=tuple(d for d in self.datasets if not d.teams or team in d.teams),
        )


def _override(volume: VolumeSettings, spec: Mapping[str, Any]) -> VolumeSettings:
    return VolumeSettings(
        enabled=spec.get("enabled", volume.enabled),
        size=spec.get("size", volume.size),
        storage_class=spec.get("storageClass", volume.storage_class),
    )
