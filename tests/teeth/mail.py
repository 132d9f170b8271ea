"""Bugs in agents, mail and resume: mail that is lost, closed by the wrong one or never done; names that two share."""

from __future__ import annotations

from tests.teeth.bug import Bug

MAIL = ("tests/conformance/test_mail.py", "--kinds", "memory")
AGENTS = ("tests/conformance/test_agents.py", "--kinds", "memory")
BOTH = ("tests/conformance/test_mail.py", *AGENTS)
TOGETHER = ("tests/conformance/test_one_commit.py", *MAIL)
RESUME = ("tests/conformance/test_resume.py", "--kinds", "memory")

BUGS = [
    Bug(
        "an agent that wrote at this time before the clock was reset is not seen",
        "kernel/batch.py",
        """actors.record(self._writers, stamp, self""",
        """actors.record(self._writers, self.now, self""",
        AGENTS,
    ),
    Bug(
        "a page of last-seen times that was not written goes unnoticed",
        "domains/agents.py",
        """    yield from activity.check(snapshot)
""",
        "",
        ("tests/unit/test_check_columns.py", "-k", "actors"),
    ),
    Bug(
        "an agent that is forgotten is still in the sum of those that were seen",
        "kernel/activity.py",
        """        tx.run(_SUM, (-_mark(name, row[0]) % _PRIME,))
""",
        "",
        AGENTS,
    ),
    Bug(
        "unread counts closed mail",
        "domains/mail/__init__.py",
        """        "UPDATE mailboxes SET unread = unread - 1 WHERE agent IN"
""",
        """        "UPDATE mailboxes SET unread = unread - 0 WHERE agent IN"
""",
        MAIL,
    ),
    Bug(
        "an inbox shows closed mail",
        "domains/mail/messages.py",
        """    index = "deliveries_unread" if unread else "deliveries_all" if closed else "deliveries_open"
    only = " AND d.status = 'unread'" if unread else "" if closed else " AND d.status <> 'closed'"
""",
        """    index = "deliveries_unread" if unread else "deliveries_all"
    only = " AND d.status = 'unread'" if unread else ""
""",
        MAIL,
    ),
    Bug(
        "a page of mail begins with the last message of the page before",
        "domains/mail/messages.py",
        """WHERE d.agent = ?{only} AND d.message < ?"
""",
        """WHERE d.agent = ?{only} AND d.message <= ?"
""",
        MAIL,
    ),
    Bug(
        "a receiver may close",
        "domains/mail/__init__.py",
        """    if agent != stored.sender and agents""",
        """    if agent != stored.sender and status_of(tx, stored, agent) is None and agents""",
        MAIL,
    ),
    Bug(
        "a maintainer may not close",
        "domains/mail/__init__.py",
        """    if agent != stored.sender and agents.role_of(tx, agent) != "maintainer":
""",
        """    if agent != stored.sender:
""",
        MAIL,
    ),
    Bug(
        "what nobody acknowledged can be blocked",
        "domains/mail/__init__.py",
        """    "block": (("acknowledged",), "blocked"),
""",
        """    "block": (("unread", "acknowledged"), "blocked"),
""",
        MAIL,
    ),
    Bug(
        "a message is closed for one receiver only",
        "domains/mail/__init__.py",
        """SET status = 'closed', updated = ? WHERE message = ?", (tx.now, stored.seq))
""",
        """SET status = 'closed', updated = ? WHERE message = ? AND agent ="
        " (SELECT min(agent) FROM deliveries WHERE message = ?)",
        (tx.now, stored.seq, stored.seq),
    )
""",
        MAIL,
    ),
    Bug(
        "a step moves the message for all",
        "domains/mail/__init__.py",
        """        "UPDATE deliveries SET status = ?, updated = ? WHERE message = ? AND agent = ?",
        (target, tx.now, stored.seq, agent),
""",
        """        "UPDATE deliveries SET status = ?, updated = ? WHERE message = ?",
        (target, tx.now, stored.seq),
""",
        MAIL,
    ),
    Bug(
        "a reply acknowledges",
        "domains/mail/__init__.py",
        """    receivers = _check_to(to)
    return _send""",
        """    receivers = _check_to(to)
    tx.run("UPDATE deliveries SET status = 'acknowledged' WHERE message = ? AND agent = ?", (original.seq, sender))
    return _send""",
        MAIL,
    ),
    Bug(
        "a reply leaves the thread",
        "domains/mail/__init__.py",
        """subject, body, original.thread, original.task, urgency""",
        """subject, body, None, original.task, urgency""",
        MAIL,
    ),
    Bug(
        "a message to all reaches who only looks on",
        "domains/agents.py",
        """        " EXCEPT SELECT name FROM agents WHERE role = 'observer' ORDER BY name"
""",
        """        " ORDER BY name"
""",
        BOTH,
    ),
    Bug(
        "a message to all comes back to its sender",
        "domains/mail/__init__.py",
        """    names = tuple(name for name in agents.known(tx) if name != sender)
""",
        """    names = tuple(agents.known(tx))
""",
        MAIL,
    ),
    Bug(
        "threads need not be closed first",
        "domains/tasks/transitions.py",
        """    if messages:
        message""",
        """    if len(messages) > 1:
        message""",
        TOGETHER,
    ),
    # --- agents
    Bug(
        "a derived actor may claim, lock and mail",
        "kernel/leases.py",
        """        if isinstance(actor, DerivedActor):
            source""",
        """        if not actor:
            source""",
        BOTH,
    ),
    Bug(
        "who acts in another's transaction is not recorded",
        "kernel/tx.py",
        """            self.seen = (*self.seen, name)
""",
        """            self.seen = ()
""",
        AGENTS,
    ),
    Bug(
        "registering again forgets what is not said",
        "domains/agents.py",
        """    agent = msgspec.structs.replace(old, **{field: value for field, (_, value) in changes.items()})
""",
        """    blank = Agent(name, "", "", "agent", (), None, None, 0, 0)
    agent = msgspec.structs.replace(blank, **{field: value for field, (_, value) in changes.items()})
""",
        AGENTS,
    ),
    Bug(
        "a new agent may have a name that is taken",
        "domains/agents.py",
        """    if new and old is not None:
""",
        """    if new and old is not None and old.registered_at is None:
""",
        AGENTS,
    ),
    # --- resume
    Bug(
        "a resume ignores the budget",
        "domains/tasks/resume.py",
        """            if self.omitted.get(name) or size > self.left or most < 0:
""",
        """            if self.omitted.get(name):
""",
        RESUME,
    ),
    Bug(
        "a resume does not know what the last holder had locked",
        "domains/paths/__init__.py",
        """        " AND a.op = 'acquire' WHERE e.revision = ? AND r.kind = ? AND e.op IN ('expire', 'release')",
""",
        """        " AND a.op = 'acquire' WHERE e.revision = ? AND r.kind = ? AND e.op = 'release'",
""",
        RESUME,
    ),
]
