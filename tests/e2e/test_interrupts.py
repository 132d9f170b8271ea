"""Signals that raise in the main thread, wherever it is: nothing hangs, nothing stays locked, nothing is half done."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

STORM = """
    import random, signal, sys
    import holdfast
    from holdfast import errors

    folder, form, seed = sys.argv[1:]
    random.seed(seed)
    ws = holdfast.open(folder, actor="struck")
    other = holdfast.open(folder, actor="other", busy_timeout=5)
    acknowledged = 0
    ws.cells.set("run", "count", 0)

    def work():
        global acknowledged
        match form:
            case "increment":
                acknowledged = ws.cells.increment("run", "count")
            case "transact":
                acknowledged = ws.transact(lambda tx: tx.cells.increment("run", "count"))
            case "block":
                with ws.transaction() as tx:
                    value = tx.cells.increment("run", "count")
                acknowledged = value
            case "lock":
                ws.locks.acquire("door", ttl=60)
                acknowledged = ws.cells.increment("run", "count")
                ws.locks.release("door")
            case "list":
                acknowledged = ws.cells.increment("run", "count")
                ws.cells.list("run")

    for strike in range(STRIKES):
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            # Again after a second: Python passes over what is raised in the callback of a weak reference.
            signal.setitimer(signal.ITIMER_REAL, 0.0005 + random.random() * 0.004, 1)
            while True:
                work()
        except KeyboardInterrupt:
            pass
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        other.cells.set("run", "other", strike)
        ws.cells.set("run", "own", strike)
        assert ws.cells.list("run")
        assert ws.cells.get("run", "count").value >= acknowledged
    problems = ws.check().problems
    other.close()
    ws.close()
    print(acknowledged > 0, problems)
"""
STRIKES = 100


@pytest.mark.parametrize("form", ["increment", "transact", "block", "lock", "list"])
def test_a_signal_that_raises_anywhere_in_a_call_leaves_the_workspace_usable(form: str, tmp_path: Path) -> None:
    script = textwrap.dedent(STORM).replace("STRIKES", str(STRIKES))
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "store"), form, "7"],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONFAULTHANDLER": "1"},
    )
    assert done.stdout.split("\n")[0] == "True []", done.stderr


def test_a_body_that_takes_long_can_be_interrupted(tmp_path: Path) -> None:
    script = """
        import signal, sys, time
        import holdfast

        ws = holdfast.open(sys.argv[1], actor="struck")

        def body(tx):
            tx.cells.set("run", "cell", 1)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            signal.pause()
            time.sleep(60)

        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            ws.transact(body)
        except KeyboardInterrupt:
            print(ws.cells.find("run", "cell"), ws.cells.set("run", "next", 1), ws.check().ok)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("None 1 True\n", "")
