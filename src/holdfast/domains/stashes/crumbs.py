"""Crumbs of the original project as lines of tasks: a crumb is a task, with the crumb's id.

What a task has no place for is kept by the import of tasks, in a note and with a warning: so is a state that no task
has. A crumb that is dust is a deleted task.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast import errors
from holdfast.domains.tasks.exporting import FORMAT
from holdfast.domains.tasks.importing import parse
from holdfast.kernel.ids import is_uuid7

_STATUS: Final = {
    "draft": "open",
    "pending": "blocked",
    "ready": "open",
    "taken": "open",  # by whom, no file says
    "pebble": "closed",
    "dust": "open",
}
_WITHOUT: Final = ("draft", "taken")  # states that no task would have


def read_crumb(text: str) -> str:
    """The line of a task that a line of crumbs stands for; one of our own is that already."""
    raw = parse(text)
    if raw is None or "crumb_id" not in raw:
        return text
    id, state = raw.pop("crumb_id"), raw.get("state")
    if not is_uuid7(id):
        raise errors.InvalidID(f"no UUID v7: crumb_id {id!r}", id=id if isinstance(id, str) else None)
    if state not in tuple(_STATUS):
        raise errors.Invalid(f"a crumb is {', '.join(_STATUS)}, not {state!r}", id=id)
    line = {**raw, "format": FORMAT, "id": id, "title": raw.get("name"), "status": _STATUS[state]}
    del line["name" if "name" in line else "title"]
    if state not in _WITHOUT:
        del line["state"]
    if state == "dust":
        line["deleted_at"] = raw.get("updated_at", raw.get("created_at"))
    return msgspec.json.encode(line).decode()
