"""`holdfast token`: who may come in. It works on the server's folder, and a running server heeds it at once."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import errors
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.commands.serve import server_folder
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument
from holdfast.faces.http.tokens import EVERY, MAIN, ROLES, Token, Tokens, check_space


def create(session: Session, given: dict[str, Any]) -> int:
    """Make a token; its secret is shown this once."""
    workspace = given.get("workspace", EVERY)
    workspace = workspace if workspace in (EVERY, MAIN) else check_space(workspace)
    tokens = _tokens(session)
    token, secret = tokens.create(given.get("role", "agent"), workspace, given.get("bound"), given.get("note", ""))
    session.out.say({**_told(token), "secret": secret}, secret)
    return 0


def show(session: Session, given: dict[str, Any]) -> int:
    """List all tokens, without their secrets."""
    found = _tokens(session).all()
    session.out.say([_told(token) for token in found], *map(_line, found))
    return 0


def revoke(session: Session, given: dict[str, Any]) -> int:
    """Let a token be good for nothing any more."""
    _tokens(session).revoke(given["id"])
    session.out.say({"id": given["id"]}, f"revoked {given['id']}")
    return 0


def _tokens(session: Session) -> Tokens:
    folder = server_folder(session)
    if not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder}", hint="name the server's folder with --dir")
    return Tokens(folder)


def _told(token: Token) -> dict[str, Any]:
    """A token without its digest."""
    told: dict[str, Any] = msgspec.to_builtins(token)
    del told["digest"]
    return told


def _line(token: Token) -> str:
    workspace = token.workspace or '""'
    return f"{token.id}  {token.role:<5}  {workspace:<12}  {token.actor or '-':<16}  {token.note}".rstrip()


COMMANDS = (
    Command(
        "token create",
        "Make a token for a server; its secret is shown this once.",
        (
            Argument("role", option="--role", choices=ROLES, help="agent; read may not write, admin may do all"),
            Argument("workspace", option="--workspace", help='a name; "" is the main one, * all of them (*)'),
            Argument("bound", option="--actor", help="bind it: nobody else can be acted for with it"),
            Argument("note", option="--note", help="what it is for"),
        ),
        create,
    ),
    Command("token list", "List the tokens of a server, without their secrets.", (), show),
    Command(
        "token revoke",
        "Let a token be good for nothing any more.",
        (Argument("id", option="--id", word=True, required=True, help="as token list shows it"),),
        revoke,
    ),
)
