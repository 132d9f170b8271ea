"""Fencing tokens that a face remembers for its callers, so that no caller has to carry numbers.

What an operation grants is remembered and sent with every later call on the same thing: a caller that lost a claim
without knowing it is fenced. The operation says what it grants and frees (`Route`), its domain what that is (`Held`).
The command line keeps a file per token, an MCP session a dict.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from holdfast import errors
from holdfast.filesystem import make_folder
from holdfast.operation import REGISTRY, Operation

Thing = tuple[str, ...]  # the kind of what is held, and its names
REMEMBERED: Final = 1024  # tokens in memory; the oldest are forgotten first
_ACTING: Final = ("agent", "holder")  # arguments that name the holder, if it is not the actor
_LONG: Final = 100  # bytes; a file name has at most 255 characters


# --- the rules -------------------------------------------------------------------------------------------------------


def holder_of(arguments: Mapping[str, Any], actor: str) -> str:
    """The holder of what a call grants."""
    return next((arguments[name] for name in _ACTING if arguments.get(name)), actor)


def lookup_of(op: Operation[..., Any], arguments: Mapping[str, Any]) -> Operation[..., Any] | None:
    """The read that finds the id of the thing, if a call names it by a path; tokens are remembered by ids."""
    held = op.held
    if held is None or not held.lookup or not op.writes or not op.takes("token"):
        return None
    path = arguments.get(held.arguments[0])
    return REGISTRY[f"{op.name.partition('.')[0]}.{held.lookup}"] if isinstance(path, str) and "/" in path else None


def with_token(tokens: Tokens, op: Operation[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, with the token that is remembered for it unless one was given."""
    thing = _named_by(op, arguments)
    if thing is None or not op.takes("token") or arguments.get("token") is not None:
        return arguments
    token = tokens.token(*thing)
    return arguments if token is None else {**arguments, "token": token}


def without_numbers(
    error: errors.Fenced, arguments: Mapping[str, Any], holder: str, sent: Mapping[str, Any]
) -> errors.Fenced:
    """The refusal of a remembered token in words without tokens, which the caller has not seen; else as it is."""
    if sent.get("token") == arguments.get("token") or (
        error.details.get("current") is None and "id" not in error.details
    ):
        return error
    if "id" in error.details:  # a claim
        task, now = error.id, error.details.get("holder")
        message, hint = f"your claim on task {task} has ended: it expired, was released or was taken", error.hint
        if now is not None:
            message = f"{message}; {now} holds the task now"
            hint = f"stop, and claim another one: tasks.claim_next(); or ask {now} by mail"
        if now == holder:
            hint = f"stop: another process that acts as {now} works on it"
    else:
        what = error.message.partition(" is held with token ")[0]
        message = f"your lock on {what} was lost, and somebody has taken it since"
        hint = errors.Fenced.default_hint.removeprefix("the lock was lost: ")
    return errors.Fenced(message, hint=hint, **error.details)


def learn(tokens: Tokens, op: Operation[..., Any], arguments: Mapping[str, Any], result: Any, holder: str) -> None:
    """Remember what a call granted; forget what it freed, and what its result shows in other hands."""
    held = op.held
    if held is None or not op.writes:
        return
    named = _named_by(op, arguments)
    if op.route.frees and named is not None:
        tokens.forget(*named)
    if hasattr(result, held.holder) and hasattr(result, "token"):
        thing = (held.kind, *(getattr(result, name) for name in held.fields))
        if getattr(result, held.holder) != holder or result.token is None:
            tokens.forget(*thing)
        elif named not in (None, thing) and tokens.token(*named) == result.token:
            tokens.remember(result.token, *thing, was=named)
        elif op.route.grants:
            tokens.remember(result.token, *thing)


def _named_by(op: Operation[..., Any], arguments: Mapping[str, Any]) -> Thing | None:
    """The thing that a call is about, if it is one that can be held."""
    if op.held is None or not op.writes:
        return None
    names = [arguments.get(name) for name in op.held.arguments]
    return (op.held.kind, *map(str, names)) if all(names) else None


# --- where they are kept ---------------------------------------------------------------------------------------------


class MemoryTokens:
    """The tokens of one session, at most `REMEMBERED`."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[Thing, int] = OrderedDict()
        self._was: dict[Thing, Thing] = {}  # the former names of what has another one now
        self._told: dict[Thing, int] = {}  # what the session knows to be lost, with its old token

    def token(self, *thing: str) -> int | None:
        """The token by which a thing was taken; None if it was not, or long ago."""
        return self._tokens.get(thing)

    def remember(self, token: int, *thing: str, was: Thing | None = None) -> None:
        """A thing was granted. `was`: its name before, by which it may still be called until it is freed."""
        self._tokens.pop(thing, None)
        self._tokens[thing] = token
        if was is not None:
            self._was[thing] = was
        if len(self._tokens) > REMEMBERED:
            oldest, _ = self._tokens.popitem(last=False)
            self._told.pop(oldest, None)
            self._was.pop(oldest, None)

    def forget(self, *thing: str) -> None:
        """A thing is no longer held."""
        token = self._tokens.pop(thing, None)
        self._told.pop(thing, None)
        was = self._was.pop(thing, None)
        if was is not None and self._tokens.get(was) == token:
            self.forget(*was)

    def believed(self, kind: str) -> dict[str, int]:
        """The tokens of the things of a kind that the session believes to hold, by their names; the newest first."""
        former = {was for thing, was in self._was.items() if self._tokens.get(was) == self._tokens.get(thing)}
        return {
            thing[1]: token
            for thing, token in reversed(self._tokens.items())
            if thing[0] == kind and self._told.get(thing) != token and thing not in former
        }

    def tell(self, *thing: str) -> None:
        """The session hears that a thing is lost; its token stays, so that late calls are fenced."""
        self._told[thing] = self._tokens[thing]


class FileTokens:
    """The tokens of one holder on this machine: a file each, as several calls may run at the same time."""

    def __init__(self, folder: str, holder: str) -> None:
        self._folder = os.path.join(folder, "held", _file_name(holder))

    def token(self, *thing: str) -> int | None:
        """The token by which a thing is held."""
        return self._read(self._path(thing))[0]

    def remember(self, token: int, *thing: str, was: Thing | None = None) -> None:
        """A thing was granted; its file is written whole or not at all. `was`: as of `MemoryTokens`."""
        path = self._path(thing)
        make_folder(self._folder)
        partial = f"{path}.{os.getpid()}"
        private = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(private, "w", encoding="utf-8") as file:
            file.write(str(token) if was is None else f"{token} {os.path.basename(self._path(was))}")
        os.replace(partial, path)

    def forget(self, *thing: str) -> None:
        """A thing is no longer held."""
        path = self._path(thing)
        token, was = self._read(path)
        before = was and os.path.join(self._folder, was)
        for each in (path, before) if before and self._read(before)[0] == token else (path,):
            try:
                os.unlink(each)
            except FileNotFoundError:  # it was not held, or another call was faster
                continue

    def _read(self, path: str) -> tuple[int | None, str]:
        """The token in a file, and the name of the file of the former name of the thing."""
        try:
            with open(path, encoding="utf-8") as file:
                token, _, was = file.read().partition(" ")
            return int(token), was
        except (FileNotFoundError, ValueError):  # never written, or cut short by a crash
            return None, ""

    def _path(self, thing: Thing) -> str:
        return os.path.join(self._folder, _file_name("\0".join(thing)))


Tokens = MemoryTokens | FileTokens  # of one holder


def _file_name(text: str) -> str:
    """A file name for any text; a long one by its digest, which costs an import that others need not pay."""
    content = text.encode("utf-8", "surrogatepass")
    if len(content) <= _LONG:
        return content.hex()
    from hashlib import sha256

    return sha256(content).hexdigest() + "-"
