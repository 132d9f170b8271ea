"""The cards of a mailbox: one message each, wherever it stands in the file.

Pure. A card is its place and its `content`, which is parsed when it is needed and shared by cards with the same text.
A heading with an id begins a card, and so does `Message ID:` in v0; blank lines and rules between cards belong to none.
Called by `mailbox`.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from holdfast.turnfile.mailbox.content import (
    Block,
    Content,
    Dialect,
    Field,
    Payload,
    content_of,
    known_field,
)
from holdfast.turnfile.mailbox.markdown import Line, Part, Spans, hidden_spans, is_hidden, line_at, moved, same_ends

ID: Final = re.compile(r"MSG-([0-9]{8})-([0-9]{3,9})")
OPEN: Final = ("unread", "acknowledged", "actioned", "blocked", "deferred")
DECISIONS: Final = ("approved", "rejected", "deferred", "needs-revision")
TERMINAL: Final = ("closed", "resolved", "superseded", "withdrawn", "abandoned")

# The lines that may begin a card, with the line break before them: a pattern that begins with letters is found faster.
_HEADING: Final = re.compile(r"\n###[ \t]+(MSG-[A-Za-z0-9-]+)([^\n]*)")
_NAMED: Final = re.compile(r"\nMessage ID:([^\n]*)")

# How far a receiver is with a message; a card says how far the last of them is.
PROGRESS: Final = ("unread", "acknowledged", "blocked", "actioned")
_ACK: Final = re.compile(r"(.{1,80}?)[ \t]{0,2}[—–|,:-]?[ \t]{0,2}[0-9]{4}-[0-9]{2}-[0-9]{2}\b(.*)", re.DOTALL)
ALL: Final = ("all", "everyone")

_USUAL_GAP: Final = "\n\n---\n\n"
_LARGE: Final = 50_000  # characters; what is smaller is parsed whole


@functools.lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A name for comparison: `Codex`, `codex` and `` `codex` `` are the same."""
    return name.strip().strip("`").strip().casefold()


class Card(msgspec.Struct, frozen=True, gc=False):
    """One message: its id, where its first line starts, the number of that line, and its content."""

    id: str
    start: int
    line: int
    content: Content

    @property
    def end(self) -> int:
        """Where the line after its last starts."""
        return self.start + len(self.content.text)

    @property
    def lines(self) -> tuple[Line, ...]:
        """Its lines."""
        return tuple(moved(line, self.start, self.line - 1) for line in self.content.lines)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Its fields, with their spans of the file."""
        return tuple(
            Field(one.key, one.dialect, one.value, one.start + by, one.end + by, moved(one.line, by, self.line - 1))
            for by in (self.start,)
            for one in self.content.fields
        )

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Its named blocks, with their lines of the file."""
        return tuple(
            Block(one.key, one.bold, tuple(moved(line, self.start, self.line - 1) for line in one.lines), one.entries)
            for one in self.content.blocks
        )

    @property
    def body(self) -> str:
        """Its free text."""
        return self.content.body

    @property
    def dialect(self) -> Dialect:
        """Its dialect; of a card that mixes them, the first of bold, table, plain."""
        return self.content.dialect

    def get(self, key: str) -> str:
        """The value of a field, or an empty string; a bold line wins over a table."""
        return self.content.values.get(key, "")

    def line_of(self, key: str) -> int:
        """The line number of a field, or of the card."""
        return next((field.line.number for field in self.fields if field.key == key), self.line)

    @property
    def status(self) -> str:
        """Its status word in lower case: `Actioned (see below)` is `actioned`."""
        return self.content.status

    @property
    def sender(self) -> str:
        """The sender's name."""
        return self.content.route[0]

    @property
    def receiver(self) -> str:
        """The receivers as they are written."""
        return self.content.route[1]

    @property
    def receivers(self) -> tuple[str, ...]:
        """The receivers' names."""
        return self.content.receivers

    def addressees(self, everyone: Sequence[str] = ()) -> tuple[str, ...]:
        """The receivers, each once; in place of `all` everyone but the sender, if they are known."""
        if len(self.receivers) == 1 and not self.is_to_all:
            return self.receivers
        others = [name for name in everyone if fold(name) != fold(self.sender)]
        names = (others if fold(name) in ALL and everyone else [name] for name in self.receivers)
        return tuple({fold(name): name for part in names for name in part}.values())

    @property
    def is_to_all(self) -> bool:
        """Whether `all` is among its receivers."""
        return any(fold(name) in ALL for name in self.receivers)

    def states(self, everyone: Sequence[str] = ()) -> dict[str, str]:
        """The status for each receiver: of several, what their own Ack lines say.

        Without an Ack line of any of them the card's status counts for all.
        """
        names = self.addressees(everyone)
        said = self.acknowledged if len(names) > 1 and is_known(self.status) else {}
        if not any(fold(name) in said for name in names):
            return dict.fromkeys(names, self.status)
        return {name: said.get(fold(name), "unread") for name in names}

    def least(self, everyone: Sequence[str] = ()) -> str:
        """The least advanced status of its receivers, which is what its own should be."""
        return least_of(self.states(everyone).values()) or self.status

    @property
    def acknowledged(self) -> dict[str, str]:
        """The newest status in the Ack lines, by folded name."""
        found = {}
        for entry in self.entries("ack"):
            if signed := _ACK.match(entry):
                words = re.findall(r"[a-z]+", signed[2].lower())
                word = next((word for word in words if word in PROGRESS or word in TERMINAL), "acknowledged")
                if word not in TERMINAL:
                    found[fold(signed[1])] = word
        return found

    @property
    def order(self) -> tuple[str, int]:
        """The sort key: older cards first."""
        return order_of(self.id)

    @property
    def payload(self) -> tuple[Payload, ...]:
        """The files that the message carries, with their digests; what cannot be read as one is left out."""
        return self.content.payload

    def entries(self, key: str) -> tuple[str, ...]:
        """The entries of its blocks of that name."""
        return self.content.entries(key)


def is_known(status: str) -> bool:
    """Whether a status is one that a receiver can have."""
    return status in PROGRESS


def least_of(statuses: Iterable[str]) -> str:
    """The least advanced of some statuses, or an empty string."""
    return min((one for one in statuses if is_known(one)), key=PROGRESS.index, default="")


@functools.lru_cache(maxsize=20_000)
def order_of(id: str) -> tuple[str, int]:
    """The date and sequence of an id; anything else sorts first."""
    match = ID.fullmatch(id)
    return (match[1], int(match[2])) if match else ("", 0)


def numbers_of(ids: Iterable[str]) -> dict[str, set[int]]:
    """The sequence numbers of ids, by date; anything else is left out."""
    found: dict[str, set[int]] = {}
    for date, number in map(order_of, ids):
        if date:
            found.setdefault(date, set()).add(number)
    return found


def ids_in(text: str) -> Iterator[str]:
    """The ids of the cards in a text."""
    return (id for _, id in _starts(text, 0, len(text), hidden_spans(text)))


def may_have_cards(part: Part) -> bool:
    """Whether a part of a text has a line that looks like the first of a card."""
    text, start, stop = part
    if text.find("###", start, stop) < 0 and text.find("Message ID:", start, stop) < 0:
        return False
    return bool(_candidates(text, start, stop))


class _Parsed(NamedTuple):
    """A part of a file that holds cards, the number of its first line, and what is hidden in the file."""

    part: Part
    number: int
    hidden: Spans
    cards: tuple[Card, ...]


_latest: list[_Parsed] = []  # the large part that was parsed last: the next is mostly that with one card changed


def cards_in(part: Part, hidden: Spans) -> tuple[Card, ...]:
    """The cards in a part of a text, in its order.

    The part begins and ends outside of fences and comments, so what is hidden in it does not depend on the rest.
    """
    text, start, stop = part
    number = text.count("\n", 0, start) + 1
    for before in _latest[:1] if part.size > _LARGE else ():
        if (cards := _spliced(before, part, number, hidden)) is not None:
            break
    else:
        cards = tuple(_between(text, start, stop, hidden, number))
    if part.size > _LARGE:
        _latest[:] = [_Parsed(part, number, hidden, cards)]
    return cards


@functools.lru_cache(maxsize=8)
def cards_of(text: str) -> tuple[Card, ...]:
    """The cards of a whole text, such as an archive."""
    return cards_in(Part(text, 0, len(text)), hidden_spans(text))


def _between(text: str, start: int, stop: int, hidden: Spans, number: int) -> Iterator[Card]:
    """The cards of a part of a text whose first line has that number."""
    starts = _starts(text, start, stop, hidden)
    done = start
    for place, (at, id) in enumerate(starts, 1):
        end = starts[place][0] if place < len(starts) else stop
        number, done = number + text.count("\n", done, at), at
        yield Card(id, at, number, content_of(text[at : _trimmed(text, at, end)]))


def _spliced(before: _Parsed, part: Part, number: int, hidden: Spans) -> tuple[Card, ...] | None:
    """The cards of a part of which only a few differ from those of another, found by parsing those few again.

    Parsed are the cards around what differs: no line above or below can become part of a card through it, unless
    what is hidden changes. None if that may be, or if too much differs.
    """
    was, old, text = before.part, before.cards, part.text
    head, tail = same_ends(was, part)
    down, lines, by = part.start - was.start, number - before.number, part.stop - was.stop
    first = bisect.bisect_right(old, was.start + head, key=_start_of) - 2  # its heading is the same, and the next one
    last = bisect.bisect_left(old, was.stop - tail + 1, key=_start_of) + 1  # and so is the card above it
    start, number = (old[first].start, old[first].line + lines) if first > 0 else (was.start, number)
    stop = old[last].start if last < len(old) else was.stop
    same = _outside(was, before.hidden, start, stop)
    if last - first > len(old) // 2 or same is None or same != _outside(part, hidden, start + down, stop + by):
        return None
    new = [*_between(text, start + down, stop + by, hidden, number)]
    if first > 0 and [(one.start, one.id) for one in new[:1]] != [(start + down, old[first].id)]:
        return None
    if last < len(old) and [one.start for one in new[-1:]] != [old[last - 1].start + by]:
        return None
    below = old[last:]
    after = number + text.count("\n", start + down, stop + by) - below[0].line if below else 0
    return (*_moved(old[: max(first, 0)], down, lines), *new, *_moved(below, by, after))


def _moved(cards: Sequence[Card], by: int, lines: int) -> Sequence[Card]:
    return [Card(one.id, one.start + by, one.line + lines, one.content) for one in cards] if by or lines else cards


def _start_of(card: Card) -> int:
    return card.start


def _outside(part: Part, hidden: Spans, start: int, stop: int) -> list[tuple[int, int]] | None:
    """What is hidden in a part above and below a place in it, counted from its start and from its end.

    None if anything crosses the ends of that place.
    """
    inside = [span for span in hidden if part.start <= span[0] < part.stop]
    if any(one < edge < other for one, other in inside for edge in (start, stop)):
        return None
    above = [(one - part.start, other - part.start) for one, other in inside if one < start]
    return [*above, *((one - part.stop, other - part.stop) for one, other in inside if one >= stop)]


def _trimmed(text: str, start: int, end: int) -> int:
    """Where a card ends that is followed by blank lines and rules."""
    if text.endswith(_USUAL_GAP, start, end):
        end -= len(_USUAL_GAP) - 1
    while True:
        begins = text.rfind("\n", start, end - 1) + 1
        if begins <= start:
            return end
        line = text[begins:end].rstrip()
        if line and line != "---":
            return end
        end = begins


def _starts(text: str, start: int, stop: int, hidden: Spans) -> list[tuple[int, str]]:
    """Where cards start in a part of a text, and their ids."""
    starts: list[tuple[int, str]] = []
    for at, end, id, words in _candidates(text, start, stop):
        if hidden and is_hidden(hidden, at):
            continue
        if id:
            if not words or not words.strip() or _has_fields(text, end + 1, stop, hidden):
                starts.append((at, id))
            continue
        id = words.strip()
        below = next(_lines(text, end + 1, stop, hidden), None)
        if (
            id
            and below
            and known_field(below)
            and _is_apart(text, start, at, hidden)
            and not _own(text, starts, at, id)
        ):
            starts.append((at, id))
    return starts


def _candidates(text: str, start: int, stop: int) -> list[tuple[int, int, str, str]]:
    """The lines that look like the first of a card: start, end, the id of a heading, and the words after it."""
    if start == 0:  # the first line has no line break before it
        return [(at - 1, end - 1, id, words) for at, end, id, words in _candidates(f"\n{text[:stop]}", 1, stop + 1)]
    found = [(one.start() + 1, one.end(), one[1], one[2]) for one in _HEADING.finditer(text, start - 1, stop)]
    if text.find("Message ID:", start, stop) >= 0:
        named = _NAMED.finditer(text, start - 1, stop)
        found = sorted([*found, *((one.start() + 1, one.end(), "", one[1]) for one in named)])
    return found


def _is_apart(text: str, start: int, at: int, hidden: Spans) -> bool:
    """Whether a line is the first, or follows a blank line or a rule."""
    if at == start:
        return True
    above = text.rfind("\n", start, at - 1) + 1 or start
    line = line_at(text, above, 1, is_hidden(hidden, above))
    return line.blank or line.rule


def _own(text: str, starts: Sequence[tuple[int, str]], at: int, id: str) -> bool:
    """Whether a `Message ID:` is the first line below the heading of that id."""
    if not starts or starts[-1][1] != id:
        return False
    return not text[text.find("\n", starts[-1][0]) + 1 : at].strip()


def _lines(text: str, start: int, stop: int, hidden: Spans) -> Iterator[Line]:
    """The lines of a part of a text, one after the other; their numbers mean nothing."""
    while start < stop:
        line = line_at(text, start, 1, is_hidden(hidden, start))
        yield line
        start = line.after


def _has_fields(text: str, start: int, stop: int, hidden: Spans) -> bool:
    """Whether the next non-blank line is a field: a heading alone does not make a card."""
    near = itertools.islice(_lines(text, start, stop, hidden), 4)
    first = next((line for line in near if not line.blank), None)
    return first is not None and (known_field(first) is not None or first.text.lower().startswith("| field"))
