"""Turn files for tests: one as a tool writes it, and the ways in which people write the same."""

from __future__ import annotations

TIDY = """\
# TURNFILE.yaml
# Project: kiln
# Last modified revision: 7
# Modified by: ada

turnfile:
  version: "0.1"
  project: "kiln"
  workspace: "working-session/"

agents:
  ada:
    role: "agent"
    status: "active"
    current_task: "glaze"
    last_seen: "session-3"
    session_id: "ada-3"
  bob:
    role: "agent"
    status: "idle"
    current_task: null
    last_seen: null
    session_id: null

maintainer:
  id: "mia"
  status: "available"
  last_seen: null

coordination:
  revision: 7
  active_phase: "phase-1"
  active_step: null

  tasks:
    clay:
      description: "Dig the clay: wet, and not too sandy"
      owner: "bob"
      status: "done"
      priority: "P0"
      depends_on: []
      created_by: "mia"
      created_rev: 1
      claim_rev: 2
      completed_rev: 5
      notes: ""
    glaze:
      description: "Mix the glaze"
      owner: "ada"
      status: "in_progress"
      priority: "P1"
      depends_on: ["clay"]
      created_by: "mia"
      created_rev: 1
      claim_rev: 6
      completed_rev: null
      notes: ""

locks: {}

turn_queue: []

messages:
  - id: "SIG-002"
    from: "bob"
    to: "all"
    signal: "handoff"
    rev: 5
    detail: "clay is dug"
  - id: "SIG-001"
    from: "ada"
    to: "all"
    signal: "ready"
    rev: 1
    detail: "begun"
"""

ODD = """\
# A file that somebody cares for.
#    Last modified revision:  7
# Modified by: 'Ada L.'   \n\

turnfile: {version: 0.1, project: 'kiln', x-colour: "#a0522d"}   # flow, a number as the version
agents:
    ada: {role: agent, status: active}      # four spaces here
    bob:
        role:    agent
        status:  'idle'
        mood: >-
          folded
          text

maintainer: { id: mia }
coordination:
  # the clock of this file
  revision:   7      # do not touch
  active_phase: phase-1
  active_step:
  tasks: {}
locks:          # who edits what
  # the control plane
  control-plane-update:
    files:
    - "working-session/MAILBOX.md"   # the mail
    - working-session/WORKLOG.md
    holder: bob
    acquired_rev: 6
    reason: "a very long line, %s, that no dumper may fold" # and a comment after it
  zz: {files: [working-session/docs/README.md], holder: ada, acquired_rev: 7, lease_revs: 4, reason: ''}

turn_queue: []   # nobody waits
messages:
- {id: SIG-001, from: ada, to: all, signal: ready, rev: 1, detail: "begun"}
x-extra:
  - 1
  - [a, b]
""" % ("word " * 40)

RISING = TIDY[: TIDY.index("messages:")] + (
    'messages:\n  - {id: "SIG-001", from: "ada", to: "all", signal: "ready", rev: 1}\n'
    '  - {id: "SIG-002", from: "bob", to: "all", signal: "ready", rev: 2}\n'
)

LAYOUTS = {
    "tidy": TIDY,
    "odd": ODD,
    "rising": RISING,
    "crlf": TIDY.replace("\n", "\r\n"),
    "odd crlf": ODD.replace("\n", "\r\n"),
    "no final newline": TIDY.rstrip("\n"),
    "odd, no final newline": ODD.rstrip("\n"),
    "locks last": TIDY.replace("locks: {}\n\n", "") + "\nlocks: {}\n",
    "locks last, no newline": TIDY.replace("locks: {}\n\n", "") + "\nlocks: {}",
    "a comment after the braces": TIDY.replace("locks: {}", "locks: {}   # nobody"),
    "nothing after locks": TIDY.replace("locks: {}", "locks:"),
    "no locks at all": TIDY.replace("locks: {}\n\n", ""),
    "no messages": TIDY[: TIDY.index("messages:")] + "messages: []\n",
    "byte order mark": "\ufeff" + TIDY,
    "no header": TIDY[TIDY.index("turnfile:") :],
    "minimal": "coordination:\n  revision: 0\n",
    "one flow": "{coordination: {revision: 3}, locks: {}, messages: []}\n",
    "json": '{"coordination": {"revision": 3},\n "locks": {"a": {"files": ["x"], "holder": "h", "acquired_rev": 2}}}',
    "document marker": "---\n" + TIDY,
}
