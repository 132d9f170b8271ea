"""The core tools, one by one: what they do, what they answer, what they refuse, and what they remember."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

import holdfast
from holdfast.faces.mcp.profiles import INSTRUCTIONS
from holdfast.testing import ManualClock
from tests.mcp.clients import ERAS, Era, inside, played


@played
async def test_a_task_is_created_claimed_noted_and_finished(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        made = await agent.call("task_create", title="Fix the login page", body="It blinks", tags=["web"], priority=1)
        assert made == {
            "id": made["id"],
            "title": "Fix the login page",
            "status": "open",
            "priority": 1,
            "version": 1,
            "tags": ["web"],
        }
        claimed = (await agent.call("task_claim"))["task"]
        assert (claimed["id"], claimed["holder"], claimed["body"]) == (made["id"], "ann", "It blinks")
        assert claimed["token"] == ws.tasks.get(made["id"]).token
        noted = await agent.call("task_update", id=made["id"], note="half done", title="Fix it", add_tags=["late"])
        assert (noted["title"], noted["tags"]) == ("Fix it", ["late", "web"])
        done = await agent.call("task_finish", id=made["id"], text="it is quiet now")
        assert done["status"] == "closed"
        shown = await agent.call("task_show", id=made["id"])
        assert [(note["text"], note["by"]) for note in shown["notes"]] == [
            ("half done", "ann"),
            ("it is quiet now", "ann"),
        ]
        assert (shown["last_holder"], shown["ended"]) == ("ann", "complete")


@played
async def test_what_is_empty_is_refused_by_its_own_name(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        assert (await agent.refusal("task_create", title="")).code == "INVALID_VALUE"
        assert (await agent.refusal("lock", action="acquire", name="deploy", ttl=0)).code == "INVALID"


@played
async def test_nothing_ready_is_an_answer_and_no_error(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        assert await agent.call("task_claim") == {"task": None}
        assert await agent.call("task_list") == {"tasks": []}


@played
async def test_a_compacted_past_is_told_beside_what_is_left(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("task")
    for priority in (1, 3, 0):
        ws.tasks.update(task.id, priority=priority)
    async with inside(ws) as agent:
        assert "compacted" not in await agent.call("task_show", id=task.id)
        ws.events.compact(5)
        assert (await agent.call("task_show", id=task.id))["compacted"] == 4
    async with inside(ws, "all") as agent:
        left = await agent.call("tasks_history", id=task.id)
        assert (len(left["result"]), left["cursor"], left["compacted"]) == (1, "4", 4)
        assert (await agent.refusal("tasks_history", id=task.id, before=4)).code == "COMPACTED"
        assert "compacted" not in await agent.call("tasks_list")


@played
async def test_an_update_is_all_or_nothing(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("first")
    async with inside(ws) as agent:
        refused = await agent.refusal("task_update", id=task.id, title="second", add_depends_on=["hf-none"])
        assert refused.code == "TASK_NOT_FOUND"
        assert ws.tasks.get(task.id).title == "first"
        assert (await agent.refusal("task_update", id=task.id, title="x", expected=99)).code == "VERSION_MISMATCH"
        assert (await agent.refusal("task_update", id=task.id, step="unblock")).code == "INVALID_TRANSITION"


@played
async def test_the_steps_that_need_no_claim_are_updates_too(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("a duplicate")
    async with inside(ws) as agent:
        for step, status in (("cancel", "closed"), ("reopen", "open")):
            stepped = await agent.call("task_update", id=task.id, step=step, note=f"why {step}")
            assert stepped["status"] == status
        assert {entry.note for entry in ws.tasks.history(task.id)} >= {"why cancel", "why reopen"}


@played
async def test_an_update_with_the_id_alone_keeps_the_claim_alive(ws: holdfast.Workspace, clock: ManualClock) -> None:
    task = ws.tasks.create("long work")
    async with inside(ws) as agent:
        await agent.call("task_claim", id=task.id, ttl=60)
        for _ in range(3):
            clock.advance(50)
            assert (await agent.call("task_update", id=task.id))["holder"] == "ann"
        clock.advance(61)
        assert (await agent.refusal("task_update", id=task.id)).code == "FENCED"


@pytest.mark.parametrize(("action", "status"), [("done", "closed"), ("block", "blocked"), ("release", "open")])
def test_a_claim_ends_in_one_of_three_ways(ws: holdfast.Workspace, action: str, status: str) -> None:
    task = ws.tasks.create("work")

    @played
    async def play() -> None:
        async with inside(ws) as agent:
            await agent.call("task_claim", id=task.id)
            ended = await agent.call("task_finish", id=task.id, action=action, text="because")
            assert (ended["status"], ended.get("holder")) == (status, None)

    play()
    assert "because" in {entry.note for entry in ws.tasks.history(task.id)}


@played
async def test_lists_have_no_bodies_and_go_on_with_a_cursor(ws: holdfast.Workspace) -> None:
    for number in range(45):
        ws.tasks.create(f"task {number}", body="long " * 100, priority=number % 5)
    async with inside(ws) as agent:
        first = await agent.call("task_list")
        assert len(first["tasks"]) == 20
        assert all(row.keys() == {"id", "title", "status", "priority", "version"} for row in first["tasks"])
        found, cursor = first["tasks"], first["cursor"]
        while cursor is not None:
            page = await agent.call("task_list", cursor=cursor)
            found, cursor = [*found, *page["tasks"]], page.get("cursor")
        assert len({row["id"] for row in found}) == 45
        assert [row["priority"] for row in found] == sorted(row["priority"] for row in found)
        assert (await agent.refusal("task_list", limit=1000)).code == "INVALID_FILTER"
        assert len((await agent.call("task_list", limit=100, status="any"))["tasks"]) == 45


@played
async def test_lists_are_narrowed_by_status_tag_text_parent_and_holder(ws: holdfast.Workspace) -> None:
    parent = ws.tasks.create("the whole")
    child = ws.tasks.create("a part about llamas", parent_id=parent.id, tags=["zoo"])
    ws.tasks.claim(child.id)
    async with inside(ws) as agent:

        async def ids(**given: Any) -> list[str]:
            return [row["id"] for row in (await agent.call("task_list", **given))["tasks"]]

        assert await ids(mine=True) == [child.id]
        assert await ids(status="in_progress") == [child.id]
        assert await ids(status="any", tag="zoo") == [child.id]
        assert await ids(text="llamas") == [child.id]
        assert await ids(status="any", parent_id=parent.id) == [child.id]
        assert await ids(status="closed") == []


@played
async def test_long_texts_are_cut_unless_the_whole_is_wanted(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("long", body="word " * 10_000)
    ws.cells.set("run", "long", ["item"] * 10_000)
    async with inside(ws) as agent:
        assert len((await agent.call("task_show", id=task.id))["task"]["body"]) < 8192
        assert len((await agent.call("task_show", id=task.id, whole=True))["task"]["body"]) == 50_000
        value = (await agent.call("cell_get", run="run", cell="long"))["value"]
        assert value.startswith('["item","item"')
        assert len(value) < 17_000
        assert (await agent.call("cell_get", run="run", cell="long", whole=True))["value"] == ["item"] * 10_000


# --- cells -----------------------------------------------------------------------------------------------------------


@played
async def test_a_cell_is_written_read_and_swapped(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        assert await agent.call("cell_set", run="r", cell="c", value={"n": 1}, expected=0) == {"version": 1}
        refused = await agent.refusal("cell_set", run="r", cell="c", value=2, expected=7)
        assert (refused.code, refused.details["version"], refused.details["value"]) == ("VERSION_MISMATCH", 1, {"n": 1})
        assert (await agent.refusal("cell_set", run="r", cell="c", value=2, expected=0)).code == "VERSION_MISMATCH"
        assert await agent.call("cell_set", run="r", cell="c", value=None, expected=1) == {"version": 2}
        read = await agent.call("cell_get", run="r", cell="c")
        assert (read["value"], read["version"]) == (None, 2)
        assert (await agent.call("cell_get", run="r"))["cells"] == ["c"]
        assert await agent.call("cell_get", run="r", cell="none") == {"value": None, "version": 0}, (
            "as expected takes it"
        )


@played
async def test_bytes_survive_a_cell(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        await agent.call("cell_set", run="r", cell="c", value={"$bytes": "AAH/"})
        assert ws.cells.get("r", "c").value == b"\x00\x01\xff"
        assert (await agent.call("cell_get", run="r", cell="c"))["value"] == {"$bytes": "AAH/"}


@played
async def test_the_cells_of_a_run_are_listed_with_a_cursor(ws: holdfast.Workspace) -> None:
    for number in range(130):
        ws.cells.set("r", f"c{number:03}", number)
    async with inside(ws) as agent:
        first = await agent.call("cell_get", run="r")
        rest = await agent.call("cell_get", run="r", cursor=first["cursor"])
        assert [*first["cells"], *rest["cells"]] == [f"c{number:03}" for number in range(130)]
        assert "cursor" not in rest


# --- locks -----------------------------------------------------------------------------------------------------------


@played
async def test_a_lock_is_taken_checked_renewed_and_given_back(ws: holdfast.Workspace, clock: ManualClock) -> None:
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as other:
        taken = await agent.call("lock", name="deploy")
        assert (taken["holder"], taken["token"]) == ("ann", ws.locks.get("deploy").token)
        refused = await other.refusal("lock", name="deploy")
        assert (refused.code, refused.details["holder"]) == ("HELD", "ann")
        assert (await other.refusal("lock", name="deploy", action="release")).code == "NOT_HOLDER"
        clock.advance(500)
        await agent.call("lock", name="deploy", action="renew")
        clock.advance(500)
        assert (await other.call("lock", name="deploy", action="check"))["held"]["holder"] == "ann"
        assert await agent.call("lock", name="deploy", action="release") == {"released": True}
        assert await other.call("lock", name="deploy", action="check") == {"held": None}


@played
async def test_a_lock_is_waited_for_in_line(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as other:
        await agent.call("lock", name="deploy")
        waiting = asyncio.create_task(other.call("lock", name="deploy", wait=50))
        await agent.call("watch", since_revision="1", kinds=["lock"])  # until it waits
        await agent.call("lock", name="deploy", action="release")
        assert (await waiting)["holder"] == "bob"
        assert (await agent.refusal("lock", name="deploy", wait=3600)).code == "INVALID"


@played
async def test_a_write_under_a_lost_lock_is_fenced(ws: holdfast.Workspace, clock: ManualClock) -> None:
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as other:
        await agent.call("lock", name="deploy", ttl=10)
        await agent.call("cell_set", run="r", cell="c", value=1, lock="deploy")
        clock.advance(11)
        await other.call("lock", name="deploy")
        assert (await agent.refusal("cell_set", run="r", cell="c", value=2, lock="deploy")).code == "FENCED"
        assert (await agent.refusal("cell_set", run="r", cell="c", value=2, lock="other")).code == "FENCED"
        assert ws.cells.get("r", "c").value == 1
        async with inside(ws.using(actor="bob")) as again:  # a session that begins anew goes on with what bob holds
            await again.call("cell_set", run="r", cell="c", value=3, lock="deploy")
            await other.call("lock", name="deploy", action="release")
            refused = await again.refusal("cell_set", run="r", cell="c", value=4, lock="free")
            assert (refused.code, refused.content["message"]) == (
                "FENCED",
                "you do not hold the lock free: nobody does",
            )
        assert ws.cells.get("r", "c").value == 3


@played
async def test_a_task_is_reviewed_and_its_dependencies_changed_with_tools(ws: holdfast.Workspace) -> None:
    first, task = ws.tasks.create("first"), ws.tasks.create("second")
    async with inside(ws) as agent:
        await agent.call("task_update", id=task.id, add_depends_on=[first.id])
        assert ws.tasks.get(task.id).waiting
        await agent.call("task_update", id=task.id, remove_depends_on=[first.id])
        await agent.call("task_claim", id=task.id)
        assert (await agent.call("task_finish", id=task.id, text="look", review=True))["status"] == "pending_merge"
        assert (await agent.call("task_update", id=task.id, step="approve"))["status"] == "closed"


@played
async def test_paths_are_locked_checked_and_given_back(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("edit")
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as other:
        await agent.call("task_claim", id=task.id)
        taken = await agent.call("paths", action="lock", paths=["src/**"], task=task.id, reason="rewriting")
        assert (taken["holder"], taken["task"], taken["reason"]) == ("ann", task.id, "rewriting")
        refused = await other.refusal("paths", action="check", paths=["README.md", "src/app.py"])
        assert (refused.code, refused.details["holder"]) == ("HELD", "ann")
        assert await other.call("paths", action="check", paths=["README.md"]) == {"allowed": True}
        held = await other.refusal("paths", action="lock", paths=["src/app.py"])
        assert held.code == "HELD"
        assert "or wait: paths action=lock src/app.py wait=60" in held.content["hint"]
        assert (await agent.call("paths", action="check", paths=["src/app.py"]))["mine"][0]["id"] == taken["id"]
        await agent.call("paths", action="lock", paths=["docs/a.md"], shared=True)
        none = await agent.call("paths", action="release", paths=["docs/b.md"])
        assert (none["released"], len(none["mine"])) == (0, 2), "it says what it could have meant"
        assert await agent.call("paths", action="release", paths=["./docs/a.md"]) == {"released": 1}
        assert await agent.call("paths", action="release") == {"released": 1}
        assert await agent.call("paths", action="release") == {"released": 0}
        assert (await agent.refusal("paths", action="lock")).code == "INVALID"


# --- mail ------------------------------------------------------------------------------------------------------------


@played
async def test_mail_is_sent_read_answered_and_acknowledged(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("discuss")
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as other:
        sent = await agent.call("mail_send", to=["bob"], subject="Hello", body="Who has this?", task=task.id, ack=True)
        (got,) = (await other.call("mail_inbox"))["messages"]
        assert (got["id"], got["from"], got["subject"], got["body"], got["task"]) == (
            *(sent["id"], "ann", "Hello", "Who has this?"),
            task.id,
        )
        assert got["ack"] is True
        assert len((await other.call("mail_inbox"))["messages"]) == 1  # reading is not acknowledging
        await other.call("mail_send", reply_to=sent["id"], body="I do")
        assert await other.call("mail_inbox", ack=[sent["id"]]) == {"messages": []}
        thread = (await agent.call("mail_inbox", thread=sent["id"]))["messages"]
        assert [each["body"] for each in thread] == ["Who has this?", "I do"]
        assert (await agent.refusal("mail_inbox", ack=["none"])).code == "MESSAGE_NOT_FOUND"
        assert (await agent.refusal("mail_send", body="to whom?")).code == "INVALID"
        for body in ("", " \n"):
            assert (
                (await agent.refusal("mail_send", to=["bob"], body=body)).content["message"].startswith("body is empty")
            )
        assert (await agent.refusal("mail_inbox", ack=[sent["id"]])).code == "NOT_RECIPIENT"


@played
async def test_i22_what_a_model_leaves_out_or_adds_is_taken_where_it_is_clear(ws: holdfast.Workspace) -> None:
    first, other = ws.tasks.create("first"), ws.tasks.create("other")
    async with inside(ws) as agent, inside(ws.using(actor="bob")) as bob:
        second = await agent.call("task_create", title="second", depends_on=first.id)
        (waited_for,) = (await agent.call("task_show", id=second["id"]))["waits_for"]
        assert first.id in waited_for
        sent = await agent.call("mail_send", to="bob", body="\nTake it.\nToday.", task=first.id)
        assert (await bob.call("mail_inbox"))["messages"][0]["subject"] == "Take it."
        await bob.call("mail_send", reply_to=sent["id"], body="yes", task=first.id)
        assert (await bob.refusal("mail_send", reply_to=sent["id"], body="no", task=other.id)).code == "INVALID"
        seen = await agent.call("watch", since_revision="0", kinds="mail", timeout=0)
        assert [event["kind"] for event in seen["events"]] == ["message"] * 2


@played
async def test_mail_to_a_name_that_nobody_has_is_sent_with_a_warning(ws: holdfast.Workspace) -> None:
    ws.agents.register("bob")
    async with inside(ws) as agent:
        sent = await agent.call("mail_send", to=["bbo"], subject="Hello", body="x")
        assert sent["to"] == ["bbo"]
        assert sent["warnings"] == ["bbo has not been seen here; known: ann, bob (did you mean bob?)"]
        assert "warnings" not in await agent.call("mail_send", to=["bob"], subject="Hello", body="x")
        thread = (await agent.call("mail_inbox", thread="m2"))["messages"]
        assert [each["to"] for each in thread] == [["bob"]], "a short id will do"
        assert (await agent.call("mail_send", reply_to="m2", body="y"))["thread"] == thread[0]["id"]
        assert "warnings" not in await agent.call("mail_send", to=["*"], subject="Hello", body="x")
        assert (await agent.call("mail_send", to="bob", subject="Hello", body="x"))["to"] == ["bob"]


@played
async def test_the_inbox_is_paged_and_its_long_texts_are_cut(ws: holdfast.Workspace) -> None:
    for number in range(30):
        ws.mail.send("ann", f"message {number}", "long " * 1000, sender="bob")
    async with inside(ws) as agent:
        first = await agent.call("mail_inbox")
        rest = await agent.call("mail_inbox", cursor=first["cursor"])
        assert (len(first["messages"]), len(rest["messages"])) == (20, 10)
        assert all(len(each["body"]) < 2100 for each in first["messages"])


# --- watch -----------------------------------------------------------------------------------------------------------


@played
async def test_a_watch_answers_what_came_and_goes_on_without_gap_or_repeat(ws: holdfast.Workspace) -> None:
    for number in range(120):
        ws.cells.set("r", "c", number)
    async with inside(ws) as agent:
        seen: list[Any] = []
        since = "0"
        while len(seen) < 120:
            answer = await agent.call("watch", since_revision=since, timeout=0)
            assert 0 < len(answer["events"]) <= 50
            seen, since = [*seen, *answer["events"]], answer["since_revision"]
        assert [event["changed"]["value"] for event in seen] == list(range(120))
        assert await agent.call("watch", since_revision=since, timeout=0) == {"events": [], "since_revision": "120"}


@played
async def test_a_watch_is_woken_by_what_it_waits_for_alone(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        since = (await agent.call("watch", timeout=0))["since_revision"]
        wanted = {"kinds": ["cell"], "run": "r", "id": "c"}
        watching = asyncio.create_task(agent.call("watch", since_revision=since, timeout=60, **wanted))
        await agent.call("cell_set", run="r", cell="other", value=1)
        await agent.call("task_create", title="noise")
        assert not watching.done()
        await agent.call("cell_set", run="r", cell="c", value="news")
        (event,) = (await watching)["events"]
        assert (event["kind"], event["run"], event["id"], event["op"], event["by"]) == ("cell", "r", "c", "set", "ann")
        assert event["changed"] == {"value": "news"}


@played
async def test_a_watch_from_a_revision_that_is_gone_or_yet_to_come_is_refused(ws: holdfast.Workspace) -> None:
    for number in range(5):
        ws.cells.set("r", "c", number)
    ws.events.compact(4)
    async with inside(ws) as agent:
        refused = await agent.refusal("watch", since_revision="1")
        assert refused.code == "COMPACTED"
        assert refused.details["compacted"] > 1
        assert (await agent.refusal("watch", since_revision=10**6)).code == "INVALID_FILTER"
        assert (await agent.refusal("watch", since_revision="never")).code == "INVALID_FILTER"
        assert (await agent.refusal("watch", timeout=3600)).code == "INVALID"


@pytest.mark.parametrize("era", ERAS)
def test_a_cancelled_watch_ends_and_nobody_watches_any_more(ws: holdfast.Workspace, era: Era) -> None:
    @played
    async def play() -> None:
        hub = ws._engine.hub
        async with inside(ws, era=era) as agent:
            watching = asyncio.create_task(agent.call("watch", timeout=60))
            while not len(hub):
                await asyncio.sleep(0)
            watching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await watching
            while len(hub):
                await asyncio.sleep(0)
            assert (await agent.call("watch", timeout=0))["events"] == []

    play()


# --- what is remembered ----------------------------------------------------------------------------------------------


@played
async def test_a_paused_session_is_fenced_even_if_another_one_has_its_name(
    ws: holdfast.Workspace, clock: ManualClock
) -> None:
    task = ws.tasks.create("work")
    async with inside(ws) as paused, inside(ws) as other:
        await paused.call("task_claim", id=task.id, ttl=60)
        clock.advance(61)
        assert (await other.call("task_claim"))["task"]["id"] == task.id
        for tool, given in (("task_finish", {}), ("task_update", {"note": "mine"}), ("task_update", {})):
            refused = await paused.refusal(tool, id=task.id, **given)
            assert refused.code == "FENCED"
            assert refused.details["holder"] == "ann"
        assert ws.tasks.get(task.id).status == "in_progress"
        await other.call("task_finish", id=task.id)


@played
async def test_a_session_hears_once_that_its_claim_expired(ws: holdfast.Workspace, clock: ManualClock) -> None:
    lost, kept = ws.tasks.create("lost"), ws.tasks.create("kept")
    async with inside(ws) as agent:
        for task, ttl in ((lost, 60), (kept, 600)):
            await agent.call("task_claim", id=task.id, ttl=ttl)
        assert "lost" not in await agent.call("mail_inbox")
        clock.advance(61)
        told = await agent.call("task_list", mine=True)
        assert [task["id"] for task in told["tasks"]] == [kept.id]
        assert told["lost"] == [{"id": lost.id, "status": "open"}]
        assert "lost" not in await agent.call("task_list", mine=True)
        assert (await agent.refusal("task_finish", id=lost.id)).code == "FENCED", "it is told, and fenced all the same"
        await agent.call("task_claim", id=lost.id, ttl=60)
        clock.advance(61)
        ws.using(actor="bob").tasks.claim(lost.id)
        other = ws.tasks.create("other")
        told = await agent.call("task_claim", id=other.id)
        assert told["lost"] == [{"id": lost.id, "status": "in_progress", "holder": "bob"}]
        clock.advance(3600)
        ws.tasks.delete(other.id)
        ws.tasks.purge(other.id)
        assert [task["id"] for task in (await agent.call("mail_inbox"))["lost"]] == [kept.id], (
            "what is gone is not told"
        )


@played
async def test_a_claim_of_what_the_session_holds_renews_it(ws: holdfast.Workspace, clock: ManualClock) -> None:
    task = ws.tasks.create("work")
    async with inside(ws) as agent, inside(ws) as other:
        first = (await agent.call("task_claim", id=task.id, ttl=60))["task"]
        clock.advance(30)
        again = (await agent.call("task_claim", id=task.id, ttl=90))["task"]
        assert again["token"] == first["token"]
        assert again["deadline"] > first["deadline"]
        assert (await other.refusal("task_claim", id=task.id)).code == "ALREADY_CLAIMED", "another process of that name"


@played
async def test_the_version_that_an_update_expects_is_in_every_answer(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        made = await agent.call("task_create", title="one")
        [listed] = (await agent.call("task_list"))["tasks"]
        assert made["version"] == listed["version"]
        changed = await agent.call("task_update", id=made["id"], priority=0, expected=listed["version"])
        assert changed["version"] > made["version"]
        refused = await agent.refusal("task_update", id=made["id"], priority=1, expected=made["version"])
        assert refused.code == "VERSION_MISMATCH"


@played
async def test_a_late_update_is_fenced_in_words_without_numbers(ws: holdfast.Workspace, clock: ManualClock) -> None:
    task = ws.tasks.create("work")
    async with inside(ws) as agent:
        await agent.call("task_claim", id=task.id, ttl=60)
        clock.advance(61)
        ws.using(actor="bob").tasks.claim(task.id)
        refused = await agent.refusal("task_update", id=task.id, note="late")
        assert refused.code == "FENCED"
        assert "bob holds the task now" in refused.content["message"]
        assert "token" not in refused.content["message"] + refused.content["hint"]


@played
async def test_kinds_of_events_may_be_named_as_the_tools_are(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        await agent.call("paths", action="lock", paths=["src/**"])
        seen = await agent.call("watch", kinds=["paths", "locks", "claim", "mail"], since_revision=0, timeout=0)
        assert [event["kind"] for event in seen["events"]] == ["path"]
        assert (
            "'colour' is not a kind" in (await agent.refusal("watch", kinds=["colour"], timeout=0)).content["message"]
        )


@played
async def test_what_was_given_back_is_forgotten(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("work")
    async with inside(ws) as agent:
        await agent.call("task_claim", id=task.id)
        await agent.call("task_finish", id=task.id, action="release")
        await agent.call("task_update", id=task.id, note="as anybody may")
        await agent.call("task_claim", id=task.id)
        await agent.call("task_finish", id=task.id)
        await agent.call("task_update", id=task.id, note="as anybody may")


# --- arguments, and what else is asked -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("task_create", {}),
        ("task_create", {"title": "x", "colour": "red"}),
        ("task_create", {"title": "x", "priority": "high"}),
        ("task_create", {"title": "x", "tags": 5}),
        ("task_finish", {"id": "x", "action": "explode"}),
        ("watch", {"run": "r"}),
        ("task_claim", {"id": "x", "tags": ["y"]}),
        ("cell_set", {"run": "r", "cell": "c", "value": 1, "expected": 1, "ttl": 5}),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(
    ws: holdfast.Workspace, tool: str, given: dict[str, Any]
) -> None:
    @played
    async def play() -> None:
        async with inside(ws) as agent:
            assert (await agent.refusal(tool, **given)).code == "INVALID"

    play()


@played
async def test_numbers_may_come_as_text(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        assert (await agent.call("task_create", title="x", priority="1"))["priority"] == 1
        assert len((await agent.call("task_list", limit="1"))["tasks"]) == 1


@played
async def test_a_tool_or_resource_that_does_not_exist_is_an_error_of_the_protocol(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        with pytest.raises(MCPError, match="there is no tool 'destroy'"):
            await agent.call("destroy")
        for uri in ("holdfast://nothing", "file:///etc/passwd", "holdfast://task/hf-none", "holdfast://cell/a/b/c"):
            with pytest.raises(MCPError) as raised:
                await agent.read(uri)
            assert raised.value.data["code"] in ("NOT_FOUND", "TASK_NOT_FOUND")


@played
async def test_an_actor_that_nobody_named_may_look_but_hold_nothing(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("work")
    from holdfast.types import DerivedActor
    from holdfast.workspace import with_context
    from holdfast.workspace.context import Context

    async with inside(with_context(ws, Context(DerivedActor("me@host")))) as agent:
        assert (await agent.call("task_list"))["tasks"][0]["id"] == task.id
        assert (await agent.refusal("task_claim")).code == "INVALID_HOLDER"
        assert (await agent.refusal("lock", name="x")).code == "INVALID_HOLDER"
        primed = await agent.read("holdfast://prime")
        assert "holdfast mcp --actor" in primed["hint"]
        assert "claims" not in primed


@pytest.mark.parametrize("era", ERAS)
def test_resources_tell_what_the_tools_tell(ws: holdfast.Workspace, era: Era) -> None:
    mine, ready = ws.tasks.create("mine"), ws.tasks.create("ready", body="all of it")
    ws.tasks.claim(mine.id)
    ws.mail.send("ann", "hello", sender="bob")
    ws.cells.set("a run", "a/cell", 5)

    @played
    async def play() -> None:
        async with inside(ws, era=era) as agent:
            listed = {str(each.uri) for each in (await agent.client.list_resources()).resources}
            assert listed == {"holdfast://prime", "holdfast://ready"}
            found = (await agent.client.list_resource_templates()).resource_templates
            assert {each.uri_template for each in found} == {"holdfast://task/{id}", "holdfast://cell/{run}/{cell}"}
            primed = await agent.read("holdfast://prime")
            assert [row["id"] for row in primed["claims"]] == [mine.id]
            assert [row["id"] for row in primed["ready"]] == [ready.id]
            assert primed["unread"] == 1
            assert await agent.read("holdfast://ready") == await agent.call("task_list")
            assert (await agent.read(f"holdfast://task/{ready.id}"))["task"]["body"] == "all of it"
            assert (await agent.read("holdfast://cell/a%20run/a%2Fcell"))["value"] == 5

    play()


@played
async def test_the_instructions_are_short_and_say_how_to_work(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        told = agent.client.instructions
        assert told == INSTRUCTIONS
        assert len(told) < 800
        for word in ("task_claim", "task_finish", "paths", "mail_inbox", "FENCED", "untrusted"):
            assert word in told


@played
async def test_a_misspelled_argument_is_refused_with_the_nearest_name(ws: holdfast.Workspace) -> None:
    async with inside(ws) as agent:
        refusal = await agent.refusal("task_list", statuss="open")
        assert "statuss" in refusal.content["message"]
        assert refusal.content["hint"].startswith("did you mean status? its arguments are ")


@played
async def test_a_session_follows_a_claim_whose_task_gets_another_id(ws: holdfast.Workspace) -> None:
    task = ws.tasks.create("younger")
    line = {"format": "holdfast.shared/1", "id": task.id, "uid": "abcdefgh1234", "title": "older", "made": "5@abcd"}
    async with inside(ws) as agent:
        await agent.call("task_claim", id=task.id)
        new = ws.tasks.merge_shared([json.dumps(line | {"created_at": "2001-01-01T00:00:00+00:00"})]).renamed[task.id]
        told = await agent.call("task_list", mine=True)
        assert ([each["id"] for each in told["tasks"]], told["renamed"]) == ([new], {task.id: new})
        assert "lost" not in told
        assert not {"lost", "renamed"} & (await agent.call("mail_inbox")).keys(), "it is said once"
        noted = await agent.call("task_update", id=task.id, note="half of it")
        assert (noted["id"], noted["warnings"]) == (new, [f"{task.id} is {new} now: an older task has its id"])
        assert (await agent.call("task_finish", id=task.id))["id"] == new
        assert (await agent.call("task_update", id=task.id, note="on the older one"))["id"] == task.id
    assert (ws.tasks.get(new).status, ws.tasks.get(task.id).status) == ("closed", "open")
