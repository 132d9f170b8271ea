"""From a place into a workspace: every cycle that is there, whatever format it has."""

from __future__ import annotations

from typing import Any

from holdfast.carrying.places import Entry, Place
from holdfast.types.cycles import CycleReport


def bring(workspace: Any, place: Place, skip_bad: bool = False, dry_run: bool = False) -> CycleReport:
    """Import what a place has, all or nothing unless what is bad is to be skipped; the place is only read."""
    report: CycleReport = workspace.cycles.import_(entries_of(place.read()), skip_bad=skip_bad, dry_run=dry_run)
    return report


def entries_of(found: dict[str, Entry]) -> dict[str, Any]:
    """What a place has, as texts where they are some: bytes would travel to a server in a larger form."""
    return {key: _text(entry.value) for key, entry in found.items()}


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # the import tells what is wrong with it
