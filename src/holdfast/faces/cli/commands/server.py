"""`holdfast serve`, `token` and `login`: serve a workspace, and manage access to it.

A server also carries out commands of other processes (`relay`). It runs the same code as they would, with their words,
folder, environment and terminal, on the workspace that it has open.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast import __version__, client_sessions, errors, private_socket
from holdfast.faces.cli import location, print_error, relay, understood
from holdfast.faces.cli.args import Argument
from holdfast.faces.cli.call import Session
from holdfast.faces.cli.command import command
from holdfast.faces.cli.credentials import Credentials, remember
from holdfast.faces.cli.paths import point
from holdfast.faces.cli.width import fitted, title
from holdfast.faces.http.auth import EVERY, FIRST_TOKEN, MAIN, Token, Tokens, check_space, closed_here
from holdfast.faces.http.listener import BACKUPS_KEPT, MAX_WATCHERS, PORT, Settings
from holdfast.hints import for_shell
from holdfast.workspace import Workspace, with_context
from holdfast.workspace.context import ROLES, CallerGoneError, Context, derive_actor
from holdfast.workspace.tokens import FileTokens

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
    Argument("link", "flag", help="print a link to the web page first: it signs in once, for 10 minutes"),
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
    make, tune = load_server()
    link = given.pop("link", False)
    from holdfast.faces.cli.commands.store import folder_of

    if session.environ.get("HOLDFAST_ROLLING") != "0":
        given["stop_folder"] = lambda store: Path(folder_of(str(store), session.environ))
    trace_if_wanted(session.environ)
    server = make(_settings(server_folder(session), given), carry_out)
    tune()
    server.run(lambda: _announce(server, link))
    return 0


def trace_if_wanted(environ: Mapping[str, str]) -> None:
    """Turn on OpenTelemetry if HOLDFAST_OTEL=1; its own variables say where spans and measurements go."""
    if environ.get("HOLDFAST_OTEL") == "1":
        from holdfast import telemetry

        telemetry.enable()


def load_server() -> tuple[type[Server], Callable[[], None]]:
    """Load what serves, and what to call before: no other command needs it. It logs to standard error."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
    try:
        from holdfast.faces.http.server import Server, tune
    except ImportError as error:
        raise errors.not_installed("the server", "server", error) from error
    return Server, tune


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


def _announce(server: Server, link: bool = False) -> None:
    from holdfast.faces.cli.commands.page import link_to

    token = server.settings.folder / FIRST_TOKEN
    lines = [f"open {link_to(server)}", ""] if link and server.settings.socket is None else []
    lines.append(f"listening on {server.url}")
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
    secret = f"$(cat {token})" if token.exists() else "TOKEN"
    curl = f'  curl -s{more} -H "Authorization: Bearer {secret}" -H "X-Agent-ID: agent-1"'
    return [
        f"{curl} -H 'Content-Type: application/json' -d '{{\"title\": \"a first task\"}}' {where}/api/tasks",
        f"{curl} -X POST {where}/api/tasks/claim-next",
        f"{curl} -N -H 'Accept: text/event-stream' '{where}/api/events?after=0'",
        "every operation, with the token: GET /openapi.json",
    ]


# --- commands of other processes -------------------------------------------------------------------------------------

_BLOCKING: Final = ("wait", "watch", "staged")  # arguments for which a command waits, or starts a process
_SAME: Final = ("HOME", "TZ")  # what the system looks up in the environment of this process


class _DeclinedError(Exception):
    """The calling process must carry out this command itself. Nothing has been changed."""


def carry_out(workspace: Workspace, folder: Path, body: bytes) -> bytes | None:
    """Carry out the command of another process; None, and nothing is changed, if it must do that itself.

    Raises CallerGoneError if the caller waits no longer, and Closed if the files of the store were removed or moved:
    the caller settles by the key of the command what has become of it.
    """
    try:
        request = private_socket.Request.decode(body)
    except ValueError:  # of another version, which has another form
        return None
    same = all(request.environ.get(name) == os.environ.get(name) for name in _SAME)
    if request.version != __version__ or request.view != relay.view() or not same:
        return None
    if not request.words:  # the caller asks whether it would be served
        return _answer_whether(workspace)
    if workspace.is_lost:
        return None
    if monotonic() >= request.until:
        raise CallerGoneError
    try:
        return _answer(request, workspace, folder)
    except _DeclinedError:
        return None


def _answer_whether(workspace: Workspace) -> bytes:
    """Whether the store can be used, with the reason if not."""
    try:
        if workspace.is_lost:
            raise errors.Closed("its store was removed, moved or replaced while it ran")
        workspace.revision  # noqa: B018  # raises unless it can be read
    except errors.Closed as error:
        reason = f"{error.message}; {for_shell(closed_here(error).hint)}"
        return private_socket.encode_answer(error.exit_code, [(private_socket.ERROR, reason.encode())])
    return private_socket.encode_answer(0, [])


def _answer(request: private_socket.Request, workspace: Workspace, folder: Path) -> bytes:
    pieces: list[private_socket.Piece] = []
    streams = (
        relay.Recorder(private_socket.OUT, pieces, request.columns),
        relay.Recorder(private_socket.ERROR, pieces, request.error_columns),
    )
    heard = errors.HEARS.set(None)
    try:
        called, common, given = understood(request.words)
        if not called.relayed or any(given.get(name) for name in _BLOCKING):
            raise _DeclinedError(called.name)
        session = _Relayed(request, common, streams, pieces, workspace, folder)
        errors.HEARS.set(session.hear)
        try:
            code = called.run(session, given)
        except errors.InvalidHolder as error:
            raise session.explain(error) from None
        except errors.HoldfastError as error:
            point(session, error)
            raise
    except errors.Closed:  # the caller can open it again
        raise
    except errors.HoldfastError as error:
        print_error(error, request.words, request.environ, streams[1])
        code = error.exit_code
    finally:
        errors.HEARS.reset(heard)
    return private_socket.encode_answer(code, pieces)


class _Relayed(Session):
    """A command of another process, on the workspace that this server has open."""

    def __init__(
        self,
        request: private_socket.Request,
        given: dict[str, Any],
        streams: tuple[relay.Recorder, relay.Recorder],
        pieces: list[private_socket.Piece],
        workspace: Workspace,
        folder: Path,
    ) -> None:
        super().__init__(given, request.environ, key=request.key, streams=streams)
        self.folder = request.folder
        self._request = request
        self._pieces = pieces
        self._workspace = workspace
        self._served = folder

    def hear(self, message: str, hint: str) -> None:
        """Show a warning to the caller; the log of the server has it too."""
        super().hear(message, hint)
        errors.log(message, hint)

    def find_place(self) -> location.Place:
        """The workspace that is meant, if this server serves it."""
        place = super().find_place()
        if place is None or place.folder is None or not place.exists or not self._served.samefile(place.folder):
            raise _DeclinedError("it is for another workspace")
        return place

    def open(self, writing: bool = False, named: bool = False) -> Any:
        """The served workspace, in the context of this call; it stays open."""
        assert self.place.folder is not None
        context = Context(self._actor(), until=self._request.until)
        return nullcontext(with_context(self._workspace, context).using(**self._context()))

    @property
    def recorded(self) -> str | None:
        """The caller has looked: this process belongs to no client."""
        return None

    @property
    def several(self) -> str:
        """The same, as the caller has found it."""
        return self.environ.get(client_sessions.SEVERAL, "")

    def note_hook(self, hook: str, session: str, actor: str, event: str) -> None:
        """Have the caller record it, which is below the client."""
        told = "\t".join((hook, session, actor, event))
        self._pieces.append((private_socket.HOOK, told.encode("utf-8", "surrogateescape")))

    def _actor(self) -> str:
        return derive_actor(self.environ) if self.actor is None else self.actor

    def open_local(self, writing: bool = False) -> Any:
        """Only the process itself may have a workspace of its own."""
        raise _DeclinedError("it opens the store itself")

    @property
    def may_repeat(self) -> bool:
        """Only under a key that was given: the one of this call is new."""
        return self.given.get("key") is not None

    def tokens(self, holder: str) -> FileTokens:
        """The tokens of a holder."""
        assert self.place.folder is not None
        return _RelayedTokens(self.place.folder, holder, self._pieces)

    def input(self) -> bytes:
        """What the caller has read on its standard input."""
        return self._request.given

    def wrote(self) -> None:
        """Have the caller start a copy, where that is needed."""
        from holdfast.faces.cli.commands.store import needs_copying

        assert self.place.folder is not None
        if needs_copying(self.place.folder, self.environ):
            self._pieces.append((private_socket.COPY, b""))


class _RelayedTokens(FileTokens):
    """Tokens that the caller forgets, once it has the answer: until then it may repeat the call, with its token."""

    def __init__(self, folder: str, holder: str, pieces: list[private_socket.Piece]) -> None:
        super().__init__(folder, holder)
        self._root = folder
        self._pieces = pieces

    def forget(self, *thing: str) -> None:
        """A thing is no longer held."""
        self._pieces.append((private_socket.FORGET, os.path.relpath(self._path(thing), self._root).encode()))


# --- access ----------------------------------------------------------------------------------------------------------


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
    wide = max((len(token.actor or "-") for token in found), default=0)
    session.out.say(
        [_public(token) for token in found], *(fitted(_line(token, wide), session.out.width) for token in found)
    )
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


def _line(token: Token, wide: int) -> str:
    """A token, with its actor in a column of this width; a long note is cut where the line ends."""
    workspace = token.workspace or '""'
    return f"{token.id}  {token.role:<5}  {workspace:<12}  {token.actor or '-':<{wide}}  {title(token.note)}".rstrip()


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
    with connect(url, token=token, actor=session.chosen, verify=certificate or True) as workspace:
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
