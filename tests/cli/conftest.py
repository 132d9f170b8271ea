"""For tests of the command line: a project to work in, and two ways to call it there."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.faces.cli import main
from tests.cli.calling import Answer, Shell, end, environment


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one, in an environment that has nothing of the user's."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    wanted = environment(tmp_path)
    for name in set(os.environ) - set(wanted):
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def cli(project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """`holdfast WORDS` inside this process: `cli("create", "a title", stdin="...", HOLDFAST_JSON="1")`."""

    def call(*words: str, stdin: str = "", **environ: str) -> Answer:
        capsys.readouterr()
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"))
            code = main(words)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return call


@pytest.fixture
def made(cli: Callable[..., Answer]) -> Callable[..., Answer]:
    """The same, where a workspace has been made."""
    assert cli("init").code == 0
    return cli


@pytest.fixture
def shell(project: Path, tmp_path: Path) -> Shell:
    """`holdfast WORDS` in processes of their own: `shell("create", "a title")`."""
    return Shell(project, environment(tmp_path))


@pytest.fixture
def started(shell: Shell) -> Iterator[Callable[..., Any]]:
    """Processes that go on while the test does, and end with it: `started("watch")`."""
    running = []

    def start(*words: str, by: Shell = shell, **how: Any) -> Any:
        running.append(by.start(*words, **how))
        return running[-1]

    yield start
    for process in running:
        end(process)


@pytest.fixture
def repository(shell: Shell, project: Path) -> Path:
    """The project in git, with a commit."""
    shell.git("init", "-q", "-b", "main", ".")
    (project / "src" / "deep").mkdir(parents=True)
    for name in ("file", "src/file", "src/deep/file"):
        (project / name).write_text("x")
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", "first")
    return project
