"""`ws.threads`: the checkpoints of graphs, one line of them for each thread and namespace.

A checkpoint says which version of each channel it has; the value of a version is stored once, however many checkpoints
have it. Events have ids and sizes, never a value, so what is deleted is gone. An interrupt is an event of its own kind.
Whoever holds the lock of a thread (`ws.locks`, "thread:ID") gives its token with each change; nobody else changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.arguments import Meaning
from holdfast.domains import locks
from holdfast.domains.threads import removal, retrieval
from holdfast.domains.threads.rows import (
    INTERRUPT,
    MAX_BODY,
    MAX_BYTES,
    check_names,
    check_text,
    lock_of,
    open_thread,
    require_list,
    too_large,
)
from holdfast.kernel.events import Filter, previous, to_event
from holdfast.kernel.tx import Tx
from holdfast.kernel.validate import check_name
from holdfast.kernel.values import INT_MAX, encode
from holdfast.operation import Domain, M, Steps, procedure, read, write
from holdfast.route import example
from holdfast.types import Grant
from holdfast.types.threads import Thread

_MARKS: Final = {"__interrupt__": "interrupt", "__resume__": "resume"}  # channels whose writes are events of their own
_encode = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder(order="sorted").encode


# --- putting ---------------------------------------------------------------------------------------------------------


def put(
    tx: Tx,
    id: str,
    checkpoint: str,
    value: Any = None,
    channels: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    metadata: dict[str, Any] | None = None,
    ns: str = "",
    parent: str | None = None,
    run: str | None = None,
    deltas: Sequence[str] = (),
    token: int | None = None,
) -> Thread:
    """Put a checkpoint into a thread, which is made if need be.

    `channels` has the version of each channel, `values` the values of those versions that are new; the others must be
    there, or it raises InvalidValue with the `missing` channels. Raises Held while another holds the thread, Fenced
    for a late token, and ThreadNotFound if the thread was deleted since the run began.
    """
    check_names(id, checkpoint, ns, parent, run)
    versions = _versions(channels, values, deltas)
    own, known = encode(value, MAX_BYTES), _metadata(tx, metadata)
    packed = {channel: encode(each, MAX_BYTES) for channel, each in (values or {}).items()}
    size = len(own) + len(known) + sum(map(len, packed.values()))
    if size > MAX_BYTES:
        raise too_large(size)
    thread = open_thread(tx, id, token, ns, checkpoint, parent, writes=False)
    for channel, data in packed.items():
        _keep(tx, thread.record, ns, channel, versions[channel], data)
    text = _json(versions).decode()
    if len(packed) < len(versions):
        _check_present(tx, thread.record, ns, text)
    lines = (parent, run, tx.now, text, _json(sorted(deltas)).decode(), known, own)
    new = bool(tx.run(_PUT_NEW, (thread.record, ns, checkpoint, *lines)))
    if not new:
        tx.run(_PUT_AGAIN, (*lines, thread.record, ns, checkpoint))
        removal.drop_values(tx, thread.record, ns)
    thread.write(tx, "put", int(new), checkpoint=checkpoint, ns=ns, bytes=size)
    return thread.shown()


_PUT_NEW: Final = (
    "INSERT OR IGNORE INTO checkpoints"
    " (thread, ns, id, parent, run, created, channels, deltas, metadata, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PUT_AGAIN: Final = (
    "UPDATE checkpoints SET parent = ?, run = ?, created = ?, channels = ?, deltas = ?, metadata = ?, value = ?"
    " WHERE thread = ? AND ns = ? AND id = ?"
)


def _versions(channels: Any, values: Any, deltas: Any) -> dict[str, str]:
    """The version of each channel, checked."""
    for given, what in ((channels, "channels"), (values, "values")):
        if given is not None and not isinstance(given, Mapping):
            raise errors.InvalidValue(f"{what} must be an object by channel, not {type(given).__name__}")
    versions = dict(channels or {})
    for channel, version in versions.items():
        check_text(channel, "channel")
        check_text(version, "version")
    for channel in require_list(deltas, "deltas"):
        check_text(channel, "channel")
    if strange := sorted(map(str, (values or {}).keys() - versions.keys())):
        raise errors.InvalidValue(f"channels says no version of {', '.join(strange)[:200]}")
    return versions


def _metadata(tx: Tx, metadata: Any) -> bytes:
    """The stored form of metadata, which are small: a list looks through them."""
    if metadata is not None and type(metadata) is not dict:
        raise errors.InvalidValue(f"metadata must be an object, not {type(metadata).__name__}")
    return encode(metadata or {}, tx.max_value_bytes)


def _keep(tx: Tx, record: int, ns: str, channel: str, version: str, data: bytes) -> None:
    """Store the value of a version. Raises Conflict if the version has another one."""
    key = (record, ns, channel, version)
    if tx.run(
        "INSERT OR IGNORE INTO channel_values (thread, ns, channel, version, value) VALUES (?, ?, ?, ?, ?)",
        (*key, data),
    ):
        return
    known = tx.one(
        "SELECT value = ? FROM channel_values WHERE thread = ? AND ns = ? AND channel = ? AND version = ?", (data, *key)
    )
    if known is None or not known[0]:
        hint = "a version is of one value: make versions that nobody else makes"
        raise errors.Conflict(f"version {version[:80]} of the channel {channel[:80]} has another value", hint=hint)


def _check_present(tx: Tx, record: int, ns: str, channels: str) -> None:
    rows = tx.all(
        "SELECT j.key FROM json_each(?3) j WHERE NOT EXISTS (SELECT 1 FROM channel_values"
        " WHERE thread = ?1 AND ns = ?2 AND channel = j.key AND version = j.value)",
        (record, ns, channels),
    )
    if rows:
        missing = sorted(channel for (channel,) in rows)
        message = f"the thread has no value of these versions: {', '.join(missing)[:200]}"
        raise errors.InvalidValue(message, hint="send their values too", missing=missing)


def put_writes(
    tx: Tx,
    id: str,
    checkpoint: str,
    task: str,
    writes: Sequence[Sequence[Any]],
    ns: str = "",
    path: str = "",
    token: int | None = None,
) -> Thread:
    """Keep what a task wrote after a checkpoint, which may come later: each is [channel, value], or has a number too.

    A number, its place in the list unless said, is written once; below 0 the last one counts. Raises as `put` does.
    """
    check_names(id, checkpoint, ns, None)
    check_text(task, "task")
    check_text(path, "path", empty=True)
    rows = [_write(each, at) for at, each in enumerate(require_list(writes, "writes"))]
    size = sum(len(data) for _, _, data in rows)
    if size > MAX_BYTES:
        raise too_large(size)
    thread = open_thread(tx, id, token, ns, checkpoint, None, writes=True)
    for number, channel, data in rows:
        tx.run(
            f"INSERT OR {'REPLACE' if number < 0 else 'IGNORE'} INTO checkpoint_writes"
            " (thread, ns, checkpoint, task, number, path, channel, value) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (thread.record, ns, checkpoint, task, number, path, channel, data),
        )
    facts: dict[str, Any] = {"checkpoint": checkpoint, "ns": ns, "task": task, "bytes": size}
    thread.write(tx, "write", writes=len(rows), **facts)
    for mark in sorted({_MARKS[channel] for _, channel, _ in rows if channel in _MARKS}):
        if mark != "resume" or not _is_resumed(tx, id, facts):
            tx.emit(INTERRUPT, id, mark, data=_encode(facts))
    return thread.shown()


def _is_resumed(tx: Tx, id: str, facts: dict[str, Any]) -> bool:
    """Whether the newest event says so already: LangGraph writes an answer for the run, and again for the task."""
    last = previous(tx, INTERRUPT, "", id, INT_MAX)
    if last is None or to_event(last).op != "resume":
        return False
    said = to_event(last).data
    return all(said.get(name) == facts[name] for name in ("checkpoint", "ns"))


def _write(given: Any, at: int) -> tuple[int, str, bytes]:
    if not isinstance(given, list | tuple) or not 2 <= len(given) <= 3:
        raise errors.InvalidValue("a write is [channel, value] or [channel, value, number]")
    channel, value, number = (*given, at)[:3]
    check_text(channel, "channel")
    if type(number) is not int or not -(2**31) <= number < 2**31:
        raise errors.InvalidValue(f"the number of a write must be an int of 32 bits, not {number!r:.80}")
    return number, channel, encode(value, MAX_BYTES)


# --- holding ---------------------------------------------------------------------------------------------------------


class _Hold(locks.LockAttempt):
    """An attempt that never enters a held lock again: two runs of one actor are two."""

    def __call__(self, tx: Tx) -> Grant:
        row = locks.load(tx, self._target)
        if row is not None:
            raise locks.held(self._target, row[1], row[5])
        return super().__call__(tx)


def hold(id: str, ttl: float = 60.0, wait: float | None = None) -> Steps[Grant]:
    """Acquire the lock of a thread, "thread:ID", for one run, waiting in line for up to `wait` seconds.

    Whoever changes the thread gives its token until it is released or expires (`ws.locks`). Raises Held if anybody has
    it, the actor included.
    """
    check_name(id, "id")
    target = locks.named(lock_of(id))
    return locks.acquire_by(_Hold(target, None, ttl, None), wait, Filter((locks.LOCK,), "", target.name))


# What examples need.
_PUT: Final = """holdfast thread put chat 01 '{"step": 1}'"""
_TOKEN: Final = "the token of the lock thread:ID, if you hold it"
_NS: Final = "the namespace: that of a subgraph, else empty"


class Threads(Domain[M]):
    """`ws.threads`."""

    prefix = "threads"
    put = write(
        put,
        http="POST /api/threads/{id}/put",
        body=MAX_BODY,
        cli="thread put ID CHECKPOINT [VALUE]",
        help="Put a checkpoint into a thread.",
        examples=(
            example(_PUT),
            example(
                """holdfast thread put chat 02 null --channels '{"log": "1"}' --values '{"log": ["hi"]}' --parent 01""",
                _PUT,
            ),
        ),
        creates=True,
        arguments={
            "checkpoint": "its id; later ones are greater",
            "value": Meaning("what to keep of it besides the channels, JSON", "json"),
            "channels": Meaning("the version of each channel, a JSON object", "json"),
            "values": Meaning("the values of versions that are new, a JSON object by channel", "json"),
            "metadata": Meaning("what it can be found by, a JSON object", "json"),
            "ns": _NS,
            "parent": "the checkpoint before it",
            "run": Meaning("the run that made it", "text"),
            "deltas": "a channel whose value the writes of its ancestors add up to; may be repeated",
            "token": _TOKEN,
        },
    )
    put_writes = write(
        put_writes,
        http="POST /api/threads/{id}/writes",
        body=MAX_BODY,
        cli="thread put-writes ID CHECKPOINT TASK WRITES",
        help="Keep what a task wrote after a checkpoint.",
        examples=(example("""holdfast thread put-writes chat 01 task-1 '[["log", "hello"]]'""", _PUT),),
        creates=True,
        arguments={
            "checkpoint": "the checkpoint",
            "task": Meaning("the id of the task that wrote it", "text"),
            "writes": Meaning("what it wrote, a JSON list of [channel, value]", "json"),
            "ns": _NS,
            "path": Meaning("the path of the task, by which writes are ordered", "text"),
            "token": _TOKEN,
        },
    )
    hold = procedure(
        hold,
        http="POST /api/threads/{id}/hold",
        cli="thread hold",
        help="Take the lock of a thread for one run; exit code 12 if anybody has it.",
        examples=("holdfast thread hold chat --ttl 60",),
    )
    get = read(
        retrieval.get_checkpoint,
        http="GET /api/threads/{id}/checkpoint",
        cli="thread get ID [CHECKPOINT]",
        help="Show the newest checkpoint of a thread, or another one.",
        examples=(example("holdfast thread get chat", _PUT),),
        arguments={"checkpoint": "the id of the checkpoint", "ns": _NS},
    )
    find = read(
        retrieval.find_checkpoint,
        http="GET /api/threads/{id}/find",
        cli="thread find ID [CHECKPOINT]",
        help="Show a checkpoint of a thread; nothing if there is none.",
        examples=(example("holdfast thread find chat 01 --json", _PUT),),
        arguments={"checkpoint": "the id of the checkpoint", "ns": _NS},
    )
    info = read(
        retrieval.get_thread,
        http="GET /api/threads/{id}",
        plain=True,
        cli="thread info",
        help="Show how many checkpoints a thread has, and when it changed.",
        examples=(example("holdfast thread info chat", _PUT),),
    )
    list = read(
        retrieval.list_threads,
        http="GET /api/threads",
        cli="thread list [PREFIX]",
        nothing=("there are no such threads",),
        help="List the threads by id.",
        examples=("holdfast thread list", example("holdfast thread list chat --json", _PUT)),
    )
    history = read(
        retrieval.list_checkpoints,
        http="POST /api/checkpoints/search",
        cli="thread history [ID]",
        nothing=("there are no such checkpoints",),
        help="List checkpoints, newest first: of a thread, or of all.",
        examples=(example("""holdfast thread history chat --where '{"source": "loop"}'""", _PUT),),
        arguments={
            "id": "the thread",
            "ns": "of this namespace alone; empty: of the graph itself",
            "where": Meaning("metadata that they must have, a JSON object", "json"),
            "older_than": Meaning("only those that are older than this checkpoint", "text"),
            "values": "also their values and writes",
        },
    )
    delete = write(
        removal.delete,
        http="DELETE /api/threads/{id}",
        answers=True,
        cli="thread delete",
        done=("deleted {id}",),
        nothing=("there is no thread {id}",),
        help="Delete a thread with all its checkpoints, for good.",
        examples=(example("holdfast thread delete chat --yes", _PUT),),
        irreversible="this deletes the thread {id} with all its checkpoints",
        arguments={"token": _TOKEN},
    )
    delete_runs = write(
        removal.delete_runs,
        http="POST /api/runs/delete-checkpoints",
        cli="thread delete-runs RUNS...",
        done=("deleted {result:checkpoints}",),
        nothing=("these runs have no checkpoints",),
        help="Delete the checkpoints of runs in all threads, for good.",
        examples=(example("holdfast thread delete-runs run-1 --yes", f"{_PUT} --run run-1"),),
        irreversible="this deletes the checkpoints of these runs",
        arguments={"runs": "a run; may be repeated"},
    )
    copy = write(
        removal.copy,
        http="POST /api/threads/{id}/copy",
        cli="thread copy ID TO",
        help="Copy a thread with all its checkpoints to a new one.",
        examples=(example("holdfast thread copy chat chat-2", _PUT),),
        creates=True,
        arguments={"to": Meaning("the id of the new thread", "text")},
    )
    prune = write(
        removal.prune,
        http="POST /api/threads/{id}/prune",
        cli="thread prune",
        done=("deleted {result:checkpoints}",),
        nothing=("the thread has no older checkpoints",),
        help="Delete all but the newest checkpoints of a thread, for good.",
        examples=(example("holdfast thread prune chat --keep 1 --yes", _PUT, _PUT.replace("01", "02")),),
        irreversible="this deletes older checkpoints of the thread {id}",
        arguments={"keep": "how many to keep in each namespace", "token": _TOKEN},
    )
