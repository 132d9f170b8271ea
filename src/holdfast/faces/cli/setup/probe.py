"""Whether the hooks that are installed work: they are run as the client runs them, and when they ran last is read.

A file that looks right proves little: the program may be gone, or the client may not trust the folder. `try_hooks`
runs the line that is in the file as a session of the client would, in a bare environment and another working directory,
with an edit that must be refused (of a file in the workspace's own folder) and one that must be allowed. `try_server`
starts the MCP server as the client does, with nothing to read. `last_runs` tells from the record that hooks leave
whether the client ever ran them. None changes anything.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from holdfast import client_sessions
from holdfast.clock import SystemClock
from holdfast.errors import Invalid
from holdfast.faces.cli.location import FOLDER
from holdfast.faces.cli.setup.clients import CLIENTS, hooks_folder
from holdfast.faces.cli.setup.hooks import PROBE
from holdfast.faces.cli.setup.line import server, words_of

_TIMEOUT: Final = 30  # seconds: the line has decided long before
_BARE: Final = "/usr/bin:/bin"
_KEPT: Final = (  # what names the workspace, its token and the actor, and where more of that is
    *("HOLDFAST_DIR", "HOLDFAST_URL", "HOLDFAST_TOKEN", "HOLDFAST_TOKEN_FILE", "HOLDFAST_ACTOR"),
    *("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"),
)
_REFUSED: Final = "belongs to the workspace"
_SERVER: Final = re.compile(r"""holdfast["'],\s*["']mcp["']""")  # the end of its line, in JSON or TOML
_EMPTY: Final = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"  # git's name of an empty file


def try_hooks(client: str, root: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the guard of a client; nothing if it refuses and allows as it must."""
    found = next((command for words, command in _commands(client, root) if words.startswith("guard")), None)
    yield from _switched_off(client, root)
    if found is None:
        return  # which `check` reports
    env = _bare(environ)
    for path, must in ((root / FOLDER / "probe", True), (root / "holdfast-probe", False)):
        code, said = _run(client, root, found, path, env)
        refused = code != 0 or '"deny"' in said
        if must and not (refused and _REFUSED in said):
            what = "is refused, but not by holdfast" if refused else "is let through"
            yield f"the guard does not work: an edit of {path} {what}: {said.strip() or f'exit code {code}'}"
        elif not must and refused and "locked by" not in said:
            yield f"the guard refuses what nobody locks: {said.strip() or f'exit code {code}'}"


def _switched_off(client: str, root: Path) -> Iterator[str]:
    """Why the client does not run the hooks of its files, by the settings of the project."""
    key = {"claude": "disableAllHooks"}.get(client)
    for name in ("settings.json", "settings.local.json") if key is not None else ():
        path = root / f".{client}" / name
        try:
            settings = json.loads(_text(path) or "{}")
        except ValueError:
            continue  # the client reads none of it either
        if isinstance(settings, dict) and settings.get(key) is True:
            yield f"{path} switches all hooks off ({key}), so every edit is let through: take that out"


def _bare(environ: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": _BARE, **{name: environ[name] for name in _KEPT if name in environ}}


def try_server(client: str, root: Path, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield why the MCP server of a client does not start; nothing if it does, or if the client has none of ours."""
    if not any(_SERVER.search(_text(root / name)) for name in CLIENTS[client].files):
        return
    made = server()
    done = subprocess.run(
        [made["command"], *made["args"]],
        cwd=root,
        env=_bare(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
    )
    if done.returncode:
        said = "; ".join(each.strip() for each in done.stderr.removeprefix("holdfast: ").splitlines())
        yield f"the MCP server does not start: {said or f'exit code {done.returncode}'}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError):  # which `check` reports
        return ""


def can_try(client: str) -> bool:
    """Whether the guard of a client can be tried from here: that of git needs a file for what is staged."""
    try:
        return client != "git" or bool(tempfile.gettempdir())
    except FileNotFoundError:
        return False


def _run(client: str, root: Path, command: str, path: Path, env: dict[str, str]) -> tuple[int, str]:
    """Run a hook for an edit of a file; returns its exit code and all that it printed."""
    if client == "git":
        return _run_staged(root, command, path, env)
    told = json.dumps(_payload(client, root, path))
    at = root / next(name for name in CLIENTS[client].files if name.endswith(("hooks.json", "settings.json")))
    done = subprocess.run(
        ["sh", "-c", command], cwd=at.parent, env=env, input=told, capture_output=True, text=True, timeout=_TIMEOUT
    )
    return done.returncode, done.stdout + done.stderr


def _run_staged(root: Path, command: str, path: Path, env: dict[str, str]) -> tuple[int, str]:
    """The same for a commit of the file: in an index of its own, so that the project's stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**env, "GIT_INDEX_FILE": os.path.join(folder, "index")}
        entry = f"100644,{_EMPTY},{path.relative_to(root)}"
        for words in (["read-tree", "--empty"], ["update-index", "--add", "--cacheinfo", entry]):
            subprocess.run(["git", *words], cwd=root, env=env, capture_output=True, check=True)
        done = subprocess.run(
            ["sh", "-c", command], cwd=root, env=env, capture_output=True, text=True, timeout=_TIMEOUT
        )
        return done.returncode, done.stdout + done.stderr


def _payload(client: str, root: Path, path: Path) -> dict[str, Any]:
    """What a client tells before an edit, in a session of which no run is recorded."""
    event = {"cursor": "preToolUse", "gemini": "BeforeTool"}.get(client, "PreToolUse")
    session = {"conversation_id" if client == "cursor" else "session_id": PROBE}
    edit: dict[str, Any] = {"tool_name": "Write", "tool_input": {"file_path": str(path)}}
    if client == "codex":
        patch = f"*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch\n"
        edit = {"tool_name": "apply_patch", "tool_input": {"command": patch}}
    return {"hook_event_name": event, "cwd": str(root), **session, **edit}


def _commands(client: str, root: Path) -> Iterator[tuple[str, str]]:
    """The words and the text of each line of ours in a client's files."""
    if client == "git":
        try:
            text = (hooks_folder(root) / "pre-commit").read_text()
        except (OSError, Invalid):
            return
        for each in text.splitlines():
            command = each.removesuffix(" || exit $?")
            if words := words_of(command):
                yield words, command
        return
    for name in CLIENTS[client].files:
        if name.endswith(".json"):
            try:
                found = json.loads((root / name).read_text(encoding="utf-8-sig"))
            except (OSError, ValueError):
                return
            yield from _inside(found)


def _inside(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        command = value.get("command")
        if isinstance(command, str) and (words := words_of(command)):
            yield words, command
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from _inside(each)


def is_installed(client: str, root: Path) -> bool:
    """Whether hooks of ours are in a client's files."""
    return any(True for _ in _commands(client, root))


def last_runs(client: str, root: Path, folder: str) -> list[str]:
    """When the client last ran each of its hooks that are installed, as words.

    The record is in the workspace's private folder.
    """
    if client == "git" or not is_installed(client, root):
        return []
    known = client_sessions.runs(folder)
    said = []
    for command in ("prime", "guard"):
        run = known.get(f"{client}-{command}")
        when = f"last ran {_ago(SystemClock().wall() / 1e6 - run[0])} for {run[1]}" if run else "installed, never ran"
        said.append(f"{client} {command}: {when}")
    return said


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
