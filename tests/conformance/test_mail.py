"""Mail (A3, A4): messages to one, several or all, in threads and about tasks, and the steps of F11.

`NEXT` is written from the requirement, not taken from the code: whatever is not in it must be refused, must say where
the message stands and where it can go, and must leave everything as it was. Reading changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast import Op, ValueEquals, errors
from holdfast.types.agents import MailStatus, MailStep, Message
from tests.conformance.test_task_lists import configure
from tests.worlds.kinds import World

pytestmark = pytest.mark.kinds("drawn")

Call = Callable[..., object]

STATUSES: tuple[MailStatus, ...] = ("unread", "acknowledged", "actioned", "blocked", "closed")
TYPES = ("notify", "request", "decision-required", "objection", "handoff-ready")

# Where a receiver can bring a message from each status; its sender or a maintainer closes it from all but closed.
NEXT: dict[str, set[str]] = {
    "unread": {"acknowledged", "actioned"},
    "acknowledged": {"actioned", "blocked"},
    "actioned": set(),
    "blocked": {"acknowledged", "actioned"},
    "closed": set(),
}
# The receiver's calls, and what each wants to reach.
STEPS: dict[str, tuple[str, Call]] = {
    "ack": ("acknowledged", lambda ws, id, agent: ws.mail.ack(id, agent)),
    "action": ("actioned", lambda ws, id, agent: ws.mail.action(id, agent)),
    "block": ("blocked", lambda ws, id, agent: ws.mail.block(id, "waits for a key", agent)),
}
CLOSE_THREADS_FIRST = "task_store:\n  close_threads_first: true\n"

callables = pytest.mark.capability("callables")
local = pytest.mark.capability("local")


def brought(ws: Any, status: str, to: str = "ann") -> Message:
    """A new message from `bob` that stands in a status with its receiver."""
    message: Message = ws.mail.send(to, f"it is {status}", "body", sender="bob")
    ways: dict[str, tuple[str, ...]] = {
        "acknowledged": ("ack",),
        "actioned": ("action",),
        "blocked": ("ack", "block"),
    }
    for name in ways.get(status, ()):
        STEPS[name][1](ws, message.id, to)
    if status == "closed":
        ws.mail.close(message.id, "bob")
    found: Message = ws.mail.get(message.id)
    assert found.status[to] == status
    return found


def sent_by(call: Callable[..., Message], *given: Any, **more: Any) -> Message:
    """A message as every reader gets it: without warnings about the call that sent it."""
    return replace(call(*given, **more), warnings=())


def everything(ws: Any) -> list[Any]:
    """All there is to see of mail, and what could change along with it."""
    events = ws.events.list(limit=1000)
    ids = [event.id for event in events if (event.kind, event.op) == ("message", "send")]
    each = [(ws.mail.get(id), ws.mail.history(id)) for id in ids]
    return [each, ws.tasks.list(include_deleted=True), ws.agents.list(), events, ws.revision]


def refused(ws: Any, error: type[errors.HoldfastError], call: Call, *args: Any) -> Any:
    """Expect exactly this error, and everything as it was before; answers the error."""
    before = everything(ws)
    with pytest.raises(errors.HoldfastError) as caught:
        call(*args)
    assert type(caught.value) is error, repr(caught.value)
    assert everything(ws) == before
    return caught.value


def subjects(messages: Any) -> list[str]:
    """What messages are called in these tests."""
    return [message.subject for message in messages]


def all_pages(read: Callable[..., Any], **given: Any) -> list[Message]:
    """Every page of a list, one after the other."""
    found: list[Message] = []
    page = read(**given)
    while True:
        assert len(page) <= given.get("limit", 200)
        found += page
        if page.cursor is None:
            return found
        page = read(**given, cursor=page.cursor)


# --- sending ---------------------------------------------------------------------------------------------------------


def test_a3_a_message_says_all_it_was_sent_with_and_is_unread_by_its_receiver(world: World) -> None:
    ws, other = world.open("bob"), world.open("ann")
    task = ws.tasks.create("task")
    world.clock.advance(5)
    sent = sent_by(ws.mail.send, "ann", "subject", "body\nof two lines", None, task.id, 1, "request", True)
    assert (sent.sender, sent.to, sent.subject, sent.body) == ("bob", ("ann",), "subject", "body\nof two lines")
    assert (sent.type, sent.priority, sent.ack, sent.task, sent.answers) == ("request", 1, True, task.id, None)
    assert (sent.thread, sent.sent_at, sent.closed_at) == (sent.id, task.created_at + timedelta(seconds=5), None)
    assert (sent.status, sent.version, sent.revision) == ({"ann": "unread"}, 1, ws.revision)
    assert other.mail.get(sent.id) == sent
    assert list(other.mail.inbox()) == list(ws.mail.sent()) == [sent]
    assert (ws.mail.inbox(), other.mail.sent()) == ([], [])
    plain = sent_by(ws.mail.send, "ann", "plain")
    assert (plain.body, plain.type, plain.priority, plain.ack, plain.task) == ("", "notify", 2, False, None)


@pytest.mark.parametrize("type", TYPES)
def test_a3_there_are_five_types_of_messages(world: World, type: Any) -> None:
    ws = world.open("bob")
    assert ws.mail.send("ann", "subject", type=type).type == type


def test_a3_a_message_to_several_stands_with_each_by_itself(world: World) -> None:
    ws = world.open("bob")
    sent = ws.mail.send(["cy", "ann", "cy", "bob"], "subject")
    assert sent.to == ("ann", "bob", "cy")
    assert sent.status == {"ann": "unread", "bob": "unread", "cy": "unread"}
    ws.mail.ack(sent.id, "cy")
    acted = ws.mail.action(sent.id, "ann")
    assert acted.status == {"ann": "actioned", "bob": "unread", "cy": "acknowledged"}
    assert [ws.mail.unread(name) for name in ("ann", "bob", "cy")] == [0, 1, 0]


def test_a3_a_message_to_all_goes_to_all_that_are_known_but_its_sender_and_those_who_look_on(world: World) -> None:
    ws = world.open("bob")
    for to in ("*", ["*"]):
        error = refused(ws, errors.NotFound, ws.mail.send, to, "is anybody there?")
        assert (error.status, bool(error.hint)) == (404, True)
    world.open("ann").cells.set("run", "cell", 1)  # known by what it did
    ws.agents.register("cy")
    ws.agents.register("dee", role="observer")
    ws.agents.register("eve", role="maintainer")
    ws.cells.set("run", "cell", 2)
    world.open(None).cells.set("run", "cell", 3)  # nobody chose that name
    sent = ws.mail.send("*", "to all of you")
    assert (sent.to, list(sent.status)) == (("*",), ["ann", "cy", "eve"])
    ws.agents.register("dee", role="agent")
    assert list(ws.mail.get(sent.id).status) == ["ann", "cy", "eve"], "it has been sent"
    assert list(ws.mail.send("*", "again", sender="ann").status) == ["bob", "cy", "dee", "eve"]
    assert list(ws.mail.send("dee", "to one who looks on").status) == ["dee"]


def test_a3_an_observer_alone_is_nobody_to_send_to(world: World) -> None:
    ws = world.open("bob")
    ws.agents.register("dee", role="observer")
    refused(ws, errors.NotFound, ws.mail.send, "*", "is anybody there?")


def test_a3_messages_go_to_names_that_nobody_has_heard_of_yet(world: World) -> None:
    ws = world.open("bob")
    ws.mail.send("later", "welcome")
    assert subjects(world.open("later").mail.inbox()) == ["welcome"]


def test_a3_a_recipient_that_was_not_seen_is_warned_about_with_the_nearest_name(world: World) -> None:
    ws = world.open("bob")
    ws.agents.register("ann")
    ws.agents.register("carl")
    sent = ws.mail.send(["ann", "bob", "anne"], "plan")
    assert sent.warnings == ("anne has not been seen here; known: ann, bob, carl (did you mean ann?)",)
    assert ws.mail.get(sent.id).warnings == ()
    assert ws.mail.reply(sent.id, "and?").warnings == sent.warnings, "it goes to the same"
    assert ws.mail.send("zoe", "hello").warnings == ("zoe has not been seen here; known: ann, bob, carl",)
    assert ws.mail.send("*", "to all").warnings == ()
    done = ws.txn([], [Op("mail.send", {"to": "anne", "subject": "plan"})])
    assert done.results[0].warnings == sent.warnings


# --- short ids -------------------------------------------------------------------------------------------------------


def test_a3_a_message_is_known_by_its_number_and_by_an_unambiguous_prefix(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    first, second = ws.mail.send("ann", "one"), ws.mail.send("ann", "two")
    assert (first.short, second.short) == ("m1", "m2")
    for name in ("m2", second.id[:-1], second.id[:24]):
        assert ws.mail.get(name).id == second.id
        assert [message.id for message in ws.mail.thread(name)] == [second.id]
        assert ws.mail.history(name)[0].message == second.id
    assert ann.mail.ack("m1").status == {"ann": "acknowledged"}
    assert ann.mail.reply("m1", "yes").answers == first.id
    assert ws.mail.send("cy", "look", thread="m1").thread == first.id
    assert ws.mail.close("m1").closed_at is not None
    assert ws.txn([ValueEquals("message", "m2", "open")], []).succeeded


def test_a3_an_ambiguous_or_unknown_short_id_is_refused_and_a_thread_may_look_like_one(world: World) -> None:
    ws = world.open("bob")
    first, second = ws.mail.send("ann", "one"), ws.mail.send("ann", "two", thread="m1 of the plan")
    shared = first.id[:13]
    assert second.id.startswith(shared)
    error = refused(ws, errors.InvalidID, ws.mail.get, shared)
    assert error.candidates == sorted([first.id, second.id])
    for name in ("m0", "m3", "m", "M1", first.id[:7], f"{first.id}0", "m" + "9" * 30, "0" * 9):
        refused(ws, errors.MessageNotFound, ws.mail.get, name)
    named = ws.mail.send("ann", "three", thread="m7")
    assert named.thread == "m7"
    assert [message.id for message in ws.mail.thread("m7")] == [named.id]


# --- threads and replies ---------------------------------------------------------------------------------------------


def test_a3_a_thread_is_read_oldest_first_by_its_name_or_the_id_of_any_of_its_messages(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    first = sent_by(ws.mail.send, "ann", "plan")
    other = sent_by(ws.mail.send, "ann", "plan", thread="release 1.0")
    answer = sent_by(ann.mail.reply, first.id, "yes")
    last = sent_by(ws.mail.reply, answer.id, "good")
    joined = sent_by(ann.mail.send, "cy", "me too", thread="release 1.0")
    for id in (first.id, answer.id, last.id):
        assert list(ws.mail.thread(id)) == [first, answer, last]
    for id in ("release 1.0", other.id, joined.id):
        assert list(ws.mail.thread(id)) == [other, joined]
    assert {first.thread, answer.thread, last.thread} == {first.id}
    assert list(all_pages(lambda **given: ws.mail.thread(last.id, **given), limit=1)) == [first, answer, last]
    assert refused(ws, errors.MessageNotFound, ws.mail.thread, "release 2.0").id == "release 2.0"


def test_a3_whichever_message_names_the_thread_a_message_is_found_in_its_thread(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    first = ws.mail.send("ann", "plan")
    answer = ann.mail.reply(first.id, "yes")
    for id in (first.id, answer.id):
        joined = ws.mail.send("cy", "have a look", thread=id)
        assert joined.id in {message.id for message in ws.mail.thread(joined.thread)}
        assert joined.id in {message.id for message in ws.mail.thread(id)}


def test_a3_a_reply_goes_to_the_sender_in_the_same_thread_and_acknowledges_nothing(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    task = ws.tasks.create("task")
    first = sent_by(ws.mail.send, ["ann", "cy"], "plan", task=task.id, priority=0, thread="plans")
    answer = sent_by(ann.mail.reply, first.id, "agreed")
    assert (answer.sender, answer.to, answer.answers) == ("ann", ("bob",), first.id)
    assert (answer.thread, answer.task, answer.priority) == ("plans", task.id, 0)
    assert (answer.subject, answer.type, answer.ack) == ("Re: plan", "notify", False)
    assert answer.status == {"bob": "unread"}
    assert ws.mail.get(first.id) == first, "who has answered has not acknowledged"
    again = sent_by(ws.mail.reply, answer.id, "then go", "handoff-ready", 4, True, ["cy", "dee"], sender="eve")
    assert (again.subject, again.sender, again.to) == ("Re: plan", "eve", ("cy", "dee"))
    assert (again.type, again.priority, again.ack, again.answers) == ("handoff-ready", 4, True, answer.id)
    assert sent_by(ann.mail.reply, first.id, "so", subject="another word").subject == "another word"


def test_a3_a_reply_to_ones_own_goes_to_those_who_received_it(world: World) -> None:
    ws = world.open("bob")
    for name in ("ann", "cy"):
        ws.agents.register(name)
    for to in (["ann", "cy"], "*"):
        first = ws.mail.send(to, "plan")
        ws.agents.register(f"late-{len(to)}")
        more = ws.mail.reply(first.id, "one more thing")
        assert (more.to, more.status) == (("ann", "cy"), {"ann": "unread", "cy": "unread"})
        for name in ("late-1", "late-2"):
            ws.agents.forget(name)


def test_a3_a_reply_goes_to_nobody_else_though_the_sender_is_called_like_all(world: World) -> None:
    ws = world.open("bob")
    ws.agents.register("cy")
    with suppress(errors.Invalid):  # that nobody can be called so would do
        first = ws.mail.send("ann", "plan", sender="*")
        assert list(ws.mail.reply(first.id, "for your eyes only", sender="ann").status) == ["*"]


def test_a3_a_reply_to_a_subject_of_full_length_keeps_to_it(world: World) -> None:
    ws = world.open("bob")
    answer = ws.mail.reply(ws.mail.send("ann", "x" * 500).id, "body")
    assert answer.subject == "Re: " + "x" * 496
    assert ws.mail.reply(answer.id, "body").subject == answer.subject


def test_a3_a_message_of_any_status_can_be_answered_and_the_answer_stands_by_itself(world: World) -> None:
    ws = world.open()
    for status in STATUSES:
        message = brought(ws, status)
        answer = ws.mail.reply(message.id, "answer", sender="ann")
        assert (answer.status, ws.mail.get(message.id)) == ({"bob": "unread"}, message)


# --- the steps of F11 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
def test_f11_every_step_of_the_table_leads_where_it_says(world: World, status: MailStatus) -> None:
    ws = world.open("eve")
    for op, (target, call) in STEPS.items():
        if target not in NEXT[status]:
            continue
        before, revision = brought(ws, status), ws.revision
        world.clock.advance(1)
        answer: Any = call(ws, before.id, "ann")
        assert answer == ws.mail.get(before.id)
        assert (answer.status, answer.closed_at) == ({"ann": target}, None), op
        assert (answer.version, answer.revision, ws.revision) == (before.version + 1, revision + 1, revision + 1)
        last = ws.mail.history(before.id)[-1]
        assert (last.op, last.agent, last.actor, last.status) == (op, "ann", "eve", target)
    if status != "closed":
        before = brought(ws, status)
        world.clock.advance(1)
        closed = ws.mail.close(before.id, "bob")
        assert (closed.status, closed.version) == ({"ann": "closed"}, before.version + 1)
        assert closed.closed_at == ws.mail.history(before.id)[-1].at == before.sent_at + timedelta(seconds=1)
        assert closed == ws.mail.get(before.id)


@pytest.mark.parametrize("status", STATUSES)
def test_f11_every_step_that_is_not_in_the_table_is_refused_and_changes_nothing(
    world: World, status: MailStatus
) -> None:
    ws = world.open("eve")
    message = brought(ws, status)
    calls: dict[str, tuple[str, Call]] = dict(STEPS)
    if status == "closed":
        calls["close"] = ("closed", lambda ws, id, _: ws.mail.close(id, "bob"))
    for op, (target, call) in calls.items():
        if target in NEXT[status]:
            continue
        error = refused(ws, errors.InvalidTransition, call, ws, message.id, "ann")
        assert (error.current_status, error.requested_status, error.id) == (status, target, message.id), op
        assert set(error.valid_transitions) == NEXT[status]
        assert all(word in str(error) for word in (op, status, target, *NEXT[status]))
        assert (error.code, error.status, error.exit_code) == ("INVALID_TRANSITION", 400, 11)


def test_f11_only_a_receiver_takes_the_steps_of_a_receiver(world: World) -> None:
    ws = world.open("eve")
    ws.agents.register("max", role="maintainer")
    for status in STATUSES:
        message = brought(ws, status)
        for _, call in STEPS.values():
            for agent in ("bob", "cy", "max"):  # not its sender, nobody else, not even a maintainer
                error = refused(ws, errors.NotRecipient, call, ws, message.id, agent)
                assert (error.agent, error.id, error.status) == (agent, message.id, 403)


def test_f11_only_the_sender_or_a_maintainer_closes_and_closes_for_all(world: World) -> None:
    ws = world.open("eve")
    for name, role in (("max", "maintainer"), ("dee", "observer"), ("ann", "agent")):
        ws.agents.register(name, role=role)  # type: ignore[arg-type]  # a plain str for mypy
    for closer in ("bob", "max"):
        message = ws.mail.send(["ann", "cy", "fay"], "subject", sender="bob")
        ws.mail.action(message.id, "ann")
        ws.mail.ack(message.id, "cy")
        for other in ("ann", "cy", "dee", "eve"):
            error = refused(ws, errors.NotSender, ws.mail.close, message.id, other)
            assert (error.sender, error.id, error.status) == ("bob", message.id, 403)
        closed = ws.mail.close(message.id, closer, "done with it")
        assert closed.status == {"ann": "closed", "cy": "closed", "fay": "closed"}
        assert ws.mail.unread("fay") == 0
    message = brought(ws, "unread")
    ws.agents.register("max", role="agent")
    refused(ws, errors.NotSender, ws.mail.close, message.id, "max")


def test_f11_a_closed_message_is_refused_as_closed_whoever_asks(world: World) -> None:
    ws = world.open()
    message = brought(ws, "closed")
    for agent in ("bob", "cy"):
        refused(ws, errors.InvalidTransition, ws.mail.close, message.id, agent)


def test_f11_the_actor_is_the_agent_unless_another_is_named(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    message = bob.mail.send(["ann", "cy"], "subject")
    assert ws.mail.ack(message.id).status == {"ann": "acknowledged", "cy": "unread"}
    assert ws.mail.ack(message.id, "cy").status == {"ann": "acknowledged", "cy": "acknowledged"}
    assert ws.mail.block(message.id, "waits").status["ann"] == "blocked"
    assert ws.mail.action(message.id).status["ann"] == "actioned"
    refused(ws, errors.NotSender, ws.mail.close, message.id)
    assert set(bob.mail.close(message.id).status.values()) == {"closed"}


@pytest.mark.parametrize("reason", [None, "", " ", "\n\t"])
def test_f11_a_block_needs_a_reason(world: World, reason: Any) -> None:
    ws = world.open("ann")
    message = brought(ws, "acknowledged")
    refused(ws, errors.Invalid, ws.mail.block, message.id, reason)
    assert ws.mail.block(message.id, "waits for bob").status == {"ann": "blocked"}


def test_f11_history_has_every_step_with_who_took_it_and_what_they_said(world: World) -> None:
    ws = world.open("eve")
    message = ws.mail.send("ann", "subject", sender="bob")
    ws.mail.ack(message.id, "ann", "seen")
    world.clock.advance(1)
    ws.mail.block(message.id, "no key", "ann")
    ws.mail.ack(message.id, "ann")
    ws.mail.action(message.id, "ann", "done ✓")
    refused(ws, errors.InvalidTransition, lambda: ws.mail.ack(message.id, "ann", "never said"))
    ws.mail.close(message.id, "bob", "thank you")
    later = message.sent_at + timedelta(seconds=1)
    told: list[tuple[Any, ...]] = [
        ("send", "bob", message.sent_at, None, None),
        ("ack", "ann", message.sent_at, "acknowledged", "seen"),
        ("block", "ann", later, "blocked", "no key"),
        ("ack", "ann", later, "acknowledged", None),
        ("action", "ann", later, "actioned", "done ✓"),
        ("close", "bob", later, "closed", "thank you"),
    ]
    assert ws.mail.history(message.id) == [
        MailStep(message.id, op, agent, "eve", at, status, note, number, message.revision + number - 1)
        for number, (op, agent, at, status, note) in enumerate(told, 1)
    ]


# --- reading ---------------------------------------------------------------------------------------------------------


def test_a3_reading_is_not_acknowledging_and_writes_nothing(world: World) -> None:
    ws, ann = world.open("bob"), world.open("ann")
    task = ws.tasks.create("task")
    sent = sent_by(ws.mail.send, ["ann", "bob"], "subject", "words", thread="talk", task=task.id)
    before = everything(ws)
    for reader in (ann, ws):
        assert reader.mail.get(sent.id) == sent
        for page in (reader.mail.inbox(), reader.mail.inbox(unread=True), reader.mail.inbox(closed=True)):
            assert list(page) == [sent]
        assert list(reader.mail.thread(sent.id)) == list(reader.mail.about(task.id)) == [sent]
        assert [hit.message for hit in reader.mail.search("words")] == [sent]
        assert len(reader.mail.history(sent.id)) == reader.mail.unread() == 1
        assert list(reader.mail.sent("bob")) == [sent]
    assert everything(ws) == before


def test_a3_an_inbox_has_the_open_ones_or_only_the_unread_or_all_newest_first(world: World) -> None:
    ws = world.open("ann")
    for status in STATUSES:
        brought(ws, status)
        brought(ws, status, "cy")
    newest_first = [f"it is {status}" for status in reversed(STATUSES)]
    assert subjects(ws.mail.inbox()) == newest_first[1:]
    assert subjects(ws.mail.inbox(closed=True)) == newest_first
    assert subjects(ws.mail.inbox(unread=True)) == subjects(ws.mail.inbox("cy", True)) == ["it is unread"]
    assert subjects(ws.mail.inbox(unread=True, closed=True)) == ["it is unread"]
    assert (ws.mail.inbox("nobody"), ws.mail.unread("nobody"), ws.mail.sent("nobody")) == ([], 0, [])
    assert {message.sender for message in ws.mail.inbox("cy", closed=True)} == {"bob"}
    assert all("cy" in message.status for message in ws.mail.inbox("cy", closed=True))


@pytest.mark.parametrize("limit", [1, 3, 7, 12])
def test_a3_pages_are_complete_and_repeat_nothing_while_others_send(world: World, limit: int) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    there = [bob.mail.send("ann", str(number), thread="talk").id for number in range(12)]
    found: list[str] = []
    cursor = None
    while True:
        page = ws.mail.inbox(limit=limit, cursor=cursor)
        found += [message.id for message in page]
        bob.mail.send("ann", "meanwhile", thread="talk")
        cursor = page.cursor
        if cursor is None:
            break
    assert found == there[::-1], "newest first, as of when it began"
    newest = subjects(ws.mail.inbox(limit=1))
    assert newest == ["meanwhile"]
    for read in (bob.mail.sent, lambda **given: ws.mail.inbox(closed=True, **given)):
        assert [message.id for message in all_pages(read, limit=limit)][-12:] == there[::-1]
    talk = all_pages(lambda **given: ws.mail.thread("talk", **given), limit=limit)
    assert [message.id for message in talk][:12] == there


def test_a3_a_page_of_unread_messages_goes_on_behind_its_cursor_though_they_are_read_meanwhile(world: World) -> None:
    ws, bob = world.open("ann"), world.open("bob")
    there = [bob.mail.send("ann", str(number)).id for number in range(6)]
    found = []
    page = ws.mail.inbox(unread=True, limit=2)
    while page:
        found += [ws.mail.ack(message.id).id for message in page]
        page = [] if page.cursor is None else ws.mail.inbox(unread=True, limit=2, cursor=page.cursor)  # type: ignore[assignment]
    assert (found, ws.mail.unread()) == (there[::-1], 0)


def test_a3_the_unread_count_is_what_a_recount_says(world: World) -> None:
    ws = world.open("eve")
    agents = ("ann", "cy", "dee")
    for agent in agents:
        ws.agents.register(agent)
    sent = [ws.mail.send("*", str(number), sender=agents[number % 3]) for number in range(9)]
    calls: list[Call] = [
        lambda: ws.mail.ack(sent[0].id, "cy"),
        lambda: ws.mail.action(sent[1].id, "ann"),
        lambda: ws.mail.close(sent[2].id, "dee"),
        lambda: ws.mail.block(sent[0].id, "waits", "cy"),
        lambda: ws.mail.reply(sent[3].id, "answer", sender="cy"),
        lambda: ws.agents.forget("ann"),
        lambda: ws.mail.close(sent[0].id, "ann"),
    ]
    for call in calls:
        call()
        for agent in agents:
            everything_there = all_pages(lambda agent=agent, **given: ws.mail.inbox(agent, **given), closed=True)
            recount = sum(message.status[agent] == "unread" for message in everything_there)
            assert ws.mail.unread(agent) == recount == len(ws.mail.inbox(agent, unread=True))


def test_a3_a_search_finds_all_words_best_first_in_subject_and_body(world: World) -> None:
    ws = world.open("bob")
    ws.mail.send("ann", "the parser", "breaks on tabs")
    ws.mail.send("cy", "tabs or spaces", "the parser does not care, über parsers do")
    ws.mail.send("ann", "lunch", "at noon", sender="cy")
    assert subjects(hit.message for hit in ws.mail.search("tabs")) == ["tabs or spaces", "the parser"]
    assert subjects(hit.message for hit in ws.mail.search("parser tabs", limit=1)) == ["the parser"]
    assert subjects(hit.message for hit in ws.mail.search("pars*")) == ["the parser", "tabs or spaces"]
    [hit] = ws.mail.search("UBER")
    assert "**über**" in hit.snippet
    assert hit.message == ws.mail.inbox("cy")[0]
    assert ws.mail.search("parser lunch") == []
    assert [subjects(hit.message for hit in ws.mail.search("tabs", agent)) for agent in ("ann", "cy", "eve")] == [
        ["the parser"],
        ["tabs or spaces"],
        [],
    ]
    assert subjects(hit.message for hit in ws.mail.search("noon", "cy")) == ["lunch"], "what it sent counts too"


def test_a3_a_search_knows_no_operators(world: World) -> None:
    ws = world.open("bob")
    ws.mail.send("ann", "one AND two", "subject : three")
    for text in ("one AND two", "subject:three", '"one and"', "NEAR(", "one -two", "a OR'"):
        assert len(ws.mail.search(text)) <= 1
    assert subjects(hit.message for hit in ws.mail.search('"and two"')) == ["one AND two"]


@pytest.mark.kinds("every")
def test_a3_a_watch_hears_of_mail_what_changed(world: World) -> None:
    ws = world.open("eve")
    watch: Any = ws.watch(kinds=["message"], after=0, timeout=0)
    assert list(watch) == []
    task = ws.tasks.create("task")
    sent = ws.mail.send(["ann", "cy"], "subject", "body", task=task.id, priority=3, ack=True, sender="bob")
    ws.mail.ack(sent.id, "ann", "seen")
    answer = ws.mail.reply(sent.id, "yes", "objection", sender="ann")
    ws.mail.close(sent.id, "bob")
    heard = list(ws.watch(kinds=["message"], after=0, timeout=0))
    common = {"thread": sent.id, "task": task.id, "priority": 3}
    assert [(event.op, event.id, event.version, event.actor, event.data) for event in heard] == [
        (
            *("send", sent.id, 1, "eve"),
            {
                **(common | {"sender": "bob", "to": ["ann", "cy"], "type": "notify", "ack": True, "answers": None}),
                **{"subject": "subject", "body": "body", "short": "m1"},
            },
        ),
        (
            "ack",
            sent.id,
            2,
            "eve",
            {"agent": "ann", "note": "seen", "status": ["unread", "acknowledged"], "short": "m1"},
        ),
        (
            *("send", answer.id, 1, "eve"),
            {
                **(common | {"sender": "ann", "to": ["bob"], "type": "objection", "ack": False, "answers": sent.id}),
                **{"subject": "Re: subject", "body": "yes", "short": "m2"},
            },
        ),
        ("close", sent.id, 3, "eve", {"agent": "bob", "short": "m1"}),
    ]
    assert [event.version for event in ws.watch(kinds=["message"], id=sent.id, after=0, timeout=0)] == [1, 2, 3]


# --- A4: messages about tasks ----------------------------------------------------------------------------------------


def test_a4_a_message_hangs_on_its_task_and_so_do_the_answers_to_it(world: World) -> None:
    ws = world.open("bob")
    task, other = ws.tasks.create("task"), ws.tasks.create("other")
    first = sent_by(ws.mail.send, "ann", "about it", task=task.id)
    sent_by(ws.mail.send, "ann", "about the other", task=other.id)
    sent_by(ws.mail.send, "ann", "about nothing", thread=first.id)
    answer = sent_by(ws.mail.reply, first.id, "yes", sender="ann")
    assert list(ws.mail.about(task.id)) == [first, answer]
    assert list(all_pages(lambda **given: ws.mail.about(task.id, **given), limit=1)) == [first, answer]
    assert list(ws.tasks.resume(task.id).messages) == [first, answer]
    assert ws.mail.about(ws.tasks.create("silent").id) == []
    ws.tasks.delete(task.id)
    assert list(ws.mail.about(task.id)) == [first, answer], "what was said of it stays"
    refused(ws, errors.TaskNotFound, lambda: sent_by(ws.mail.send, "ann", "subject", task=task.id))
    assert sent_by(ws.mail.reply, answer.id, "and yet").task == task.id


def test_a4_a_thread_goes_on_after_its_task_was_purged(world: World) -> None:
    ws = world.open("bob")
    task = ws.tasks.create("task")
    first = sent_by(ws.mail.send, "ann", "about it", task=task.id)
    ws.tasks.delete(task.id)
    ws.tasks.purge(task.id)
    answer = sent_by(ws.mail.reply, first.id, "it is gone", sender="ann")
    assert (answer.thread, list(ws.mail.thread(first.id))) == (first.thread, [first, answer])


def closing(ws: Any) -> dict[str, tuple[str, Call]]:
    """A new task for every way to close one, and the way."""

    def make(status: str) -> str:
        task = ws.tasks.claim(ws.tasks.create(status).id)
        if status == "pending_merge":
            ws.tasks.complete(task.id, review=True)
        elif status == "blocked":
            ws.tasks.block(task.id)
        id: str = task.id
        return id

    return {
        "complete": (make("in_progress"), lambda id: ws.tasks.complete(id, review=False)),
        "approve": (make("pending_merge"), ws.tasks.approve),
        "close": (make("blocked"), ws.tasks.close),
        "set the status of one in progress": (make("in_progress"), lambda id: ws.tasks.set_status(id, "closed")),
        "set the status of one pending merge": (make("pending_merge"), lambda id: ws.tasks.set_status(id, "closed")),
        "set the status of a blocked one": (make("blocked"), lambda id: ws.tasks.set_status(id, "closed")),
        "close in bulk": (make("blocked"), lambda id: ws.tasks.bulk("close", [id], atomic=True)),
    }


@pytest.mark.kinds("every")
def test_a4_where_threads_are_closed_first_a_task_with_open_messages_is_not_closed(world: World) -> None:
    ws = world.open("bob")
    ways = closing(ws)
    configure(world, ws, CLOSE_THREADS_FIRST)
    for name, (id, close) in ways.items():
        done = ws.mail.send("ann", "settled", task=id)
        ws.mail.close(done.id)
        pending = [ws.mail.send("ann", "open", task=id).id for _ in range(2)]
        ws.mail.action(pending[0], "ann")  # what has been acted on is not closed yet
        error = refused(ws, errors.OpenThreads, close, id)
        assert (error.messages, error.id, error.status) == (pending, id, 409), name
        assert error.hint
        for message in pending:
            refused(ws, errors.OpenThreads, close, id)
            ws.mail.close(message)
        close(id)
        assert ws.tasks.get(id).status == "closed", name


def test_a4_where_threads_are_closed_first_a_task_can_still_be_cancelled_or_sent_to_review(world: World) -> None:
    ws = world.open("bob")
    ws.cells.set("run", "cell", 1)  # the folder is there once something was written
    configure(world, ws, CLOSE_THREADS_FIRST)
    for status in ("open", "blocked"):
        task = ws.tasks.create(status)
        if status == "blocked":
            ws.tasks.claim(task.id)
            ws.tasks.block(task.id)
        message = sent_by(ws.mail.send, "ann", "subject", task=task.id)
        assert ws.tasks.cancel(task.id).status == "closed"
        assert ws.mail.get(message.id) == message
    task = ws.tasks.claim(ws.tasks.create("task").id)
    sent_by(ws.mail.send, "ann", "subject", task=task.id)
    assert ws.tasks.complete(task.id, review=True).status == "pending_merge"
    free = ws.tasks.claim(ws.tasks.create("nobody spoke of it").id)
    sent_by(ws.mail.send, "ann", "about nothing")
    assert ws.tasks.complete(free.id).status == "closed"


def test_a4_unless_it_is_wanted_messages_keep_no_task_open(world: World) -> None:
    ws = world.open("bob")
    for id, close in closing(ws).values():
        ws.mail.send("ann", "open", task=id)
        close(id)
        assert ws.tasks.get(id).status == "closed"
