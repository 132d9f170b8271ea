"""The rooms of the house: layers that import downward, faces that know no other face, modules of a readable size.

Exceptions are named, each with its reason.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

from holdfast.operation import REGISTRY
from tests.architecture.house import ROOT, Module, layer_of, modules, only_children, product, repeated_names

BELOW = {
    "ground": set[str](),
    "turnfile": {"ground"},
    "kernel": {"ground"},
    "replication": {"kernel", "ground"},
    "operation": {"kernel", "ground"},
    "domains": {"operation", "kernel", "ground"},
    "interchange": {"domains", "wire", "operation", "kernel", "ground"},
    "wire": {"operation", "kernel", "ground"},
    "workspace": {"wire", "domains", "operation", "replication", "kernel", "ground"},
    "faces": {"workspace", "operation", "wire", "turnfile", "ground"},
    "demo": {"package", "workspace", "ground"},
    "integrations": {"ground"},
    "package": {"workspace", "replication", "ground"},
}
# A domain knows the domains before it in this line.
DOMAINS = [
    *("task_hooks", "leases", "locks", "named_locks", "link_types", "events", "agents", "cell_history", "cells"),
    *(
        "routing",
        "tasks",
        "routes",
        "paths",
        "mail",
        "stashes",
        "trails",
        "links",
        "cycles",
        "threads",
        "items",
        "fleet",
        "board",
        "undo",
    ),
]
# An import that a layer may have though its rule says no: who, whom, and why.
EXCEPTIONS = {
    ("holdfast.domains.tasks", "holdfast.interchange"): "export and import load it when they are called",
    ("holdfast.domains.stashes", "holdfast.interchange"): "export and import load it when they are called",
    ("holdfast.domains.cycles", "holdfast.interchange"): "import loads it when it is called",
    ("holdfast.faces.cli.commands.cycle", "holdfast.interchange"): "buckets and folders belong to no workspace",
    ("holdfast.faces.cli.commands.transfer", "holdfast.interchange"): "a file is imported in slices, by several calls",
    ("holdfast.faces.cli.commands.share", "holdfast.interchange"): "a file is read in slices, by several calls",
    ("holdfast.faces.cli.commands.stash", "holdfast.interchange"): "a folder is imported in slices, by several calls",
    ("holdfast.faces.cli.commands", "holdfast.domains"): "commands made by hand name operations: `Tasks.claim_next`",
    ("holdfast.faces.cli.commands.server", "holdfast.faces"): "serve and token start other faces",
    ("holdfast.faces.cli.commands.page", "holdfast.faces.http"): "a link carries a ticket of the server",
    ("holdfast.faces.cli.commands.mcp", "holdfast.faces.mcp"): "it serves MCP",
    ("holdfast.faces.http.app", "holdfast.faces.mcp"): "a server mounts MCP",
    ("holdfast.faces.http.pages", "holdfast.faces.web"): "a server serves the files of the page",
    ("holdfast.operation", "holdfast.workspace"): "types alone: what a stream returns",
    ("holdfast.__main__", "holdfast.faces.cli"): "`python -m holdfast`",
}
SMALL_ENOUGH = {
    "holdfast.kernel.failpoints": "the kernel and replication share it, and it is nothing else's business",
    "holdfast.__main__": "`python -m holdfast`",
    "holdfast.domains.task_hooks": "apart, so that tasks are loaded only where they are used",
}
LARGE_ENOUGH = {"holdfast.errors": "the tree of errors is one declaration"}
ALONE_ENOUGH = {
    "holdfast.filegate": "public: users import it from the package",
    "holdfast.demo.agent": "a process of its own: `python -m holdfast.demo.agent`",
    "holdfast.domains.tasks.past": "loaded by the one call that needs it; what reads the present is near its limit",
    "holdfast.faces.cli.setup.plugin": "loaded by the one call that needs it",
    "holdfast.faces.mcp.prompts": "what a person says to a model: apart from the tools that the model uses",
    "holdfast.faces.cli.setup.patches": "loaded before an edit in one client only",
    "holdfast.faces.cli.setup.hooks": "pure, and loaded for every edit: apart from what changes files",
}
LEAST, MOST, ALONE = 60, 500, 150
# File names that mean the same in each package: the same records, the same role.
SAME_EVERYWHERE = {
    *("agents.py", "events.py", "fleet.py", "leases.py", "locks.py", "stashes.py", "tasks.py"),
    *("aio.py", "files.py", "rows.py", "rules.py", "server.py", "store.py"),
}


def violations() -> Iterator[str]:
    """Every breach of a law, a line each."""
    for module in product():
        for name in sorted(module.imports):
            if not allowed(module.name, name):
                yield f"import {module.name} -> {name}"
        if not _is_package(module.name) and module.lines < LEAST and module.name not in SMALL_ENOUGH:
            yield f"{_shown(module)} has {module.lines} lines, at least {LEAST}: merge it"
        if module.lines > MOST and module.name not in LARGE_ENOUGH:
            yield f"{_shown(module)} has {module.lines} lines, at most {MOST}: split it"
        if module.path.stem.endswith("ing"):
            yield f"gerund {module.name}"
    yield from (f"lonely {name}" for name in lonely() if name not in ALONE_ENOUGH)
    yield from (f"name {name}" for name in repeated_names() if name not in SAME_EVERYWHERE)
    yield from names_in_faces()


def allowed(who: str, whom: str) -> bool:
    """Whether a module may import another."""
    if any(_within(who, one) and _within(whom, other) for one, other in EXCEPTIONS):
        return True
    above, below = layer_of(who), layer_of(whom)
    if above == "turnfile" and below == "ground":
        return whom == "holdfast.errors"
    if above != below:
        return below in BELOW[above]
    if above == "faces":
        return _face(who) == _face(whom)
    if above == "domains":
        return DOMAINS.index(whom.split(".")[2]) <= DOMAINS.index(who.split(".")[2])
    return True


def _shown(module: Module) -> str:
    return str(module.path.relative_to(ROOT))


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _face(name: str) -> str:
    return ".".join(name.split(".")[:3])


def lonely() -> list[str]:
    """Modules that are short and have one importer: they belong to it."""
    return [name for name in only_children() if modules()[name].lines < ALONE and not _is_package(name)]


def _is_package(name: str) -> bool:
    return modules()[name].path.name == "__init__.py"


def names_in_faces() -> Iterator[str]:
    """Names of operations that stand as strings in a face."""
    known = {name for name in REGISTRY if "." in name}
    for module in product():
        if layer_of(module.name) == "faces":
            for name in sorted(known & set(strings(module))):
                yield f"string {module.name} {name}"


def strings(module: Module) -> Iterator[str]:
    """Every string constant of a module."""
    for node in ast.walk(ast.parse(module.text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_no_law_is_broken() -> None:
    assert sorted(set(violations())) == []


def test_every_layer_has_a_rule_and_every_exception_is_needed() -> None:
    assert {layer_of(module.name) for module in product()} == set(BELOW)
    for who, whom in EXCEPTIONS:
        assert any(
            _within(module.name, who) and _within(name, whom) for module in product() for name in module.imports
        ), f"{who} -> {whom} is not needed"


@pytest.mark.parametrize("layer", ["testing", "demo"])
def test_nobody_imports_what_is_for_tests_and_demonstration(layer: str) -> None:
    found = {
        (module.name, name)
        for module in modules().values()
        for name in module.imports
        if layer_of(name) == layer != layer_of(module.name)
    }
    assert found <= ({("holdfast.faces.cli.commands.demo", "holdfast.demo")} if layer == "demo" else set())


def test_the_laws_can_be_broken() -> None:
    """A check that cannot fail would be none."""
    assert not allowed("holdfast.kernel.tx", "holdfast.domains.tasks")
    assert not allowed("holdfast.domains.cells", "holdfast.domains.tasks")
    assert not allowed("holdfast.faces.mcp.http", "holdfast.faces.http.app")
    assert not allowed("holdfast.remote", "holdfast.faces.http.calls")
    assert not allowed("holdfast.turnfile.session", "holdfast.types")
    assert allowed("holdfast.faces.cli.commands.server", "holdfast.faces.http.server")


def test_a_reader_of_the_figures_may_leave_before_their_end() -> None:
    command = [sys.executable, "-m", "tests.architecture.house"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()  # as `head` does
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == ("", 0)
