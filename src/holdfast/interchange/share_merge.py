"""Reading a shared file: its lines are joined with ours, then tasks and templates become what the lines say.

What a task shows is a function of all lines that are known here, so those who know the same lines show the same:

- Of several tasks that were created with one id, the oldest keeps it, and each younger one gets a longer id.
- A parent or dependency that is not here yet is left out until it is; one that would close a circle is left out if it
  is the youngest of those in it. A live task under a deleted one goes to the top.
- A task that was purged elsewhere is deleted here. One that was finished or deleted elsewhere is held by
  nobody.

What a claim is here stays here: in progress is open in every line. Everything happens in one transaction,
or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.domains.routing.config import settings_of
from holdfast.domains.tasks.changes import remove
from holdfast.domains.tasks.creation import Placed, check_assignee, check_draft, check_note, insert_all
from holdfast.domains.tasks.details import check_ref, set_deferral, stored_refs
from holdfast.domains.tasks.rows import COLUMNS, NO_CLAIM, TASK, WAITING, Stored, by_seq, change, require
from holdfast.domains.tasks.templates import TEMPLATE, delete_template, set_template
from holdfast.domains.tasks.transitions import STATUSES
from holdfast.domains.tasks.tree import move
from holdfast.interchange import jsonl
from holdfast.interchange.share_ids import Keys, Names, edges_of, records_of
from holdfast.interchange.share_lines import (
    LINKS,
    Entry,
    Stamp,
    id_of,
    is_record,
    join,
    left_out,
    read_lines,
    to_line,
    trusted,
)
from holdfast.interchange.share_state import (
    Site,
    capture,
    is_same,
    links_of,
    micros_of,
    put,
    require_site,
    save,
    seen,
)
from holdfast.interchange.task_export import OP, Note, Record, told_of
from holdfast.interchange.task_merge import merge
from holdfast.kernel import leases
from holdfast.kernel.activity import EVERY
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag
from holdfast.kernel.values import MAX_VALUE_BYTES, encode
from holdfast.types.tasks import SharedReport

_REFUSALS: Final = (*jsonl.REFUSALS, ValueError, TypeError)


def merge_shared(tx: Tx, lines: Sequence[str], skip_bad: bool) -> SharedReport:
    """`tasks.merge_shared`."""
    check_flag(skip_bad=skip_bad)
    jsonl.check_lines(lines)
    if (other := next((line for line in lines if not isinstance(line, str)), None)) is not None:
        raise errors.Invalid(f"a line is text, not {type(other).__name__}")
    site = require_site(tx)
    report = SharedReport()
    reading = _Reading(tx, site, report)
    for id in capture(tx, site):
        reading.names.settle(id)
    known = {line for (line,) in tx.all("SELECT line FROM shared")} if lines else set()
    new = [(number, line) for number, line in enumerate(lines, 1) if line not in known and is_record(line)]
    entries, report.problems = read_lines(new)
    if report.problems and not skip_bad:
        raise jsonl.refusal(report.problems)
    changed = reading.join(entries)
    if changed:
        save(tx, site)
    reading.show(changed)
    return report


class _Task(msgspec.Struct):
    """A shared task at work: its record, and its row here if it has one."""

    entry: Entry
    odd: dict[str, Any]
    changed: bool
    seq: int | None = None
    stored: Stored | None = None
    shown: dict[str, Any] = {}
    wanted: dict[str, Any] = {}

    @property
    def is_live(self) -> bool:
        """Whether it will not be deleted."""
        return self.wanted["deleted_at"] is None


class _Reading:
    """One reading of lines: `join` them with ours, then `show` what that makes."""

    def __init__(self, tx: Tx, site: Site, report: SharedReport) -> None:
        self._tx = tx
        self._site = site
        self._report = report
        self._config = settings_of(tx).config
        self._keys = Keys(tx)
        self._tasks: dict[str, _Task] = {}
        self.names = Names(tx, report.renamed, self._keys.forget)
        self._new: set[int] = set()
        self._gone: list[int] = []  # purged elsewhere, and to be deleted here

    def join(self, entries: dict[str, Entry]) -> dict[str, Entry]:
        """Join records with those here and store them; returns those that are new, or not as they were."""
        changed: dict[str, Entry] = {}
        tx = self._tx
        for key, entry in entries.items():
            row = tx.one("SELECT line FROM shared WHERE key = ?", (key,))
            joined = entry if row is None else join(trusted(row[0]), entry)
            line = to_line(joined)
            if row is None:
                put(tx, key, None, 0, line, {})
            elif line != row[0]:
                tx.run("UPDATE shared SET line = ? WHERE key = ?", (line, key))
            else:
                continue
            changed[key] = joined
        return changed

    def show(self, changed: dict[str, Entry]) -> None:
        """Make tasks and templates what the records say, as far as they can be it here."""
        for key, entry in changed.items():
            if key.startswith("~"):
                self._show_template(key[1:], entry)
            else:
                self._tasks[key] = _Task(entry, {}, changed=True)
        for key, _, line, odd in records_of(self._tx, "odd IS NOT NULL"):
            if key in self._tasks:
                self._tasks[key].odd = odd
            else:
                self._tasks[key] = _Task(trusted(line), odd, changed=False)
        if not self._tasks:
            return
        if len(self._tasks) > 100:
            self._keys.load()
        self._load(self._tasks)
        self._detach_gone()
        self._create()
        for task in self._tasks.values():
            self._want(task)
        self._add_bereft()
        self._fit_links()
        self._move()
        for done, task in enumerate(self._tasks.values()):
            if done % EVERY == 0:
                self._tx.report_progress("share", done, len(self._tasks))
            self._become(task)
        self._delete_gone()
        self._remember()

    # --- which task is which -----------------------------------------------------------------------------------------

    def _load(self, keys: Iterable[str]) -> None:
        """Read the rows of tasks, and what they show."""
        tx = self._tx
        found: list[tuple[str, Stored]] = []
        for key in keys:
            row = tx.one(f"SELECT {COLUMNS} FROM shared s JOIN tasks t ON t.seq = s.seq WHERE s.key = ?", (key,))
            if row is not None:
                found.append((key, Stored(*row)))
        links = links_of(tx, [stored for _, stored in found])
        for key, stored in found:
            task = self._tasks[key]
            task.seq, task.stored = stored.seq, stored
            task.shown = seen(tx, stored, links.get(stored.id, {}), self._keys)

    def _detach_gone(self) -> None:
        """Delete what was purged elsewhere; whoever restores it has a task of its own."""
        for key, task in [*self._tasks.items()]:
            if not task.entry.gone:
                continue
            del self._tasks[key]
            put(self._tx, key, None, 0, to_line(task.entry), {})
            if task.stored is None:
                continue
            self._keys.forget()
            for below in self._live_below(task.stored.seq):
                self._take(below)
            if self._end_claim(task.stored, "purged").deleted is None:
                self._gone.append(task.stored.seq)

    def _delete_gone(self) -> None:
        for seq in self._gone:
            stored = by_seq(self._tx, seq)
            if stored.status == "pending_merge":
                stored = change(self._tx, stored, OP, {"status": "open"})
            remove(self._tx, stored, seq, "purged elsewhere")
            self._report.deleted.append(stored.id)

    def _create(self) -> None:
        """Create the tasks that are new here, each at the top, with what a new task can have."""
        tx = self._tx
        new = {key: task for key, task in self._tasks.items() if task.stored is None}
        for id in dict.fromkeys(map(id_of, new)):
            self.names.settle(id)
        drafts: list[Placed] = []
        made: list[str] = []
        for key in sorted(new, key=lambda key: (new[key].entry.value("created_at") or "", key)):
            task = new[key]
            try:
                record = self._record(task, self.names.of[key], task.entry.value)
            except _REFUSALS as error:
                self._set_aside(key, task, error)
                continue
            self.names.free(record.id)
            drafts.append(Placed(record.draft, None, record.id, record.created, record.updated))
            made.append(key)
        if not drafts:
            return
        for key, stored in zip(made, insert_all(tx, drafts, self._config), strict=True):
            new[key].seq, new[key].stored = stored.seq, stored
            self._new.add(stored.seq)
            self._keys.add(key, stored.id)
            put(tx, key, stored.seq, 0, to_line(new[key].entry), {})
            if new[key].entry.value("deleted_at") is None:  # else it is deleted in the same transaction
                self._report.created.append(stored.id)
            new[key].shown = seen(tx, stored, {}, self._keys)

    def _set_aside(self, key: str, task: _Task, error: Exception) -> None:
        """Keep a line that can make no task here: it travels on."""
        message = str(getattr(error, "message", error))
        if task.odd.get("") != message:
            self._report.warnings.append(f"{id_of(key)} cannot be a task here, its line is kept: {message}")
        put(self._tx, key, None, 0, to_line(task.entry), {"": message})
        del self._tasks[key]

    # --- what each is to be ------------------------------------------------------------------------------------------

    def _want(self, task: _Task) -> None:
        """What a task is to show, apart from links that are to be left out."""
        value = task.entry.value
        wanted = {field: value(field) for field in task.shown}
        said = task.changed and "assigned_to" in task.entry.cells
        if not said and not self._site.shares("assigned_to"):
            wanted["assigned_to"] = task.shown["assigned_to"]
        if wanted["status"] == "pending_merge" and wanted["deleted_at"] is not None:
            wanted["status"] = "open"
        for field in LINKS:
            wanted[field] = sorted({key for key in value(field) if self._keys.id(key) and key != task.entry.key})
        for field in ("parent", "deleted_with"):
            if self._keys.id(value(field)) is None:
                wanted[field] = None
        held = task.stored is not None and task.stored.status == "in_progress"
        if held or wanted["deleted_at"] is not None or wanted["status"] not in WAITING:
            wanted["deferred_until"] = None
        if wanted["deleted_at"] is None:
            wanted["deleted_with"] = None
        elif wanted["deleted_with"] is None:
            wanted["deleted_with"] = task.entry.key
        if wanted["created_at"] is None:
            wanted["created_at"] = task.shown["created_at"]
        task.wanted = wanted

    def _take(self, key: str | None) -> None:
        """Look at a task too that no line changed."""
        if key is None or key in self._tasks:
            return
        ((_, _, line, odd),) = records_of(self._tx, "key = ?", (key,))
        self._tasks[key] = _Task(trusted(line), odd, changed=False)
        self._load((key,))
        self._want(self._tasks[key])

    def _live_below(self, seq: int) -> list[str]:
        return [
            key
            for (key,) in self._tx.all(
                "SELECT s.key FROM tasks t JOIN shared s ON s.seq = t.seq WHERE t.parent = ? AND t.deleted IS NULL",
                (seq,),
            )
        ]

    def _add_bereft(self) -> None:
        """Live tasks under one that is deleted now go to the top, whatever changed in them."""
        for task in [*self._tasks.values()]:
            if not task.is_live and task.stored is not None:
                for key in self._live_below(task.stored.seq):
                    self._take(key)

    def _fit_links(self) -> None:
        """Leave out what would close a circle, and parents that are deleted while their child is not."""
        for field in ("parent", "depends_on"):
            if not any(task.wanted[field] for task in self._tasks.values()):
                continue
            edges = edges_of(self._tx, field)
            for key, task in self._tasks.items():
                wanted = task.wanted[field]
                edges[key] = wanted if isinstance(wanted, list) else [wanted] if wanted is not None else []
            for key, end in sorted(left_out(edges, partial(self._age, field))):
                self._take(key)
                wanted = self._tasks[key].wanted
                wanted[field] = None if field == "parent" else [each for each in wanted[field] if each != end]
                self._say(self._tasks[key], field, f"{self._keys.id(end)} would close a circle")
        for task in self._tasks.values():
            parent = task.wanted["parent"]
            if parent is not None and task.is_live and not self._is_live(parent):
                task.wanted["parent"] = None
                self._say(task, "parent", f"{self._keys.id(parent)} is deleted")

    def _age(self, field: str, key: str) -> Stamp:
        if key in self._tasks:
            return self._tasks[key].entry.cell(field).stamp
        ((_, _, line, _),) = records_of(self._tx, "key = ?", (key,))
        return trusted(line).cell(field).stamp

    def _is_live(self, key: str) -> bool:
        if key in self._tasks:
            return self._tasks[key].is_live
        row = self._tx.one(
            "SELECT t.deleted IS NULL FROM shared s JOIN tasks t ON t.seq = s.seq WHERE s.key = ?", (key,)
        )
        return row is not None and bool(row[0])

    def _say(self, task: _Task, field: str, why: str) -> None:
        """Report what is left out, once."""
        if field not in task.odd and task.stored is not None:
            name = {"parent": "its parent", "depends_on": "its dependency"}[field]
            self._report.warnings.append(f"{task.stored.id}: {name} {why}, and is left out")

    # --- becoming it -------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Move tasks below their parents; one that is in the way of another goes to the top first."""
        tx = self._tx
        for task in self._tasks.values():
            assert task.seq is not None
            stored, wanted = by_seq(tx, task.seq), self._keys.id(task.wanted["parent"])
            if stored.parent_id == wanted:  # one that was purged elsewhere has no key, but is the parent of those here
                continue
            parent = None
            if wanted is not None:
                above = parent = require(tx, wanted, deleted=True)
                while above.parent is not None and above.parent != stored.seq:
                    above = by_seq(tx, above.parent)
                if above.parent == stored.seq:
                    move(tx, above, None, OP, None if above.imported is None else above.updated)
                    parent = by_seq(tx, parent.seq)
            stored = by_seq(tx, task.seq)
            move(tx, stored, parent, OP, None if stored.imported is None else self._updated(task))

    def _become(self, task: _Task) -> None:
        """Make a task what is wanted, or keep it as it is if it cannot be that."""
        assert task.seq is not None
        stored, wanted = by_seq(self._tx, task.seq), task.wanted
        fields = [
            field
            for field, value in wanted.items()
            if not is_same(self._tx, field, task.shown[field], value, self._keys)
        ]
        if not task.changed:  # what else is odd was as odd before
            fields = [field for field in fields if field in _COMES_BACK]
        notes = self._lacking(task)
        is_new = task.seq in self._new
        if not fields and not notes and not is_new:
            return
        try:
            record = self._record(task, stored.id, wanted.__getitem__)
        except _REFUSALS as error:
            if not task.odd:
                why = str(getattr(error, "message", error))
                self._report.warnings.append(f"{stored.id} is left as it is, its line is kept: {why}")
            return
        record.notes = notes
        if record.deleted is not None or record.status != "open":
            stored = self._end_claim(stored, "deleted" if record.deleted is not None else record.status)
        if stored.deferred is not None and record.deferred is None:
            set_deferral(self._tx, stored, None, OP, record.updated)
        merge(self._tx, task.seq, record)
        if not is_new:
            which = self._report.deleted if "deleted_at" in fields and record.deleted else self._report.updated
            which.append(stored.id)

    def _lacking(self, task: _Task) -> list[Note]:
        """The notes that a task does not have yet."""
        if not task.changed or not task.entry.notes:
            return []
        assert task.stored is not None
        told, _ = told_of(self._tx, task.stored.id)
        has = {(note.at.isoformat(), note.text) for note in told}
        return [
            Note(text, micros_of(at), by, foreign=True)
            for (at, text), by in sorted(task.entry.notes.items())
            if (at, text) not in has
        ]

    def _record(self, task: _Task, id: str, value: Any) -> Record:
        """What a task is to be, as an import says it. Raises Invalid or ValueError if it cannot be that here."""
        if value("status") not in STATUSES or value("status") == "in_progress":
            raise errors.Invalid(f"{value('status')!r} is not a status of a shared task")
        draft = check_draft(
            self._config,
            value("title"),
            value("body"),
            value("type"),
            value("priority"),
            value("tags"),
            value("grimoire_hint"),
            value("assigned_to"),
        )
        by = task.entry.value("created_by")
        for (_, text), author in task.entry.notes.items():
            check_note(text)
            check_assignee(author)
        check_assignee(by)
        encode(task.entry.value("result"), MAX_VALUE_BYTES)
        refs = stored_refs([check_ref(text, kind) for kind, text in value("refs")])
        deleted, created, until = (
            None if (time := value(field)) is None else micros_of(time)
            for field in ("deleted_at", "created_at", "deferred_until")
        )
        return Record(
            id,
            draft,
            value("status"),
            self._keys.id(value("parent")),
            {kind: tuple(sorted(filter(None, map(self._keys.id, value(kind))))) for kind in LINKS},
            created=created,
            updated=self._updated(task),
            deleted=deleted,
            deleted_with=None if deleted is None else self._keys.id(value("deleted_with")) or id,
            extra={"hint": draft.hint, "assignee": draft.assignee, "refs": refs},
            deferred=until if until is not None and until > self._tx.now else None,
            origin={} if by is None else {"created_by": by},
            result=task.entry.value("result"),
        )

    def _updated(self, task: _Task) -> int:
        newest = max((cell.stamp.time for cell in task.entry.cells.values()), default=task.entry.made.time)
        return min(newest, self._tx.now)

    def _end_claim(self, stored: Stored, what: str) -> Stored:
        """End the claim of a task that is not to be worked on any more: its holder is fenced."""
        if stored.holder is None:
            return stored
        tx = self._tx
        leases.drop(tx, stored.record, TASK)
        note = f"{what} elsewhere"
        self._report.ended.append(stored.id)
        self._report.warnings.append(f"{stored.id} was held by {stored.holder}: {note}, so the claim has ended")
        tx.notify(f"claims ended, because their tasks were {what} elsewhere", f"{stored.id} of {stored.holder}")
        columns = {"status": "open", **NO_CLAIM}
        change(tx, stored, OP, columns, more={"forced": (False, True)}, note=note)
        return by_seq(tx, stored.seq)

    def _remember(self) -> None:
        """Note which version each line was compared with, and what is not as it says."""
        tx = self._tx
        stored = [by_seq(tx, task.seq) for task in self._tasks.values() if task.seq is not None]
        links = links_of(tx, stored)
        for (key, task), row in zip(self._tasks.items(), stored, strict=True):
            shown = seen(tx, row, links.get(row.id, {}), self._keys)
            odd = {
                field: value
                for field, value in shown.items()
                if not is_same(tx, field, value, task.entry.value(field), self._keys)
                or (field in ("parent", *LINKS) and value != task.entry.value(field))
            }
            if task.entry.value("created_at") is None:
                odd.pop("created_at")
            if not self._site.shares("assigned_to"):
                odd.pop("assigned_to", None)
            put(tx, key, row.seq, row.version, to_line(task.entry), odd)

    def _show_template(self, name: str, entry: Entry) -> None:
        content = entry.value("content")
        tx = self._tx
        self._report.templates.append(name)
        try:
            if content is None:
                delete_template(tx, name)
            else:
                set_template(tx, name, content["tree"], content["parameters"])
        except (*_REFUSALS, KeyError) as error:
            message = str(getattr(error, "message", error))
            self._report.warnings.append(f"the template {name} cannot be one here, its line is kept: {message}")
        version = 0 if content is None else newest_version(tx, TEMPLATE, "", name)
        put(tx, entry.key, None, version, to_line(entry), {})


# What a task can show later than its line says it, when another task has come or a claim has ended.
_COMES_BACK: Final = ("parent", *LINKS, "deferred_until", "deleted_with")
