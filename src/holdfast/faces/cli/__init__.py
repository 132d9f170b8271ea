"""The command line: `holdfast COMMAND`. What a command takes is in `command`; each is loaded only when it is called.

An error goes to standard error with what to do about it, and becomes the exit code of its class; 2 is a mistake in the
command line itself, and 4 says that nothing is ready.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from holdfast.errors import HoldfastError

_GARBAGE: Final = 200_000  # objects, before the collector looks for the first time
_HELP: Final = {"--help", "-h"}
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as a shell reports a program that a closed pipe has ended


def start() -> NoReturn:
    """Run a command in a process of its own, which does nothing else.

    Most commands end before there is any garbage, so the collector starts late. All that a command opened is closed and
    its output is written, so the process ends without tearing down what the system frees at once.
    """
    gc.set_threshold(_GARBAGE)
    os._exit(main())


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    from holdfast.errors import HoldfastError, IOFailed

    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal cannot show is escaped, not a crash
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code = _run(arguments)
        finally:
            sys.stdout.flush()
    except HoldfastError as error:
        _tell(error, arguments)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return PIPE_CLOSED
    except OSError as error:
        _close_output()
        failed = IOFailed(
            f"{error.filename or 'the answer'}: {error.strerror or error}",
            hint="nothing more was done, but the answer may be cut",
        )
        _tell(failed, arguments)
        return failed.exit_code
    return code


def _open_streams() -> None:
    """Have all three: a shell may have closed one, and an error must not go where answers are expected."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


def _close_output() -> None:
    """Nobody reads it any more; else the interpreter complains at its end."""
    if isinstance(sys.stdout, TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _import_msgspec() -> None:
    """Import msgspec without typing_extensions, from which it would take what typing has too: that halves its time."""
    if "msgspec" in sys.modules or "typing_extensions" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # the way to say: cannot be imported
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules["typing_extensions"]


def _run(arguments: list[str]) -> int:
    _import_msgspec()
    from holdfast.faces.cli.args import parse
    from holdfast.faces.cli.call import GLOBAL, Session
    from holdfast.faces.cli.command import PURPOSES, find

    options = {name: argument for argument in GLOBAL for name in (argument.option, argument.short) if name}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--version":
        known = options.get(arguments[at])
        at += 2 if known is not None and known.kind != "flag" else 1
    before, words = arguments[:at], arguments[at:]
    outer = parse(GLOBAL, before, "")
    if not words or outer.get("help"):
        words = ["help", *words]
    if words[0] == "--version":
        from holdfast import __version__

        print(f"holdfast {__version__}")
        return 0
    asks = not _HELP.isdisjoint(_own(words))
    is_group = words[0] in PURPOSES and all(word.startswith("-") for word in words[1:2])  # trail --help
    command, count = find(["help"] if asks and is_group else words)
    if asks:
        return find(["help"])[0].run(Session(outer, os.environ), {"topic": words[:count]})
    own = {name for argument in command.arguments for name in (argument.option, argument.short) if name}
    common = tuple(argument for argument in GLOBAL if not own & {argument.option, argument.short})
    given = parse((*command.arguments, *common), words[count:], command.name)
    names = {argument.name for argument in common}
    session = Session(outer | {name: value for name, value in given.items() if name in names}, os.environ)
    return command.run(session, {name: value for name, value in given.items() if name not in names})


def _own(words: Sequence[str]) -> Sequence[str]:
    """The words before `--`: those after it are not ours to read."""
    return words[: words.index("--")] if "--" in words else words


def _tell(error: HoldfastError, arguments: Sequence[str]) -> None:
    from holdfast.faces.cli.call import is_json
    from holdfast.faces.cli.output import error_json, error_text, place_options

    own = _own(arguments)
    asked = {"json": True} if "--json" in own else {}
    at = place_options({name: _value(own, f"--{name}") for name in ("dir", "url")})
    print(error_json(error, at) if is_json(asked, os.environ) else error_text(error, at), file=sys.stderr)


def _value(words: Sequence[str], option: str) -> str:
    """The value of an option; empty if it is not there. The error may be about the other words, so none is parsed."""
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word == option:
            return following
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return ""
