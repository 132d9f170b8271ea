"""The command line: `holdfast COMMAND`. Each command is a module of this folder, loaded only when it is called.

An error goes to the standard error, with what to do about it, and becomes the exit code of its class; 2 is a mistake in
the command line itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

COMMANDS: Final = {
    "serve": ("holdfast.faces.cli.serve", "serve a workspace over HTTP"),
    "token": ("holdfast.faces.cli.token", "make, list and revoke the tokens of a server"),
    "demo": ("holdfast.demo.__main__", "watch a fleet of agents share a workspace"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; answers its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments[0] if arguments else "help"
    if name in ("help", "-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"holdfast: there is no command {name!r}; holdfast help lists all", file=sys.stderr)
        return 2
    from holdfast.errors import HoldfastError

    command = import_module(COMMANDS[name][0])
    try:
        code: int = command.main(arguments[1:])
    except HoldfastError as error:
        if "--json" in arguments:
            from json import dumps

            told = {"error": error.message, "code": error.code, "hint": error.hint, "details": error.details}
            print(dumps(told, default=str), file=sys.stderr)
        else:
            print(f"holdfast: {error}", file=sys.stderr)
        return error.exit_code
    return code


def _help() -> str:
    rows = [f"  {name:<8} {summary}" for name, (_, summary) in COMMANDS.items()]
    more = "holdfast COMMAND --help tells more; python -m holdfast is the same"
    return "\n".join(["usage: holdfast COMMAND ...", "", *rows, "", more])
