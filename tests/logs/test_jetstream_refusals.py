"""What a cluster of NATS servers answers to a publish, and what it means: scripted, because real servers do so rarely.

The leader marks a subject while a publish with an expectation is on its way, and takes the mark away only after it has
acknowledged. A writer that is quick finds the mark of its own entry: the answer 10164 compares nothing and names no
end. And a leader that does not know yet that another was elected refuses what the other one stores.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import errors
from holdfast.clock import Signal
from holdfast.kernel.journal import LogMoved
from holdfast.replication import jetstream
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import START, Changes, ErrorMappingLog, LostAnswer, Patience, send, to_bytes
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
        if request.subject.endswith(".e") and request.payload:  # without one it asks for the end
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


def test_l1_an_append_that_stays_undecided_is_a_lost_answer_after_a_bounded_number_of_tries(
    logs: Callable[[], JetStreamLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody was first: a lone writer that is told so would run its bodies again, or end in Outrun."""
    monkeypatch.setattr(jetstream, "_UNDECIDED_PAUSES", (0.0,) * 5)
    log = logs()
    wire = Wire(log, *[UNDECIDED] * 100)
    with pytest.raises(LostAnswer):
        log.append(b"one", START)
    assert wire.appends == 6
    wire.script.clear()
    assert list(log.tail(START)) == []


def test_l1_a_block_of_a_lone_writer_is_not_outrun_by_a_leader_that_takes_long_to_decide(
    logs: Callable[[], JetStreamLog], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(jetstream, "_UNDECIDED_PAUSES", (0.0,) * 5)
    log = logs()
    with holdfast.open(tmp_path / "node", actor="ann", log=log) as node:
        wire = Wire(log, *[UNDECIDED] * 10)
        with node.transaction() as tx:
            tx.cells.set("run", "cell", 1)
        assert wire.script == []
        state = node.node_state()
        assert state is not None
        assert state.moved == 0


@pytest.mark.parametrize("listens", [True, False])
def test_l1_an_entry_that_another_leader_has_stored_meanwhile_is_known_for_ones_own(
    logs: Callable[[], JetStreamLog], listens: bool
) -> None:
    """One server decides nothing, another stores the same publish: what is published again is refused by it."""
    log = logs()
    if listens:
        log.enroll(Signal())
        eventually(lambda: log._open().listens(log))
    first = log.append(b"one", START)

    def stored_elsewhere(request: Request) -> Message:
        wire._connection.ask(request)
        return UNDECIDED(request)

    wire = Wire(log, stored_elsewhere)
    second = log.append(b"two", first)
    assert log.append(b"three", second) > second
    assert [entry for _, entry in log.tail(START)] == [b"one", b"two", b"three"]


def test_l1_an_entry_that_another_node_has_stored_meanwhile_is_moved(logs: Callable[[], JetStreamLog]) -> None:
    log, other = logs(), logs()

    def stored_by_another(request: Request) -> Message:
        other.append(b"other", START)
        return UNDECIDED(request)

    wire = Wire(log, stored_by_another)
    with pytest.raises(LogMoved):
        log.append(b"one", START)
    assert wire.appends == 2
    assert [entry for _, entry in log.tail(START)] == [b"other"]


def test_l1_a_server_that_is_behind_is_noticed_by_a_client_that_has_seen_no_end_yet(
    logs: Callable[[], JetStreamLog],
) -> None:
    """Another process of the same node has followed the log to where this one expects its end."""
    log, late = logs(), logs()
    first = log.append(b"one", START)
    second = log.append(b"two", first)
    Wire(late, refuses(10071, f"wrong last sequence: {first}"))
    with pytest.raises(LostAnswer, match="behind"):
        late.append(b"three", second)
    wire = Wire(late, refuses(10071, f"wrong last sequence: {second}"))
    with pytest.raises(LogMoved):
        late.append(b"of a future that never was", second + 1000)
    assert wire.script == []


@pytest.mark.parametrize("answer", [b"", b"no JSON", b"{}"])
def test_l1_an_answer_that_says_nothing_is_a_lost_one(logs: Callable[[], JetStreamLog], answer: bytes) -> None:
    """Somebody else may have answered, and the stream may have the entry: nothing happened would be a guess."""
    log = ErrorMappingLog(inner := logs())

    def stored(request: Request) -> Message:
        wire._connection.ask(request)
        return Message({}, answer)

    wire = Wire(inner, stored)
    with pytest.raises(LostAnswer):
        log.append(b"one", START)
    assert [entry for _, entry in log.tail(START)] == [b"one"]


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
