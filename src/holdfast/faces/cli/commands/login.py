"""`holdfast login URL`: put down the token of a server, after trying it."""

from __future__ import annotations

import os
import sys
from typing import Any

from holdfast import errors
from holdfast.faces.cli.command import Command
from holdfast.faces.cli.credentials import Credentials, remember
from holdfast.faces.cli.session import Session
from holdfast.faces.cli.words import Argument


def login(session: Session, given: dict[str, Any]) -> int:
    """Try a token and put it down; it is read, never taken from the command line."""
    from holdfast.remote import connect

    url, certificate = given["server"], given.get("cacert")
    if certificate is not None:
        certificate = os.path.abspath(certificate)
    token = _token(session, given)
    with connect(url, token=token, actor=session.actor, verify=certificate or True) as workspace:
        revision = workspace.revision
    path = remember(url, Credentials(token, certificate), session.environ)
    told = f"the token is good, the workspace is at revision {revision}; it is in {path}"
    session.out.say({"url": url, "revision": revision, "file": path}, told, f"next: export HOLDFAST_URL={url}")
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
    return sys.stdin.readline().strip()


COMMANDS = (
    Command(
        "login",
        "Put down the token of a server, after trying it.",
        (
            Argument("server", option="--server", word=True, required=True, of="URL", help="its address"),
            Argument(
                "token_file", option="--token-file", of="FILE", help="a file with the token; else it is asked for"
            ),
            Argument("cacert", option="--cacert", of="FILE", help="the certificate of a server that made its own"),
        ),
        login,
        "The token is read from --token-file, HOLDFAST_TOKEN or standard input.",
    ),
)
