"""A container image of one static binary, as a docker-archive file, by the standard library."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path


def write_binary_archive(path: Path, reference: str, binary: Path) -> None:
    """Write an image that holds the binary alone, runs it, and is called `reference`.

    The same binary gives the same bytes. An archive that is there is kept: the caller's path
    must name the binary's build.
    """
    if path.exists():
        return
    layer = _make_tar({binary.name: binary.read_bytes()}, mode=0o755)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": [f"/{binary.name}"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
        },
        sort_keys=True,
    ).encode()
    config_name = f"{_digest(config)}.json"
    manifest = [{"Config": config_name, "RepoTags": [reference], "Layers": ["layer.tar"]}]
    content = {
        config_name: config,
        "layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(_make_tar(content, mode=0o644))
    partial.rename(path)


def _make_tar(files: dict[str, bytes], *, mode: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
