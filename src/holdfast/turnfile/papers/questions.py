"""An OPEN_QUESTIONS.md: questions in sections for what is active, deferred and resolved; column sets vary.

Pure, and only read: people and agents edit the tables by hand, under a lock. A question is known by its id; what
state it is in, its section says, and a status column, where there is one, must say the same.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from holdfast.turnfile.mailbox.markdown import Line, Row, lines_of, table_in

State = Literal["active", "deferred", "resolved"]

STATES: Final[dict[str, State]] = {
    **dict.fromkeys(("active", "open", "pending", "unresolved", "parked"), "active"),
    **dict.fromkeys(("deferred", "postponed"), "deferred"),
    **dict.fromkeys(("resolved", "closed", "answered", "done", "decided"), "resolved"),
}
_SECTION: Final = re.compile(r"##[ \t]+(?:(Active|Open)|(Deferred)|(Resolved|Closed))\b.*", re.IGNORECASE)


class Question(msgspec.Struct, frozen=True):
    """A question: the state its section gives it, and what its status and resolution cells say.

    A cell is None where the table has no such column.
    """

    id: str
    line: int
    state: State
    status: str | None
    resolution: str | None


def parse(text: str) -> list[Question]:
    """The questions of a file, in its order; whatever the text is, it is one."""
    lines = lines_of(text)
    places: list[tuple[int, State | None]] = []
    for at, line in enumerate(lines):
        if not line.hidden and line.text.startswith("## "):
            match = _SECTION.fullmatch(line.text)
            state: State | None = None
            if match:
                state = "active" if match[1] else "deferred" if match[2] else "resolved"
            places.append((at, state))
    found: list[Question] = []
    ends = [*(at for at, _ in places[1:]), len(lines)]
    for (at, state), end in zip(places, ends, strict=False):
        if state is not None:
            found += _rows(lines[at + 1 : end], state)
    return found


def _rows(lines: list[Line], state: State) -> list[Question]:
    table = table_in(lines)
    if table is None:
        return []

    def said(row: Row, name: str) -> str | None:
        return table.value(row, name) if name in table.columns else None

    return [
        Question(table.value(row, "id"), row.line.number, state, said(row, "status"), said(row, "resolution"))
        for row in table.rows
    ]
