"""Where PEER agents keep cycles: a JetStream bucket or a folder of files, keys with values, each at a revision.

A bucket is read by a watch, whose end marker may come before the entries: a reading counts only if it has every key
that the stream lists. A deleted key is known by its marker, older revisions by the stream.

A bucket needs the extra `jetstream`, which is loaded when one is opened. The client speaks asyncio: it gets an event
loop of its own, which runs during a call. Every wait has a timeout. No message shows a password.

A file is replaced whole or not at all, under a lock that everybody who writes through this module takes; a writer that
does not is noticed, unless it writes between the last look and the replacement. Symlinks are not followed.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from holdfast import errors

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue


Revision: TypeAlias = int | str


class Entry(NamedTuple):
    """A value as it was found, and its revision."""

    value: bytes
    revision: Revision


class Contents(dict[str, Entry]):
    """The entries of a location by key; `deleted` are keys that it had, `unread` what is no entry, and why."""

    def __init__(self, entries: Mapping[str, Entry] = MappingProxyType({})) -> None:
        super().__init__(entries)
        self.deleted: set[str] = set()
        self.unread: dict[str, str] = {}


class Location(Protocol):
    """A bucket or a folder."""

    @property
    def indent(self) -> int:
        """How many spaces indent the parts of a document; 0 for one line."""
        ...

    @property
    def name(self) -> str:
        """The name for messages."""
        ...

    def read(self) -> Contents:
        """Every key with its value."""
        ...

    def history(self, key: str) -> list[Entry]:
        """The values that a key had before, newest first, as far as they are kept."""
        ...

    def remove(self, key: str, expected: Revision) -> None:
        """Remove a key that is still at revision `expected`. Raises VersionMismatch."""
        ...

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Replace the value at revision `expected`, or create it if that is None. Raises VersionMismatch."""
        ...


def moved(location: str, key: str, expected: Revision | None, present: Revision | None) -> errors.VersionMismatch:
    """The error of a write that came too late."""
    now = "is gone" if present is None else f"is at revision {present}"
    before = "did not exist" if expected is None else f"was at {expected}"
    return errors.VersionMismatch(
        f"{key} of {location} {now}, and {before} when it was read",
        hint="read it again and decide again",
        key=key,
        expected=expected,
        version=present,
    )


T = TypeVar("T")
_SCHEMES: Final = ("nats", "tls", "ws", "wss")
_HISTORY: Final = 50  # revisions that a bucket keeps, as upstream does
_READS: Final = 3
_GONE: Final = ("DEL", "PURGE")


class Bucket:
    """A bucket of a NATS server, open until `close`; with `create` it is created if it does not exist."""

    indent: Final = 0

    def __init__(self, url: str, bucket: str, create: bool = False, timeout: float = 5.0) -> None:
        _check(url)
        self._url, self._bucket, self._timeout, self._server = url, bucket, timeout, _plain(url)
        self.name = f"the bucket {bucket} of {self._server}"
        self._client: Client | None = None
        self._heard: Exception | None = None  # why the connection failed
        self._loop = asyncio.Runner()
        try:
            self._values: KeyValue = self._call(self._open(create))
        except BaseException:
            self.close()
            raise

    def read(self) -> Contents:
        """Every key that is not deleted. Raises Unavailable if a reading is not whole, three times in a row."""
        return self._call(self._read())

    def history(self, key: str) -> list[Entry]:
        """The values that a key had before, newest first."""
        return self._call(self._history(key))

    def remove(self, key: str, expected: Revision) -> None:
        """Delete a key that is still at revision `expected`; the bucket keeps its history."""
        self._call(self._remove(key, expected), writing=True)

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Replace the value at revision `expected`, or create it if that is None."""
        return self._call(self._write(key, value, expected), writing=True)

    def close(self) -> None:
        """Close the connection; closing twice does nothing."""
        client, self._client = self._client, None
        try:
            if client is not None:
                self._loop.run(asyncio.wait_for(client.close(), self._timeout))
        finally:
            self._loop.close()

    def __enter__(self) -> Bucket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- on the loop -------------------------------------------------------------------------------------------------

    async def _open(self, create: bool) -> KeyValue:
        from nats.aio.client import Client
        from nats.js.api import KeyValueConfig
        from nats.js.errors import BucketNotFoundError

        self._client = Client()
        await self._client.connect(
            self._url,
            connect_timeout=max(1, round(self._timeout)),
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            error_cb=self._hear,
        )
        stream = self._jetstream()
        try:
            return await stream.key_value(self._bucket)
        except BucketNotFoundError as error:
            if not create:
                raise errors.NotFound(
                    f"there is no bucket {self._bucket!r} on {self._server}",
                    hint="check the name; an export can create it",
                    bucket=self._bucket,
                ) from error
        return await stream.create_key_value(KeyValueConfig(bucket=self._bucket, history=_HISTORY))

    async def _hear(self, error: Exception) -> None:
        self._heard = error

    async def _read(self) -> Contents:
        for _ in range(_READS):
            wanted, messages = await self._subjects()
            if not wanted and not messages:
                return Contents()
            found = await self._watch(wanted) if wanted else None
            if found is not None:
                return found
        raise errors.Unavailable(f"{self.name} changed whenever it was read", hint="try again when nobody clears it")

    async def _subjects(self) -> tuple[set[str], int]:
        """Every key of the stream, deleted ones included, and its number of messages."""
        prefix = f"$KV.{self._bucket}."
        info = await self._jetstream().stream_info(f"KV_{self._bucket}", subjects_filter=f"{prefix}>")
        return {subject.removeprefix(prefix) for subject in info.state.subjects or ()}, info.state.messages

    async def _watch(self, wanted: set[str]) -> Contents | None:
        """Read until every key was there, whenever the end marker comes; None if that takes too long."""
        watcher: Any = await self._values.watchall()
        found = Contents()
        try:
            while not wanted <= found.keys() | found.deleted:
                try:
                    entry = await watcher.updates(timeout=self._timeout)
                except TimeoutError:
                    return None
                if entry is None:
                    continue
                found.pop(entry.key, None)
                found.deleted.discard(entry.key)
                if entry.operation in _GONE:
                    found.deleted.add(entry.key)
                else:
                    found[entry.key] = Entry(entry.value or b"", int(entry.revision or 0))
        finally:
            await watcher.stop()
        return found

    async def _history(self, key: str) -> list[Entry]:
        from nats.js.errors import NotFoundError

        stream, found, after = self._jetstream(), list[Entry](), 0
        while True:
            try:
                message = await stream.get_msg(
                    f"KV_{self._bucket}", seq=after + 1, subject=f"$KV.{self._bucket}.{key}", next=True
                )
            except NotFoundError:
                return found[-2::-1] if found else []
            after = message.seq or 0
            found.append(Entry(message.data or b"", after))

    async def _remove(self, key: str, expected: Revision) -> None:
        from nats.js.errors import KeyWrongLastSequenceError

        try:
            await self._values.delete(key, last=int(expected), validate_keys=False)
        except KeyWrongLastSequenceError as error:
            raise moved(self.name, key, expected, await self._present(key)) from error

    def _jetstream(self) -> JetStreamContext:
        if self._client is None:
            raise errors.Closed(f"{self.name} is closed")
        return self._client.jetstream(timeout=self._timeout)

    async def _write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        from nats.js.errors import KeyWrongLastSequenceError

        try:
            if expected is None:
                return await self._values.create(key, value)
            # A key that was read exists, even if the client would not accept its characters.
            return await self._values.update(key, value, last=int(expected), validate_keys=False)
        except KeyWrongLastSequenceError as error:
            raise moved(self.name, key, expected, await self._present(key)) from error

    async def _present(self, key: str) -> int | None:
        from nats.js.errors import KeyNotFoundError

        try:
            return (await self._values.get(key, validate_keys=False)).revision
        except KeyNotFoundError:
            return None

    def _call(self, work: Coroutine[Any, Any, T], writing: bool = False) -> T:
        """Run on the loop; errors of the client become ours."""
        try:
            import nats.errors
            import nats.js.errors
        except ImportError as error:
            work.close()
            raise errors.not_installed(self.name, "jetstream", error) from error
        where = self._server
        try:
            return self._loop.run(work)
        except nats.errors.MaxPayloadError as error:
            raise errors.TooLarge(f"{where} accepts no message of this size") from error
        except (nats.js.errors.InvalidKeyError, nats.js.errors.InvalidBucketNameError) as error:
            raise errors.InvalidName(f"{where} does not accept the name: {error}", hint="") from error
        except (nats.js.errors.ServiceUnavailableError, nats.js.errors.NoStreamResponseError) as error:
            raise errors.Unavailable(f"{where} has no JetStream", hint="start it with JetStream: -js") from error
        except (nats.errors.TimeoutError, TimeoutError) as error:
            if writing:
                raise errors.OutcomeUnknown(f"{where} did not answer in {self._timeout} seconds") from error
            raise errors.Unavailable(f"{where} did not answer in {self._timeout} seconds") from error
        except (nats.errors.Error, OSError) as error:
            why = str(error if self._heard is None else self._heard)
            if "authorization" in f"{error} {why}".lower():
                raise errors.Unauthorized(
                    f"{where} requires authentication", hint="add it to the address: nats://USER:PASSWORD@HOST"
                ) from error
            raise errors.Unavailable(
                f"{where} cannot be reached: {why}", hint="check the address, and that the server runs"
            ) from error


def _check(url: str) -> None:
    """Raise Invalid unless this can be the address of a server."""
    try:
        parts = urlsplit(url if "//" in url else f"nats://{url}")
        wrong = "" if parts.hostname else "it names no host"
        if parts.port == 0:
            wrong = "the port is 0"
    except ValueError as error:  # a bad port, half an IPv6 address
        wrong = str(error)
    if not wrong and parts.scheme not in _SCHEMES:
        wrong = f"it must begin with {' or '.join(f'{scheme}://' for scheme in _SCHEMES)}"
    if wrong:
        raise errors.Invalid(f"not the address of a NATS server: {wrong}", hint="such as nats://127.0.0.1:4222")


def _plain(url: str) -> str:
    """An address without its password."""
    parts = urlsplit(url if "//" in url else f"nats://{url}")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


_END: Final = ".json"
_LOCK: Final = ".lock"
_KEY: Final = re.compile(r"[^./\x00-\x1f][^/\x00-\x1f]{0,240}")
_TRIES: Final = 50  # to take the lock, every tenth of a second


class Folder:
    """The files of a folder; with `create` it is created if it does not exist."""

    indent: Final = 2

    def __init__(self, path: str, create: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        self.path = self.name = os.path.abspath(path)
        self._sleep = sleep
        if create:
            try:
                os.makedirs(self.path, exist_ok=True)
            except OSError as error:
                raise errors.IOFailed(f"{path} could not be created: {error.strerror}") from error
        if not os.path.isdir(self.path):
            raise errors.NotFound(f"there is no folder {path}", hint="check the path; an export creates it")

    def read(self) -> Contents:
        """Every file whose name ends in .json; what is no regular file is unread."""
        try:
            names = sorted(name for name in os.listdir(self.path) if name.endswith(_END) and name[0] != ".")
        except OSError as error:
            raise errors.IOFailed(f"{self.path} cannot be read: {error.strerror}") from error
        found = Contents()
        for name in names:
            try:
                entry = self._entry(name)
            except (errors.Invalid, errors.IOFailed) as error:
                found.unread[name.removesuffix(_END)] = error.message
                continue
            if entry is not None:
                found[name.removesuffix(_END)] = entry
        return found

    def history(self, key: str) -> list[Entry]:
        """None: a folder keeps no older values."""
        return []

    def remove(self, key: str, expected: Revision) -> None:
        """Delete a file that is still at revision `expected`."""
        self._change(key, expected, lambda name: os.unlink(os.path.join(self.path, name)))

    def write(self, key: str, value: bytes, expected: Revision | None) -> Revision:
        """Replace a file that is still at revision `expected`, or create it if that is None."""
        self._change(key, expected, lambda name: self._replace(name, value))
        return _revision(value)

    def _change(self, key: str, expected: Revision | None, change: Callable[[str], None]) -> None:
        if not _KEY.fullmatch(key):
            raise errors.InvalidID(f"{key!r} cannot be the name of a file")
        name = f"{key}{_END}"
        try:
            with self._locked():
                present = self._entry(name)
                revision = None if present is None else present.revision
                if revision != expected:
                    raise moved(self.name, key, expected, revision)
                change(name)
        except OSError as error:
            raise errors.IOFailed(f"{name} in {self.path} could not be written: {error.strerror}") from error

    def _entry(self, name: str) -> Entry | None:
        path = os.path.join(self.path, name)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                value = file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise errors.Invalid(f"{path} is a symlink, which is not followed") from error
            raise errors.IOFailed(f"{path} cannot be read: {error.strerror}") from error
        return Entry(value, _revision(value))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One writer at a time, in this process and others."""
        lock = os.open(os.path.join(self.path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            for left in reversed(range(_TRIES)):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if not left:
                        raise errors.Busy(f"another process has locked {self.path} for seconds") from error
                    self._sleep(0.1)
            yield
        finally:
            os.close(lock)

    def _replace(self, name: str, value: bytes) -> None:
        partial = os.path.join(self.path, f".{name}.{os.getpid()}.partial")
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, os.path.join(self.path, name))
        finally:
            if os.path.lexists(partial):
                os.unlink(partial)
        folder = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _revision(value: bytes) -> str:
    return sha256(value).hexdigest()
