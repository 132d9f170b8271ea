"""A log that is damaged, or not the one that a replica belongs to, is refused before it can do harm."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Sequence
from pathlib import Path

import apsw
import msgspec
import pytest

import holdfast
from holdfast import errors
from holdfast.kernel.migrations import known
from holdfast.kernel.store_files import FILE
from holdfast.replication.log import Changes, CommitLog, MemoryLog, from_bytes, to_bytes
from holdfast.testing.crowd import start
from tests.logs.nodes import RUN, Nodes, Wire, assert_equal, noise, raw_entries, value, write


def flipped(raw: bytes, byte: int) -> bytes:
    """The same with one bit wrong."""
    return raw[:byte] + bytes([raw[byte] ^ (1 << byte % 8)]) + raw[byte + 1 :]


class Damaged(Wire):
    """A log that has lost a bit of one entry, or of every blob."""

    def __init__(self, log: CommitLog, entry: int = 0, blobs: bool = False) -> None:
        super().__init__(log)
        self.entry = entry
        self.blobs = blobs

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        page = super().tail(after)
        return [(at, flipped(raw, len(raw) // 2) if at == self.entry else raw) for at, raw in page]

    def get(self, ref: str) -> bytes:
        blob = super().get(ref)
        return flipped(blob, len(blob) // 2) if self.blobs else blob


# --- bits ------------------------------------------------------------------------------------------------------------


def test_an_entry_with_any_bit_flipped_or_cut_short_is_corrupt(nodes: Nodes) -> None:
    nodes.open("a").cells.set(RUN, "cell", 1)
    for position, raw in raw_entries(nodes.log):
        assert from_bytes(raw, position)
        for byte in range(len(raw)):
            with pytest.raises(errors.Corrupt):
                from_bytes(flipped(raw, byte), position)
        for length in range(1, len(raw)):
            with pytest.raises(errors.Corrupt):
                from_bytes(raw[:length], position)


def test_a_damaged_entry_stops_the_node_that_reads_it_and_no_other(nodes: Nodes) -> None:
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    wire = Damaged(nodes.log)
    b = nodes.stale("b", wire)
    a.cells.set(RUN, "cell", 2)
    wire.entry = nodes.log.head()
    with pytest.raises(errors.Corrupt, match="damaged"):
        b.cells.set(RUN, "cell", 3)
    with pytest.raises(errors.Corrupt):
        b.cells.get(RUN, "cell")
    assert a.cells.set(RUN, "cell", 3) == 3
    with pytest.raises(errors.Corrupt):
        nodes.open("c", wire)


def test_a_damaged_snapshot_is_corrupt_and_makes_no_replica(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    write(a, 20)
    wire = Damaged(nodes.log, blobs=True)
    with pytest.raises(errors.Corrupt, match="snapshot"):
        nodes.open("b", wire)
    wire.blobs = False
    assert_equal(a, nodes.open("b", wire))


def test_a_damaged_snapshot_leaves_a_replica_that_has_to_join_anew_as_it_was(nodes: Nodes) -> None:
    a = nodes.engine("a", snapshot_every=5, pulse=False)
    wire = Damaged(nodes.log)
    b = nodes.stale("b", wire)
    b.cells.set(RUN, "mine", 1)
    write(a, 30)
    wire.blobs = True
    with pytest.raises(errors.Corrupt, match="snapshot"):
        b.cells.set(RUN, "mine", 2)
    wire.blobs = False
    assert b.cells.set(RUN, "mine", 2) == 2
    assert_equal(a, b)


@pytest.mark.parametrize("byte", range(0, 200, 7))
def test_a_snapshot_with_any_bit_flipped_is_corrupt_or_says_the_same(nodes: Nodes, byte: int) -> None:
    a = nodes.engine("a", snapshot_every=3, pulse=False)
    write(a, 6)

    class Bit(Wire):
        def get(self, ref: str) -> bytes:
            blob = super().get(ref)
            return flipped(blob, byte * len(blob) // 200)

    try:
        b = nodes.open("b", Bit(nodes.log))
    except errors.Corrupt:
        assert raw_entries(nodes.log)
    else:  # a compressed run of zeros can be written in two ways
        assert_equal(a, b)


def test_changes_in_a_damaged_blob_stop_the_node(nodes: Nodes) -> None:
    a = nodes.open("a")
    wire = Damaged(nodes.log)
    b = nodes.stale("b", wire)
    a.cells.set(RUN, "cell", noise(100_000))
    wire.blobs = True
    with pytest.raises(errors.Corrupt):
        b.cells.set(RUN, "other", 1)
    assert a.cells.increment(RUN, "count") == 1


def test_an_entry_of_a_kind_that_this_program_does_not_know_is_behind(nodes: Nodes) -> None:
    a, b = nodes.stale("a"), nodes.stale("b")
    a.cells.set(RUN, "cell", 1)
    position, raw = raw_entries(nodes.log)[-1]
    entry = from_bytes(raw, position)
    body = msgspec.msgpack.encode(["of the future", entry.id + "x", entry.id, entry.node, entry.workspace])
    nodes.log.append(zlib.crc32(body).to_bytes(4, "big") + body, position)
    for node in (a, b):
        with pytest.raises(errors.Behind, match="unknown to this program"):
            node.cells.set(RUN, "cell", 2)
        with pytest.raises(errors.Behind):
            node.cells.find(RUN, "cell")


def test_an_entry_that_skips_one_is_corrupt(nodes: Nodes) -> None:
    a = nodes.open("a")
    wire = Wire(nodes.log)
    b = nodes.stale("b", wire)
    a.cells.set(RUN, "cell", 1)
    hidden = nodes.log.head()
    a.cells.set(RUN, "cell", 2)

    class Holey(Wire):
        def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
            return [entry for entry in super().tail(after) if entry[0] != hidden]

    b.close()
    with pytest.raises(errors.Corrupt):
        nodes.open("b", Holey(nodes.log))


def test_changes_of_a_nodes_own_tables_are_refused(nodes: Nodes) -> None:
    a = nodes.stale("a")
    position, raw = raw_entries(nodes.log)[-1]
    last = from_bytes(raw, position)
    other = apsw.Connection(":memory:")
    other.execute("CREATE TABLE local_thing (id INTEGER NOT NULL PRIMARY KEY)")
    with nodes.file("a") as connection:
        connection.execute("CREATE TABLE local_thing (id INTEGER NOT NULL PRIMARY KEY)")
    session = apsw.Session(other, "main")
    session.attach()
    other.execute("INSERT INTO local_thing VALUES (1)")
    changeset = session.changeset()
    entry = Changes("another", last.id, last.node, last.workspace, 1, changeset)
    nodes.log.append(to_bytes(entry), position)
    with pytest.raises(errors.Corrupt, match="local_thing"):
        a.cells.set(RUN, "cell", 1)


# --- another log -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writes", [None, 0, 1, 2, 3, 7])
def test_a_replica_opened_with_the_log_of_another_workspace_is_refused_and_does_it_no_harm(
    nodes: Nodes, writes: int | None
) -> None:
    a = nodes.open("a")
    for number in range(3):
        a.cells.set(RUN, "cell", number)
    a.close()
    other = MemoryLog(clock=nodes.clock)
    if writes is not None:
        b = nodes.open("b", other)
        for number in range(writes):
            b.cells.set(RUN, "theirs", number)
    before = raw_entries(other)
    assert len(before) == (0 if writes is None else known() + writes)

    def use_it() -> None:
        node = nodes.open("a", other)
        node.cells.set(RUN, "cell", "mine")

    with pytest.raises(errors.Corrupt):
        use_it()
    assert raw_entries(other) == before
    a = nodes.open("a")
    assert (value(a, "cell"), a.cells.set(RUN, "cell", 4)) == (2, 4)
    if writes is not None:
        assert b.cells.set(RUN, "theirs", "on") == writes + 1


def test_a_replica_that_is_ahead_of_its_log_is_refused(nodes: Nodes) -> None:
    early = MemoryLog(clock=nodes.clock)
    a = nodes.open("a")
    a.cells.set(RUN, "cell", 1)
    for position, raw in raw_entries(nodes.log):
        early.append(raw, position - 1)
    a.cells.set(RUN, "cell", 2)
    a.close()
    with pytest.raises(errors.Corrupt, match="ends at"):
        nodes.open("a", early)
    assert value(nodes.open("a"), "cell") == 2


def test_a_log_that_went_back_while_a_node_was_open_is_not_written_to(nodes: Nodes) -> None:
    early = MemoryLog(clock=nodes.clock)
    nodes.open("seed").cells.set(RUN, "cell", 1)
    for position, raw in raw_entries(nodes.log):
        early.append(raw, position - 1)

    class Switching(Wire):
        def switch(self, log: CommitLog) -> None:
            self._log = log

    wire = Switching(nodes.log)
    a = nodes.stale("a", wire)
    a.cells.set(RUN, "cell", 2)
    wire.switch(early)
    before = raw_entries(early)
    with pytest.raises((errors.Corrupt, errors.Unavailable)):
        a.cells.set(RUN, "cell", 3)
    assert raw_entries(early) == before


def test_a_replica_opened_without_its_log_is_invalid(nodes: Nodes) -> None:
    nodes.open("a").close()
    with pytest.raises(errors.Invalid, match="replica of a log"):
        holdfast.open(nodes.path("a"), actor="me", clock=nodes.clock)
    with pytest.raises(errors.Invalid, match="replica of a log"):
        holdfast.upgrade(nodes.path("a"), clock=nodes.clock)
    assert nodes.open("a").cells.set(RUN, "cell", 1) == 1


def test_a_workspace_of_its_own_opened_with_a_log_is_invalid(nodes: Nodes) -> None:
    with holdfast.open(nodes.path("plain"), actor="me", clock=nodes.clock) as plain:
        plain.cells.set(RUN, "cell", 1)
    for log in (nodes.log, MemoryLog(clock=nodes.clock)):
        with pytest.raises(errors.Invalid, match="not a replica"):
            nodes.open("plain", log)
        assert raw_entries(log) == []
    with holdfast.open(nodes.path("plain"), actor="me", clock=nodes.clock) as plain:
        assert plain.cells.get(RUN, "cell").value == 1


def test_what_is_no_log_is_invalid(nodes: Nodes) -> None:
    with pytest.raises(errors.Invalid, match="CommitLog"):
        holdfast.open(nodes.path("a"), actor="me", log=5)  # type: ignore[arg-type]
    with pytest.raises(errors.Invalid, match="names one workspace"):
        holdfast.open(nodes.path("a"), actor="me", log="nats://somewhere")
    assert not nodes.path("a").exists()


def test_somebody_elses_database_is_left_as_it_is(nodes: Nodes) -> None:
    folder = nodes.path("a")
    folder.mkdir()
    connection = apsw.Connection(str(folder / FILE))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    before = (folder / FILE).read_bytes()
    with pytest.raises(errors.Invalid, match="not a Holdfast workspace"):
        nodes.open("a")
    assert (folder / FILE).read_bytes() == before
    assert raw_entries(nodes.log) == []


def test_a_replica_put_back_to_an_earlier_copy_catches_up(nodes: Nodes, tmp_path: Path) -> None:
    a, b = nodes.open("a"), nodes.open("b")
    b.cells.set(RUN, "cell", 1)
    b.close()
    shutil.copytree(nodes.path("b"), tmp_path / "copy")
    b = nodes.open("b")
    for number in range(5):
        b.cells.set(RUN, "cell", number)
    b.close()
    shutil.rmtree(nodes.path("b"))
    shutil.copytree(tmp_path / "copy", nodes.path("b"))
    b = nodes.open("b")
    assert_equal(a, b)
    assert start(lambda: b.cells.set(RUN, "cell", "new")).result() == 7


def test_a_damaged_blob_of_an_entry_is_corrupt_and_nothing_of_it_is_applied(nodes: Nodes) -> None:
    a, wire = nodes.open("a"), Damaged(nodes.log)
    b = nodes.engine("b", wire, pulse=False)
    a.cells.set(RUN, "large", noise(100_000))
    wire.blobs = True
    with pytest.raises(errors.Corrupt, match="blob of an entry"):
        b.cells.set(RUN, "cell", 1)
    with pytest.raises(errors.Corrupt):
        b.cells.find(RUN, "large")
    assert a.cells.get(RUN, "large").value == noise(100_000)
