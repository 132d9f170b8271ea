"""Importing the tables that `exporting` writes, or those of the original project: one transaction, all or nothing.

Records keep their ids, times and versions. What is here already and the same is left as it is; what differs is reported
and left alone, so the same lines change nothing the second time. Every line that cannot be imported is named with its
file and number, also those of tables that have no place here. Crumbs go through the import of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeVar

import msgspec

from holdfast import errors
from holdfast.domains.stashes import putting
from holdfast.domains.stashes.crumbs import read_crumb
from holdfast.domains.stashes.exporting import TABLES, EntryLine, LinkLine, StashLine, TrailLine
from holdfast.domains.stashes.rows import SCOPED_TO
from holdfast.domains.tasks import importing as tasks
from holdfast.kernel.ids import is_uuid7
from holdfast.kernel.names import check_flag
from holdfast.kernel.tx import Tx
from holdfast.types.stashes import TransferReport
from holdfast.types.tasks import ImportProblem

MAX_LINES: Final = 50_000  # of all tables; of crumbs as many as an import of tasks takes
L = TypeVar("L", TrailLine, LinkLine, StashLine, EntryLine)
_REFUSALS: Final = (
    *(errors.Invalid, errors.NotFound, errors.DuplicateName, errors.Exists, errors.TooLarge),
    *(msgspec.ValidationError, RecursionError),
)


class _Undone(Exception):
    """What was tried is taken back."""


def import_(
    tx: Tx, tables: Mapping[str, Sequence[str]], skip_bad: bool = False, dry_run: bool = False
) -> TransferReport:
    """Take in tables as JSON lines, by name, with their ids, times, versions and history.

    A line that cannot be imported refuses all (Invalid, with `problems`); with `skip_bad` it is left out, and what
    needs it. What is here already and differs is left alone. A held lock is held on, with a token of this workspace.
    """
    check_flag(skip_bad=skip_bad, dry_run=dry_run)
    _check(tables)
    attempt = _Import(tx)
    try:
        with tx.savepoint():
            attempt.run(tables)
            if dry_run or (attempt.bad and not skip_bad):
                raise _Undone
    except _Undone:
        if attempt.bad and not skip_bad:
            raise errors.Invalid(
                f"{len(attempt.bad)} lines cannot be imported; {attempt.bad[0]}",
                hint="put them right, or pass skip_bad=True to leave them out",
                problems=attempt.bad,
            ) from None
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
    """One import: what it said of each line."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.bad: list[ImportProblem] = []
        self.report = TransferReport({}, {}, {}, [], self.bad, [])
        self._history: dict[str, list[tuple[int, EntryLine]]] = {}
        self._scopes: dict[str, tuple[int, LinkLine]] = {}  # of each stash

    def run(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Every table after those that it names."""
        for table in sorted(set(tables) - set(TABLES)):
            for number, line in enumerate(tables[table], 1):
                if not isinstance(line, str) or line.strip():
                    self._refuse(table, number, None, "a table that has no place here")
        made = self._crumbs(tables.get("crumbs", ()))
        for number, trail in self._read(tables, "trails", TrailLine, "trail_id"):
            self._put("trails", number, trail.trail_id, partial(putting.put_trail, self._tx, trail))
        others = []
        for number, link in self._read(tables, "links", LinkLine, "link_id"):
            if link.link_type != SCOPED_TO:
                others.append((number, link))
            elif link.from_id in self._scopes:
                self._refuse(
                    "links", number, link.link_id, f"line {self._scopes[link.from_id][0]} scopes the same stash"
                )
            else:
                self._scopes[link.from_id] = number, link
        for number, entry in self._read(tables, "stash_history", EntryLine, "history_id", "stash_id"):
            self._history.setdefault(entry.stash_id, []).append((number, entry))
        for number, stash in self._read(tables, "stashes", StashLine, "stash_id"):
            self._stash(number, stash)
        for number, link in self._scopes.values():  # of stashes that were no part of this
            self._put("links", number, link.link_id, partial(putting.see_scope, self._tx, link))
        for number, link in others:
            self._put("links", number, link.link_id, partial(putting.put_link, self._tx, link, made))
        for entries in self._history.values():
            for number, entry in entries:
                self._put("stash_history", number, entry.history_id, partial(putting.see_entry, self._tx, entry))
        order: dict[str, int] = {table: place for place, table in enumerate(TABLES)}
        for problems in (self.bad, self.report.conflicts, self.report.warnings):
            problems.sort(key=lambda problem: (order.get(problem.file[:-6], len(order)), problem.file, problem.line))

    # --- what is said of a line --------------------------------------------------------------------------------------

    def _tell(self, said: list[ImportProblem], table: str, line: int, id: str | None, message: str) -> None:
        severity: Literal["error", "warning"] = "error" if said is self.bad else "warning"
        said.append(ImportProblem(line, id, severity, message, f"{table}.jsonl"))

    def _refuse(self, table: str, line: int, id: str | None, message: str) -> None:
        self._tell(self.bad, table, line, id, message)

    def _put(self, table: str, line: int, id: str, put: Callable[[], str]) -> str | None:
        """Let a record be put, and note what became of it; None if it was refused."""
        try:
            outcome = put()
        except _REFUSALS as error:
            self._refuse(table, line, id, getattr(error, "message", str(error)))
            return None
        if outcome in (putting.CREATED, putting.UNCHANGED):
            ids: dict[str, list[str]] = getattr(self.report, outcome)
            ids.setdefault(table, []).append(id)
        else:
            self._tell(self.report.conflicts, table, line, id, outcome)
        return outcome

    def _read(self, tables: Mapping[str, Sequence[str]], table: str, kind: type[L], *ids: str) -> list[tuple[int, L]]:
        """The lines of a table that are well-formed by themselves, with their numbers."""
        found: dict[str, tuple[int, L]] = {}
        for number, text in enumerate(tables.get(table, ()), 1):
            id: str | None = None
            try:
                raw = tasks.parse(text)
                if raw is None:
                    continue
                id = raw[ids[0]] if isinstance(raw.get(ids[0]), str) else None
                _check_ids(raw, ids)
                line = msgspec.convert(raw, kind)
                if id in found:
                    raise errors.Invalid(f"line {found[id][0]} has the same {ids[0]}")
            except _REFUSALS as error:
                self._refuse(table, number, id, getattr(error, "message", str(error)))
                continue
            found[str(id)] = number, line
            left = sorted(raw.keys() - set(kind.__struct_fields__))
            if left:
                self._tell(self.report.warnings, table, number, id, f"no place for, left out: {', '.join(left)}")
        return list(found.values())

    # --- the tables that are more than one line at a time ------------------------------------------------------------

    def _crumbs(self, lines: Sequence[str]) -> set[str]:
        """Import tasks; answers the ids of those that are new."""
        texts = []
        for number, text in enumerate(lines, 1):
            try:
                texts.append(read_crumb(text))
            except errors.Invalid as error:
                self._refuse("crumbs", number, error.details.get("id"), error.message)
                texts.append("")
        done = tasks.take_in(self._tx, texts, frozenset())
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
        return set(done.created)

    def _stash(self, number: int, line: StashLine) -> None:
        """Put a stash with its scope and its history; if it cannot be put, neither can they."""
        history = self._history_of(line)
        at, link = self._scopes.get(line.stash_id, (0, None))
        entries = [entry for _, entry in history]
        outcome = self._put("stashes", number, line.stash_id, partial(putting.put_stash, self._tx, line, link, entries))
        if outcome not in (putting.CREATED, None):
            return  # it was here before: its scope and its history are looked at later
        rest = [("stash_history", where, entry.history_id) for where, entry in history]
        rest += [] if link is None else [("links", at, link.link_id)]
        for table, where, id in rest:
            if outcome is None:
                self._refuse(table, where, id, "its stash cannot be imported")
            else:
                self.report.created.setdefault(table, []).append(id)
        self._history.pop(line.stash_id, None)
        self._scopes.pop(line.stash_id, None)
        if outcome is not None and line.version not in {entry.version for entry in entries}:
            message = f"its history has no entry of version {line.version}: one was added"
            self._tell(self.report.warnings, "stashes", number, line.stash_id, message)

    def _history_of(self, line: StashLine) -> list[tuple[int, EntryLine]]:
        """The entries of a stash, by version; what does not fit is refused."""
        kept: dict[int, tuple[int, EntryLine]] = {}
        for number, entry in sorted(self._history.get(line.stash_id, ()), key=lambda each: (each[1].version, each[0])):
            if entry.version > line.version:
                self._refuse("stash_history", number, entry.history_id, f"its stash is at version {line.version}")
            elif entry.version in kept:
                message = f"line {kept[entry.version][0]} is version {entry.version} of the same stash"
                self._refuse("stash_history", number, entry.history_id, message)
            else:
                kept[entry.version] = number, entry
        if kept:
            self._history[line.stash_id] = list(kept.values())
        return list(kept.values())


def _check_ids(raw: dict[str, Any], names: Sequence[str]) -> None:
    ends = zip(("from_id", "to_id"), putting.ENDS.get(str(raw.get("link_type")), ()), strict=False)
    names = [*names, *(end for end, table in ends if table != "tasks")]  # a task may have any id
    wrong = [f"{name} {raw.get(name)!r}" for name in names if not is_uuid7(raw.get(name))]
    if wrong:
        raise errors.InvalidID(f"no UUID v7: {', '.join(wrong)}")
