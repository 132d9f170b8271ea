"""What a server is told when it starts, and what of it is refused because it would let in strangers."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Final

import msgspec

from holdfast import errors

PORT: Final = 4653
MAX_WATCHERS: Final = 4096  # of one token
BACKUPS_KEPT: Final = 7


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is told.

    `tls_auto`: make a certificate of its own on the first start, in the folder `tls`. `access_log` is a file that gets
    a line for every request. Backups go to `backup_folder`, every `backup_every` seconds and at the end.
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

    @property
    def secure(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls_auto or self.tls_cert is not None

    def check(self) -> None:
        """Refuse what would let in strangers, and what makes no sense."""
        if self.socket is None and not self.secure and not is_loopback(self.host):
            raise errors.Invalid(
                f"{self.host} can be reached from other machines, and without TLS tokens would travel in the open",
                hint="give --tls auto, or --tls-cert and --tls-key, or listen on 127.0.0.1 or a --socket",
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise errors.Invalid("a certificate and its key go together", hint="give --tls-cert and --tls-key")
        if self.tls_auto and self.tls_cert is not None:
            raise errors.Invalid("--tls auto makes its own certificate", hint="give either, not both")
        for name, given, least in (
            ("--port", self.port, 0),
            ("--max-watchers", self.max_watchers, 1),
            ("--backup-keep", self.backups_kept, 1),
        ):
            if given < least or (name == "--port" and given > 65535):
                raise errors.Invalid(f"{name} cannot be {given}")
        if self.tls_auto and self.socket is not None:
            raise errors.Invalid("a Unix socket needs no TLS", hint="give either --tls or --socket")
        if self.backup_every is not None and (self.backup_folder is None or not 1 <= self.backup_every < 1e9):
            raise errors.Invalid("--backup-every is at least a second, and goes with --backup-dir")
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
