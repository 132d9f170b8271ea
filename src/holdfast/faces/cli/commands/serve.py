"""`holdfast serve`: one server for a folder, until it is told to stop."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.faces.cli import place as places
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument
from holdfast.faces.http.settings import BACKUPS_KEPT, MAX_WATCHERS, PORT, Settings
from holdfast.faces.http.tokens import FIRST

if TYPE_CHECKING:
    from holdfast.faces.http.serving import Server


def serve(session: Session, given: dict[str, Any]) -> int:
    """Start a server and say where it listens; 0 when it was told to stop."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # what it does for us, we say ourselves
    try:
        from holdfast.faces.http.serving import Server, tune
    except ImportError as error:
        raise errors.Unsupported(
            f"the server needs more than is installed: {error}", hint="pip install 'holdfast[server]'"
        ) from error
    server = Server(_settings(server_folder(session), given))
    tune()
    server.run(lambda: _tell(server))
    return 0


def server_folder(session: Session) -> Path:
    """The folder that a server serves: the workspace that is meant, or a new one where `init` would make it."""
    place = session.find_place()
    if place is not None and place.url is not None:
        raise errors.Unsupported(
            f"that is done where the store is, and {place.why} names the server {place.url}",
            hint="call it there, with --dir",
        )
    if place is not None and place.folder is not None:
        return Path(os.path.relpath(place.folder) if place.why != "--dir" else session.given["dir"])
    return Path(os.path.relpath(places.home(session.folder)))


def _settings(folder: Path, given: dict[str, Any]) -> Settings:
    told: dict[str, Any] = {name: Path(value) if name in _PATHS else value for name, value in given.items()}
    told["tls_auto"] = told.pop("tls", None) == "auto"
    told["allow_hosts"] = tuple(told.get("allow_hosts", ()))
    return Settings(folder=folder, **told)


_PATHS = ("socket", "tls_cert", "tls_key", "access_log", "backup_folder")


def _tell(server: Server) -> None:
    try:
        _say(server)
    except BrokenPipeError:  # whoever started it has read what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(server: Server) -> None:
    token = server.settings.folder / FIRST
    print(f"listening on {server.url}")
    if token.exists():
        print(f"the first token is in {token}; send it as Authorization: Bearer TOKEN")
    else:
        print(f"send a token as Authorization: Bearer TOKEN; holdfast token create --dir {token.parent} makes one")
    if server.certificate is not None and server.settings.tls_auto:
        print(f"the certificate to trust is {server.certificate[0]}")
    print("\n".join(["", "try it:", *_tries(server, token)]), flush=True)


def _tries(server: Server, token: Path) -> list[str]:
    """Calls to copy."""
    where, more = server.url, ""
    if server.settings.socket is not None:
        where, more = "http://localhost", f" --unix-socket {server.settings.socket}"
    elif server.certificate is not None:
        more = f" --cacert {server.certificate[0]}"
    curl = f'  curl -s{more} -H "Authorization: Bearer $(cat {token})" -H "X-Agent-ID: me"'
    return [
        f"{curl} -H 'Content-Type: application/json' -d '{{\"title\": \"a first task\"}}' {where}/api/tasks",
        f"{curl} -X POST {where}/api/tasks/claim-next",
        f"{curl} -N -H 'Accept: text/event-stream' '{where}/api/events?after=0'",
        "every operation: GET / and GET /openapi.json",
    ]


COMMANDS = (
    Command(
        "serve",
        "Serve a workspace, and those in its folder `workspaces`, over HTTP.",
        (
            Argument("host", option="--host", help="where to listen (127.0.0.1)"),
            Argument("port", "int", "--port", help=f"{PORT}; 0 chooses a free one"),
            Argument("socket", option="--socket", of="FILE", help="a Unix socket, for you alone, instead"),
            Argument("tls", option="--tls", choices=("auto",), help="auto: make a certificate, for clients to pin"),
            Argument("tls_cert", option="--tls-cert", of="FILE", help="a certificate chain, PEM"),
            Argument("tls_key", option="--tls-key", of="FILE", help="its key, PEM"),
            Argument("allow_hosts", "texts", "--allow-host", of="HOST:PORT", help="another Host it may be called by"),
            Argument("max_watchers", "int", "--max-watchers", help=f"watches under one token ({MAX_WATCHERS})"),
            Argument("access_log", option="--access-log", of="FILE", help="a JSON line for every request; - is stderr"),
            Argument("backup_folder", option="--backup-dir", help="where backups go, at the end and --backup-every"),
            Argument("backup_every", "seconds", "--backup-every", help="make backups while it runs"),
            Argument("backups_kept", "int", "--backup-keep", help=f"backups that are kept ({BACKUPS_KEPT})"),
        ),
        serve,
        "Beyond this machine only with TLS. SIGTERM or Ctrl-C stops it; nothing in progress is lost.",
    ),
)
