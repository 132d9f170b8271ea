"""What no text of a session may have, whatever it says: NUL bytes, and the conflict markers of an unfinished merge.

A file with the markers has two versions of some of its lines, and nobody but a person knows which count: it is read as
far as that goes, nothing is written to it, and tidying leaves it alone. In Markdown a marker in a code fence or a
comment is text. Pure. Called by all that check, repair or write the files of a session.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterator
from typing import Final

from holdfast.errors import Invalid
from holdfast.turnfile.model import (
    ARCHIVE,
    CLOSED,
    MAILBOX,
    QUESTIONS,
    SIGNAL_ARCHIVE,
    TURNFILE,
    WORKLOG,
    Problem,
)

CONFLICT: Final = "conflict"  # the rule
WORDS: Final = "a conflict marker of git: resolve the merge first"
_LEFT: Final = re.compile("<" * 7)  # which is found faster than by the methods of a text
_RIGHT: Final = re.compile(">" * 7)
_MARKER: Final = re.compile(r"^(?:<{7}|>{7})(?: .*)?\r?$", re.MULTILINE)
_ARCHIVES: Final = [name.replace(".", r"(?:_[0-9]+)?\.") for name in (ARCHIVE, CLOSED, SIGNAL_ARCHIVE)]
_OURS: Final = re.compile("|".join((MAILBOX, WORKLOG, QUESTIONS, TURNFILE, *_ARCHIVES)))


def problems(path: str, text: str) -> Iterator[Problem]:
    """The lines with NUL bytes, and the first conflict marker."""
    for number, line in enumerate(text.split("\n") if "\0" in text else (), 1):
        if "\0" in line:
            yield Problem(path, number, "error", "nul", "there is a NUL byte in this line; it is not text")
    if (first := unmerged(path, text)) is not None:
        yield Problem(path, first, "error", CONFLICT, WORDS)


def unmerged(path: str, text: str) -> int | None:
    """The line of the first conflict marker of a file of a session; None without one, and for any other file."""
    name = posixpath.basename(path)
    return conflict(text, markdown=name.endswith(".md")) if _OURS.fullmatch(name) else None


@functools.lru_cache(maxsize=8)  # a transaction asks several times about the same texts
def conflict(text: str, *, markdown: bool = True) -> int | None:
    """The line of the first conflict marker, or None."""
    if not _LEFT.search(text) and not _RIGHT.search(text):  # nearly always
        return None
    from holdfast.turnfile.mailbox.markdown import hidden_spans, is_hidden

    hidden = hidden_spans(text) if markdown else ()
    places = (found.start() for found in _MARKER.finditer(text) if not is_hidden(hidden, found.start()))
    return next((text.count("\n", 0, place) + 1 for place in places), None)


def refuse(path: str, text: str) -> None:
    """Raise Invalid for a file of a session whose merge was not finished."""
    if (line := unmerged(path, text)) is not None:
        message = f"{path}, line {line}, has {WORDS}"
        hint = "edit the file so that each marker is gone, or restore it from version control; then retry"
        raise Invalid(message, hint=hint, path=path, line=line)
