"""Sandboxes: Codex's own in both modes, and bubblewrap with a read-only tree, without a network, in a linked worktree.

In each every command runs once: reads must work, writes must be done or refused with the ways that remain, and none
may be reported as failed and yet be there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.clients.scratch import PYTHON, Scratch, program

READS = (
    "list",
    "ready",
    "prime",
    "guard src/a",
    "show {task}",
    "status",
    "path list",
    "mail inbox",
    "where",
    "history {task}",
)
WRITES = ("create new", "note {task} text", "path lock lib/**", "mail send bob s b", "next", "cell set r c 1")
Wrap = Callable[[Scratch, Path], Sequence[str]]


def _bwrap(*writable: str) -> Wrap:
    """All is read-only but for these folders, and there is no network."""

    def wrap(at: Scratch, folder: Path) -> Sequence[str]:
        own = [word for name in writable for word in ("--bind", str(at.base / name), str(at.base / name))]
        outer = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-net", *own]
        return [*outer, "--chdir", str(folder), "--"]

    return wrap


def _codex(mode: str) -> Wrap:
    """The mode alone, without the folders for temporary files, where the repository may lie."""
    outside = [f"sandbox_workspace_write.exclude_{each}=true" for each in ("slash_tmp", "tmpdir_env_var")]

    def wrap(at: Scratch, folder: Path) -> Sequence[str]:
        chosen = [word for each in (f'sandbox_mode="{mode}"', *outside) for word in ("-c", each)]
        return [program("codex"), "sandbox", *chosen, "--"]

    return wrap


def _check(wrap: Wrap, writes: bool, worktree: bool = False) -> None:
    with Scratch("git") as at:
        at.holdfast("create", "one", "--actor", "me")
        (task,) = (each["id"] for each in at.data("list"))
        at.holdfast("agent", "register", "bob")
        folder = at.root
        if worktree:
            folder = at.base / "linked"
            at.run("git", "worktree", "add", "-q", str(folder))
        env = {**at.env, "CODEX_HOME": str(at.home), "HOLDFAST_ACTOR": "me", "PYTHONDONTWRITEBYTECODE": "1"}

        def call(line: str) -> subprocess.CompletedProcess[str]:
            words = [word.format(task=task) for word in line.split()]
            command = [*wrap(at, folder), PYTHON, "-m", "holdfast", *words, "--json"]
            return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)

        for line in READS:
            done = call(line)
            assert done.returncode == 0, f"{line}: {done.returncode} {done.stdout} {done.stderr}"
        for line in WRITES:
            before = at.data("event", "list", "--limit", "1000")
            done = call(line)
            changed = at.data("event", "list", "--limit", "1000") != before
            if writes:
                assert done.returncode == 0, f"{line}: {done.stdout} {done.stderr}"
                json.loads(done.stdout)
                assert changed, line
            else:
                assert (done.returncode, changed) == (16, False), f"{line}: {done.stdout} {done.stderr}"
                assert "MCP tools" in done.stderr, done.stderr


def cases() -> Iterator[tuple[str, Callable[[], None]]]:
    """Every sandbox that is here, by what it allows."""
    if shutil.which("bwrap") is None:
        print("skipped sandbox     bubblewrap: apt-get install bubblewrap", flush=True)
    else:
        yield "bubblewrap, all read-only, no network: reads work", lambda: _check(_bwrap(), writes=False)
        yield "bubblewrap, only the project: writes are done", lambda: _check(_bwrap("repo"), writes=True)
        yield (
            "bubblewrap, only a linked worktree: reads work",
            lambda: _check(_bwrap("linked"), writes=False, worktree=True),
        )
    yield "Codex, read-only: reads work", lambda: _check(_codex("read-only"), writes=False)
    yield "Codex, workspace-write: writes are done", lambda: _check(_codex("workspace-write"), writes=True)
    yield (
        "Codex, workspace-write in a linked worktree: reads work",
        lambda: _check(_codex("workspace-write"), writes=False, worktree=True),
    )
