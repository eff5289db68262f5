"""Spectrum's container images, built without a Docker daemon or a registry.

`build_all` turns `images/*/Dockerfile` into docker-archive files on a Debian base made by
mmdebstrap. Each archive's name carries the hash of all that goes into its image, so that an
unchanged image is not built again. Needs root.
"""

import hashlib
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from local.buildah import Buildah, open_buildah
from local.paths import CHECKOUT
from local.progress import format_elapsed

REPOSITORY = "localhost/spectrum"


@dataclass(frozen=True)
class Image:
    """One folder of `images/`; `copies` are the other paths that its Dockerfile copies.

    `base` names the image of ours that it is built on; None is the Debian base.
    """

    name: str
    copies: tuple[str, ...] = ()
    base: str | None = None

    @property
    def reference(self) -> str:
        return f"{REPOSITORY}/{self.name}:dev"


# In the order of building: a base stands before what is built on it.
IMAGES = (
    Image("base-notebook", copies=("images/spectrum_lab",)),
    Image("tensorflow-notebook", base="base-notebook"),
    Image("proxy"),
    Image("hub", copies=("LICENSE", "hub_config", "pyproject.toml", "spectrum_spawner")),
)

# What debian:bookworm-slim leaves out is left out here too.
MMDEBSTRAP = (
    "mmdebstrap",
    "--mode=root",
    "--variant=minbase",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb || true"; };',
    '--aptopt=Dir::Cache::pkgcache ""; Dir::Cache::srcpkgcache "";',
    '--customize-hook=rm -f "$1/etc/resolv.conf" "$1/etc/hostname"',
    "bookworm",
)


def build_all(cache: Path, log: Callable[[str], None]) -> dict[str, Path]:
    """Build what has changed and return the archive of each image by its reference.

    A build that fails is a Refusal that names the build's log.
    """
    archives = _find_archives(cache / "images", make_keys(CHECKOUT))
    if not all(archive.exists() for archive in archives.values()):
        with open_buildah(cache / "images", log) as buildah:
            archives = _build_missing(buildah, log)
    return {image.reference: archive for image, archive in archives.items()}


def make_keys(checkout: Path) -> dict[str, str]:
    """Hash what goes into each image: its folder, what it copies, and its base's own key."""
    keys = {"debian": hashlib.sha256("\0".join(MMDEBSTRAP).encode()).hexdigest()[:16]}
    for image in IMAGES:
        digest = hashlib.sha256(keys[image.base or "debian"].encode())
        for source in (f"images/{image.name}", *image.copies):
            for path in _list_files(checkout / source):
                executable = bool(path.stat().st_mode & 0o100)
                digest.update(f"{path.relative_to(checkout)}\0{executable}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        keys[image.name] = digest.hexdigest()[:16]
    return keys


def estimate_compressed(path: Path, *, every: int = 32) -> int:
    """Estimate the file's size in bytes after gzip, from one of each `every` blocks of 256 KiB."""
    block = 256 * 1024
    size = path.stat().st_size
    taken = compressed = 0
    with path.open("rb") as file:
        for offset in range(0, size, block * every):
            file.seek(offset)
            data = file.read(block)
            taken += len(data)
            compressed += len(zlib.compress(data, 6))
    return size * compressed // taken if taken else 0


def _build_missing(buildah: Buildah, log: Callable[[str], None]) -> dict[Image, Path]:
    """Build one image after the other until each has its archive.

    An image whose files change while it is built is built again: its key would be untrue.
    """
    while True:
        keys = make_keys(CHECKOUT)
        archives = _find_archives(buildah.archives, keys)
        missing = [image for image, archive in archives.items() if not archive.exists()]
        if not missing:
            buildah.forget_all_but({_name(name, keys) for name in keys})
            return archives
        image = missing[0]
        began = time.monotonic()
        base = _ensure_base(image, buildah, keys)
        stored = _build_layers(image, base, buildah, keys)
        partial = buildah.push(f"archive of image {image.name}", stored, image.reference)
        if make_keys(CHECKOUT)[image.name] != keys[image.name]:
            log(f"image {image.name}: its files changed meanwhile, once more")
            continue
        _replace(archives[image], partial)
        log(
            f"image {image.name}: built in {format_elapsed(time.monotonic() - began)}, "
            f"{archives[image].stat().st_size / 1e6:.0f} MB, "
            f"about {estimate_compressed(archives[image]) / 1e6:.0f} MB compressed"
        )


def _replace(archive: Path, partial: Path) -> None:
    """Put the archive into its place and remove those of the image's earlier states."""
    partial.rename(archive)
    name = archive.name.rpartition("-")[0]
    for older in archive.parent.glob(f"{name}-*.tar"):
        if older != archive:
            older.unlink()


def _ensure_base(image: Image, buildah: Buildah, keys: dict[str, str]) -> str:
    """Return the name in the layer storage of what the image is built on."""
    base = next((other for other in IMAGES if other.name == image.base), None)
    stored = _name(image.base or "debian", keys)
    if not buildah.has(stored):
        if base is None:
            _build_debian(stored, buildah.archives / f"debian-{keys['debian']}.tar", buildah)
        else:
            _build_layers(base, _ensure_base(base, buildah, keys), buildah, keys)
    return stored


def _build_layers(image: Image, base: str, buildah: Buildah, keys: dict[str, str]) -> str:
    stored = _name(image.name, keys)
    dockerfile = CHECKOUT / "images" / image.name / "Dockerfile"
    buildah.build(f"image {image.name}", dockerfile, CHECKOUT, base=base, stored=stored)
    return stored


def _build_debian(stored: str, archive: Path, buildah: Buildah) -> None:
    if not archive.exists():
        partial = buildah.scratch / archive.name
        buildah.run("Debian base", [*MMDEBSTRAP, str(partial)])
        _replace(archive, partial)
    context = buildah.scratch / "debian"
    context.mkdir()
    (context / "base.tar").hardlink_to(archive)
    (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
    buildah.build("layer of the Debian base", context / "Dockerfile", context, stored=stored)


def _find_archives(folder: Path, keys: dict[str, str]) -> dict[Image, Path]:
    return {image: folder / f"{image.name}-{keys[image.name]}.tar" for image in IMAGES}


def _name(name: str, keys: dict[str, str]) -> str:
    return f"{REPOSITORY}/{name}:{keys[name]}"


def _list_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for child in sorted(path.rglob("*")):
        if child.is_file() and "__pycache__" not in child.parts:
            yield child
