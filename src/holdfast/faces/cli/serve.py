"""`holdfast serve`: one server for a folder, until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.faces.http.settings import BACKUPS_KEPT, MAX_WATCHERS, PORT, Settings
from holdfast.faces.http.tokens import FIRST

if TYPE_CHECKING:
    from holdfast.faces.http.serving import Server


def main(argv: Sequence[str]) -> int:
    """Start a server and say where it listens; 0 when it was told to stop."""
    given = _parser().parse_args(argv)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # what it does for us, we say ourselves
    try:
        from holdfast.faces.http.serving import Server, tune
    except ImportError as error:
        raise errors.Unsupported(
            f"the server needs more than is installed: {error}", hint="pip install 'holdfast[server]'"
        ) from error
    server = Server(_settings(given))
    tune()
    server.run(lambda: _tell(server))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="holdfast serve",
        description="Serve a workspace, and those in its folder `workspaces`, over HTTP.",
        epilog="Beyond this machine only with TLS. SIGTERM or Ctrl-C stops it; nothing in progress is lost.",
    )
    add = parser.add_argument
    add("--dir", type=Path, default=Path(".holdfast"), help="the folder of the workspace (.holdfast)")
    add("--host", default="127.0.0.1", help="where to listen (127.0.0.1)")
    add("--port", type=int, default=PORT, help=f"{PORT}; 0 chooses a free one")
    add("--socket", type=Path, help="a Unix socket, for you alone, instead")
    add("--tls", choices=("auto",), help="make a certificate of its own, for clients to pin")
    add("--tls-cert", type=Path, help="a certificate chain, PEM")
    add("--tls-key", type=Path, help="its key, PEM")
    add("--allow-host", action="append", default=[], metavar="HOST:PORT", help="another Host by which it may be called")
    add("--max-watchers", type=int, default=MAX_WATCHERS, help=f"watches under one token ({MAX_WATCHERS})")
    add("--access-log", type=Path, metavar="FILE", help="a JSON line for every request; - is the standard error")
    add("--backup-dir", type=Path, help="where backups go, at the end and --backup-every")
    add("--backup-every", type=float, metavar="SECONDS", help="make backups while it runs")
    add("--backup-keep", type=int, default=BACKUPS_KEPT, help=f"backups of a workspace that are kept ({BACKUPS_KEPT})")
    return parser


def _settings(given: argparse.Namespace) -> Settings:
    return Settings(
        folder=given.dir,
        host=given.host,
        port=given.port,
        socket=given.socket,
        tls_auto=given.tls == "auto",
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        allow_hosts=tuple(given.allow_host),
        max_watchers=given.max_watchers,
        access_log=given.access_log,
        backup_folder=given.backup_dir,
        backup_every=given.backup_every,
        backups_kept=given.backup_keep,
    )


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
