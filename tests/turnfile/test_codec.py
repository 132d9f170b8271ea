"""F1: a turn file is read with lines, and written so that nothing changes but what was changed."""

from __future__ import annotations

import difflib
import random
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import Invalid, NotFound
from holdfast.turnfile.ledger import next_signal_id, read
from holdfast.turnfile.ledger.yaml_edit import Insert, Put, Remove
from holdfast.turnfile.ledger.yaml_tree import MAX_BYTES
from holdfast.turnfile.model import Lock, Signal
from tests.turnfile.ledgers import LAYOUTS, ODD, RISING, TIDY
from tests.turnfile.mailboxes import SAMPLES

LOCK = Lock("LOCK-ada-001", ("working-session/MAILBOX.md", "working-session/WORKLOG.md"), "ada", 8, 2, 'say "hi": #1')
SIGNAL = Signal("SIG-003", "ada", "all", "notify", 8, "done: 100% [ok]")
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=40)
names = st.text(string.printable[:95] + "éπ中\U0001f600", min_size=1, max_size=20).filter(lambda n: n == n.strip())
locks = st.builds(
    Lock, names, st.lists(names, min_size=1, max_size=3).map(tuple), names, st.integers(0, 99), st.integers(1, 9), words
)


def changed_lines(old: str, new: str) -> list[str]:
    """The lines that a diff shows, with their signs."""
    lines = difflib.ndiff(old.splitlines(keepends=True), new.splitlines(keepends=True))
    return [line for line in lines if line[:1] in "+-"]


def test_f1_every_field_of_a_turn_file_is_read() -> None:
    turnfile = read(TIDY).turnfile
    assert (turnfile.revision, turnfile.header_revision, turnfile.modified_by) == (7, 7, "ada")
    assert (turnfile.version, turnfile.project, turnfile.workspace) == ("0.1", "kiln", "working-session/")
    assert [(agent.id, agent.status, agent.current_task) for agent in turnfile.agents] == [
        ("ada", "active", "glaze"),
        ("bob", "idle", None),
    ]
    assert turnfile.maintainer.id == "mia"
    glaze = turnfile.task("glaze")
    assert glaze is not None
    assert (glaze.owner, glaze.depends_on, glaze.claim_rev, glaze.completed_rev) == ("ada", ("clay",), 6, None)
    assert [signal.id for signal in turnfile.signals] == ["SIG-002", "SIG-001"]
    assert turnfile.signals[0].sender == "bob"


def test_f1_a_lock_is_read_whatever_way_it_is_written() -> None:
    turnfile = read(ODD).turnfile
    plane, other = turnfile.locks
    assert plane.files == ("working-session/MAILBOX.md", "working-session/WORKLOG.md")
    assert (plane.holder, plane.acquired_rev, plane.lease_revs) == ("bob", 6, 2)
    assert (other.id, other.lease_revs, other.reason) == ("zz", 4, "")
    assert turnfile.version == "0.1"


@layouts
def test_f1_reading_keeps_every_byte(layout: str) -> None:
    assert read(layout).text == layout
    assert read(layout).changed([]).text == layout


@layouts
def test_f1_a_lock_that_comes_and_goes_leaves_every_byte_as_it_was(layout: str) -> None:
    before = read(layout)
    held = before.with_lock(LOCK)
    assert held.turnfile.lock(LOCK.id) == LOCK
    assert held.turnfile.locks[:-1] == before.turnfile.locks
    after = held.without_locks(LOCK.id)
    assert after.turnfile == before.turnfile
    if "\nlocks:" in layout and "\nlocks:\n" not in layout and "\nlocks:\r\n" not in layout:
        assert after.text == layout


@layouts
def test_f1_a_write_changes_only_the_lines_that_it_means(layout: str) -> None:
    before = read(layout)
    after = before.with_lock(LOCK).with_signal(SIGNAL).stamped(before.revision + 1, "ada")
    assert (after.revision, after.turnfile.header_revision, after.turnfile.modified_by) == (
        before.revision + 1,
        before.revision + 1,
        "ada",
    )
    assert SIGNAL in after.turnfile.signals
    if layout.lstrip("-\n").startswith("{"):
        return  # all in one line
    gone = [line for line in changed_lines(layout, after.text) if line.startswith("-") and line.strip() != "-"]
    for line in gone:
        unchanged = ["revision:", "Modified by:", "locks:", "messages:"]
        # The last line of a file without a final newline gets one when lines follow it.
        assert any(word in line for word in unchanged) or not line.endswith("\n"), gone
    assert after.text.endswith("\n") == layout.endswith("\n")
    assert ("\r\n" in after.text) == ("\r\n" in layout)
    assert after.text.count("\r\n") in (0, after.text.count("\n"))


def test_f1_the_diff_of_a_lock_is_the_lock_and_the_two_revisions() -> None:
    after = read(TIDY).with_lock(Lock("L", ("a",), "bob", 8, 2, "why")).stamped(8, "bob")
    assert changed_lines(TIDY, after.text) == [
        "- # Last modified revision: 7\n",
        "+ # Last modified revision: 8\n",
        "- # Modified by: ada\n",
        "+ # Modified by: bob\n",
        "-   revision: 7\n",
        "+   revision: 8\n",
        "- locks: {}\n",
        "+ locks:\n",
        "+   L:\n",
        "+     files:\n",
        '+       - "a"\n',
        '+     holder: "bob"\n',
        "+     acquired_rev: 8\n",
        "+     lease_revs: 2\n",
        '+     reason: "why"\n',
    ]


def test_f1_comments_stay_where_a_value_changes() -> None:
    after = read(ODD).stamped(8, "Ada L.")
    assert "  revision:   8      # do not touch\n" in after.text
    assert changed_lines(ODD, after.text)[0] == "- #    Last modified revision:  7\n"
    assert "locks:          # who edits what\n  # the control plane\n" in after.text


def test_f1_removing_the_last_lock_keeps_the_comments_around_it() -> None:
    after = read(ODD).without_locks("control-plane-update", "zz")
    assert "locks: {}          # who edits what\n  # the control plane\n\nturn_queue" in after.text
    assert after.turnfile.locks == ()


def test_f1_a_missing_header_is_written_once() -> None:
    bare = TIDY[TIDY.index("turnfile:") :]
    after = read(bare).stamped(8, "bob")
    assert after.text.startswith("# Last modified revision: 8\n# Modified by: bob\nturnfile:\n")
    assert read(after.text).stamped(9, "ada").text.count("Modified by") == 1


def test_f13_signals_join_at_the_end_that_the_file_uses() -> None:
    newest_first = read(TIDY).with_signal(SIGNAL).turnfile.signals
    assert [signal.id for signal in newest_first] == ["SIG-003", "SIG-002", "SIG-001"]
    oldest_first = read(RISING).with_signal(SIGNAL).turnfile.signals
    assert [signal.id for signal in oldest_first] == ["SIG-001", "SIG-002", "SIG-003"]
    assert next_signal_id(newest_first) == "SIG-004"
    assert next_signal_id(()) == "SIG-001"


def test_f3_renewing_a_lock_changes_one_line() -> None:
    held = read(TIDY).with_lock(LOCK)
    renewed = held.with_lock(Lock(LOCK.id, LOCK.files, LOCK.holder, 12, LOCK.lease_revs, LOCK.reason))
    assert changed_lines(held.text, renewed.text) == ["-     acquired_rev: 8\n", "+     acquired_rev: 12\n"]


def test_f13_a_tasks_fields_change_in_place() -> None:
    after = read(TIDY).with_task_fields("glaze", status="done", completed_rev=8)
    assert changed_lines(TIDY, after.text) == [
        '-       status: "in_progress"\n',
        '+       status: "done"\n',
        "-       completed_rev: null\n",
        "+       completed_rev: 8\n",
    ]
    with pytest.raises(NotFound):
        read(TIDY).with_task_fields("nobody", status="done")


@settings(max_examples=60, deadline=None)
@given(added=st.lists(locks, max_size=4, unique_by=lambda lock: lock.id), layout=st.sampled_from([*LAYOUTS.values()]))
def test_f1_any_lock_is_read_as_it_was_written(added: list[Lock], layout: str) -> None:
    ledger = read(layout)
    before = {lock.id: lock for lock in ledger.turnfile.locks}
    for lock in added:
        ledger = ledger.with_lock(lock)
    assert {lock.id: lock for lock in ledger.turnfile.locks} == before | {lock.id: lock for lock in added}
    for lock in added:
        if lock.id not in before:
            ledger = ledger.without_locks(lock.id)
    assert [lock.id for lock in ledger.turnfile.locks] == list(before)


@settings(max_examples=60, deadline=None)
@given(detail=words, name=names, layout=st.sampled_from([*LAYOUTS.values()]))
def test_f1_any_text_is_read_as_it_was_written(detail: str, name: str, layout: str) -> None:
    ledger = read(layout)
    signal = Signal("SIG-900", name, "all", "notify", 3, detail)
    after = ledger.with_signal(signal).stamped(ledger.revision + 1, name)
    assert signal in after.turnfile.signals
    assert after.turnfile.modified_by == name


PIECES = ["\n", "  ", "- ", ":", "{", "}", "[", "]", "#", "'", '"', "|", "null", "? ", "\r\n", ",", "1", "\n---\n", "é"]


def test_f1_a_mangled_file_is_changed_as_meant_or_refused() -> None:
    chance = random.Random(1)
    changed = 0
    for _ in range(300):
        text = chance.choice([*LAYOUTS.values()])
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text))
            text = text[:place] + chance.choice(["", *PIECES]) + text[place + chance.randrange(3) :]
        try:
            before = read(text)
            after = before.with_lock(LOCK).with_signal(SIGNAL).stamped(before.revision + 1, "ada")
        except Invalid:
            continue
        changed += 1
        assert after.turnfile.lock(LOCK.id) == LOCK
        assert [lock for lock in after.turnfile.locks if lock.id != LOCK.id] == [*before.turnfile.locks]
        assert [signal for signal in after.turnfile.signals if signal != SIGNAL] == [*before.turnfile.signals]
        assert (after.turnfile.agents, after.turnfile.tasks) == (before.turnfile.agents, before.turnfile.tasks)
    assert changed > 30


REFUSED = {
    "duplicate key": ("coordination:\n  revision: 1\nlocks: {}\nlocks: {}\n", 4, "duplicate"),
    "duplicate lock": ("coordination: {revision: 1}\nlocks:\n  a: {}\n  a: {}\n", 4, "duplicate"),
    "tab": ("coordination:\n\trevision: 1\n", 2, "tab"),
    "tab in a text": ('coordination:\n  revision: 1\nx: "a\tb"\n', 3, "tab"),
    "anchor": ("coordination: &c\n  revision: 1\n", 1, "anchors"),
    "alias": ("coordination:\n  revision: 1\nx: *c\n", 3, "anchors"),
    "tag": ("coordination:\n  revision: !!int 1\n", 2, "tags"),
    "two documents": ("coordination:\n  revision: 1\n---\nx: 1\n", 3, "second document"),
    "too deep": ("coordination: {revision: 1}\nx: " + "[" * 20 + "]" * 20 + "\n", 2, "nested"),
    "not YAML": ("coordination:\n  revision: 1\n x: [\n", 3, "line 3"),
    "control character": ("coordination:\n  revision: 1\nx: \x07\n", 3, "does not allow"),
    "lone carriage return": ("coordination:\r  revision: 1\n", 1, "line break"),
    "a list": ("- a\n", 1, "mapping"),
    "nothing": ("", 1, "mapping"),
    "no revision": ("locks: {}\n", 1, "revision is missing"),
    "revision is text": ('coordination:\n  revision: "7"\n', 2, "must be a number"),
    "revision below 0": ("coordination:\n  revision: -1\n", 2, "must be a number"),
    "revision is true": ("coordination:\n  revision: true\n", 2, "must be a number"),
    "revision is a half": ("coordination:\n  revision: 7.5\n", 2, "must be a number"),
    "locks is a list": ("coordination: {revision: 1}\nlocks:\n  - a\n", 2, "must be a mapping"),
    "lock is text": ("coordination: {revision: 1}\nlocks:\n  a: b\n", 3, "must be a mapping"),
    "lock without files": ("coordination: {revision: 1}\nlocks:\n  a: {holder: b, acquired_rev: 1}\n", 3, "needs"),
    "files is text": ("coordination: {revision: 1}\nlocks:\n  a:\n    files: b\n", 4, "list of texts"),
    "a file is a number": ("coordination: {revision: 1}\nlocks:\n  a:\n    files:\n    - 1\n", 5, "list of texts"),
    "lease of 0": (
        "coordination: {revision: 1}\nlocks:\n  a: {files: [x], holder: b, acquired_rev: 1, lease_revs: 0}\n",
        3,
        "lease_revs",
    ),
    "empty signal": ("coordination: {revision: 1}\nmessages:\n  - id: SIG-001\n  -\n", 4, "must be a mapping"),
    "messages is a map": ("coordination: {revision: 1}\nmessages: {a: b}\n", 2, "must be a list"),
    "a key that is a number": ("coordination: {revision: 1}\n7: x\n", 2, "must be text"),
}


@pytest.mark.parametrize(("text", "line", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_f1_what_cannot_be_understood_is_refused_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(Invalid, match=words) as refusal:
        read(text)
    assert refusal.value.line == line


def test_f1_more_than_a_mebibyte_is_refused() -> None:
    fits = TIDY + "# " + "x" * (MAX_BYTES - len(TIDY.encode()) - 3) + "\n"
    assert read(fits).revision == 7
    with pytest.raises(Invalid, match="the limit is 1048576"):
        read(fits + "\n")


def test_f1_a_layout_that_cannot_be_changed_safely_is_refused_and_not_guessed() -> None:
    ledger = read(TIDY)
    with pytest.raises(Invalid, match="cannot be changed safely"):
        ledger.changed([Remove(("messages", 0, "id"))])  # its line also holds the dash
    kept = read("coordination: {revision: 1}\nnotes: |+\n  text\n\n")
    with pytest.raises(Invalid, match="cannot be changed safely"):
        kept.with_lock(LOCK)  # what is added after the text would take the empty line from it


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\nb", "x" * 201, "\x1b[31m"])
def test_f1_no_name_can_add_a_line(name: str) -> None:
    with pytest.raises(Invalid, match="is not a valid name"):
        read(TIDY).stamped(8, name)


def test_f1_changes_in_one_section_follow_each_other() -> None:
    ledger = read(TIDY)
    after = ledger.changed(
        [
            Put(("locks", "a"), {"files": ["x"], "holder": "ada", "acquired_rev": 8}),
            Put(("locks", "b"), {"files": ["y"], "holder": "ada", "acquired_rev": 8}),
            Remove(("locks", "a")),
            Insert(("turn_queue",), {"agent": "ada", "action": "edit"}),
            Insert(("turn_queue",), {"agent": "bob", "action": "read"}, first=False),
            Remove(("turn_queue", 0)),
        ]
    )
    assert [lock.id for lock in after.turnfile.locks] == ["b"]
    assert [turn.agent for turn in after.turnfile.turn_queue] == ["bob"]


@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not here")
def test_f1_real_files_keep_every_line_but_the_changed_ones() -> None:
    for path in SAMPLES.rglob("*TURNFILE.yaml"):
        text = path.read_bytes().decode()
        ledger = read(text)
        assert ledger.with_lock(LOCK).without_locks(LOCK.id).text == text
        after = ledger.with_signal(SIGNAL).stamped(ledger.revision + 1, "ada")
        removed = [line for line in changed_lines(text, after.text) if line.startswith("-")]
        assert len(removed) <= 4
