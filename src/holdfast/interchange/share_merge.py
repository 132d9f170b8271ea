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
from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks.changes import remove
from holdfast.domains.tasks.creation import Placed, insert_all
from holdfast.domains.tasks.details import set_deferral
from holdfast.domains.tasks.rows import COLUMNS, NO_CLAIM, TASK, Stored, by_seq, change, require
from holdfast.domains.tasks.templates import TEMPLATE, delete_template, set_template
from holdfast.domains.tasks.tree import move
from holdfast.interchange import jsonl
from holdfast.interchange.share_ids import Keys, Names, edges_of, records_of
from holdfast.interchange.share_lines import (
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
from holdfast.interchange.share_records import Records, Work
from holdfast.interchange.share_state import (
    EVENT,
    WORKSPACE,
    Site,
    capture,
    links_of,
    put,
    require_site,
    save,
    seen,
)
from holdfast.interchange.task_export import OP
from holdfast.interchange.task_merge import merge
from holdfast.kernel import leases
from holdfast.kernel.activity import EVERY
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag
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
    if changed or report.renamed:
        tx.emit(EVENT, WORKSPACE, "read", data=msgspec.msgpack.encode({"lines": len(changed)}))
    return report


class _Reading:
    """One reading of lines: `join` them with ours, then `show` what that makes."""

    def __init__(self, tx: Tx, site: Site, report: SharedReport) -> None:
        self._tx = tx
        self._report = report
        self._keys = Keys(tx)
        self._records = Records(tx, site, self._keys)
        self._tasks: dict[str, Work] = {}
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
                self._tasks[key] = Work(entry, {}, changed=True)
        for key, _, line, odd in records_of(self._tx, "odd IS NOT NULL"):
            if key in self._tasks:
                self._tasks[key].odd = odd
            else:
                self._tasks[key] = Work(trusted(line), odd, changed=False)
        if not self._tasks:
            return
        if len(self._tasks) > 100:
            self._keys.load()
        self._load(self._tasks)
        self._detach_gone()
        self._create()
        for task in self._tasks.values():
            self._records.want(task)
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
        gone = [key for key, task in self._tasks.items() if task.entry.gone]
        for key in gone:
            task = self._tasks.pop(key)
            put(self._tx, key, None, 0, to_line(task.entry), {})
            if task.stored is None:
                continue
            self._keys.forget()
            for below in self._live_below(task.stored.seq):
                self._take(below)
            if self._end_claim(task.stored, "purged").deleted is None:
                self._gone.append(task.stored.seq)
        for id in dict.fromkeys(map(id_of, gone)):
            self.names.settle_others(id)  # a purged task keeps its id, if it is the oldest

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
                record = self._records.of(task, self.names.of[key], task.entry.value)
            except _REFUSALS as error:
                self._set_aside(key, task, error)
                continue
            self.names.free(record.id)
            drafts.append(Placed(record.draft, None, record.id, record.created, record.updated))
            made.append(key)
        if not drafts:
            return
        for key, stored in zip(made, insert_all(tx, drafts, self._records.config), strict=True):
            new[key].seq, new[key].stored = stored.seq, stored
            self._new.add(stored.seq)
            self._keys.add(key, stored.id)
            put(tx, key, stored.seq, 0, to_line(new[key].entry), {})
            if new[key].entry.value("deleted_at") is None:  # else it is deleted in the same transaction
                self._report.created.append(stored.id)
            new[key].shown = seen(tx, stored, {}, self._keys)

    def _set_aside(self, key: str, task: Work, error: Exception) -> None:
        """Keep a line that can make no task here: it travels on."""
        message = str(getattr(error, "message", error))
        if task.odd.get("") != message:
            self._report.warnings.append(f"{id_of(key)} cannot be a task here, its line is kept: {message}")
        put(self._tx, key, None, 0, to_line(task.entry), {"": message})
        del self._tasks[key]

    # --- what each is to be ------------------------------------------------------------------------------------------

    def _take(self, key: str | None) -> None:
        """Look at a task too that no line changed."""
        if key is None or key in self._tasks:
            return
        ((_, _, line, odd),) = records_of(self._tx, "key = ?", (key,))
        self._tasks[key] = Work(trusted(line), odd, changed=False)
        self._load((key,))
        self._records.want(self._tasks[key])

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

    def _say(self, task: Work, field: str, why: str) -> None:
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
            move(tx, stored, parent, OP, None if stored.imported is None else self._records.updated(task))

    def _become(self, task: Work) -> None:
        """Make a task what is wanted, or keep it as it is if it cannot be that."""
        assert task.seq is not None
        stored, wanted = by_seq(self._tx, task.seq), task.wanted
        fields = self._records.differing(task)
        notes = self._records.lacking_notes(task)
        is_new = task.seq in self._new
        if not fields and not notes and not is_new:
            return
        try:
            record = self._records.of(task, stored.id, wanted.__getitem__)
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

    def _end_claim(self, stored: Stored, what: str) -> Stored:
        """End the claim of a task that is not to be worked on any more: its holder is fenced."""
        if stored.holder is None:
            return stored
        tx = self._tx
        leases.drop(tx, stored.record, TASK)
        what = {"pending_merge": "sent to review"}.get(what, what)
        note = f"{what} elsewhere"
        self._report.ended.append(stored.id)
        self._report.warnings.append(f"{stored.id} was held by {stored.holder}: {note}, so the claim has ended")
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
            put(tx, key, row.seq, row.version, to_line(task.entry), self._records.odd(task.entry, shown))

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
