"""A domain is loaded when it is first used, also if several threads use several domains for the first time at once."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.journal import ROOT

LATE = ("holdfast.domains", "holdfast.interchange")
# Packages are slow to be found, as on a slow disk: whoever loads one meets whoever loads a module inside it.
FIRST_USE = """
import sys, threading, time
import holdfast
from holdfast.workspace.registry import DOMAINS, _late

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("holdfast.domains.") and name.count(".") == 2:
            time.sleep(0.05)

ws = holdfast.open(":memory:", actor="me")
uses = [lambda name=name: getattr(ws, name) for name in DOMAINS]
uses += [lambda: ws.tasks.export(), lambda: ws.tasks.list(), lambda: ws.mail.send("me", "subject")]
uses += [lambda: _late("tasks.claims"), lambda: _late("tasks.changes"), lambda: _late("stashes.rows")]
line, failed = threading.Barrier(len(uses)), []

def use(first):
    line.wait()
    try:
        first()
    except BaseException as error:
        failed.append(repr(error))

sys.meta_path.insert(0, Slow())
threads = [threading.Thread(target=use, args=(each,)) for each in uses]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("\\n".join(failed) or 0)
"""


@pytest.mark.parametrize("number", range(4))
def test_threads_may_use_every_domain_for_the_first_time_at_once(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USE], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_loaded_on_first_use_is_loaded_by_one_thread_at_a_time() -> None:
    """Domains, and interchange, which imports them, are imported inside functions only under LOADING."""
    unguarded = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("workspace", "domains", "kernel")
        for path in sorted((ROOT / "src" / "holdfast" / folder).rglob("*.py"))
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in _unguarded(function)
    ]
    assert unguarded == []


def _unguarded(node: ast.AST) -> Iterator[ast.ImportFrom | ast.Call]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.With) and ast.unparse(child.items[0]) == "LOADING":
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith(LATE):
            yield child
        if isinstance(child, ast.Call) and ast.unparse(child.func) == "import_module":
            yield child
        yield from _unguarded(child)
