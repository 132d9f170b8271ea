"""What leaves a mailbox: the cards of closed messages, and the rows of the closed summary beyond the newest.

The cards are in MAILBOX_ARCHIVE.md, word for word, in the order in which they were closed; the rows are in
MAILBOX_CLOSED.md. When a file is full, the next number begins (`MAILBOX_ARCHIVE_2.md`), so a close costs the
same however many came before. Nothing is ever removed from them: `find_card` and `find_row` look in all of them, and
no id in them is given again. `lost` finds the messages that only the projection still has. Called by all that write
the projection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from holdfast.turnfile.files import Folder, not_full, numbered
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.cards import Card
from holdfast.turnfile.mailbox.draft import CLOSED_HEAD, used_ids
from holdfast.turnfile.mailbox.lost import Message, lost_messages
from holdfast.turnfile.mailbox.markdown import lines_of, newline_of, sections_of, table_in
from holdfast.turnfile.mailbox.projection import message
from holdfast.turnfile.model import ARCHIVE, CLOSED, PROJECTION

_FULL: Final = 1024 * 1024
_HEAD: Final = "# Mailbox Archive"

Read = Callable[[str], str | None]
"""Returns the text of a file, None if there is none."""


def shelves(folder: Folder) -> tuple[str, str]:
    """The archives to add to: that of the cards, and that of the rows."""
    return not_full(folder, ARCHIVE, _FULL), not_full(folder, CLOSED, _FULL)


def texts(folder: Folder, read: Read, *, but: str = "") -> list[str]:
    """The texts of all archives of the mailbox."""
    return [read(path) or "" for first in (ARCHIVE, CLOSED) for path in numbered(folder, first) if path != but]


def with_ids(folder: Folder, read: Read) -> list[str]:
    """The texts whose ids are never given again: all archives, and the projection, which may know a lost message."""
    return [*texts(folder, read), read(PROJECTION) or ""]


def lost(folder: Folder, mailbox: str | None, projected: str | None) -> list[Message]:
    """The messages that only the projection has: not the mailbox, not under another id either, and no archive."""
    box = parse(mailbox or "")
    found = lost_messages(projected, box) if projected is not None else []
    if not found:
        return []
    archived = {id for text in texts(folder, folder.read) for id in used_ids(text)}
    there = [{**message(card), "id": None} for card in box.cards]
    return [each for each in found if each.get("id") not in archived and {**each, "id": None} not in there]


def find_card(folder: Folder, read: Read, id: str) -> Card | None:
    """The archived card of an id, or None."""
    found = (parse(text).find(id) for path in numbered(folder, ARCHIVE) if id in (text := read(path) or ""))
    return next((card for card in found if card is not None), None)


def find_row(folder: Folder, read: Read, id: str) -> dict[str, str] | None:
    """The archived row of an id as data, or None."""
    for path in numbered(folder, CLOSED):
        text = read(path) or ""
        for section in sections_of(lines_of(text), "## ") if id in text else ():
            table = table_in(section)
            for row in table.rows if table else ():
                if table and table.value(row, "id") == id:
                    return {name: table.value(row, name) for name in table.columns}
    return None


def with_card(before: str | None, card: str) -> str:
    """An archive with a card added."""
    before = before or _HEAD + newline_of(card)
    nl = newline_of(before)
    end = "" if before.endswith("\n") else nl
    lines = card.rstrip("\r\n").replace("\r\n", "\n").replace("\n", nl)
    return f"{before}{end}{nl}---{nl}{nl}{lines}{nl}"


def with_rows(before: str | None, head: Sequence[str], rows: Sequence[str]) -> str:
    """An archive with rows of the closed summary added, below the head (two lines) of their table."""
    before = before or f"{CLOSED_HEAD}\n"
    place = before.rfind("\n## ") + 1
    below = before[place:].splitlines()[2:4] if place else []
    if below != list(head):  # another table, or the first
        before += f"\n## Rows of the closed summary\n\n{head[0]}\n{head[1]}\n"
    return before + "".join(f"{row}\n" for row in rows)
