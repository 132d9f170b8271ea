"""The named parts of a card below its fields: what it sums up, who acknowledged it, what was answered.

    **Ack:** Ada — 2026-03-04 — acknowledged.     bold, once for each line or with bullets below;
    Ack:                                          plain, as v0 has it, which also has a `Body:`.

Pure. People sign in many ways; what begins something new in a part, and what only goes on, is told here. Called by
`cards`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.turnfile.mailbox.markdown import Line

_NAMED_BOLD: Final = re.compile(
    r"\*\*(Summary|Ack|Reply)(?:[ \t]*\([^()*]{1,200}\))?(?::\*\*|\*\*:?)[ \t]*(.*)", re.IGNORECASE
)
_NAMED_PLAIN: Final = re.compile(r"(Body|Ack|Reply):[ \t]*(.*)")
_BULLET: Final = re.compile(r"[ \t]*(?:[-*+]|[0-9]{1,3}[.)])[ \t]+(.*)")
# How an Ack begins, whoever writes it: `Ada — 2026-03-04`, `Ada | 2026-03-04`, `Ada 2026-03-04`.
_SIGNED: Final = re.compile(r"[^\W\d_][^.;:!?]{0,60}?[ \t]{0,2}[—–|,-]?[ \t]{0,2}[0-9]{4}-[0-9]{2}-[0-9]{2}\b")


class Block(msgspec.Struct, frozen=True):
    """A named part below the fields (`ack`, `reply`, `summary`, `body`): its lines, and what they say one by one."""

    key: str
    bold: bool
    lines: tuple[Line, ...]
    entries: tuple[str, ...]


def begins_block(text: str) -> bool:
    """Whether a line names one of these parts, and so is no field."""
    return (_NAMED_BOLD.fullmatch(text) or _NAMED_PLAIN.fullmatch(text)) is not None


def blocks_in(lines: Sequence[Line], at: int, plain: bool) -> list[Block]:
    """The named parts below the fields. One ends at a blank line; the `Body:` of v0 at the next name."""
    blocks: list[Block] = []
    while at < len(lines):
        name = None if lines[at].hidden else _NAMED_BOLD.fullmatch(lines[at].text)
        bold = name is not None
        if name is None and plain and not lines[at].hidden:
            name = _NAMED_PLAIN.fullmatch(lines[at].text)
        if name is None:
            at += 1
            continue
        key = name[1].lower()
        end = _end_of(lines, at, key, bool(name[2]))
        said = [name[2], *(line.text for line in lines[at + 1 : end])]
        entries = ["\n".join(said).strip("\n")] if key == "body" else _entries(said)
        blocks.append(Block(key, bold, tuple(lines[at:end]), tuple(entry for entry in entries if entry)))
        at = end
    return blocks


def _end_of(lines: Sequence[Line], at: int, key: str, filled: bool) -> int:
    """Where a block ends: an answer or a v0 body at the next name or rule, the others at a blank line."""
    end = at + 1
    if key in ("body", "reply"):
        while end < len(lines) and (lines[end].hidden or not _ends_text(lines[end], key)):
            end += 1
        while lines[end - 1].blank:
            end -= 1
        return end
    if not filled:  # the bullets may stand below a blank line
        below = next((n for n in range(end, len(lines)) if not lines[n].blank), end)
        if below < len(lines) and _BULLET.fullmatch(lines[below].text):
            end = below
    while end < len(lines) and not lines[end].blank and not _NAMED_BOLD.fullmatch(lines[end].text):
        end += 1
    return end


def _ends_text(line: Line, key: str) -> bool:
    if _NAMED_PLAIN.fullmatch(line.text):
        return True
    return key == "reply" and (line.rule or _NAMED_BOLD.fullmatch(line.text) is not None)


def _entries(said: Sequence[str]) -> list[str]:
    """What a block says, one by one.

    A signature begins something new, a line after a blank one too, and a bullet in a list that begins with one; other
    lines go on with what was said, as do the bullets below a signed line.
    """
    entries: list[str] = []
    listed, fresh = False, True
    for text in said:
        bullet = _BULLET.fullmatch(text)
        words = (bullet[1] if bullet else text).strip()
        if not words:
            fresh = True
            continue
        if fresh:
            listed = bullet is not None
        if fresh or _SIGNED.match(words) or (bullet and listed and text[0] not in " \t"):
            entries.append(words)
        else:
            entries[-1] = f"{entries[-1]} {text.strip()}"
        fresh = False
    return entries
