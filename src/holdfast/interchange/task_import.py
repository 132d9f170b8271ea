"""Importing tasks from JSON lines, our own or those of beads: one transaction, all or nothing.

The workspace remembers of every imported task what the file said and which version that made. So the same lines change
nothing the second time; what changed only there is followed; what changed on both sides is reported and left alone,
unless the file is preferred. First everything is judged, here and in `fitting`, then everything is done, by `merging`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.routing.config import Config, settings_of
from holdfast.domains.tasks.creation import insert
from holdfast.domains.tasks.rows import TASK, Stored, by_seq
from holdfast.domains.tasks.tree import move
from holdfast.interchange.beads import Gone, read_issue
from holdfast.interchange.task_export import Note, Record, read_own
from holdfast.interchange.task_merge import OP, Plan, differences, merge
from holdfast.kernel.activity import EVERY
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.types.tasks import ImportFormat, ImportProblem, ImportReport, Side

MAX_LINES: Final = 10_000
_READERS: Final[dict[str, Callable[[dict[str, Any], Config], Record]]] = {"holdfast": read_own, "beads": read_issue}
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def import_(
    tx: Tx,
    lines: Sequence[str],
    format: ImportFormat = "holdfast",
    prefer: Side = "ours",
    dry_run: bool = False,
    skip_bad: bool = False,
) -> ImportReport:
    """`tasks.import_`."""
    check_flag(dry_run=dry_run, skip_bad=skip_bad)
    if isinstance(lines, str) or not isinstance(lines, Sequence):
        raise errors.Invalid(f"lines is a list of str, not {type(lines).__name__}", hint="text.splitlines() makes one")
    _check_count(lines)
    for what, given, known in (("format", format, [*_READERS]), ("prefer", prefer, ["ours", "theirs"])):
        if given not in known:
            raise errors.Invalid(f"{what} is {' or '.join(known)}, not {given!r}")
    if not dry_run:
        return _Import(tx, format, prefer, skip_bad).run(lines)
    with tx.dry_run():
        report = _Import(tx, format, prefer, skip_bad).run(lines)
    return msgspec.structs.replace(report, dry_run=True)


def take_in(tx: Tx, lines: Sequence[str], follow: Set[str]) -> ImportReport:
    """The lines of tasks among those of other tables, in any order: the tasks are made by their age.

    What is wrong is left out and told. A task of `follow` becomes what its line says, though it was changed here.
    """
    _check_count(lines)
    return _Import(tx, "holdfast", "ours", True, follow, by_age=True).run(lines)


def _check_count(lines: Sequence[str]) -> None:
    if len(lines) > MAX_LINES:
        raise errors.TooLarge(
            f"{len(lines)} lines in one call; {MAX_LINES} is the most",
            hint="import them in parts: first the tasks that others name",
            limit=MAX_LINES,
        )


class _Import:
    """One import."""

    def __init__(
        self,
        tx: Tx,
        source: ImportFormat,
        prefer: Side,
        skip_bad: bool,
        follow: Set[str] = frozenset(),
        by_age: bool = False,
    ) -> None:
        self._tx = tx
        self._source = source
        self._prefer = prefer
        self._skip_bad = skip_bad
        self._follow = follow
        self._by_age = by_age
        self._config = settings_of(tx).config
        self._report = ImportReport([], [], [], [], [], [])
        self._bad: list[ImportProblem] = []
        self._file: dict[str, Record] = {}
        self._gone: set[str] = set()  # deleted there
        self._plan = Plan(tx, skip_bad)

    def run(self, lines: Sequence[str]) -> ImportReport:
        """Judge all, then do all."""
        self._read(lines)
        for record in self._file.values():
            try:
                self._decide(record)
            except errors.TooLarge as error:  # the note about what it has lost
                self._refuse(record.line, record.id, error.message)
        self._bad += self._plan.fit()
        self._bad.sort(key=lambda problem: problem.line)
        if self._bad and not self._skip_bad:
            raise errors.Invalid(
                f"{len(self._bad)} of {len(lines)} lines cannot be imported; {self._bad[0]}",
                hint="put them right, or pass skip_bad=True to leave them out",
                problems=self._bad,
            )
        self._report.skipped.extend(self._bad)
        self._report.skipped.sort(key=lambda problem: problem.line)
        self._apply()
        return self._report

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read(self, lines: Sequence[str]) -> None:
        """Each line by itself; a blank one is none."""
        for number, line in enumerate(lines, 1):
            id: str | None = None
            try:
                raw = parse(line)
                if raw is None:
                    continue
                given = raw.get("id")
                id = given if isinstance(given, str) else None
                _check_id(given)
                record = _READERS[self._source](raw, self._config)
                if record.id in self._file:
                    raise errors.Invalid(f"line {self._file[record.id].line} has the same id")
                record.line, record.digest = number, _digest(raw)
                self._file[record.id] = record
            except Gone:
                self._gone.add(str(id))
                self._skip(number, id, "deleted there: not imported, and what is here is left alone")
            except (errors.Invalid, errors.TooLarge, msgspec.ValidationError, RecursionError) as error:
                self._refuse(number, id, getattr(error, "message", str(error)))

    def _refuse(self, line: int, id: str | None, message: str) -> None:
        self._bad.append(ImportProblem(line, id, "error", message))
        if id is not None:
            self._plan.excuse(id)

    def _skip(self, line: int, id: str | None, message: str) -> None:
        self._report.skipped.append(ImportProblem(line, id, "warning", message))

    # --- what becomes of each ----------------------------------------------------------------------------------------

    def _decide(self, record: Record) -> None:
        """Whether a record makes a task, changes one, or neither."""
        task = self._plan.task(record.id)
        if task is None:
            if self._is_gone(record.id):
                self._skip(record.line, record.id, "purged here: what is purged does not come back")
                return
            self._drop_gone(record)
            self._tell_claim(record, None)
            self._plan.records[record.id] = record
            return
        base = self._tx.one("SELECT source, digest, version FROM task_imports WHERE seq = ?", (task.seq,))
        source, digest, version = base or (None, None, None)
        if (source, digest) == (self._source, record.digest):
            self._report.unchanged.append(record.id)
            return
        there = record.status if record.deleted is None else "deleted"
        record.withheld = task.holder is not None and record.claim is None and there != "open"
        self._drop_gone(record)
        self._tell_claim(record, task)
        for kind, targets in record.links.items():  # a file without deleted tasks has no links to them either
            hidden = {id for id in link_types.targets(self._tx, kind, task.id) if id not in self._file}
            hidden = {id for id in hidden if self._plan.known(id).deleted is not None}
            record.links[kind] = tuple(sorted({*targets, *hidden}))
        differing = ", ".join(differences(self._tx, task, record).fields)
        touched = (source, version) != (self._source, task.version)
        if not differing and record.withheld:
            message = f"{there} there, claimed here by {task.holder}: left alone; import it again afterwards"
            self._report.conflicts.append(ImportProblem(record.line, record.id, "warning", message))
            return
        if not differing and (touched or record.updated in (None, task.updated)):
            self._report.unchanged.append(record.id)
            if source in (None, self._source):
                self._remember(task, record)
            return
        if touched and record.id not in self._follow:
            why = "changed here and there" if source == self._source else "made here, not by an import of this kind"
            if self._prefer == "ours":
                message = f"{why}; left alone, though it differs in: {differing}"
                self._report.conflicts.append(ImportProblem(record.line, record.id, "warning", message))
                return
            record.warnings.append(f"{why}; the file was preferred in: {differing}")
        self._plan.records[record.id] = record

    def _tell_claim(self, record: Record, task: Stored | None) -> None:
        """A claim stays where it was; who had it is told, unless that one has it here as well."""
        if task is not None and task.holder is not None:
            if record.claim is not None and record.claim[0] == task.holder:
                return
            record.warnings.append(f"claimed here by {task.holder}: its status stays in_progress")
        elif record.claim is not None:
            record.warnings.append("in progress there: open here, as a claim cannot be imported")
        if record.claim is not None:
            record.notes.append(Note(record.claim[1]))

    def _drop_gone(self, record: Record) -> None:
        """Nobody waits for a task that was purged here or deleted there, nor for one that beads left out."""
        lost: dict[str, Any] = {}
        if record.parent_id is not None and self._is_gone(record.parent_id):
            lost["parent_id"], record.parent_id = record.parent_id, None
        for kind, targets in record.links.items():
            dropped = [id for id in targets if self._is_gone(id)]
            if dropped:
                lost[kind] = dropped
                record.links[kind] = tuple(id for id in targets if id not in dropped)
        record.keep(lost, "names tasks that are not here")

    def _is_gone(self, id: str) -> bool:
        if self._plan.task(id) is not None:
            return False
        left_out = self._source == "beads" and id not in self._file  # its exports are often a part of the whole
        return left_out or id in self._gone or newest_version(self._tx, TASK, "", id) > 0

    # --- doing it ----------------------------------------------------------------------------------------------------

    def _apply(self) -> None:
        """All tasks first, then where they belong, then what they say and what they wait for."""
        tx, records = self._tx, self._plan.records
        seqs: dict[str, int] = {}
        steps = 2 * len(records)
        for id in records:
            (self._report.created if self._plan.task(id) is None else self._report.updated).append(id)
        for done, id in enumerate(self._aged(records)):
            if done % EVERY == 0:
                tx.report_progress("import", done, steps)
            record, task = records[id], self._plan.task(id)
            if task is None:
                task = insert(tx, record.draft, None, self._config, id, record.created, record.updated)
            seqs[id] = task.seq
        for id in self._plan.downwards():
            task, parent_id = by_seq(tx, seqs[id]), records[id].parent_id
            if parent_id is None and task.parent is not None:
                move(tx, task, None, OP, records[id].updated)
            elif parent_id is not None and task.parent_id != parent_id:
                seq = seqs[parent_id] if parent_id in seqs else self._plan.known(parent_id).seq
                move(tx, task, by_seq(tx, seq), OP, records[id].updated)
        for done, (id, record) in enumerate(records.items(), len(records)):
            if done % EVERY == 0:
                tx.report_progress("import", done, steps)
            merged = merge(tx, seqs[id], record)
            if not record.withheld:  # otherwise the same line has still something to say
                self._remember(merged, record)
            told = [ImportProblem(record.line, id, "warning", message) for message in record.warnings]
            self._report.warnings.extend(told)
        tx.report_progress("import", steps, steps)

    def _aged(self, records: Mapping[str, Record]) -> list[str]:
        """The order in which tasks are made: that of the file, or their age where a file is sorted by other things."""
        if not self._by_age:
            return [*records]
        now = self._tx.now
        return sorted(records, key=lambda id: (now if (at := records[id].created) is None else at, id))

    def _remember(self, task: Stored, record: Record) -> None:
        self._tx.run(
            "INSERT INTO task_imports (seq, source, digest, version) VALUES (?, ?, ?, ?) ON CONFLICT (seq) DO UPDATE"
            " SET source = excluded.source, digest = excluded.digest, version = excluded.version",
            (task.seq, self._source, record.digest, task.version),
        )


def parse(line: str) -> dict[str, Any] | None:
    """The object of a line, without what is null; None for a blank line."""
    if not isinstance(line, str):
        raise errors.Invalid(f"a line is text, not {type(line).__name__}")
    if not line.strip():
        return None
    try:
        raw = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise errors.Invalid(f"not JSON that can be read: {error}") from error
    if not isinstance(raw, dict):
        raise errors.Invalid("not a JSON object")
    return {name: value for name, value in raw.items() if value is not None}


def _digest(raw: dict[str, Any]) -> bytes:
    """What tells whether a record has changed, whatever the order of its fields."""
    import hashlib

    return hashlib.blake2b(msgspec.json.encode(raw, order="sorted"), digest_size=20).digest()


def _check_id(id: object) -> None:
    if not isinstance(id, str) or not _ID.fullmatch(id):
        raise errors.InvalidID(f"an id is 1 to 64 of the characters A-Z a-z 0-9 . _ -, not {id!r}")
