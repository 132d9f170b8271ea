"""Progress of long work (issue 7): a line on the terminal that is drawn over, and nothing where there is none."""

from __future__ import annotations

import os
import pty
import subprocess

from tests.cli.calling import HOLDFAST, PATIENCE, Shell


def on_a_terminal(shell: Shell, *words: str) -> str:
    """What a command draws on a terminal as its standard error."""
    terminal, end = pty.openpty()
    try:
        done = subprocess.run(
            [*HOLDFAST, *words],
            cwd=shell.folder,
            env=shell.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=end,
            timeout=PATIENCE,
            check=False,
        )
        os.close(end)
        assert done.returncode == 0
        return os.read(terminal, 65_536).decode()
    finally:
        os.close(terminal)


def test_i7_long_work_shows_how_far_it_is_on_a_terminal_alone(shell: Shell) -> None:
    shell("init")
    shell("create", "x")
    drawn = on_a_terminal(shell, "backup", "first.backup")
    assert drawn.startswith("\rbackup: [")
    assert "100 %" in drawn
    assert shell("backup", "second.backup").err == ""
