"""A marked block in a text file that belongs to somebody else.

Between `holdfast:begin` and `holdfast:end` is ours, the rest is not. The begin marker notes what else came with the
block: `sep=N`, so many line ends before it, or `made`, the whole file. So whatever the file was (empty, without a line
end at its end, with CRLF, with a byte order mark), `drop(put(text))` is `text`, and `put(put(text))` is `put(text)`.
A block of another version is replaced where it stands. Called by `plan.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from holdfast.errors import Invalid

VERSION: Final = 1
_BOM: Final = "\ufeff"


@dataclass(frozen=True)
class Block:
    """What is put into a text file, and the comment syntax of that file."""

    body: str
    opening: str = "<!-- "
    closing: str = " -->"
    preamble: str = ""  # what a file opens with if we make it

    def put(self, old: str | None) -> str:
        """The text with the block in it, as it is today; None is a file that is not there."""
        if old is None:
            return self.preamble + self._render("made", "\n") + "\n"
        place = self._find(old)
        if place is not None:
            return old[: place.start] + self._render(place.notes, place.newline) + old[place.stop :]
        newline = newline_of(old)
        at, sep = self._where(old)
        return old[:at] + newline * sep + self._render(f"sep={sep}", newline) + newline + old[at:]

    def drop(self, old: str) -> str | None:
        """The text without the block; None if we made the file and nobody has added to it."""
        place = self._find(old)
        if place is None:
            return old
        head, tail = old[: place.start], old[place.stop :].removeprefix(place.newline)
        noted = re.search(r"\bsep=(\d+)", place.notes)
        for _ in range(int(noted[1]) if noted else 0):
            head = head.removesuffix(place.newline)
        if "made" in place.notes.split() and not tail and head.replace("\r\n", "\n") in ("", self.preamble):
            return None
        if tail and head.strip(_BOM) and not head.endswith("\n"):
            head += place.newline  # somebody has written below the block: lines stay lines
        return head + tail

    def _where(self, old: str) -> tuple[int, int]:
        """Where a new block goes, and how many line ends go before it."""
        bare = old.removeprefix(_BOM)
        return len(old), 0 if not bare else 1 if bare.endswith("\n") else 2

    def _render(self, notes: str, newline: str) -> str:
        said = f"{notes} (written by holdfast setup)"
        begin = f"{self.opening}holdfast:begin v{VERSION} {said}{self.closing}"
        end = f"{self.opening}holdfast:end{self.closing}"
        return newline.join([begin, *self.body.splitlines(), end])

    def _find(self, text: str) -> _Place | None:
        opening, closing = re.escape(self.opening), re.escape(self.closing)
        start = rf"(?:^|(?<={_BOM})){opening}holdfast:"
        begins = list(re.finditer(rf"{start}begin v\d+ ([^\r\n]*?){closing}(\r?\n)", text, re.MULTILINE))
        ends = list(re.finditer(rf"{start}end{closing}(?=\r?$)", text, re.MULTILINE))
        if not begins and not ends:
            return None
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            raise Invalid(
                f"it has {len(begins)} line(s) holdfast:begin and {len(ends)} holdfast:end, not one of each in order",
                hint="put its lines right by hand: what is between the two is written by holdfast setup",
            )
        notes = begins[0][1].replace(" (written by holdfast setup)", "")
        return _Place(begins[0].start(), ends[0].end(), notes, begins[0][2])


@dataclass(frozen=True)
class _Place:
    start: int
    stop: int  # before the line end of the end marker
    notes: str
    newline: str


def newline_of(text: str) -> str:
    """How the lines of a text end; its first tells."""
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
