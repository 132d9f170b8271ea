"""The log, a watch and a task's history read as sentences (issue 23); JSON keeps the data."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import holdfast
from holdfast.faces.cli.sentences import of_event
from holdfast.faces.cli.width import fitted
from holdfast.testing import ManualClock
from holdfast.types import EVENT_KINDS, Event
from tests.cli.calling import Answer

Cli = Callable[..., Answer]


def sentences(ws: Any, kind: str) -> list[str]:
    return [fitted(of_event(event), None) for event in ws.events.list(kinds=[kind], limit=1000)]


def test_every_step_of_a_task_is_a_sentence() -> None:
    with holdfast.open(":memory:", actor="ada") as ws:
        a, b = ws.tasks.create("Write the lexer", tags=["core"]).id, ws.tasks.create("Test").id
        ws.tasks.depend(b, a)
        ws.tasks.undepend(b, a)
        ws.tasks.depend(b, a, "related")
        ws.tasks.claim(a)
        ws.tasks.note(a, "half\ndone")
        ws.tasks.update(a, title="Write it", body="x", priority=0)
        ws.tasks.set_tags(a, ["core", "new"])
        ws.tasks.remove_tags(a, ["new"])
        ws.tasks.park(a)
        ws.tasks.block(a, reason="no grammar")
        ws.tasks.unblock(a)
        ws.tasks.assign(a, "bob")
        ws.tasks.unassign(a)
        ws.tasks.defer(b, datetime.now(UTC) + timedelta(hours=2))
        ws.tasks.defer(b, None)
        ws.tasks.add_ref(a, "fix/login")
        ws.tasks.reparent(b, a)
        ws.tasks.claim(b)
        ws.tasks.complete(b, summary="it works", review=True)
        ws.tasks.reject(b, "no tests")
        ws.tasks.close(b, "fine")
        ws.tasks.reopen(b)
        ws.using(actor="bob").tasks.claim(b)
        ws.tasks.release(b, force=True, reason="bob is gone")
        ws.tasks.cancel(b, "a duplicate")
        ws.tasks.delete(b)
        ws.tasks.restore(b)
        assert sentences(ws, "task") == [
            f"ada created {a}: Write the lexer",
            f"ada created {b}: Test",
            f"ada made {b} wait for {a}",
            f"ada let {b} no longer wait for {a}",
            f"ada linked {b} with {a}",
            f"ada claimed {a}",
            f"ada noted on {a}: half\\ndone",
            f"ada changed {a}: title from Write the lexer to Write it, priority from 2 to 0, the body",
            f"ada added the tag new on {a}",
            f"ada removed the tag new from {a}",
            f"ada parked {a}",
            f"ada blocked {a}: no grammar",
            f"ada unblocked {a}",
            f"ada assigned {a} to bob",
            f"ada let everybody claim {a}",
            f"ada deferred {b} for another 2 h",
            f"ada ended the wait of {b}",
            f"ada added the reference branch fix/login on {a}",
            f"ada moved {b} under {a}",
            f"ada claimed {b}",
            f"ada completed {b}, which waits for review: it works",
            f"ada sent {b} back: no tests",
            f"ada closed {b}: fine; {a} is ready now",
            f"ada reopened {b}",
            f"bob claimed {b}",
            f"ada took {b} from bob: bob is gone",
            f"ada began to cancel {b}",
            f"ada cancelled {b}: a duplicate; {a} is ready now",
            f"ada deleted {b}",
            f"ada brought {b} back",
        ]
        ws.tasks.purge(b)
        assert f"ada changed the task {b}, which was purged since" in sentences(ws, "task")


def test_other_events_are_sentences_too() -> None:
    with holdfast.open(":memory:", actor="ada") as ws:
        ws.cells.set("run", "cell", {"x": 1})
        ws.cells.increment("run", "count")
        ws.cells.delete("run", "cell")
        ws.cells.acquire_lock("run", "count", "ada", 30)
        ws.locks.acquire("deploy", "bob", ttl=30)
        ws.locks.release("deploy", "bob")
        lock = ws.paths.lock(["src/**", "docs"], ttl=60, reason="a rewrite")
        ws.paths.release(lock.id)
        message = ws.mail.send("bob", "hello", "text")
        ws.using(actor="bob").mail.ack(message.id, note="seen")
        ws.agents.register("pat", role="person")
        ws.trails.create("parser")
        assert sentences(ws, "cell") == [
            'ada set the cell run/cell to {"x":1}',
            "ada incremented the cell run/count to 1",
            "ada deleted the cell run/cell",
        ]
        assert sentences(ws, "cell-lock") == ["ada acquired the lock of the cell run/count"]
        assert sentences(ws, "lock") == ["ada acquired the lock deploy for bob", "ada released the lock deploy for bob"]
        assert sentences(ws, "path")[0] == "ada locked the paths docs src/**: a rewrite"
        assert sentences(ws, "message") == [
            "ada wrote to bob: hello",
            "bob acknowledged the message m1: seen",
        ]
        assert sentences(ws, "agent") == ["ada registered pat: role from agent to person"]


def test_an_expired_claim_says_whose_it_was() -> None:
    clock = ManualClock()
    with holdfast.open(":memory:", actor="ada", clock=clock) as ws:
        id = ws.tasks.create("x").id
        ws.tasks.claim(id, ttl=10)
        ws.locks.acquire("deploy", ttl=10)
        clock.advance(11)
        ws.tasks.create("y")
        assert f"the claim of ada on {id} expired" in sentences(ws, "task")
        assert "the lock deploy of ada expired" in sentences(ws, "lock")


def test_an_event_of_any_kind_and_operation_has_a_sentence() -> None:
    for kind in EVENT_KINDS:
        for data in ({}, {"x": [1, 2]}, {"value": [1]}, {"note": None}):
            event = Event(1, 0, datetime.now(UTC), "ada", kind, "", "it", "frobnicate", 1, data)
            assert "it" in fitted(of_event(event), None), (kind, data)


def test_log_watch_and_history_show_sentences_and_json_the_data(made: Cli) -> None:
    id = made("create", "Fix login", "-q", "--actor", "ada").id
    made("claim", id, "--actor", "ada")
    for words in (("log",), ("event", "list"), ("watch", "--after", "0", "--timeout", "0.1")):
        told = made(*words).out
        assert re.fullmatch(
            rf"just now     ada created {id}: Fix login  \(\d+\)\njust now     ada claimed {id}  \(\d+\)\n", told
        ), told
    assert re.sub(r"\(\d+\)", "(N)", made("history", id).out).splitlines() == [
        "just now     ada claimed it  (N)",
        "just now     ada created it: Fix login  (N)",
    ]
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  ada claimed it", made("history", id, "--times").out)
    assert {entry["field"] for entry in made("history", id, "--json").data} >= {"status", "claimed_by", "title"}
    assert made("log", "--json").data[-1]["data"]["status"] == ["open", "in_progress"]
