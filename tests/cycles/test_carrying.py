"""Cycles carried to and from a place (P9, P4): what is written, what is left alone, and races that are lost."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.interchange.peer import sync
from holdfast.interchange.peer.locations import Contents, Entry, Folder, Revision, moved
from holdfast.interchange.peer.sync import ExportReport, bring, send
from holdfast.workspace import Workspace

KEY = "peer:spec:search:cycle:1"
DOTTED = "peer.spec.search.cycle.1"
CURRENT = "peer.spec.search.cycle.current"


def merged_ids(sent: ExportReport) -> list[str | None]:
    """The cycles that were merged."""
    return [warning.id for warning in sent.warnings if warning.message.startswith("merged")]


class Shelf:
    """A place in memory, where others can be let in just before a write."""

    name, indent = "the shelf", 0

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.older: dict[str, list[Entry]] = {}
        self.deleted: set[str] = set()
        self.revisions = 0
        self.others: list[Callable[[], None]] = []
        self.after_read: list[Callable[[], None]] = []

    def read(self) -> Contents:
        found = Contents(self.entries)
        found.deleted = {*self.deleted}
        if self.after_read:
            self.after_read.pop(0)()
        return found

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        if self.others:
            self.others.pop(0)()
        present = self.entries[key].revision if key in self.entries else None
        if present != expected:
            raise moved(self.name, key, expected, present)
        return self.put(key, value)

    def history(self, key: str) -> list[Entry]:
        return self.older.get(key, [])[::-1]

    def remove(self, key: str, expected: Revision) -> None:
        if self.entries[key].revision != expected:
            raise moved(self.name, key, expected, self.entries[key].revision)
        del self.entries[key]
        self.deleted.add(key)

    def put(self, key: str, value: bytes) -> Revision:
        self.revisions += 1
        self.deleted.discard(key)
        if key in self.entries:
            self.older.setdefault(key, []).append(self.entries[key])
        self.entries[key] = Entry(value, self.revisions)
        return self.revisions

    def document(self, key: str = DOTTED) -> Any:
        return json.loads(self.entries[key].value)

    def change(self, **changes: Any) -> None:
        """Somebody else goes on from what is there, step by step as agents do."""
        document = self.document()
        document["sequence"] += 1
        for path, value in changes.items():
            *parents, last = path.split("__")
            inner = document
            for name in parents:
                inner = inner[name]
            inner[last] = value
        self.put(DOTTED, json.dumps(document).encode())


@pytest.fixture
def ws() -> Iterator[Workspace]:
    with holdfast.open(":memory:", actor="planner") as workspace:
        yield workspace


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def pauses() -> list[float]:
    return []


def planned(ws: Workspace) -> None:
    """A cycle whose plan is completed."""
    ws.cycles.start(spec="search", instruction="create-spec")
    ws.cycles.start_phase(KEY, "plan")
    ws.cycles.complete_phase(KEY, "plan", {"steps": 2})


# --- without anybody else --------------------------------------------------------------------------------------------


def test_p9_a_cycle_is_created_then_unchanged_then_updated(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    assert send(ws, shelf).created["cycles"] == [KEY]
    assert shelf.document() == ws.cycles.export(KEY)
    assert shelf.entries[CURRENT].value == b"1"
    revisions = shelf.revisions
    assert send(ws, shelf).unchanged["cycles"] == [KEY]
    assert shelf.revisions == revisions, "nothing was written"
    ws.cycles.start_phase(KEY, "execute")
    assert send(ws, shelf).updated["cycles"] == [KEY]
    assert shelf.document() == ws.cycles.export(KEY)


def test_p9_what_was_sent_is_brought_into_another_workspace_as_it_was(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    with holdfast.open(":memory:", actor="executor") as other:
        assert bring(other, shelf).created["cycles"] == [KEY]
        assert other.cycles.export(KEY) == ws.cycles.export(KEY)
        assert other.cycles.get("peer:spec:search").metadata.cycle_number == 1
        assert bring(other, shelf).unchanged["cycles"] == [KEY]
        other.cycles.start_phase(KEY, "execute")
        assert send(other, shelf).updated["cycles"] == [KEY]
    assert bring(ws, shelf).updated["cycles"] == [KEY]
    assert ws.cycles.get(KEY).phases.execute.status == "in_progress"


def test_p8_the_names_in_a_document_follow_the_prefix_and_nothing_of_it_is_lost(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    for prefix, name, kept in (
        ("acme.spec.search", "search", False),
        ("acme.spec.v1.2", "v1.2", False),
        ("acme.spec.search", "The Search", True),
    ):
        document, there = shelf.document(), Shelf()
        document["metadata"]["spec_name"] = name
        document["phases"]["plan"]["output"] = {"spec_name": name, "metadata": {"spec_name": name}}
        document["cycle_id"], document["metadata"]["key_prefix"] = f"{prefix}.cycle.1", prefix
        there.put(f"{prefix}.cycle.1", b"\xef\xbb\xbf" + json.dumps(document).encode())
        there.put(
            f"{prefix}.cycle.2.metadata", json.dumps({"spec_name": name, "created_at": "2026-03-01T12:00:00Z"}).encode()
        )
        there.put(f"{prefix}.cycle.2.plan", json.dumps({"spec_name": name}).encode())
        with holdfast.open(":memory:", actor="executor") as other:
            report = bring(other, there, prefixes={prefix: "peer:spec:find"})
            assert (f"{prefix}.cycle.1", "it begins with a byte order mark, which is left out") in [
                (each.id, each.message) for each in report.warnings
            ]
            found = other.cycles.export("peer:spec:find:cycle:1")
            assert found["metadata"]["spec_name"] == "find"
            assert found["phases"]["plan"]["output"] == {"spec_name": name, "metadata": {"spec_name": name}}
            assert (name in json.dumps(found["context"])) == kept
            parts = other.cycles.export("peer:spec:find:cycle:2")
            assert (parts["metadata"]["spec_name"], parts["phases"]["plan"]["output"]) == ("find", {"spec_name": name})


def test_p8_a_problem_of_an_entry_under_another_prefix_names_it_as_it_is_there(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    sound = shelf.entries[DOTTED].value
    document = json.loads(sound)
    document["metadata"]["spec_name"] = "another"  # which contradicts its key there
    shelf.entries[DOTTED] = Entry(json.dumps(document).encode(), 1)
    prefixes = {"peer:spec:search": "peer:spec:find"}
    with holdfast.open(":memory:", actor="executor") as other:
        with pytest.raises(errors.Invalid, match=f"{DOTTED}: error: .*spec_name must be find") as refused:
            bring(other, shelf, prefixes=prefixes)
        assert [each.id for each in refused.value.details["problems"]] == [DOTTED]
        assert [each.id for each in bring(other, shelf, skip_bad=True, prefixes=prefixes).skipped] == [DOTTED]
        shelf.entries[DOTTED] = Entry(b'{"cycle_id": 1, "cycle_id": 2}', 1)
        with pytest.raises(errors.Invalid, match=f"{DOTTED}: error: it has a duplicate key"):
            bring(other, shelf, prefixes=prefixes)
        shelf.older[DOTTED] = [Entry(sound, 0)]
        report = bring(other, shelf, prefixes=prefixes)
        assert report.created["cycles"] == ["peer:spec:find:cycle:1"]
        assert [(each.id, each.message.split(":")[0]) for each in report.warnings] == [
            (DOTTED, "revision 1 cannot be read, so revision 0 counts")
        ]


def test_p9_a_dry_run_tells_and_writes_nothing(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    told = send(ws, shelf, dry_run=True)
    assert (told.created["cycles"], told.dry_run, shelf.entries) == ([KEY], True, {})
    send(ws, shelf)
    with holdfast.open(":memory:", actor="x") as other:
        assert bring(other, shelf, dry_run=True).created["cycles"] == [KEY]
        assert other.cycles.list() == []


def large(ws: Workspace, key: str) -> int:
    """A cycle whose document has more bytes than a step with an output may write; returns how many."""
    ws.cycles.start("search")
    ws.cycles.start_phase(key, "plan")
    room = 983_000 - len(json.dumps(ws.cycles.export(key)))
    ws.cycles.update_phase(key, "plan", {"text": "x" * room})
    ws.cycles.fail_phase(key, "plan", "e" * 20_000)
    return len(json.dumps(ws.cycles.export(key), separators=(",", ":")))


def test_p9_a_large_document_comes_back_whatever_the_step_that_wrote_it(ws: Workspace, shelf: Shelf) -> None:
    assert 983_040 < large(ws, KEY) <= 1_048_576
    send(ws, shelf)
    with holdfast.open(":memory:", actor="other") as other:
        assert bring(other, shelf, dry_run=True).created["cycles"] == [KEY]
        assert bring(other, shelf).created["cycles"] == [KEY]
        assert other.cycles.export(KEY) == ws.cycles.export(KEY)


def test_p9_a_document_that_is_too_large_is_one_bad_entry(ws: Workspace, shelf: Shelf) -> None:
    large(ws, KEY)
    ws.cycles.start("search")
    send(ws, shelf)
    shelf.change(context={"text": "y" * 100_000})
    shelf.older.clear()
    with holdfast.open(":memory:", actor="other") as other:
        for dry_run in (True, False):
            with pytest.raises(errors.Invalid) as refused:
                bring(other, shelf, dry_run=dry_run)
            assert [problem.id for problem in refused.value.details["problems"]] == [DOTTED]
        assert other.cycles.list() == []
        report = bring(other, shelf, skip_bad=True)
        assert (report.created["cycles"], [each.id for each in report.skipped]) == (
            ["peer:spec:search:cycle:2"],
            [DOTTED],
        )
        assert other.cycles.get("peer:spec:search").metadata.cycle_number == 2


@pytest.mark.parametrize("lines", [1, 3, 500])
def test_p9_a_location_of_any_size_is_brought_in_slices(
    ws: Workspace, shelf: Shelf, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    monkeypatch.setattr(sync, "LINES", lines)
    for spec in ("a", "b", "c"):
        for _ in range(3):
            ws.cycles.start(spec)
    send(ws, shelf)
    shelf.put("peer.spec.a.cycle.current", b"2")
    shelf.put("peer.spec.d.cycle.7.plan", b'{"steps": 1}')
    shelf.put("peer.spec.d.cycle.7.metadata", b'{"created_at": "2025-08-01T08:00:00Z"}')
    shelf.put("peer.spec.e.meta", b'{"current_cycle": 1, "cycles": {"1": {}, "2": {}}}')
    shelf.put("peer.spec.e.cycle.2", b'{"cycle_number": 2, "phases": {}}')
    with holdfast.open(":memory:", actor="other") as other, holdfast.open(":memory:", actor="other") as whole:
        entries = {key: entry.value.decode() for key, entry in shelf.entries.items()}
        expected = whole.cycles.import_(entries)
        assert bring(other, shelf, dry_run=True).created == expected.created
        assert other.cycles.list() == []
        assert bring(other, shelf).created == expected.created
        for key in expected.created["cycles"]:
            assert other.cycles.export(key) == whole.cycles.export(key)
        for spec in "abcde":
            assert other.cycles.get(f"peer:spec:{spec}").cycle_id == whole.cycles.get(f"peer:spec:{spec}").cycle_id
        shelf.put("peer.spec.f.cycle.1", b"{")
        shelf.put("peer.spec.g.cycle.1", b'{"cycle_number": 1, "phases": {}}')
        with pytest.raises(errors.Invalid, match=r"peer\.spec\.f"):
            bring(other, shelf)
        assert len(other.cycles.list()) == len(expected.created["cycles"]), "all or nothing"


def test_p9_only_the_cycles_that_are_named_are_sent(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    ws.cycles.start(spec="login")
    assert send(ws, shelf, keys=["peer.spec.login.cycle.1"]).created["cycles"] == ["peer:spec:login:cycle:1"]
    assert DOTTED not in shelf.entries
    with pytest.raises(errors.NotFound):
        send(ws, shelf, keys=["peer:spec:nobody:cycle:1"])


def test_p8_fragments_are_left_and_told_and_the_document_is_written_beside_them(ws: Workspace, shelf: Shelf) -> None:
    shelf.put(f"{DOTTED}.metadata", b'{"created_at": "2025-08-01T08:00:00Z", "status": "running"}')
    shelf.put(f"{DOTTED}.plan", b"two steps")
    shelf.put(CURRENT, b"1")
    assert bring(ws, shelf).created["cycles"] == [KEY]
    sent = send(ws, shelf)
    assert (sent.updated["cycles"], sent.old_keys) == ([KEY], [f"{DOTTED}.metadata", f"{DOTTED}.plan"])
    assert shelf.document() == ws.cycles.export(KEY)
    assert shelf.entries[f"{DOTTED}.plan"].value == b"two steps"
    assert shelf.entries[CURRENT].revision == 3, "it says what it should already"
    assert send(ws, shelf).unchanged["cycles"] == [KEY]
    assert bring(ws, shelf).unchanged["cycles"] == [KEY]


def test_p8_an_old_document_is_replaced_by_v2_under_its_own_revision(ws: Workspace, shelf: Shelf) -> None:
    old = {"version": 1.1, "cycle_id": DOTTED, "metadata": {"created_at": "2025-08-01T08:00:00Z", "status": "PLANNING"}}
    old["phases"] = {"plan": {"status": "in_progress"}}
    shelf.put(DOTTED, json.dumps(old).encode())
    bring(ws, shelf)
    ws.cycles.complete_phase(KEY, "plan", {"steps": 1})
    assert send(ws, shelf).updated["cycles"] == [KEY]
    assert (shelf.document()["version"], shelf.document()["sequence"]) == (2, 2)
    assert shelf.document()["context"]["legacy"] == {"document": {"version": 1.1}}


def test_p9_a_document_under_another_name_is_a_copy_that_nothing_writes_over(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    copy = json.dumps(ws.cycles.export(KEY)).encode()
    shelf.put("a-dump-of-it", copy)
    assert send(ws, shelf).created["cycles"] == [KEY], "the cycle is not there under its key"
    ws.cycles.start_phase(KEY, "execute")
    assert send(ws, shelf).updated["cycles"] == [KEY]
    assert shelf.entries["a-dump-of-it"].value == copy
    assert shelf.document(DOTTED)["sequence"] == 4
    assert send(ws, shelf).unchanged["cycles"] == [KEY]
    with holdfast.open(":memory:", actor="x") as other:
        brought = bring(other, shelf)
        assert brought.created["cycles"] == [KEY]
        assert other.cycles.get(KEY).sequence == 4
        notes = [each.message for each in brought.warnings if each.id == "a-dump-of-it"]
        assert notes == [f"a copy; skipped: {DOTTED} is the document of its cycle"]


def test_p9_a_copy_stands_for_its_cycle_where_the_key_is_missing_and_a_deleted_key_stays_deleted(
    ws: Workspace, shelf: Shelf
) -> None:
    planned(ws)
    shelf.put("a-dump-of-it", json.dumps(ws.cycles.export(KEY)).encode())
    with holdfast.open(":memory:", actor="x") as other:
        assert bring(other, shelf).created["cycles"] == [KEY]
        shelf.deleted.add(DOTTED)
        with pytest.raises(errors.CycleConflict, match="somebody deleted it there"):
            send(other, shelf)
        other.cycles.start_phase(KEY, "execute")
        assert send(other, shelf, mine=[KEY]).updated["cycles"] == [KEY]
        assert shelf.document(DOTTED)["sequence"] == 4


def test_p9_the_number_of_the_current_cycle_is_never_set_back(ws: Workspace, shelf: Shelf) -> None:
    shelf.put("peer:spec:search:cycle:current", b"7")
    planned(ws)
    send(ws, shelf)
    assert shelf.entries["peer:spec:search:cycle:current"].value == b"7"
    assert CURRENT not in shelf.entries


def test_p9_the_current_cycle_that_others_set_meanwhile_is_left(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    shelf.others = [lambda: None, lambda: [shelf.put(CURRENT, b"9")].clear()]
    pauses: list[float] = []
    assert send(ws, shelf, sleep=pauses.append).created["cycles"] == [KEY]
    assert (shelf.entries[CURRENT].value, pauses) == (b"9", [0.1])


def test_p9_a_cycle_is_sent_though_the_current_one_was_deleted(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    second = ws.cycles.start(spec="search").cycle_id
    ws.cycles.finish(second, "given up")
    ws.cycles.delete(second)
    assert send(ws, shelf).created["cycles"] == [KEY]
    assert shelf.entries[CURRENT].value == b"1"


def test_p9_what_cannot_be_read_keeps_everything_out_unless_it_is_skipped(ws: Workspace, shelf: Shelf) -> None:
    shelf.put(DOTTED, b'{"version": 2')
    shelf.put("peer.global.cycle.1.plan", b"x")
    with pytest.raises(errors.Invalid, match=DOTTED):
        bring(ws, shelf)
    report = bring(ws, shelf, skip_bad=True)
    assert report.created["cycles"] == ["peer:global:cycle:1"]
    assert [note.id for note in report.skipped] == [DOTTED]


# --- with others -----------------------------------------------------------------------------------------------------


def test_p4_who_changed_another_phase_is_merged(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    shelf.change(phases__plan__errors=[{"message": "a typo in step 2"}])
    ws.cycles.start_phase(KEY, "execute")
    sent = send(ws, shelf)
    assert (sent.updated["cycles"], merged_ids(sent)) == ([KEY], [KEY])
    merged = shelf.document()
    assert merged["phases"]["plan"]["errors"] == [{"message": "a typo in step 2"}]
    assert merged["phases"]["execute"]["status"] == "in_progress"
    assert merged["sequence"] == 5
    assert merged == ws.cycles.export(KEY), "the workspace has what it merged"
    assert ws.cycles.validate(merged) == []


def test_p4_who_changed_the_same_phase_is_not_overwritten(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    ws.cycles.start_phase(KEY, "execute")
    send(ws, shelf)
    shelf.change(phases__execute__output={"files": ["theirs.md"]})
    before = dict(shelf.entries)
    ws.cycles.update_phase(KEY, "execute", {"files": ["ours.md"]})
    with pytest.raises(errors.CycleConflict) as refused:
        send(ws, shelf)
    error = refused.value
    assert error.revision == shelf.entries[DOTTED].revision
    assert error.mine["phases"]["execute"]["output"] == {"files": ["ours.md"]}
    assert error.theirs["phases"]["execute"]["output"] == {"files": ["theirs.md"]}
    assert shelf.entries == before


def test_p4_a_conflict_of_one_cycle_does_not_keep_the_others_back(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    shelf.change(phases__execute__errors=[{"message": "no way to do it"}])
    theirs = shelf.entries[DOTTED]
    ws.cycles.start(spec="login")
    shelf.put("peer.spec.other.cycle.1", b"{broken")
    ws.cycles.start(spec="other")
    ws.cycles.finish(KEY, "given up")
    with pytest.raises(errors.CycleConflict) as refused:
        send(ws, shelf)
    assert shelf.entries[DOTTED] == theirs
    assert shelf.document("peer.spec.login.cycle.1") == ws.cycles.export("peer:spec:login")
    error = refused.value
    assert [each["key"] for each in error.conflicts] == ["peer:spec:other:cycle:1", KEY]
    assert error.sent["created"]["cycles"] == ["peer:spec:login:cycle:1"]
    assert error.conflicts[1]["mine"] == ws.cycles.export(KEY)
    places = [*error.conflicts[1]["differences"]]
    assert any(path.startswith("$.phases.execute.errors") for path in places)


def test_p4_work_that_is_done_there_already_is_skipped(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    send(ws, shelf)
    shelf.change(context__note="further")
    sent = send(ws, shelf)
    assert [note.id for note in sent.skipped] == [KEY]
    assert shelf.document()["context"]["note"] == "further"


def test_p8_an_old_document_that_changed_since_it_was_imported_is_not_overwritten(ws: Workspace, shelf: Shelf) -> None:
    """It has no sequence that would tell."""
    old: dict[str, Any] = {"started_at": "2025-08-01T08:00:00Z", "phases": {"plan": {"status": "running"}}}
    shelf.put(DOTTED, json.dumps(old).encode())
    bring(ws, shelf)
    old["phases"]["plan"]["output"] = {"steps": ["theirs"]}
    shelf.put(DOTTED, json.dumps(old).encode())
    ws.cycles.update_phase(KEY, "plan", {"steps": ["ours"]})
    with pytest.raises(errors.CycleConflict):
        send(ws, shelf)
    assert shelf.document() == old


def test_p9_what_cannot_be_read_there_is_not_overwritten(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    shelf.put(DOTTED, b"{broken")
    with pytest.raises(errors.CycleConflict, match="cannot be read") as refused:
        send(ws, shelf)
    assert refused.value.revision == 1
    assert shelf.entries[DOTTED].value == b"{broken"


# --- races -----------------------------------------------------------------------------------------------------------


def test_p4_a_lost_race_is_read_again_after_a_pause(ws: Workspace, shelf: Shelf, pauses: list[float]) -> None:
    planned(ws)
    send(ws, shelf)
    ws.cycles.start_phase(KEY, "execute")
    shelf.others = [lambda: shelf.change(phases__plan__errors=[{"message": "late"}])]
    sent = send(ws, shelf, sleep=pauses.append)
    assert (sent.updated["cycles"], merged_ids(sent), pauses) == ([KEY], [KEY], [0.1])
    assert [note.id for note in sent.warnings] == [KEY, KEY]
    assert shelf.document()["phases"]["plan"]["errors"] == [{"message": "late"}]
    assert shelf.document()["phases"]["execute"]["status"] == "in_progress"


def test_p4_a_race_for_the_same_phase_fails_with_the_revision_that_is_there(
    ws: Workspace, shelf: Shelf, pauses: list[float]
) -> None:
    planned(ws)
    ws.cycles.start_phase(KEY, "execute")
    send(ws, shelf)
    ws.cycles.update_phase(KEY, "execute", {"files": ["ours.md"]})
    shelf.others = [lambda: shelf.change(phases__execute__output={"files": ["theirs.md"]})]
    with pytest.raises(errors.CycleConflict) as refused:
        send(ws, shelf, sleep=pauses.append)
    assert refused.value.revision == shelf.entries[DOTTED].revision == shelf.revisions
    assert shelf.document()["phases"]["execute"]["output"] == {"files": ["theirs.md"]}
    assert pauses == [0.1]


def test_p4_the_revision_that_counts_is_the_one_of_what_was_compared(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    ws.cycles.start_phase(KEY, "execute")
    send(ws, shelf)
    ws.cycles.update_phase(KEY, "execute", {"files": ["ours.md"]})
    shelf.after_read = [lambda: shelf.change(phases__execute__output={"files": ["theirs.md"]})]
    with pytest.raises(errors.CycleConflict):
        send(ws, shelf, sleep=lambda _: None)
    assert shelf.document()["phases"]["execute"]["output"] == {"files": ["theirs.md"]}


def test_p4_after_three_more_attempts_it_fails_cleanly(ws: Workspace, shelf: Shelf, pauses: list[float]) -> None:
    planned(ws)
    send(ws, shelf)
    ws.cycles.start_phase(KEY, "execute")
    told: list[str] = []

    def other() -> None:
        told.append(f"error {len(told)}")
        shelf.change(phases__plan__errors=[{"message": text} for text in told])

    shelf.others = [other] * 9
    with pytest.raises(errors.CycleConflict, match="faster 4 times") as refused:
        send(ws, shelf, sleep=pauses.append)
    assert pauses == [0.1, 0.3, 0.9]
    assert len(shelf.others) == 5, "four writes were tried"
    assert refused.value.revision == shelf.entries[DOTTED].revision
    assert [each["message"] for each in shelf.document()["phases"]["plan"]["errors"]] == told


def test_p4_two_that_create_the_same_cycle_do_not_overwrite_each_other(ws: Workspace, shelf: Shelf) -> None:
    planned(ws)
    with holdfast.open(":memory:", actor="other") as other:
        other.cycles.start(spec="search")
        theirs = json.dumps(other.cycles.export(KEY)).encode()
    shelf.others = [lambda: [shelf.put(DOTTED, theirs)].clear()]
    with pytest.raises(errors.CycleConflict):
        send(ws, shelf, sleep=lambda _: None)
    assert shelf.entries[DOTTED].value == theirs


# --- folders ---------------------------------------------------------------------------------------------------------


def test_p9_a_folder_holds_a_file_for_each_key(ws: Workspace, tmp_path: Path) -> None:
    planned(ws)
    folder = Folder(str(tmp_path / "new" / "peer"), create=True)
    assert send(ws, folder).created["cycles"] == [KEY]
    assert sorted(path.name for path in Path(folder.path).iterdir()) == [
        ".lock",
        f"{DOTTED}.json",
        f"{CURRENT}.json",
    ]
    assert json.loads((Path(folder.path) / f"{DOTTED}.json").read_bytes()) == ws.cycles.export(KEY)
    with holdfast.open(":memory:", actor="x") as other:
        assert bring(other, folder).created["cycles"] == [KEY]


def test_p9_a_file_is_written_only_over_the_content_that_was_read(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    first = folder.write("a", b"1", None)
    with pytest.raises(errors.VersionMismatch) as refused:
        folder.write("a", b"2", None)
    assert refused.value.version == first
    second = folder.write("a", b"2", first)
    (tmp_path / "a.json").write_bytes(b"3")
    with pytest.raises(errors.VersionMismatch):
        folder.write("a", b"4", second)
    (tmp_path / "a.json").unlink()
    with pytest.raises(errors.VersionMismatch) as gone:
        folder.write("a", b"4", second)
    assert gone.value.version is None
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def documented(ws: Workspace) -> dict[str, Any]:
    """The document of a new cycle."""
    ws.cycles.start("search")
    found: dict[str, Any] = ws.cycles.export(KEY)
    return found


def test_p9_links_are_not_followed_and_stop_nothing(ws: Workspace, tmp_path: Path) -> None:
    inside = tmp_path / "peer"
    inside.mkdir()
    (tmp_path / "secret").write_text("{}")
    (inside / "a.json").symlink_to(tmp_path / "secret")
    folder = Folder(str(inside))
    (inside / "folder.json").mkdir()
    (inside / f"{DOTTED}.json").write_text(json.dumps(documented(ws)))
    found = folder.read()
    assert ([*found], [*found.unread]) == ([DOTTED], ["a", "folder"])
    with pytest.raises(errors.Invalid, match="is a symlink"):
        folder.write("a", b"1", None)
    report = bring(ws, folder)
    assert (report.created["cycles"] or report.unchanged["cycles"]) == [KEY]
    assert [each.id for each in report.warnings] == ["a", "folder"]
    send(ws, folder)
    (inside / f"{DOTTED}.json").unlink()
    (inside / f"{DOTTED}.json").symlink_to(tmp_path / "secret")
    ws.cycles.start("another")
    with pytest.raises(errors.CycleConflict, match="is a symlink"):
        send(ws, folder)
    assert (inside / "peer.spec.another.cycle.1.json").exists(), "the others are written"
    assert (tmp_path / "secret").read_text() == "{}"
    (inside / "a.json").unlink()
    (inside / ".lock").unlink()
    (inside / ".lock").symlink_to(tmp_path / "secret")
    with pytest.raises(errors.IOFailed):
        folder.write("a", b"1", None)


@pytest.mark.parametrize("key", ["", ".a", "../a", "a/b", "a\0b"])
def test_p9_a_key_that_leads_out_of_the_folder_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(errors.InvalidID):
        Folder(str(tmp_path)).write(key, b"1", None)


def test_p9_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFound):
        Folder(str(tmp_path / "nowhere"))


def test_p4_of_many_writers_of_one_file_each_that_succeeds_saw_the_one_before(tmp_path: Path) -> None:
    Folder(str(tmp_path)).write("count", b"0", None)
    lost: list[int] = []

    def count() -> None:
        folder = Folder(str(tmp_path))
        for _ in range(20):
            entry = folder.read()["count"]
            try:
                folder.write("count", str(int(entry.value) + 1).encode(), entry.revision)
            except errors.VersionMismatch:
                lost.append(1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int((tmp_path / "count.json").read_bytes()) + len(lost) == 80
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".partial")]
