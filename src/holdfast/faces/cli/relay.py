"""Commands through the server that runs on the workspace's folder, which has everything loaded already.

A command sends its words to the private socket, with what else it depends on, and the server carries it out with the
code that would run here, so it prints the same. The server declines what it must not do for others (waiting, starting
processes, writing files), what comes from another version, and callers who see other files than it does: then the
command does it itself, as it does when no server runs.

Until the first byte is sent nothing has happened, so a server that cannot be reached is not missed. After that the
outcome is settled by a key, which every write carries: repeated on the store it returns the first answer, or happens
now, but never twice.

This is what a relayed command loads, so it imports little that Python has not loaded anyway.
"""

from __future__ import annotations

import os
import sys

from holdfast.faces.cli import location
from holdfast.private_socket import (
    ANSWERED,
    COPY,
    DECLINED,
    FORGET,
    OUT,
    PATH,
    SOCKET,
    Piece,
    Request,
    address,
    decode_answer,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Final

TIMEOUT: Final = 20.0  # seconds for an answer: more than a store waits for its turn
_VALUED: Final = ("--dir", "--url", "--actor", "--key", "--fence", "--at-least")  # options before a command
_OWN: Final = {
    "--direct",
    "--help",
    "-h",
    "--version",
}  # with these, and when reading standard input, a command is direct
_DIRECT: Final = {
    *("backup", "bench", "completion", "demo", "doctor", "export", "help", "import", "init", "login", "mcp", "prime"),
    *("restore", "run", "schema", "serve", "setup", "token", "turn", "upgrade", "watch", "where"),
}
_ENVIRONMENT: Final = ("HOME", "LOGNAME", "NO_COLOR", "TERM", "TZ", "USER", "XDG_STATE_HOME")
_SECRET: Final = ("HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE")


class Recorder:
    """Takes the place of a stream in a server that carries out a command. `columns` are those of its terminal."""

    def __init__(self, kind: bytes, pieces: list[Piece], columns: int | None = None) -> None:
        self._kind = kind
        self._pieces = pieces
        self.columns = columns

    def write(self, text: str) -> None:
        """Add text."""
        self._pieces.append((self._kind, text.encode("utf-8", "surrogateescape")))

    def flush(self) -> None:
        """It is sent at the end."""

    def isatty(self) -> bool:
        """Whether the caller's stream is a terminal."""
        return self.columns is not None


def view() -> str:
    """Names the file system as this process sees it: paths mean the same to all that have the same view."""
    root = os.stat("/")
    try:
        mounts = os.readlink("/proc/self/ns/mnt")
    except OSError:  # not Linux: there is one view for all, but for a changed root
        mounts = ""
    return f"{mounts} {root.st_dev} {root.st_ino}"


def columns(is_terminal: bool) -> int | None:
    """The columns of the terminal; None if standard output is none."""
    if not is_terminal:
        return None
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdigit() and int(chosen):
        return int(chosen)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80  # type: ignore[union-attr]  # None: as below
    except (AttributeError, ValueError, OSError):  # no stream, or one that is not the terminal's
        return 80


def value_of(words: Sequence[str], option: str) -> str | None:
    """The value of an option, before the words are parsed; None if it is not there."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word[len(option) + 1 :]
    return None


# --- the calling side ------------------------------------------------------------------------------------------------


def through_server(words: list[str]) -> tuple[int | None, str | None]:
    """Have the server carry out a command, if there is one that does; returns the exit code.

    Else None: the command is carried out here, and under the returned key if the server may have begun.
    """
    own = words[: words.index("--")] if "--" in words else words
    if not _is_relayed(words, own):
        return None, None
    try:
        folder = os.getcwd()
        place = location.find(
            {"dir": value_of(own, "--dir"), "url": value_of(own, "--url")}, os.environ, lambda: folder
        )
    except Exception:  # the command itself meets it again, and reports it
        return None, None
    connection = None if place is None or place.folder is None else connect(place.folder)
    if place is None or connection is None:
        return None, None
    given = _take_input() if "--hook" in own else b""
    key = os.urandom(16).hex()
    request = Request(_version(), view(), folder, key, columns(sys.stdout.isatty()), _environment(), words, given)
    status, body = _exchange(connection, request.encode())
    if status == DECLINED:
        return None, None
    return (None, key) if status != ANSWERED else (_obey(*decode_answer(body), place.folder or ""), None)


def is_used(folder: str) -> bool:
    """Whether the server of a folder carries out commands of this process; a command without words asks it."""
    connection = connect(folder)
    request = Request(_version(), view(), "", "", None, _environment(), [], b"")
    return connection is not None and _exchange(connection, request.encode())[0] == ANSWERED


def connect(folder: str) -> socket | None:
    """A connection to the server of a folder; None if there is none. What a killed server left behind is no server."""
    if not os.path.exists(os.path.join(folder, SOCKET)):
        return None
    from _socket import AF_UNIX, SOCK_STREAM, socket  # `socket` itself takes half as long as starting Python

    path, opened = address(folder)
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(TIMEOUT)
        connection.connect(path)
    except OSError:
        connection.close()
        return None
    finally:
        if opened is not None:
            os.close(opened)
    return connection


def _is_relayed(words: Sequence[str], own: Sequence[str]) -> bool:
    """Whether a server might carry this out: it decides."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUED else 1
    if at >= len(words) or words[at] in _DIRECT or not _OWN.isdisjoint(own):
        return False
    return not any(word == "-" or word.endswith("=-") for word in words)  # which stand for standard input


def _version() -> str:
    from holdfast import __version__

    return __version__


def _environment() -> dict[str, str]:
    """What commands read of it, but for secrets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in _ENVIRONMENT or (name.startswith("HOLDFAST_") and name not in _SECRET)
    }


def _take_input() -> bytes:
    """Read standard input, and have it there again for a command that is carried out here after all."""
    from io import BytesIO, TextIOWrapper

    content = sys.stdin.buffer.read()
    sys.stdin = TextIOWrapper(BytesIO(content), encoding="utf-8")
    return content


def _exchange(connection: socket, body: bytes) -> tuple[int, bytes]:
    """Send a request; returns the status and the body of the response, 0 if none came, or not all of it."""
    head = f"POST /{PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    received = b""
    try:
        connection.sendall(head.encode() + body)
        while part := connection.recv(1 << 20):
            received += part
    except OSError as error:  # of which a timeout is one: a response that is not whole is none
        del error
    finally:
        connection.close()
    headers, _, content = received.partition(b"\r\n\r\n")
    first, *lines = headers.lower().split(b"\r\n")
    lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
    whole = lengths == [len(content)] and first.startswith(b"http/1.1 ")
    return (int(first[9:12]), content) if whole else (0, b"")


def _obey(code: int, pieces: Sequence[Piece], folder: str) -> int:
    """Do what is left to do: print, forget tokens, have the store copied; returns the exit code."""
    for kind, content in pieces:
        if kind == FORGET:
            _forget(os.path.join(folder, content.decode("utf-8", "surrogateescape")))
        elif kind == COPY:
            location.start_copying(folder, os.environ)
        else:
            (sys.stdout if kind == OUT else sys.stderr).write(content.decode("utf-8", "surrogateescape"))
    return code


def _forget(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
