"""`make house`: the figures of the source, and the reading of it that the laws of the house are tested with.

A product module is every module of the package but `holdfast.testing`. Imports are the real ones, read from the syntax
tree: at the top of a module, inside its functions, and for types alone.
"""

from __future__ import annotations

import ast
import io
import os
import statistics
import sys
import tokenize
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "holdfast"
# Layers from the top down; the longest prefix of a module's name decides. What stands on one line may import itself.
LAYERS = {
    "holdfast.faces": "faces",
    "holdfast.demo": "demo",
    "holdfast.testing": "testing",
    "holdfast.cupboard": "workspace",
    "holdfast.remote": "workspace",
    "holdfast.filegate": "workspace",
    "holdfast.telemetry": "workspace",
    "holdfast.workspace": "workspace",
    "holdfast.wire": "wire",
    "holdfast.schema": "wire",
    "holdfast.integrations": "integrations",
    "holdfast.interchange": "interchange",
    "holdfast.domains": "domains",
    "holdfast.operation": "operation",
    "holdfast.arguments": "operation",
    "holdfast.hints": "operation",
    "holdfast.route": "operation",
    "holdfast.replication": "replication",
    "holdfast.kernel": "kernel",
    "holdfast.turnfile": "turnfile",
    "holdfast.errors": "ground",
    "holdfast.types": "ground",
    "holdfast.clock": "ground",
    "holdfast.ids": "ground",
    "holdfast.filesystem": "ground",
    "holdfast.client_sessions": "ground",
    "holdfast.private_socket": "ground",
    "holdfast": "package",
}
# Modules that a table names, so that one importer is all they can have: the commands and the domains.
TABLES = ("holdfast.faces.cli.commands.", "holdfast.domains")


class Module(NamedTuple):
    """One module: its name, its file, its text, and the modules of ours that it imports."""

    name: str
    path: Path
    text: str
    imports: frozenset[str]

    @property
    def lines(self) -> int:
        """All its lines."""
        return len(self.text.splitlines())

    @property
    def code(self) -> int:
        """Its lines without blanks, comments and docstrings."""
        return len(_lines_of_code(self.text))


def name_of(path: Path) -> str:
    """The dotted name of a module's file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Module]:
    """Every module of the package by name."""
    paths = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
    return {name: _read(name, path, paths) for name, path in paths.items()}


def _read(name: str, path: Path, known: dict[str, Path]) -> Module:
    text = path.read_text(encoding="utf-8")
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "holdfast":
            longer = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= longer & known.keys()
            if longer - known.keys() and node.module in known:
                found.add(node.module)
    return Module(name, path, text, frozenset(found - {name, "holdfast"}))


def product() -> list[Module]:
    """The modules that users install for use."""
    return [module for module in modules().values() if layer_of(module.name) != "testing"]


def layer_of(name: str) -> str:
    """The layer of a module."""
    while name not in LAYERS:
        name = name.rpartition(".")[0]
    return LAYERS[name]


def importers() -> dict[str, set[str]]:
    """Who imports each module, tests apart."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in product():
        for name in module.imports:
            found[name].add(module.name)
    return found


def only_children() -> list[str]:
    """Modules with exactly one importer; those that a table names do not count."""
    found = importers()
    commands, domains = TABLES
    in_tables = {name for name in modules() if name.startswith(commands) or name.rpartition(".")[0] == domains}
    return sorted(module.name for module in product() if len(found[module.name]) == 1 and module.name not in in_tables)


def repeated_names() -> dict[str, int]:
    """File names that occur in more than one folder."""
    names = Counter(module.path.name for module in product())
    return {name: count for name, count in sorted(names.items()) if count > 1 and not name.startswith("__")}


def crossings() -> dict[tuple[str, str], int]:
    """How many imports lead from one layer into another."""
    found = Counter(
        (layer_of(module.name), layer_of(name))
        for module in product()
        for name in module.imports
        if layer_of(module.name) != layer_of(name)
    )
    return dict(sorted(found.items()))


def _lines_of_code(text: str) -> set[int]:
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                skipped |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    noise = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in noise:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return lines - skipped


def main() -> None:
    """Print the figures."""
    from tests.architecture import frames  # which uses the package, where the rest only reads it

    found = product()
    sizes = [module.lines for module in found]
    print(f"modules                     {len(found)}")
    print(f"lines                       {sum(sizes)}")
    print(f"lines of code               {sum(module.code for module in found)}")
    print(f"median lines of a module    {statistics.median(sizes):.0f}")
    print(f"below 60 lines              {sum(size < 60 for size in sizes)}")
    print(f"above 500 lines             {sum(size > 500 for size in sizes)}")
    alone = only_children()
    print(f"one importer                {len(alone)}")
    for name in alone:
        print(f"    {name}")
    print(f"names that repeat           {', '.join(f'{name} x {count}' for name, count in repeated_names().items())}")
    print("imports between layers")
    for (above, below), count in crossings().items():
        print(f"    {above:12} -> {below:12} {count}")
    frames.main()


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # of `make house | head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
