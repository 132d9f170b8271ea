"""`python -m holdfast.faces.http`: serve a folder until told to stop."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from holdfast import errors
from holdfast.faces.http.serving import PORT, Server, Settings
from holdfast.faces.http.tokens import FIRST


def main() -> int:
    """Start a server and say where it listens; 0 when it was told to stop."""
    parser = argparse.ArgumentParser(prog="python -m holdfast.faces.http", description="Serve a workspace over HTTP.")
    parser.add_argument("--dir", type=Path, default=Path(".holdfast"), help="the folder of the workspace")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; beyond this machine only with TLS")
    parser.add_argument("--port", type=int, default=PORT, help="0 chooses a free one")
    parser.add_argument("--socket", type=Path, help="a Unix socket instead")
    parser.add_argument("--tls-cert", type=Path, help="a certificate chain, PEM")
    parser.add_argument("--tls-key", type=Path, help="its key, PEM")
    parser.add_argument("--allow-host", action="append", default=[], help="another Host under which it may be called")
    given = parser.parse_args()
    try:
        server = Server(
            Settings(
                folder=given.dir,
                host=given.host,
                port=given.port,
                socket=given.socket,
                tls_cert=given.tls_cert,
                tls_key=given.tls_key,
                allow_hosts=tuple(given.allow_host),
            )
        )
        server.run(lambda: _say(server))
    except errors.HoldfastError as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def _say(server: Server) -> None:
    token = server.settings.folder / FIRST
    print(f"listening on {server.url}")
    print(f"the first token is in {token}; send it as Authorization: Bearer TOKEN", flush=True)


if __name__ == "__main__":
    sys.exit(main())
