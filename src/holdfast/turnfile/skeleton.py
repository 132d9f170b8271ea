"""The files of a new working session: ledger, mailbox, projection, worklog, questions, and their templates.

`init` never overwrites: if any of the files exists, it refuses and writes nothing. `restore` creates the files that a
session has lost, except the ledger (the projection from the mailbox, the others empty), and touches nothing that
exists. Called by the command line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from holdfast.errors import Exists, Invalid
from holdfast.turnfile import damage, ledger
from holdfast.turnfile.invariants import render_projection
from holdfast.turnfile.ledger import Ledger, check_name
from holdfast.turnfile.ledger.yaml_edit import Change, Put
from holdfast.turnfile.mailbox.draft import agent_name
from holdfast.turnfile.model import FOLDER, MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG
from holdfast.turnfile.session import RESTORE_LEDGER, Session

README: Final = "docs/README.md"
IGNORE: Final = ".gitignore"

_TURNFILE: Final = """\
# TURNFILE.yaml: agents, tasks, and locks on the shared files.
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

1. List your messages: `holdfast turn mail list --actor NAME`.
2. Answer it: `holdfast turn mail ack`, `action`, `block` or `close`.
3. Snapshot, queue and MAILBOX.json are updated automatically.

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

The working session began.
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


def template_texts(session: Session, project: str, agents: Sequence[str], maintainer: str) -> dict[str, str]:
    """The text of each file by its path."""
    name, today = os.path.basename(session.folder.path), session.today()
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
        TURNFILE: ledger.read(_TURNFILE).changed(changes).stamped(1, maintainer).text,
        MAILBOX: mailbox,
        PROJECTION: render_projection(mailbox, None, name or FOLDER, session.timestamp()),
        WORKLOG: _WORKLOG.format(project=project, date=today, working=working),
        QUESTIONS: _QUESTIONS.format(project=project),
        README: _README.format(project=project),
        IGNORE: _IGNORE,
    }


def init(session: Session, project: str, agents: Sequence[str], maintainer: str = "maintainer") -> Ledger:
    """Create the files of a new session. Raises Exists, and writes nothing, if one of them exists."""
    check_name("project", project)
    for name in agents:
        agent_name(name, "agent")
    agent_name(maintainer, "maintainer")
    if len({name.casefold() for name in (*agents, maintainer)}) != len(agents) + 1:
        raise Invalid("two agents have the same name", hint="names are compared without case")
    texts = template_texts(session, project, agents, maintainer)
    os.makedirs(session.folder.path, exist_ok=True)
    with session.write_lock():
        for path in texts:
            session.folder.make(path)
            if session.folder.signature(path) is not None and path != IGNORE:
                hint = RESTORE_LEDGER
                if path == TURNFILE:  # the first of them: without it the others cannot be restored
                    hint = (
                        "turnfile.restore(session) creates only the missing files; new agents join with their first"
                        " lock or task; to begin again with other names, move the folder away first"
                    )
                raise Exists(f"{path} already exists; nothing was written", hint=hint, path=path)
        if session.folder.signature(IGNORE) is not None:
            del texts[IGNORE]
        session.replace(texts, dict.fromkeys(texts))
    return ledger.read(texts[TURNFILE])


def restore(session: Session) -> list[str]:
    """Create the missing files of a session, with the names of its ledger; returns their paths. Raises NotFound."""
    with session.write_lock():
        turnfile = session.fresh().turnfile
        agents = [agent.id for agent in turnfile.agents]
        maintainer = turnfile.maintainer.id or "maintainer"
        texts = template_texts(session, turnfile.project, agents, maintainer)
        if (mailbox := session.folder.read(MAILBOX)) is not None:
            damage.refuse(MAILBOX, mailbox)
            workspace = session.workspace(session.fresh())
            texts[PROJECTION] = render_projection(mailbox, None, workspace, session.timestamp())
        gone = {path: text for path, text in texts.items() if session.folder.signature(path) is None}
        for path in gone:
            session.folder.make(path)
        if gone:
            session.replace(gone, dict.fromkeys(gone))
    return list(gone)
