"""Turn files: the safe way to change the shared files of a working session.

    from holdfast import turnfile
    with turnfile.transaction(["WORKLOG.md"], "ada", "log the release") as edit:
        edit.write("WORKLOG.md", edit.read("WORKLOG.md") + "- released\\n")

Files only: no database, no daemon, and no import of the rest of Holdfast but its errors. The file is the truth, and
people read it; what a change does not mean stays byte for byte. Names are loaded when they are first used.

Pure are `model` and the packages `ledger`, `mailbox` and `papers`, each of which knows only those before it; the
modules beside them touch files: `files`, `journal` and `session` below, then `claiming`, `acquiring`, `transacting` and
the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.turnfile.edits import Completion, Transaction
    from holdfast.turnfile.escalation import Claim, claim_of
    from holdfast.turnfile.ledger import Ledger
    from holdfast.turnfile.ledger.rules import lint
    from holdfast.turnfile.locks import Patience, acquire, clear_stale, release, renew, renew_all
    from holdfast.turnfile.mail import Mailed, Mailing
    from holdfast.turnfile.model import Agent, Lock, Problem, Signal, Task, Turnfile
    from holdfast.turnfile.overrides import Overridden, override, unlock, unlock_all
    from holdfast.turnfile.report import Status, check, status
    from holdfast.turnfile.session import Session
    from holdfast.turnfile.skeleton import init, restore
    from holdfast.turnfile.transactions import transact, transaction

__all__ = [
    "Agent",
    "Claim",
    "Completion",
    "Ledger",
    "Lock",
    "Mailed",
    "Mailing",
    "Overridden",
    "Patience",
    "Problem",
    "Session",
    "Signal",
    "Status",
    "Task",
    "Transaction",
    "Turnfile",
    "acquire",
    "check",
    "claim_of",
    "clear_stale",
    "init",
    "lint",
    "override",
    "release",
    "renew",
    "renew_all",
    "restore",
    "status",
    "transact",
    "transaction",
    "unlock",
    "unlock_all",
]

# Where a name comes from.
_HOMES = {
    **dict.fromkeys(("Agent", "Lock", "Problem", "Signal", "Task", "Turnfile"), "model"),
    **dict.fromkeys(("Claim", "claim_of"), "escalation"),
    **dict.fromkeys(("Patience", "acquire", "clear_stale", "release", "renew", "renew_all"), "locks"),
    **dict.fromkeys(("Completion", "Transaction"), "edits"),
    **dict.fromkeys(("transact", "transaction"), "transactions"),
    **dict.fromkeys(("unlock", "unlock_all"), "overrides"),
    **dict.fromkeys(("Mailed", "Mailing"), "mail"),
    **dict.fromkeys(("Overridden", "override"), "overrides"),
    **dict.fromkeys(("Status", "check", "status"), "report"),
    "Ledger": "ledger",
    "Session": "session",
    **dict.fromkeys(("init", "restore"), "skeleton"),
    "lint": "ledger.rules",
}


if not TYPE_CHECKING:  # a type checker sees the imports above, and complains about any other name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'holdfast.turnfile' has no attribute {name!r}")
        return getattr(import_module(f"holdfast.turnfile.{_HOMES[name]}"), name)

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
