"""`holdfast serve`, `token` and `login`: serve a workspace, and manage access to it."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import errors
from holdfast.faces.cli import location
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.location import Credentials, remember
from holdfast.faces.http.auth import EVERY, FIRST_TOKEN, MAIN, Token, Tokens, check_space
from holdfast.faces.http.listener import BACKUPS_KEPT, MAX_WATCHERS, PORT, Settings
from holdfast.workspace.context import ROLES

if TYPE_CHECKING:
    from holdfast.faces.http.server import Server


@command(
    "serve",
    Argument("host", help="where to listen (127.0.0.1)"),
    Argument("port", "int", help=f"{PORT}; 0 chooses a free one"),
    Argument("socket", of="FILE", help="a Unix socket, for you alone, instead"),
    Argument("tls", choices=("auto",), help="auto: make a certificate, for clients to pin"),
    Argument("tls_cert", of="FILE", help="a certificate chain, PEM"),
    Argument("tls_key", of="FILE", help="its key, PEM"),
    Argument("allow_hosts", "texts", of="HOST:PORT", help="another Host header to accept"),
    Argument("max_watchers", "int", help=f"watches under one token ({MAX_WATCHERS})"),
    Argument("access_log", of="FILE", help="a JSON line for every request; - is stderr"),
    Argument("backup_folder", option="--backup-dir", help="for backups, at the end and --backup-every"),
    Argument("backup_every", "seconds", help="make backups while it runs"),
    Argument("backups_kept", "int", "--backup-keep", help=f"number of backups to keep ({BACKUPS_KEPT})"),
    more="Other machines can reach it only with TLS. SIGTERM or Ctrl-C stops it; nothing in progress is lost.",
)
def serve(session: Session, given: dict[str, Any]) -> int:
    """Serve a workspace, and those in its folder `workspaces`, over HTTP.

    It prints where it listens, and returns 0 when it is stopped.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # we log what it does for us
    try:
        from holdfast.faces.http.server import Server, tune
    except ImportError as error:
        raise errors.Unsupported(
            f"the server needs more packages: {error}", hint="pip install 'holdfast[server]'"
        ) from error
    server = Server(_settings(server_folder(session), given))
    tune()
    server.run(lambda: _announce(server))
    return 0


def server_folder(session: Session) -> Path:
    """Return the folder to serve: the chosen workspace, or where `init` would make a new one."""
    place = session.find_place()
    if place is not None and place.url is not None:
        raise errors.Unsupported(
            f"this must run where the store is, but {place.why} names the server {place.url}",
            hint="run it there, with --dir",
        )
    if place is not None and place.folder is not None:
        return Path(os.path.relpath(place.folder) if place.why != "--dir" else session.given["dir"])
    return Path(os.path.relpath(location.home(session.folder)))


def _settings(folder: Path, given: dict[str, Any]) -> Settings:
    chosen: dict[str, Any] = {name: Path(value) if name in _PATHS else value for name, value in given.items()}
    chosen["tls_auto"] = chosen.pop("tls", None) == "auto"
    chosen["allow_hosts"] = tuple(chosen.get("allow_hosts", ()))
    return Settings(folder=folder, **chosen)


_PATHS = ("socket", "tls_cert", "tls_key", "access_log", "backup_folder")


def _announce(server: Server) -> None:
    token = server.settings.folder / FIRST_TOKEN
    lines = [f"listening on {server.url}"]
    if token.exists():
        lines.append(f"the first token is in {token}; send it as Authorization: Bearer TOKEN")
    else:
        lines.append(
            f"send a token as Authorization: Bearer TOKEN; make one: holdfast token create --dir {token.parent}"
        )
    if server.certificate is not None and server.settings.tls_auto:
        lines.append(f"the certificate to trust is {server.certificate[0]}")
    try:
        print("\n".join([*lines, "", "try it:", *_tries(server, token)]), flush=True)
    except BrokenPipeError:  # the reader of our output is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tries(server: Server, token: Path) -> list[str]:
    """Example calls to copy."""
    where, more = server.url, ""
    if server.settings.socket is not None:
        where, more = "http://localhost", f" --unix-socket {server.settings.socket}"
    elif server.certificate is not None:
        more = f" --cacert {server.certificate[0]}"
    curl = f'  curl -s{more} -H "Authorization: Bearer $(cat {token})" -H "X-Agent-ID: agent-1"'
    return [
        f"{curl} -H 'Content-Type: application/json' -d '{{\"title\": \"a first task\"}}' {where}/api/tasks",
        f"{curl} -X POST {where}/api/tasks/claim-next",
        f"{curl} -N -H 'Accept: text/event-stream' '{where}/api/events?after=0'",
        "every operation, with the token: GET /openapi.json",
    ]


@command(
    "token create",
    Argument("role", choices=ROLES, help="agent; read may not write, admin may do all"),
    Argument("workspace", help='a name; "" is the main one, * all of them (*)'),
    Argument("bound", option="--actor", help="bind it to this actor"),
    Argument("note", help="what it is for"),
)
def create(session: Session, given: dict[str, Any]) -> int:
    """Create a token for a server; its secret is printed only once."""
    workspace = given.get("workspace", EVERY)
    workspace = workspace if workspace in (EVERY, MAIN) else check_space(workspace)
    tokens = _tokens(session)
    token, secret = tokens.create(given.get("role", "agent"), workspace, given.get("bound"), given.get("note", ""))
    session.out.say({**_public(token), "secret": secret}, secret)
    return 0


@command("token list")
def show(session: Session, given: dict[str, Any]) -> int:
    """List the tokens of a server, without their secrets."""
    found = _tokens(session).all()
    session.out.say([_public(token) for token in found], *map(_line, found))
    return 0


@command("token revoke", Argument("id", word=True, required=True, help="as in token list"))
def revoke(session: Session, given: dict[str, Any]) -> int:
    """Revoke a token."""
    _tokens(session).revoke(given["id"])
    session.out.say({"id": given["id"]}, f"revoked {given['id']}")
    return 0


def _tokens(session: Session) -> Tokens:
    folder = server_folder(session)
    if not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder}", hint="name the server's folder with --dir")
    return Tokens(folder)


def _public(token: Token) -> dict[str, Any]:
    """A token without its digest."""
    fields: dict[str, Any] = msgspec.to_builtins(token)
    del fields["digest"]
    return fields


def _line(token: Token) -> str:
    workspace = token.workspace or '""'
    return f"{token.id}  {token.role:<5}  {workspace:<12}  {token.actor or '-':<16}  {token.note}".rstrip()


@command(
    "login",
    Argument("server", word=True, required=True, of="URL", help="its address"),
    Argument("token_file", of="FILE", help="a file with the token; default: ask for it"),
    Argument("cacert", of="FILE", help="the certificate of a server that made its own"),
    more="The token is read from --token-file, HOLDFAST_TOKEN or standard input.",
)
def login(session: Session, given: dict[str, Any]) -> int:
    """Store the token of a server, after trying it.

    The token is never taken from the command line.
    """
    from holdfast.remote import connect

    url, certificate = given["server"], given.get("cacert")
    if certificate is not None:
        certificate = os.path.abspath(certificate)
    token = _token(session, given)
    with connect(url, token=token, actor=session.actor, verify=certificate or True) as workspace:
        revision = workspace.revision
    path = remember(url, Credentials(token, certificate), session.environ)
    text = f"the token works, the workspace is at revision {revision}; stored in {path}"
    session.out.say({"url": url, "revision": revision, "file": path}, text, f"next: export HOLDFAST_URL={url}")
    return 0


def _token(session: Session, given: dict[str, Any]) -> str:
    if "token_file" in given:
        try:
            with open(given["token_file"], encoding="utf-8") as file:
                return file.read().strip()
        except OSError as error:
            raise errors.NotFound(f"{given['token_file']} cannot be read: {error.strerror}") from error
    if session.environ.get("HOLDFAST_TOKEN"):
        return session.environ["HOLDFAST_TOKEN"]
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("token: ").strip()
    token = sys.stdin.readline().strip()
    if not token:
        raise errors.Unauthorized(
            "there is no token on standard input", hint="holdfast login URL < FILE, or --token-file FILE"
        )
    return token
