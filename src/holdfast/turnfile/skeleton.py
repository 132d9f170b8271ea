"""A new working session: its folder with ledger, mailbox, projection, worklog and questions.

Pure: `texts` answers what to write, `beginning` writes it.

`init` never overwrites: a folder that has any of the files already is refused, and left as it is. `restore` makes anew
what is missing of a session, the projection from the mailbox and the rest empty, and touches nothing that is there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from holdfast.errors import Exists, Invalid
from holdfast.turnfile import ledger
from holdfast.turnfile.invariants import projected
from holdfast.turnfile.ledger import Ledger, check_name, rules
from holdfast.turnfile.ledger.yaml_edit import Change, Put
from holdfast.turnfile.mailbox.composition import agent_name
from holdfast.turnfile.model import MAILBOX, PROJECTION, QUESTIONS, TURNFILE, WORKLOG
from holdfast.turnfile.session import Session

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


def template_texts(name: str, project: str, agents: Sequence[str], maintainer: str, timestamp: str) -> dict[str, str]:
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
        TURNFILE: ledger.read(_TURNFILE).changed(changes).stamped(1, maintainer).text,
        MAILBOX: mailbox,
        PROJECTION: projected(mailbox, None, name or rules.DEFAULT_WORKSPACE, timestamp),
        WORKLOG: _WORKLOG.format(project=project, date=today, working=working),
        QUESTIONS: _QUESTIONS.format(project=project),
        README: _README.format(project=project),
        IGNORE: _IGNORE,
    }


def init(session: Session, project: str, agents: Sequence[str], maintainer: str = "maintainer") -> Ledger:
    """Make the files of a new session. Raises Exists if one of them is there, and writes nothing then."""
    check_name("project", project)
    for name in agents:
        agent_name(name, "agent")
    agent_name(maintainer, "maintainer")
    if len({name.casefold() for name in (*agents, maintainer)}) != len(agents) + 1:
        raise Invalid("two of the names are the same")
    name = os.path.basename(session.folder.path)
    texts = template_texts(name, project, agents, maintainer, session.timestamp())
    os.makedirs(session.folder.path, exist_ok=True)
    with session.turn():
        for path in texts:
            session.folder.make(path)
            if session.folder.signature(path) is not None and path != IGNORE:
                raise Exists(
                    f"{path} is there already: nothing was written",
                    hint="`turn init --missing` makes only what is missing",
                    path=path,
                )
        if session.folder.signature(IGNORE) is not None:
            del texts[IGNORE]
        session.replace(texts, dict.fromkeys(texts))
    return ledger.read(texts[TURNFILE])


def restore(session: Session) -> list[str]:
    """Make the missing files of a session anew, with the names that its ledger has; answers which. Raises NotFound."""
    with session.turn():
        turnfile = session.fresh().turnfile
        agents = [agent.id for agent in turnfile.agents]
        maintainer = turnfile.maintainer.id or "maintainer"
        name = os.path.basename(session.folder.path)
        texts = template_texts(name, turnfile.project, agents, maintainer, session.timestamp())
        if (mailbox := session.folder.read(MAILBOX)) is not None:
            texts[PROJECTION] = projected(mailbox, None, session.workspace(session.fresh()), session.timestamp())
        gone = {path: text for path, text in texts.items() if session.folder.signature(path) is None}
        for path in gone:
            session.folder.make(path)
        if gone:
            session.replace(gone, dict.fromkeys(gone))
    return list(gone)
