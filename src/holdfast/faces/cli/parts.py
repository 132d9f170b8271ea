"""A folder of tables in parts that a server takes: each with the records that belong together.

Records that name each other, directly or by others, are in one part; every part has all lines of every table, those of
other parts blank, so that what is said of a line names it by its number in the file. Called by `stash import`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast import errors

MOST: Final = 3_500_000  # bytes of a part: a server takes 4 MiB, and a call has more than its lines
_NAMES: Final = (  # fields that name a record
    *("id", "crumb_id", "trail_id", "link_id", "stash_id", "from_id", "to_id", "parent_id", "deleted_with"),
    *("tasks", "depends_on", "discovered_from", "related"),
)
Tables = dict[str, list[str]]


def parts(tables: Tables, most: int = MOST) -> list[Tables]:
    """The tables, in as few parts as they need; TooLarge if what belongs together is too large for one."""
    sizes = {(table, at): len(msgspec.json.encode(text)) for table, at, text in _lines(tables)}
    blank = 3 * len(sizes)
    if sum(sizes.values()) + blank <= most:
        return [tables]
    found: list[tuple[int, list[tuple[str, int]]]] = []
    for group in _groups(tables):
        size = sum(sizes[where] for where in group)
        if size + blank > most:
            table, at = group[0]
            raise errors.TooLarge(
                f"{len(group)} lines from {table}.jsonl line {at + 1} on belong together: too many for one request",
                hint="import them on the machine of the workspace, with --dir",
                limit=most,
            )
        if found and found[-1][0] + size + blank <= most:
            found[-1][1].extend(group)
            found[-1] = found[-1][0] + size, found[-1][1]
        else:
            found.append((size, group))
    made = []
    for _, group in found:
        part = {table: [""] * len(lines) for table, lines in tables.items()}
        for table, at in group:
            part[table][at] = tables[table][at]
        made.append(part)
    return made


def _lines(tables: Tables) -> Iterator[tuple[str, int, str]]:
    for table, lines in tables.items():
        for at, text in enumerate(lines):
            yield table, at, text


def _groups(tables: Tables) -> list[list[tuple[str, int]]]:
    """The lines that name each other, directly or by others."""
    leaders: dict[str, str] = {}

    def leader(name: str) -> str:
        while (above := leaders.setdefault(name, name)) != name:
            leaders[name] = leaders[above]
            name = above
        return name

    keys: dict[tuple[str, int], str] = {}
    for table, at, text in _lines(tables):
        names = [*_named(text)] or [f"{table}\n{at}"]
        keys[table, at] = names[0]
        for other in names[1:]:
            leaders[leader(other)] = leader(names[0])
    groups: dict[str, list[tuple[str, int]]] = {}
    for where, name in keys.items():
        groups.setdefault(leader(name), []).append(where)
    return list(groups.values())


def _named(text: str) -> Iterator[str]:
    try:
        raw: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return  # which the import tells
    if isinstance(raw, Mapping):
        for field in _NAMES:
            value = raw.get(field)
            yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str))
