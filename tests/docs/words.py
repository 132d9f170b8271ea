"""Turns of phrase that readers stumble over, and how many of them each file still has.

`python -m tests.docs.words` lowers the counts in words.txt to what the files have now; it never raises one.
`python -m tests.docs.words FILE...` prints each place in these files.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("words.txt")

# Each with what to write instead.
BANNED = {
    r"\btold\b": "reported, raised, printed, notified",
    r"\bin vain\b": "without success",
    r"\bsigns? of life\b": "heartbeat",
    r"\b(?:is|are) followed by (?:another|a|an|one|the)\b": "needs, takes",
    r"\b(?:of|for|by) who\b": "of the agent that, for those who, by the holder",
    r"(?<![\w'\"*])Who (?![^.?!|]*\?)": "name the subject: a waiter, the holder, an agent that",
    r"\b(?:that|what|which) (?:is|are) none\b": "name what is wrong: not a regular file",
    r"^Answers\b|; answers\b|\banswers (?:None|True|False|whether|how many)\b": "returns",
    r"\bwrong hand\b": "anyone else",
    r"\bbeyond all calendars\b": "out of range",
    r"\bwants to know who calls\b": "requires authentication",
}
_BANNED = re.compile("|".join(f"(?:{pattern})" for pattern in BANNED), re.MULTILINE)
_GENERATED = re.compile(r"^<!-- generated: (.+?) -->$.*?^<!-- end of \1 -->$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]+`")


class Place(NamedTuple):
    """A banned turn of phrase: in which line, and the text around it."""

    line: int
    text: str


def files() -> list[Path]:
    """The documents, the modules of the package, and what else readers see."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    return [*sorted(pages), *sorted((ROOT / "src/holdfast").rglob("*.py"))]


def places(path: Path) -> list[Place]:
    """Every banned turn of phrase in the prose of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return [place for line, string in strings(text) for place in search(string, line)]
    return list(search(prose(text), 1))


def strings(source: str) -> Iterator[tuple[int, str]]:
    """Every string constant of a module but names, docstrings included, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
            yield node.lineno, node.value


def prose(page: str) -> str:
    """A page without inline code and generated parts (their words are those of the source), line by line the same."""
    page = _GENERATED.sub(lambda found: "\n" * found[0].count("\n"), page)
    return _CODE.sub("`", page)


def search(text: str, first: int) -> Iterator[Place]:
    for found in _BANNED.finditer(text):
        around = " ".join(text[max(0, found.start() - 40) : found.end() + 40].split())
        yield Place(first + text.count("\n", 0, found.start()), around)


def counts() -> dict[str, int]:
    """How many each file has, without those that have none."""
    found = {path.relative_to(ROOT).as_posix(): len(places(path)) for path in files()}
    return {name: number for name, number in found.items() if number}


def listed() -> dict[str, int]:
    """How many each file may have."""
    rows = (line.rsplit(" ", 1) for line in LIST.read_text(encoding="utf-8").splitlines())
    return {name: int(number) for name, number in rows}


def main(names: list[str]) -> None:
    """Print the places in the files named, or lower the list."""
    for name in names:
        for place in places(ROOT / name):
            print(f"{name}:{place.line}: {place.text}")
    if not names:
        now, may = counts(), listed()
        kept = {name: min(number, now[name]) for name, number in may.items() if name in now}
        LIST.write_text("".join(f"{name} {number}\n" for name, number in sorted(kept.items())), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
