"""Printing: JSON for programs, ids for scripts, short text for people; hints as shell commands; progress.

JSON is `{"schema_version": 1, "data": ...}`, with `cursor` beside it if there is another page, `compacted` if a part of
the past is gone; a stream is such a line for each item. Text never passes control characters from others to the
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.errors import HoldfastError
from holdfast.faces.cli.relay import columns

if TYPE_CHECKING:
    from holdfast.operation import Operation


_WIDTH = 30
_MARGIN: Final = 2  # before what a line of an error or a note goes on with


@contextmanager
def bar(title: str, workspace: Any) -> Iterator[None]:
    """Show the progress of work on the workspace while in this block."""
    drawn = [""]

    def draw(progress: Any) -> None:
        if not progress.total:
            line = f"{title}: {progress.done:,}"
        else:
            full = _WIDTH * progress.done // progress.total
            line = f"{title}: [{'#' * full}{'.' * (_WIDTH - full)}] {100 * progress.done // progress.total} %"
        if line != drawn[0]:
            drawn[0] = line
            sys.stderr.write(f"\r{line}")
            sys.stderr.flush()

    wanted = sys.stderr.isatty() and hasattr(workspace, "progress")
    with workspace.progress(draw) if wanted else nullcontext():
        yield
    if drawn[0]:
        sys.stderr.write("\n")


SCHEMA_VERSION: Final = 1
MOST_PROBLEMS: Final = 20  # shown to people at once


class Screen(Protocol):
    """Where text is printed: a stream, or what takes its place in a server that carries out a command."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...
    def isatty(self) -> bool: ...


class Output:
    """How results are printed, and where."""

    def __init__(
        self,
        json: bool,
        quiet: bool,
        environ: Mapping[str, str],
        streams: tuple[Screen, Screen] | None = None,
    ) -> None:
        self.json = json
        self.quiet = quiet
        own: tuple[Screen, Screen] = (sys.stdout, sys.stderr)
        self.stdout, self.stderr = streams or own
        self.at: tuple[str, ...] = ()  # the options that name the workspace or the folder, for commands that we propose
        self.colour = self.stdout.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"

    @property
    def place(self) -> str:
        """The options that name the workspace or the folder, to be added to a command; or nothing."""
        from holdfast.hints import options_of

        return options_of(self.at)

    def result(self, op: Operation[..., Any], result: Any) -> None:
        """Print the result of an operation."""
        if self.json:
            self.data(result)
        elif self.quiet:
            self.text(*_ids(result))
        else:
            from holdfast.faces.cli.views import view

            self.text(*view(op, result, self.colour, self.width))

    @property
    def width(self) -> int | None:
        """The columns of the terminal that shows standard output; None if there is none."""
        return columns(self.stdout)

    def line(self, op: Operation[..., Any], item: Any) -> None:
        """Print one item of a stream, at once."""
        self.result(op, item)
        self.stdout.flush()

    def data(self, data: Any, **beside: Any) -> None:
        """Print JSON, whatever format was chosen; `beside` is what the envelope says of the data, unless it is None."""
        from holdfast.wire import json_text, wired

        if isinstance(data, list):
            beside = {name: getattr(data, name, None) for name in ("cursor", "total", "compacted")}
        known = {name: value for name, value in beside.items() if value is not None}
        print(json_text({"schema_version": SCHEMA_VERSION, "data": wired(data), **known}), file=self.stdout)

    def say(self, data: Any, *lines: str, **beside: Any) -> None:
        """Print the result of a hand-written command: its data, or its lines."""
        if self.json:
            self.data(data, **beside)
        else:
            self.text(*(_ids(data) if self.quiet else lines))

    def text(self, *lines: str) -> None:
        """Print lines of text."""
        for line in lines:
            print(line, file=self.stdout)

    def note(self, words: str, hint: str = "") -> None:
        """Say on standard error what a person should know beside the result, and what to do."""
        text = "\n  ".join(["holdfast: " + printable(words), *filter(None, [hint])])
        print(folded(text, self.stderr), file=self.stderr)

    def warn(self, words: str, hint: str) -> None:
        """The same, as a line of JSON for a program."""
        if not self.json:
            return self.note(words, hint)
        from holdfast.wire import json_text

        print(json_text({"schema_version": SCHEMA_VERSION, "note": words, "hint": hint}), file=self.stderr)

    def error(self, error: HoldfastError) -> None:
        """Print an error, on standard error."""
        text = error_json(error, self.at) if self.json else folded(error_text(error, self.at), self.stderr)
        print(text, file=self.stderr)


def folded(text: str, to: Screen, margin: int = _MARGIN) -> str:
    """A text for people, each line broken between words where the terminal that it goes to ends; elsewhere as it is."""
    width = columns(to)
    if width is None:
        return text
    from holdfast.faces.cli.width import wrapped

    return "\n".join(part for line in text.split("\n") for part in wrapped(line, width, margin))


def error_json(error: HoldfastError, at: Sequence[str] = ()) -> str:
    """Return an error for programs; `at` are the options that name the workspace."""
    from holdfast.wire import json_text, wired

    report = {
        "schema_version": SCHEMA_VERSION,
        "error": _message(error),
        "code": error.code,
        "hint": _hint(error, at),
        "details": {name: wired(value) for name, value in error.details.items()},
    }
    return json_text(report)


def error_text(error: HoldfastError, at: Sequence[str] = ()) -> str:
    """Return an error for people; `at` are the options that name the workspace."""
    from holdfast.faces.cli.times import readable

    hint = f"\n  {printable(_hint(error, at))}" if error.hint else ""
    problems = [str(each) for each in error.details.get("problems") or ()]
    message = readable(error.message.removesuffix(f"; {problems[0]}") if problems else _message(error))
    lines = [f"\n{printable(each)}" for each in problems[:MOST_PROBLEMS]]
    if "commands" in error.details:  # which of them is meant
        hint = "".join(f"\n  {printable(each)}" for each in error.details["commands"])
    if len(problems) > MOST_PROBLEMS:
        lines.append(f"\nand {len(problems) - MOST_PROBLEMS} more; --json has all")
    return f"holdfast: {printable(message)}{''.join(lines)}{hint}"


def _message(error: HoldfastError) -> str:
    from holdfast.hints import SHELL, in_json  # most calls succeed

    return in_json(error.message, SHELL)


def _hint(error: HoldfastError, at: Sequence[str]) -> str:
    from holdfast.hints import for_shell  # most calls succeed

    return for_shell(error.hint, at)


def place_options(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The options that name the workspace or folder, if they were given: a command that we propose repeats them."""
    return next(((f"--{name}", given[name]) for name in ("dir", "url") if given.get(name)), ())


def printable(text: str) -> str:
    """Escape control characters, so that a text fits on one line of a terminal."""
    return "".join(c if c.isprintable() else _ESCAPES.get(c) or f"\\u{ord(c):04x}" for c in text)


def short(text: str, most: int) -> str:
    """A text, or its beginning if it is longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def printable_lines(text: str) -> list[str]:
    """Split a text into lines, each without control characters."""
    return [printable(line.replace("\t", "    ")) for line in text.splitlines()]


_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


# The fields that stand for a record when only its id is printed; the first that it has.
_NAMING: Final = (
    *("id", "number", "cycle_id", "key", "cycle", "name", "task", "message", "version"),
    *("workspace", "folder", "file", "path", "lock_id"),
)


def _ids(result: Any) -> list[str]:
    """The ids of a result, or what stands for them."""
    from holdfast.types.tasks import BulkResult

    if isinstance(result, list | tuple):
        return [each for item in result for each in _ids(item)]
    if result is None:
        return []
    if isinstance(result, BulkResult):
        return [item.id for item in result.results if item.success]
    for name in _NAMING:
        found = result.get(name) if isinstance(result, dict) else getattr(result, name, None)
        if found is not None:
            return [str(found)] if isinstance(found, str | int) else _ids(found)
    if isinstance(result, str):
        return [result]
    from holdfast.wire import json_text, wired

    return [json_text(wired(result))]
