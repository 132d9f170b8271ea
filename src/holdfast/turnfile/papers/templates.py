"""The files of a new working session: ledger, mailbox, projection, worklog, questions, all in order from the start.

Pure: `texts` answers what to write, `beginning` writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.turnfile.ledger import codec, locks
from holdfast.turnfile.ledger.yaml_edit import Change, Put
from holdfast.turnfile.model import MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG
from holdfast.turnfile.papers.settling import projected

README: Final = "docs/README.md"
IGNORE: Final = ".gitignore"

_TURNFILE: Final = """\
# TURNFILE.yaml: who works on what, and who may edit which shared file.
# Change it with `holdfast turn`; each write adds one to coordination.revision.
# Last modified revision: 0
# Modified by: nobody

turnfile:
  version: "1.0.0"
  project: "project"
  workspace: "working-session/"

agents: {}

maintainer:
  id: "maintainer"
  status: "available"
  last_seen: null

coordination:
  revision: 0
  active_phase: "phase-1"
  active_step: null

  tasks: {}

locks: {}

turn_queue: []

messages: []
"""

_MAILBOX: Final = """\
# Mailbox ({project})

Date initialized: {date}
Protocol: `holdfast turn mail`

## Quick Reply

1. Look up what is yours: `holdfast turn mail list --actor NAME`.
2. Answer it: `holdfast turn mail ack`, `action`, `block` or `close`.
3. Snapshot, queue and MAILBOX.json follow by themselves.

## Inbox Snapshot

| Agent | Unread | Oldest unread | Needs response by |
|-------|--------|---------------|-------------------|
{rows}
## Open Queue (Newest First)

| ID | From -> To | Priority | Subject |
|----|------------|----------|---------|

## Active Messages (Newest First)

## Closed Summary (Newest First)

| ID | Date | From -> To | Final status | Outcome |
|----|------|------------|--------------|---------|
"""

_WORKLOG: Final = """\
# Worklog ({project})

{working}Maintainer Focus: none
Next Review Checkpoint: none

## Decision Index

| Decision | Owner | Timestamp | Section |
|----------|-------|-----------|---------|

## Session 0 — {date}

The working session was begun.
"""

_QUESTIONS: Final = """\
# Open Questions ({project})

## Active

| ID | Question | Raised by | Date | Blocking |
|----|----------|-----------|------|----------|

## Deferred

| ID | Question | Reason |
|----|----------|--------|

## Resolved

| ID | Question | Resolution | Date |
|----|----------|------------|------|
"""

_README: Final = """\
# Documents ({project})

One line for each document of this session.
"""

_IGNORE: Final = """\
# The lock, journal and temporary files of `holdfast turn`.
.TURNFILE.lock
.TURNFILE.journal
.turn-*.tmp
"""


def texts(name: str, project: str, agents: Sequence[str], maintainer: str, timestamp: str) -> dict[str, str]:
    """What each file says, by its path, in a session whose folder has that name."""
    today = timestamp[:10]
    entry = {"role": "agent", "status": "idle", "current_task": None, "last_seen": None, "session_id": None}
    changes: list[Change] = [
        Put(("turnfile", "project"), project),
        Put(("turnfile", "workspace"), f"{name}/"),
        Put(("maintainer", "id"), maintainer),
        *(Put(("agents", agent), dict(entry)) for agent in agents),
    ]
    rows = "".join(f"| {agent} | 0 | none | none |\n" for agent in (*agents, maintainer))
    mailbox = _MAILBOX.format(project=project, date=today, rows=rows)
    working = "".join(f"Now Working ({agent}): idle\n" for agent in agents)
    return {
        TURNFILE: codec.read(_TURNFILE).changed(changes).stamped(1, maintainer).text,
        MAILBOX: mailbox,
        PROJECTION: projected(mailbox, None, name or locks.DEFAULT_WORKSPACE, timestamp),
        WORKLOG: _WORKLOG.format(project=project, date=today, working=working),
        QUESTIONS: _QUESTIONS.format(project=project),
        README: _README.format(project=project),
        IGNORE: _IGNORE,
    }
