"""What the next agent finds (A7): a claim that ends takes its path locks along in the same commit, and `tasks.resume`
tells who had the task, how that ended, what was left locked, and what was said; never in more bytes than allowed.

`assert_right` holds an answer against all there is: it fits, has the newest of each kind, and counts what it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast import Op, errors
from holdfast.domains.tasks.resume import BUDGET, MAX_BUDGET, MIN_BUDGET
from holdfast.testing.crowd import LONG, start
from holdfast.types.agents import Message, PathLock
from holdfast.types.tasks import Resume, Task
from tests.conformance.test_one_commit import in_txn, log, parts_in
from tests.conformance.test_task_status import refused
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

CUT = "… (cut)"
BUDGETS = (MIN_BUDGET, 1025, 1500, 2048, 4096, BUDGET, 16_384, 65_536, 262_144, MAX_BUDGET)
AWKWARD = 'say "yes"\\no\t\u2028\x01\x1f\x7f é ß 漢字 👩‍👩‍👧‍👦 \U0001f600\ufeff</script>\n'
PARTS = ("body", "waits_for", "children", "locks", "left", "notes", "messages", "events")


class Facts(msgspec.Struct):
    """All there is to tell of a task, oldest first."""

    body: str
    locks: list[PathLock]
    left: list[str]
    notes: list[str]
    messages: list[Message]
    ops: list[str]


def facts_of(ws: Any, id: str, left: Sequence[str] = ()) -> Facts:
    """Collected by other operations; what was left locked is for the caller to know."""
    events = ws.events.list(kinds=["task"], id=id, limit=1000)
    messages: list[Message] = []
    cursor = None
    while True:
        page = ws.mail.about(id, cursor=cursor)
        messages += page
        cursor = page.cursor
        if cursor is None:
            break
    notes = [event.data["note"] for event in events if "note" in event.data]
    locks = ws.paths.list(task=id)
    return Facts(ws.tasks.get(id).body, locks, sorted(left), notes, messages, [event.op for event in events])


def size_of(answer: Resume) -> int:
    """How many bytes it is as JSON."""
    return len(msgspec.json.encode(answer))


def is_cut(kept: str, text: str) -> bool:
    """Whether it is the beginning of a text, and says that it is only that."""
    return kept.endswith(CUT) and text.startswith(kept.removesuffix(CUT)) and len(kept) - len(CUT) < len(text)


def assert_right(answer: Resume, budget: int, facts: Facts) -> None:
    """It fits, it has the first or the newest of each kind in order, and counts what it has not."""
    assert size_of(answer) <= budget
    omitted = dict(answer.omitted)
    assert set(omitted) <= set(PARTS)
    assert 0 not in omitted.values()
    missing = omitted.pop("body", 0)
    if missing:
        assert is_cut(answer.task.body, facts.body)
        assert missing == len(facts.body.encode()) - len(answer.task.body.removesuffix(CUT).encode())
    else:
        assert answer.task.body == facts.body
    assert list(answer.locks) == facts.locks[: len(answer.locks)]
    assert list(answer.left) == facts.left[: len(answer.left)]
    for kept, note in zip(reversed(answer.notes), reversed(facts.notes), strict=False):
        assert kept.text == note or is_cut(kept.text, note)
    for mail, sent in zip(reversed(answer.messages), reversed(facts.messages), strict=False):
        assert mail.body == sent.body or is_cut(mail.body, sent.body)
        assert msgspec.structs.replace(mail, body=sent.body) == sent
    assert [event.op for event in answer.events] == facts.ops[len(facts.ops) - len(answer.events) :]
    there: dict[str, Sequence[Any]] = {
        "locks": facts.locks,
        "left": facts.left,
        "notes": facts.notes,
        "messages": facts.messages,
    }
    for part, found in {**there, "events": facts.ops}.items():
        assert len(getattr(answer, part)) + omitted.pop(part, 0) == len(found), part
    assert omitted == {}


def worked_on(ws: Any, ttl: float = 60) -> Task:
    """A task that `ws` has claimed, with locks, a note and a message."""
    task: Task = ws.tasks.create("task", "what to do", tags=["api"])
    claimed: Task = ws.tasks.claim(task.id, ttl=ttl)
    ws.paths.lock(["src/**", "docs/index.md"], task=task.id, reason="rework")
    ws.paths.lock("tests/**", task=task.id, ttl=3600)
    ws.tasks.note(task.id, "half of it is done")
    ws.mail.send("bob", "a question", "which one?", task=task.id)
    return claimed


LEFT = ["docs/index.md", "src/**", "tests/**"]


# --- a claim takes its locks along -----------------------------------------------------------------------------------


@pytest.mark.kinds("every")
def test_a5_a_claim_that_expires_frees_its_path_locks_in_the_same_commit(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    kept = ws.paths.lock("elsewhere/**")
    before = ws.revision
    world.clock.advance(59.999999)
    with pytest.raises(errors.Held):
        other.paths.lock("src/main.py")
    world.clock.advance(0.000001)
    assert other.paths.check("src/main.py") is None
    mine = other.paths.lock(["src/main.py", "tests/**"])
    expired = [event for event in log(ws, before) if event.revision == before + 1]
    assert sorted((event.kind, event.op) for event in expired) == [("path", "expire")] * 2 + [("task", "expire")]
    assert {(event.actor, event.time) for event in expired} == {("system", task.deadline)}
    assert ws.paths.list() == [kept, mine]
    assert (ws.tasks.get(task.id).status, ws.tasks.get(task.id).revision) == ("open", before + 1)


ENDS: dict[str, dict[str, Any]] = {
    "release": {"reason": "the end"},
    "complete": {"summary": "the end"},
    "block": {"reason": "the end"},
}


@pytest.mark.kinds("every")
@pytest.mark.parametrize("how", [*ENDS, "force"])
def test_a7_however_a_claim_ended_its_locks_ended_with_it_and_the_next_one_is_told(world: World, how: str) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    world.clock.advance(5)
    before = ws.revision
    if how == "force":
        other.tasks.release(task.id, force=True, reason="the end")
    else:
        getattr(ws.tasks, how)(task.id, **ENDS[how])
    ended = log(ws, before)
    assert {event.revision for event in ended} == {before + 1}
    assert sorted((event.kind, event.op) for event in ended) == sorted(
        [("path", "release")] * 2 + [("task", "release" if how == "force" else how)]
    )
    answer = other.tasks.resume(task.id)
    assert (answer.last_holder, answer.ended) == ("ann", "release" if how == "force" else how)
    assert answer.ended_at == answer.task.updated_at == task.updated_at + timedelta(seconds=5)
    assert (list(answer.left), answer.locks, answer.notes[-1].text) == (LEFT, (), "the end")
    assert_right(answer, BUDGET, facts_of(ws, task.id, LEFT))


# --- what the next one is told ---------------------------------------------------------------------------------------


@pytest.mark.kinds("every")
def test_a7_after_an_expiry_the_next_agent_sees_who_had_it_and_what_was_left(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    other.mail.reply(ws.mail.about(task.id)[0].id, "the first")
    world.clock.advance(60)
    answer = other.tasks.resume(task.id)  # nobody has swept before
    assert (answer.task, answer.task.status) == (ws.tasks.get(task.id), "open")
    assert (answer.last_holder, answer.ended, answer.ended_at) == ("ann", "expire", task.deadline)
    assert (list(answer.left), answer.locks) == (LEFT, ())
    assert [note.text for note in answer.notes] == ["half of it is done"]
    assert [(mail.sender, mail.body) for mail in answer.messages] == [("ann", "which one?"), ("bob", "the first")]
    assert [(event.op, event.actor) for event in answer.events] == [
        ("create", "ann"),
        ("claim", "ann"),
        ("note", "ann"),
        ("expire", "system"),
    ]
    assert answer.events[1].changes["claimed_by"] == [None, "ann"]
    assert (answer.events[2].note, answer.omitted) == ("half of it is done", {})
    assert_right(answer, BUDGET, facts_of(ws, task.id, LEFT))


def test_a7_the_present_holder_sees_its_own_locks_and_what_the_last_one_left(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    world.clock.advance(60)
    other.tasks.claim(task.id)
    mine = other.paths.lock("src/main.py", task=task.id)
    answer = other.tasks.resume(task.id)
    assert (answer.task.claimed_by, answer.last_holder, answer.ended) == ("bob", "ann", "expire")
    assert (answer.locks, list(answer.left)) == ((mine,), LEFT)
    other.tasks.release(task.id)
    assert (other.tasks.resume(task.id).last_holder, other.tasks.resume(task.id).left) == ("bob", ("src/main.py",))


def test_a7_a_task_that_was_never_claimed_or_is_claimed_for_the_first_time_has_no_last_holder(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("task")
    answer = ws.tasks.resume(task.id)
    assert (answer.last_holder, answer.ended, answer.ended_at, answer.left) == (None, None, None, ())
    assert ([event.op for event in answer.events], answer.task, answer.omitted) == (["create"], task, {})
    claimed = worked_on(ws)
    answer = ws.tasks.resume(claimed.id)
    assert (answer.last_holder, answer.ended, answer.ended_at, answer.left) == (None, None, None, ())
    assert {lock.patterns for lock in answer.locks} == {("docs/index.md", "src/**"), ("tests/**",)}
    assert answer.task.claimed_by == "ann"
    assert_right(answer, BUDGET, facts_of(ws, claimed.id))


def test_a7_a_parked_claim_keeps_its_locks_and_its_holder(world: World) -> None:
    ws = world.open("ann")
    task = worked_on(ws)
    ws.tasks.park(task.id)
    world.clock.advance(3599)
    answer = ws.tasks.resume(task.id)
    assert (answer.task.claimed_by, answer.last_holder, len(answer.locks), answer.left) == ("ann", None, 2, ())


def test_a7_only_the_locks_that_ended_with_the_claim_were_left(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task, more = worked_on(ws), ws.tasks.claim(ws.tasks.create("more").id, ttl=60)
    ws.paths.lock("more/**", task=more.id)
    ws.paths.lock("nothing/**")
    ws.paths.release(ws.paths.lock("given/back", task=task.id).id)
    ws.paths.lock("over/**", task=task.id, ttl=10)
    world.clock.advance(10)
    assert len(ws.paths.list()) == 4
    world.clock.advance(50)
    assert list(other.tasks.resume(task.id).left) == LEFT
    assert other.tasks.resume(more.id).left == ("more/**",), "though both ended in one commit"


def test_a7_reading_changes_nothing_and_works_by_abbreviation_in_txn_and_at_a_revision(world: World) -> None:
    ws = world.open("ann")
    task = worked_on(ws)
    before = ws.revision
    answer = ws.tasks.resume(task.id)
    assert ws.tasks.resume(task.id.partition("-")[2]) == answer
    assert ws.txn([], [Op("tasks.resume", {"id": task.id})]).results == [answer]
    assert ws.using(at_least=before).tasks.resume(task.id) == answer
    assert ws.revision == before
    assert ws.mail.unread("bob") == 1


@pytest.mark.capability("callables")
def test_a7_inside_a_transaction_it_tells_what_that_has_done_so_far(world: World) -> None:
    ws = world.open("ann")
    task = worked_on(ws)

    def body(tx: Any) -> Resume:
        tx.tasks.release(task.id, reason="to bob")
        tx.tasks.claim(task.id, "bob")
        tx.paths.lock("src/**", holder="bob", task=task.id)
        answer: Resume = tx.tasks.resume(task.id)
        return answer

    answer = ws.transact(body)
    assert (answer.last_holder, answer.ended, answer.task.claimed_by) == ("ann", "release", "bob")
    assert (list(answer.left), [lock.holder for lock in answer.locks]) == (LEFT, ["bob"])
    assert ws.tasks.resume(task.id) == answer


def test_a7_an_answer_is_of_one_moment_while_others_take_and_give_back(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    id = ws.tasks.create("task").id

    def work() -> None:
        for _ in range(30):
            in_txn(other, parts_in(("claim", "lock", "mail"), id))
            other.tasks.release(id)

    def read() -> list[Resume]:
        return [ws.tasks.resume(id, budget=MAX_BUDGET) for _ in range(30)]

    working, answers = start(work), read()
    working.result(LONG)
    for answer in [*answers, *read()]:
        ops = [event.op for event in answer.events]
        held = answer.task.claimed_by is not None
        assert len(answer.messages) == ops.count("claim")
        assert (len(answer.locks), ops[-1] == "claim", answer.task.status) == (
            held,
            held,
            "in_progress" if held else "open",
        )
        assert (answer.last_holder, answer.left) == (("bob", ("src/**",)) if "release" in ops else (None, ()))


def test_a7_a_task_that_is_not_there_or_deleted_or_purged_cannot_be_resumed(world: World) -> None:
    ws = world.open("ann")
    tasks = [ws.tasks.create(f"task {number}") for number in range(2)]
    ws.mail.send("bob", "about", task=tasks[0].id)
    ws.tasks.delete(tasks[0].id)
    ws.tasks.purge(tasks[1].id)
    for id in (tasks[0].id, tasks[1].id, "hf-none"):
        assert refused(ws, errors.TaskNotFound, ws.tasks.resume, id).id == id
    ws.tasks.restore(tasks[0].id)
    assert [event.op for event in ws.tasks.resume(tasks[0].id).events] == ["create", "delete", "restore"]


@pytest.mark.parametrize("budget", [0, -1, MIN_BUDGET - 1, MAX_BUDGET + 1, 2**70, 4096.0, "4096", True, None])
def test_a7_a_budget_that_is_none_is_invalid(world: World, budget: Any) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("task")
    error = refused(ws, errors.Invalid, lambda: ws.tasks.resume(task.id, budget=budget))
    assert str(MIN_BUDGET) in error.message
    assert str(MAX_BUDGET) in error.message


@pytest.mark.parametrize("id", ["", 7, None, "x" * 2000, "a\x00b"])
def test_a7_an_id_that_is_none_is_invalid(world: World, id: Any) -> None:
    ws = world.open("ann")
    refused(ws, errors.InvalidName, ws.tasks.resume, id)


def test_a7_what_was_compacted_is_not_told_but_notes_and_the_rest_are(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    world.clock.advance(60)
    other.tasks.release_stale_claims()
    ws.cells.set("run", "cell", 1)
    ws.events.compact(before=ws.revision)
    answer = other.tasks.resume(task.id)
    assert (answer.last_holder, answer.ended, answer.ended_at) == ("ann", "expire", task.deadline)
    assert ([event.op for event in answer.events], answer.notes[0].text) == (["note", "expire"], "half of it is done")
    assert ([mail.subject for mail in answer.messages], set(answer.left) <= set(LEFT)) == (["a question"], True)
    other.tasks.claim(task.id)
    other.paths.lock("src/**", task=task.id)
    other.tasks.release(task.id)
    answer = ws.tasks.resume(task.id)
    assert (answer.last_holder, answer.left) == ("bob", ("src/**",))
    assert [event.op for event in answer.events] == ["note", "expire", "claim", "release"]


# --- in so many bytes ------------------------------------------------------------------------------------------------


def in_hundreds(ws: Any, operation: str, given: Sequence[dict[str, Any]]) -> None:
    """The same operation many times, in few commits."""
    for first in range(0, len(given), 100):
        ws.txn([], [Op(operation, each) for each in given[first : first + 100]])


def laden(ws: Any, text: str, times: int, many: int) -> Task:
    """A task about which there is too much to say, and which `ws` holds."""
    task: Task = ws.tasks.create("title", text * times, tags=[f"tag-{number}" for number in range(5)])
    task = ws.tasks.claim(task.id, ttl=60)
    in_hundreds(ws, "tasks.note", [{"id": task.id, "text": f"{number} {text}"} for number in range(many)])
    mails = [
        {"to": ["bob", "carl"], "subject": f"s {number}", "body": text * 9, "task": task.id} for number in range(many)
    ]
    in_hundreds(ws, "mail.send", mails)
    locks = [
        {"patterns": [f'dir-{number}/é "q"/**', f"dir-{number}/b"], "task": task.id} for number in range(many // 3)
    ]
    in_hundreds(ws, "paths.lock", locks)
    return task


LOADS: dict[str, tuple[str, int, int]] = {
    "a huge body": ("lorem ipsum ", 20_000, 3),
    "awkward characters": (AWKWARD, 200, 30),
    "300 notes and messages": ("x" * 400, 4, 300),
    "nothing but quotes": ('"\\\x01' * 20, 100, 40),
}


@pytest.mark.parametrize("load", LOADS)
def test_a7_the_answer_is_never_longer_than_the_budget_and_counts_what_it_leaves_out(world: World, load: str) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = laden(ws, *LOADS[load])
    facts = facts_of(ws, task.id)
    for budget in BUDGETS:
        answer = other.tasks.resume(task.id, budget=budget)
        assert_right(answer, budget, facts)
        assert (answer.task.id, answer.task.title, answer.task.tags) == (task.id, "title", task.tags)
        assert (answer.task.claimed_by, answer.last_holder) == ("ann", None)
    world.clock.advance(60)
    left = [pattern for lock in facts.locks for pattern in lock.patterns]
    ends = [other.tasks.resume(task.id, budget=budget) for budget in BUDGETS]
    facts = facts_of(ws, task.id, left)
    for budget, answer in zip(BUDGETS, ends, strict=True):
        assert_right(answer, budget, facts)
        assert (answer.last_holder, answer.ended, answer.task.status) == ("ann", "expire", "open")
    if size_of(ends[-1]) < MAX_BUDGET // 2:
        assert ends[-1].omitted == {}, "where there is room for all, nothing is left out"


def test_a7_the_room_there_is_gets_used_by_what_is_newest(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("task")
    in_hundreds(ws, "tasks.note", [{"id": task.id, "text": f"note {number} {'x' * 80}"} for number in range(120)])
    counts = []
    for budget in (2048, 4096, 8192):
        answer = ws.tasks.resume(task.id, budget=budget)
        assert answer.notes[-1].text.startswith("note 119 ")
        assert answer.omitted["notes"] == 120 - len(answer.notes)
        assert size_of(answer) > budget - 320
        counts.append(len(answer.notes))
    assert counts == sorted(set(counts))
    assert ws.tasks.resume(task.id, budget=MAX_BUDGET).omitted == {}


def test_a7_a_budget_too_small_for_the_task_itself_says_how_much_is_needed_and_that_is_enough(world: World) -> None:
    ws = world.open("ann")
    task = ws.tasks.create("漢" * 500, "body " * 100, tags=[f"{'t' * 60}-{number}" for number in range(64)])
    ws.tasks.note(task.id, "note")
    error = refused(ws, errors.Invalid, lambda: ws.tasks.resume(task.id, budget=MIN_BUDGET))
    assert error.hint is not None
    needed = int("".join(char for char in error.hint if char.isdigit()))
    assert str(needed) in error.message
    refused(ws, errors.Invalid, lambda: ws.tasks.resume(task.id, budget=needed - 1))
    for more in (0, 1, 20, 50, 500):
        answer = ws.tasks.resume(task.id, budget=needed + more)
        assert_right(answer, needed + more, facts_of(ws, task.id))
        assert (answer.task.title, len(answer.task.tags)) == ("漢" * 500, 64)


def test_a7_a_message_to_a_thousand_and_a_result_of_any_kind_do_not_burst_it(world: World) -> None:
    ws = world.open("ann")
    task = worked_on(ws)
    ws.mail.send([f"agent-{number:04}" for number in range(1000)], "to all", AWKWARD, task=task.id)
    result = {"bytes": b"\xff\x00", "deep": [[{"a": [None, True, -1, 2**63 - 1, 0.1, AWKWARD]}]], "": {}}
    ws.tasks.complete(task.id, result=result, summary=AWKWARD * 100)
    facts = facts_of(ws, task.id, LEFT)
    for budget in BUDGETS:
        assert size_of(ws.tasks.resume(task.id, budget=budget)) <= budget
    answer = ws.tasks.resume(task.id, budget=MAX_BUDGET)
    assert (len(answer.messages), len(answer.messages[1].status), answer.omitted) == (2, 1000, {})
    assert (answer.ended, answer.notes[-1].text, len(answer.events)) == ("complete", AWKWARD * 100, len(facts.ops))


def test_a7_600_events_later_the_last_holder_is_still_known_and_what_is_missing_is_counted(world: World) -> None:
    ws, other = world.open("ann"), world.open("bob")
    task = worked_on(ws)
    world.clock.advance(60)
    other.tasks.claim(task.id)
    in_hundreds(other, "tasks.update", [{"id": task.id, "priority": number % 2} for number in range(600)])
    answer = other.tasks.resume(task.id)
    assert (answer.last_holder, answer.ended, list(answer.left)) == ("ann", "expire", LEFT)
    assert [note.text for note in answer.notes] == ["half of it is done"]
    assert_right(answer, BUDGET, facts_of(ws, task.id, LEFT))


def test_a7_of_600_messages_what_is_missing_is_counted(world: World) -> None:
    ws = world.open("ann")
    task = worked_on(ws)
    mails = [{"to": "bob", "subject": f"subject {number}", "task": task.id} for number in range(600)]
    in_hundreds(ws, "mail.send", mails)
    assert_right(ws.tasks.resume(task.id), BUDGET, facts_of(ws, task.id))
