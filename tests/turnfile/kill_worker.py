"""A process that edits mailbox and worklog once, and kills itself at the n-th time that it reaches a failpoint."""

from __future__ import annotations

import os
import signal
import sys

from holdfast.turnfile import Session, files, transact
from holdfast.turnfile.mailbox.draft import Draft, compose
from holdfast.turnfile.model import MAILBOX, WORKLOG
from holdfast.turnfile.transactions import Transaction
from tests.turnfile.sessions import day


def edit(transaction: Transaction) -> str:
    """Send a message, and note it in the worklog."""
    draft = Draft("ada", "bob", "from the worker", "2026-06-12")
    text, message = compose(transaction.read(MAILBOX) or "", draft)
    transaction.write(MAILBOX, text)
    transaction.write(WORKLOG, (transaction.read(WORKLOG) or "") + f"- sent {message}\n")
    return message


def main(folder: str, place: str, times: int) -> None:
    """Run the edit, and die at the place."""
    reached = 0

    def hook(name: str) -> None:
        nonlocal reached
        if name == place:
            reached += 1
            if reached == times:
                os.kill(os.getpid(), signal.SIGKILL)

    files.hook = hook
    transact([MAILBOX, WORKLOG], "ada", "kill test", edit, folder=Session(folder, now=day), wait=None)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
