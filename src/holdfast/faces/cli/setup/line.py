"""The line of `sh` that hooks run, which refuses if holdfast cannot decide; the files that it and `--check` need.

Clients take a hook that cannot be started, fails or is too slow for consent. So the line itself refuses an edit then:
if the program is missing, ends with another exit code than a decision, or takes longer than DEADLINE seconds, which is
less than the client waits. `--lenient` lets such an edit pass with a warning.

Its text is the same on every machine: teams commit it, and clients trust a hook by its text. What differs, the path of
the program, is in the file PROGRAM beside the store, which git ignores; then PATH is searched. It is run only if it
belongs to the user. The system cannot start a script whose first line names an interpreter with a space in its path, or
a very long one: then PROGRAM names LAUNCHER beside it, which a shell starts.

Where there is no workspace the line allows everything without starting anything; a `.holdfast` that this user may not
look into, or whose store is gone and the rest is left, is one. It searches as `location` does:
HOLDFAST_DIR, HOLDFAST_URL, a store in the current folder, in the client's project folder, in those above, and for a
linked worktree beside the git common directory. It is quoted with single quotes, so it contains none, and no doubled
backslash: then every shell reads it alike. Nor a default such as `${x:-y}`, which Gemini replaces by y.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any, Final, NamedTuple

from holdfast.faces.cli.location import FOLDER, TRACES, home
from holdfast.filesystem import hide_from_git, make_folder, write_private

DEADLINE: Final = 5  # seconds
PROGRAM: Final = "program"
LAUNCHER: Final = "holdfast"  # as commands that get its folder on their PATH call it
_LONGEST: Final = 127  # bytes of the first line of a script that every kernel takes
CHOSEN: Final = "setup.json"

# `at` looks at a folder that may hold a store, `up` at a folder, its git worktree and all above.
_FIND: Final = f"""\
w=$HOLDFAST_DIR$HOLDFAST_URL; p=; \
at() {{ for f in {" ".join(TRACES)}; do [ -e "$1/$f" ] && w=1; done; [ -d "$1" ] && [ ! -x "$1" ] && w=1; \
[ -z "$p" ] && [ -O "$1/{PROGRAM}" ] && IFS= read -r p <"$1/{PROGRAM}"; }}; \
up() {{ d=$1; while [ -n "$d" ]; do at "$d/{FOLDER}"; \
if [ -f "$d/.git" ] && read -r _ g <"$d/.git"; then case $g in /*) ;; *) g=$d/$g;; esac; at "$g/{FOLDER}"; \
if [ -f "$g/commondir" ] && read -r c <"$g/commondir"; then case $c in /*) ;; *) c=$g/$c;; esac; \
at "$c/{FOLDER}"; at "$c/../{FOLDER}"; fi; fi; d=${{d%/*}}; done; at "/{FOLDER}"; }}; \
[ -z "$HOLDFAST_DIR" ] || {{ at "$HOLDFAST_DIR"; at "$HOLDFAST_DIR/{FOLDER}"; }}; \
cd -P . 2>/dev/null; up "$PWD"; up "$CLAUDE_PROJECT_DIR"; up "$GEMINI_PROJECT_DIR"; \
[ -x "$p" ] || {{ p=; command -v holdfast >/dev/null && p=holdfast; }}; """
# The watchdog has no output of the client open: some wait until it is closed. So it ends what the program has started,
# too: `b` ends a process and all below it.
_DECIDE: Final = f"""\
c=$3; case $c in "") c=git; j=;; cursor|gemini) j="{{}}";; *) j=;; esac; \
[ -n "$w" ] || {{ printf %s "$j"; exit 0; }}; \
h="To mend it, run: holdfast setup $c, with a holdfast that works; it writes {FOLDER}/{PROGRAM}."; \
if [ -z "$p" ]; then r="no program holdfast was found"; else \
exec 3<&0; "$p" "$@" <&3 & k=$!; exec 3<&-; \
( t() {{ kill $s; exit 0; }}; trap t TERM; sleep {DEADLINE} & s=$!; wait $s; trap "" TERM; \
b() {{ l=$(ps -A -o pid= -o ppid= | while read -r i q; do [ "$q" = "$1" ] && echo "$i"; done); kill -9 "$1"; \
for i in $l; do b "$i"; done; }}; b $k ) </dev/null >/dev/null 2>&1 & \
t=$!; wait $k; r=$?; kill $t 2>/dev/null; \
case "$* $r" in *" 0"|"guard --hook "*" 2"|*"--staged 12") exit $r;; \
*" 137") r="it was killed, or took longer than {DEADLINE} s"; h="holdfast doctor looks for the cause.";; \
*" 126"|*" 127") r="$p cannot be started";; \
*) r="it ended with exit code $r, after the reason that it printed"; h="holdfast doctor says more.";; esac; fi; \
m="holdfast $1 decided nothing: $r."; \
case "$bad $1" in "2 guard") m="$m Refused, because nobody knows whether another agent has locked this.";; esac; \
m="$m $h holdfast setup $c --check tries it."; \
case "$bad $*" in "2 guard --hook cursor") \
printf "{{\\"permission\\":\\"deny\\",\\"user_message\\":\\"%s\\",\\"agent_message\\":\\"%s\\"}}" "$m" "$m";; esac; \
echo "$m" >&2; \
case "$bad $*" in "1 guard --staged") exit 0;; *guard*) exit $bad;; *) exit 1;; esac"""
_SERVE: Final = """\
[ -n "$p" ] || { echo "no program holdfast was found; holdfast setup writes where it is" >&2; exit 127; }; \
exec "$p" "$@\""""
_OURS: Final = re.compile(r"(?:holdfast|sh -c '[^']*' holdfast) (?P<words>[^']*)")


def line(words: str, lenient: bool = False) -> str:
    """Return the line that runs `holdfast WORDS`."""
    return f"sh -c 'bad={1 if lenient else 2}; {_FIND}{_DECIDE}' holdfast {words}"


def unwatched(words: str) -> str:
    """Return the line that runs `holdfast WORDS` however long it takes; nothing without a workspace or a program."""
    return f'sh -c \'{_FIND}[ -n "$w" ] && [ -n "$p" ] || exit 0; exec "$p" "$@"\' holdfast {words}'


def server() -> dict[str, Any]:
    """Return the command and arguments by which a client starts the MCP server, the same on every machine."""
    return {"command": "sh", "args": ["-c", _FIND + _SERVE, "holdfast", "mcp"]}


def words_of(command: str) -> str | None:
    """Return the words that a line of ours, of this version or another, runs holdfast with; None if it is not ours."""
    found = _OURS.fullmatch(command)
    return found and found["words"]


def program() -> str | None:
    """Return the program that runs this very holdfast; None if it was not installed as one."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "holdfast")
    return beside if os.access(beside, os.X_OK) else shutil.which("holdfast")


def starts(path: str) -> bool:
    """Whether the system can start a program: if it is a script, whether its first line names an interpreter."""
    try:
        with open(path, "rb") as file:
            first = file.readline(4096)
    except OSError:
        return False
    if not first.startswith(b"#!"):
        return True
    interpreter = b"".join(first[2:].split(None, 1)[:1])
    return len(first.rstrip(b"\n")) <= _LONGEST and os.path.isfile(interpreter) and os.access(interpreter, os.X_OK)


def beyond_path(environ: Mapping[str, str], workspace: str | None = None) -> str | None:
    """Return the program, if who searches PATH for holdfast does not find one; None too if there is no program.

    If it cannot start as it is, this is the launcher that `setup` has written in the folder of the workspace.
    """
    folders = filter(None, environ.get("PATH", "").split(os.pathsep))
    paths = (os.path.join(folder, "holdfast") for folder in folders)
    if any(os.access(path, os.X_OK) and starts(path) for path in paths):
        return None
    found = program()
    launcher = "" if workspace is None else os.path.join(workspace, LAUNCHER)
    return launcher if found and os.access(launcher, os.X_OK) and not starts(found) else found


def write_program(root: Path) -> Path | None:
    """Write the file that names the program, in the folder of the project's workspace; None if there is no program.

    A program that cannot start as it is gets a launcher. What is there already is left alone.
    """
    folder, found = _folder(root), program()
    if found is None:
        return None
    path, launcher = os.path.join(folder, PROGRAM), os.path.join(folder, LAUNCHER)
    if starts(found):
        _remove(launcher)
    else:
        # The script and not `-m holdfast`, with which Python would load modules from the project.
        script = f'#!/bin/sh\nexec {quote(os.path.abspath(sys.executable))} {quote(found)} "$@"\n'
        _replace(launcher, os.fsencode(script), 0o700)
        found = launcher
    _replace(path, os.fsencode(f"{found}\n"))
    return Path(path)


def _replace(path: str, content: bytes, mode: int = 0o600) -> None:
    """Write a file unless it is as it should be: then the folder need not be one that can be written."""
    with suppress(OSError):
        if Path(path).read_bytes() == content and os.stat(path).st_mode & 0o777 == mode:
            return
    write_private(path, content, mode)


def _remove(path: str) -> None:
    if os.path.lexists(path):  # else nothing needs to be written
        os.unlink(path)


def _folder(root: Path) -> str:
    folder = home(str(root))
    make_folder(folder)
    hide_from_git(folder)
    return folder


class Choice(NamedTuple):
    """How a client was set up."""

    lenient: bool = False
    mcp: bool = True
    release: bool = False


DEFAULT: Final = Choice()


def record_of(root: Path, client: str, choice: Choice | None) -> tuple[Path, str | None]:
    """Return the file that notes how clients were set up, and its text once one is set up so; None: it was removed.

    The text is None if there is nothing to note. Each worktree has notes of its own, but for the hooks of git, which
    all of them share.
    """
    tree = _tree(root, client)
    known = _known(root)
    here = {name: each for name, each in known.pop(tree, {}).items() if name != client}
    if choice is not None:
        here[client] = choice._asdict()
    if here:
        known[tree] = here
    return Path(home(str(root))) / CHOSEN, json.dumps(known, indent=1) + "\n" if known else None


def chosen(root: Path, client: str) -> Choice | None:
    """Return how a client was set up in a worktree on this machine; None if it was not."""
    known = _known(root).get(_tree(root, client), {}).get(client)
    return None if known is None else Choice(**{name: bool(known[name]) for name in Choice._fields if name in known})


def _tree(root: Path, client: str) -> str:
    return client if client == "git" else os.path.realpath(root)


def _known(root: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """What is noted, by worktree and client. Those of version 0.2, which name no worktree, are ignored."""
    try:
        found = json.loads((Path(home(str(root))) / CHOSEN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    trees = found.items() if isinstance(found, dict) else ()
    return {
        tree: {client: each for client, each in clients.items() if isinstance(each, dict)}
        for tree, clients in trees
        if isinstance(clients, dict) and (tree == "git" or os.path.isabs(tree))
    }


def remove_program(root: Path) -> None:
    """Remove the file and what was chosen, and the folder if it was made for them alone."""
    folder = Path(home(str(root)))
    for name in (PROGRAM, LAUNCHER, CHOSEN):
        _remove(str(folder / name))
    if folder.is_dir() and {path.name for path in folder.iterdir()} <= {".gitignore"}:
        (folder / ".gitignore").unlink(missing_ok=True)
        folder.rmdir()
