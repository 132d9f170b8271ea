"""Hints for a shell: what an error proposes in Python, as the command that does the same."""

from __future__ import annotations

import re
from typing import Final

import holdfast.transaction  # noqa: F401  # fills the table of operations
from holdfast.ops import find_operation

_CALL: Final = re.compile(r"\b(?:ws\.)?([a-z]+\.[a-z_]+)\(([^()]*)\)")
_NAMED: Final = re.compile(r"\b([a-z][a-z_]*)=([A-Za-z]+|\[\.\.\.\])")
_STORES: Final = {"holdfast.upgrade": "holdfast upgrade", "holdfast.restore": "holdfast restore"}


def for_shell(hint: str) -> str:
    """A hint with commands in the place of calls, and options in the place of arguments."""
    return _NAMED.sub(_option, _CALL.sub(_command, hint))


def _command(match: re.Match[str]) -> str:
    op = find_operation(match[1])
    if op is not None and op.route.cli is not None:
        named = [found[0] for found in _NAMED.finditer(match[2])]
        return " ".join(["holdfast", op.route.cli, *named])
    if match[1] == "ws.backup":
        return "holdfast backup"
    return _STORES.get(match[1], match[0])


def _option(match: re.Match[str]) -> str:
    name, value = match[1].replace("_", "-"), match[2]
    return f"--{name}" if value == "True" else f"--{name} {value.strip('[].') or name.upper()}"
