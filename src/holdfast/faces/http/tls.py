"""`--tls auto`: a certificate of the server's own, made on its first start and kept, for clients to pin.

`connect(url, verify="DIR/tls/cert.pem")` trusts this one and no other. It is good for the names under which the server
is called; when these change, or it runs out, a new one is made, which clients have to be given again.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast import errors
from holdfast.faces.http.tokens import write_private

if TYPE_CHECKING:
    from cryptography import x509

FOLDER: Final = "tls"
LIFE: Final = timedelta(days=825)  # as long as clients accept
RENEW: Final = timedelta(days=30)  # before its end
_log = logging.getLogger("holdfast.http")


def certificate(folder: Path, hosts: Iterable[str]) -> tuple[Path, Path]:
    """The files of the certificate and its key, made if there are none that fit."""
    names = sorted({*hosts, socket.gethostname(), "localhost", "127.0.0.1", "::1"} - {"0.0.0.0", "::"})
    place = folder / FOLDER
    place.mkdir(mode=0o700, exist_ok=True)
    cert, key = place / "cert.pem", place / "key.pem"
    if not (cert.exists() and key.exists() and _is_good(cert, key, names)):
        made, secret = _make(names)
        write_private(key, secret)
        write_private(cert, made)
    return cert, key


def check(cert: Path, key: Path) -> None:
    """Invalid if a server could not speak TLS with these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        raise errors.Invalid(
            f"{cert} and {key} cannot be used as certificate and key: {error}",
            hint="both are PEM files that belong together; the key has no passphrase",
        ) from error


def _is_good(cert: Path, key: Path, names: list[str]) -> bool:
    """Whether both belong together and are good for these names, for some time to come."""
    from cryptography import x509

    try:
        check(cert, key)
        found = x509.load_pem_x509_certificate(cert.read_bytes())
        told = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (errors.Invalid, ValueError, x509.ExtensionNotFound) as error:
        _log.warning("%s is made anew, and clients need the new one: %s", cert, error)
        return False
    known = {*told.get_values_for_type(x509.DNSName), *map(str, told.get_values_for_type(x509.IPAddress))}
    good = set(names) <= known and found.not_valid_after_utc - datetime.now(UTC) > RENEW
    if not good:
        _log.warning("%s is made anew, for other names or a longer time: clients need the new one", cert)
    return good


def _make(names: list[str]) -> tuple[bytes, bytes]:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return cert.public_bytes(serialization.Encoding.PEM), secret


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
