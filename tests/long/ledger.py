"""The figures of a release, added up from slices: which seeds of which programme ran on which commit, with what end.

A programme calls `record` for what it has done, which prints a line and appends it to the file that LEDGER names.
`python -m tests.long.ledger FILE...` adds such files to the two tables of docs/reliability.md: one row for each
programme and commit with adjoining seeds, and the sums against the figure of a release.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from tests.amounts import commit
from tests.journal import ROOT

PAGE: Final = ROOT / "docs" / "reliability.md"
LEDGER: Final = "LEDGER"


class Programme(NamedTuple):
    """What a release needs of it: so many of something."""

    figure: int
    unit: str


PROGRAMMES: Final = {
    "kill": Programme(10_000, "cycles"),
    "power": Programme(250_000, "states"),
    "simulation": Programme(5_000, "seeds"),
    "machines": Programme(200_000, "steps"),
    "mixed": Programme(1_000_000, "acknowledged calls"),
    "generated": Programme(20_000, "calls"),
    "stores": Programme(1_000, "damaged stores"),
    "backups": Programme(200, "damaged backups"),
    "planted": Programme(1_000, "sessions in disorder"),
}


class Slice(NamedTuple):
    """Seeds of a programme that ran on one commit; `wrong` counts what must not be."""

    programme: str
    commit: str
    first: int
    last: int
    done: int
    wrong: int
    figures: str = ""


def record(programme: str, seeds: range, count: int, wrong: int, **figures: int) -> None:
    """Say what a slice, or a part of one, has done."""
    line = {
        "programme": programme,
        "commit": commit()[:7],
        "first": seeds.start,
        "last": seeds.stop - 1,
        "count": count,
        "wrong": wrong,
        "figures": figures,
    }
    print(f"slice {json.dumps(line)}", flush=True)
    if os.environ.get(LEDGER):
        with open(os.environ[LEDGER], "a") as file:
            file.write(json.dumps(line) + "\n")


def merged(lines: Iterable[str]) -> list[Slice]:
    """Parts of the same seeds, and seeds that adjoin on one commit, as one slice."""
    sums: dict[tuple[str, str, int, int], Counter[str]] = {}
    for line in lines:
        part = json.loads(line)
        key = (part["programme"], part["commit"], part["first"], part["last"])
        added = {" count": part["count"], " wrong": part["wrong"], **part["figures"]}
        sums.setdefault(key, Counter()).update(added)
    found: list[tuple[str, str, int, int, Counter[str]]] = []
    for (programme, at, first, last), figures in sorted(sums.items()):
        if found and found[-1][:2] == (programme, at) and found[-1][3] == first - 1:
            *_, begun, _, before = found.pop()
            first, figures = begun, before + figures
        found.append((programme, at, first, last, figures))
    return [
        Slice(programme, at, first, last, figures.pop(" count"), figures.pop(" wrong", 0), _text(figures))
        for programme, at, first, last, figures in found
    ]


def _text(figures: Counter[str]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {number:,}" for name, number in figures.items())


# --- the page --------------------------------------------------------------------------------------------------------

_TOTALS: Final = ("| programme | figure of a release | so far | wrong | next seed |", "|---|---|---|---|---|")
_SLICES: Final = ("| programme | commit | seeds | count | wrong | what was done |", "|---|---|---|---|---|---|")
_ROW: Final = re.compile(r"^\| (\w+) \| ([0-9a-f]{7}) \| (\d+) to (\d+) \| ([\d,]+) [a-z ]+\| ([\d,]+) \| (.*) \|$")
_TABLES: Final = re.compile(
    "|".join(rf"(?:^{re.escape(head)}\n(?:^\|.*\n)*)" for head, _ in (_TOTALS, _SLICES)), re.MULTILINE
)


def slices(page: str) -> list[Slice]:
    """The slices that a page lists."""
    found = [row.groups() for row in map(_ROW.match, page.splitlines()) if row]
    return [
        Slice(name, at, int(first), int(last), _number(count), _number(wrong), text)
        for name, at, first, last, count, wrong, text in found
    ]


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def with_slices(page: str, listed: Sequence[Slice]) -> str:
    """The page with these slices and their sums."""
    listed = sorted(listed, key=lambda each: (list(PROGRAMMES).index(each.programme), each.first))
    totals = [_total(name, [each for each in listed if each.programme == name]) for name in PROGRAMMES]
    rows = [
        f"| {each.programme} | {each.commit} | {each.first} to {each.last} | {each.done:,} "
        f"{PROGRAMMES[each.programme].unit} | {each.wrong:,} | {each.figures} |"
        for each in listed
    ]
    tables = iter(["\n".join((*_TOTALS, *totals, "")), "\n".join((*_SLICES, *rows, ""))])
    return _TABLES.sub(lambda _: next(tables), page)


def _total(name: str, done: Sequence[Slice]) -> str:
    figure, unit = PROGRAMMES[name]
    count, wrong = sum(each.done for each in done), sum(each.wrong for each in done)
    following = max((each.last + 1 for each in done), default=0)
    return f"| {name} | {figure:,} {unit} | {count:,} | {wrong:,} | {following} |"


def overlaps(listed: Sequence[Slice]) -> list[tuple[Slice, Slice]]:
    """Slices of a programme that share a seed."""
    ordered = sorted(listed, key=lambda each: (each.programme, each.first))
    return [(one, two) for one, two in pairwise(ordered) if one.programme == two.programme and one.last >= two.first]


def main(files: Sequence[str]) -> int:
    """Add what files of `record` say to the page."""
    page = PAGE.read_text()
    known = slices(page)
    new = [each for file in files for each in merged(Path(file).read_text().splitlines()) if each not in known]
    if both := overlaps([*known, *new]):
        print(f"these seeds are counted already: {both}")
        return 1
    PAGE.write_text(with_slices(page, [*known, *new]))
    print("\n".join(map(str, new)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
