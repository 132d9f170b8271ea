"""A process that fights for the mailbox: each transaction sends a message and logs it in the worklog.

It waits long for the revision to move, so that only who is really stuck would ask the maintainer. Prints a line for
each transaction that it was told is complete. Killed at random moments by the test.
"""

from __future__ import annotations

import json
import sys

from holdfast.turnfile import Session, WaitPolicy, transact
from holdfast.turnfile.mailbox.draft import Draft, compose
from holdfast.turnfile.model import MAILBOX, WORKLOG
from holdfast.turnfile.transactions import Transaction
from tests.turnfile.sessions import day


def main(folder: str, agent: str, receiver: str, first: int, count: int, stuck: float) -> None:
    """Make so many transactions, each with a number of its own."""
    session = Session(folder, now=day, write_timeout=300.0)
    wait = WaitPolicy(interval=stuck, checks=10_000)
    for number in range(first, first + count):

        def body(edit: Transaction, number: int = number) -> str:
            text = edit.read(MAILBOX) or ""
            draft = Draft(agent, receiver, f"{agent} {number}", "2026-06-12")
            text, message = compose(text, draft)
            edit.write(MAILBOX, text)
            edit.write(WORKLOG, (edit.read(WORKLOG) or "") + f"- {agent} {number} {message}\n")
            return message

        done = transact([MAILBOX, WORKLOG], agent, "fight", body, folder=session, wait=wait)
        print(json.dumps({"number": number, "message": done.result, "revision": done.revision}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]))
