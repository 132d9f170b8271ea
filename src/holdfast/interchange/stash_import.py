"""Importing the tables of stashes, ours or those of the original project: one transaction, all or nothing.

A merge of two files may leave a line in both its forms. Of a trail or a stash the newer one counts, as its version
tells, of a task the one that was changed last, with a warning; lines that are the same are one.

Records keep their ids, times and versions. A trail or a stash that has only gone on there is brought to where it is
there, with all that belongs to it; what was changed on both sides is told and left alone, whole, so the same lines
change nothing the second time. Every line that cannot be imported is named with its file and number, also those of
tables that have no place here. Crumbs go through the import of tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains.stashes.rows import ABANDONED, COMPLETED, SCOPED_TO, STASH
from holdfast.ids import is_uuid7
from holdfast.interchange import crumbs, task_import
from holdfast.interchange.crumbs import Families, read_crumb
from holdfast.interchange.stash_export import TABLES, EntryLine, LinkLine, StashLine, Time, TrailLine
from holdfast.interchange.stash_lines import checked_entry, put_stash, same_entry, see_entry, see_scope
from holdfast.interchange.task_import import parse
from holdfast.kernel.tx import Tx, newest_version
from holdfast.kernel.validate import check_flag, check_name
from holdfast.types.stashes import TransferReport
from holdfast.types.tasks import ImportProblem

L = TypeVar("L", TrailLine, LinkLine, StashLine, EntryLine)
Read = tuple[int, L]  # a line with its number
Told = Callable[[int, str | None, str], None]  # what is said of a line: its number, its id, why
REFUSALS: Final = (
    *(errors.Invalid, errors.NotFound, errors.DuplicateName, errors.Exists, errors.TooLarge),
    *(msgspec.ValidationError, RecursionError),
)


def read_tasks(lines: Sequence[str], refuse: Told, warn: Told) -> list[str]:
    """The lines of crumbs as lines of tasks, in their places; blank for what cannot be read, or counts no more."""
    texts: list[str] = []
    found: dict[str, tuple[int, datetime | None]] = {}  # of each task where its line is, and of when
    for number, text in enumerate(lines, 1):
        texts.append("")
        try:
            texts[-1] = read_crumb(text)
            id, updated = _moment_of(texts[-1])
        except errors.Invalid as error:
            refuse(number, error.details.get("id"), error.message)
            continue
        if id is None:
            continue
        first, before = found.setdefault(id, (number, updated))
        if first == number or updated is None or before is None:
            continue
        if texts[-1] == texts[first - 1]:
            texts[-1] = ""
        elif updated != before:
            older, newer = sorted((first, number), key=lambda each: updated if each == number else before)
            texts[older - 1] = ""
            found[id] = newer, max(updated, before)
            warn(older, id, f"line {newer} tells of the same task at a later time: this one is left out")
    return texts


def _moment_of(text: str) -> tuple[str | None, datetime | None]:
    """The id of the task that a line is about, and when it was changed last."""
    raw = parse(text) or {}
    id, updated = raw.get("id"), raw.get("updated_at")
    try:
        return (id if isinstance(id, str) else None), msgspec.convert(updated, Time | None)
    except msgspec.ValidationError:
        return None, None  # which the import of tasks tells


def read_table(lines: Sequence[str], kind: type[L], ids: Sequence[str], refuse: Told, warn: Told) -> list[Read[L]]:
    """The lines of a table that are well-formed by themselves, with their numbers; the first of `ids` is their own."""
    found: dict[str, Read[L]] = {}
    for number, text in enumerate(lines, 1):
        id: str | None = None
        try:
            raw = parse(text)
            if raw is None:
                continue
            id = raw[ids[0]] if isinstance(raw.get(ids[0]), str) else None
            _check_ids(raw, ids)
            line = msgspec.convert(raw, kind)
            if id in found and not _newer(line, found[str(id)][1]):
                if line != found[str(id)][1] and not _newer(found[str(id)][1], line):
                    raise errors.Invalid(f"line {found[str(id)][0]} has the same {ids[0]}, and neither is the newer")
                continue
        except REFUSALS as error:
            refuse(number, id, getattr(error, "message", str(error)))
            continue
        found[str(id)] = number, line
        left = sorted(raw.keys() - set(kind.__struct_fields__))
        if left:
            warn(number, id, f"no place for, left out: {', '.join(left)}")
    return list(found.values())


def _newer(one: Any, other: Any) -> bool:
    """Whether a line tells what became of a record after another did."""
    match one, other:
        case TrailLine(), TrailLine():
            return crumbs.can_follow(crumbs.trail_row(other), crumbs.trail_row(one))
        case StashLine(), StashLine():  # that the one comes from the other its history tells
            return one.version > other.version
    return False


def _check_ids(raw: dict[str, Any], names: Sequence[str]) -> None:
    ends = zip(("from_id", "to_id"), crumbs.ENDS.get(str(raw.get("link_type")), ()), strict=False)
    names = [*names, *(end for end, table in ends if table != "tasks")]  # a task may have any id
    wrong = [f"{name} {raw.get(name)!r}" for name in names if not is_uuid7(raw.get(name))]
    if wrong:
        raise errors.InvalidID(f"no UUID v7: {', '.join(wrong)}")


MAX_LINES: Final = 50_000  # of all tables; of crumbs as many as an import of tasks takes
_NO_ID: Final = re.compile(r"[^A-Za-z0-9._-]+")
LEFT: Final = "its trail {} is left alone, and so is this"


def import_(
    tx: Tx,
    tables: Mapping[str, Sequence[str]],
    skip_bad: bool = False,
    dry_run: bool = False,
    holder: str | None = None,
) -> TransferReport:
    """`stashes.import_`."""
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    if holder is not None:
        check_name(holder, "holder")
    _check(tables)
    left: set[str] = set()
    while True:
        attempt = _Import(tx, left, holder)
        with tx.dry_run() as trial:
            attempt.run(tables)
            refused = bool(attempt.bad) and not skip_bad
            if not (attempt.diverged or dry_run or refused):
                trial.keep()
        if not attempt.diverged:
            break
        left |= attempt.diverged  # a trail that cannot be followed whole is left alone: once more, without it
    if refused:
        raise errors.Invalid(
            f"{len(attempt.bad)} lines cannot be imported; {attempt.bad[0]}",
            hint="put them right, or pass skip_bad=True to leave them out",
            problems=attempt.bad,
        )
    return msgspec.structs.replace(attempt.report, dry_run=dry_run)


def _check(tables: Any) -> None:
    if not isinstance(tables, Mapping):
        raise errors.Invalid(f"tables is a dict of lists of lines, not {type(tables).__name__}")
    count = 0
    for table, lines in tables.items():
        if not isinstance(table, str) or isinstance(lines, str) or not isinstance(lines, Sequence):
            raise errors.Invalid(f"the lines of {table!r} are no list of str", hint="text.splitlines() makes one")
        count += len(lines)
    if count > MAX_LINES:
        raise errors.TooLarge(
            f"{count} lines in one call; {MAX_LINES} is the most",
            hint="import them in parts: crumbs and trails first, each stash with its links and history",
            limit=MAX_LINES,
        )


class _Import:
    """One import, that leaves some trails alone: what it said of each line."""

    def __init__(self, tx: Tx, left: set[str], holder: str | None) -> None:
        self._tx = tx
        self._holder = holder
        self._left = {*left}
        self._moved: dict[str, TrailLine] = {}
        self.diverged: set[str] = set()  # trails that could be followed only in part
        self.bad: list[ImportProblem] = []
        self.report = TransferReport({}, {}, {}, [], self.bad, [])
        self._consequences: set[int] = set()  # of other bad lines, by identity
        self._history: dict[str, list[Read[EntryLine]]] = {}
        self._scopes: dict[str, Read[LinkLine]] = {}  # of each stash

    def run(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Every table after those that it names."""
        for table in sorted(set(tables) - set(TABLES)):
            for number, text in enumerate(tables[table], 1):
                if not isinstance(text, str) or text.strip():
                    self._refuse(table, number, None, "a table that has no place here")
        warn = partial(self._tell, self.report.warnings, "crumbs")
        texts = read_tasks(tables.get("crumbs", ()), partial(self._refuse, "crumbs"), warn)
        trails = self._read(tables, "trails", TrailLine, "trail_id")
        links = self._read(tables, "links", LinkLine, "link_id")
        members = [link for _, link in links if link.link_type == "belongs_to"]
        families = Families(self._tx, texts, members)
        self._judge(trails, families)
        changed = self._crumbs(texts, families, dict((line.trail_id, line) for _, line in trails))
        for number, trail in trails:
            follow = trail.trail_id in self._moved
            self._put("trails", number, trail.trail_id, partial(crumbs.put_trail, self._tx, trail, follow))
        others = self._share_out(links)
        for number, entry in self._read(tables, "stash_history", EntryLine, "history_id", "stash_id"):
            self._history.setdefault(entry.stash_id, []).append((number, entry))
        for number, stash in self._read(tables, "stashes", StashLine, "stash_id"):
            self._stash(number, stash)
        for number, link in self._scopes.values():  # of stashes that were no part of this, or here before
            outcome = self._put("links", number, link.link_id, partial(see_scope, self._tx, link))
            if outcome != crumbs.UNCHANGED and link.to_id in self._moved:
                self.diverged.add(link.to_id)
        fresh: set[str] = set()
        for number, link in others:
            put = partial(crumbs.put_link, self._tx, link, changed, fresh, self._left)
            if self._put("links", number, link.link_id, put) == crumbs.CREATED:
                fresh.add(link.link_id)
        for entries in self._history.values():
            for number, entry in entries:
                self._put("stash_history", number, entry.history_id, partial(see_entry, self._tx, entry))
        for id, line in self._moved.items():
            if families.ending(families.of(id, line)) or not self._whole(id):
                self.diverged.add(id)
        self._sort()

    # --- what is said of a line --------------------------------------------------------------------------------------

    def _tell(self, said: list[ImportProblem], table: str, line: int, id: str | None, message: str) -> None:
        severity: Literal["error", "warning"] = "error" if said is self.bad else "warning"
        said.append(ImportProblem(line, id, severity, message, f"{table}.jsonl"))

    def _refuse(self, table: str, line: int, id: str | None, message: str) -> None:
        self._tell(self.bad, table, line, id, message)

    def _read(self, tables: Mapping[str, Sequence[str]], table: str, kind: type[Any], *ids: str) -> list[Read[Any]]:
        warn = partial(self._tell, self.report.warnings, table)
        return read_table(tables.get(table, ()), kind, ids, partial(self._refuse, table), warn)

    def _put(self, table: str, line: int, id: str, put: Callable[[], str]) -> str | None:
        """Let a record be put, and note what became of it; None if it was refused."""
        try:
            outcome = put()
        except REFUSALS as error:
            self._refuse(table, line, id, getattr(error, "message", str(error)))
            return None
        if outcome in (crumbs.CREATED, crumbs.UPDATED, crumbs.UNCHANGED):
            self._count(outcome, table, id)
        else:
            self._tell(self.report.conflicts, table, line, id, outcome)
        return outcome

    def _count(self, outcome: str, table: str, id: str) -> None:
        ids: dict[str, list[str]] = getattr(self.report, outcome)
        ids.setdefault(table, []).append(id)

    def _sort(self) -> None:
        """By table and line; of what is wrong, causes before what follows from them."""
        order: dict[str, int] = {table: place for place, table in enumerate(TABLES)}
        causes = {problem.id for problem in self.bad if id(problem) not in self._consequences}

        def place(problem: ImportProblem) -> tuple[bool, int, str, int]:
            named = {*_NO_ID.split(problem.message)} - {problem.id}
            follows = id(problem) in self._consequences or not causes.isdisjoint(named)
            return follows, order.get(problem.file[:-6], len(order)), problem.file, problem.line

        self.bad.sort(key=place)
        for problems in (self.report.conflicts, self.report.warnings):
            problems.sort(key=lambda problem: place(problem)[1:])

    # --- trails with what belongs to them ----------------------------------------------------------------------------

    def _judge(self, trails: list[Read[TrailLine]], families: Families) -> None:
        """Which trails are followed, and which are left alone: those that no steps lead to, and those told wrongly."""
        self._left |= {problem.id for problem in self.bad if problem.file == "trails.jsonl" and problem.id is not None}
        for _, line in trails:
            id, row = line.trail_id, crumbs.trail_here(self._tx, line.trail_id)
            try:
                wanted = crumbs.trail_row(line)
            except REFUSALS:  # told when it is put
                self._left.add(id)
                continue
            if row is None or row == wanted:
                continue
            if id not in self._left and crumbs.can_follow(row, wanted) and self._lets_go(id, line, families):
                self._moved[id] = line
            else:
                self._left.add(id)

    def _lets_go(self, id: str, line: TrailLine, families: Families) -> bool:
        """Whether a trail that is completed there has no tasks here that are not there."""
        rows = self._tx.all("SELECT source FROM links WHERE kind = 'belongs_to' AND target = ?", (id,))
        return line.state != COMPLETED or all(families.known(task) for (task,) in rows)

    def _whole(self, id: str) -> bool:
        """Whether a trail that was followed has with it what belongs to it."""
        trail = crumbs.trail_here(self._tx, id)
        if trail is None or trail[2] != ABANDONED:
            return not self._tx.one("SELECT 1 FROM stashes WHERE trail = ? AND deleted IS NOT NULL", (id,))
        return not self._tx.one(
            "SELECT 1 FROM stashes WHERE trail = ? AND deleted IS NULL UNION ALL"
            " SELECT 1 FROM links k JOIN tasks t ON t.id = k.source"
            " WHERE k.kind = 'belongs_to' AND k.target = ? AND t.deleted IS NULL",
            (id, id),
        )

    def _crumbs(self, texts: list[str], families: Families, lines: Mapping[str, TrailLine]) -> set[str]:
        """Import tasks; answers the ids of those that were made or changed."""
        waits = {task: id for id in self._left for task in families.ending(families.of(id, lines.get(id)))}
        ending = {task: id for id, line in self._moved.items() for task in families.ending(families.of(id, line))}
        for number, text in enumerate(texts, 1):
            found = families.id_of(text) if waits else None
            if found in waits:
                texts[number - 1] = ""
                self._tell(self.report.conflicts, "crumbs", number, found, LEFT.format(waits[str(found)]))
        done = task_import.take_in(self._tx, texts, families.followed(ending.keys() - waits.keys()))
        for name in ("created", "updated", "unchanged"):
            if ids := getattr(done, name):
                getattr(self.report, name)["crumbs"] = ids
        for said, problems in (
            (self.report.conflicts, done.conflicts),
            (self.report.warnings, done.warnings),
            (self.bad, done.skipped),
        ):
            for problem in problems:
                told = self.report.warnings if problem.severity == "warning" and said is self.bad else said
                told.append(msgspec.structs.replace(problem, file="crumbs.jsonl"))
        self.diverged |= {ending[problem.id] for problem in done.skipped if problem.id in ending}
        return {*done.created, *done.updated}

    # --- stashes with their scopes and their history -----------------------------------------------------------------

    def _share_out(self, links: list[Read[LinkLine]]) -> list[Read[LinkLine]]:
        """Keep the scopes of stashes for them; answers the other links."""
        others = []
        for number, link in links:
            if link.link_type != SCOPED_TO:
                others.append((number, link))
            elif link.from_id in self._scopes:
                first = self._scopes[link.from_id][0]
                self._refuse("links", number, link.link_id, f"line {first} scopes the same stash")
            else:
                self._scopes[link.from_id] = number, link
        return others

    def _stash(self, number: int, line: StashLine) -> None:
        """Put a stash with its scope and its history; if it cannot be put, neither can they."""
        history = self._history_of(line)
        _, link = self._scopes.get(line.stash_id, (0, None))
        entries = [entry for _, entry in history]
        before = newest_version(self._tx, STASH, "", line.stash_id)
        if not before and link is not None and self._waits(line, link):
            message = LEFT.format(link.to_id)
            self._tell(self.report.conflicts, "stashes", number, line.stash_id, message)
            for table, where, id in self._take(line.stash_id):
                self._tell(self.report.conflicts, table, where, id, message)
            return
        put = partial(put_stash, self._tx, line, link, entries, self._holder)
        outcome = self._put("stashes", number, line.stash_id, put)
        if outcome is None:
            for table, where, id in self._take(line.stash_id):
                self._refuse(table, where, id, "its stash cannot be imported")
                self._consequences.add(_identity(self.bad[-1]))
        elif outcome == crumbs.CREATED:
            for table, _, id in self._take(line.stash_id):
                self._count(outcome, table, id)
            if not entries:
                message = f"it has no history: an entry of version {line.version} was added"
                self._tell(self.report.warnings, "stashes", number, line.stash_id, message)
        elif outcome == crumbs.UPDATED:  # the rest of what it has was here before, and is looked at later
            self._history[line.stash_id] = [each for each in history if each[1].version <= before]
            for _, entry in history:
                if entry.version > before:
                    self._count(crumbs.CREATED, "stash_history", entry.history_id)

    def _waits(self, line: StashLine, link: LinkLine) -> bool:
        """Whether a stash is new in a trail that is left alone, and has or has not gone with it, other than here."""
        trail = crumbs.trail_here(self._tx, link.to_id) if link.to_id in self._left else None
        return trail is not None and (line.deleted_at is not None) != (trail[2] == ABANDONED)

    def _take(self, id: str) -> list[tuple[str, int, str]]:
        """The lines that belong to a stash, which are then seen to."""
        rest = [("stash_history", where, entry.history_id) for where, entry in self._history.pop(id, ())]
        scope = self._scopes.pop(id, None)
        return rest if scope is None else [*rest, ("links", scope[0], scope[1].link_id)]

    def _history_of(self, line: StashLine) -> list[Read[EntryLine]]:
        """The entries of a stash, by version; what does not fit is refused."""
        kept: dict[int, Read[EntryLine]] = {}
        for number, entry in sorted(self._history.get(line.stash_id, ()), key=lambda each: (each[1].version, each[0])):
            first = kept.get(entry.version)
            try:
                if entry.version > line.version:
                    raise errors.Invalid(f"its stash is at version {line.version}")
                if first is not None and same_entry(first[1], entry):
                    continue
                if first is not None:
                    raise errors.Invalid(f"line {first[0]} is version {entry.version} of the same stash")
                kept[entry.version] = number, checked_entry(line.stash_type, entry)
            except REFUSALS as error:
                self._refuse("stash_history", number, entry.history_id, getattr(error, "message", str(error)))
        self._history[line.stash_id] = list(kept.values())
        return list(kept.values())


def _identity(problem: ImportProblem) -> int:
    return id(problem)
