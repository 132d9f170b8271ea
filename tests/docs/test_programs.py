"""The programs in examples/ run as they stand, in an empty folder, and print what they promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_examples import ROOT

PROMISED = {
    "worker_pool.py": ["after the first pass 1 task is held", "done exactly once: 60 of 60, counted 60"],
    "three_nodes.py": ["claimed 3 different tasks", "its late write is refused", "south wrote last, 3 tasks"],
    "langgraph_thread.py": ["an interrupt waits on release-7", "['begun', 'planned', 'deployed: yes']"],
    "ci_shards.sh": ["6 of 6 shards passed", "shards done: 6"],
    "claude_code.py": ["README.md: edited", "lexer.py: refused: src/parser/lexer.py is covered by", "is done: edited"],
}


def run(name: str, folder: Path) -> str:
    """What a program prints; it must succeed."""
    programs = folder / "bin"
    programs.mkdir()
    holdfast = programs / "holdfast"
    holdfast.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast "$@"\n')
    holdfast.chmod(0o755)
    program = ROOT / "examples" / name
    command = [sys.executable, str(program)] if program.suffix == ".py" else [str(program)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env = {**clean, "PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROMISED)
def test_a_program_does_what_its_head_says(name: str, tmp_path: Path) -> None:
    printed = run(name, tmp_path)
    assert [promise for promise in PROMISED[name] if promise not in printed] == [], printed


def test_every_program_is_tested_says_what_it_shows_and_is_in_the_readme() -> None:
    programs = {path.name: path.read_text() for path in (ROOT / "examples").iterdir() if path.is_file()}
    assert programs.keys() == PROMISED.keys()
    assert [name for name, text in programs.items() if "Shows: " not in text[:700]] == []
    readme = (ROOT / "README.md").read_text()
    assert [name for name in programs if f"(examples/{name})" not in readme] == []
