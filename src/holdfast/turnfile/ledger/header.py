"""The two comment lines at the head of a TURNFILE.yaml: at which revision it was last modified, and by whom.

Pure. They are searched among the comments that the file opens with, and nowhere else. YAML does not see them, so
changing them changes nothing that the file says.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.turnfile.ledger.yaml_tree import BOM

_REVISION: Final = re.compile(r"(#[ ]*Last modified revision:)[ ]*([0-9]{0,18})[ ]*$", re.IGNORECASE)
_ACTOR: Final = re.compile(r"(#[ ]*Modified by:)[ ]*(.*?)[ ]*$", re.IGNORECASE)


def read_header(text: str) -> tuple[int | None, str | None]:
    """The revision and the name; None for a line that is not there."""
    revision, actor = None, None
    for line in map(_content, _opening(text)):
        if revision is None and (found := _REVISION.match(line)) and found[2]:
            revision = int(found[2])
        elif actor is None and (found := _ACTOR.match(line)):
            actor = found[2]
    return revision, actor


def with_header(text: str, revision: int, actor: str) -> str:
    """The text with both lines saying what is given; one that is missing joins the opening comment."""
    bom = BOM if text.startswith(BOM) else ""
    eol = "\r\n" if "\r\n" in text else "\n"
    opening = _opening(text)
    lines = list(opening)
    told = set()
    for place, line in enumerate(opening):
        content = _content(line)
        for what, pattern, value in (("revision", _REVISION, str(revision)), ("actor", _ACTOR, actor)):
            if what not in told and (found := pattern.match(content)):
                told.add(what)
                lines[place] = f"{found[1]} {value}{line[len(content) :]}"
    comments = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if "actor" not in told:
        lines.insert(comments, f"# Modified by: {actor}{eol}")
    if "revision" not in told:
        lines.insert(comments, f"# Last modified revision: {revision}{eol}")
    return bom + "".join(lines) + text[len(bom) + sum(map(len, opening)) :]


def _opening(text: str) -> list[str]:
    """The comments and empty lines that the file opens with, each with its line break."""
    lines = []
    for line in text.removeprefix(BOM).splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            break
        lines.append(line)
    return lines


def _content(line: str) -> str:
    return line.rstrip("\r\n")
