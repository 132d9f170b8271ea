"""Turn files: the safe way to change the shared files of a working session.

    from holdfast import turnfile
    with turnfile.transaction(["WORKLOG.md"], "ada", "log the release") as edit:
        edit.write("WORKLOG.md", edit.read("WORKLOG.md") + "- released\\n")

Files only: no database, no daemon, no clock; of Holdfast it imports the errors alone. The files are the truth and
people read them, so a change leaves every other byte as it was.

`model`, `ledger`, `mailbox`, `worklog` and `invariants` are pure: text in, text out. `files` and `session` read and
write; `locks`, `transactions` and the rest are built on those. Names are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.turnfile import mail as mail
    from holdfast.turnfile import tasks as tasks
    from holdfast.turnfile.ledger import Ledger
    from holdfast.turnfile.ledger.rules import lint
    from holdfast.turnfile.locks import (
        LockRequest,
        OverrideResult,
        WaitPolicy,
        acquire,
        clear_stale,
        lock_request,
        override,
        release,
        renew_all,
        unlock,
        unlock_all,
    )
    from holdfast.turnfile.mail import Mail, MailResult
    from holdfast.turnfile.model import Agent, Completion, Lock, Problem, Signal, Task, Turnfile
    from holdfast.turnfile.repairs import Repair, TidyResult, tidy
    from holdfast.turnfile.report import Status, check, status
    from holdfast.turnfile.session import Session
    from holdfast.turnfile.skeleton import init, restore
    from holdfast.turnfile.transactions import Transaction, transact, transaction

__all__ = ["Agent", "Completion", "Ledger", "Lock", "Problem", "Session", "Signal", "Status", "Task", "Turnfile"]
__all__ += ["LockRequest", "Mail", "MailResult", "OverrideResult", "Repair", "TidyResult", "Transaction", "WaitPolicy"]
__all__ += ["acquire", "clear_stale", "lock_request", "override", "release", "renew_all", "unlock", "unlock_all"]
__all__ += ["check", "init", "lint", "restore", "status", "tidy", "transact", "transaction"]

_MODULES = ("mail", "tasks")
# The module that each name is loaded from.
_HOMES = {
    **dict.fromkeys(("Agent", "Completion", "Lock", "Problem", "Signal", "Task", "Turnfile"), "model"),
    **dict.fromkeys(("LockRequest", "OverrideResult", "WaitPolicy", "acquire", "clear_stale", "lock_request"), "locks"),
    **dict.fromkeys(("override", "release", "renew_all", "unlock", "unlock_all"), "locks"),
    **dict.fromkeys(("Transaction", "transact", "transaction"), "transactions"),
    **dict.fromkeys(("Mail", "MailResult"), "mail"),
    **dict.fromkeys(("Status", "check", "status"), "report"),
    **dict.fromkeys(("init", "restore"), "skeleton"),
    **dict.fromkeys(("Repair", "TidyResult", "tidy"), "repairs"),
    **{"Ledger": "ledger", "Session": "session", "lint": "ledger.rules"},
}


if not TYPE_CHECKING:  # a type checker sees the imports above, and rejects any other name

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"holdfast.turnfile.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.turnfile' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.turnfile.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
