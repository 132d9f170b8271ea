"""F2, F14: kill -9 at every failpoint leaves the old files or the new ones, never a mixture."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path

import pytest

from holdfast import turnfile
from holdfast.errors import Corrupt, Invalid
from holdfast.turnfile import Session, files
from holdfast.turnfile.files import JOURNAL, Folder
from holdfast.turnfile.model import MAILBOX, PROJECTION, TURNFILE, WORKLOG
from tests.turnfile.kill_worker import edit
from tests.turnfile.sessions import is_whole, leftovers, new_session, start, text_of

# The acquiring write replaces one file, the releasing one four and a journal.
PLACES = [
    *((name, 1) for name in files.NAMES),
    ("file.locked", 2),
    ("commit.begun", 2),
    *(("temp.written", times) for times in range(2, 7)),
    *(("file.replaced", times) for times in range(2, 6)),
]
ALL = (TURNFILE, MAILBOX, PROJECTION, WORKLOG)


def die(session: Session, place: str, times: int) -> None:
    """Run the edit in a process that dies at a place."""
    with start("kill_worker", session.folder.path, place, times) as worker:
        _, errors = worker.communicate(timeout=300)
    assert worker.returncode == -signal.SIGKILL, errors


@pytest.mark.parametrize(("place", "times"), PLACES)
def test_f2_f14_a_kill_leaves_all_old_or_all_new(tmp_path: Path, place: str, times: int) -> None:
    session = new_session(tmp_path)
    before = session.texts(ALL)
    die(session, place, times)
    after = session.texts(ALL)
    edited = {path for path in (MAILBOX, PROJECTION, WORKLOG) if after[path] != before[path]}
    assert edited in (set(), {MAILBOX, PROJECTION, WORKLOG})
    ledger = session.read()
    if edited:
        assert ledger.revision == 3
        assert ledger.turnfile.locks == ()
        assert ledger.turnfile.signals[0].detail == "completed LOCK-ada-001: MAILBOX.md, WORKLOG.md, revision 3"
    else:
        assert (ledger.revision, len(ledger.turnfile.locks)) in ((1, 0), (2, 1))
    is_whole(session)
    for lock in ledger.turnfile.locks:  # the dead holder's: who knows that it is dead gives it back
        turnfile.unlock(session, lock.id, lock.holder)
    turnfile.transact([MAILBOX, WORKLOG], "bob", "after the kill", edit, folder=session, wait=None)
    is_whole(session)
    assert leftovers(session) == []
    assert text_of(session, WORKLOG).count("- sent MSG-") == (2 if edited else 1)


def test_f14_the_places_are_all_that_an_edit_reaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(tmp_path)
    reached: Counter[str] = Counter()
    places = []

    def note(name: str) -> None:
        reached[name] += 1
        places.append((name, reached[name]))

    monkeypatch.setattr(files, "hook", note)
    turnfile.transact([MAILBOX, WORKLOG], "ada", "kill test", edit, folder=session, wait=None)
    assert sorted(places) == sorted(PLACES)
    assert set(reached) == set(files.NAMES)


def test_f14_a_killed_recovery_is_recovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = new_session(tmp_path)
    die(session, "journal.written", 1)
    for _ in range(3):  # every attempt renames one more file, and stops

        def stop(name: str) -> None:
            if name == "file.replaced":
                raise RuntimeError(name)

        monkeypatch.setattr(files, "hook", stop)
        with pytest.raises(RuntimeError):
            session.read()
    monkeypatch.setattr(files, "hook", None)
    assert "- sent MSG-" in text_of(session, WORKLOG)
    is_whole(session)


def test_f14_an_edit_by_hand_before_the_recovery_is_kept_and_the_rest_undone(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    before = session.texts(ALL)
    die(session, "file.replaced", 3)  # after the acquiring write: mailbox and worklog are new, the ledger is not
    assert "- sent MSG-" in Path(session.folder.path, WORKLOG).read_text()
    ledger = Path(session.folder.path, TURNFILE)
    by_hand = ledger.read_text() + "# by hand\n"
    ledger.write_text(by_hand)
    assert session.texts(ALL) == {**before, TURNFILE: by_hand}
    assert leftovers(session) == []
    is_whole(session)


def test_f14_an_edit_of_a_file_that_was_replaced_is_kept_and_the_rest_finished(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    die(session, "file.replaced", 2)  # the first of the four: the mailbox
    mailbox = Path(session.folder.path, MAILBOX)
    assert "from the worker" in mailbox.read_text()
    mailbox.write_text(mailbox.read_text() + "\n<!-- by hand -->\n")
    after = session.texts(ALL)
    assert after[MAILBOX] is not None
    assert after[MAILBOX].endswith("<!-- by hand -->\n")
    assert "- sent MSG-" in (after[WORKLOG] or "")
    assert session.read().turnfile.locks == ()


def test_f14_a_new_file_is_removed_when_its_replacement_is_undone(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    (tmp_path / "old").write_text("old")

    class Stop(Exception):
        pass

    def stop(name: str) -> None:
        if name == "file.replaced":
            raise Stop

    files.hook = stop
    try:
        with folder.write_lock(), pytest.raises(Stop):
            files.replace(folder, {"new": "n", "old": "o"}, {"new": None, "old": "old"})
    finally:
        files.hook = None
    (tmp_path / "old").write_text("by hand")
    with folder.write_lock():
        assert files.recover(folder)
        assert not files.recover(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".TURNFILE.lock", "old"]
    assert (tmp_path / "old").read_text() == "by hand"


@pytest.mark.parametrize("text", ["", "{", '{"steps": [{}]}', "[]"])
def test_f14_a_journal_that_nobody_wrote_is_told_and_not_followed(tmp_path: Path, text: str) -> None:
    session = new_session(tmp_path)
    Path(session.folder.path, JOURNAL).write_text(text)
    with pytest.raises(Corrupt):
        session.read()


def test_f2_a_journal_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    steps = [{"path": "../victim", "temp": "../x", "new": "0", "old": "0", "kept": "0"}]
    Path(session.folder.path, JOURNAL).write_text(json.dumps({"steps": steps}))
    with pytest.raises(Invalid):
        session.read()
    assert victim.read_text() == "untouched"
