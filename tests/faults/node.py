"""A node process: callers that write without a pause, and a ledger of what was acknowledged to them.

Each write is one keyed transaction that adds 1 to the caller's own cell and to one that all callers share. A call that
fails is repeated with the same key until it is acknowledged; so the n-th acknowledgement of a caller must answer n, and
the shared cell must end as the number of all acknowledgements. Errors are counted by their codes.

It is told what to do on its stdin: "stop" ends the callers, "report" prints the ledger's sums as one line of JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter

import holdfast
from holdfast import errors
from holdfast.workspace.transaction import Transaction
from tests.worlds.contents import fingerprint

RUN, SHARED = "faults", "all"
_PAUSE = 0.02  # seconds between two writes of a caller


class Caller:
    """One thread that writes."""

    def __init__(self, ws: holdfast.Workspace, name: str, ledger: list[float], stop: threading.Event) -> None:
        self._ws, self._name, self._ledger, self._stop = ws, name, ledger, stop
        self.acknowledged = 0
        self.wrong: list[str] = []
        self.errors: Counter[str] = Counter()
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _write(self, tx: Transaction) -> int:
        tx.cells.increment(RUN, SHARED)
        return int(tx.cells.increment(RUN, self._name))

    def _work(self) -> None:
        while not self._stop.wait(_PAUSE):
            wanted = self.acknowledged + 1
            while True:
                try:
                    found = self._ws.using(key=f"{self._name}-{wanted}").transact(self._write)
                    break
                except errors.HoldfastError as error:
                    self.errors[error.code] += 1
                    if not error.retryable and not isinstance(error, errors.OutcomeUnknown):
                        self.wrong.append(f"{self._name}: {error!r}")
                        return
            self.acknowledged = wanted
            self._ledger.append(time.time())
            if found != wanted:
                self.wrong.append(f"{self._name}: acknowledgement {wanted} has the value {found}")
                return


def main(url: str, folder: str, name: str, callers: int) -> None:
    """Write until told otherwise; see the module for the words."""
    stop, ledger = threading.Event(), list[float]()
    with holdfast.open(url, folder=folder, actor=name, create=True) as ws:
        team = [Caller(ws, f"{name}-{number}", ledger, stop) for number in range(callers)]
        for line in sys.stdin:
            match line.strip():
                case "count":
                    answer: object = len(ledger), ledger[-1] if ledger else 0.0
                case "stop":
                    stop.set()
                    for caller in team:
                        caller.thread.join()
                    answer = "stopped"
                case _:
                    answer = _report(ws, team)
            print(json.dumps(answer), flush=True)


def _report(ws: holdfast.Workspace, team: list[Caller]) -> dict[str, object]:
    latest = ws.using(at_least="latest")
    wrong = [text for caller in team for text in caller.wrong]
    for caller in team:
        cell = latest.cells.find(RUN, caller._name)
        if caller.acknowledged != (0 if cell is None else cell.value):
            wrong.append(f"{caller._name}: {caller.acknowledged} acknowledged, the cell is {cell}")
    shared = latest.cells.find(RUN, SHARED)
    return {
        "acknowledged": sum(caller.acknowledged for caller in team),
        "shared": 0 if shared is None else shared.value,
        "wrong": wrong,
        "errors": dict(sum((caller.errors for caller in team), Counter[str]())),
        "fingerprint": fingerprint(ws),
        "problems": [str(problem) for problem in ws.check().problems],
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
