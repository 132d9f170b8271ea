"""The generated parts of the documents: operations, errors, the states of a task, the steps of mail, commands.

`python -m tests.docs.generate` rewrites them in place; test_reference.py fails while they are out of date. A generated
part stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast import errors
from holdfast import errors as refusals
from holdfast.domains.mail import STEPS as MAIL_STEPS
from holdfast.domains.tasks.transitions import STATUSES, STEPS
from holdfast.faces.cli.command import PURPOSES, Command, all_commands
from holdfast.faces.cli.commands.help import TASKS, row, usage
from holdfast.faces.cli.examples import examples_of
from holdfast.operation import REGISTRY, Operation
from holdfast.route import ANY
from holdfast.types.tasks import TaskStatus
from tests.docs.session import HOUR, SHORT, record

ROOT = Path(__file__).resolve().parents[2]

# The name that the same refusal has in the specifications that Holdfast implements.
ALIASES = {
    "InvalidName": ("ErrInvalidName", "InvalidKey"),
    "InvalidID": ("ErrInvalidID",),
    "InvalidPriority": ("ErrInvalidPriority",),
    "InvalidTag": ("ErrInvalidTag",),
    "InvalidTransition": ("ErrInvalidTransition",),
    "InvalidHolder": ("ErrInvalidHolder",),
    "InvalidFilter": ("ErrInvalidFilter",),
    "InvalidStashType": ("ErrInvalidStashType",),
    "WouldCreateCycle": ("ErrWouldCreateCycle",),
    "NotHolder": ("ErrNotLockHolder",),
    "NotClaimOwner": ("ErrNotClaimOwner",),
    "NotFound": ("ErrNotFound",),
    "TaskNotFound": ("ErrTaskNotFound",),
    "ParentNotFound": ("ErrParentNotFound",),
    "TableNotFound": ("ErrTableNotFound",),
    "DuplicateName": ("ErrDuplicateName",),
    "Held": ("ErrLockHeld",),
    "AlreadyClaimed": ("ErrAlreadyClaimed",),
    "InvalidStatus": ("ErrInvalidStatus",),
    "TaskActive": ("ErrTaskActive",),
    "HasActiveChildren": ("ErrHasActiveChildren",),
    "AlreadyAttached": ("ErrAlreadyAttached",),
    "Compacted": ("HistoryTrimmed",),
    "Closed": ("ErrCupboardDetached",),
}


# --- operations ------------------------------------------------------------------------------------------------------


def signature_of(operation: Operation[..., Any]) -> str:
    """The call as a user writes it, with types."""
    signature = inspect.signature(operation.function)
    parameters = list(signature.parameters.values())
    if operation.kind != "procedure":
        parameters = parameters[operation.implicit_args :]
    shown = ", ".join(_parameter(each) for each in parameters)
    return f"ws.{operation.name}({shown}) -> {_answer(operation, str(signature.return_annotation))}"


def _parameter(parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}"
    stars = "**" if parameter.kind is inspect.Parameter.VAR_KEYWORD else ""
    return f"{stars}{parameter.name}: {parameter.annotation}{default}"


def _answer(operation: Operation[..., Any], annotation: str) -> str:
    inner = re.sub(r"^(?:Steps|Following)\[(.*)\]$", r"\1", annotation)
    match operation.kind:
        case "first":
            return f"{inner} | None"
        case "stream":
            return f"Watch[{inner}]"
    return inner


def operations() -> str:
    """Every operation, by domain, in the order of the table."""
    return "\n".join(_operations()).strip()


def _operations() -> Iterator[str]:
    domains = dict.fromkeys(name.rpartition(".")[0] for name in REGISTRY)
    for domain in sorted(domains, key=lambda name: (name == "", name)):
        yield f"\n### {'ws.' + domain if domain else 'ws'}\n"
        for name, operation in REGISTRY.items():
            if name.rpartition(".")[0] == domain:
                yield f"- `{signature_of(operation)}`\\\n  {operation.summary}"


# --- roles -----------------------------------------------------------------------------------------------------------


def role_table() -> str:
    """What each role may call, by domain, and the arguments that only admins may give."""
    domains = sorted({name.rpartition(".")[0] for name in REGISTRY})
    head = "| | `read` may call | `agent` besides | `admin` besides |\n|---|---|---|---|"
    arguments = [
        f"`{name}`: `{argument}`{'' if value == ANY else f' = `{value}`'}"
        for name, operation in sorted(REGISTRY.items())  # in which order modules are loaded says nothing
        for argument, value in _admin_arguments(operation).items()
        if operation.role != "admin"
    ]
    only = f"Only `admin` may give these arguments: {'; '.join(arguments)}."
    return "\n".join([head, *(_role_row(domain) for domain in domains), "", only])


def _role_row(domain: str) -> str:
    cells = [
        ", ".join(f"`{each.method}`" for each in REGISTRY.within(domain) if each.role == role)
        for role in ("read", "agent", "admin")
    ]
    return f"| {domain or 'workspace'} | {' | '.join(cells)} |"


def _admin_arguments(operation: Operation[..., Any]) -> dict[str, Any]:
    force = {"force": ANY} if operation.takes("force") else {}
    return {**force, **operation.route.admin_only}


# --- errors ----------------------------------------------------------------------------------------------------------


def error_classes() -> list[type[errors.HoldfastError]]:
    """Every class, in the order in which they are written."""
    both = {**vars(errors), **vars(refusals)}  # those that only a server tells come last
    found = [each for each in both.values() if isinstance(each, type)]
    return [each for each in found if issubclass(each, errors.HoldfastError)]


def error_table() -> str:
    """One row for each class."""
    head = "| class | code | HTTP | exit | retry | meaning, and hint | alias |\n|---|---|---|---|---|---|---|"
    return "\n".join([head, *(_error_row(each) for each in error_classes())])


def _error_row(error: type[errors.HoldfastError]) -> str:
    meaning = (error.__doc__ or "").strip().splitlines()[0]
    hint = f" *Hint: {error.default_hint}.*" if error.default_hint else ""
    aliases = ", ".join(f"`{alias}`" for alias in ALIASES.get(error.__name__, ()))
    retry = "yes" if error.retryable else ""
    # A class stands under its parent: the top of each branch is bold.
    name = f"`{error.__name__}`"
    if error.__base__ in (errors.HoldfastError, Exception):
        name = f"**{name}**"
    return f"| {name} | `{error.code}` | {error.status} | {error.exit_code} | {retry} | {meaning}{hint} | {aliases} |"


# --- states ----------------------------------------------------------------------------------------------------------


def state_table() -> str:
    """What leads from each status of a task to each other one."""
    head = f"| from \\ to | {' | '.join(f'`{status}`' for status in STATUSES)} |\n|{'---|' * (len(STATUSES) + 1)}"
    return "\n".join([head, *(_state_row(status) for status in STATUSES)])


def _state_row(source: TaskStatus) -> str:
    cells = [
        ", ".join(f"`{step.op}`" for step in STEPS if (step.source, step.target) == (source, target))
        for target in STATUSES
    ]
    return f"| `{source}` | {' | '.join(cells)} |"


def mail_steps() -> str:
    """What each step of mail leads from and to."""
    rows = [
        f"| `{op}` | {', '.join(f'`{source}`' for source in sources)} | `{target}` |"
        for op, (sources, target) in MAIL_STEPS.items()
    ]
    return "\n".join(["| step | from | to |\n|---|---|---|", *rows, "| `close` | any of the four | `closed` |"])


# --- the command line ------------------------------------------------------------------------------------------------


def commands() -> str:
    """Every command in the order of `holdfast help`, behind a list of all."""
    sections = _sections()
    links = [
        f"- {title.partition(':')[0]}: {', '.join(_link(each) for each in found)}" for title, found in sections.items()
    ]
    return "\n".join([*links, *(line for title, found in sections.items() for line in _section(title, found))])


def _sections() -> dict[str, list[Command]]:
    """Tasks first; then each group, whose commands are two words; then the rest."""
    known = {command.name: command for command in all_commands()}
    sections = {"Tasks": [known.pop(name) for name in TASKS]}
    for group, purpose in sorted(PURPOSES.items()):
        names = [name for name in known if name.startswith(f"{group} ")]
        sections[f"{group}: {purpose}"] = [known.pop(name) for name in names]
    return {**sections, "Others": list(known.values())}


def _link(command: Command) -> str:
    return f"[{command.name}](#{command.name.replace(' ', '-')})"


def _section(title: str, found: list[Command]) -> Iterator[str]:
    yield f"\n### {title}"
    for command in found:
        yield f"\n#### {command.name}\n\n{' '.join(part for part in (command.summary, command.more) if part)}\n"
        rows = [row(argument) for argument in command.arguments]
        yield "\n".join(["```text", usage(command), *([""] if rows else []), *rows, "```\n"])
        yield "\n".join(["```sh", *(example.line for example in examples_of(command)), "```"])


# --- writing them ----------------------------------------------------------------------------------------------------

PARTS: dict[str, tuple[Path, Callable[[], str]]] = {
    "roles": (ROOT / "docs/security.md", role_table),
    "operations": (ROOT / "docs/python.md", operations),
    "errors": (ROOT / "docs/errors.md", error_table),
    "states": (ROOT / "docs/tasks.md", state_table),
    "mail steps": (ROOT / "docs/mail.md", mail_steps),
    "session": (ROOT / "README.md", lambda: record(SHORT)),
    "hour": (ROOT / "docs/quickstart.md", lambda: record(HOUR)),
    "commands": (ROOT / "docs/cli.md", commands),
}


def split(text: str, name: str) -> tuple[str, str, str]:
    """A document as what stands before the generated part, that part, and what follows."""
    before, begin, rest = text.partition(f"<!-- generated: {name} -->\n")
    part, end, after = rest.partition(f"<!-- end of {name} -->")
    if not begin or not end:
        raise ValueError(f"the document has no part {name!r}")
    return before + begin, part, end + after


def main() -> None:
    """Rewrite every generated part."""
    for name, (path, make) in PARTS.items():
        before, _, after = split(path.read_text(encoding="utf-8"), name)
        path.write_text(f"{before}\n{make()}\n\n{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
