"""The command line: `holdfast COMMAND`. What a command takes is in `command`; each is loaded only when it is called.

An error goes to standard error with what to do about it, and becomes the exit code of its class; 2 is a mistake in the
command line itself, and 4 says that nothing is ready.
"""

from __future__ import annotations

import gc
import os
import sys
from io import TextIOWrapper

from holdfast.faces.cli.relay import say_where, through_server, value_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from signal import SIGINT, default_int_handler, getsignal, signal
    from typing import Any, Final, NoReturn

    from holdfast.errors import HoldfastError
    from holdfast.faces.cli.args import Usage
    from holdfast.faces.cli.call import Session
    from holdfast.faces.cli.command import Command
    from holdfast.faces.cli.output import Screen

else:
    from _signal import SIGINT, default_int_handler, getsignal, signal  # `signal` itself makes enumerations of them

_GARBAGE: Final = 200_000  # objects, before the collector looks for the first time
_TURN_GARBAGE: Final = 5_000_000  # a mailbox of thousands of cards is that many objects, and none of them is garbage
_Module: Final = type(sys)  # `types` has it too, but is one more module
_UNUSED: Final = ("inspect", "toml", "yaml")  # modules of msgspec
_SCHEMAS: Final = "msgspec._json_schema"
_HELP: Final = {"--help", "-h"}
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141  # as a shell reports a program that a closed pipe has ended


def start() -> NoReturn:
    """Run a command in a process of its own, which does nothing else.

    Most commands end before there is any garbage, so the collector starts late. All that a command opened is closed and
    its output is written, so the process ends without tearing down what the system frees at once.
    """
    gc.set_threshold(_TURN_GARBAGE if sys.argv[1:2] == ["turn"] else _GARBAGE)
    try:
        if callable(getsignal(SIGINT)):  # else it is ignored, or ends the process
            signal(SIGINT, default_int_handler)
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    if "holdfast.telemetry" in sys.modules:  # an SDK sends what it still has when the program ends
        import atexit

        atexit._run_exitfuncs()
    os._exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # what the terminal cannot show is escaped, not a crash
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            code, key = through_server(arguments)
            say_where(arguments, here=code is None, repeated=key is not None)
            if code is None:
                code = _run(arguments, key)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _close_output()
        return PIPE_CLOSED
    except Exception as error:
        return _failed(error, arguments)
    return code


def _failed(error: Exception, arguments: Sequence[str]) -> int:
    """Print an error; returns its exit code. What is not to be expected is raised again."""
    from holdfast.errors import HoldfastError, IOFailed

    if isinstance(error, OSError):
        _close_output()
        where = error.filename or "the answer"
        hint = "nothing more was done, but the answer may be cut"
        error = IOFailed(f"{where}: {error.strerror or error}", hint=hint)
    if not isinstance(error, HoldfastError):
        raise error
    if "commands" in error.details and sys.stdin.isatty() and sys.stderr.isatty():
        meant = _ask(error)
        return INTERRUPTED if meant is None else main(meant)
    print_error(error, arguments, os.environ, sys.stderr)
    return error.exit_code


def _ask(error: HoldfastError) -> list[str] | None:
    """Ask the person at the terminal which command is meant; returns its words, None if no answer is one of them."""
    from shlex import split

    from holdfast.faces.cli.output import printable

    commands = error.details["commands"]
    lines = [f"  {number}  {printable(each)}" for number, each in enumerate(commands, 1)]
    print(f"holdfast: {printable(error.message)}", *lines, sep="\n", file=sys.stderr)
    print(f"1 or {len(commands)}? ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip()
    return split(commands[int(answer) - 1])[1:] if answer in {str(n + 1) for n in range(len(commands))} else None


def _open_streams() -> None:
    """Have all three: a shell may have closed one, and an error must not go where answers are expected."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


def _close_output() -> None:
    """Nobody reads it any more; else the interpreter complains at its end."""
    if isinstance(sys.stdout, TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Later(_Module):  # type: ignore[misc, valid-type]
    """A module that is loaded when something is used that it has not been given."""

    def __getattr__(self, name: str) -> Any:
        from importlib import import_module

        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        loaded = import_module(self.__name__)
        found = getattr(loaded, name)
        self.__dict__.update(loaded.__dict__)
        return found


def _import_msgspec() -> None:
    """Import msgspec without what takes most of its time and gives a command nothing.

    `typing_extensions`, of which it wants what `typing` has too; `decimal`, `enum` and `uuid`, whose types no value of
    ours has; its own `inspect`, `toml`, `yaml` and schemas, which are loaded when used; and `re`, which most commands
    do without, and of which `typing` wants two types. `datetime` comes as its C half, which is all of it since Python
    3.12.
    """
    if "msgspec" in sys.modules:
        return
    if "datetime" not in sys.modules and sys.version_info < (3, 12):
        import _datetime  # type: ignore[import-not-found]

        sys.modules["datetime"] = _datetime
    without: dict[str, dict[str, Any]] = {
        "decimal": {"Decimal": type("Decimal", (), {})},
        "enum": {"EnumMeta": type("EnumMeta", (type,), {})},
        "uuid": {"UUID": type("UUID", (), {}), "SafeUUID": type("SafeUUID", (), {"unknown": None})},
        "typing_extensions": {},
        **{f"msgspec.{name}": {} for name in _UNUSED},
        _SCHEMAS: {name: _late(_SCHEMAS, name) for name in ("schema", "schema_components")},
    }
    absent = {name: _module(name, given) for name, given in without.items() if name not in sys.modules}
    sys.modules.update(absent)
    expressions = sys.modules.setdefault("re", _expressions())
    import typing

    reference = typing.ForwardRef
    try:
        typing.ForwardRef = _Reference  # type: ignore[misc, assignment]
        import msgspec

        for name in _UNUSED:
            delattr(msgspec, name)
    finally:
        typing.ForwardRef = reference  # type: ignore[misc]
        for name in absent:
            del sys.modules[name]
        if isinstance(expressions, _Later):
            expressions.__dict__.pop("compile", None)  # what is used from now on loads it


def _Reference(name: str, **_: bool) -> None:
    """A forward reference that is made for nobody."""


def _expressions() -> Any:
    """The module `re` with its types, which a compiled expression has: here one that matches the empty text."""
    import _sre  # type: ignore[import-not-found]

    empty = _sre.compile("", 0, [1], 0, {}, ())
    types = {"Pattern": type(empty), "Match": type(empty.match(""))}
    return _module("re", {**types, "compile": _late("re", "compile")}, _Later)


def _module(name: str, given: dict[str, Any], kind: Callable[[str], Any] = _Module) -> Any:
    module = kind(name)
    module.__dict__.update(given)
    return module


def _late(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is loaded when the function is called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        from importlib import import_module

        return getattr(import_module(module), name)(*args, **kwargs)

    return call


def _run(arguments: list[str], key: str | None) -> int:
    """Carry out a command here. With a key, a server may have done so already: then this returns its answer."""
    _import_msgspec()
    from holdfast import errors
    from holdfast.faces.cli.call import Session

    command, common, given = understood(arguments)
    session = Session(common, os.environ, key=key, brief=command.relayed)
    heard = errors.HEARS.set(session.hear)
    try:
        return command.run(session, given)
    except errors.InvalidHolder as error:
        raise session.explain(error) from None
    except errors.HoldfastError as error:
        from holdfast.faces.cli.paths import point

        point(session, error)
        if key is None or not (isinstance(error, errors.Unavailable) or error.details.get("key") == key):
            raise
        raise _unsettled(error, key) from error
    finally:
        errors.HEARS.reset(heard)


def _unsettled(error: HoldfastError, key: str) -> HoldfastError:
    """The error for a call that a server may have carried out, and that cannot be settled here."""
    from holdfast.errors import OutcomeUnknown

    if error.details.get("key") == key:  # with other arguments: a duration ends later now
        message = "the server stopped after it had carried this out, so the answer is lost"
        return OutcomeUnknown(message, hint="look at the result; it must not be repeated")
    message = f"the server took this command and did not answer, and the store cannot be asked: {error.message}"
    return OutcomeUnknown(message, hint=f"repeat it with --key {key}: if it was carried out, this is the answer")


def understood(arguments: list[str]) -> tuple[Command, dict[str, Any], dict[str, Any]]:
    """The command that words call, its common options, and its own arguments. Raises Usage for others."""
    from holdfast.faces.cli.args import Usage, parse
    from holdfast.faces.cli.call import GLOBAL
    from holdfast.faces.cli.command import PURPOSES, Command, find

    options = {name: argument for argument in GLOBAL for name in (argument.option, argument.short) if name}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--version":
        known = options.get(arguments[at])
        at += 2 if known is not None and known.kind != "flag" else 1
    before, words = arguments[:at], arguments[at:]
    _, outer = parse((), before, "", GLOBAL)
    if not words or outer.get("help"):
        words = ["help", *words]
    if words[0] == "--version":
        return Command("--version", "", (), _print_version), outer, {}
    asks = not _HELP.isdisjoint(_own(words))
    is_group = words[0] in PURPOSES and all(word.startswith("-") for word in words[1:2])  # trail --help
    command, count = find(["help"] if asks and is_group else words)
    if asks:
        return find(["help"])[0], outer, {"topic": words[:count]}
    try:
        given, common = parse(command.arguments, words[count:], command.name, GLOBAL)
    except Usage as error:
        raise _with_options(error, before) from error
    return command, outer | common, given


def _with_options(error: Usage, before: Sequence[str]) -> Usage:
    """An error with the options that stood before the command in the commands that it proposes."""
    if before and "commands" in error.details:
        from shlex import join

        commands = [f"{each} {join(before)}" for each in error.details["commands"]]
        error.hint, error.details["commands"] = ", or ".join(commands), commands
    return error


def _print_version(session: Session, _: dict[str, Any]) -> int:
    from holdfast import __version__

    session.out.text(f"holdfast {__version__}")
    return 0


def _own(words: Sequence[str]) -> Sequence[str]:
    """The words before `--`: those after it are not ours to read."""
    return words[: words.index("--")] if "--" in words else words


def print_error(error: HoldfastError, arguments: Sequence[str], environ: Mapping[str, str], to: Screen) -> None:
    """Print the error of a command. It may be about its words, so none of them is parsed."""
    from holdfast.faces.cli.call import is_json
    from holdfast.faces.cli.output import error_json, error_text, folded, place_options

    own = _own(arguments)
    asked = {"json": True} if "--json" in own else {}
    at = place_options({name: value_of(own, f"--{name}") for name in ("dir", "url")})
    print(error_json(error, at) if is_json(asked, environ) else folded(error_text(error, at), to), file=to)
