"""What people ask of the shell on the first day: parents, assignees, deferrals, references, what needs them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.calling import Answer, Shell, ended

Cli = Callable[..., Answer]


def family(made: Cli) -> tuple[str, str, str]:
    epic = made("create", "Login", "--type", "epic", "-q").id
    ids = [made("create", title, "--parent", epic, "-q").id for title in ("Form", "Server")]
    return epic, *ids  # type: ignore[return-value]


# --- parents ---------------------------------------------------------------------------------------------------------


def test_t8_next_hands_out_the_children_before_their_epic(made: Cli) -> None:
    epic, form, server = family(made)
    taken = [made("next", "-q", "--actor", "ann").id for _ in range(2)]
    assert (taken, made("next", "--actor", "ann").code) == ([form, server], 4)
    for id in taken:
        made("done", id, "--actor", "ann")
    assert made("next", "-q", "--actor", "ann").id == epic


def test_t8_an_epic_with_open_children_is_refused_with_their_ids_and_exit_code_11(made: Cli) -> None:
    epic, form, server = family(made)
    for words in (("close", epic), ("cancel", epic)):
        refused = made(*words, "--json")
        assert (refused.code, refused.error["code"]) == (11, "OPEN_CHILDREN")
        assert refused.error["details"]["children"] == [form, server]
    assert made("cancel", epic, "--cascade").code == 0
    assert made("list", "--status", "open", "--json").data == []
    other, child, _ = family(made)
    assert made("close", other, "--force").code == 0
    assert child in made("tree").out, "an unfinished task below a closed one is shown"
    late = made("create", "late", "--parent", other)
    assert f"its parent {other} is closed" in late.err


def test_t7_list_show_and_tree_say_how_many_children_are_done(made: Cli) -> None:
    epic, form, server = family(made)
    made("dep", "add", server, form)
    assert made("tree").out.splitlines() == [
        f"{epic}  P2  waiting      Login  (epic)  0/2",
        f"├─ {form}  P2  open         Form",
        f"└─ {server}  P2  waiting      Server  waits for {form}",
    ]
    made("close", form)
    assert "Login  (epic)  1/2" in made("list").out
    assert re.search(r"children +1 of 2 closed", made("show", epic).out)
    shown = made("show", epic, "--json").data
    assert (shown["children"], shown["children_done"]) == (2, 1)


# --- closing, assigning, deferring, referring ------------------------------------------------------------------------


def test_t3_close_works_without_a_name_and_done_points_to_it(made: Cli) -> None:
    id = made("create", "by hand", "-q").id
    refused = made("done", id)
    assert (refused.code, f"nobody holds it: holdfast close {id} closes it" in refused.err) == (11, True)
    assert made("close", id, "did it").code == 0
    held = made("create", "held", "-q").id
    made("claim", held, "--actor", "ann")
    assert "held by ann" in made("close", held, "--actor", "bob").err
    assert made("close", held, "--actor", "bob").code == 13
    assert made("close", held, "--actor", "bob", "--force").code == 0


def test_t3_close_ends_in_review_where_the_route_wants_one_and_then_approves(made: Cli, project: Path) -> None:
    rules = "matchers:\n  - {name: careful, grimoire: careful, require_review: true, any_tags: [risky]}\n"
    (project / ".holdfast" / "grimoire-matchers.yaml").write_text(rules)
    id = made("create", "risky", "--tag", "risky", "-q").id
    assert made("close", id, "--json").data["status"] == "pending_merge"
    assert made("close", id, "--json").data["status"] == "closed"
    assert [entry["op"] for entry in made("history", id, "--field", "status", "--json").data] == [
        "approve",
        "complete",
        "claim",
        "create",
    ]
    assert made("close", id).code == 11


def test_t8_an_assigned_task_is_refused_to_others_with_exit_code_12(made: Cli) -> None:
    id = made("create", "for bob", "--assign", "bob", "-q").id
    refused = made("claim", id, "--actor", "ann", "--json")
    assert (refused.code, refused.error["code"], refused.error["details"]["assigned_to"]) == (12, "ASSIGNED", "bob")
    assert made("next", "--actor", "ann").code == 4
    assert "for bob" in made("list", "--assigned-to", "bob").out
    assert made("next", "-q", "--actor", "bob").id == id
    made("release", id, "--actor", "bob")
    assert made("unassign", id).code == 0
    assert made("next", "-q", "--actor", "ann").id == id


def test_t8_defer_and_ref_are_shown_where_the_task_is(made: Cli) -> None:
    id = made("create", "later", "-q").id
    assert "deferred for another 2 h" in made("defer", id, "2h").out
    assert made("ready", "--json").data == []
    assert "it is deferred for another 2 h" in made("explain", id).out
    made("defer", id, "none")
    assert [task["id"] for task in made("ready", "--json").data] == [id]
    made("ref", "add", id, "fix/login")
    made("ref", "add", id, "1a2b3c4", "--kind", "commit")
    assert re.search(r"refers to +branch fix/login, commit 1a2b3c4", made("show", id).out)
    assert made("search", "fix/login", "-q").id == id
    made("ref", "remove", id, "fix/login")
    assert made("show", id, "--json").data["refs"] == [{"kind": "commit", "value": "1a2b3c4"}]


def test_t9_create_takes_what_it_depends_on_and_what_it_blocks(made: Cli) -> None:
    first, last = (made("create", title, "-q").id for title in ("first", "last"))
    between = made("create", "between", "--depends-on", first, "--blocks", last, "-q").id
    assert made("ready", "-q").out.split() == [first]
    made("close", first)
    assert made("ready", "-q").out.split() == [between]


# --- what needs me ---------------------------------------------------------------------------------------------------


def test_watch_needs_me_tells_what_concerns_an_agent_and_nothing_else(made: Cli) -> None:
    ids = [made("create", title, "-q").id for title in ("one", "two", "three")]
    made("assign", ids[0], "bob", "--actor", "ann")
    made("claim", ids[1], "--actor", "bob")
    made("release", ids[1], "--force", "--actor", "ann")
    made("mail", "send", "bob", "hello", "text", "--actor", "ann")
    made("mail", "send", "cy", "not for bob", "text", "--actor", "ann")
    made("claim", ids[2], "--actor", "bob")
    made("done", ids[2], "--review", "--actor", "bob")
    made("reject", ids[2], "no tests", "--actor", "ann")
    told = made("watch", "--needs-me", "--after", "0", "--timeout", "0.1", "--actor", "bob").out.splitlines()
    assert told == [
        f"ann assigned {ids[0]} to you",
        f"your claim on {ids[1]} was ended by ann",
        "mail from ann: hello",
        f"{ids[2]} is sent back by ann: no tests",
    ]
    made("agent", "register", "pat", "--role", "person")
    told = made("watch", "--needs-me", "--after", "0", "--timeout", "0.1", "--actor", "pat").out.splitlines()
    assert told == [f"{ids[2]} waits for a review: bob completed it", f"{ids[2]} is sent back by ann: no tests"]


def test_watch_needs_me_runs_a_command_for_what_happens(made: Cli, shell: Shell, started: Callable[..., Any]) -> None:
    id = made("create", "for bob", "-q").id
    start = made("log", "--json", "--limit", "1").data[0]["revision"]
    command = f'{sys.executable} -c \'import os; print(os.environ["HOLDFAST_WHY"], os.environ["HOLDFAST_ID"])\''
    watch = started("watch", "--needs-me", "--once", "--after", str(start), "--exec", command, "--actor", "bob")
    assert shell("assign", id, "bob", "--actor", "ann").code == 0
    answer = ended(watch)
    assert answer.code == 0
    assert sorted(answer.out.splitlines()) == [f"ann assigned {id} to you", f"ann assigned {id} to you {id}"]


def test_a_second_id_is_not_taken_for_a_reason(made: Cli) -> None:
    one, other = (made("create", title, "-q").id for title in ("one", "other"))
    for command in ("close", "cancel", "delete", "done"):
        refused = made(command, one, other)
        assert refused.code == 2
        assert f"'{other}' a second task" in refused.err
        assert f"holdfast {command} {other}" in refused.err
    assert made("close", one, f"a duplicate of {other}").code == 0
    assert made("cancel", other, "--reason", one).code == 0
