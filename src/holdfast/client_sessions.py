"""The actor of a call: the session of the agent client that a process belongs to, as the client's hooks recorded it.

Every hook of a client records (pid of the client, its start time) -> session -> actor, in a plain file of the
workspace's private folder. A command in the client's shell and the MCP server that the client started have the same
process above them, so they find the same actor, on every call: one session has one name wherever it acts. Processes
outside of the client find nothing, and neither does a later process with the same pid.

Sessions of one process act at once, unless one has ended, or the client said that it went on from one to another (a
resume, a cleared context): then the new one takes the place of the only other. A hook says which session acts in it,
but not which one runs a shell command a moment later: another may have acted in between. So of several no name is
found, and what needs a holder is refused until one is given. Nothing is ever guessed.

Read for every command, so this module loads nothing but `os` and `sys`.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    import hashlib
    from collections.abc import Iterator
    from typing import Final, NamedTuple

    class Process(NamedTuple):
        """A process: its pid, when it started, as the system counts, and its name."""

        pid: int
        started: str
        name: str


FOLDER: Final = "sessions"
SEVERAL: Final = "sessions that act at once"  # the variable by which a command tells a server what `Several` says
_SHELLS: Final = {"sh", "dash", "bash", "zsh", "fish", "ash", "ksh", "busybox", "env", "timeout"}
_DEEPEST: Final = 64  # processes above this one


class Several(Exception):
    """Several sessions act from the same process."""


def session_actor(client: str, session: str) -> str:
    """Return the name of a client's session: the same in its hooks and in the calls that carry its id."""
    return f"{client}-{_sha256(session.encode(errors='replace')).hexdigest()[:8]}"


def _sha256(data: bytes) -> hashlib._Hash:
    """The same as that of hashlib, which loads OpenSSL first: longer than all else here, before every edit."""
    for name in ("_sha2" if sys.version_info >= (3, 12) else "_sha256", "hashlib"):
        try:
            found: hashlib._Hash = __import__(name).sha256(data)
        except ImportError:
            continue
        return found
    raise ImportError("this Python has no sha256")


def actor_for(folder: str) -> str | None:
    """Return the actor of the session that this process belongs to; None if no hook recorded one. Raises Several."""
    place = os.path.join(folder, FOLDER)
    if not os.path.isdir(place):
        return None
    for pid, started, _ in ancestors():
        found = [actor for _, actor, live in _read(os.path.join(place, f"{pid}-{started}")) if live]
        if len(set(found)) > 1:
            raise Several(", ".join(sorted(set(found))))
        if found:
            return found[0]
    return None


def find_actor(folder: str) -> str | None:
    """Return the same, and None also if there are several."""
    try:
        return actor_for(folder)
    except Several:
        return None


def recorded_as(folder: str, session: str) -> str | None:
    """Return the actor that the hooks of this client recorded for a session; None if they recorded none."""
    above = client()
    known = [] if above is None else _read(os.path.join(folder, FOLDER, f"{above[0]}-{above[1]}"))
    return next((actor for id, actor, _ in known if id == session), None)


def record(folder: str, hook: str, session: str, actor: str, event: str) -> None:
    """Record a call of a hook such as `claude-guard` for a session, and what its client's process is to be called.

    `event` is `end` for a session that leaves, `next` for one that the client goes on with instead of another, and
    `start` for one that begins.
    """
    place = os.path.join(folder, FOLDER)
    os.makedirs(place, mode=0o700, exist_ok=True)
    _write(os.path.join(place, hook), f"{actor}\n")
    above = client()
    if above is None:
        return
    path = os.path.join(place, f"{above[0]}-{above[1]}")
    before = _read(path)
    after = _joined(before, session, actor, event)
    if not after:
        if before:
            os.unlink(path)
    elif after != before:
        _write(path, "".join(f"{'+' if live else '-'}\t{id}\t{name}\n" for id, name, live in after))
    if event in ("start", "next"):
        _forget_ended(place)


def runs(folder: str) -> dict[str, tuple[float, str]]:
    """Return when each hook ran last, in seconds since 1970, and for which actor; by its name, such as claude-guard."""
    place = os.path.join(folder, FOLDER)
    found = {}
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if not name[0].isdigit() and not name.startswith("."):
            path = os.path.join(place, name)
            with open(path, encoding="utf-8") as file:
                found[name] = os.stat(path).st_mtime, file.read().strip()
    return found


def client() -> Process | None:
    """Return the client that runs this hook: the first process above that is not a shell around the hook."""
    return next((each for each in ancestors() if each[2] not in _SHELLS), None)


def ancestors() -> Iterator[Process]:
    """The processes above this one, the nearest first."""
    pid = os.getppid()
    for _ in range(_DEEPEST):
        found = _process(pid) if pid > 1 else None
        if found is None:
            return
        pid, process = found
        yield process


def _process(pid: int) -> tuple[int, Process] | None:
    """The parent of a process, and the process; None if the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return _asked(pid) if not os.path.exists("/proc/self/stat") else None
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return int(fields[1]), (pid, fields[19], name)  # type: ignore[return-value]  # a NamedTuple costs an import


def _asked(pid: int) -> tuple[int, Process] | None:
    """The same, of a system without /proc."""
    from subprocess import run

    words = run(["ps", "-o", "ppid=,lstart=,comm=", "-p", str(pid)], capture_output=True, text=True).stdout.split()
    if len(words) < 7:
        return None
    started, name = "_".join(words[1:6]).replace(":", ""), os.path.basename(" ".join(words[6:]))
    return int(words[0]), (pid, started, name)  # type: ignore[return-value]  # as above


def _joined(before: list[tuple[str, str, bool]], session: str, actor: str, event: str) -> list[tuple[str, str, bool]]:
    """The sessions of a process after a hook of one: those that live, and those whose place it took."""
    others = [each for each in before if each[0] != session]
    live = sum(each[2] for each in others)
    if event == "end":
        return others if live else []
    if event == "next" and live == 1:  # of several nobody knows which one it follows
        others = [(id, name, False) for id, name, _ in others]
    return [(session, actor, True), *others]


def _read(path: str) -> list[tuple[str, str, bool]]:
    try:
        with open(path, encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file]
    except OSError:
        return []
    return [(each[1], each[2], each[0] == "+") for each in lines if len(each) == 3]


def _write(path: str, text: str) -> None:
    """Replace a file at once; it need not survive a power loss, which no session does either."""
    place, name = os.path.split(path)
    draft = os.path.join(place, f".{name}.{os.getpid()}")
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(draft, path)


def _forget_ended(place: str) -> None:
    """Remove what belongs to processes that have ended."""
    for name in os.listdir(place):
        pid, _, started = name.partition("-")
        if pid.isdigit():
            found = _process(int(pid))
            if found is None or found[1][1] != started:
                try:
                    os.unlink(os.path.join(place, name))
                except FileNotFoundError:  # another hook was faster
                    continue
