"""What takes checkpoints away, and copies them: whole threads, runs, and all but the newest.

Invariant: with the last checkpoint that has a version its value goes too. What pruning keeps can still be read: the
ancestors whose writes add up to a channel stay, up to the nearest one that has its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.threads.rows import INTERRUPT, ROW, THREAD, ThreadRow, check_token, find, open_thread, require
from holdfast.kernel.events import redact
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_name
from holdfast.types.threads import Thread

MAX_RUNS: Final = 1000
_TABLES: Final = ("checkpoint_writes", "channel_values", "checkpoints")
_channels = msgspec.json.Decoder(dict[str, str]).decode
_names = msgspec.json.Decoder(list[str]).decode


def delete(tx: Tx, id: str, token: int | None = None) -> bool:
    """Delete a thread with all its checkpoints, values and writes, for good; False if there is none.

    A run that goes on afterwards does not bring it back. Raises Held while another holds the thread.
    """
    check_name(id, "id")
    check_token(tx, id, token)
    thread = find(tx, id)
    if thread is None:
        return False
    _erase(tx, thread, "delete")
    return True


def _erase(tx: Tx, thread: ThreadRow, op: str) -> None:
    for table in _TABLES:
        tx.run(f"DELETE FROM {table} WHERE thread = ?", (thread.record,))
    tx.run("DELETE FROM threads WHERE record = ?", (thread.record,))
    for kind in (THREAD, INTERRUPT):
        redact(tx, kind, "", thread.id)
    tx.emit_of(thread.record, op, thread.version + 1, None)


def delete_runs(tx: Tx, runs: Sequence[str]) -> int:
    """Delete the checkpoints of runs, at most 1,000 of them, in all threads with their writes; returns how many.

    Raises Held while anybody holds one of the threads.
    """
    if not isinstance(runs, list | tuple):
        raise errors.InvalidValue(f"runs come in a list, not {type(runs).__name__}")
    if len(runs) > MAX_RUNS:
        raise errors.TooLarge(f"at most {MAX_RUNS:,} runs in one call, not {len(runs):,}", limit=MAX_RUNS)
    doomed: dict[int, dict[str, list[str]]] = {}
    for run in dict.fromkeys(runs):
        check_name(run, "run")
        for record, ns, id in tx.all("SELECT thread, ns, id FROM checkpoints WHERE run = ?", (run,)):
            doomed.setdefault(record, {}).setdefault(ns, []).append(id)
    for record, by_namespace in sorted(doomed.items()):
        row = tx.one(f"SELECT {ROW} FROM threads WHERE record = ?", (record,))
        assert row is not None
        thread = ThreadRow(*row)
        check_token(tx, thread.id, None)
        if sum(map(len, by_namespace.values())) == thread.checkpoints:
            _erase(tx, thread, "delete")
        else:
            _take_out(tx, thread, by_namespace, "delete_runs")
    return sum(len(ids) for by_namespace in doomed.values() for ids in by_namespace.values())


def _take_out(tx: Tx, thread: ThreadRow, by_namespace: dict[str, list[str]], op: str) -> int:
    """Delete checkpoints with their writes, and the values that no other has."""
    for ns, ids in by_namespace.items():
        keys = [(thread.record, ns, id) for id in ids]
        tx.many("DELETE FROM checkpoints WHERE thread = ? AND ns = ? AND id = ?", keys)
        tx.many("DELETE FROM checkpoint_writes WHERE thread = ? AND ns = ? AND checkpoint = ?", keys)
        drop_values(tx, thread.record, ns)
    count = sum(map(len, by_namespace.values()))
    thread.write(tx, op, -count)
    return count


def drop_values(tx: Tx, record: int, ns: str) -> None:
    """Delete the values that no checkpoint of a namespace has any more."""
    tx.run(
        "DELETE FROM channel_values WHERE thread = ?1 AND ns = ?2 AND (channel, version) NOT IN"
        " (SELECT j.key, j.value FROM checkpoints c, json_each(c.channels) j WHERE c.thread = ?1 AND c.ns = ?2)",
        (record, ns),
    )


# --- pruning ---------------------------------------------------------------------------------------------------------


def prune(tx: Tx, id: str, keep: int = 1, token: int | None = None) -> int:
    """Delete all but the newest `keep` checkpoints of each namespace with their writes; returns how many.

    Ancestors stay whose writes make up a channel of one that is kept. 0 if there is no thread. Raises Held, as `put`.
    """
    if type(keep) is not int or not 1 <= keep < 2**31:
        raise errors.Invalid(
            f"keep must be an int of 1 or more, not {keep!r:.80}", hint="threads.delete(id) deletes all"
        )
    check_name(id, "id")
    check_token(tx, id, token)
    thread = find(tx, id)
    if thread is None:
        return 0
    lines: dict[str, dict[str, tuple[str | None, str, str]]] = {}
    for ns, checkpoint, *facts in tx.all(
        "SELECT ns, id, parent, channels, deltas FROM checkpoints WHERE thread = ? ORDER BY ns, id DESC",
        (thread.record,),
    ):
        lines.setdefault(ns, {})[checkpoint] = tuple(facts)
    doomed = {}
    for ns, line in lines.items():
        needed = _needed(line, list(line)[:keep])
        if gone := [each for each in line if each not in needed]:
            doomed[ns] = gone
    return _take_out(tx, thread, doomed, "prune") if doomed else 0


def _needed(line: dict[str, tuple[str | None, str, str]], kept: Iterable[str]) -> set[str]:
    """Those that are kept, and the ancestors that their delta channels are read from."""
    needed = set(kept)
    for each in kept:
        parent, _, deltas = line[each]
        wanted = set(_names(deltas))
        seen: set[str] = set()
        while wanted and parent in line and parent not in seen:
            seen.add(parent)
            needed.add(parent)
            parent, channels, _ = line[parent]
            wanted -= _channels(channels).keys()
    return needed


# --- copying ---------------------------------------------------------------------------------------------------------

_COPIED: Final = {
    "checkpoints": "ns, id, parent, run, created, channels, deltas, metadata, value",
    "channel_values": "ns, channel, version, value",
    "checkpoint_writes": "ns, checkpoint, task, number, path, channel, value",
}


def copy(tx: Tx, id: str, to: str) -> Thread:
    """Copy a thread with all its checkpoints, values and writes to a new one. Raises Exists if that has any."""
    source = require(tx, id)
    check_name(to, "to")
    known = find(tx, to)
    if known is not None:
        raise errors.Exists(f"there is a thread {to!r} already", hint="choose another id, or delete it first", id=to)
    target = open_thread(tx, to, None, "", "", None, writes=False)
    for table, columns in _COPIED.items():
        tx.run(
            f"INSERT INTO {table} (thread, {columns}) SELECT ?, {columns} FROM {table} WHERE thread = ?",
            (target.record, source.record),
        )
    target.write(tx, "copy", source.checkpoints, source=id)
    return target.shown()
