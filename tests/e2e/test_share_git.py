"""Three clones of a repository whose tasks are shared, with real git: whoever has met agrees, and nothing is lost.

Commits, merges, rebases and cherry-picks come in any order. The first clone has the hook, the second writes the file
before it commits, the third commits whatever is there and writes it now and then.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

import holdfast
from holdfast import Workspace
from holdfast.faces.cli import location
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.commands.share import read_file, share
from holdfast.faces.cli.setup.clients import install
from holdfast.faces.cli.setup.line import Choice
from holdfast.interchange.share_lines import Entry, from_line, join_into, to_line
from tests.amounts import LONG, amount, seeds
from tests.cli.calling import PATIENCE, environment
from tests.unit.share_edits import Editor, agreed, lines_of

FILE = "holdfast.jsonl"
EDITS = amount(20, 500)  # of each clone, without those that are refused


class Clone:
    """A clone with its workspace."""

    def __init__(self, folder: Path, env: dict[str, str], stack: ExitStack, rng: random.Random, hooked: bool) -> None:
        self.folder = folder
        self.env = env
        self.rng = rng
        self.hooked = hooked
        self.ws: Workspace = stack.enter_context(holdfast.open(folder / ".holdfast", actor="me"))
        self.ws.tasks.set_sharing(True, notes=rng.random() < 0.5)
        self.editor = Editor(self.ws, folder.name, rng)
        if hooked:
            install("git", folder, Choice(lenient=True))  # the guard has 5 seconds, which may be few

    def git(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=10 * PATIENCE
        )
        assert not check or done.returncode == 0, (words, done.stdout, done.stderr)
        return done

    def session(self) -> Session:
        session = Session({"actor": "me"}, self.env)
        session.folder = str(self.folder)
        return session

    def share(self) -> None:
        assert share.run(self.session(), {}) == 0

    def read(self) -> None:
        """What `holdfast next` does first."""
        if location.unread_share(str(self.folder / ".holdfast"), str(self.folder)) is not None:
            read_file(self.session())

    def commit(self, write: bool) -> None:
        """Commit; the hook of the first writes the file in any case."""
        if write and not self.hooked:
            self.share()
        (self.folder / f"code-{self.folder.name}-{self.rng.random()}").touch()
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "work")

    def bring(self, other: Clone, how: str) -> bool:
        """Bring what another has by a merge, a rebase or a cherry-pick; one that does not fit is given up."""
        self.git("fetch", "-q", str(other.folder), "+main:theirs")
        picks = self.git("rev-list", "--no-merges", "--max-count=10", "theirs").stdout.split()
        words = {
            "merge": ("merge", "-q", "--no-edit", "theirs"),
            "rebase": ("rebase", "-q", "theirs"),
            "cherry-pick": ("cherry-pick", "--allow-empty", "--keep-redundant-commits", self.rng.choice(picks)),
        }[how]
        if self.git(*words, check=False).returncode == 0:
            return True
        self.git(how, "--abort", check=False)  # a pick that was refused has not begun
        assert self.git("status", "--porcelain", "--untracked-files=no").stdout == ""
        return False


@pytest.mark.early
@pytest.mark.timeout(amount(600, 3600))
@pytest.mark.parametrize("seed", seeds(1, 4))
def test_clones_that_have_met_agree_in_every_field(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    env = environment(tmp_path, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull)
    env |= {f"GIT_{who}_{what}": "me" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    done: Counter[str] = Counter()
    ever: dict[str, Entry] = {}

    def note(clone: Clone) -> None:
        for line in (clone.folder / FILE).read_text(encoding="utf-8").splitlines():
            join_into(ever, from_line(line))

    with ExitStack() as stack:
        clones = _clones(tmp_path, env, stack, rng)
        left = {clone: EDITS for clone in clones}
        while any(left.values()):
            clone = rng.choice(clones)
            if rng.random() < 0.5:
                clone.read()
            for _ in range(min(left[clone], rng.randrange(1, amount(12, 16)))):
                left[clone] -= clone.editor.edit()
            clone.commit(write=clone is clones[1] or rng.random() < 0.3)
            done["commit"] += 1
            note(clone)
            if rng.random() < 0.6:
                how = rng.choice(["merge", "merge", "rebase", "cherry-pick"])
                done[how if clone.bring(rng.choice([it for it in clones if it is not clone]), how) else "given up"] += 1
                note(clone)
        _meet(clones)
        for clone in clones:
            note(clone)
        lines = [(clone.folder / FILE).read_text(encoding="utf-8").splitlines() for clone in clones]
        assert lines[0] == lines[1] == lines[2]
        assert lines[0] == [to_line(ever[key]) for key in sorted(ever)]  # all that anybody ever wrote
        assert all(lines_of(clone.ws) == lines[0] for clone in clones)
        assert agreed(clones[0].ws) == agreed(clones[1].ws) == agreed(clones[2].ws)
        for clone in clones:
            assert clone.ws.check().problems == []
            refused = clone.editor.counts.get("refused", 0)
            done["edits"] += sum(clone.editor.counts.values()) - refused
            done["refused"] += refused
    if LONG:
        print(f"share, seed {seed}: {json.dumps(done)}, {len(lines[0])} lines")


def _clones(tmp_path: Path, env: dict[str, str], stack: ExitStack, rng: random.Random) -> list[Clone]:
    first = tmp_path / "one"
    first.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=first, env=env, check=True, timeout=PATIENCE)
    (first / ".gitattributes").write_text(f"{FILE} merge=union\n")
    (first / FILE).touch()
    (first / ".gitignore").write_text(".holdfast\n")
    subprocess.run(["git", "add", "-A"], cwd=first, env=env, check=True, timeout=PATIENCE)
    subprocess.run(["git", "commit", "-q", "-m", "begin"], cwd=first, env=env, check=True, timeout=PATIENCE)
    others = [tmp_path / name for name in ("two", "three")]
    for other in others:
        subprocess.run(
            ["git", "clone", "-q", str(first), str(other)], cwd=tmp_path, env=env, check=True, timeout=PATIENCE
        )
    made = []
    for folder in (first, *others):
        (folder / ".holdfast").mkdir()
        (folder / ".holdfast" / "config.yaml").write_text("prefix: t\n")
        made.append(Clone(folder, env, stack, rng, hooked=folder is first))
    return made


def _meet(clones: list[Clone]) -> None:
    """Nobody works any more; everybody merges what the others have, and writes down what that makes."""
    for clone in clones:
        for task in clone.ws.tasks.list(status="in_progress", limit=1000):
            clone.ws.tasks.release(task.id)
        clone.commit(write=True)
    for _ in range(2):
        for clone in clones:
            for other in clones:
                if other is not clone:
                    assert clone.bring(other, "merge")
                    clone.share()
                    clone.commit(write=True)
