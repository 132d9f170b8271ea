"""Where a server listens, and that it is the only one on its folder.

A second server is refused with the first one's pid and address, before it has touched anything: not even a socket file.
"""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Final

from holdfast import errors
from holdfast.faces.http.settings import Settings

LOCK: Final = "server.lock"


class Sole:
    """The right to serve a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK

    def __enter__(self) -> Sole:
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._descriptor, 1000, 0).decode(errors="replace").strip()
            os.close(self._descriptor)
            raise errors.Unavailable(
                f"{self._path.parent} is served already, by {holder or 'somebody'}", hint="use that server, or stop it"
            ) from error
        os.ftruncate(self._descriptor, 0)
        return self

    def tell(self, url: str) -> None:
        """Say who it is, for those that are refused."""
        os.pwrite(self._descriptor, f"pid {os.getpid()} at {url}\n".encode(), 0)

    def __exit__(self, *_: object) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def bind(settings: Settings) -> socket.socket:
    """The socket, bound before anything is promised."""
    try:
        return _bind_path(settings.socket) if settings.socket is not None else _bind_port(settings)
    except OSError as error:
        where = settings.socket or f"{settings.host}:{settings.port}"
        raise errors.Unavailable(
            f"cannot listen on {where}: {error.strerror or error}", hint="choose --port, --host or --socket"
        ) from error


def _bind_port(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # the loop sets TCP_NODELAY if it says so
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((settings.host, settings.port))
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_path(path: Path) -> socket.socket:
    """A socket that is its owner's alone; takes the place of one that nobody listens on, and of nothing else."""
    _clear(path)
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
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
        raise errors.Invalid(f"{path} is there, and is no socket", hint="choose another --socket")
    with socket.socket(socket.AF_UNIX) as other:
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()  # left by one that was killed
            return
    raise errors.Unavailable(f"somebody listens on {path} already", hint="choose another --socket")
