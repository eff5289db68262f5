"""Spectrum's container images, built without a Docker daemon or a registry.

`build_all` turns `images/*/Dockerfile` into docker-archive files on Debian bases made by
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
# what tools leave in a checkout, and no Dockerfile copies or trusts
LEFT = {"__pycache__", "build", "node_modules"}
KEY_DIGITS = 16


@dataclass(frozen=True)
class Image:
    """What a Dockerfile of ours makes on a base.

    `folder` of `images/` has the Dockerfile and `copies` are other paths that it copies. `base` is
    another image or a release of Debian, and `lab` one that it copies from. A `step` is there for
    others to be built on or to copy from alone.
    """

    name: str
    folder: str
    copies: tuple[str, ...] = ()
    base: str = "bookworm"
    lab: str = ""
    is_step: bool = False

    @property
    def reference(self) -> str:
        return f"{REPOSITORY}/{self.name}:dev"

    @property
    def sources(self) -> tuple[str, ...]:
        """The paths of the checkout that go into it."""
        return (f"images/{self.folder}", *self.copies)

    @property
    def needs(self) -> dict[str, str]:
        """What it is made of by the arguments of its Dockerfile."""
        return {"BASE_IMAGE": self.base} | ({"LAB_IMAGE": self.lab} if self.lab else {})


def _step(name: str, *, folder: str, base: str) -> Image:
    return Image(name, folder, base=base, is_step=True)


def _notebook(name: str, *, base: str) -> Image:
    ours = ("images/spectrum_lab/pyproject.toml", "images/spectrum_lab/spectrum_lab")
    return Image(name, "notebook", ours, base, lab="lab")


# Each release stands for a Python: 3.11, 3.13.
DEBIANS = ("bookworm", "trixie")

# In the order of building: what is needed stands before what needs it.
IMAGES = (
    Image("lab", "lab", ("images/spectrum_lab/lab",), is_step=True),
    _step("foundation", folder="foundation", base="bookworm"),
    _notebook("base-notebook", base="foundation"),
    _step("tensorflow", folder="tensorflow", base="foundation"),
    _notebook("tensorflow-notebook", base="tensorflow"),
    _step("foundation-py313", folder="foundation", base="trixie"),
    _step("tensorflow-py313", folder="tensorflow", base="foundation-py313"),
    _notebook("tensorflow-notebook-py313", base="tensorflow-py313"),
    _step("pytorch", folder="pytorch", base="foundation-py313"),
    _notebook("pytorch-notebook", base="pytorch"),
    Image("proxy", "proxy"),
    Image("hub", "hub", ("LICENSE", "hub_config", "pyproject.toml", "spectrum_spawner")),
)

# What Debian's own slim images leave out is left out here too. The release comes last, and its
# signature is checked with the keys of the package debian-archive-keyring.
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


def ensure_stored(name: str, buildah: Buildah) -> str:
    """Return the name in the layer storage of one of our images, built if it is not there."""
    return _ensure(name, buildah, make_keys(CHECKOUT))


def make_keys(checkout: Path) -> dict[str, str]:
    """Hash what goes into each base and image: its sources and the keys of what it needs."""
    keys = {release: _hash_debian(release) for release in DEBIANS}
    for image in IMAGES:
        digest = hashlib.sha256("".join(keys[need] for need in image.needs.values()).encode())
        for source in image.sources:
            for path in _list_files(checkout / source):
                executable = bool(path.stat().st_mode & 0o100)
                digest.update(f"{path.relative_to(checkout)}\0{executable}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
        keys[image.name] = digest.hexdigest()[:KEY_DIGITS]
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
        stored = _build_layers(image, buildah, keys)
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
    """Put the archive into its place and remove those of its earlier states."""
    partial.rename(archive)
    for older in list_states(archive.parent, archive.name.rpartition("-")[0], ".tar"):
        if older != archive:
            older.unlink()


def list_states(folder: Path, name: str, suffix: str = "") -> list[Path]:
    """List what has the name and a key; `tensorflow-notebook-py313-…` is no tensorflow-notebook."""
    return sorted(folder.glob(f"{name}-{'[0-9a-f]' * KEY_DIGITS}{suffix}"))


def _ensure(name: str, buildah: Buildah, keys: dict[str, str]) -> str:
    """Return the name in the layer storage of an image or a Debian release that others need."""
    stored = _name(name, keys)
    if not buildah.has(stored):
        if name in DEBIANS:
            _build_debian(name, stored, buildah, keys)
        else:
            (image,) = (other for other in IMAGES if other.name == name)
            _build_layers(image, buildah, keys)
    return stored


def _build_layers(image: Image, buildah: Buildah, keys: dict[str, str]) -> str:
    needs = {key: _ensure(name, buildah, keys) for key, name in image.needs.items()}
    stored = _name(image.name, keys)
    dockerfile = CHECKOUT / "images" / image.folder / "Dockerfile"
    buildah.build(f"image {image.name}", dockerfile, CHECKOUT, needs=needs, stored=stored)
    return stored


def _build_debian(release: str, stored: str, buildah: Buildah, keys: dict[str, str]) -> None:
    archive = buildah.archives / f"debian-{release}-{keys[release]}.tar"
    if not archive.exists():
        partial = buildah.scratch / archive.name
        buildah.run(f"Debian {release}", [*MMDEBSTRAP, release, str(partial)])
        _replace(archive, partial)
    context = buildah.scratch / release
    context.mkdir()
    (context / "base.tar").hardlink_to(archive)
    (context / "Dockerfile").write_text('FROM scratch\nADD base.tar /\nCMD ["bash"]\n')
    buildah.build(f"layer of Debian {release}", context / "Dockerfile", context, stored=stored)


def _hash_debian(release: str) -> str:
    return hashlib.sha256("\0".join([*MMDEBSTRAP, release]).encode()).hexdigest()[:KEY_DIGITS]


def _find_archives(folder: Path, keys: dict[str, str]) -> dict[Image, Path]:
    kept = [image for image in IMAGES if not image.is_step]
    return {image: folder / f"{image.name}-{keys[image.name]}.tar" for image in kept}


def _name(name: str, keys: dict[str, str]) -> str:
    return f"{REPOSITORY}/{name}:{keys[name]}"


def _list_files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for child in sorted(path.rglob("*")):
        if child.is_file() and LEFT.isdisjoint(child.relative_to(path).parts):
            yield child
