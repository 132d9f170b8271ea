"""What a cluster of NATS servers answers to a publish, and what it means: scripted, because real servers do so rarely.

The leader marks a subject while a publish with an expectation is on its way, and takes the mark away only after it has
acknowledged. A writer that is quick finds the mark of its own entry: the answer 10164 compares nothing and names no
end. And a leader that does not know yet that another was elected refuses what the other one stores.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication import jetstream
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import START, Changes, LostAnswer, Patience, send, to_bytes
from holdfast.replication.nats_connection import Connection, Message, Request
from tests.logs.nodes import eventually
from tests.worlds.nats import shared_server

Answer = Callable[[Request], Message]


class Wire:
    """The connection of a log, on which a script answers the appends until it is over."""

    def __init__(self, log: JetStreamLog, *script: Answer) -> None:
        self._connection = log._open()
        self.script = [*script]
        self.appends = 0
        log._client = self  # type: ignore[assignment]

    def ask(self, request: Request, lost: type[Exception] = errors.Unreachable) -> Message:
        """The answer of the script, or of the server."""
        if request.subject.endswith(".e"):
            self.appends += 1
            if self.script:
                return self.script.pop(0)(request)
        return self._connection.ask(request, lost)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def refuses(code: int, description: str) -> Answer:
    """An answer of JetStream that refuses."""
    body = {"error": {"code": 400, "err_code": code, "description": description}}
    return lambda request: Message({}, json.dumps(body).encode())


UNDECIDED = refuses(10164, "wrong last sequence")


@pytest.fixture
def logs() -> Iterator[Callable[[], JetStreamLog]]:
    """Clients of one workspace, each with a connection of its own."""
    made: list[JetStreamLog] = []
    name = f"w-{os.urandom(6).hex()}"

    def make() -> JetStreamLog:
        url = shared_server().url.replace("nats://", f"nats://c{len(made)}:c@")
        made.append(JetStreamLog(f"{url}?sync=always", name, create=True))
        made[-1].head()
        return made[-1]

    yield make
    for log in made:
        log.close()


def test_the_mark_of_its_own_entry_does_not_move_a_lone_writer(logs: Callable[[], JetStreamLog]) -> None:
    log = logs()
    first = log.append(b"one", START)
    wire = Wire(log, UNDECIDED, UNDECIDED, UNDECIDED)
    second = log.append(b"two", first)
    assert wire.appends == 4
    assert list(log.tail(START)) == [(first, b"one"), (second, b"two")]


def test_an_append_that_stays_undecided_is_moved_after_a_bounded_number_of_tries(
    logs: Callable[[], JetStreamLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jetstream, "_UNDECIDED_PAUSES", (0.0,) * 5)
    log = logs()
    wire = Wire(log, *[UNDECIDED] * 100)
    with pytest.raises(LogMoved):
        log.append(b"one", START)
    assert wire.appends == 6
    wire.script.clear()
    assert list(log.tail(START)) == []


def test_an_undecided_append_is_moved_as_soon_as_the_entry_of_another_is_heard(
    logs: Callable[[], JetStreamLog],
) -> None:
    log, other = logs(), logs()
    log.enroll(Signal())
    eventually(lambda: log._open().listens(log))
    position = other.append(b"first", START)
    eventually(lambda: START in log._heard)
    wire = Wire(log, *[UNDECIDED] * 100)
    with pytest.raises(LogMoved):
        log.append(b"second", START)
    assert wire.appends == 1, "nobody asks again for what was heard"
    wire.script.clear()
    assert list(log.tail(START)) == [(position, b"first")]


def test_a_refusal_by_a_server_that_is_behind_leaves_it_open_whether_another_has_stored_the_entry(
    logs: Callable[[], JetStreamLog],
) -> None:
    """The old leader answers first, and the new one has the entry: it must not be taken for another node's."""
    log = logs()
    first = log.append(b"one", START)
    second = log.append(b"two", first)
    behind = refuses(10071, f"wrong last sequence: {first}")

    def stored_elsewhere(request: Request) -> Message:
        wire._connection.ask(request)
        return behind(request)

    wire = Wire(log, behind)
    with pytest.raises(LostAnswer):
        log.append(b"three", second)
    entry = Changes("id", "", "node", "workspace", 1, b"changes")
    wire.script.append(stored_elsewhere)
    third = send(log, to_bytes(entry), entry.id, second, Patience())
    assert [position for position, _ in log.tail(START)] == [first, second, third]
    assert isinstance(wire._connection, Connection)
