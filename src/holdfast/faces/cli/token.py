"""`holdfast token`: who may come in. It works on the server's folder, and a running server heeds it at once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast import errors
from holdfast.faces.http.tokens import EVERY, MAIN, ROLES, Token, Tokens, check_space


def main(argv: Sequence[str]) -> int:
    """Make, list or revoke tokens."""
    given = _parser().parse_args(argv)
    if not given.dir.is_dir():
        raise errors.NotFound(f"there is no folder {given.dir}", hint="name the server's folder with --dir")
    tokens = Tokens(given.dir)
    match given.action:
        case "create":
            workspace = given.workspace if given.workspace in (EVERY, MAIN) else check_space(given.workspace)
            token, secret = tokens.create(given.role, workspace, given.actor, given.note)
            _print(given, {**_told(token), "secret": secret}, [secret])
        case "list":
            found = tokens.all()
            _print(given, [_told(token) for token in found], [_line(token) for token in found])
        case "revoke":
            tokens.revoke(given.id)
            _print(given, {"id": given.id}, [f"revoked {given.id}"])
    return 0


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", type=Path, default=Path(".holdfast"), help="the server's folder (.holdfast)")
    common.add_argument("--json", action="store_true", help='answer {"schema_version": 1, "data": ...}')
    parser = argparse.ArgumentParser(prog="holdfast token", description="The tokens of a server.")
    actions = parser.add_subparsers(dest="action", required=True)
    create = actions.add_parser("create", parents=[common], help="make one; its secret is shown this once")
    create.add_argument("--role", choices=ROLES, default="agent", help="agent; read may not write, admin may do all")
    create.add_argument("--workspace", default=EVERY, help='a name; "" is the main one, * all of them (*)')
    create.add_argument("--actor", help="bind it: nobody else can be acted for with it")
    create.add_argument("--note", default="", help="what it is for")
    actions.add_parser("list", parents=[common], help="all of them, without their secrets")
    revoke = actions.add_parser("revoke", parents=[common], help="let one be good for nothing any more")
    revoke.add_argument("id", help="as `token list` shows it")
    return parser


def _told(token: Token) -> dict[str, Any]:
    """A token without its digest."""
    told: dict[str, Any] = msgspec.to_builtins(token)
    del told["digest"]
    return told


def _line(token: Token) -> str:
    workspace = token.workspace or '""'
    return f"{token.id}  {token.role:<5}  {workspace:<12}  {token.actor or '-':<16}  {token.note}".rstrip()


def _print(given: argparse.Namespace, data: Any, lines: list[str]) -> None:
    print(msgspec.json.encode({"schema_version": 1, "data": data}).decode() if given.json else "\n".join(lines))
