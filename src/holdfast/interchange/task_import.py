"""Importing tasks from JSON lines, in our own format or that of beads.

The workspace remembers for every imported task what the file had and which version that made. So the same lines change
nothing the second time; what changed only in the file is updated; what changed on both sides is reported and left
alone, unless the file is preferred. Everything is decided here and in `task_merge` before anything is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains import link_types
from holdfast.domains.routing.config import Config, settings_of
from holdfast.domains.tasks.creation import Placed, insert
from holdfast.domains.tasks.details import refs_in, stored_refs
from holdfast.domains.tasks.rows import TASK, Stored, by_seq
from holdfast.domains.tasks.tree import move
from holdfast.interchange import jsonl
from holdfast.interchange.beads import Gone, read_issue
from holdfast.interchange.jsonl import CREATED, DIVERGED, UNCHANGED, UPDATED, Import, Place
from holdfast.interchange.task_export import NO_FIELD, OP, Note, Record, read_own
from holdfast.interchange.task_merge import Plan, differences, merge
from holdfast.interchange.trackers import check_tracked, read_tracked
from holdfast.kernel.activity import EVERY
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.types import ImportPart, ImportReport
from holdfast.types.tasks import ImportFormat, Side

_READERS: Final[dict[str, Callable[[dict[str, Any], Config], Record]]] = {
    **{"holdfast": read_own, "beads": read_issue, "github": read_tracked, "linear": read_tracked}
}
_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


def import_(
    tx: Tx,
    lines: Sequence[str],
    format: ImportFormat,
    prefer: Side,
    dry_run: bool,
    skip_bad: bool,
    part: ImportPart | None,
) -> ImportReport:
    """`tasks.import_`."""
    check_flag(dry_run=dry_run, skip_bad=skip_bad)
    jsonl.check_lines(lines)
    expect = jsonl.check_part(part, {"tasks": lines}, dry_run)
    for what, given, known in (("format", format, [*_READERS]), ("prefer", prefer, ["ours", "theirs"])):
        if given not in known:
            raise errors.Invalid(f"{what} is {' or '.join(known)}, not {given!r}")

    def work() -> ImportReport:
        found = Import("tasks", part=part)
        tasks = TaskImport(tx, found, format, prefer, skip_bad, expect=expect)
        found.read("tasks", lines, ("id",), tasks.read)
        tasks.decide()
        found.check(skip_bad)
        tasks.write()
        return found.report

    return jsonl.run(tx, dry_run, work)


class TaskImport:
    """The tasks of one import: `read` each record, `decide` about all, `write` all.

    Among the tables of stashes, `follow` are the tasks that become what their line says although they were changed
    here; tasks are then created in the order of their age, as such files are sorted by id. `expect` are ids that other
    parts of the import bring: a dry run, which writes nothing then, takes them for present.
    """

    def __init__(
        self,
        tx: Tx,
        found: Import,
        source: ImportFormat = "holdfast",
        prefer: Side = "ours",
        skip_bad: bool = True,
        follow: Set[str] | None = None,
        expect: Set[str] = frozenset(),
    ) -> None:
        self._tx = tx
        self._found = found
        self._source = source
        self._prefer = prefer
        self._follow = follow
        self._config = settings_of(tx).config
        self._file: dict[str, Record] = {}
        self._gone: set[str] = set()  # deleted in beads
        self._expect = expect
        self._plan = Plan(tx, found, skip_bad, expect)

    def read(self, place: Place, raw: dict[str, Any]) -> None:
        """Read the record of a line. Raises Invalid if it can make no task."""
        if self._source in ("github", "linear"):
            check_tracked(raw)
        if not _ID.fullmatch(place.id or ""):
            found = f"the id {raw['id']!r} cannot be one" if "id" in raw else 'the field "id" is missing'
            raise errors.InvalidID(f"{found}: ids are 1 to 64 of the characters A-Z a-z 0-9 . _ -")
        try:
            record = _READERS[self._source](raw, self._config)
        except Gone:
            self._gone.add(str(place.id))
            self._found.skip(place, "deleted in beads: not imported, and the task here is left alone")
            return
        if record.id in self._file:
            raise errors.Invalid(f"line {self._file[record.id].place.line} has the same id")
        record.place, record.digest = place, _digest(raw)
        self._file[record.id] = record

    # --- deciding ----------------------------------------------------------------------------------------------------

    def decide(self) -> None:
        """Decide for every record whether it creates a task, changes one, or neither; refuse what does not fit."""
        for record in self._file.values():
            self._found.attempt(record.place, self._decide, record)
        self._plan.fit()

    def _decide(self, record: Record) -> None:
        task = self._plan.task(record.id)
        if task is None:
            if self._is_gone(record.id):
                self._found.skip(record.place, "purged here: not created again")
                return
            self._drop_gone(record)
            self._keep_wait(record)
            self._keep_claim(record, None)
            self._plan.records[record.id] = record
            return
        base = self._tx.one("SELECT source, digest, version FROM task_imports WHERE seq = ?", (task.seq,))
        source, digest, version = base or (None, None, None)
        if (source, digest) == (self._source, record.digest):
            self._found.count(UNCHANGED, record.place)
            return
        if "refs" in record.extra and self._source not in ("holdfast", "beads"):  # what was added here stays
            record.extra["refs"] = _with_refs(record.extra["refs"], task)
        there = record.status if record.deleted is None else "deleted"
        record.withheld = task.holder is not None and record.claim is None and there != "open"
        self._drop_gone(record)
        self._keep_wait(record)
        self._keep_claim(record, task)
        self._keep_hidden_links(record, task)
        differing = ", ".join(differences(self._tx, task, record).fields)
        touched = (source, version) != (self._source, task.version)
        if not differing and record.withheld:
            message = f"{there} in the file, claimed here by {task.holder}; skipped, import it again afterwards"
            self._found.conflict(record.place, message)
            return
        if not differing and (touched or record.updated in (None, task.updated)):
            self._found.count(UNCHANGED, record.place)
            if source in (None, self._source):
                self._remember(task, record)
            return
        if touched and record.id not in (self._follow or ()):
            if self._prefer == "ours":
                why = DIVERGED if source == self._source else "created here, not by an import of this format; skipped"
                self._found.conflict(record.place, f"{why}; differs in: {differing}")
                return
            record.warnings.append(f"changed here too; the file is preferred in: {differing}")
        self._plan.records[record.id] = record

    def _keep_claim(self, record: Record, task: Stored | None) -> None:
        """A claim is not imported: a note names its holder, unless the same agent holds the task here."""
        if task is not None and task.holder is not None:
            if record.claim is not None and record.claim[0] == task.holder:
                return
            record.warnings.append(f"claimed here by {task.holder}: its status stays in_progress")
        elif record.claim is not None:
            record.warnings.append("in progress in the file: open here, because claims are not imported")
        if record.claim is not None:
            record.notes.append(Note(record.claim[1]))

    def _keep_wait(self, record: Record) -> None:
        """Keep what the file says of a deferral and a task cannot say."""
        over, coming = record.waited
        if record.deferred is not None:
            is_over = record.deferred <= self._tx.now
            record.keep(over if is_over else coming, "its wait is over" if is_over else NO_FIELD)

    def _keep_hidden_links(self, record: Record, task: Stored) -> None:
        """Keep links to deleted tasks, which a file without deleted tasks does not have."""
        for kind, targets in record.links.items():
            hidden = {id for id in link_types.targets(self._tx, kind, task.id) if id not in self._file}
            hidden = {id for id in hidden if self._plan.known(id).deleted is not None}
            record.links[kind] = tuple(sorted({*targets, *hidden}))

    def _drop_gone(self, record: Record) -> None:
        """Drop links to tasks that were purged here or deleted in beads, or that beads left out of its export."""
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
        if self._plan.task(id) is not None or id in self._expect:
            return False
        left_out = self._source in ("beads", "linear") and id not in self._file  # its exports are often partial
        return left_out or id in self._gone or newest_version(self._tx, TASK, "", id) > 0

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Create all tasks, then move them below their parents, then merge what their records say."""
        tx, records = self._tx, self._plan.records
        seqs: dict[str, int] = {}
        steps = 2 * len(records)
        for id, record in records.items():
            self._found.count(CREATED if self._plan.task(id) is None else UPDATED, record.place)
            for message in record.warnings:
                self._found.warn(record.place, message)
        if self._expect:
            return
        for done, id in enumerate(self._by_age() if self._follow is not None else records):
            if done % EVERY == 0:
                tx.report_progress("import", done, steps)
            record, task = records[id], self._plan.task(id)
            if task is None:
                task = insert(tx, Placed(record.draft, None, id, record.created, record.updated), self._config)
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
            if not record.withheld:  # otherwise the same line still has something to change
                self._remember(merged, record)
        tx.report_progress("import", steps, steps)

    def _by_age(self) -> list[str]:
        records, now = self._plan.records, self._tx.now
        return sorted(records, key=lambda id: (now if (at := records[id].created) is None else at, id))

    def _remember(self, task: Stored, record: Record) -> None:
        self._tx.run(
            "INSERT INTO task_imports (seq, source, digest, version) VALUES (?, ?, ?, ?) ON CONFLICT (seq) DO UPDATE"
            " SET source = excluded.source, digest = excluded.digest, version = excluded.version",
            (task.seq, self._source, record.digest, task.version),
        )


def _with_refs(refs: str | None, task: Stored) -> str | None:
    """The references of a task, with one that it does not have yet."""
    own = refs_in(task)
    return stored_refs([*own, *(pair for pair in map(tuple, msgspec.json.decode(refs or "[]")) if pair not in own)])


def _digest(raw: dict[str, Any]) -> bytes:
    """A digest by which a changed record is recognized, whatever the order of its fields."""
    import hashlib

    return hashlib.blake2b(msgspec.json.encode(raw, order="sorted"), digest_size=20).digest()
