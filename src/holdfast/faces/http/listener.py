"""The settings and sockets of a server, its certificate, and the lock of its folder.

`connect(url, verify="DIR/tls/cert.pem")` trusts this certificate only. It is valid for the names of the server; when
they change, or the certificate is about to expire, a new one is made, which clients need again.

A second server is refused with the pid and address of the first, before it has changed anything, even a socket file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import ssl
import stat
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from holdfast import errors, private_socket
from holdfast.filesystem import write_private

if TYPE_CHECKING:
    from cryptography import x509


PORT: Final = 4653
MAX_WATCHERS: Final = 4096  # per token
BACKUPS_KEPT: Final = 7


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a server.

    `tls_auto`: make a certificate on the first start, in the folder `tls`. `access_log` is a file that gets a line for
    every request. Backups go to `backup_folder`, every `backup_every` seconds and at the end. Without that folder
    `stop_folder` says where the backup of a workspace's folder goes when the server stops.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = PORT
    socket: Path | None = None
    tls_auto: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None
    allow_hosts: tuple[str, ...] = ()
    max_watchers: int = MAX_WATCHERS
    access_log: Path | None = None
    backup_folder: Path | None = None
    backup_every: float | None = None
    backups_kept: int = BACKUPS_KEPT
    stop_folder: Callable[[Path], Path] | None = None

    @property
    def secure(self) -> bool:
        """Whether it uses TLS."""
        return self.tls_auto or self.tls_cert is not None

    def check(self) -> None:
        """Raise Invalid for settings that are unsafe or contradict each other."""
        if self.socket is None and not self.secure and not is_loopback(self.host):
            message = f"{self.host} can be reached from other machines, and without TLS tokens would travel in the open"
            hint = "give --tls auto, or --tls-cert and --tls-key, or listen on 127.0.0.1 or a --socket"
            raise errors.Invalid(message, hint=hint)
        if self.socket is not None and self.socket.resolve() == (self.folder / private_socket.SOCKET).resolve():
            message = f"{self.socket} is the server's private socket, which it opens anyway"
            raise errors.Invalid(message, hint="choose another --socket")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise errors.Invalid("a certificate needs its key", hint="give both --tls-cert and --tls-key")
        if self.tls_auto and self.tls_cert is not None:
            raise errors.Invalid("--tls auto makes its own certificate", hint="give either, not both")
        if not 0 <= self.port <= 65535:
            raise errors.Invalid(f"--port must be 0 to 65535, not {self.port}")
        for name, given in (("--max-watchers", self.max_watchers), ("--backup-keep", self.backups_kept)):
            if given < 1:
                raise errors.Invalid(f"{name} must be 1 or more, not {given}")
        if self.tls_auto and self.socket is not None:
            raise errors.Invalid("a Unix socket needs no TLS", hint="give either --tls or --socket")
        if self.backup_every is not None and (self.backup_folder is None or not 1 <= self.backup_every < 1e9):
            raise errors.Invalid("--backup-every must be at least a second, and needs --backup-dir")
        for host in self.allow_hosts:
            if not host or not host.isascii() or not host.isprintable() or any(each in host for each in " /,@"):
                raise errors.Invalid(f"--allow-host cannot be {host!r}", hint="name it as clients do: example.org:4653")


def host_in(address: str) -> str:
    """The host of a HOST:PORT, also of [ADDRESS]:PORT."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.rpartition(":")[0] or address


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


FOLDER: Final = "tls"
LIFE: Final = timedelta(days=825)  # the longest that clients accept
RENEW: Final = timedelta(days=30)  # before it expires
_log = logging.getLogger("holdfast.http")


def certificate(folder: Path, hosts: Iterable[str]) -> tuple[Path, Path]:
    """The files of the certificate and its key, made if there are none that are valid for these hosts."""
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise errors.not_installed("a certificate", "server", error) from error
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
    """Raise Invalid unless a server can use TLS with these files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ValueError) as error:  # of which ssl.SSLError is one
        hint = "they must be PEM files of one certificate; the key must have no passphrase"
        raise errors.Invalid(f"{cert} and {key} cannot be used as certificate and key: {error}", hint=hint) from error


def _is_good(cert: Path, key: Path, names: list[str]) -> bool:
    """Whether both belong together, cover these names, and do not expire soon."""
    from cryptography import x509

    try:
        check(cert, key)
        found = x509.load_pem_x509_certificate(cert.read_bytes())
        covered = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (errors.Invalid, ValueError, x509.ExtensionNotFound) as error:
        _log.warning("%s is replaced, and clients need the new one: %s", cert, error)
        return False
    known = {*covered.get_values_for_type(x509.DNSName), *map(str, covered.get_values_for_type(x509.IPAddress))}
    good = set(names) <= known and found.not_valid_after_utc - datetime.now(UTC) > RENEW
    if not good:
        _log.warning("%s is replaced, for other names or because it expires: clients need the new one", cert)
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
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return cert.public_bytes(pem), key.private_bytes(pem, pkcs8, serialization.NoEncryption())


def _general(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class ServerLock:
    """The lock that allows one server per folder.

    The file says who has it; the folder itself is locked too, which holds although somebody removes the file.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / private_socket.SERVER_LOCK

    def __enter__(self) -> ServerLock:
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return self._lock_file()
        except BaseException:
            os.close(self._folder)
            raise

    def _lock_file(self) -> ServerLock:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 1000, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            message = f"{self._path.parent} is served by {holder or 'another process'}"
            raise errors.Unavailable(message, hint="use that server, or stop it") from error
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            message = f"{self._path.parent} is served by a process whose {self._path.name} somebody has removed"
            hint = "find that server and stop it, then start this one; never remove files of a workspace"
            raise errors.Unavailable(message, hint=hint) from error
        os.ftruncate(self._descriptor, 0)
        return self

    def publish(self, url: str) -> None:
        """Write pid and address into the lock, for servers that are refused."""
        os.pwrite(self._descriptor, f"pid {os.getpid()} at {url}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        os.close(self._folder)


def bind(settings: Settings) -> socket.socket:
    """The bound socket of a server."""
    try:
        return _bind_path(settings.socket) if settings.socket is not None else _bind_port(settings)
    except OSError as error:
        where = settings.socket or f"{settings.host}:{settings.port}"
        hint = "choose --port, --host or --socket"
        raise errors.Unavailable(f"cannot listen on {where}: {error.strerror or error}", hint=hint) from error


def _bind_port(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, so that the loop sets TCP_NODELAY
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host, settings.port))
    except BaseException:
        bound.close()
        raise
    return bound


def bind_private(folder: Path) -> socket.socket | None:
    """The bound private socket of a server; None if the system cannot have one there, which is logged.

    The caller holds the lock of the folder, so a socket that lies there belongs to no other server.
    """
    address, opened = private_socket.address(str(folder))
    path = folder / private_socket.SOCKET
    try:
        if path.is_socket():
            path.unlink()  # left by a server that was killed
        return _bind_address(address)
    except OSError as error:
        _log.warning("%s cannot be opened, so commands use the store themselves: %s", path, error.strerror or error)
        return None
    finally:
        if opened is not None:
            os.close(opened)


def identity_of(path: Path) -> tuple[int, int]:
    """Tells a file from one that took its place."""
    status = path.lstat()
    return status.st_dev, status.st_ino


def remove_socket(path: Path, made: tuple[int, int]) -> None:
    """Remove the file of a socket that was closed; what others have put there meanwhile is left alone."""
    try:
        if identity_of(path) == made:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:  # the server has done its work
        _log.warning("%s is left behind: %s", path, error.strerror or error)


def _bind_path(path: Path) -> socket.socket:
    """A socket that only its owner can open; replaces a socket that nobody listens on, and nothing else."""
    _clear(path)
    return _bind_address(str(path))


def _bind_address(address: str) -> socket.socket:
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _clear(path: Path) -> None:
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise errors.Invalid(f"{path} exists and is not a socket", hint="choose another --socket")
    with socket.socket(socket.AF_UNIX) as other:
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()  # left by a server that was killed
            return
    raise errors.Unavailable(f"another process listens on {path}", hint="choose another --socket")
