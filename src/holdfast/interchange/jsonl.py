"""The engine under every import: one reader of lines, one report, one set of outcomes, one dry run.

A format turns a line or a key into a record; what the record means for the store is decided by its kind. Guarantee: an
import happens whole or not at all. A record that cannot be imported refuses everything, unless `skip_bad` leaves it
out together with what needs it. Called by the imports of tasks, stashes and cycles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Final, Literal, NamedTuple, ParamSpec, TypeVar, get_args

import msgspec

from holdfast import errors
from holdfast.kernel.tx import Tx
from holdfast.types import ImportPart, ImportProblem, ImportReport, as_microseconds, counted
from holdfast.wire import check_keys

T = TypeVar("T")
P = ParamSpec("P")
Time = Annotated[datetime, msgspec.Meta(tz=True)]
Outcome = Literal["created", "updated", "unchanged"]
CREATED: Final = "created"
UPDATED: Final = "updated"
UNCHANGED: Final = "unchanged"
# Why a record is in conflict.
DIFFERS: Final = "differs: the one here is not the same; skipped"
AHEAD: Final = "ahead: changed here only; skipped"
DIVERGED: Final = "diverged: changed both here and in the file; skipped"
DELETED: Final = "deleted here: not created again; skipped"

REFUSALS: Final = (
    *(errors.Invalid, errors.NotFound, errors.DuplicateName, errors.Exists, errors.TooLarge),
    *(msgspec.ValidationError, RecursionError),
)
_NOT_IN_ID: Final = re.compile(r"[^A-Za-z0-9._-]+")


class Place(NamedTuple):
    """Where a record stands: its table, its line (0 if it has none), its id or key if that can be read."""

    table: str
    line: int
    id: str | None


class Import:
    """An import at work: what became of each record, and every problem with its place."""

    def __init__(self, *tables: str, unit: str = "lines", part: ImportPart | None = None) -> None:
        self._numbers = {} if part is None else part.numbers
        created, updated, unchanged = ({table: list[str]() for table in tables} for _ in get_args(Outcome))
        self.report = ImportReport(created, updated, unchanged, [], [], [])
        self.bad: list[ImportProblem] = []
        self._tables = tables
        self._unit = unit

    def read(
        self, table: str, lines: Sequence[str], id_fields: Sequence[str], take: Callable[[Place, dict[str, Any]], None]
    ) -> None:
        """Parse each line independently and pass it to `take`; skip blank lines, refuse what cannot be read."""
        for number, line in self.numbered(table, lines):
            raw = self.attempt(Place(table, number, None), parse, line)
            if raw is not None:
                ids = [raw[field] for field in id_fields if isinstance(raw.get(field), str)]
                place = Place(table, number, ids[0] if ids else None)
                self.attempt(place, take, place, raw)

    def numbered(self, table: str, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
        """Each line with its number in the file of its table."""
        yield from zip(self._numbers.get(table) or range(1, len(lines) + 1), lines, strict=True)

    def attempt(self, place: Place, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Do a step for a record, and refuse the record if that raises; then the result is None."""
        try:
            return step(*args, **kwargs)
        except REFUSALS as error:
            from holdfast.hints import HTTP, in_json  # most records are good

            self.refuse(place, in_json(str(getattr(error, "message", error)), HTTP))
            return None

    def refuse(self, place: Place, message: str) -> None:
        """Report a record that cannot be imported."""
        self.bad.append(self._problem(place, "error", message))

    def skip(self, place: Place, message: str) -> None:
        """Report a record that need not be imported."""
        self.report.skipped.append(self._problem(place, "warning", message))

    def warn(self, place: Place, message: str) -> None:
        """Report something about a record that is imported."""
        self.report.warnings.append(self._problem(place, "warning", message))

    def conflict(self, place: Place, message: str, differences: dict[str, str] | None = None) -> None:
        """Report a record that is left alone, because of what there is of it here."""
        self.report.conflicts.append(self._problem(place, "warning", message, differences))

    def count(self, outcome: str, place: Place) -> None:
        """Count a record among those with this outcome."""
        getattr(self.report, outcome)[place.table].append(place.id)

    def put(self, place: Place, write: Callable[P, str], *args: P.args, **kwargs: P.kwargs) -> str | None:
        """Count a record by the outcome that `write` returns, or report why it is in conflict; None if refused."""
        outcome = self.attempt(place, write, *args, **kwargs)
        if outcome in get_args(Outcome):
            self.count(str(outcome), place)
        elif outcome is not None:
            self.conflict(place, outcome)
        return outcome

    def check(self, skip_bad: bool) -> None:
        """Raise Invalid with every problem, or with `skip_bad` count what is bad as skipped."""
        if self.bad and not skip_bad:
            self.bad.sort(key=self._order(self.bad))
            raise refusal(self.bad, self._unit)
        self.report.skipped.extend(self.bad)
        for problems in (self.report.conflicts, self.report.skipped, self.report.warnings):
            problems.sort(key=self._order(problems))

    def _order(self, problems: list[ImportProblem]) -> Callable[[ImportProblem], tuple[bool, int, str, int]]:
        """Order by table and line; over several tables, causes come before the errors that follow from them."""
        several = len(self._tables) > 1
        causes = {problem.id for problem in problems if several and problem.severity == "error"}
        files = {file_of(table): number for number, table in enumerate(self._tables)}

        def place(problem: ImportProblem) -> tuple[bool, int, str, int]:
            follows = problem.severity == "error" and not causes.isdisjoint(
                {*_NOT_IN_ID.split(problem.message)} - {problem.id}
            )
            return follows, files.get(problem.file, len(files)), problem.file, problem.line

        return place

    def _problem(
        self,
        place: Place,
        severity: Literal["error", "warning"],
        message: str,
        differences: dict[str, str] | None = None,
    ) -> ImportProblem:
        file = file_of(place.table) if len(self._tables) > 1 else ""
        return ImportProblem(place.line, place.id, severity, message, file, differences or {})


def run(tx: Tx, dry_run: bool, work: Callable[[], ImportReport]) -> ImportReport:
    """Do an import whole or not at all; a dry run reports the same and changes nothing."""
    with tx.dry_run() as trial:
        report = work()
        if not dry_run:
            trial.keep()
    return msgspec.structs.replace(report, dry_run=dry_run)


def refusal(problems: list[ImportProblem], unit: str = "lines") -> errors.Invalid:
    """The error of an import that is refused."""
    those = "it" if len(problems) == 1 else "them"
    return errors.Invalid(
        f"{counted(len(problems), unit)} cannot be imported; {problems[0]}",
        hint=f"correct {those}, or pass skip_bad=True to leave {those} out",
        problems=problems,
    )


def file_of(table: str) -> str:
    """The file of a table."""
    return f"{table}.jsonl"


def check_part(part: ImportPart | None, tables: Mapping[str, Sequence[str]], dry_run: bool) -> frozenset[str]:
    """The ids that other parts of an import bring. Raises Invalid for a part that is not one of these tables."""
    if part is None:
        return frozenset()
    if not isinstance(part, ImportPart):
        raise errors.Invalid(f"part is an ImportPart, not {type(part).__name__}")
    for table, numbers in part.numbers.items():
        if len(numbers) != len(tables.get(table, ())):
            raise errors.Invalid(f"part has {len(numbers)} numbers for {len(tables.get(table, ()))} lines of {table}")
    if part.expect and not dry_run:
        raise errors.Invalid("part.expect is for a dry run: what an import names is here or in it")
    return frozenset(part.expect)


def check_lines(lines: Any, what: str = "lines") -> None:
    """Raise Invalid unless this is a list of lines."""
    if isinstance(lines, str) or not isinstance(lines, Sequence):
        raise errors.Invalid(f"{what} is a list of str, not {type(lines).__name__}", hint="text.splitlines() makes one")


def parse(line: str) -> dict[str, Any] | None:
    """The object of a line without its null fields; None for a blank line."""
    if not isinstance(line, str):
        raise errors.Invalid(f"a line is text, not {type(line).__name__}")
    if not line.strip():
        return None
    try:
        raw = decode_json(line)
    except (ValueError, RecursionError) as error:
        raise errors.Invalid(f"invalid JSON: {error}") from error
    if not isinstance(raw, dict):
        raise errors.Invalid("not a JSON object")
    return {name: value for name, value in raw.items() if value is not None}


def decode_json(text: str) -> Any:
    """Decode JSON. Raises ValueError, or Invalid for a duplicate key, of which one value would be lost."""
    value = msgspec.json.decode(text)
    check_keys(text)
    return value


def micros(time: datetime, what: str) -> int:
    """Convert a time to microseconds. Raises InvalidValue if the store could not sort by it."""
    try:
        found = as_microseconds(time)
    except errors.Invalid as error:
        raise errors.InvalidValue(f"{what} is out of range: {time.isoformat()}", hint="") from error
    if found < 0:
        raise errors.InvalidValue(f"{what} is before 1970: {time.isoformat()}", hint="")
    return found


def moment(time: datetime | None, what: str) -> int | None:
    """The same of a time that may be missing."""
    return None if time is None else micros(time, what)
