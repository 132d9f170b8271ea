"""Commands through the server that runs on the workspace's folder, which has everything loaded already.

A command sends its words to the private socket, with what else it depends on, and the server carries it out with the
code that would run here, so it prints the same. The server declines what it must not do for others (waiting, starting
processes, writing files), what comes from another version, and callers who see other files than it does: then the
command does it itself, as it does when no server runs.

A server that does not take a command within a second, because it is stopped, say, is not sent it. After it took one the
outcome is settled by a key, which every write carries: repeated on the store it returns the first answer, or happens
now, but never twice. A command says until when it waits; the server begins no write after that, so an error that the
store raises then is final too.

This is what a relayed command loads, so it imports little that Python has not loaded anyway.
"""

from __future__ import annotations

import os
import sys
from time import monotonic

from holdfast import client_sessions
from holdfast.faces.cli import location
from holdfast.private_socket import (
    ANSWERED,
    COPY,
    DECLINED,
    FORGET,
    HOOK,
    OUT,
    PATH,
    SOCKET,
    Piece,
    Request,
    address,
    decode_answer,
    describe_silence,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Sequence
    from typing import Any, Final

TAKEN: Final = 1.0  # seconds for a server to take a command
TIMEOUT: Final = 20.0  # seconds for an answer after that: more than a store waits for its turn
HURRIED: Final = {"completion": 1.0, "guard": 1.0}  # the same for commands whose callers have a deadline of their own
SILENCE: Final = 2.0  # seconds until a command says what it waits for
_VALUED: Final = ("--dir", "--url", "--actor", "--key", "--fence", "--at-least")  # options before a command
_OWN: Final = {
    "--direct",
    "--help",
    "-h",
    "--version",
}  # with these, and when reading standard input, a command is direct
_DIRECT: Final = {
    *("backup", "bench", "demo", "detach", "doctor", "edit", "export", "share", "help", "import", "init", "login"),
    *("mcp", "prime", "rebuild", "replicate", "restore", "run", "schema", "serve", "setup", "token", "turn"),
    *("upgrade", "version", "watch", "where"),
}
_READERS: Final = {"next", "prime"}  # they read the tasks that came with the repository, if there are new ones
_ASKS: Final = {"add", "create", "new", "q"}  # they may have a question for the person at the terminal
_HEAD: Final = (
    f"POST /{PATH} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\n"
    "content-length: %d\r\n\r\n"
).encode()
_CONTINUE: Final = b"HTTP/1.1 100 "
_RESTART: Final = "restart the server"
UNTAKEN: Final = -1  # in place of a status: nothing was sent
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
    """Names the files and the clock as this process sees them: paths and times mean the same to all that share it."""
    root = os.stat("/")
    return f"{_namespace('mnt')} {_namespace('time')} {root.st_dev} {root.st_ino}"


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:  # not Linux, or before it had such: there is one for all, but for a changed root
        return ""


def columns(stream: Any) -> int | None:
    """The columns of the terminal that a stream goes to; None if it is none."""
    if isinstance(stream, Recorder):
        return stream.columns
    if not stream.isatty():
        return None
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdigit() and int(chosen):
        return int(chosen)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (AttributeError, ValueError, OSError):  # it only says that it is one
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
    if place is None or (_command(words) in _READERS and location.unread_share(place.folder, folder) is not None):
        return None, None
    connection = None if place.folder is None else connect(place.folder)
    if connection is None:
        return None, None
    given = _take_input() if "--hook" in own else b""
    key = os.urandom(16).hex()
    timeout = HURRIED.get(_command(words) or "", TIMEOUT)
    until = monotonic() + TAKEN + timeout
    widths = columns(sys.stdout), columns(sys.stderr)
    environment = _named(own, place.folder or "")
    request = Request(_version(), view(), folder, key, widths[0], environment, words, given, until, widths[1])
    status, body = _exchange(connection, request, lambda: _warn(place.folder or "", own))
    if status in (DECLINED, UNTAKEN):
        return None, None
    return (None, key) if status != ANSWERED else (_obey(*decode_answer(body), place.folder or ""), None)


def say_where(words: list[str], *, here: bool, repeated: bool) -> None:
    """With -v: say where a command is carried out."""
    own = words[: words.index("--")] if "--" in words else words
    if not {"-v", "--verbose"} & {*own}:
        return
    if repeated:
        text = "the server took it and did not answer: repeated here, under the same key"
    else:
        text = "carried out here, on the store itself" if here else "carried out by the server of this folder"
    if "--json" in own or os.environ.get("HOLDFAST_JSON") not in (None, "", "0"):
        from json import dumps

        text = dumps({"schema_version": 1, "note": text})
    sys.stderr.write(f"{text}\n")


def describe_use(folder: str) -> tuple[bool, str]:
    """Whether the server of a folder carries out commands of this process, as words too; one without words asks it."""
    connection, status, body = connect(folder), 0, b""
    if connection is not None:
        until = monotonic() + TAKEN + min(HURRIED.values())
        request = Request(_version(), view(), "", "", None, _environment(), [], b"", until)
        status, body = _exchange(connection, request)
    if status == ANSWERED:
        code, pieces = decode_answer(body)
        reason = "".join(content.decode("utf-8", "replace") for _, content in pieces)
        return code == 0, f"commands do not go through it: {reason}" if code else "commands go through it"
    if connection is None:
        return False, f"commands do not go through it: its socket {SOCKET} is missing or cannot be opened; {_RESTART}"
    if status == DECLINED:
        return False, "commands do not go through it: it is of another version, or in a container"
    return False, "commands do not go through it: {}; {}".format(*describe_silence(folder))


def connect(folder: str) -> socket | None:
    """A connection to the server of a folder; None if there is none.

    What a killed server left behind is no server, nor is what a user has put there who may write to the folder.
    """
    try:
        if os.stat(os.path.join(folder, SOCKET)).st_uid not in (os.stat(folder).st_uid, os.geteuid()):
            return None
    except OSError:
        return None
    from _socket import AF_UNIX, SOCK_STREAM, socket  # `socket` itself takes half as long as starting Python

    path, opened = address(folder)
    connection = socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.settimeout(TAKEN)
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
    command = _command(words)
    if command is None or command in _DIRECT or not _OWN.isdisjoint(own):
        return False
    if command in _ASKS and sys.stdin.isatty():
        return False
    return not any(word == "-" or word.endswith("=-") for word in words)  # which stand for standard input


def _command(words: Sequence[str]) -> str | None:
    """The word after the common options."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUED else 1
    return words[at] if at < len(words) else None


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


def _named(own: Sequence[str], folder: str) -> dict[str, str]:
    """The environment, with the name of the client's session that this process belongs to, if none was chosen.

    If it may belong to several, with their names.
    """
    environment = _environment()
    if environment.get("HOLDFAST_ACTOR") or "--hook" in own or value_of(own, "--actor"):
        return environment
    try:
        actor = client_sessions.actor_for(folder)
    except client_sessions.Several as several:
        return {**environment, client_sessions.SEVERAL: str(several)}
    return environment if actor is None else {**environment, "HOLDFAST_ACTOR": actor}


def _take_input() -> bytes:
    """Read standard input, and have it there again for a command that is carried out here after all."""
    from io import BytesIO, TextIOWrapper

    content = sys.stdin.buffer.read()
    sys.stdin = TextIOWrapper(BytesIO(content), encoding="utf-8")
    return content


def _exchange(connection: socket, request: Request, warn: Callable[[], None] | None = None) -> tuple[int, bytes]:
    """Have a request carried out; returns the status and the body of the response, 0 if none came, or not all of it.

    UNTAKEN if the server did not want to have the body, or did not say so in time: then it was not sent.
    """
    body = request.encode()
    try:
        connection.settimeout(TAKEN)
        connection.sendall(_HEAD % len(body))
        if not connection.recv(1 << 16).startswith(_CONTINUE):
            return UNTAKEN, b""
    except OSError as error:
        if isinstance(error, TimeoutError) and warn is not None:
            warn()
        connection.close()
        return UNTAKEN, b""
    try:
        connection.settimeout(max(0.0, request.until - monotonic()))
        connection.sendall(body)
        return _response(_receive(connection, request.until, warn))
    except OSError:  # of which a timeout is one: a response that is not whole is none
        return 0, b""
    finally:
        connection.close()


def _receive(connection: socket, until: float, warn: Callable[[], None] | None) -> bytes:
    """All that the server sends until it closes the connection. Raises TimeoutError."""
    received, said = b"", monotonic() + SILENCE
    while True:
        try:
            connection.settimeout(max(0.0, min(said, until) - monotonic()))
            part = connection.recv(1 << 20)
        except (TimeoutError, BlockingIOError):
            if warn is not None and monotonic() < until:
                warn()
            if monotonic() >= until:
                raise
            said = until
        else:
            if not part:
                return received
            received += part


def _response(received: bytes) -> tuple[int, bytes]:
    headers, _, content = received.partition(b"\r\n\r\n")
    first, *lines = headers.lower().split(b"\r\n")
    lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
    whole = lengths == [len(content)] and first.startswith(b"http/1.1 ")
    return (int(first[9:12]), content) if whole else (0, b"")


def _warn(folder: str, own: Sequence[str]) -> None:
    """Say why a command takes long, as a line of JSON if its caller reads JSON."""
    words, hint = describe_silence(folder)
    if "--json" in own or os.environ.get("HOLDFAST_JSON") not in (None, "", "0"):
        from json import dumps

        sys.stderr.write(dumps({"schema_version": 1, "note": words, "hint": hint}) + "\n")
    else:
        from holdfast.faces.cli.output import folded  # which takes longer to load than most commands take

        sys.stderr.write(folded(f"holdfast: {words}\n  {hint}", sys.stderr) + "\n")
    sys.stderr.flush()


def _obey(code: int, pieces: Sequence[Piece], folder: str) -> int:
    """Do what is left to do: print, forget tokens, have the store copied; returns the exit code."""
    for kind, content in pieces:
        if kind == FORGET:
            _forget(folder, content.decode("utf-8", "surrogateescape"))
        elif kind == HOOK:
            client_sessions.record(folder, *content.decode("utf-8", "surrogateescape").split("\t"))
        elif kind == COPY:
            location.start_copying(folder, os.environ)
        else:
            (sys.stdout if kind == OUT else sys.stderr).write(content.decode("utf-8", "surrogateescape"))
    return code


def _forget(folder: str, name: str) -> None:
    """Forget a token. Raises ValueError for another file: a server has no say in those."""
    if os.path.normpath(name) != name or not name.startswith("held/"):
        raise ValueError(f"{name!r} is no token")
    try:
        os.unlink(os.path.join(folder, name))
    except FileNotFoundError:
        return
