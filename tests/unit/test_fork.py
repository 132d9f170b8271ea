"""A workspace carried over a fork refuses every use in the child, and the parent does not notice.

Each test runs a script in a process of its own, where a fork can do no harm to the tests. In a script, `child(work)`
forks, runs `work` there, and answers what it printed.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PRELUDE = """
import gc, os, signal, sys, threading, warnings
signal.alarm(40)  # whatever hangs does not outlive the test; a child sets its own
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads: that is the point
import holdfast
from holdfast import errors

folder = sys.argv[1]
ws = holdfast.open(folder, actor="parent", busy_timeout=5)


def child(work):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(20)
        try:
            answer = repr(work())
        except BaseException as error:
            answer = type(error).__name__
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    assert os.waitpid(pid, 0)[1] == 0
    return answer


def block(ws):
    with ws.transaction() as tx:
        tx.cells.set("run", "child", 1)
"""


def run(folder: Path, script: str) -> list[str]:
    """The lines that a script prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


CALLS = {
    "a read": "ws.cells.get('run', 'cell')",
    "a list": "ws.cells.list('run')",
    "a write": "ws.cells.set('run', 'child', 1)",
    "a body": "ws.transact(lambda tx: tx.cells.set('run', 'child', 1))",
    "a block": "block(ws)",
    "a new watch": "ws.watch(timeout=0)",
    "an old watch": "next(watch)",
    "a cell's watch": "ws.cells.watch('run', 'cell', timeout=0)",
    "waiting for a lock": "ws.locks.acquire('lock', 'child', wait=1)",
    "the revision": "ws.revision",
    "a check": "ws.check()",
    "a backup": "ws.backup(folder + '/backup')",
    "another context": "ws.using(actor='child').cells.set('run', 'child', 1)",
}


@pytest.mark.parametrize("what", CALLS)
def test_every_use_in_a_forked_child_is_closed_and_the_parent_goes_on(tmp_path: Path, what: str) -> None:
    script = f"""
        ws.cells.set("run", "cell", 1)
        watch = ws.watch()
        print(child(lambda: {CALLS[what]}))
        print(ws.cells.set("run", "cell", 2), ws.cells.list("run"), next(watch).version, ws.check().ok)
    """
    assert run(tmp_path, script) == ["Closed", "2 ['cell'] 2 True"]


def test_closing_in_the_child_is_harmless_and_so_is_the_end_of_the_child(tmp_path: Path) -> None:
    script = """
        ws.cells.set("run", "cell", 1)
        print(child(ws.close))

        def collect():
            global ws
            ws = None
            gc.collect()

        print(child(collect))
        print(ws.cells.set("run", "cell", 2), ws.check().ok)
    """
    assert run(tmp_path, script) == ["None", "None", "2 True"]


def test_a_private_store_is_not_removed_by_a_child_that_ends(tmp_path: Path) -> None:
    script = """
        private = holdfast.open(":memory:", actor="parent")
        private.cells.set("run", "cell", 1)
        pid = os.fork()
        if pid == 0:
            sys.exit(0)  # an ordinary end, with all finalizers
        print(os.waitpid(pid, 0)[1])
        print(private.cells.set("run", "cell", 2))
    """
    assert run(tmp_path, script) == ["0", "2"]


def test_a_child_cannot_open_what_its_parent_had_open_and_the_parent_goes_on(tmp_path: Path) -> None:
    script = """
        ws.cells.set("run", "cell", 1)
        print(child(lambda: holdfast.open(folder, actor="child")))
        print(child(lambda: holdfast.open(folder + "/../" + os.path.basename(folder), actor="child")))
        watch = ws.watch(kinds=["cell"])
        print(ws.cells.set("run", "cell", 2), next(watch).version, ws.check().ok)
    """
    assert run(tmp_path, script) == ["Unsupported", "Unsupported", "2 2 True"]


def test_what_a_child_is_advised_to_do_is_possible(tmp_path: Path) -> None:
    script = """
        def hint(call):
            try:
                call()
            except errors.HoldfastError as error:
                return error.hint

        print(child(lambda: hint(lambda: ws.cells.list("run"))))
        print(child(lambda: hint(lambda: holdfast.open(folder, actor="child"))))
    """
    assert run(tmp_path, script) == ["'fork before opening the workspace, or start children with spawn or exec'"] * 2


def test_a_child_may_open_the_workspace_that_nobody_had_open_at_the_fork(tmp_path: Path) -> None:
    script = """
        ws.cells.set("run", "cell", 1)
        ws.close()

        def work():
            with holdfast.open(folder, actor="child") as mine:
                return mine.cells.set("run", "cell", 2)

        print(child(work))
        with holdfast.open(folder, actor="parent") as again:
            print(again.cells.set("run", "cell", 3), again.check().ok)
    """
    assert run(tmp_path, script) == ["2", "3 True"]


def test_a_fork_in_the_middle_of_a_commit_of_another_thread_leaves_the_child_closed_and_not_hanging(
    tmp_path: Path,
) -> None:
    script = """
        inside, go = threading.Event(), threading.Event()

        def body(tx):
            inside.set()
            go.wait()
            return tx.cells.set("run", "cell", 1)

        thread = threading.Thread(target=lambda: print(ws.transact(body)))
        thread.start()
        inside.wait()
        print(child(lambda: ws.cells.set("run", "child", 1)))
        print(child(lambda: ws.cells.find("run", "child")))
        print(child(ws.close))
        go.set()
        thread.join()
        print(ws.cells.list("run"))
    """
    assert run(tmp_path, script) == ["Closed", "Closed", "None", "1", "['cell']"]


def test_a_transaction_that_is_open_at_the_fork_is_the_parents_alone(tmp_path: Path) -> None:
    script = """
        with ws.transaction() as tx:
            tx.cells.set("run", "parent", 1)
            print(child(lambda: tx.cells.set("run", "child", 1)))
            print(child(lambda: tx.cells.find("run", "parent")))
            tx.cells.set("run", "parent", 2)
        print(ws.cells.list("run"), ws.cells.get("run", "parent").version, ws.check().ok)
    """
    assert run(tmp_path, script) == ["Closed", "Closed", "['parent'] 2 True"]


def test_a_child_that_leaves_the_block_of_its_parent_commits_nothing(tmp_path: Path) -> None:
    script = """
        pid = None
        try:
            with ws.transaction() as tx:
                tx.cells.set("run", "parent", 1)
                pid = os.fork()
                if pid:
                    os.waitpid(pid, 0)
                    raise LookupError("the parent takes it back")
        except LookupError:
            pass
        except errors.HoldfastError:
            os._exit(0)
        if pid == 0:
            os._exit(1)
        print(ws.cells.list("run"), ws.revision, ws.check().ok)
    """
    assert run(tmp_path, script) == ["[] 0 True"]


def test_the_turn_of_a_parent_that_died_is_not_kept_by_its_child(tmp_path: Path) -> None:
    script = """
        read, write = os.pipe()
        forked, alive = os.pipe()
        parent = os.fork()
        if parent == 0:
            signal.alarm(20)
            mine = holdfast.open(folder, actor="parent")
            inside = mine.transaction()
            inside.__enter__().cells.set("run", "lost", 1)
            if os.fork() == 0:
                signal.alarm(20)
                os.write(alive, b"x")
                os.close(write)
                os.read(read, 1)  # lives on until the very end of this test
                os._exit(0)
            os.read(forked, 1)
            os.kill(os.getpid(), 9)
        os.close(read)
        os.waitpid(parent, 0)
        with holdfast.open(folder, actor="next", busy_timeout=5) as after:
            print(after.cells.set("run", "next", 1), after.cells.list("run"))
        os.close(write)
    """
    assert run(tmp_path, script) == ["1 ['next']"]


def test_what_a_child_wrote_through_a_workspace_of_its_own_survives_the_close_of_the_parent(tmp_path: Path) -> None:
    script = """
        ws.cells.set("run", "cell", 1)
        opened, tell_opened = os.pipe()
        closed, tell_closed = os.pipe()
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            try:
                mine = holdfast.open(folder, actor="child")
            except errors.HoldfastError:
                os.write(tell_opened, b"x")
                print(1, flush=True)  # refusing is safe too
                os._exit(0)
            mine.cells.set("run", "cell", 2)
            os.write(tell_opened, b"x")
            os.read(closed, 1)
            print(mine.cells.set("run", "cell", 3), flush=True)
            os.kill(os.getpid(), 9)
        os.read(opened, 1)
        ws.close()
        os.write(tell_closed, b"x")
        os.waitpid(pid, 0)
        with holdfast.open(folder, actor="after") as after:
            print(after.cells.get("run", "cell").version)
    """
    acknowledged, found = run(tmp_path, script)
    assert found == acknowledged
