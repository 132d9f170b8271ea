"""The private socket of a server: where it lies, and how a command travels through it.

A server listens on `server.sock` (mode 0600) in the folder that it serves. Whoever may open that file may open the
store, so requests need no token. Beside every other address, `POST /command` is there: a command of the command line,
with what it depends on, and the answer is its exit code with what its caller prints and does.

A command that is relayed loads this, so it imports nothing but `os`.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

SOCKET: Final = "server.sock"
SERVER_LOCK: Final = "server.lock"  # held by the process that serves the folder; contains its pid and address
PATH: Final = "command"
ANSWERED: Final = 200
DECLINED: Final = 409  # the caller carries out the command itself: nothing was changed
_NEVER: Final = float("inf")
LONGEST: Final = 100  # bytes of an address; a socket's has at most 107, on some systems 103
Piece = tuple[bytes, bytes]  # of an answer: a kind and its content
# Print, print an error, forget a token, start a copy, record a hook of a client's session.
OUT, ERROR, FORGET, COPY, HOOK = b"o", b"e", b"f", b"c", b"h"


def address(folder: str, name: str = SOCKET) -> tuple[str, int | None]:
    """The address of a socket in a folder, and a descriptor to close once it was used: some paths are too long."""
    path = os.path.join(folder, name)
    if len(os.fsencode(path)) <= LONGEST or not os.path.isdir("/proc/self/fd"):
        return path, None
    opened = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    return f"/proc/self/fd/{opened}/{name}", opened


def describe_silence(folder: str) -> tuple[str, str]:
    """What a command says of a server that does not answer, and what to do about it."""
    pid = _pid_of(folder)
    if pid is None:
        return "the server of this folder does not answer", "look for it: holdfast where"
    if _is_stopped(pid):
        return f"the server (pid {pid}) is stopped", f"let it continue (kill -CONT {pid}), or end it (kill -9 {pid})"
    return f"the server (pid {pid}) does not answer", f"if it stays so, end it (kill {pid}) and start it again"


def _pid_of(folder: str) -> int | None:
    try:
        with open(os.path.join(folder, SERVER_LOCK), encoding="utf-8", errors="replace") as file:
            _, pid, *_ = file.read().split()  # pid 4711 at http://...
            return int(pid)
    except (OSError, ValueError):  # just started, or ended
        return None


def _is_stopped(pid: int) -> bool:
    """Whether a process is stopped by a signal, where the system tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


class Request:
    """A command as it travels: its words and what it depends on beside the workspace."""

    def __init__(
        self,
        version: str,
        view: str,
        folder: str,
        key: str,
        columns: int | None,
        environ: dict[str, str],
        words: list[str],
        given: bytes,
        until: float = _NEVER,
        error_columns: int | None = None,
    ) -> None:
        self.version = version
        self.view = view  # of the file system
        self.folder = folder  # the current one
        self.key = key
        self.columns = columns  # of the terminal; None if there is none
        self.error_columns = error_columns  # of the one that shows standard error
        self.environ = environ
        self.words = words
        self.given = given  # on standard input
        self.until = until  # the monotonic time after which its caller carries it out itself

    def encode(self) -> bytes:
        """As bytes: neither words nor the environment can contain NUL."""
        variables = [f"{name}={value}" for name, value in self.environ.items()]
        widths = str(self.columns or ""), str(self.error_columns or "")
        parts = [self.version, self.view, self.folder, self.key, *widths, repr(self.until)]
        parts += [str(len(variables)), *variables, str(len(self.words)), *self.words]
        return "\0".join(parts).encode("utf-8", "surrogateescape") + b"\0" + self.given

    @classmethod
    def decode(cls, body: bytes) -> Request:
        """From bytes. Raises ValueError if they are no request."""
        version, view, folder, key, width, error_width, until, count, *rest = body.split(b"\0")
        variables, (many, *more) = rest[: int(count)], rest[int(count) :]
        words, given = more[: int(many)], more[int(many) :]
        if len(words) != int(many) or not given:
            raise ValueError("a request is cut short")
        environ = dict(_text(each).split("=", 1) for each in variables)
        return cls(
            _text(version),
            _text(view),
            _text(folder),
            _text(key),
            int(width) if width else None,
            environ,
            [_text(each) for each in words],
            b"\0".join(given),
            float(until),
            int(error_width) if error_width else None,
        )


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def encode_answer(code: int, pieces: Sequence[Piece]) -> bytes:
    """The exit code of a command, and what its caller does: print pieces of text, forget tokens, start a copy."""
    return b"%d\n" % code + b"".join(b"%b%d\n%b" % (kind, len(content), content) for kind, content in pieces)


def decode_answer(body: bytes) -> tuple[int, list[Piece]]:
    """The exit code and the pieces. Raises ValueError if they are cut short."""
    head, line, rest = body.partition(b"\n")
    pieces: list[Piece] = []
    while rest:
        size, line, rest = rest.partition(b"\n")
        length = int(size[1:])
        if not line or len(rest) < length:
            raise ValueError("an answer is cut short")
        pieces.append((size[:1], rest[:length]))
        rest = rest[length:]
    return int(head), pieces
