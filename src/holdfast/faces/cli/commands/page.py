"""`holdfast ui` and `session`: open the web page of a workspace, and see who is signed in.

A link carries a ticket in its fragment, which browsers do not send and logs do not have. The ticket works once, within
10 minutes, and has the rights of the token that it was made with: of a workspace on this machine that is the first one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast import errors
from holdfast.faces.cli.args import Argument, Usage
from holdfast.faces.cli.call import Session, tell
from holdfast.faces.cli.command import command
from holdfast.faces.cli.commands.server import carry_out, load_server, server_folder
from holdfast.faces.cli.commands.store import server_of
from holdfast.faces.cli.credentials import credentials
from holdfast.faces.http.auth import Tokens
from holdfast.faces.http.listener import Settings
from holdfast.faces.http.sessions import Sessions

if TYPE_CHECKING:
    from holdfast.faces.http.server import Server


@command(
    "ui",
    Argument("no_open", "flag", help="only print the link"),
    more="The link works once, for 10 minutes. Without a running server, it starts one until Ctrl-C.",
)
def ui(session: Session, given: dict[str, Any]) -> int:
    """Open the web page of the workspace in a browser, signed in."""
    opening = not given.get("no_open", False)
    place = session.find_place()
    if place is not None and place.url is not None:
        _show(session, _link(place.url, _ask_ticket(session, place.url)), opening)
        return 0
    folder = server_folder(session)
    running = server_of(str(folder))
    if running:
        url = running.split()[-1]  # pid 4711 at http://...
        if not url.startswith("http"):
            hint = "restart it with --port instead of --socket"
            raise errors.Unsupported(f"a browser cannot reach a server at {url}", hint=hint)
        _show(session, _link(url, _make_ticket(folder)), opening)
        return 0
    make, tune = load_server()
    server = make(Settings(folder=folder, port=0), carry_out)
    tune()
    server.run(lambda: _started(session, server, opening))
    return 0


def _started(session: Session, server: Server, opening: bool) -> None:
    _show(session, link_to(server), opening)
    session.out.note(f"serving {server.settings.folder} until Ctrl-C")


def link_to(server: Server) -> str:
    """A new link to the page of a server, which signs in."""
    return _link(server.url, _make_ticket(server.settings.folder))


def _make_ticket(folder: Path) -> str:
    sessions = Sessions(folder, Tokens(folder))
    return sessions.give_ticket(sessions.token_for_link())


def _link(url: str, ticket: str) -> str:
    base, slash, name = url.rstrip("/").partition("://")[2].partition("/")
    start = f"{url.partition('://')[0]}://{base}/ui/"
    return f"{start}{name}/fleet#ticket={ticket}" if slash else f"{start}#ticket={ticket}"


def _show(session: Session, link: str, opening: bool) -> None:
    session.out.say({"link": link}, link)
    sys.stdout.flush()
    if opening:
        import webbrowser

        if not webbrowser.open(link):
            session.out.note("no browser was found: open the link yourself")


def _ask_ticket(session: Session, url: str) -> str:
    """A ticket from a server elsewhere, with the rights of the token that is known for it."""
    from holdfast.remote import ask_ticket

    known = credentials(url, session.environ)
    token = known.token or session.environ.get("HOLDFAST_TOKEN") or _token_file(session)
    if not token or not url.startswith("http"):
        raise errors.Unauthorized(f"there is no token for {url}", hint=f"holdfast login {url}")
    return ask_ticket(url, token, known.certificate or True)


def _token_file(session: Session) -> str:
    path = session.environ.get("HOLDFAST_TOKEN_FILE", "")
    return Path(path).read_text().strip() if path and os.path.exists(path) else ""


@command("session list")
def show(session: Session, given: dict[str, Any]) -> int:
    """List the browsers that are signed in to a server."""
    found = _sessions(session).all()
    fields = [{name: value for name, value in msgspec.to_builtins(each).items() if name != "digest"} for each in found]
    lines = [f"{each.id}  token {each.token}  until {each.expires_at:%Y-%m-%d %H:%M} UTC" for each in found]
    session.out.say(fields, *lines)
    if not found:
        tell(session, "no browser is signed in")
    return 0


@command(
    "session revoke",
    Argument("id", word=True, help="as in session list"),
    Argument("all", "flag", help="sign out all of them"),
)
def revoke(session: Session, given: dict[str, Any]) -> int:
    """Sign a browser out."""
    sessions, every = _sessions(session), given.get("all", False)
    if every == ("id" in given):
        raise Usage("name one session, or use --all", hint="holdfast session list shows them")
    ids = [each.id for each in sessions.all()] if every else [given["id"]]
    for id in ids:
        sessions.revoke(id)
    session.out.say({"ids": ids}, *(f"revoked {id}" for id in ids))
    if not ids:
        tell(session, "no browser is signed in")
    return 0


def _sessions(session: Session) -> Sessions:
    folder = server_folder(session)
    if not folder.is_dir():
        raise errors.NotFound(f"there is no folder {folder}", hint="name the server's folder with --dir")
    return Sessions(folder, Tokens(folder))
