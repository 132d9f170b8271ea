"""The conflict markers that git leaves in a file whose merge was not finished.

Such a file has two versions of some of its lines, and nobody but a person knows which count: it is read as far as that
goes, nothing is written to it, and tidying leaves it alone. A marker in a code fence or a comment is text. Pure. Called
by `ledger`, `invariants`, `mail`, `repairs` and `report`.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.errors import Invalid

RULE: Final = "conflict"
WORDS: Final = "a conflict marker of git: resolve the merge first"
_MARKER: Final = re.compile(r"^(?:<{7}|>{7})(?: .*)?\r?$", re.MULTILINE)


def conflict(text: str, *, markdown: bool = True) -> int | None:
    """The line of the first conflict marker, or None; in Markdown one that is in no fence and no comment."""
    if "<<<<<<<" not in text and ">>>>>>>" not in text:  # nearly always
        return None
    from holdfast.turnfile.mailbox.markdown import hidden_spans, is_hidden

    hidden = hidden_spans(text) if markdown else ()
    places = (found.start() for found in _MARKER.finditer(text) if not is_hidden(hidden, found.start()))
    return next((text.count("\n", 0, place) + 1 for place in places), None)


def refuse(path: str, text: str) -> None:
    """Raise Invalid for a file whose merge was not finished."""
    if (line := conflict(text)) is not None:
        message = f"{path}, line {line}, has {WORDS}"
        hint = "edit the file so that each marker is gone, or restore it from version control; then retry"
        raise Invalid(message, hint=hint, path=path, line=line)
