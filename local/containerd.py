"""containerd and the images in it."""

import json
from dataclasses import dataclass
from pathlib import Path

from local.commands import run, succeeds
from local.files import write_if_changed
from local.network import CNI_BINARIES
from local.processes import PATH, Daemons

PAUSE_IMAGE = "localhost/spectrum/pause:1"

# restrict_oom_score_adj: root without CAP_SYS_RESOURCE, as in some virtual machines, may not set
# a negative score; every pod sandbox would die of it.
_CONFIG = """\
version = 3
root = "{root}"
state = "{state}"
[grpc]
  address = "{socket}"
[ttrpc]
  address = "{socket}.ttrpc"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{pause}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{cni_binaries}"]
  conf_dir = "{cni_configuration}"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{runtime}/runc"
"""


@dataclass(frozen=True)
class Containerd:
    """containerd of the local cluster; `runtime` is the directory of sockets and mounts."""

    state: Path
    runtime: Path
    binaries: Path
    daemons: Daemons

    @property
    def socket(self) -> Path:
        return self.runtime / "containerd.sock"

    @property
    def shim(self) -> Path:
        return self.binaries / "containerd-shim-runc-v2"

    def make_configuration(self) -> str:
        return _CONFIG.format(
            root=self.state / "containerd",
            runtime=self.runtime,
            state=self.runtime / "containerd",
            socket=self.socket,
            pause=PAUSE_IMAGE,
            cni_binaries=CNI_BINARIES,
            cni_configuration=self.state / "cni",
        )

    def start(self) -> bool:
        """Start containerd unless it runs as configured; returns whether it was started."""
        self.runtime.mkdir(parents=True, exist_ok=True)
        configuration = self.state / "containerd.toml"
        write_if_changed(configuration, self.make_configuration())
        return self.daemons.ensure(
            "containerd",
            [self.binaries / "containerd", "--config", configuration],
            # It finds its shim, runc and the CNI plugins' iptables by PATH.
            environment={"PATH": f"{self.binaries}:{PATH}"},
            configuration=[configuration],
        )

    def is_ready(self) -> bool:
        return succeeds(self._ctr("version"))

    def is_loaded(self, archive: Path, reference: str) -> bool:
        """Tell whether this very archive was loaded, and its image is still there."""
        recorded = self._read_ledger().get(reference) == archive.name
        return recorded and reference in self.list_images()

    def import_archive(self, archive: Path, reference: str, *tags: str) -> None:
        """Load the image of a docker-archive, and give it more names."""
        run(self._ctr("images", "import", "--local", archive))
        for tag in tags:
            run(self._ctr("images", "tag", "--force", reference, tag))
        ledger = self._read_ledger() | {reference: archive.name}
        write_if_changed(self._ledger, json.dumps(ledger, indent=2, sort_keys=True))

    def remove_images(self, references: list[str]) -> None:
        """Remove these names, and the images that have no other name of ours then."""
        images = self.list_images()
        kept = {
            digest
            for name, digest in images.items()
            if name not in references and not name.startswith("sha256:")
        }
        # The runtime names each image by its id as well.
        ids = [name for name in images if name.startswith("sha256:") and images[name] not in kept]
        if references or ids:
            run(self._ctr("images", "rm", *references, *ids))

    def list_images(self) -> dict[str, str]:
        """Return the names of all images → digests of their manifests."""
        lines = run(self._ctr("images", "ls")).splitlines()[1:]
        return {line.split()[0]: line.split()[2] for line in lines}

    @property
    def _ledger(self) -> Path:
        return self.state / "images.json"

    def _read_ledger(self) -> dict[str, str]:
        """Return references → names of the archives they were loaded from."""
        return json.loads(self._ledger.read_text()) if self._ledger.exists() else {}

    def _ctr(self, *words: str | Path) -> list[str | Path]:
        return [self.binaries / "ctr", "-a", self.socket, "-n", "k8s.io", *words]
