"""Full-text search over titles, bodies and notes, best first, with a piece of the text around what was found."""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.domains.tasks.rows import COLUMNS, as_seen, to_task
from holdfast.kernel.names import check_flag, check_limit
from holdfast.kernel.tx import Snapshot
from holdfast.types.tasks import Hit

MAX_QUERY: Final = 1000
MAX_WORDS: Final = 32
_WEIGHTS = "10.0, 2.0, 1.0"  # a word in the title counts most, then the body, then the notes


def search(snapshot: Snapshot, text: str, limit: int = 20, include_deleted: bool = False) -> list[Hit]:
    """Tasks in which all words occur; `word*` finds what begins so, "in quotes" words that follow each other."""
    check_limit(limit, 100)
    check_flag(include_deleted=include_deleted)
    live = "" if include_deleted else " AND t.deleted IS NULL"
    rows = snapshot.all(
        f"SELECT snippet(tasks_fts, -1, '**', '**', '…', 16), bm25(tasks_fts, {_WEIGHTS}) AS score, {COLUMNS},"
        " (SELECT stamp FROM meta) FROM tasks_fts f JOIN tasks t ON t.seq = f.rowid"
        f" WHERE tasks_fts MATCH ?{live} ORDER BY score, t.seq LIMIT ?",
        (match_of(text), limit),
    )
    return [Hit(to_task(as_seen(snapshot, row[2:])), row[0], row[1]) for row in rows]


def match_of(text: str) -> str:
    """What somebody typed as a query of FTS5, in which nothing is an operator."""
    if type(text) is not str or not text.strip():
        raise errors.InvalidFilter("there is nothing to search for", hint="give one or more words")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise errors.InvalidFilter(f"the search has a lone surrogate at position {error.start}") from error
    if len(text) > MAX_QUERY:
        raise errors.InvalidFilter(f"a search has at most {MAX_QUERY} characters")
    terms = []
    for number, part in enumerate(text.replace("\0", " ").split('"')):
        terms += [(part, False)] * bool(part.strip()) if number % 2 else [_word(word) for word in part.split()]
    terms = [(word, begins) for word, begins in terms if any(char.isalnum() for char in word)]
    if not terms:
        raise errors.InvalidFilter(f"{text!r} has no word to search for", hint="words have letters or digits")
    if len(terms) > MAX_WORDS:
        raise errors.InvalidFilter(f"a search has at most {MAX_WORDS} words")
    return " ".join(f'"{word}"*' if begins else f'"{word}"' for word, begins in terms)


def _word(word: str) -> tuple[str, bool]:
    return (word.rstrip("*"), True) if word.endswith("*") else (word, False)
