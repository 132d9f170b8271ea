"""Bugs at the door: a guard that lets through, names that are guessed, reads that see what nobody committed."""

from __future__ import annotations

from tests.teeth.bug import Bug

LINE = ("tests/cli/test_hook_line.py",)
IDENTITY = ("tests/cli/test_identity.py",)
BOUND = ("tests/cli/test_bound.py",)
NEWS = ("tests/cli/test_attend.py",)
SETUP = ("tests/cli/test_setup.py",)
READ_ONLY = ("tests/unit/test_read_only.py", "tests/cli/test_sandbox.py")

BUGS = [
    Bug(
        "a hook whose program ends otherwise allows",
        "faces/cli/setup/line.py",
        """*guard*) exit $bad;; *) exit 1;; esac""",
        """*guard*) exit 1;; *) exit 1;; esac""",
        LINE,
    ),
    Bug(
        "one of several sessions is guessed",
        "client_sessions.py",
        """        if len(set(found)) > 1:
            raise Several(", ".join(sorted(set(found))))
""",
        "",
        IDENTITY,
    ),
    Bug(
        "a session of a bound token acts under a name of its own",
        "faces/cli/commands/agents.py",
        """            return session.bound or own
""",
        """            return own
""",
        BOUND,
    ),
    Bug(
        "a check of setup leaves a record of a run",
        "faces/cli/commands/agents.py",
        """        if id == self._hooks.PROBE:
            return None
""",
        "",
        BOUND,
    ),
    Bug(
        "a claim is recalled whenever the agent wants to stop",
        "faces/cli/commands/reminders.py",
        """    news = [task for task in claims if task.id not in known.recalled and not task.parked]
""",
        """    news = claims
""",
        NEWS,
    ),
    Bug(
        "the end of a session releases what it parked",
        "faces/cli/commands/reminders.py",
        """            if not task.parked
        ]
        kept""",
        """        ]
        kept""",
        NEWS,
    ),
    Bug(
        "mail is reported again",
        "faces/cli/commands/reminders.py",
        """ for each in inbox if each.id not in known.mail]
""",
        """ for each in inbox]
""",
        NEWS,
    ),
    Bug(
        "an edit that the agent does not hear swallows the news",
        "faces/cli/commands/reminders.py",
        """    asks = heard and (""",
        """    asks = (""",
        NEWS,
    ),
    Bug(
        "a claim that its holder gave back is lost when another takes the task",
        "faces/cli/commands/reminders.py",
        """            if change.old_value == actor:
                return bool(change.changed_by != actor)
""",
        """            if change.old_value == actor:
                return True
""",
        NEWS,
    ),
    Bug(
        "what one worktree removes the others need",
        "faces/cli/setup/clients.py",
        """ for tree in worktrees(str(root)) for client in CLIENTS)
""",
        """ for tree in [str(root)] for client in CLIENTS)
""",
        SETUP,
    ),
    Bug(
        "a file that was wanted and is gone is no problem",
        "faces/cli/setup/clients.py",
        """    if (known := chosen(root, client)) is not None:
        return _problems(client, root, known)
""",
        "",
        SETUP,
    ),
    Bug(
        "a reader shows what has expired",
        "kernel/read_only.py",
        """            _end_due(copy.keeper, time)
""",
        "",
        READ_ONLY,
    ),
    Bug(
        "a reader without an index overlooks the write-ahead log",
        "kernel/read_only.py",
        """        if os.path.exists(self.path + _WAL) and os.path.getsize(self.path + _WAL):
            return self._open_unpacked()
""",
        "",
        READ_ONLY,
    ),
    Bug(
        "a reader does not miss commits that were acknowledged",
        "kernel/read_only.py",
        """            if mark is None or has_commit(connection, mark):
""",
        """            if True:
""",
        READ_ONLY,
    ),
]
