"""Working sessions for tests: a new folder, and how it is when all is well."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from holdfast import turnfile
from holdfast.turnfile import Session
from holdfast.turnfile.files import JOURNAL, TEMP_PREFIX
from holdfast.turnfile.mailbox import projection
from holdfast.turnfile.model import MAILBOX, PROJECTION

ROOT = Path(__file__).parents[2]
AGENTS = ("ada", "bob", "cyd", "dan", "eve", "fay", "gil", "hal")


def day() -> datetime:
    """The day on which tests happen."""
    return datetime(2026, 6, 12, 9, 30, tzinfo=UTC)


def new_session(folder: Path, agents: Sequence[str] = AGENTS) -> Session:
    """A session in a new folder."""
    session = Session(folder / "working-session", now=day)
    turnfile.init(session, "kiln", agents, "mia")
    return session


def text_of(session: Session, path: str) -> str:
    """What a file of the session says; it must be there."""
    text = session.texts([path])[path]
    assert text is not None
    return text


def is_whole(session: Session) -> None:
    """Fails unless the files can be read, agree with each other, and nothing half-done lies about."""
    mailbox, projected = session.texts([MAILBOX, PROJECTION]).values()
    assert mailbox is not None
    assert projected is not None
    assert not projection.is_stale(mailbox, projected)
    names = os.listdir(session.folder.path)
    assert JOURNAL not in names
    assert [problem for problem in turnfile.check(session) if problem.rule != "lock-stale"] == []


def leftovers(session: Session) -> list[str]:
    """The temporary files in the folder."""
    return [name for name in os.listdir(session.folder.path) if name.startswith(TEMP_PREFIX)]


def start(module: str, *arguments: object) -> subprocess.Popen[str]:
    """Run a module of the tests in another process."""
    given = os.environ.get("PYTHONPATH")  # first: a run with a planted bug names another source
    paths = [*([given] if given else []), str(ROOT / "src"), str(ROOT)]
    return subprocess.Popen(
        [sys.executable, "-m", f"tests.turnfile.{module}", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
