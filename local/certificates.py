"""A certificate authority of the cluster's own, made by the openssl command."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from local.errors import Refusal

DAYS = 3650


@dataclass(frozen=True)
class Identity:
    """Who a certificate is for: file name, subject, and the addresses it serves under."""

    name: str
    common_name: str
    organization: str = ""
    addresses: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        group = f"/O={self.organization}" if self.organization else ""
        return f"{group}/CN={self.common_name}"


class Authority:
    """Keys and certificates in one directory; what is there and still fits is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def certificate(self) -> Path:
        return self.directory / "ca.crt"

    def find_certificate(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def find_key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def ensure_authority(self) -> None:
        """Make the authority and the service accounts' signing key, unless they are there."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        request = "/CN=spectrum-local"
        if self._is_made("ca", request):
            return
        extensions = ["basicConstraints=critical,CA:true", "keyUsage=critical,keyCertSign,cRLSign"]
        self._make("ca", request, extensions)
        key = self.find_key("service-account")
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        _openssl("pkey", "-in", key, "-pubout", "-out", self.directory / "service-account.pub")
        self._note_made("ca", request)

    def ensure_certificate(self, identity: Identity) -> None:
        """Sign a certificate for the identity, unless one with just that content is there."""
        request = f"{identity.subject} {','.join(identity.addresses)}"
        if self._is_made(identity.name, request):
            return
        extensions = [
            "basicConstraints=critical,CA:false",
            "keyUsage=critical,digitalSignature",
            "extendedKeyUsage=clientAuth,serverAuth",
        ]
        if identity.addresses:
            names = ",".join(
                f"{'IP' if address.replace('.', '').isdigit() else 'DNS'}:{address}"
                for address in identity.addresses
            )
            extensions.append(f"subjectAltName={names}")
        signer = ["-CA", str(self.certificate), "-CAkey", str(self.find_key("ca"))]
        self._make(identity.name, identity.subject, extensions, *signer)
        self._note_made(identity.name, request)

    def _make(self, name: str, subject: str, extensions: list[str], *signer: str) -> None:
        added = [part for extension in extensions for part in ("-addext", extension)]
        key, certificate = self.find_key(name), self.find_certificate(name)
        _openssl(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc"),
            *("-days", str(DAYS), "-subj", subject, "-config", "/dev/null", *added, *signer),
            *("-keyout", key, "-out", certificate),
        )

    # The request is noted last, so that a certificate half made by a killed run is made again.
    def _is_made(self, name: str, request: str) -> bool:
        note = self.directory / f"{name}.request"
        return note.exists() and note.read_text() == request

    def _note_made(self, name: str, request: str) -> None:
        (self.directory / f"{name}.request").write_text(request)


def _openssl(*arguments: str | Path) -> None:
    result = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        reason = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise Refusal(f"openssl {arguments[0]} failed: {reason}")
