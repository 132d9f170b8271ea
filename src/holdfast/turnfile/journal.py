"""Several files replaced as one: all of them, or none.

The new contents are made durable under other names, then a journal that lists them: from that moment the replacement
happens, whoever dies. Each file is renamed into place, and the journal goes. Whoever comes next and finds a journal
finishes it. If somebody without our lock (an editor) has changed a file that was not replaced yet, its change is kept
and the others are put back. Guarantee: no reader that asks `recover` first sees some files new and others old, and
nobody's edit is overwritten. All calls need the turn of `Folder.turn`.
"""

from __future__ import annotations

import msgspec

from holdfast.errors import Corrupt
from holdfast.turnfile.failpoints import reach
from holdfast.turnfile.files import JOURNAL, Folder, digest


class Step(msgspec.Struct, frozen=True):
    """One file's replacement: the temporary file that has its new content, and what it replaces."""

    path: str
    temp: str
    new: str  # sha256
    old: str | None  # sha256; None where there was no file
    old_text: str | None


class _Journal(msgspec.Struct, frozen=True):
    steps: list[Step]


def replace(folder: Folder, texts: dict[str, str], before: dict[str, str | None]) -> None:
    """Give files new contents. `before` is what was read of each, and is what an undoing restores."""
    reach("commit.begun")
    for path in texts:
        folder.sweep(path)
    steps = [
        Step(path, folder.temp(path, text), digest(text) or "", digest(before[path]), before[path])
        for path, text in texts.items()
    ]
    if len(steps) == 1:  # one rename is all or nothing by itself
        folder.rename(steps[0].temp, steps[0].path)
        reach("file.replaced")
        folder.sync(steps[0].path)
        return
    for path in texts:
        folder.sync(path)
    folder.rename(folder.temp(JOURNAL, msgspec.json.encode(_Journal(steps)).decode()), JOURNAL)
    folder.sync(JOURNAL)
    reach("journal.written")
    _finish(folder, steps)


def recover(folder: Folder) -> bool:
    """Finish or undo what a killed writer began; True if there was something."""
    text = folder.read(JOURNAL)
    if text is None:
        return False
    try:
        steps = msgspec.json.decode(text, type=_Journal).steps
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{JOURNAL} cannot be read: {error}", hint="look at the session's files, then move the journal away"
        ) from error
    if any(_foreign(folder, step) for step in steps):
        _undo(folder, steps)
    else:
        _finish(folder, steps)
    return True


def is_pending(folder: Folder) -> bool:
    """True where a replacement is under way, or was left unfinished."""
    return folder.signature(JOURNAL) is not None


def _foreign(folder: Folder, step: Step) -> bool:
    """True if the file was not replaced yet and is no longer what was to be replaced."""
    return folder.signature(step.temp) is not None and digest(folder.read(step.path)) not in (step.old, step.new)


def _finish(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            folder.rename(step.temp, step.path)
            reach("file.replaced")
    _end(folder, steps)


def _undo(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        if folder.signature(step.temp) is not None:
            continue  # not replaced: it is as it was, or as somebody else made it
        if digest(folder.read(step.path)) != step.new:
            continue  # somebody edited the new content: that stays
        if step.old_text is None:
            folder.remove(step.path)
        else:
            folder.rename(folder.temp(step.path, step.old_text), step.path)
    _end(folder, steps)


def _end(folder: Folder, steps: list[Step]) -> None:
    for step in steps:
        folder.sync(step.path)
    reach("files.replaced")
    folder.remove(JOURNAL)
    folder.sync(JOURNAL)
    for step in steps:
        folder.remove(step.temp)
    reach("journal.removed")
