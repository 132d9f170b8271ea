"""A log in NATS JetStream: a subject for the entries of each workspace, in streams that many workspaces share.

An append is a publish that expects the last sequence of its subject; the stream's sequence is the position. That header
is stored, so each entry names the one before it and a gap shows. A publish that is refused with the number of a later
end means that another entry was first. One that is refused without a number was compared with nothing: the leader still
has a mark on the subject, perhaps that of our own entry before, which it takes away after it has acknowledged. It is
published again until it is decided, and then the entry that was first may be our own: while a leader is replaced, two
servers may answer one publish. What is not decided in time is a lost answer, never another node's entry.
Blobs lie in the same stream, in parts, so their sequences tell what
a trim deletes: one mark is published, and everything of the workspace before it purged. The entry at the mark stays,
else the end of the log would be lost. A workspace exists if it has a mark.

The end is asked for in two ways. A stream of one replica refuses a publish that expects the impossible, and names its
end. A leader that is cut off from its cluster does so too, and for long, although another one may have been elected.
So with several replicas a probe is published, which needs a majority, and then a replica that has the probe is read.

The stream publishes its entries again to whoever listens, which fills a cache. `tail` asks the server if it knows of
entries that were not heard, or has not asked for two seconds, or nobody listens. A missed entry is read from any
replica, and from the leader if that one is behind.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication.engine_log import EngineLog
from holdfast.replication.log import START, LostAnswer, Trimmed
from holdfast.replication.nats_connection import (
    REPLICAS,
    Connection,
    Message,
    Request,
    configuration,
    doubts,
    read_options,
    shard_of,
)

PAGE = 500
PART = 512 * 1024  # of a blob; a server takes messages of at most 1 MiB by default
_PAGE_BYTES = 8 * 1024 * 1024
_PARTS = 8  # of a blob that are on their way at once
_CACHED, _CACHED_BYTES = 1000, 4 * 1024 * 1024
_FROM_LEADER = 20  # entries to read one by one where a replica is behind
_SHORTLY = 0.02  # seconds until an entry that was first is published again
_TRIES = 10
_PAUSE = 2_000  # microseconds, growing, before a replica that is behind is asked again
_UNDECIDED_PAUSES: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, *[0.4] * 6)  # seconds
_IMPOSSIBLE = 2**63 - 1

_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
_WRONG_LAST, _UNDECIDED = 10071, 10164  # of a publish: another message is the last, or one before it is in progress
_NO_MESSAGE, _NO_STREAM, _STREAM_EXISTS = 10037, 10059, 10058
_UNPLACED: Final = (10005, 10023, 10074)  # too few servers, or no cluster
_WHOLE: Final = ("204", "404")  # the end of a batch, and an empty one
_told: set[str] = set()  # warnings of this process


class JetStreamLog(EngineLog[Connection]):
    """The log of one workspace. `url` has the servers and options: `nats://h1,h2,h3?stream=NAME&replicas=3`."""

    def __init__(self, url: str, workspace: str, *, create: bool = False) -> None:
        options = read_options(url)
        super().__init__(Connection.of(url.partition("?")[0]), workspace, create)
        self.stream = options.get("stream") or shard_of(workspace)
        self._wanted = int(options["replicas"]) if "replicas" in options else None
        self._options = options
        place = workspace.replace(".", "%2E")  # a dot ends a token of a subject
        self._subject = f"holdfast.{self.stream}.{place}"
        self._entries, self._mark, self._probe = (f"{self._subject}.{kind}" for kind in ("e", "t", "p"))
        self.news_subject = f"holdfast-news.{self.stream}.{place}"
        self._replicas = 0  # of the stream; 0 until the workspace was found
        self._trimmed = START  # the highest mark known
        self._heard: dict[int, tuple[int, bytes]] = {}  # by the position before: what was published again
        self._heard_bytes = 0
        self._news = threading.Condition(self._lock)
        self._finding = threading.Lock()

    # --- the waist ---------------------------------------------------------------------------------------------------

    def head(self) -> int:
        self._find()
        end = self._head_of_one() if self._replicas == 1 else self._head_of_many()
        self._end = max(self._end, end)
        return end

    def time(self) -> int:
        self._find()
        info = self._info()
        self._replicas = info["config"]["num_replicas"]
        return round(datetime.fromisoformat(info["ts"]).timestamp() * 1e6)

    def append(self, entry: bytes, expected: int) -> int:
        self._check_size(entry)
        self._find()
        try:
            position = self._publish(self._entries, entry, expected, lost=LostAnswer)
        except _Moved as moved:
            position = self._settle(entry, expected, moved)
        self._end = max(self._end, position)
        return position

    def tail(self, after: int) -> Sequence[tuple[int, bytes]]:
        if after < self._trimmed:
            raise Trimmed(self._trimmed)
        if self._is_silent():
            page = list(self._chain(after))
            if page or after >= self._end:
                return page
        self._find()
        with self._asking():
            return self._fetch(after)

    def put(self, blob: bytes) -> str:
        self._find()
        parts = self._parted(blob, PART)
        ref = f"{self._ids.new(self._clock.wall())}-{len(parts)}"
        subjects = self._parts(ref)
        for start in range(0, len(parts), _PARTS):
            window = slice(start, start + _PARTS)
            requests = [Request(*part) for part in zip(subjects[window], parts[window], strict=True)]
            for (answer,) in self._open().ask_all(requests):
                _json(answer, self._open())
        return ref

    def get(self, ref: str) -> bytes:
        self._find()
        subjects, found = self._parts(ref), dict[str, bytes]()
        for start in range(0, len(subjects), _PARTS):
            window = subjects[start : start + _PARTS]
            for message in self._batch(multi_last=window, batch=len(window)):
                found[message.headers["Nats-Subject"]] = message.data
            for subject in window:
                if subject not in found:  # gone, or not at this replica yet
                    last = self._last(subject)
                    if last is None:
                        self.hint()  # the tail must not come from memory now
                        raise KeyError(ref)
                    found[subject] = last[1]
        return b"".join(found[subject] for subject in subjects)

    def trim(self, before: int) -> None:
        before = min(before, self.head())
        for _ in range(_TRIES):
            mark, trimmed = self._read_mark()
            if trimmed >= before:
                return
            with suppress(LogMoved):  # by a trim of another node
                self._publish(self._mark, str(before).encode(), mark)
                break
        else:
            raise errors.Busy("other nodes kept trimming the log")
        self._trimmed = max(self._trimmed, before)
        self._api(f"STREAM.PURGE.{self.stream}", filter=f"{self._subject}.>", seq=before)

    def durability(self) -> Sequence[str]:
        self._find()
        return tuple(doubts(self._open(), self.stream, self._info()["config"]["num_replicas"], self._options))

    # --- news --------------------------------------------------------------------------------------------------------

    def hear(self, message: Message) -> None:
        """An entry was appended: keep it and wake all waiters."""
        position, before = int(message.headers["Nats-Sequence"]), int(message.headers[_EXPECTED])
        with self._lock:
            self._heard[before] = (position, message.data)
            self._heard_bytes += len(message.data)
            while len(self._heard) > _CACHED or self._heard_bytes > _CACHED_BYTES:
                self._heard_bytes -= len(self._heard.pop(next(iter(self._heard)))[1])
            self._end = max(self._end, position)
            self._news.notify_all()
        self.wake_waiters()

    def _chain(self, after: int) -> Iterator[tuple[int, bytes]]:
        """The entries after a position that were heard, as far as there is no gap."""
        while (heard := self._heard.get(after)) is not None:
            yield heard
            after = heard[0]

    # --- reading -----------------------------------------------------------------------------------------------------

    def _fetch(self, after: int) -> Sequence[tuple[int, bytes]]:
        """A page from the server. Raises Trimmed."""
        query = {"seq": after + 1, "next_by_subj": self._entries, "batch": PAGE, "max_bytes": _PAGE_BYTES}
        found = self._batch(**query)
        _, trimmed = self._read_mark()  # later, so that no page of a trimmed log is taken for a whole one
        if after < trimmed:
            raise Trimmed(trimmed)
        page, end = list[tuple[int, bytes]](), after
        for message in found:
            if int(message.headers[_EXPECTED]) != end:
                return page  # a replica that has purged what the leader has not: look again
            end = int(message.headers["Nats-Sequence"])
            page.append((end, message.data))
        for _ in range(_FROM_LEADER):
            if end >= self._end or len(found) >= PAGE:
                break
            following = self._next(end)
            if following is None:
                break
            page.append(following)
            end = following[0]
        self._end = max(self._end, end)
        return page

    def _next(self, after: int) -> tuple[int, bytes] | None:
        """The entry after a position as the leader has it."""
        message = self._message(seq=after + 1, next_by_subj=self._entries)
        if message is None:
            return None
        before = re.search(rf"{_EXPECTED}: *(\d+)".encode(), base64.b64decode(message["hdrs"]))
        if before is None or int(before[1]) != after:
            return None
        return int(message["seq"]), base64.b64decode(message.get("data", ""))

    def _head_of_one(self) -> int:
        try:
            self._publish(self._entries, b"", _IMPOSSIBLE)
        except _Moved as moved:
            if moved.end is not None:
                return moved.end
        raise errors.Unreachable(f"{self._open().address}: the server does not say where the log ends")

    def _head_of_many(self) -> int:
        probe = self._publish(self._probe, b"", None)
        pause, signal = _PAUSE, Signal()
        for _ in range(_TRIES):
            subjects = [self._entries, self._probe]
            found = {
                message.headers["Nats-Subject"]: int(message.headers["Nats-Sequence"])
                for message in self._batch(multi_last=subjects, batch=len(subjects))
            }
            if found.get(self._probe, START) >= probe:
                return found.get(self._entries, START)
            signal.wait(pause / 1e6)
            pause *= 2
        raise errors.Unreachable(f"{self._open().address}: the replicas of {self.stream} are behind their leader")

    def _read_mark(self) -> tuple[int, int]:
        """The sequence of the workspace's mark, and up to where it is trimmed."""
        last = self._last(self._mark)
        if last is None:
            raise self._gone(f"restore the stream {self.stream}")
        self._trimmed = max(self._trimmed, int(last[1]))
        return last[0], self._trimmed

    def _last(self, subject: str) -> tuple[int, bytes] | None:
        """The last message of a subject as the leader has it."""
        message = self._message(last_by_subj=subject)
        return None if message is None else (int(message["seq"]), base64.b64decode(message.get("data", "")))

    def _message(self, **query: object) -> Any:
        try:
            return self._api(f"STREAM.MSG.GET.{self.stream}", _NO_MESSAGE, **query)["message"]
        except _Refused:
            return None

    def _batch(self, **query: object) -> list[Message]:
        """Messages of any replica."""
        request = Request(f"$JS.API.DIRECT.GET.{self.stream}", msgspec.json.encode(query), batch=True)
        ((*messages, end),) = self._open().ask_all([request])
        if end.status not in _WHOLE:
            raise errors.Unreachable(f"{self._open().address}: {end.headers.get('Description', end.status)}")
        return messages

    # --- writing -----------------------------------------------------------------------------------------------------

    def _publish(
        self, subject: str, payload: bytes, expected: int | None, lost: type[Exception] = errors.Unreachable
    ) -> int:
        """Publish a message and return its sequence; without an expectation it replaces those before it.

        Raises _Moved if another message is the last of the subject, and `lost` if nothing is decided.
        """
        headers = {"Nats-Rollup": "sub"} if expected is None else {_EXPECTED: str(expected)}
        request, connection = Request(subject, payload, headers), self._open()
        awaited = expected if subject == self._entries else None
        for tries, pause in enumerate((*_UNDECIDED_PAUSES, None), 1):
            try:
                return int(_json(connection.ask(request, lost), connection, lost)["seq"])
            except _Refused as refused:
                if refused.code == _WRONG_LAST and (number := re.search(r"(\d+)$", refused.message)) is not None:
                    raise _Moved(int(number[1]), tries) from refused
                if refused.code != _UNDECIDED:
                    raise lost(f"{connection.address}: {refused.message}") from refused
                if pause is not None and self._hears_of(awaited, pause):
                    raise _Moved(None, tries) from refused
        raise lost(f"{connection.address}: the leader of {self.stream} does not decide on a message, but may later")

    def _settle(self, entry: bytes, expected: int, moved: _Moved) -> int:
        """Return the position of an entry that was refused, if it is the one after its place all the same.

        Raises LogMoved if another one is, or the log has not come as far, and LostAnswer if that is not known.
        """
        connection, end = self._open(), moved.end
        if end is not None and end < expected:
            if end < expected <= self._end or self._ends_at_least(expected):
                raise LostAnswer(
                    f"{connection.address}: a server that is behind refused, and another may have accepted"
                )
            raise moved
        self._end = max(self._end, end or START)
        heard = connection.listens(self) and self._hears_of(expected, _SHORTLY)
        first = self._heard.get(expected) if heard else None
        if first is None:
            self.hint()
            if end is not None and moved.tries == 1:  # one that was refused once was compared with another entry
                raise moved
            first = self._read_first(expected)
        if first[1] != entry:  # no two entries are alike: each has an id
            raise moved
        return first[0]

    def _ends_at_least(self, position: int) -> bool:
        try:
            return self.head() >= position
        except errors.Unreachable as error:
            raise LostAnswer(error.message) from error

    def _read_first(self, after: int) -> tuple[int, bytes]:
        """The entry after a position, which the leader has. Raises LostAnswer if it does not say."""
        try:
            found = self._next(after)
        except errors.Unreachable as error:
            raise LostAnswer(error.message) from error
        if found is None:
            raise LostAnswer(f"{self._open().address}: the entry that was first is not there any more")
        return found

    def _hears_of(self, before: int | None, seconds: float) -> bool:
        """Wait until the entry after a position is published again: then nobody need ask for it."""
        with self._news:
            return self._news.wait_for(lambda: before in self._heard, seconds)

    def _parts(self, ref: str) -> list[str]:
        count = ref.rpartition("-")[2]
        if not count.isdecimal():
            raise KeyError(ref)
        return [f"{self._subject}.b.{ref}.{number}" for number in range(int(count))]

    # --- the stream --------------------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Once: see that the workspace is there, or make it. Raises NotFound."""
        if not self._replicas:
            with self._finding:
                if not self._replicas:
                    self._find_or_make()

    def _find_or_make(self) -> None:
        connection = self._open()
        try:
            info = self._info()
        except _Refused:
            if not self._create:
                raise self._unknown(f", stream {self.stream}") from None
            info = self._make_stream()
        self._check_stream(info["config"])
        if self._last(self._mark) is None:
            if not self._create:
                raise self._unknown(f", stream {self.stream}")
            with suppress(LogMoved):  # another node has made it
                self._publish(self._mark, str(START).encode(), START)
        self._replicas = info["config"]["num_replicas"]
        for doubt in doubts(connection, self.stream, self._replicas, self._options):
            if doubt not in _told:
                _told.add(doubt)
                errors.warn(f"{connection.address}: {doubt}")

    def _info(self) -> Any:
        return self._api(f"STREAM.INFO.{self.stream}", _NO_STREAM)

    def _make_stream(self) -> Any:
        replicas = self._wanted or (REPLICAS if self._open().clustered else 1)
        codes = (_STREAM_EXISTS, *_UNPLACED)
        try:
            return self._api(f"STREAM.CREATE.{self.stream}", *codes, **configuration(self.stream, replicas))
        except _Refused as refused:
            if refused.code == _STREAM_EXISTS:
                return self._info()
            message = f"{self._open().address} cannot place {replicas} replicas: {refused.message}"
            raise errors.Unreachable(
                message, hint="start the other servers, or write ?replicas=1 in the address"
            ) from None

    def _check_stream(self, found: dict[str, Any]) -> None:
        """Raise Invalid unless a stream can hold workspaces: somebody else may have made it."""
        wanted = configuration(self.stream, found["num_replicas"])
        wrong = sorted(name for name, value in wanted.items() if found.get(name) != value)
        if wrong or found.get("max_age") or found.get("max_msgs_per_subject", -1) > 0:
            what = ", ".join(wrong) or "limits"
            raise errors.Invalid(
                f"the stream {self.stream} at {self._open().address} is not made for workspaces: {what}",
                hint="name another with ?stream=NAME; create=True makes it",
            )

    def _api(self, subject: str, *known: int, **query: object) -> Any:
        """The answer of JetStream's API. An error with a `known` code is _Refused, others are Unreachable."""
        payload = msgspec.json.encode(query) if query else b""
        connection = self._open()
        try:
            return _json(connection.ask(Request(f"$JS.API.{subject}", payload)), connection)
        except _Refused as refused:
            if refused.code in known:
                raise
            raise errors.Unreachable(f"{connection.address}: {refused.message}") from None


class _Moved(LogMoved):
    """A publish that expected another end: `end` if a server said where it is, in answer to which of the `tries`."""

    def __init__(self, end: int | None, tries: int) -> None:
        super().__init__()
        self.end = end
        self.tries = tries


class _Refused(Exception):
    """An error of the server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def _json(answer: Message, connection: Connection, lost: type[Exception] = errors.Unreachable) -> Any:
    """The answer of the JetStream API. Raises _Refused, and `lost` if it is none."""
    try:
        found = msgspec.json.decode(answer.data)
    except msgspec.DecodeError as error:
        raise lost(f"{connection.address}: not an answer of JetStream") from error
    if (wrong := found.get("error")) is not None:
        raise _Refused(wrong.get("err_code", 0), wrong.get("description", "an error without a description"))
    return found
