"""NATS servers as the logs of a process reach them: requests, answers in several parts, subscriptions, and streams.

nats-py runs on an event loop in a thread of its own; callers wait in theirs. All logs of a process with one address
share a `Connection`. It connects at the first call and again after an outage, to any of the servers that the address
names, and then wakes every log. A call that fails before it is sent raises Unreachable; one that is cut off, or gets no
answer for a few seconds, may have arrived: it raises what the caller chose for that.

A workspace lies in one of 16 streams, by a hash of its name, so that several servers lead a share of them each; or in
one that its address names, which can have rights of its own.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import re
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from holdfast import errors
from holdfast.replication.engine_log import SharedClient

_LOGIN = (
    "give every process on this folder the login: NATS_CREDS, NATS_NKEY, NATS_USER and NATS_PASSWORD, or NATS_TOKEN;"
    " see docs/engines.md, NATS JetStream"
)
_ANSWER = 3.0  # seconds for which an answer is waited for
_CONNECT = 2.0  # for which each server may take to greet
_CLOSE = 0.5  # for which the end of a connection is waited for
_RECONNECT = 0.25
_PING = 2  # seconds between pings; a server that misses two is left
_NO_RESPONDERS = "503"
SHARDS = 16
REPLICAS = 3
_OPTIONS: Final = ("stream", "replicas", "monitor", "sync")
R = TypeVar("R")


class Message(NamedTuple):
    """What a server sent."""

    headers: dict[str, str]
    data: bytes

    @property
    def status(self) -> str | None:
        """The code of an answer that is no message, such as the end of a batch."""
        return self.headers.get("Status")


class Request(NamedTuple):
    """What is sent; the answer to a `batch` has messages, and ends with a status."""

    subject: str
    payload: bytes
    headers: dict[str, str] | None = None
    batch: bool = False


class Listener(Protocol):
    """A log that hears what is published on its subject."""

    @property
    def news_subject(self) -> str:
        """Where the entries of its workspace are published again."""

    def hear(self, message: Message) -> None:
        """Called in the thread of the loop, which must not wait."""

    def wake(self) -> None:
        """The connection is there again: news may have been missed."""


class _Lost(Exception):
    """A request was sent and not answered."""


class _Call:
    def __init__(self, batch: bool, done: asyncio.Future[list[Message]]) -> None:
        self.batch = batch
        self.done = done
        self.messages: list[Message] = []


class Connection(SharedClient):
    """The servers of one address as this process reaches them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        user, _, hosts = parts.netloc.rpartition("@")
        self.hosts = [host for host in hosts.split(",") if host]
        if not self.hosts:
            raise errors.Invalid("the address of a log names no server", hint="such as nats://h1,h2,h3/team-a")
        self._servers = [_server(f"{parts.scheme}://{host}") for host in self.hosts]
        name, colon, password = user.partition(":")
        self._login = {"user": unquote(name), "password": unquote(password)} if colon else {"token": unquote(name)}
        self._login = {name: value for name, value in self._login.items() if value}
        super().__init__(f"{parts.scheme}://{hosts}")
        self._first = os.getpid()
        self._logs: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._heard: weakref.WeakKeyDictionary[Listener, Any] = weakref.WeakKeyDictionary()  # subscriptions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._calls: dict[str, _Call] = {}
        self._tokens = itertools.count()
        self._complaint = ""  # such as missing rights, which no answer tells
        self.clustered = False  # as the last server said

    # --- calls -------------------------------------------------------------------------------------------------------

    def ask(self, request: Request, lost: type[Exception] = errors.Unreachable) -> Message:
        """Return the answer to one request."""
        return self.ask_all([request], lost)[0][0]

    def ask_all(
        self, requests: Sequence[Request], lost: type[Exception] = errors.Unreachable
    ) -> Sequence[Sequence[Message]]:
        """Return the answers to requests that are sent together; the last message of a batch has a status."""
        try:
            answers = self._run(self._ask_all(requests))
        except _Lost as error:
            raise lost(f"{self.address}: {error}") from None
        if any(answer[0].status == _NO_RESPONDERS for answer in answers):
            raise errors.Unreachable(f"{self.address}: no server answers for JetStream, or the stream has no leader")
        return answers

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        with self._lock:
            if self._closed:
                work.close()
                raise errors.Unreachable(f"the connection to {self.address} is closed")
            loop = self._loop or self._start()
            running = asyncio.run_coroutine_threadsafe(work, loop)
        return running.result()

    async def _ask_all(self, requests: Sequence[Request]) -> list[list[Message]]:
        try:
            async with asyncio.timeout(2 * _CONNECT):
                client = await asyncio.shield(self._connected)
        except TimeoutError:
            raise errors.Unreachable(f"{self.address}: no server has greeted yet{self._complaint}") from None
        if isinstance(client, errors.Unreachable):
            raise type(client)(client.message, hint=client.hint)
        tokens = [str(next(self._tokens)) for _ in requests]
        calls = [_Call(request.batch, asyncio.get_running_loop().create_future()) for request in requests]
        self._calls.update(zip(tokens, calls, strict=True))
        try:
            for token, request in zip(tokens, requests, strict=True):
                reply = f"{self._inbox}.{token}"
                await client.publish(request.subject, request.payload, reply=reply, headers=request.headers)
            async with asyncio.timeout(_ANSWER):
                return [await call.done for call in calls]
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise _Lost(f"{str(error) or 'no answer'}{self._complaint}") from None
        finally:
            for token in tokens:
                self._calls.pop(token, None)

    async def _answered(self, raw: Msg) -> None:
        call = self._calls.get(raw.subject.rpartition(".")[2])
        if call is None or call.done.done():
            return
        message = _message(raw)
        call.messages.append(message)
        if not call.batch or message.status is not None:
            call.done.set_result(call.messages)

    # --- the connection ----------------------------------------------------------------------------------------------

    def _start(self) -> asyncio.AbstractEventLoop:
        """Start the thread; called under the lock."""
        loop = self._loop = asyncio.new_event_loop()
        self._connected: asyncio.Future[Client | errors.Unreachable] = loop.create_future()
        self._down = asyncio.Event()
        self._thread = threading.Thread(target=self._serve, args=(loop,), name="holdfast-nats", daemon=True)
        self._thread.start()
        return loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(self._keep())
            rest = asyncio.all_tasks(loop)
            for task in rest:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        finally:
            loop.close()

    async def _keep(self) -> None:
        """Connect, and again whenever the connection is lost, until the last log is closed."""
        loop = asyncio.get_running_loop()
        while not self._closed:
            client: Client | None = None
            try:
                client = await self._connect()
                while missing := [log for log in self._all_logs() if log not in self._heard]:
                    await self._subscribe(client, missing)
            except Exception as error:  # whatever it is: all calls wait for this thread
                if client is not None:
                    self._heard.clear()
                    await _close(client)
                self._connected.set_result(self._failure(error))
                await asyncio.sleep(0 if self._closed else _RECONNECT)
                self._connected = loop.create_future()
                continue
            self._connected.set_result(client)
            for log in self._all_logs():
                log.wake()
            if not self._closed:  # it is set before the event is
                await self._down.wait()
            self._connected = loop.create_future()
            self._heard.clear()
            for call in self._calls.values():
                if not call.done.done():
                    call.done.set_exception(nats.errors.ConnectionClosedError())
            await _close(client)
        self._connected.set_result(errors.Unreachable(f"the connection to {self.address} is closed"))

    def _failure(self, error: Exception) -> errors.Unreachable:
        """The error of a connection that was not made."""
        said = f"{self.address}: {self._say(error)}"
        if isinstance(error, nats.errors.AuthorizationError) or "authorization" in str(error).lower():
            return errors.LogRefused(said, hint=_LOGIN)
        return errors.Unreachable(said)

    async def _connect(self) -> Client:
        error: Exception = nats.errors.NoServersError()
        self._first = (self._first + 1) % len(self._servers)  # processes differ, and the one that was left comes last
        for server in self._servers[self._first :] + self._servers[: self._first]:
            client, greeted = Client(), False

            async def complain(complaint: Exception) -> None:
                if not greeted:  # noqa: B023  (nats-py would try this server again and again)
                    raise complaint
                self._complaint = f"; the server says: {self._say(complaint)}"

            self._down.clear()
            try:
                async with asyncio.timeout(2 * _CONNECT):
                    await client.connect(
                        server,
                        name="holdfast",
                        allow_reconnect=False,
                        connect_timeout=int(_CONNECT),
                        ping_interval=_PING,
                        error_cb=complain,
                        closed_cb=self._lost,
                        **_credentials(self._login),
                    )
                greeted, self._complaint = True, ""
                self._inbox = client.new_inbox()
                await client.subscribe(f"{self._inbox}.*", cb=self._answered)
                self.clustered = bool(client._server_info.get("cluster"))
                return client
            except (nats.errors.Error, OSError, TimeoutError) as failed:
                error = failed
                await _close(client)
        raise error

    async def _lost(self) -> None:
        self._down.set()

    def _say(self, error: Exception) -> str:
        """What an error says, in one line and without credentials."""
        text = " ".join(str(error).split()) or type(error).__name__
        for secret in self._login.values():
            text = text.replace(secret, "***")
        return text

    # --- news --------------------------------------------------------------------------------------------------------

    def listen(self, log: Listener) -> None:
        with self._lock:
            new = log not in self._logs
            self._logs.add(log)
        if new:
            self._run(self._listen(log))

    def listens(self, log: Listener) -> bool:
        return log in self._heard

    def _all_logs(self) -> list[Listener]:
        with self._lock:
            return list(self._logs)

    async def _listen(self, log: Listener) -> None:
        if self._connected.done() and isinstance(client := self._connected.result(), Client):
            try:
                await self._subscribe(client, [log])
            except (nats.errors.Error, OSError):
                return  # connecting again subscribes

    async def _subscribe(self, client: Client, logs: list[Listener]) -> None:
        """Subscribe logs, which listen once the server says that it knows: until then it sends them nothing."""
        made = {}
        for log in logs:
            made[log] = await client.subscribe(log.news_subject, cb=_ear(log))
        await client.flush(int(_ANSWER))
        for log, subscription in made.items():
            if log in self._logs:
                self._heard[log] = subscription
            else:  # it was closed meanwhile
                await subscription.unsubscribe()

    async def _unsubscribe(self, log: Listener) -> None:
        subscription = self._heard.pop(log, None)
        if subscription is not None:
            try:
                await subscription.unsubscribe()
            except nats.errors.Error:
                return  # the connection is gone, and its subscriptions with it

    # --- the end -----------------------------------------------------------------------------------------------------

    def release(self, log: Listener) -> None:
        last, loop, thread = self._count_out(), self._loop, self._thread
        with self._lock:
            self._logs.discard(log)
        if loop is None or thread is None:
            return
        if not last:
            self._run(self._unsubscribe(log))
            return
        loop.call_soon_threadsafe(self._down.set)
        thread.join()


def _server(url: str) -> str:
    """The address of one server, if it can be one."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return url
        reason = "a server has a name, and a port above 0"
    except ValueError as error:
        reason = str(error)
    raise errors.Invalid(f"{url} is not the address of a server: {reason}", hint="such as nats://h1,h2:4222,h3/team-a")


def _ear(log: Listener) -> Callable[[Msg], Awaitable[None]]:
    """What a subscription calls; it keeps no log alive."""
    known = weakref.ref(log)

    async def hear(raw: Msg) -> None:
        if (listener := known()) is not None:
            listener.hear(_message(raw))

    return hear


async def _close(client: Client) -> None:
    """Close a client, which waits for a server that broke off a TLS handshake for ever."""
    try:
        async with asyncio.timeout(_CLOSE):
            await client.close()
    except (TimeoutError, nats.errors.Error, OSError, AssertionError):
        return  # it is not used any more; one that never began to connect refuses to be closed


def _message(raw: Msg) -> Message:
    return Message({str(name): value for name, value in (raw.headers or {}).items()}, raw.data)


def _credentials(login: dict[str, str]) -> dict[str, Any]:
    """How to log in and to encrypt: as the address says, else as the environment does, by the names of NATS's tools."""
    environ = os.environ
    found: dict[str, Any] = dict(login)
    if not found:
        if environ.get("NATS_CREDS"):
            found["user_credentials"] = environ["NATS_CREDS"]
        elif environ.get("NATS_NKEY"):
            found["nkeys_seed"] = environ["NATS_NKEY"]
        elif environ.get("NATS_USER"):
            found |= {"user": environ["NATS_USER"], "password": environ.get("NATS_PASSWORD", "")}
        elif environ.get("NATS_TOKEN"):
            found["token"] = environ["NATS_TOKEN"]
    if environ.get("NATS_CA") or environ.get("NATS_CERT"):
        import ssl

        found["tls"] = context = ssl.create_default_context(cafile=environ.get("NATS_CA"))
        if environ.get("NATS_CERT"):
            context.load_cert_chain(environ["NATS_CERT"], environ.get("NATS_KEY"))
    return found


def configuration(name: str, replicas: int) -> dict[str, Any]:
    """The configuration of a stream for workspaces: nothing is ever discarded, entries are published again."""
    news = {"src": f"holdfast.{name}.*.e", "dest": f"holdfast-news.{name}.{{{{wildcard(1)}}}}"}
    return {
        "name": name,
        "subjects": [f"holdfast.{name}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "num_replicas": replicas,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "republish": news,
    }


def shard_of(workspace: str) -> str:
    """The stream that has a workspace if its address names none."""
    number = int.from_bytes(hashlib.blake2b(workspace.encode(), digest_size=2).digest(), "big") % SHARDS
    return f"HOLDFAST-{number:02}"


def read_options(url: str) -> dict[str, str]:
    """The options of an address. Raises Invalid."""
    found = dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))
    wrong = [name for name in found if name not in _OPTIONS]
    wrong += [name for name in ("replicas", "monitor") if not found.get(name, "1").isdecimal()]
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", found.get("stream", "x")):
        wrong.append("stream")
    if found.get("sync", "always") != "always":
        wrong.append("sync")
    if wrong:
        hint = "there are ?stream=NAME, ?replicas=NUMBER, ?monitor=PORT and ?sync=always"
        raise errors.Invalid(f"options that the address of a NATS log does not have: {', '.join(wrong)}", hint=hint)
    return found


def syncs(host: str, port: int) -> str | bool:
    """Whether a server syncs every write, as its monitoring says, or why that is not known."""
    from urllib.request import urlopen

    try:
        with urlopen(f"http://{host}:{port}/varz", timeout=2) as answer:
            found = msgspec.json.decode(answer.read())
    except (OSError, ValueError, msgspec.DecodeError) as error:
        return f"does not say on port {port} whether it syncs every write: {error}"
    return bool(found.get("jetstream", {}).get("config", {}).get("sync_always"))


def doubts(connection: Connection, stream: str, replicas: int, options: dict[str, str]) -> Iterator[str]:
    """What may lose an entry that a stream has acknowledged, in words."""
    if connection.clustered and replicas < REPLICAS:
        yield (
            f"the stream {stream} has {replicas} of {REPLICAS} replicas: a lost disk loses acknowledged writes."
            f" nats stream edit {stream} --replicas {REPLICAS} changes it"
        )
    if options.get("sync") == "always":
        return
    if "monitor" not in options:
        yield (
            "whether the servers sync every write is not known. Set jetstream { sync_interval: always } on each, and"
            " add monitor=PORT to the address to have it checked, or sync=always to say that it is so"
        )
        return
    for host in connection.hosts:
        synced = syncs(host.rpartition(":")[0] or host, int(options["monitor"]))
        if synced is not True:
            yield f"the server {host} {synced or 'does not sync every write: a power loss loses acknowledged ones'}"
