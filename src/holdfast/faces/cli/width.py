"""Rows that fit into a terminal: columns are counted as it shows them, and what may be shortened is marked.

A mark begins with NUL (shortened in a terminal alone) or with SOH (for everybody) and ends with STX; no text that was
made printable has those.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Any, Final

import msgspec

from holdfast.faces.cli.output import printable, short

_WIDE: Final = 160  # characters of a value in a line that no terminal shows
_LEAST: Final = (12, 6)  # columns that a title or value keeps; the second if the line does not fit else
_NARROW: Final = ("Mn", "Me", "Cf")  # characters that take no column: marks on another, and invisible ones
_COLOUR: Final = r"\x1b\[\d*m"


def title(text: str) -> str:
    """A text for people, which a terminal may get shortened."""
    return f"\x00{printable(text)}\x02" if text else ""


def whole(value: Any) -> str:
    """A value, which a terminal may get shortened."""
    return f"\x00{json_line(value)}\x02"


def brief(value: Any) -> str:
    """A value, shortened for everybody: --json has all of it."""
    return f"\x01{json_line(value)}\x02"


def json_line(value: Any) -> str:
    """JSON that no terminal obeys: what is not printable is escaped, and means the same."""
    from holdfast.wire import wired

    text = msgspec.json.encode(wired(value)).decode()
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def fitted(line: str, width: int | None) -> str:
    """A line without its marks, the marked parts shortened to the width, the last ones first."""
    if "\x02" not in line:
        return line if width is None else _cropped(line, width)
    parts = _split(line)
    texts = parts[2::3]
    if width is None:
        texts = [text if mark == "\x00" else short(text, _WIDE) for mark, text in zip(parts[1::3], texts, strict=True)]
    else:
        excess = sum(_columns(re.sub(_COLOUR, "", text)) for text in (*parts[::3], *texts)) - width
        for least in _LEAST:
            for at in range(len(texts) - 1, -1, -1):
                wide = _columns(texts[at])
                texts[at] = _cut(texts[at], max(wide - max(excess, 0), min(wide, least)))
                excess -= wide - _columns(texts[at])
    parts[2::3] = texts
    parts[1::3] = [""] * len(texts)
    return "".join(parts) if width is None else _cropped("".join(parts), width)


def wrapped(line: str, width: int | None, indent: int = 0) -> list[str]:
    """A line that nothing may be left out of, broken between words; what follows is indented."""
    line = fitted(line, None)
    if width is None or _columns(re.sub(_COLOUR, "", line)) <= width:
        return [line]
    margin = " " * min(indent or len(line) - len(line.lstrip()), width // 2)
    lines, used = [""], 0
    for word in re.findall(r" *[^ ]+ *$| *[^ ]+", line):
        wide = _columns(re.sub(_COLOUR, "", word))
        if used and used + wide > width:
            word = word.lstrip()
            lines.append(f"{margin}{word}")
            used = len(margin) + _columns(re.sub(_COLOUR, "", word))
        else:
            lines[-1] += word
            used += wide
    return lines


def _cropped(line: str, width: int) -> str:
    """A line that is still too long, to the width; colours count nothing and end where they should."""
    if _columns(re.sub(_COLOUR, "", line)) <= width:
        return line
    pieces = re.split(f"({_COLOUR})", line)
    left = width
    for at in range(0, len(pieces), 2):
        pieces[at] = _cut(pieces[at], left)
        left -= _columns(pieces[at])
    return "".join(pieces)


def _split(line: str) -> list[str]:
    """What may be shortened in a line, such as a title, and what is between: text, mark, part, ..., text."""
    *marked, rest = line.split("\x02")
    parts: list[str] = []
    for each in marked:
        at = max(each.rfind("\x00"), each.rfind("\x01"))
        parts += each[:at], each[at], each[at + 1 :]
    return [*parts, rest]


def _cut(text: str, most: int) -> str:
    """A text in so many columns."""
    if _columns(text) <= most:
        return text
    taken = accumulate(map(_columns, text))
    end = next((at for at, wide in enumerate(taken) if wide >= most), 0)
    return f"{text[:end].rstrip()}…" if most else ""


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width

    widths = (0 if category(each) in _NARROW else 2 if east_asian_width(each) in "WF" else 1 for each in text)
    return sum(widths)
