"""A worker that is stopped past the deadline of its claim, and goes on as if nothing had happened: it is fenced off.

With its token every write is refused; without one all that a holder alone may do is, while anybody may still edit. It
makes no difference who has swept the claim, nor what became of the task meanwhile: whoever has it now keeps claim,
token and deadline. The worker is a process under SIGSTOP, or a node whose replica has not heard of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import pytest

import holdfast
from holdfast import errors
from holdfast.testing import ManualClock
from holdfast.types.tasks import Task
from tests.e2e.zombie_worker import Answer, Zombie, attempt
from tests.logs.nodes import Nodes, assert_equal

TTL = 60.0
ZOMBIE, HEIR = "zombie", "heir"
HOLDERS: dict[str, dict[str, Any]] = {"complete": {}, "release": {}, "block": {}, "heartbeat": {}, "park": {}}
ANYBODYS: dict[str, dict[str, Any]] = {
    "update": {"title": "as the zombie thinks"},
    "note": {"text": "nearly done"},
    "add_tags": {"tags": ["undead"]},
}
FENCED = Answer("FENCED")

# What has become of the task when the zombie goes on.
Fate = Literal["nobody noticed", "open", "taken", "taken under the same name", "completed"]
fates = pytest.mark.parametrize("fate", get_args(Fate))
stops = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc whether a process is stopped")
Act = Callable[..., Answer]


def befall(ws: holdfast.Workspace, clock: ManualClock, id: str, fate: Fate) -> None:
    """What happens to the task while the zombie is stopped; its claim is over."""
    assert ws.tasks.list(claimed_by=ZOMBIE) == []
    if fate != "open":
        name = ZOMBIE if fate == "taken under the same name" else HEIR
        ws.tasks.claim(id, name, ttl=TTL)
        if fate == "completed":
            ws.tasks.complete(id, name)
        clock.advance(TTL / 4)  # so that a claim that were renewed would show it


def assert_fenced_off(zombie: Act, ws: holdfast.Workspace, id: str, token: int | None, fate: Fate) -> None:
    """Nothing that the zombie sends as the holder does anything; what it says as anybody leaves the claim alone."""
    assert token is not None
    before = None if fate == "nobody noticed" else (ws.tasks.get(id), ws.revision)  # looking might sweep it
    for op, arguments in (HOLDERS | ANYBODYS).items():
        assert zombie(op, id=id, token=token, **arguments) == FENCED, op
    if fate != "taken under the same name":  # whose name is as good as a token
        for op, arguments in HOLDERS.items():
            assert zombie(op, id=id, **arguments) == FENCED, op
            assert zombie(op, id=id, agent=ZOMBIE, **arguments) == FENCED, op
    untouched = ws.tasks.get(id)
    assert before in (None, (untouched, ws.revision))
    assert (untouched.claimed_by is not None) == fate.startswith("taken")
    assert untouched.title == "task"

    if fate != "taken under the same name":
        for op, arguments in ANYBODYS.items():
            assert zombie(op, id=id, **arguments) == Answer("ok", untouched.token), op
        edited = ws.tasks.get(id)
        assert (edited.title, edited.tags, edited.version) == (
            "as the zombie thinks",
            ("undead",),
            untouched.version + 3,
        )
        assert claim_of(edited) == claim_of(untouched)


def claim_of(task: Task) -> tuple[Any, ...]:
    """All that a claim is."""
    return task.status, task.claimed_by, task.claimed_at, task.token, task.deadline, task.grimoire


def assert_goes_on(zombie: Act, ws: holdfast.Workspace, id: str, fate: Fate) -> None:
    """Whoever has the task finishes it, otherwise the zombie may start anew; its first claim has expired once."""
    if fate.startswith("taken"):
        task = ws.tasks.get(id)
        assert ws.tasks.heartbeat(id, task.claimed_by, token=task.token).token == task.token
        assert ws.tasks.complete(id, task.claimed_by, token=task.token).status == "closed"
    elif fate != "completed":
        again = zombie("claim", id=id, agent=ZOMBIE)
        assert again.code == "ok"
        assert zombie("complete", id=id, token=again.token).code == "ok"
    ended = [entry for entry in ws.tasks.history(id) if entry.field == "claimed_by" and entry.old_value is not None]
    assert [entry.op for entry in ended] == ["complete", "expire"]
    assert ended[1].changed_by == "system"
    assert ws.tasks.get(id).status == "closed"
    assert ws.check().problems == []


# --- processes -------------------------------------------------------------------------------------------------------


@stops
@fates
def test_t5_a_process_stopped_past_its_deadline_is_fenced_off_when_it_goes_on(tmp_path: Path, fate: Fate) -> None:
    folder, clock = tmp_path / "store", ManualClock(tmp_path / "clock")
    with at_work(folder, tmp_path / "clock") as (zombie, id, token):
        zombie.stop()
        clock.advance(TTL)
        if fate != "nobody noticed":  # otherwise it is its own first write that ends its claim
            with holdfast.open(folder, actor=HEIR, clock=clock) as ws:
                befall(ws, clock, id, fate)
        zombie.tell("complete", {"id": id, "token": token})  # it has decided to before it was stopped
        zombie.go_on()
        assert zombie.hear() == FENCED
        with holdfast.open(folder, actor=HEIR, clock=clock) as ws:
            assert_fenced_off(zombie, ws, id, token, fate)
            assert_goes_on(zombie, ws, id, fate)


@contextmanager
def at_work(folder: Path, clock: Path) -> Iterator[tuple[Zombie, str, int | None]]:
    """A process that has claimed a task; its id and the token."""
    with holdfast.open(folder, actor="maker", clock=ManualClock(clock)) as ws:
        id = ws.tasks.create("task").id
    with Zombie(folder, clock, ZOMBIE) as zombie:
        claimed = zombie("claim", id=id, agent=ZOMBIE, ttl=TTL)
        assert claimed.code == "ok"
        yield zombie, id, claimed.token


@stops
@pytest.mark.parametrize("place", ["batch.begin", "batch.ran", "batch.commit", "batch.committed"])
def test_t5_a_process_stopped_inside_its_completion_has_completed_or_is_fenced_off(tmp_path: Path, place: str) -> None:
    """It has the turn, so nobody can take its task meanwhile; time enters when its transaction begins."""
    folder, clock = tmp_path / "store", ManualClock(tmp_path / "clock")
    in_time = place != "batch.begin"
    with at_work(folder, tmp_path / "clock") as (zombie, id, token):
        zombie.tell("stop at", place)
        zombie.tell("complete", {"id": id, "token": token})
        zombie.wait_until_stopped()
        clock.advance(TTL)
        with holdfast.open(folder, actor=HEIR, clock=clock, busy_timeout=0.1) as hasty, pytest.raises(errors.Busy):
            hasty.tasks.claim(id, HEIR)
        zombie.go_on()
        assert zombie.hear() == (Answer("ok") if in_time else FENCED)
        with holdfast.open(folder, actor=HEIR, clock=clock) as ws:
            assert [entry.op for entry in ws.tasks.history(id, field="status")] == [
                "complete" if in_time else "expire",
                "claim",
                "create",
            ]
            assert ws.tasks.get(id).status == ("closed" if in_time else "open")
            assert ws.check().problems == []


# --- replicas --------------------------------------------------------------------------------------------------------


@fates
def test_t5_a_node_that_has_not_heard_of_its_deadline_is_fenced_off(tmp_path: Path, fate: Fate) -> None:
    with Nodes(tmp_path) as nodes:
        late = nodes.stale(ZOMBIE)
        ws = nodes.stale(HEIR).using(at_least="latest")
        id = ws.tasks.create("task").id
        token = late.tasks.claim(id, ZOMBIE, ttl=TTL).token
        nodes.clock.advance(TTL)
        if fate != "nobody noticed":
            befall(ws, nodes.clock, id, fate)

        def zombie(op: str, **arguments: Any) -> Answer:
            return attempt(late, op, arguments)

        assert_fenced_off(zombie, ws, id, token, fate)
        assert_goes_on(zombie, ws, id, fate)
        assert_equal(late, ws)


@stops
def test_whoever_waits_for_a_process_that_is_stopped_in_a_transaction_is_told_which(tmp_path: Path) -> None:
    ManualClock(tmp_path / "clock")
    with holdfast.open(tmp_path / "store", actor=HEIR, clock=ManualClock(tmp_path / "clock"), busy_timeout=0.2) as ws:
        id = ws.tasks.create("task").id
        with Zombie(tmp_path / "store", tmp_path / "clock", ZOMBIE) as zombie:
            zombie.tell("stop at", "batch.ran")
            zombie.tell("claim", {"id": id, "agent": ZOMBIE})
            zombie.wait_until_stopped()
            with pytest.raises(errors.Busy) as refused:
                ws.tasks.claim(id, HEIR)
            pid = zombie._process.pid
            assert (refused.value.details["pid"], refused.value.details["actor"]) == (pid, ZOMBIE)
            assert refused.value.details["stopped"]
            assert f"kill -CONT {pid}" in refused.value.hint
            zombie.go_on()
            assert zombie.hear().code == "ok"
