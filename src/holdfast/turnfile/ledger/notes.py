"""The signals that transactions leave in the ledger: that a lock's work is complete, or that somebody is blocked.

Pure. Each releasing write adds a completion note. So that the ledger does not grow for ever, it keeps the newest few
of these, and the last of every agent: that one also tells which lock ids were used. Signals of people and of other
tools are never removed here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from holdfast.turnfile.ledger.codec import Ledger, next_signal_id
from holdfast.turnfile.model import Lock, Signal

KEPT: Final = 10
_COMPLETED: Final = re.compile(r"(?:completed|out of order after) (\S.*): .*, revision [0-9]+")


def completed(
    ledger: Ledger, lock_id: str, holder: str, files: Sequence[str], *, broken: bool = False
) -> tuple[Ledger, Signal]:
    """With the note that a lock's work is done: its id, the changed files, and the revision of this write.

    `broken`: the note says instead that it left the files out of order.
    """
    revision = ledger.revision + 1
    detail = f"{'out of order after' if broken else 'completed'} {lock_id}: {', '.join(files)}, revision {revision}"
    signal = Signal(next_signal_id(ledger.turnfile.signals), holder, "all", "notify", revision, detail)
    return ledger.with_signal(signal, instead_of=_surplus(ledger.turnfile.signals, holder)), signal


def blocked(ledger: Ledger, lock: Lock, revision: int, sender: str) -> tuple[Ledger, Signal]:
    """With a signal to the maintainer that a lock blocks somebody; once per lock and acquisition."""
    facts = f"blocked by {lock.id}: holder {lock.holder}, acquired_rev {lock.acquired_rev}, "
    for old in ledger.turnfile.signals:
        if old.signal == "blocked" and old.detail.startswith(facts):
            return ledger, old
    return told(ledger, sender, f"{facts}last seen revision {revision}")


def told(ledger: Ledger, sender: str, detail: str) -> tuple[Ledger, Signal]:
    """With a `blocked` signal to the maintainer."""
    receiver = ledger.turnfile.maintainer.id or "maintainer"
    number = next_signal_id(ledger.turnfile.signals)
    signal = Signal(number, sender, receiver, "blocked", ledger.revision + 1, detail)
    return ledger.with_signal(signal), signal


def _surplus(signals: Sequence[Signal], holder: str) -> list[str]:
    """The completion notes that need not stay once the holder writes another."""
    notes = [signal for signal in signals if signal.signal == "notify" and _COMPLETED.fullmatch(signal.detail)]
    notes.sort(key=lambda note: (note.rev, note.id), reverse=True)
    last = {holder: ""} | {note.sender: note.id for note in reversed(notes) if note.sender != holder}
    return [note.id for note in notes[KEPT - 1 :] if note.id not in last.values()]
