"""Importing the tables of stashes, in our own format or that of the original project.

Records keep their ids, times and versions. A trail or a stash that changed only in the file is updated, with everything
that belongs to it; what changed on both sides is reported and left alone, whole, so the same lines change nothing the
second time. Of two lines with one id, which a merge of two files may leave, the newer one counts: by its version, or
for a task by its time, with a warning. Lines of unknown tables are bad lines. Crumbs go through the import of tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains.stashes.rows import ABANDONED, COMPLETED, SCOPED_TO, STASH
from holdfast.ids import is_uuid7
from holdfast.interchange import crumbs, jsonl, task_import
from holdfast.interchange.crumbs import TrailTasks
from holdfast.interchange.jsonl import CREATED, REFUSALS, UNCHANGED, UPDATED, Import, Place, Time
from holdfast.interchange.stash_export import TABLES, EntryLine, LinkLine, StashLine, TombstoneLine, TrailLine
from holdfast.interchange.stash_lines import bury, check_entry, compare_entry, put_scope, put_stash, same_entry
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag, check_name
from holdfast.types import ImportPart, ImportReport

L = TypeVar("L")
Read = tuple[Place, L]
_LEFT: Final = "its trail {} is left alone; skipped"


class _Diverged(Exception):
    """Trails that could be updated only in part."""

    def __init__(self, trails: set[str]) -> None:
        self.trails = trails


def import_(
    tx: Tx,
    tables: Mapping[str, Sequence[str]],
    skip_bad: bool,
    dry_run: bool,
    holder: str | None,
    part: ImportPart | None,
) -> ImportReport:
    """`stashes.import_`."""
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    if holder is not None:
        check_name(holder, "holder")
    _check(tables)
    expect = frozenset(id for id in jsonl.check_part(part, tables, dry_run) if not _is_here(tx, id))
    left: set[str] = set()
    while True:
        try:
            return jsonl.run(tx, dry_run, partial(_Import(tx, left, holder, part, expect).run, tables, skip_bad))
        except _Diverged as diverged:  # a trail is updated whole or left alone: once more, without these
            left |= diverged.trails


def _is_here(tx: Tx, id: str) -> bool:
    found = tx.one("SELECT 1 FROM tasks WHERE id = ? UNION ALL SELECT 1 FROM trails WHERE id = ?", (id, id))
    return found is not None


def _check(tables: Any) -> None:
    if not isinstance(tables, Mapping) or not all(isinstance(table, str) for table in tables):
        raise errors.Invalid(f"tables is a dict of lists of lines by name, not {type(tables).__name__}")
    for table, lines in tables.items():
        jsonl.check_lines(lines, f"tables[{table!r}]")


class _Import:
    """One attempt at an import; the trails of `left` are left alone. `expect` are ids that other parts bring."""

    def __init__(
        self, tx: Tx, left: set[str], holder: str | None, part: ImportPart | None, expect: frozenset[str]
    ) -> None:
        self._tx = tx
        self._holder = holder
        self._expect = expect
        self._found = Import(*TABLES, part=part)
        self._left = {*left}
        self._updated: dict[str, TrailLine] = {}
        self._diverged: set[str] = set()
        self._history: dict[str, list[Read[EntryLine]]] = {}
        self._scopes: dict[str, Read[LinkLine]] = {}

    def run(self, tables: Mapping[str, Sequence[str]], skip_bad: bool) -> ImportReport:
        """Import every table after those that it names. Raises Invalid or _Diverged."""
        tasks = self._read_crumbs(tables.get("crumbs", ()))
        trails = self._read(tables, TrailLine, "trails", "trail_id")
        links = self._read(tables, LinkLine, "links", "link_id")
        entries = self._read(tables, EntryLine, "stash_history", "history_id", "stash_id")
        stashes = self._read(tables, StashLine, "stashes", "stash_id")
        gone = self._read(tables, TombstoneLine, "tombstones", "id")
        for table in sorted(set(tables) - set(TABLES)):
            for number, text in self._found.numbered(table, tables[table]):
                if not isinstance(text, str) or text.strip():
                    self._found.refuse(Place(table, number, None), "unknown table")
        members = TrailTasks(self._tx, [raw for _, raw in tasks], [link for _, link in links])
        self._choose_trails(trails, members)
        changed = self._put_crumbs(tasks, members, {line.trail_id: line for _, line in trails})
        for place, trail in trails:
            self._found.put(place, crumbs.put_trail, self._tx, trail, trail.trail_id in self._updated)
        others = self._take_scopes(links)
        self._bury(gone, "stashes")
        self._move_stashes({line.id for _, line in gone})
        self._bury(gone, "links")
        for place, entry in entries:
            self._history.setdefault(entry.stash_id, []).append((place, entry))
        for place, stash in stashes:
            self._put_stash(place, stash)
        self._compare_scopes()
        self._put_links(others, changed)
        for place, entry in (each for history in self._history.values() for each in history):
            self._found.put(place, compare_entry, self._tx, entry)
        self._bury(gone, "trails")
        for id, line in self._updated.items():
            if members.ending(members.of(id, line)) or not self._is_whole(id):
                self._diverged.add(id)
        if self._diverged:
            raise _Diverged(self._diverged)
        self._found.check(skip_bad)
        return self._found.report

    # --- reading -----------------------------------------------------------------------------------------------------

    def _read_crumbs(self, lines: Sequence[str]) -> list[Read[dict[str, Any]]]:
        """The fields of every task; of two lines about one task, those of the newer."""
        kept: dict[int, Read[dict[str, Any]]] = {}
        newest: dict[str, int] = {}

        def take(place: Place, raw: dict[str, Any]) -> None:
            raw = crumbs.task_fields(raw)
            first = kept.get(newest.get(str(place.id), 0))
            if first is not None:
                if first[1] == raw:
                    return
                before, now = _updated_at(first[1]), _updated_at(raw)
                if before is not None and now is not None and before != now:
                    older, newer = (first[0], place) if before < now else (place, first[0])
                    self._found.warn(older, f"line {newer.line} has the same task at a later time; skipped")
                    kept.pop(older.line, None)
                    if older is place:
                        return
            kept[place.line] = place, raw
            if place.id is not None:
                newest[place.id] = place.line

        self._found.read("crumbs", lines, ("crumb_id", "id"), take)
        return list(kept.values())

    def _read(self, tables: Mapping[str, Sequence[str]], kind: type[L], table: str, *ids: str) -> list[Read[L]]:
        """The lines of a table that are well-formed; the first of `ids` is their own."""
        kept: dict[str, Read[L]] = {}

        def take(place: Place, raw: dict[str, Any]) -> None:
            _check_ids(raw, ids)
            line, id = msgspec.convert(raw, kind), str(place.id)
            if id in kept and not _is_newer(line, kept[id][1]):
                if line != kept[id][1] and not _is_newer(kept[id][1], line):
                    raise errors.Invalid(f"line {kept[id][0].line} has the same {ids[0]}, and neither is newer")
                return
            kept[id] = place, line
            unknown = sorted(raw.keys() - set(kind.__struct_fields__))  # type: ignore[attr-defined]
            if unknown:
                self._found.warn(place, f"unknown fields, left out: {', '.join(unknown)}")

        self._found.read(table, tables.get(table, ()), ids[:1], take)
        return list(kept.values())

    # --- trails with what belongs to them ----------------------------------------------------------------------------

    def _choose_trails(self, trails: list[Read[TrailLine]], members: TrailTasks) -> None:
        """Choose the trails to update; the others that differ are left alone, also those with a bad line."""
        self._left |= {problem.id for problem in self._found.bad if problem.file == "trails.jsonl" and problem.id}
        for _, line in trails:
            id, row = line.trail_id, crumbs.trail_here(self._tx, line.trail_id)
            try:
                wanted = crumbs.trail_row(line)
            except REFUSALS:  # reported when it is put
                self._left.add(id)
                continue
            if row is None or row == wanted:
                continue
            if id not in self._left and crumbs.can_follow(row, wanted) and self._can_end(id, line, members):
                self._updated[id] = line
            else:
                self._left.add(id)

    def _can_end(self, id: str, line: TrailLine, members: TrailTasks) -> bool:
        """Whether a trail that is completed in the file has no tasks here that the file does not have."""
        rows = self._tx.all("SELECT source FROM links WHERE kind = 'belongs_to' AND target = ?", (id,))
        return line.state != COMPLETED or all(members.known(task) for (task,) in rows)

    def _is_whole(self, id: str) -> bool:
        """Whether what belongs to an updated trail was deleted or restored with it."""
        trail = crumbs.trail_here(self._tx, id)
        if trail is None or trail[2] != ABANDONED:
            return not self._tx.one("SELECT 1 FROM stashes WHERE trail = ? AND deleted IS NOT NULL", (id,))
        return not self._tx.one(
            "SELECT 1 FROM stashes WHERE trail = ? AND deleted IS NULL UNION ALL"
            " SELECT 1 FROM links k JOIN tasks t ON t.id = k.source"
            " WHERE k.kind = 'belongs_to' AND k.target = ? AND t.deleted IS NULL",
            (id, id),
        )

    def _put_crumbs(
        self, tasks: list[Read[dict[str, Any]]], members: TrailTasks, lines: Mapping[str, TrailLine]
    ) -> set[str]:
        """Import tasks; returns the ids of those that were created or changed."""
        waits = {task: id for id in self._left for task in members.ending(members.of(id, lines.get(id)))}
        ending = {task: id for id, line in self._updated.items() for task in members.ending(members.of(id, line))}
        work = task_import.TaskImport(
            self._tx, self._found, follow=members.only_ending(ending.keys() - waits.keys()), expect=self._expect
        )
        for place, raw in tasks:
            if place.id in waits:
                self._found.conflict(place, _LEFT.format(waits[place.id]))
            else:
                self._found.attempt(place, work.read, place, raw)
        work.decide()
        work.write()
        report = self._found.report
        out = {problem.id for problem in (*self._found.bad, *report.skipped) if problem.file == "crumbs.jsonl"}
        self._diverged |= {trail for task, trail in ending.items() if task in out}
        return {*report.created["crumbs"], *report.updated["crumbs"]}

    def _put_links(self, links: list[Read[LinkLine]], changed: set[str]) -> None:
        created: set[str] = set()
        for place, link in links:
            outcome = self._found.put(
                place, crumbs.put_link, self._tx, link, changed, created, self._left, self._expect
            )
            if outcome == CREATED:
                created.add(link.link_id)

    # --- stashes with their scopes and their history -----------------------------------------------------------------

    def _take_scopes(self, links: list[Read[LinkLine]]) -> list[Read[LinkLine]]:
        """Keep the links that tell the scopes of stashes; returns the others."""
        others = []
        for place, link in links:
            if link.link_type != SCOPED_TO:
                others.append((place, link))
            elif link.from_id in self._scopes:
                self._found.refuse(place, f"line {self._scopes[link.from_id][0].line} scopes the same stash")
            else:
                self._scopes[link.from_id] = place, link
        return others

    def _bury(self, gone: list[Read[TombstoneLine]], table: str) -> None:
        """Remove what is gone from a table in the file: stashes before others take their names, trails last."""
        for place, line in gone:
            if line.table == table:
                self._found.put(place, bury, self._tx, line, self._left)

    def _move_stashes(self, gone: Set[str]) -> None:
        """Put stashes that are here into their new scopes, before others take their names."""
        for id, (place, link) in [*self._scopes.items()]:
            old = self._tx.one("SELECT id FROM links WHERE kind = ? AND source = ?", (SCOPED_TO, id))
            if self._tx.one("SELECT 1 FROM stashes WHERE id = ?", (id,)) and (old is None or old[0] in gone):
                self._found.put(place, put_scope, self._tx, link, gone, self._expect)
                del self._scopes[id]

    def _compare_scopes(self) -> None:
        """Compare the scopes that are left: of stashes that are not in the import, or were here before."""
        for place, link in self._scopes.values():
            outcome = self._found.put(place, put_scope, self._tx, link, frozenset())
            if outcome != UNCHANGED and link.to_id in self._updated:
                self._diverged.add(link.to_id)

    def _put_stash(self, place: Place, line: StashLine) -> None:
        """Put a stash with its scope and history; if it cannot be put, neither can they."""
        history = self._history_of(line)
        _, link = self._scopes.get(line.stash_id, (None, None))
        before = newest_version(self._tx, STASH, "", line.stash_id)
        if not before and link is not None and self._has_to_wait(line, link):
            for each in (place, *self._take_parts(line.stash_id)):
                self._found.conflict(each, _LEFT.format(link.to_id))
            return
        entries = [entry for _, entry in history]
        outcome = self._found.put(place, put_stash, self._tx, line, link, entries, self._holder, self._expect)
        if outcome is None:
            for each in self._take_parts(line.stash_id):
                self._found.refuse(each, f"its stash {line.stash_id} cannot be imported")
        elif outcome == CREATED:
            for each in self._take_parts(line.stash_id):
                self._found.count(CREATED, each)
            if not history:
                self._found.warn(place, f"it has no history: an entry of version {line.version} was added")
        elif outcome == UPDATED:  # the older entries are compared later
            self._history[line.stash_id] = [each for each in history if each[1].version <= before]
            for each, entry in history:
                if entry.version > before:
                    self._found.count(CREATED, each)

    def _has_to_wait(self, line: StashLine, link: LinkLine) -> bool:
        """Whether a stash would be deleted in a trail that lives here and is left alone, or live in a deleted one."""
        trail = crumbs.trail_here(self._tx, link.to_id) if link.to_id in self._left else None
        return trail is not None and (line.deleted_at is not None) != (trail[2] == ABANDONED)

    def _take_parts(self, id: str) -> list[Place]:
        """The places of the history and scope of a stash, which need no comparing then."""
        scope = self._scopes.pop(id, None)
        return [*(place for place, _ in self._history.pop(id, ())), *([] if scope is None else [scope[0]])]

    def _history_of(self, line: StashLine) -> list[Read[EntryLine]]:
        """The entries of a stash by version; what does not fit is refused."""
        kept: dict[int, Read[EntryLine]] = {}

        def take(place: Place, entry: EntryLine) -> None:
            if entry.version > line.version:
                raise errors.Invalid(f"its stash is at version {line.version}")
            first = kept.get(entry.version)
            if first is None:
                kept[entry.version] = place, check_entry(line.stash_type, entry)
            elif not same_entry(first[1], entry):
                raise errors.Invalid(f"line {first[0].line} is version {entry.version} of the same stash")

        for place, entry in sorted(self._history.get(line.stash_id, ()), key=lambda each: (each[1].version, each[0])):
            self._found.attempt(place, take, place, entry)
        self._history[line.stash_id] = list(kept.values())
        return list(kept.values())


def _is_newer(one: Any, other: Any) -> bool:
    """Whether a line has a later state of a record than another."""
    match one, other:
        case TrailLine(), TrailLine():
            return crumbs.can_follow(crumbs.trail_row(other), crumbs.trail_row(one))
        case StashLine(), StashLine():  # its history tells whether it goes on from the other
            return one.version > other.version
    return False


def _updated_at(raw: dict[str, Any]) -> datetime | None:
    try:
        return msgspec.convert(raw.get("updated_at"), Time | None)
    except msgspec.ValidationError:
        return None  # reported by the import of tasks


def _check_ids(raw: dict[str, Any], names: Sequence[str]) -> None:
    ends = zip(("from_id", "to_id"), crumbs.ENDS.get(str(raw.get("link_type")), ()), strict=False)
    names = [*names, *(end for end, table in ends if table != "tasks")]  # a task may have any id
    wrong = [f"{name} {raw.get(name)!r}" for name in names if not is_uuid7(raw.get(name))]
    if wrong:
        raise errors.InvalidID(f"no UUID v7: {', '.join(wrong)}")
