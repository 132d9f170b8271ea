"""Mailboxes, worklogs and questions for the tests, in every dialect."""

from __future__ import annotations

import os
from pathlib import Path

SAMPLES = Path(os.environ.get("TURN_SAMPLES", Path(__file__).resolve().parents[2] / "../shared/samples/turnfile"))

HEAD = """\
# Mailbox (Harbour)

Date initialized: 2026-03-01
Protocol: `docs/PROTOCOL.md`
Full history: `working-session/MAILBOX_ARCHIVE.md` (made on the first close)

## Quick Reply

1. Look below, and answer under the card.

"""
CLOSED = """\
## Closed Summary

| ID | Date | From -> To | Final status | Outcome |
|----|------|------------|--------------|---------|
| MSG-20260301-001 | 2026-03-01 | Ada -> Bob | closed | agreed |
"""

EMPTY = (
    HEAD
    + """\
## Inbox Snapshot

| Agent | Unread | Oldest unread | Needs response by |
|-------|--------|---------------|-------------------|
| Ada | 0 | none | none |
| Bob | 0 | none | none |
| Maintainer | 0 | none | none |

## Open Queue (Newest First)

| ID | From -> To | Priority | Subject |
|----|------------|----------|---------|

## Active Messages (Newest First)

## Closed Summary

| ID | Date | From -> To | Final status | Outcome |
|----|------|------------|--------------|---------|
"""
)

BOLD = (
    HEAD
    + """\
## Inbox Snapshot

| Agent      | Unread | Oldest unread    | Needs response by |
|------------|--------|------------------|-------------------|
| Ada        | 0      | none             | none |
| Bob        | 1      | MSG-20260302-001 | first turn |
| Maintainer | 0      | none             | none |

## Open Queue (Newest First)

| ID | From -> To | Priority | Subject |
|----|------------|----------|---------|
| MSG-20260302-002 | Bob -> Ada | P2 | Pipes \\| and such |
| MSG-20260302-001 | Ada -> Bob | P1 | Read the plan |

## Active Messages (Newest First)

---

### MSG-20260302-002

**From:** Bob -> Ada
**Date:** 2026-03-02
**Type:** notify
**Priority:** P2
**Status:** acknowledged
**Subject:** Pipes | and such
**Closure owner:** Bob

A body with structure of its own.

### MSG-20260301-001 again

#### Deeper

| a | b |
|---|---|
| 1 | 2 |

```text
### MSG-20260302-009

**Status:** closed
## Closed Summary
```

**Note:** this is text.

**Ack:** Ada — 2026-03-02. acknowledged: seen.

---

### MSG-20260302-001

**From:** Ada -> Bob
**Date:** 2026-03-02
**Type:** request
**Priority:** P1
**Status:** unread
**Subject:** Read the plan
**Review scope:** full

Please read `plan.md`.

## A heading of the document

The end.

"""
    + CLOSED
)

TABLE = """\
# Mailbox

## Inbox Snapshot

| Agent | Unread | Oldest unread | Needs response by |
|---|---|---|---|
| Ada | 1 | MSG-20260303-001 | none |

## Open Queue

| ID | Date | From → To | Pri | Status | Due | Subject |
|---|---|---|---|---|---|---|
| MSG-20260303-001 | 2026-03-03 | Bob → Ada | P0 | Unread | soon | Table card |

## Active Messages

### MSG-20260303-001

| Field | Value |
|-------|-------|
| From | Bob |
| To | Ada |
| Type | request |
| Priority | P0 |
| Status | unread |
| Subject | Table card |

**Summary**
- One thing.
- Another thing
  over two lines.

**Ack**
- Bob — 2026-03-03: sent.

## Closed Summary (Newest First)

| ID | From -> To | Subject | Final status | Closed by |
|----|------------|---------|--------------|-----------|
"""

MIXED = TABLE.replace(
    "**Summary**",
    """\
**From:** Bob -> Ada
**Date:** 2026-03-03
**Status:** unread
**Closure owner:** Bob

**Summary**""",
)

PLAIN = """\
# Mailbox (first form)

Date initialized: 2026-02-01  
Protocol: `notes/protocol.md`

## Inbox Status (kept by hand)

| Agent | Unread | Oldest unread | Needs response by |
|-------|--------|---------------|-------------------|
| Ada | 1 | MSG-20260201-002 | none |
| Bob | 0 | none | none |

---

Message ID: MSG-20260201-001  
Date: 2026-02-01T08:30:00+01:00  
From: Ada  
To: Bob  
Type: request  
Priority: P1  
Related: `plan.md`  
Status: actioned
Subject: Review the plan

Body:
Please read:
1) the plan,

Message ID: is only a word here.

Ack:
Bob — 2026-02-01. Read and accepted.

---

Message ID: MSG-20260201-002  
Date: 2026-02-01  
From: Bob  
To: Ada  
Type: request  
Priority: P1  
Status: unread  
Subject: Counter-plan

Body:
Here it is.

---
"""  # noqa: W291

DIALECTS = {"bold": BOLD, "table": TABLE, "mixed": MIXED, "plain": PLAIN, "empty": EMPTY}

WORKLOG = """\
# Worklog

Now Working (ada): idle
Now Working (bob): the plan
Maintainer Focus: the harbour
Next Review Checkpoint: after the plan

## Decision Index

| Decision | Owner | Timestamp | Section |
|----------|-------|-----------|---------|
| One file per concept | Maintainer | 2026-03-01 | Session 1 |

## Session 2 — 2026-03-02

### Ada: Reading

Read it.

```text
Handoff: the plan
Owner: bob
Status: In progress
```

## Session 1 — 2026-03-01

### Carol: Start

Begun.
"""

QUESTIONS = """\
# Open Questions

## Active

| ID | Source | Question | Status | Resolution |
|----|--------|----------|--------|------------|
| OQ-001 | Ada | Which harbour | active | none |

## Deferred

| ID | Question | Reason |
|----|----------|--------|
| OQ-D01 | Which ship | later |

## Resolved

| ID | Question | Resolution | Date |
|----|----------|------------|------|
| OQ-R01 | Which sea | the near one | 2026-03-01 |
"""
