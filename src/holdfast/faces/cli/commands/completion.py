"""`holdfast completion`: what a shell offers when Tab is pressed.

The script of a shell asks the command itself, with the words so far after `--`: through the server where one runs, else
on the store. Whatever goes wrong, it offers less: an error would be printed into the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final, get_args

from holdfast import errors
from holdfast.faces.cli.args import REPEATED, Argument, options_of
from holdfast.faces.cli.call import GLOBAL, Session
from holdfast.faces.cli.command import DOMAINS, HAND_MADE, PURPOSES, Command, command, find, members_of
from holdfast.faces.cli.output import printable, short

Offer = tuple[str, str]  # a word, and what it means

SCRIPTS: Final = {
    "bash": """\
_holdfast() {
    local found word quoted
    COMPREPLY=()
    found=$("$1" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || compopt -o default 2>/dev/null
    while IFS= read -r word; do
        if [[ -n $word ]]; then
            printf -v quoted %q "$word"
            COMPREPLY+=("$quoted")
        fi
    done <<<"$found"
}
complete -F _holdfast holdfast""",
    "zsh": """\
#compdef holdfast
_holdfast() {
    local answer
    local -a found
    answer=$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null) || { _files; return; }
    found=("${(@f)answer}")
    [[ -n $answer ]] && _describe -t values holdfast found
}
if [[ $funcstack[1] == _holdfast ]]; then _holdfast "$@"; else compdef _holdfast holdfast; fi""",
    "fish": """\
function __holdfast_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct | string collect --allow-empty)
    $words[1] completion fish -- $words[2..-1] "$current" 2>/dev/null
    or __fish_complete_path "$current"
end
complete -c holdfast -f -a '(__holdfast_complete)'""",
}
FILES: Final = 1  # the exit code that asks for names of files
_TITLE: Final = 60  # characters of what an offer means
_ROWS: Final = 1000  # records that are looked at
_TIMEOUT: Final = 2.0  # seconds for a server elsewhere: somebody waits for the prompt
_UNFINISHED: Final = ("open", "in_progress", "pending_merge", "blocked")


@command(
    "completion",
    Argument("shell", word=True, required=True, choices=tuple(SCRIPTS), help="which"),
    Argument("words", "texts", word=True, after=True, help="instead: print what may stand for the last of these words"),
    relayed=True,
)
def complete(session: Session, given: dict[str, Any]) -> int:
    """Print a script that completes commands, ids and values in your shell."""
    shell = given["shell"]
    if "words" not in given:
        session.out.text(SCRIPTS[shell])
        return 0
    try:
        found = [*_offers(session, given["words"] or [""])]
    except _FilesError:
        return FILES
    except (errors.HoldfastError, OSError):
        return 0
    session.out.text(*(_FORMS[shell](printable(word), short(printable(what), _TITLE)) for word, what in found))
    return 0


_FORMS: Final[dict[str, Callable[[str, str], str]]] = {
    "bash": lambda word, _: word,
    "zsh": lambda word, what: word.replace(":", "\\:") + (f":{what}" if what else ""),
    "fish": lambda word, what: f"{word}\t{what}" if what else word,
}


class _FilesError(Exception):
    """The word is the name of a file, which a shell completes itself."""


def _offers(session: Session, words: Sequence[str]) -> Iterator[Offer]:
    """What may stand in place of the last word."""
    *before, current = words
    before = [word for word in before if word != "="]  # which bash makes a word of its own
    current = "" if current == "=" else current
    path, called, rest = _called(before)
    if called is None:
        yield from _fitting(_options(GLOBAL) if current.startswith("-") else _next_words(path), current)
        return
    options = options_of(called.arguments, GLOBAL)
    pending, count, common = _read(rest, options)
    session.given = {**session.given, **_common(before), **common}
    session.timeout = _TIMEOUT
    name, equals, value = current.partition("=")
    if pending is None and equals and name in options:
        found = _values(session, called, options[name], value)
        yield from ((f"{name}={word}", what) for word, what in _fitting(found, value))
        return
    if pending is None and current.startswith("-"):
        yield from _fitting(_options((*called.arguments, *GLOBAL)), current)
        return
    wanted = pending or _place(called, count)
    yield from _fitting(
        _options(called.arguments) if wanted is None else _values(session, called, wanted, current), current
    )


def _fitting(offers: Iterable[Offer], current: str) -> Iterator[Offer]:
    seen = set()
    for word, what in offers:
        if word.startswith(current) and word not in seen:
            seen.add(word)
            yield word, what


# --- what is being typed ---------------------------------------------------------------------------------------------


def _called(before: Sequence[str]) -> tuple[list[str], Command | None, list[str]]:
    """The words of the command so far, the command if they are all of its name, and what follows it."""
    valued = {name for each in GLOBAL if each.kind != "flag" for name in (each.option, each.short)}
    path: list[str] = []
    at = 0
    while at < len(before):
        if before[at].startswith("-"):
            at += 2 if before[at] in valued else 1
            continue
        path.append(before[at])
        at += 1
        called = None if " ".join(path) in _groups(path) else _command(path)
        if called is not None:
            return path, called, list(before[at:])
        if path[0] not in PURPOSES:
            break
    return path, None, []


def _groups(path: Sequence[str]) -> set[str]:
    """The groups that have commands of more words than these."""
    return {" ".join(name.split()[: len(path)]) for name in _names(path[0]) if len(name.split()) > len(path)}


def _names(first: str) -> list[str]:
    """The names of the commands that may begin so; only the domain of a group is loaded."""
    from holdfast.operation import REGISTRY

    domain = DOMAINS.get(first, "tasks")
    ops = [op.command for part in ("", domain) for op in REGISTRY.within(part)] if domain is not None else []
    return [*HAND_MADE, *(name for name in ops if name is not None)]


def _command(path: Sequence[str]) -> Command | None:
    try:
        found, count = find(path)
    except errors.HoldfastError:
        return None
    return found if count == len(path) else None


def _next_words(path: Sequence[str]) -> list[Offer]:
    """The words that may follow; first come those about tasks."""
    if path:
        return [(word, "") for word in members_of(" ".join(path), _names(path[0]))] if path[0] in PURPOSES else []
    from holdfast.operation import REGISTRY

    helps = {op.command: op.route.help for part in ("tasks", "") for op in REGISTRY.within(part) if op.command}
    alone = {name: helps.get(name, "") for name in (*helps, *HAND_MADE) if " " not in name}
    return sorted((alone | PURPOSES).items())


def _read(rest: Sequence[str], options: dict[str, Argument]) -> tuple[Argument | None, int, dict[str, str]]:
    """The option that waits for its value, how many words have a place, and the workspace and actor that were named."""
    pending: Argument | None = None
    words, common = 0, {}
    for word in rest:
        if pending is not None:
            common[pending.name] = word
            pending = None
        elif word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            known = options.get(name)
            if known is not None and known.kind != "flag":
                pending = None if equals else known
                common[known.name] = value
        else:
            words += 1
    return pending, words, {name: common[name] for name in ("dir", "url", "actor") if common.get(name)}


def _common(before: Sequence[str]) -> dict[str, str]:
    """The workspace and the actor that were named before the command."""
    options = {each.option: each for each in GLOBAL}
    return _read(before, options)[2]


def _place(called: Command, count: int) -> Argument | None:
    """The argument that the next word is."""
    places = [each for each in called.arguments if each.word and not each.after]
    if count < len(places):
        return places[count]
    return places[-1] if places and (places[-1].rest or places[-1].kind in REPEATED) else None


# --- what it may be --------------------------------------------------------------------------------------------------


def _options(arguments: Iterable[Argument]) -> list[Offer]:
    return [(each.option, each.help) for each in arguments if not each.word]


def _values(session: Session, called: Command, argument: Argument, current: str) -> Iterable[Offer]:
    """The values that an argument may have, as far as they can be known."""
    if argument.kind in ("path", "paths", "lock") or {argument.names, argument.name} & {"dir", "file"}:
        raise _FilesError
    known = argument.choices or _literals(called, argument)
    if known:
        return [(each, "") for each in known]
    if argument.names == "priority":
        return [(str(each), "first" if each == 0 else "") for each in range(5)]
    domain = "" if called.op is None else called.op.name.rpartition(".")[0]
    names = argument.names or _OF_DOMAIN.get((domain, argument.name), "")
    if names not in _RECORDS:
        return []
    *done, current = current.split(",") if argument.kind == "names" else [current]
    before = "".join(f"{each}," for each in done)
    with session.open() as workspace:
        return [(f"{before}{word}", what) for word, what in _RECORDS[names](workspace, current)]


def _literals(called: Command, argument: Argument) -> list[str]:
    """The words that the annotation of an argument allows."""
    annotation = "" if called.op is None else str(called.op.function.__annotations__.get(argument.name, ""))
    for name in re.findall(r"[A-Z]\w+", annotation):
        for place in ("", ".tasks", ".agents", ".stashes", ".cycles"):
            kind = getattr(import_module(f"holdfast.types{place}"), name, None)
            kind = kind if kind is not None else called.op.function.__globals__.get(name) if called.op else None
            if kind is not None and (words := [each for each in get_args(kind) if isinstance(each, str)]):
                return words
    return []


def _tasks(workspace: Any, current: str) -> list[Offer]:
    """Unfinished tasks, by priority; the others too where none of these begins so."""
    found = _begin(workspace.tasks.list(status=[*_UNFINISHED], limit=_ROWS), current)
    return found or _begin(workspace.tasks.list(sort="-updated", limit=_ROWS), current)


def _begin(tasks: Iterable[Any], current: str) -> list[Offer]:
    return [(task.id, task.title) for task in tasks if task.id.startswith(current)]


def _messages(workspace: Any, current: str) -> list[Offer]:
    """Those to the caller; for a caller without a name the first ones of all threads."""
    try:
        found = workspace.mail.inbox(limit=200)
    except errors.InvalidHolder:
        found = [thread.first for thread in workspace.mail.threads(limit=200)]
    long = len(current) > 1 and not current.startswith("m")
    return [(each.id if long else each.short, f"{each.sender}: {each.subject}") for each in found]


def _tags(workspace: Any, current: str) -> list[Offer]:
    counts: dict[str, int] = {}
    for task in workspace.tasks.list(status=[*_UNFINISHED], limit=_ROWS):
        for tag in task.tags:
            counts[tag] = counts.get(tag, 0) + 1
    return [(tag, f"{count} tasks" if count > 1 else "1 task") for tag, count in sorted(counts.items())]


def _agents(workspace: Any, current: str) -> list[Offer]:
    return [(agent.name, agent.role) for agent in workspace.agents.list(current)]


_RECORDS: Final[dict[str, Callable[[Any, str], list[Offer]]]] = {
    "agent": _agents,
    "lease": lambda workspace, _: [(lease.id, lease.holder) for lease in workspace.leases.list()],
    "lock": lambda workspace, current: [(lock.name, lock.holder) for lock in workspace.locks.list(current)],
    "message": _messages,
    "run": lambda workspace, _: [(run, "") for run in workspace.cells.runs()],
    "stash": lambda workspace, _: [(stash.id, stash.name) for stash in workspace.stashes.list()],
    "tag": _tags,
    "task": _tasks,
    "trail": lambda workspace, _: [(trail.id, trail.name) for trail in workspace.trails.list()],
}
# What an argument of a domain names that means something else in others.
_OF_DOMAIN: Final = {
    **{("agents", "name"): "agent", ("agents", "prefix"): "agent", ("leases", "id"): "lease"},
    **{("locks", "name"): "lock", ("locks", "prefix"): "lock", ("mail", "id"): "message", ("routes", "id"): "task"},
    **{("stashes", "id"): "stash", ("tasks", "id"): "task", ("tasks", "ids"): "task", ("trails", "id"): "trail"},
}
