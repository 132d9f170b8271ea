"""What leaves a mailbox: the cards of closed messages, and the rows of the closed summary beyond the newest.

The cards are in MAILBOX_ARCHIVE.md, word for word, in the order in which they were closed; the rows are in
MAILBOX_CLOSED.md. When a file is full, the next number begins (`MAILBOX_ARCHIVE_2.md`), so a close costs the
same however many came before. Nothing is ever removed from them: `find_card` and `find_row` look in all of them, and
no id in them is given again. `lost` finds the messages that only the projection still has. Called by all that write
the projection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from holdfast.errors import Invalid
from holdfast.turnfile import damage
from holdfast.turnfile.files import Folder, not_full, numbered
from holdfast.turnfile.mailbox import parse
from holdfast.turnfile.mailbox.cards import Card, cards_of
from holdfast.turnfile.mailbox.draft import CLOSED_HEAD, used_ids
from holdfast.turnfile.mailbox.lost import Message, lost_messages
from holdfast.turnfile.mailbox.markdown import lines_of, newline_of, sections_of, table_in
from holdfast.turnfile.mailbox.projection import message
from holdfast.turnfile.model import ARCHIVE, CLOSED, MAILBOX, PROJECTION, SIGNAL_ARCHIVE, Problem

_FULL: Final = 1024 * 1024
_HEAD: Final = "# Mailbox Archive"

Read = Callable[[str], str | None]
"""Returns the text of a file, None if there is none."""


def shelves(folder: Folder) -> tuple[str, str]:
    """The archives to add to: that of the cards, and that of the rows."""
    return not_full(folder, ARCHIVE, _FULL, damage.refuse), not_full(folder, CLOSED, _FULL, damage.refuse)


def paths(folder: Folder, *firsts: str) -> list[str]:
    """The archives of some series, of all without one."""
    return [path for first in firsts or (ARCHIVE, CLOSED, SIGNAL_ARCHIVE) for path in numbered(folder, first)]


def texts(folder: Folder, read: Read, *, but: str = "") -> list[str]:
    """The texts of all archives of the mailbox."""
    return [read(path) or "" for path in paths(folder, ARCHIVE, CLOSED) if path != but]


def with_ids(folder: Folder, read: Read) -> list[str]:
    """The texts whose ids are never given again: all archives, and the projection, which may know a lost message."""
    return [*texts(folder, read), read(PROJECTION) or ""]


def lost(folder: Folder, mailbox: str | None, projected: str | None) -> list[Message]:
    """The messages that only the projection has: not the mailbox, not under another id either, and no archive."""
    box = parse(mailbox or "")
    found = lost_messages(projected, box) if projected is not None else []
    if not found:
        return []
    archived = {id for text in texts(folder, partial(folder.read, strict=False)) for id in used_ids(text)}
    there = [{**message(card), "id": None} for card in box.cards]
    return [each for each in found if each.get("id") not in archived and {**each, "id": None} not in there]


def renamed(mailbox: str, projected: str | None) -> dict[str, str]:
    """The messages that the projection has under another id, by the id that their cards have now."""
    box = parse(mailbox)
    found = lost_messages(projected, box) if projected is not None else []
    old = {repr({**each, "id": None}): str(each.get("id")) for each in found}
    cards = ((card.id, old.get(repr({**message(card), "id": None}))) for card in box.cards) if old else ()
    return {id: formerly for id, formerly in cards if formerly is not None}


def find_card(folder: Folder, read: Read, id: str) -> Card | None:
    """The archived card of an id, or None. Raises Invalid if several archived cards have it."""
    found: dict[str, tuple[str, Card]] = {}
    for path in numbered(folder, ARCHIVE):
        if id in (text := read(path) or ""):
            cards = [card for card in cards_of(text) if card.id == id]
            found |= {card.content.text.strip(): (f"{path}:{card.line}", card) for card in reversed(cards)}
    if len(found) > 1:
        where = ", ".join(sorted(place for place, _ in found.values()))
        hint = "turnfile.tidy(session, actor) gives all but the first an id of their own"
        raise Invalid(f"{id} is the id of several archived cards ({where})", hint=hint, id=id)
    return next((card for _, card in found.values()), None)


def problems(texts: Mapping[str, str], mailbox: str) -> Iterator[Problem]:
    """The cards of archives, by their paths in order, whose id a card of the mailbox or of an archive has already."""
    seen = {} if damage.conflict(mailbox) else {card.id: f"{MAILBOX}:{card.line}" for card in parse(mailbox).cards}
    for path, text in texts.items():
        for line, id in _cards(text):
            if id in seen:
                yield Problem(path, line, "error", "id-twice", f"{id} is a duplicate of the card in {seen[id]}")
            seen.setdefault(id, f"{path}:{line}")


def _cards(text: str) -> Iterator[tuple[int, str]]:
    """Line and id of each archived card; none where an unfinished merge leaves both versions of some."""
    if damage.conflict(text) is None:
        yield from ((card.line, card.id) for card in cards_of(text))


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
