"""F1, F2, F3: a session's folder is made, read and written; a linked worktree is noticed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import turnfile
from holdfast.errors import (
    AlreadyClaimed,
    Busy,
    Exists,
    FileChanged,
    Invalid,
    InvalidStatus,
    NotFound,
    NotHolder,
    TaskNotFound,
)
from holdfast.turnfile import Session, tasks
from holdfast.turnfile.ledger import Ledger
from holdfast.turnfile.ledger.yaml_edit import Put
from holdfast.turnfile.model import MAILBOX, TURNFILE, Signal
from holdfast.turnfile.session import WORKTREE_VARIABLE, main_folder
from tests.turnfile.sessions import ROOT, day, is_whole, new_session, text_of


def step(ledger: Ledger) -> Ledger:
    """A change: the next step."""
    return ledger.changed([Put(("coordination", "active_step"), f"step-{ledger.revision}")])


def test_f1_a_new_session_is_in_order(tmp_path: Path) -> None:
    session = new_session(tmp_path, ["ada", "bob"])
    assert turnfile.check(session) == []
    is_whole(session)
    ledger = session.read()
    assert (ledger.revision, ledger.turnfile.modified_by, ledger.turnfile.project) == (1, "mia", "kiln")
    assert [agent.id for agent in ledger.turnfile.agents] == ["ada", "bob"]
    assert turnfile.status(session).problems == ()


def test_f1_init_overwrites_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "working-session"
    folder.mkdir()
    (folder / MAILBOX).write_text("mine")
    with pytest.raises(Exists):
        turnfile.init(Session(folder), "kiln", ["ada"])
    assert (folder / MAILBOX).read_text() == "mine"
    assert not (folder / TURNFILE).exists()
    assert not (folder / "WORKLOG.md").exists()


@pytest.mark.parametrize("agents", [["ada", "Ada"], ["mia"], ["a|b"], ["a\nb"], [""]])
def test_f1_init_refuses_names_that_the_files_cannot_hold(tmp_path: Path, agents: list[str]) -> None:
    with pytest.raises(Invalid):
        turnfile.init(Session(tmp_path / "working-session"), "kiln", agents, "mia")
    assert not (tmp_path / "working-session").exists()


def test_f2_every_write_adds_one_to_the_revision_and_says_who(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    for revision in (2, 3, 4):
        after = session.write(step, "bob")
        assert after.text == text_of(session, TURNFILE)
        turn = after.turnfile
        assert (turn.revision, turn.header_revision, turn.modified_by) == (revision, revision, "bob")
        assert turn.active_step == f"step-{revision - 1}"


def test_f2_a_change_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    before = session.folder.signature(TURNFILE)
    assert session.write(lambda ledger: ledger, "bob").revision == 1
    assert session.folder.signature(TURNFILE) == before


def test_f2_a_race_lost_to_an_editor_is_tried_again_on_the_fresh_file(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, TURNFILE)
    runs = []

    def change(ledger: Ledger) -> Ledger:
        runs.append(ledger.revision)
        if len(runs) < 3:  # somebody saves the file without our lock
            path.write_text(path.read_text() + f"# saved {len(runs)}\n")
        return step(ledger)

    after = session.write(change, "bob")
    assert len(runs) == 3
    assert after.text.endswith("# saved 1\n# saved 2\n")
    assert after.revision == 2


def test_f2_a_race_lost_again_and_again_ends(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, TURNFILE)

    def change(ledger: Ledger) -> Ledger:
        path.write_text(path.read_text() + "#\n")
        return step(ledger)

    with pytest.raises(FileChanged):
        session.write(change, "bob")
    assert path.read_text().endswith("#\n#\n")
    assert session.read().revision == 1


def test_f2_a_file_that_cannot_be_read_is_told_with_its_line_and_left(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, TURNFILE)
    path.write_text(path.read_text() + "locks: {}\n")
    broken = path.read_text()
    with pytest.raises(Invalid, match=r"TURNFILE.yaml, line \d+: the key 'locks' is a duplicate") as refusal:
        session.write(step, "bob")
    assert refusal.value.line == broken.count("\n")
    assert path.read_text() == broken


def test_f2_a_ledger_that_is_a_symlink_is_refused(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    path = Path(session.folder.path, TURNFILE)
    path.rename(tmp_path / "elsewhere.yaml")
    path.symlink_to(tmp_path / "elsewhere.yaml")
    before = (tmp_path / "elsewhere.yaml").read_text()
    with pytest.raises(Invalid, match="symlink"):
        session.write(step, "bob")
    assert (tmp_path / "elsewhere.yaml").read_text() == before


def test_f2_no_session_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder"):
        Session(tmp_path / "none").read()
    with pytest.raises(NotFound, match=r"no TURNFILE.yaml"):
        Session(tmp_path).read()


def test_f2_a_session_whose_turn_is_taken_is_busy(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    hasty = Session(session.folder.path, write_timeout=0.0)
    with session.write_lock():
        with pytest.raises(Busy):
            hasty.write(step, "bob")
        assert hasty.read().revision == 1  # who only looks need not wait


def test_f2_a_reader_sees_files_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(tmp_path)
    read, looks = session.folder.read, []

    def slow(path: str, *, strict: bool = True) -> str | None:
        looks.append(path)
        if len(looks) == 2:  # a whole transaction between the two files
            monkeypatch.setattr(session.folder, "read", read)
            both = {MAILBOX: "new", "WORKLOG.md": "new"}
            with session.write_lock():
                session.replace(both, {path: read(path) for path in both})
            monkeypatch.setattr(session.folder, "read", slow)
        return read(path)

    monkeypatch.setattr(session.folder, "read", slow)
    assert session.texts([MAILBOX, "WORKLOG.md"]) == {MAILBOX: "new", "WORKLOG.md": "new"}
    assert len(looks) == 4


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_f2_who_may_not_write_can_still_read(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    os.unlink(Path(session.folder.path, ".TURNFILE.lock"))
    os.chmod(session.folder.path, 0o555)
    try:
        assert session.read().revision == 1
    finally:
        os.chmod(session.folder.path, 0o755)


def test_f3_paths_are_understood_from_the_project_from_the_folder_and_from_the_root(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    inside = os.path.join(session.folder.path, "docs", "README.md")
    for path in (inside, "docs/README.md", "working-session/docs/README.md", "./working-session/docs/README.md"):
        assert session.normalize(path) == "docs/README.md"
    with pytest.raises(Invalid):
        session.normalize(str(tmp_path / "other"))


def test_f3_a_linked_worktree_is_noticed_and_the_main_one_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main, linked = tmp_path / "main", tmp_path / "linked"
    new_session(main)
    git = ["git", "-C", str(main), "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"], ["worktree", "add", "-q", str(linked)]):
        subprocess.run([*git, *command], check=True, env=environment, capture_output=True)
    monkeypatch.delenv(WORKTREE_VARIABLE, raising=False)
    assert Session(main / "working-session").warnings == []
    copy = Session(linked / "working-session")
    assert copy.folder.path == str(linked / "working-session")
    [warning] = copy.warnings
    assert str(main / "working-session") in warning
    assert Session(linked / "working-session", worktree="main").folder.path == str(main / "working-session")
    monkeypatch.setenv(WORKTREE_VARIABLE, "main")
    shared = Session(linked / "working-session")
    assert (shared.folder.path, shared.warnings) == (str(main / "working-session"), [])
    monkeypatch.setenv(WORKTREE_VARIABLE, "maybe")
    with pytest.raises(Invalid):
        Session(linked / "working-session")


def test_f3_a_submodule_is_no_worktree(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "sub" / ".git").write_text("gitdir: ../modules\n")
    assert main_folder(str(tmp_path / "sub")) is None
    (tmp_path / "sub" / ".git").write_bytes(b"\xff")
    assert main_folder(str(tmp_path / "sub")) is None


def test_f13_a_task_is_claimed_and_done_by_its_owner(tmp_path: Path) -> None:
    session = new_session(tmp_path)

    def add(ledger: Ledger) -> Ledger:
        task: dict[str, object] = {
            "description": "x",
            "owner": None,
            "status": "pending",
            "priority": "P1",
            "depends_on": [],
        }
        path = ("coordination", "tasks")
        return ledger.changed([Put((*path, "clay"), task), Put((*path, "glaze"), {**task, "depends_on": ["clay"]})])

    session.write(add, "mia")
    with pytest.raises(InvalidStatus, match="depends on clay"):
        tasks.claim(session, "glaze", "bob")
    clay = tasks.claim(session, "clay", "ada")
    assert (clay.owner, clay.status, clay.claim_rev) == ("ada", "claimed", 3)
    assert session.read().turnfile.agents[0].current_task == "clay"
    assert tasks.claim(session, "clay", "ada") == clay
    assert session.read().revision == 3
    with pytest.raises(AlreadyClaimed):
        tasks.claim(session, "clay", "bob")
    with pytest.raises(NotHolder):
        tasks.done(session, "clay", "bob")
    finished = tasks.done(session, "clay", "ada")
    assert (finished.status, finished.completed_rev) == ("done", 4)
    assert session.read().turnfile.agents[0].current_task is None
    assert tasks.claim(session, "glaze", "bob").claim_rev == 5
    with pytest.raises(TaskNotFound):
        tasks.claim(session, "kiln", "bob")
    assert turnfile.lint(text_of(session, TURNFILE)) == []


def test_f13_signals_are_numbered_and_the_newest_comes_first(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    tasks.signal(session, "ada", "all", "ready")
    sent = tasks.signal(session, "bob", "ada", "handoff", "your turn: x")
    assert sent == Signal("SIG-002", "bob", "ada", "handoff", 3, "your turn: x")
    assert [signal.id for signal in session.read().turnfile.signals] == ["SIG-002", "SIG-001"]
    with pytest.raises(Invalid):
        tasks.signal(session, "ada", "all", "shout")
    with pytest.raises(Invalid):
        tasks.signal(session, "ada", "all", "ready", "a\nb")
    assert turnfile.lint(text_of(session, TURNFILE)) == []


def test_a_session_imports_nothing_of_the_rest_and_no_yaml_before_it_is_read() -> None:
    code = (
        "import sys; from holdfast import turnfile; turnfile.Session; turnfile.transaction; turnfile.status;"
        "print([name for name in sys.modules if name.split('.')[0] in ('apsw', 'ruamel')"
        " or name.startswith('holdfast.') and name.split('.')[1] not in ('errors', 'turnfile')])"
    )
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
    )
    assert done.stdout == "[]\n"


def test_the_day_of_a_session_is_its_own(tmp_path: Path) -> None:
    session = Session(tmp_path, now=day)
    assert (session.today(), session.timestamp()) == ("2026-06-12", "2026-06-12T09:30:00Z")
