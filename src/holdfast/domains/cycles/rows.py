"""The rows of cycles: loading, writing the next document, listing and checking.

A document is stored as JSON, and also in its event in the log. A read compares the two and checks every rule, so any
change other than by `write` is noticed, even if the result looks like a document. `write` is the only way to change
one, and it rejects what breaks a rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, get_args

import msgspec

from holdfast import errors
from holdfast.domains.cycles import rules
from holdfast.domains.cycles.document import Document
from holdfast.domains.cycles.rules import MAX_BYTES, ROOM, Key, problems
from holdfast.kernel.events import previous
from holdfast.kernel.tx import Row, Snapshot, Tx, fill
from holdfast.kernel.validate import check_limit
from holdfast.types import END_OF_REVISION, Page, as_time
from holdfast.types.cycles import Cycle, CycleInfo, CycleProblem, ListedStatus

CYCLE: Final = "cycle"
CONFLICT: Final = "cycle-conflict"
DELETE: Final = "delete"
_COLUMNS: Final = "prefix, number, sequence, revision, created, updated, document, shared"
# Steps that a large document must allow; one that comes from elsewhere may have taken them there.
_ENDING: Final = ("start_phase", "fail_phase", "finish", "recover", "import", "adopt")
_SHOWN: Final = 5  # problems in a message; `details` has all
_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Found(msgspec.Struct, frozen=True):
    """What the store has of a cycle: the row's bytes, the document in them if it can be read, and all problems.

    `logged` is the document of the newest event. A cycle that does not exist has neither row nor event.
    """

    key: Key
    raw: bytes | None
    document: Document | None
    logged: Document | None
    problems: list[CycleProblem]

    @property
    def there(self) -> bool:
        """Whether the cycle exists, sound or not."""
        return self.raw is not None or self.logged is not None


def named(snapshot: Snapshot, key: Any) -> Key:
    """Return the cycle of a key; a prefix means its current one. Raises NotFound."""
    prefix = rules.find_prefix(key)
    if prefix is None:
        return rules.parse(key)
    current = current_of(snapshot, prefix)
    if not look(snapshot, Key(prefix, current)).there:  # it was deleted: take the last one that exists
        row = snapshot.one("SELECT max(number) FROM cycles WHERE prefix = ?", (prefix,))
        current = (row and row[0]) or 0
    if not current:
        raise errors.NotFound(f"there is no cycle of {prefix}", hint="start one: cycles.start(...)", key=prefix)
    return Key(prefix, current)


def current_of(snapshot: Snapshot, prefix: str) -> int:
    """Return the number of a prefix's current cycle: as recorded, or the highest; 0 if there never was one."""
    row = snapshot.one(
        "SELECT max(coalesce((SELECT number FROM cycle_currents WHERE prefix = ?1), 0),"
        " coalesce((SELECT max(number) FROM cycles WHERE prefix = ?1), 0))",
        (prefix,),
    )
    return 0 if row is None else int(row[0])


def set_current(tx: Tx, prefix: str, number: int) -> None:
    """Make a cycle the current one of its prefix."""
    tx.run(
        "INSERT INTO cycle_currents (prefix, number) VALUES (?, ?)"
        " ON CONFLICT (prefix) DO UPDATE SET number = excluded.number",
        (prefix, number),
    )


# --- reading ---------------------------------------------------------------------------------------------------------


def look(snapshot: Snapshot, key: Key) -> Found:
    """Return what the store has of a cycle, in whatever state."""
    row = snapshot.one(
        "SELECT sequence, CAST(document AS BLOB) FROM cycles WHERE prefix = ? AND number = ?",  # of any type
        (key.prefix, key.number),
    )
    event = snapshot.one(
        "SELECT op, version, data, redacted FROM events WHERE kind = ? AND scope = '' AND id = ?"
        " ORDER BY version DESC LIMIT 1",
        (CYCLE, str(key)),
    )
    return _judge(key, row, event)


def _judge(key: Key, row: Row | None, event: Row | None) -> Found:
    there = event is not None and event[0] != DELETE
    logged = logged_document(event[2]) if event is not None and there else None
    if row is None:
        wrong = [] if logged is None else [CycleProblem("$", "is missing, but was not deleted")]
        return Found(key, None, None, logged, wrong)
    sequence, raw = row[0], bytes(row[1])
    try:
        document = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Found(key, raw, None, logged, [CycleProblem("$", f"is not JSON: {error}")])
    wrong = problems(document)
    if not wrong and (document["cycle_id"], document["sequence"]) != (str(key), sequence):
        wrong = [CycleProblem("$", f"is {document['cycle_id']} at {document['sequence']}, its row {key} at {sequence}")]
    if not wrong and there and logged is None:
        wrong = [CycleProblem("$", "cannot be compared with its event, which cannot be read")]
    if not wrong:
        wrong = [CycleProblem(path, f"is not what was written: {how}") for path, how in differences(logged, document)]
    return Found(key, raw, document if isinstance(document, dict) else None, logged, wrong)


def logged_document(data: bytes | None) -> Document | None:
    """Return the document in an event; None if it has none that can be read."""
    try:
        document = None if data is None else _unpack(data).get("document")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return document if isinstance(document, dict) else None


def versions(snapshot: Snapshot, key: Key) -> Iterator[tuple[int, Document]]:
    """Yield every readable version of a document in the log, newest first."""
    for version, data in snapshot.all(
        "SELECT version, data FROM events WHERE kind = ? AND scope = '' AND id = ? ORDER BY version DESC",
        (CYCLE, str(key)),
    ):
        document = logged_document(data)
        if document is not None:
            yield version, document


def vanished(snapshot: Snapshot, prefix: str | None = None) -> list[Row]:
    """Return the newest events of cycles (of a prefix) whose rows are missing without having been deleted.

    Each as (prefix, number, version, revision, time, time), like a row.
    """
    where, params = ("", ()) if prefix is None else (" AND id > ? AND id < ?", (f"{prefix}:cycle:", f"{prefix}:cycle;"))
    logged = snapshot.all(f"SELECT DISTINCT id FROM events WHERE kind = ? AND scope = ''{where}", (CYCLE, *params))
    there = {Key(*row) for row in snapshot.all("SELECT prefix, number FROM cycles")}
    missing: list[Row] = []
    for key in sorted({rules.parse(id) for (id,) in logged} - there):
        if look(snapshot, key).there:
            event = previous(snapshot, CYCLE, "", str(key), END_OF_REVISION)
            assert event is not None
            missing.append((key.prefix, key.number, event[8], event[0], event[2], event[2]))
    return missing


def differences(old: Any, new: Any, path: str = "$") -> list[tuple[str, str]]:
    """Return where two values differ, with both values; true and 1 differ, and so do 1 and 1.0."""
    if type(old) is type(new):
        if isinstance(old, dict):
            return [
                difference
                for name in dict.fromkeys((*old, *new))
                for difference in _at(old, new, name, f"{path}.{name}")
            ]
        if isinstance(old, list) and len(old) == len(new):
            return [
                d for at, pair in enumerate(zip(old, new, strict=True)) for d in differences(*pair, f"{path}[{at}]")
            ]
        if old == new:
            return []
    return [(path, f"{_short(old)} became {_short(new)}")]


def _at(old: dict[str, Any], new: dict[str, Any], name: str, path: str) -> list[tuple[str, str]]:
    if name not in new:
        return [(path, f"{_short(old[name])} is gone")]
    if name not in old:
        return [(path, f"{_short(new[name])} is new")]
    return differences(old[name], new[name], path)


def _short(value: Any) -> str:
    text = _json(value).decode()
    return text if len(text) <= 80 else f"{text[:77]}..."


def require(snapshot: Snapshot, key: Key) -> Document:
    """Return the document of a cycle. Raises NotFound, or Corrupt if it is not what was written."""
    found = look(snapshot, key)
    if not found.there:
        raise missing(key)
    if found.problems or found.document is None:
        raise corrupt(key, found.problems)
    return found.document


def missing(key: Key) -> errors.NotFound:
    """The error for a cycle that does not exist."""
    return errors.NotFound(f"there is no cycle {key}", hint="cycles.list() lists them", key=str(key))


def corrupt(key: Key, wrong: list[CycleProblem]) -> errors.Corrupt:
    """The error for a damaged document."""
    shown = "; ".join(f"{problem.path} {problem.message}" for problem in wrong[:_SHOWN])
    more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
    return errors.Corrupt(
        f"the document of {key} is damaged: {shown}{more}",
        hint="cycles.recover(key) keeps a copy of it and restores the last good document",
        key=str(key),
        problems=msgspec.to_builtins(wrong),
    )


def to_cycle(document: Document) -> Cycle:
    """Return the public form."""
    return msgspec.convert(document, Cycle)


# --- writing ---------------------------------------------------------------------------------------------------------


def now_of(tx: Tx) -> str:
    """Return the time of a transaction as documents write it."""
    return as_time(tx.now).isoformat().replace("+00:00", "Z")


def write(tx: Tx, op: str, document: Document, phase: str | None = None, **more: Any) -> Document:
    """Store a document and its event. Raises InvalidValue if it breaks a rule; then nothing is written."""
    wrong = problems(document)
    if wrong:
        raise refused(document, wrong)
    key = rules.parse(document["cycle_id"])
    text = _json(document)
    limit = MAX_BYTES if op in _ENDING else MAX_BYTES - ROOM
    if len(text) > limit:
        raise errors.TooLarge(
            f"the document of {key} would have {len(text)} bytes; the maximum is {limit}",
            hint="store large outputs in a file or a cell, and their names here",
            limit=limit,
        )
    tx.run(
        f"INSERT INTO cycles ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, '') ON CONFLICT (prefix, number) DO UPDATE SET"
        " sequence = excluded.sequence, revision = excluded.revision, updated = excluded.updated,"
        " document = excluded.document",
        (key.prefix, key.number, document["sequence"], tx.revision, tx.now, tx.now, text),
    )
    data = {"phase": phase, "document": document, **more}
    tx.emit(CYCLE, str(key), op, version=document["sequence"], data=_pack(data))
    return document


def refused(document: Document, wrong: list[CycleProblem]) -> errors.InvalidValue:
    """The error for a document that breaks a rule."""
    shown = "; ".join(f"{problem.path} {problem.message}" for problem in wrong[:_SHOWN])
    return errors.InvalidValue(
        f"this is not a valid document of a cycle: {shown}",
        hint="cycles.validate(document) lists all problems",
        problems=msgspec.to_builtins(wrong),
    )


def check(snapshot: Snapshot) -> Iterator[str]:
    """Report documents that are damaged or missing, invalid keys, and wrong current cycles."""
    there = {Key(*row) for row in snapshot.all("SELECT prefix, number FROM cycles")}
    logged = {rules.parse(id) for (id,) in snapshot.all("SELECT DISTINCT id FROM events WHERE kind = ?", (CYCLE,))}
    for key in sorted(there | logged, key=str):
        if rules.find(str(key)) != key:
            yield f"cycle {key}: not a valid key"
            continue
        for problem in look(snapshot, key).problems:
            yield f"cycle {key}: {problem.path} {problem.message}"
    highest: dict[str, int] = {}
    for key in there | logged:
        if type(key.number) is int:
            highest[key.prefix] = max(highest.get(key.prefix, 0), key.number)
    current: dict[str, int] = dict(snapshot.all("SELECT prefix, number FROM cycle_currents"))
    for prefix, last in sorted(highest.items()):
        if prefix not in current:
            yield f"the current cycle of {prefix} is not recorded; its last one is {last}"
        elif current[prefix] < last:
            yield f"the current cycle of {prefix} is {current[prefix]}, but {last} exists"
    for prefix, number, revision, newest in snapshot.all(
        "SELECT prefix, number, revision, (SELECT max(e.revision) FROM events e"
        " WHERE e.kind = ? AND e.scope = '' AND e.id = prefix || ':cycle:' || number) FROM cycles",
        (CYCLE,),
    ):
        if newest is not None and revision != newest:
            yield f"cycle {Key(prefix, number)} is of revision {revision}, but of {newest} in the log"


def list_cycles(
    snapshot: Snapshot,
    spec: str | None = None,
    instruction: str | None = None,
    status: ListedStatus | None = None,
    limit: int = 100,
    after: str = "",
) -> Page[CycleInfo]:
    """List cycles by prefix and number, optionally of a spec or instruction; `after` is the last key of a page."""
    check_limit(limit, 1000, "after")
    if status is not None and status not in get_args(ListedStatus):
        raise errors.InvalidFilter(f"{status!r} is not a status", hint=f"one of {', '.join(get_args(ListedStatus))}")
    start = Key("", 0) if after == "" else rules.parse(after)
    prefix = None if spec is None and instruction is None else rules.prefix_of(spec, instruction)
    where, params = ("", ()) if prefix is None else (" AND prefix = ?", (prefix,))
    rows = snapshot.all(
        "SELECT prefix, number, sequence, revision, created, updated FROM cycles"
        f" WHERE (prefix, number) > (?, ?){where}",
        (start.prefix, start.number, *params),
    )
    rows += [row for row in vanished(snapshot, prefix) if row[:2] > (start.prefix, start.number)]
    infos = (_info(snapshot, row) for row in sorted(rows))
    page: Page[CycleInfo] = Page()
    more = fill(page, (info for info in infos if status in (None, info.status)), limit)
    page.cursor = page[-1].key if more else None
    return page


def _info(snapshot: Snapshot, row: Row) -> CycleInfo:
    key = Key(row[0], row[1])
    found = look(snapshot, key)
    broken = bool(found.problems) or found.document is None
    metadata = {} if broken or found.document is None else found.document["metadata"]
    return CycleInfo(
        key=str(key),
        number=key.number,
        sequence=row[2],
        status=metadata.get("status", "corrupt"),
        current_phase=metadata.get("current_phase"),
        created_at=as_time(row[4]),
        updated_at=as_time(row[5]),
        revision=row[3],
    )
