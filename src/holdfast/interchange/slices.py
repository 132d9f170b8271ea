"""An import of files of any size, in slices that let other writers in.

    report = import_tasks(workspace, lines)
    report = import_stashes(workspace, {"stashes": lines, "stash_history": more})

The whole of it is rehearsed first, so a bad line refuses everything before anything is written. Then each slice is a
transaction of at most 500 lines. Guarantee: a record is written with everything that it names, or after it, so nothing
is ever visible in part; an import that was interrupted is completed by running it again. Lines that name each other in
a circle, or that are deleted together, are in one slice, however large. What cannot be sliced, such as a task that
leaves a tree which the file deletes, goes in one transaction.

Both use the operations of a workspace, so they work with any kind of it: a slice is small enough for a request to a
server. Called by the commands, and for the same purpose by the import of cycles; the operations themselves take their
lines through the same steps (`carry`), each a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast import errors
from holdfast.interchange.jsonl import file_of, refusal
from holdfast.kernel.validate import check_flag
from holdfast.operation import Do, Handlers, IsGuarded, Steps, drive
from holdfast.types import ImportPart, ImportProblem, ImportReport

R = TypeVar("R")
LINES: Final = 500
BYTES: Final = 3_500_000  # a server takes 4 MiB, and a call has more than its lines
_IDS: Final = {
    "tasks": ("id",),
    "crumbs": ("crumb_id", "id"),
    "trails": ("trail_id",),
    "links": ("link_id",),
    "stashes": ("stash_id",),
    "stash_history": ("history_id",),
    "tombstones": ("id",),
}
_NAMES: Final = ("parent_id", "depends_on", "discovered_from", "related", "to_id")  # fields that name other records
Tables = Mapping[str, Sequence[str]]


class Call(Protocol):
    """One transaction of an import."""

    def __call__(self, tables: Any, *, dry_run: bool, skip_bad: bool, part: ImportPart | None) -> Any:
        """The step that imports some lines of some tables, and is answered with the report."""
        ...


Reports = Generator[Any, ImportReport, R]


def import_tasks(
    workspace: Any, lines: Sequence[str], dry_run: bool = False, skip_bad: bool = False, **more: Any
) -> ImportReport:
    """`tasks.import_` in slices; `more` are its other arguments."""

    def call(tables: Tables, **how: Any) -> Any:
        return partial(workspace.tasks.import_, tables["tasks"], **how, **more, atomic=how["part"] is None)

    return drive(carry(call, {"tasks": lines}, dry_run, skip_bad), _CALLS)


def import_stashes(
    workspace: Any, tables: Tables, dry_run: bool = False, skip_bad: bool = False, **more: Any
) -> ImportReport:
    """`stashes.import_` in slices; `more` are its other arguments."""

    def call(tables: Tables, **how: Any) -> Any:
        return partial(workspace.stashes.import_, tables, **how, **more, atomic=how["part"] is None)

    return drive(carry(call, tables, dry_run, skip_bad), _CALLS)


_CALLS: Final[Handlers] = {partial: lambda call: call()}


def steps(
    run: Callable[..., ImportReport], what: Any, dry_run: bool, skip_bad: bool, part: ImportPart | None, atomic: bool
) -> Steps[ImportReport]:
    """The transactions of `tasks.import_` or `stashes.import_`; `run` imports lines, or tables, in one of them."""
    check_flag(atomic=atomic)

    def call(tables: Any, *, dry_run: bool, skip_bad: bool, part: ImportPart | None) -> Do:
        given = tables if isinstance(what, Mapping) else tables["tasks"]
        return Do(lambda tx: run(tx, given, skip_bad=skip_bad, dry_run=dry_run, part=part), keyed=True)

    tables = what if isinstance(what, Mapping) else {"tasks": what}
    count = sum(len(lines) for lines in tables.values() if isinstance(lines, list | tuple))
    whole = atomic or part is not None or count <= LINES or (yield IsGuarded())
    report: ImportReport
    if whole:
        report = yield call(tables, dry_run=dry_run, skip_bad=skip_bad, part=part)
    else:
        report = yield from carry(call, tables, dry_run, skip_bad)
    return report


def carry(call: Call, tables: Tables, dry_run: bool, skip_bad: bool) -> Reports[ImportReport]:
    """Rehearse an import, then do it slice by slice; the report is that of all of them, in the order of the files."""
    together: set[str] = set()
    while True:
        file = _File(tables, together)
        if len(file.slices) == 1:
            return (yield call(tables, dry_run=dry_run, skip_bad=skip_bad, part=None))
        rehearsal, problems = yield from _rehearse(call, file, skip_bad)
        if rehearsal is None:  # the problems may come from slicing: one transaction sees all
            return (yield from _whole(call, tables, dry_run, problems))
        left = {str(each.id) for each in rehearsal.conflicts if each.file == file_of("trails")} - together
        if not left:
            break
        together |= left  # a trail is updated with all that belongs to it
    return rehearsal if dry_run else (yield from _write(call, file, skip_bad))


def _rehearse(call: Call, file: _File, skip_bad: bool) -> Reports[tuple[ImportReport | None, list[ImportProblem]]]:
    """A dry run of every slice: its report, or the problems of those that were refused."""
    reports, problems = list[ImportReport](), list[ImportProblem]()
    out: set[str] = set()  # what the slices before do not bring
    for each in file.slices:
        part = ImportPart(each.numbers, sorted(each.expect - out))
        try:
            report = yield call(each.tables, dry_run=True, skip_bad=skip_bad, part=part)
            reports.append(report)
            out |= {str(problem.id) for problem in report.skipped}
        except errors.Invalid as refused:
            problems += problems_of(refused)
    return None if problems else file.merged(reports), problems


def problems_of(refused: errors.Invalid) -> list[ImportProblem]:
    """The problems of records for which an import was refused; another error is raised."""
    found = refused.details.get("problems")
    if not found:
        raise refused
    return msgspec.convert(msgspec.to_builtins(found), list[ImportProblem])


def _whole(call: Call, tables: Tables, dry_run: bool, problems: list[ImportProblem]) -> Reports[ImportReport]:
    """Import everything in one transaction; if no request can have it, raise Invalid with the problems of slices."""
    try:
        return (yield call(tables, dry_run=dry_run, skip_bad=False, part=None))
    except errors.TooLarge:
        raise refusal(problems) from None


def _write(call: Call, file: _File, skip_bad: bool) -> Reports[ImportReport]:
    reports = list[ImportReport]()
    for each in file.slices:
        try:
            report = yield call(each.tables, dry_run=False, skip_bad=skip_bad, part=ImportPart(each.numbers))
        except errors.HoldfastError as error:
            if reports:
                error.message = f"{len(reports)} of {len(file.slices)} slices were imported, then: {error.message}"
                error.hint = f"{error.hint}; import it again to go on" if error.hint else "import it again to go on"
            raise
        reports.append(report)
    return file.merged(reports)


# --- slices ----------------------------------------------------------------------------------------------------------


class Slice(NamedTuple):
    """Some lines of some tables, with their numbers; `expect` are the ids that they name and other slices have."""

    tables: dict[str, list[str]]
    numbers: dict[str, list[int]]
    expect: set[str]


class _Line(NamedTuple):
    """A line: the ids of records that it is a part of, and the ids of those that it names."""

    table: str
    at: int
    own: list[str]
    names: list[str]


class _File:
    """The lines of an import, sliced. `together` are trails that stay with all that belongs to them."""

    def __init__(self, tables: Tables, together: Set[str]) -> None:
        self._tables = tables
        self._order: dict[tuple[str, str], int] = {}
        lines = [*self._lines(together)]
        self._known = {id for _, id in self._order}
        self.slices = self._sliced(lines)

    def merged(self, reports: Iterable[ImportReport]) -> ImportReport:
        """One report of several, in the order of the files."""
        return merged(reports, lambda table, id: self._order.get((table, id), 0))

    def _lines(self, together: Set[str]) -> Iterator[_Line]:
        lines = [
            (table, at, _parsed(text))
            for table, texts in self._tables.items()
            for at, text in enumerate(texts)
            if not isinstance(text, str) or text.strip()
        ]
        lines.sort(key=lambda line: _rank(line[0], line[2]))
        abandoned = {raw["trail_id"] for _, _, raw in lines if raw.get("state") == "abandoned" and "trail_id" in raw}
        whole = together | {each for each in abandoned if isinstance(each, str)}
        scopes = {str(raw.get("from_id")): raw.get("to_id") for *_, raw in lines if raw.get("link_type") == "scoped_to"}
        for table, at, raw in lines:
            own, names = _ids_of(table, raw), _texts(raw, *_NAMES)
            if own:
                self._order.setdefault((table, own[0]), at)
            for dependency in raw.get("dependencies") or ():  # of beads
                names += _texts(dependency, "depends_on_id") if isinstance(dependency, Mapping) else ()
            if "deleted_at" in raw:
                own += _texts(raw, "deleted_with", "parent_id")
            if table == "trails" and own and own[0] in whole:
                own += _texts(raw, "tasks")
            if table == "stashes" and own and "name" in raw:  # one name after the other
                own.append(f"{scopes.get(own[0])}\n{raw['name']}")
            own += [name for name in names if name in whole]
            yield _Line(table, at, own or [f"{table}\n{at}"], names)

    def _sliced(self, lines: list[_Line]) -> list[Slice]:
        groups, found, size = _groups(lines), list[Slice](), 0
        taken: list[_Line] = []
        for group in groups:
            more = sum(len(msgspec.json.encode(self._tables[line.table][line.at])) + 16 for line in group)
            if taken and (len(taken) + len(group) > LINES or size + more > BYTES):
                found.append(self._slice(taken))
                taken, size = [], 0
            taken += group
            size += more
        return [*found, self._slice(taken)]

    def _slice(self, lines: list[_Line]) -> Slice:
        tables: dict[str, list[str]] = {table: [] for table in self._tables}
        numbers: dict[str, list[int]] = {table: [] for table in self._tables}
        for line in sorted(lines, key=lambda line: line.at):
            tables[line.table].append(self._tables[line.table][line.at])
            numbers[line.table].append(line.at + 1)
        named = {id for line in lines for id in line.names if id in self._known}
        return Slice(tables, numbers, named - {id for line in lines for id in line.own})


def _rank(table: str, raw: dict[str, Any]) -> int:
    """Tombstones come first, because they free names; those of trails last, because these have to be empty."""
    return 1 if table != "tombstones" else 2 if raw.get("table") == "trails" else 0


def _parsed(text: Any) -> dict[str, Any]:
    """The fields of a line; none if it cannot be read, which the import reports."""
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, TypeError, UnicodeEncodeError):
        return {}
    return {name: value for name, value in raw.items() if value is not None} if isinstance(raw, dict) else {}


def _ids_of(table: str, raw: dict[str, Any]) -> list[str]:
    """The id of a line, then those of the records that it belongs to."""
    ids = _texts(raw, *_IDS.get(table, ()))[:1]
    return ids + _texts(raw, *{"links": ("from_id",), "stash_history": ("stash_id",)}.get(table, ()))


def _texts(raw: Mapping[str, Any], *fields: str) -> list[str]:
    values = (raw.get(field) for field in fields)
    lists = (value if isinstance(value, list) else [value] for value in values)
    return [each for value in lists for each in value if isinstance(each, str)]


def _groups(lines: list[_Line]) -> list[list[_Line]]:
    """The lines that have to be together, each group after those that it names, otherwise in the order of the files."""
    leaders: dict[str, str] = {}

    def leader(name: str) -> str:
        while (above := leaders.setdefault(name, name)) != name:
            leaders[name] = leaders[above]
            name = above
        return name

    for line in lines:
        for other in line.own[1:]:
            leaders[leader(other)] = leader(line.own[0])
    members: dict[str, list[_Line]] = {}
    for line in lines:
        members.setdefault(leader(line.own[0]), []).append(line)
    names = {
        key: dict.fromkeys(found for line in group for name in line.names if (found := leader(name)) in members)
        for key, group in members.items()
    }
    return [[line for key in circle for line in members[key]] for circle in circles(names)]


def circles(names: Mapping[str, Iterable[str]]) -> Iterator[list[str]]:
    """The sets of nodes that reach each other, each after those that it names (Tarjan's algorithm)."""
    numbers: dict[str, int] = {}
    lows: dict[str, int] = {}
    stack: list[str] = []
    stacked: set[str] = set()
    for root in names:
        if root in numbers:
            continue
        path = [(root, iter(names[root]))]
        numbers[root] = lows[root] = len(numbers)
        stack.append(root)
        stacked.add(root)
        while path:
            node, ahead = path[-1]
            for other in ahead:
                if other not in numbers:
                    numbers[other] = lows[other] = len(numbers)
                    stack.append(other)
                    stacked.add(other)
                    path.append((other, iter(names[other])))
                    break
                if other in stacked:
                    lows[node] = min(lows[node], numbers[other])
            else:
                path.pop()
                if path:
                    lows[path[-1][0]] = min(lows[path[-1][0]], lows[node])
                if lows[node] == numbers[node]:
                    found = [stack.pop()]
                    while found[-1] != node:
                        found.append(stack.pop())
                    stacked.difference_update(found)
                    yield found[::-1]


def merged(reports: Iterable[ImportReport], order: Callable[[str, str], int]) -> ImportReport:
    """One report of several; `order` is the place of a record in its table."""
    found, *others = reports
    for other in others:
        for name in ("created", "updated", "unchanged"):
            for table, ids in getattr(other, name).items():
                getattr(found, name).setdefault(table, []).extend(ids)
        for name in ("conflicts", "skipped", "warnings"):
            getattr(found, name).extend(getattr(other, name))
    for name in ("created", "updated", "unchanged"):
        for table, ids in getattr(found, name).items():
            ids.sort(key=lambda id, table=table: order(table, id))
    for name in ("conflicts", "skipped", "warnings"):
        getattr(found, name).sort(key=lambda problem: (problem.file, problem.line))
    return found
