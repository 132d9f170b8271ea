"""`list`, `ready` and `next` as people read them (issue 23): what is unfinished, what waits, why nothing is there."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from holdfast.faces.cli.times import duration, moment, readable, show_exact, since, until
from holdfast.faces.cli.width import fitted, title
from tests.cli.calling import Answer, Shell
from tests.cli.test_output import COLOUR, on_terminal

Cli = Callable[..., Answer]


def test_list_shows_what_is_unfinished_and_closed_ones_when_asked(made: Cli) -> None:
    ids = [made("create", title, "-q").id for title in ("one", "two", "three", "four")]
    made("close", ids[0])
    made("claim", ids[1], "--actor", "ann")
    made("claim", ids[2], "--actor", "ann")
    made("done", ids[2], "--review", "--actor", "ann")
    assert made("list", "-q").out.split() == ids[1:]
    assert made("list", "--closed", "-q").out.split() == ids[:1]
    assert made("list", "--all", "-q").out.split() == ids
    assert made("list", "--status", "closed", "-q").out.split() == ids[:1]
    assert [task["id"] for task in made("list", "--json").data] == ids[1:]
    assert made("list", "--all", "--closed").code == 2


def test_pages_of_a_list_hold_every_unfinished_task_once_and_in_order(made: Cli) -> None:
    ids = [made("create", f"task {n}", "-p", str(n % 3), "-q").id for n in range(12)]
    made("close", ids[0])
    for id in ids[1:4]:
        made("claim", id, "--actor", "ann")
    made("block", ids[3], "--actor", "ann")
    whole = made("list", "-q").out.split()
    paged: list[str] = []
    more: list[str] = []
    while True:
        page = made("list", "--limit", "2", "--json", *more)
        paged += [task["id"] for task in page.data]
        found = re.search(r'"cursor":"([^"]+)"', page.out)
        if found is None:
            break
        more = ["--cursor", found[1]]
    assert (paged, len(whole)) == (whole, 11)
    assert whole == sorted(ids[1:], key=lambda id: (ids.index(id) % 3, ids.index(id)))
    assert made("list", "--sort", "-priority", "-q").out.split() == whole[::-1]


def test_list_mine_has_what_one_holds_and_what_is_assigned(made: Cli) -> None:
    ids = [made("create", title, "-q").id for title in ("held", "assigned", "other")]
    made("claim", ids[0], "--actor", "ann")
    made("assign", ids[1], "ann")
    assert made("list", "--mine", "-q", "--actor", "ann").out.split() == ids[:2]
    assert "bob holds no task, and none is assigned to that name" in made("list", "--mine", "--actor", "bob").err


def test_a_waiting_task_looks_different_from_a_ready_one(made: Cli) -> None:
    first, second = (made("create", title, "-q").id for title in ("first", "second"))
    made("dep", "add", second, first)
    assert made("list").out.splitlines() == [f"{first}  P2  open         first", f"{second}  P2  waiting      second"]
    assert [task["waiting"] for task in made("list", "--json").data] == [False, True]
    made("close", first)
    assert made("list").out.splitlines() == [f"{second}  P2  open         second"]


# --- why nothing is there --------------------------------------------------------------------------------------------


def test_ready_and_next_say_what_tasks_wait_for(made: Cli) -> None:
    def why() -> str:
        told = made("ready")
        asked = made("next", "--actor", "bob")
        assert (told.code, told.out, asked.code, asked.err) == (0, "", 4, told.err)
        assert made("ready", "--json").err == made("ready", "-q").err == ""
        return told.err.removeprefix("holdfast: nothing is ready: ").strip()

    assert why() == "there are no tasks yet"
    first = made("create", "first", "-q").id
    for n in range(3):
        made("create", f"later {n}", "--depends-on", first)
    made("claim", first, "--actor", "ann")
    assert why() == f"3 wait for {first}, 1 is in progress"
    made("block", first, "--actor", "ann")
    made("create", "for ann", "--assign", "ann")
    made("defer", made("create", "deferred", "-q").id, "2h")
    assert why() == f"3 wait for {first}, 1 is blocked, 1 is deferred for another 2 h, 1 is assigned to ann"
    for id in made("list", "-q").out.split():
        made("close", id, "--force")
    assert why() == "all tasks are closed"


def test_a_parent_waits_for_its_children_in_the_reason_too(made: Cli) -> None:
    epic = made("create", "epic", "-q").id
    child = made("create", "child", "--parent", epic, "-q").id
    made("claim", child, "--actor", "ann")
    assert f"1 waits for {child}, 1 is in progress" in made("ready").err


def test_an_empty_list_says_why(made: Cli) -> None:
    assert "there are no tasks yet: holdfast create 'TITLE' makes one" in made("list").err
    id = made("create", "one", "-q").id
    assert "no task is closed yet" in made("list", "--closed").err
    assert "no task fits the filters" in made("list", "--tag", "web").err
    assert "no ready task fits the filters" in made("ready", "--tag", "web").err
    made("close", id)
    assert "no unfinished task is left; 1 closed task: holdfast list --closed" in made("list").err
    assert made("list", "-q").err == made("list", "--json").err == ""


def test_other_lists_say_so_when_they_are_empty(made: Cli) -> None:
    id = made("create", "one", "-q").id
    assert "no task has all of these words" in made("search", "parser").err
    assert f"{id} waits for nothing" in made("dep", "list", id).err
    assert "there are no locks" in made("lock", "list").err
    assert "no messages match" in made("mail", "sent", "--actor", "ann", "--agent", "bob").err
    assert "nothing that fits has happened" in made("log", "--kind", "lock").err
    assert made("lock", "list", "--json").err == made("lock", "list", "-q").err == ""


# --- width and time --------------------------------------------------------------------------------------------------


def test_rows_fit_however_many_tags_and_wide_letters_they_have(shell: Shell) -> None:
    shell("init")
    tags = [word for n in range(12) for word in ("--tag", f"area/number-{n}")]
    shell("create", "寸法を直す" * 20, *tags, "--assign", "somebody-with-a-long-name")
    shell("create", "e\u0301" * 200)
    for line in (COLOUR.sub("", line) for line in on_terminal(shell, "list")):
        wide = sum(2 if each > "\u2e80" else each != "\u0301" for each in line)
        assert 70 < wide <= 80, (wide, line)


def test_marks_on_letters_and_invisible_characters_take_no_column() -> None:
    assert fitted(title("e\u0301\ufe0f" * 10), 10) == "e\u0301\ufe0f" * 10
    assert fitted(title("x" * 30), 20) == f"{'x' * 19}…"


def test_times_are_relative_and_exact_when_asked(made: Cli) -> None:
    id = made("create", "one", "-q").id
    assert "(held for another 30 min)" in made("claim", id, "--actor", "ann").out
    assert re.search(r"held +for another 30 min \(token", made("show", id).out)
    exact = made("show", id, "--times").out
    (deadline,) = re.findall(r"held +until (\S+ \S+)", exact)
    left = datetime.fromisoformat(deadline).astimezone() - datetime.now(UTC)
    assert timedelta(minutes=28) < left <= timedelta(minutes=30)
    refused = made("claim", id, "--actor", "bob")
    assert re.search(r"claimed by ann for \d+ s\n", refused.err), refused.err
    at = made("claim", id, "--actor", "bob", "--times").err
    assert re.search(r"claimed by ann since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\n", at), "in the same zone as the rest"
    assert "just now" in made("log").out


def test_a_moment_says_how_far_it_is() -> None:
    show_exact(False)
    now = datetime.now(UTC)
    for seconds, words in ((-30, "just now"), (-300, "5 min ago"), (1745, "in 29 min"), (7200, "in 2 h")):
        assert moment(now + timedelta(seconds=seconds + 0.5)) == words
    assert moment(now - timedelta(days=5)) == "5 days ago"
    assert moment(now - timedelta(days=400)) == (now - timedelta(days=400)).astimezone().strftime("%Y-%m-%d")
    assert until(now + timedelta(minutes=29, seconds=1)) == "for another 29 min"
    assert since(now - timedelta(hours=3)) == "for 3 h"
    assert [duration(each) for each in (5, 89, 91, 7200, 200_000)] == ["5 s", "89 s", "2 min", "2 h", "2 days"]
    early = (now - timedelta(minutes=5)).isoformat()
    assert readable(f"held by ann since {early}, not {early}") == f"held by ann for 5 min, not {early}"
