"""What a client sends again, when it gives up, and what it then says of a call: the policy without a network."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors
from holdfast.operation import operation
from holdfast.remote import protocol
from holdfast.remote.failover import Address, Nodes, Sent
from holdfast.remote.http1 import Broken, Response
from holdfast.remote.protocol import ATTEMPTS, Elsewhere, Pause, Reach, Send, calling, request_of
from holdfast.remote.stream import RESUMES, Resuming
from holdfast.workspace.context import Context

ANN = Context("ann")
KEYED = Context("ann", None, "k-1", None)
SET = ("cells.set", ("run", "cell", 1))
GET = ("cells.get", ("run", "cell"))
LOST = Broken("reset", sent=True)
REFUSED = Broken("refused", sent=False)


def play(name: str, args: tuple[Any, ...], context: Context, *answers: Any) -> tuple[Any, int]:
    """Give these answers to what is sent; the result or the error, and how often was sent."""
    steps = calling(operation(name), args, {}, context)
    told, sent = iter(answers), 0
    try:
        step = next(steps)
        while True:
            if isinstance(step, Pause):
                assert 0 < step.seconds < 5
                step = steps.send(None)
                continue
            if isinstance(step, Elsewhere):
                step = steps.send(Reach(1, 30.0))
                continue
            assert isinstance(step, Send)
            sent += 1
            answer = next(told)
            step = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as stop:
        return stop.value, sent
    except errors.HoldfastError as error:
        return type(error), sent


def answer(content: bytes, status: int = 200) -> Response:
    return Response(status, {}, content)


def test_a_write_without_a_key_is_sent_once() -> None:
    assert play(*SET, ANN, LOST) == (errors.OutcomeUnknown, 1)
    assert play(*SET, ANN, REFUSED) == (errors.Unreachable, 1)


def test_a_read_and_a_write_with_a_key_are_sent_again_and_not_for_ever() -> None:
    assert play(*SET, KEYED, LOST, REFUSED, answer(b"3")) == (3, 3)
    assert play(*SET, KEYED, *[REFUSED] * ATTEMPTS) == (errors.Unreachable, ATTEMPTS)
    assert play(*GET, ANN, *[LOST] * ATTEMPTS) == (errors.Unreachable, ATTEMPTS)


def test_a_write_that_was_sent_once_is_of_unknown_outcome_whatever_came_after() -> None:
    assert play(*SET, KEYED, LOST, *[REFUSED] * (ATTEMPTS - 1)) == (errors.OutcomeUnknown, ATTEMPTS)


def test_what_a_server_refuses_is_not_sent_again() -> None:
    body = b'{"error": "no", "code": "HELD", "hint": "", "details": {}}'
    assert play(*SET, KEYED, answer(body, 409)) == (errors.Held, 1)
    assert play(*SET, ANN, answer(b"<html>", 502)) == (errors.Unavailable, 1)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"code": 502, "message": "upstream"}}',
        b'{"code": 502, "details": "upstream"}',
        b'{"code": ["HELD"], "error": "no"}',
        b'{"code": "HELD", "error": "no", "details": null}',
        b'{"code": "HELD", "error": "no", "details": {}, "hint": 5}',
        b'{"message": "Bad Gateway"}',
        b"[]",
        b"",
    ],
)
def test_a_refusal_in_json_that_is_not_ours_is_told_as_such(body: bytes) -> None:
    assert play(*SET, ANN, answer(body, 502)) == (errors.Unavailable, 1)


def test_a_read_is_asked_again_of_a_server_that_is_about_to_stop_and_not_for_ever() -> None:
    body = b'{"error": "the server is stopping", "code": "UNAVAILABLE", "hint": "", "details": {}}'
    found = b'{"value":1,"version":1,"revision":1,"updated_at":"2026-01-01T00:00:00Z"}'
    assert play(*GET, ANN, answer(body, 503), answer(found))[1] == 2
    assert play(*GET, ANN, *[answer(body, 503)] * ATTEMPTS) == (errors.Unavailable, ATTEMPTS)


@pytest.mark.parametrize(
    ("name", "given", "wait"),
    [
        ("cells.get", {"run": "r", "cell": "c"}, 0.0),
        ("cells.watch", {"run": "r", "cell": "c"}, None),
        ("cells.watch", {"run": "r", "cell": "c", "timeout": 7}, 7.0),
        ("locks.acquire", {"name": "door"}, 0.0),
        ("locks.acquire", {"name": "door", "wait": 2.5}, 2.5),
        ("locks.acquire", {"name": "door", "wait": float("nan")}, 0.0),
    ],
)
def test_an_answer_is_awaited_as_long_as_the_call_may_wait(
    name: str, given: dict[str, Any], wait: float | None
) -> None:
    op = operation(name)
    assert request_of(op, given).wait == wait


# --- one deadline for all attempts -----------------------------------------------------------------------------------

SILENT = Broken("timed out", sent=True, late=True)


class Stopped:
    """A client whose servers take what is sent and do not answer; time passes as it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nodes: int = 1) -> None:
        self.now, self._nodes = 1000.0, nodes
        monkeypatch.setattr(protocol, "monotonic", lambda: self.now)

    def call(self, name: str, args: tuple[Any, ...], context: Context, more: Any = None) -> errors.HoldfastError:
        """The error of a call."""
        steps = calling(operation(name), args, more or {}, context)
        step = next(steps)
        while True:
            try:
                if isinstance(step, Send):
                    assert step.until is not None
                    self.now = max(self.now, step.until)
                    step = steps.throw(SILENT)
                elif isinstance(step, Elsewhere):
                    step = steps.send(Reach(self._nodes, 30.0))
                else:
                    self.now += step.seconds
                    step = steps.send(None)
            except errors.HoldfastError as error:
                return error


@pytest.mark.parametrize("nodes", [1, 3])
def test_all_attempts_at_servers_that_do_not_answer_have_one_deadline(
    monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    for (name, args), wait in ((GET, 0.0), (SET, 0.0), (("locks.acquire", ("door",)), 5.0)):
        stopped = Stopped(monkeypatch, nodes)
        error = stopped.call(name, args, KEYED, {"wait": wait} if wait else {})
        assert 1000 < stopped.now <= 1000 + 30 + wait
        assert type(error) is (errors.Unreachable if name == "cells.get" else errors.OutcomeUnknown)
        assert f"did not answer within {30 + wait:g} s" in error.message


def test_a_write_that_was_given_up_names_the_key_that_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    keyed, plain = Stopped(monkeypatch).call(*SET, KEYED), Stopped(monkeypatch).call(*SET, ANN)
    assert keyed.details == {"key": "k-1"}
    assert "k-1" in keyed.hint
    assert "may carry it out later" in keyed.message
    assert plain.details == {}
    assert "look whether it happened" in plain.hint


def hear(watch: Resuming, text: str) -> list[Any]:
    return [event for line in text.split("\n") for event in watch.heard(line)]


def test_a_watch_gives_up_after_so_many_connections_without_a_sign_of_life_and_not_before() -> None:
    watch = Resuming(operation("watch"), (), {}, ANN)
    with pytest.raises(errors.Unreachable):
        watch.broke(REFUSED)  # it was never connected: who asks should know
    for _ in range(3):
        assert hear(watch, "event: bookmark\nid: 7\ndata: {}\n\n") == []
        for _ in range(RESUMES):
            assert 0 < watch.broke(LOST) <= 2
    with pytest.raises(errors.Unreachable):
        watch.broke(LOST)


def test_a_watch_resumes_behind_the_last_whole_event_it_heard() -> None:
    watch = Resuming(operation("watch"), (), {"kinds": ["cell"]}, ANN)
    assert "last-event-id" not in watch.step().headers
    event = '{"revision":5,"position":0,"time":"2026-01-01T00:00:00Z","actor":"ann","kind":"cell","scope":"run",'
    event += '"id":"cell","op":"set","version":1,"data":{},"redacted":false}'
    (found,) = hear(watch, f"id: 5-0\ndata: {event}\n\n")
    assert (found.revision, found.id) == (5, "cell")
    assert hear(watch, f"id: 6-0\ndata: {event[:30]}") == []  # broken off
    assert watch.step().headers["last-event-id"] == "5-0"
    assert len(hear(watch, f"id: 6-0\ndata: {event}\n\n")) == 1
    with pytest.raises(errors.Compacted):
        hear(watch, 'event: error\ndata: {"error": "gone", "code": "COMPACTED", "details": {}}\n\n')
    assert hear(watch, "event: end\ndata: {}\n\n") == []
    assert watch.over


# --- several nodes ---------------------------------------------------------------------------------------------------

TWO = ("http://127.0.0.1:1", "http://127.0.0.1:2")


def at_two_nodes(name: str, args: tuple[Any, ...], *answers: Any) -> tuple[Any, list[str | None]]:
    """Give these answers to a client of two nodes; the result or the error, and the key of each request."""
    steps = calling(operation(name), args, {}, ANN)
    told, keys = iter(answers), []
    try:
        step = next(steps)
        while True:
            if not isinstance(step, Send):
                step = steps.send(Reach(2, 30.0) if isinstance(step, Elsewhere) else None)
                continue
            keys.append(step.headers.get("idempotency-key"))
            answer = next(told)
            step = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as stop:
        return stop.value, keys
    except errors.HoldfastError as error:
        return type(error), keys


def refusal(code: str, status: int = 503) -> Response:
    return answer(b'{"error": "no", "code": "%s", "hint": "", "details": {}}' % code.encode(), status)


def test_a_write_to_several_nodes_has_a_key_of_its_own_and_is_sent_until_one_has_done_it() -> None:
    result, keys = at_two_nodes(*SET, LOST, refusal("UNREACHABLE"), refusal("OUTCOME_UNKNOWN"), answer(b"3"))
    assert result == 3
    assert len(keys) == 4
    assert len(set(keys)) == 1
    assert keys[0] is not None
    again = at_two_nodes(*SET, answer(b"4"))[1]
    assert again != keys[:1], "another write has another key"


def test_what_every_node_would_refuse_is_not_sent_to_another() -> None:
    for code, status, error in (("HELD", 409, errors.Held), ("BUSY", 503, errors.Busy)):
        result, keys = at_two_nodes(*SET, refusal(code, status))
        assert (result, len(keys)) == (error, 1)


def asks_for_everything(nodes: Nodes, name: str = "cells.get") -> tuple[Sent, bool]:
    """The next request of a client: where it goes, and whether it asks for all that was acknowledged."""
    op = operation(name)
    given = {"run": "r", "cell": "c"} | ({"value": 1} if op.writes else {})
    sent, outgoing = nodes.request(Send(request_of(op, given), {}))
    return sent, b"\r\nx-at-least: latest\r\n" in outgoing.content


def test_reads_ask_a_new_node_for_everything_until_it_has_shown_it() -> None:
    nodes = Nodes([Address(url, "t", 1.0, True) for url in TWO])
    first, asks = asks_for_everything(nodes)
    assert asks
    nodes.answered(first)
    assert asks_for_everything(nodes)[1] is False
    nodes.leave(0)
    second, asks = asks_for_everything(nodes)
    assert (second.node, asks) == (1, True)
    nodes.leave(0)
    assert asks_for_everything(nodes)[0].node == 1, "it was left already"
    write, _ = asks_for_everything(nodes, "cells.set")
    nodes.answered(write)
    assert asks_for_everything(nodes)[1] is False, "a write has seen everything before it"


def test_an_answer_of_a_node_that_was_left_makes_reads_ask_again() -> None:
    nodes = Nodes([Address(url, "t", 1.0, True) for url in TWO])
    late, _ = asks_for_everything(nodes)
    nodes.leave(0)
    asked, _ = asks_for_everything(nodes)
    nodes.answered(late)
    nodes.answered(asked)
    assert asks_for_everything(nodes)[1] is True, "it was asked before the late answer came"


def test_one_server_is_never_asked_for_more_than_the_caller_wants() -> None:
    nodes = Nodes([Address(TWO[0], "t", 1.0, True)])
    assert asks_for_everything(nodes)[1] is False
    nodes.leave(0)
    assert asks_for_everything(nodes)[0].node == 0
