"""What people read: one task with all around it, where work stopped, mail and the fleet, at any width (issue 23)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from unicodedata import east_asian_width

import pytest

from tests.cli.calling import Answer

Cli = Callable[..., Answer]
# What the text says beside the data: names of fields and of lists, and how times and counts are put.
LABELS = """parent workflow children assigned deferred claimed until held refers to created updated version revision
    token not ready because links locks notes mail waits waited for needed by since of closed it its are finished and
    more wants an answer unread from just now ago in another min h s days events last was locked unfinished shared that
    must be done first
    created it made wait for assigned to added the reference on noted claimed under"""


@pytest.fixture
def task(made: Cli) -> str:
    """A task with something of everything around it."""
    epic = made("create", "Login", "--type", "epic", "-q").id
    first = made("create", "Choose a library", "-q").id
    second = made("create", "Ask the admins", "-q").id
    id = made(
        *("create", "Fix the form", "It blinks.\nTwice.", "--parent", epic, "--tag", "web", "-q"),
        *("--depends-on", first, "--depends-on", second, "--assign", "ada"),
    ).id
    made("create", "Add a test", "--parent", id, "-q")
    made("create", "Release", "--depends-on", id, "-q")
    made("close", first, "the old one stays")
    made("ref", "add", id, "fix/login")
    made("note", id, "Only on small screens.", "--actor", "maya")
    made("claim", id, "--actor", "ada")
    made("note", id, "Seen it.\nIt is the font.", "--actor", "ada")
    made("path", "lock", "src/form/**", "--task", id, "--actor", "ada", "--reason", "rework")
    made("mail", "send", "maya", "Which font?", "There are two.", "--task", id, "--type", "request", "--actor", "ada")
    return id


def unexplained(text: str, data: str) -> list[str]:
    """The words of a text that its JSON does not have; P2 and 1/3 are put together from numbers."""
    known = json.dumps(json.loads(data), ensure_ascii=False)
    words = (word.strip(".-") for word in re.findall(r"[\w./*:-]+", re.sub(r"\bP(?=\d)|(?<=\d)/(?=\d)", " ", text)))
    return [word for word in words if word.strip(":") not in known and word.strip(":") not in LABELS.split()]


# --- one task --------------------------------------------------------------------------------------------------------


def test_i3_show_has_notes_links_children_locks_mail_and_references(made: Cli, task: str) -> None:
    text = made("show", task).out
    assert re.search(r"waits for +hf-\w+  open  Ask the admins", text)
    assert re.search(r"waited for +hf-\w+  closed  Choose a library", text), "a closed one is marked"
    assert re.search(r"needed by +hf-\w+  waiting  Release", text)
    assert re.search(r"children\n  hf-\w+  P2  open +Add a test", text)
    assert re.search(r"notes\n  .*  maya: Only on small screens\.\n", text)
    assert re.search(r"  .*  ada:\n    Seen it\.\n    It is the font\.", text)
    assert re.search(r"locks\n  .*src/form/\*\*  @ada.*rework", text)
    assert re.search(r"mail\n  m1  .*ada -> maya  request  Which font\?  .*unread, wants an answer", text)
    assert re.search(r"refers to +branch fix/login", text)
    assert "It blinks.\nTwice.\n" in text


@pytest.mark.parametrize("command", ["show", "resume"])
def test_i3_json_has_all_that_the_text_has(made: Cli, task: str, command: str) -> None:
    text, data = made(command, task, "--times", TZ="UTC").out, made(command, task, "--json").out
    assert len(text.split()) > 60
    assert unexplained(text, data) == []


def test_i3_show_as_json_is_the_task_with_what_belongs_to_it(made: Cli, task: str) -> None:
    data = made("show", task, "--json").data
    assert (data["id"], data["status"], data["children"]) == (task, "in_progress", 1)
    assert [(note["by"], note["text"]) for note in data["notes"]] == [
        ("maya", "Only on small screens."),
        ("ada", "Seen it.\nIt is the font."),
    ]
    assert [(link["relation"], link["title"], link["status"]) for link in data["links"]] == [
        ("waits for", "Ask the admins", "open"),
        ("needed by", "Release", "open"),
        ("waited for", "Choose a library", "closed"),
    ]
    assert [each["title"] for each in data["subtasks"]] == ["Add a test"]
    assert [lock["patterns"] for lock in data["locks"]] == [["src/form/**"]]
    assert [(each["short"], each["subject"]) for each in data["messages"]] == [("m1", "Which font?")]


def test_i3_show_counts_what_it_leaves_out(made: Cli) -> None:
    id = made("create", "much", "-q").id
    for number in range(22):
        made("note", id, f"note {number}")
    text = made("show", id).out
    assert "note 21" in text
    assert "note 1\n" not in text
    assert f"and 2 more: holdfast history {id}" in text
    assert made("show", id, "--json").data["more"] == {"notes": 2}


def test_a7_resume_says_what_it_waits_for_and_who_said_what(made: Cli, task: str) -> None:
    made("release", task, "no time", "--actor", "ada")
    text = made("resume", task).out
    assert re.search(r"last held +ada, release", text)
    assert re.search(r"waits for +hf-\w+\n", text)
    assert re.search(r"unfinished +hf-\w+\n", text)
    assert re.search(r"was locked +src/form/\*\*", text)
    assert re.search(r"  ada, release: no time", text)


def test_i3_a_deleted_task_can_be_shown(made: Cli, task: str) -> None:
    other = made("create", "gone", "-q").id
    made("delete", other)
    assert "deleted" in made("show", other, "--include-deleted").out
    assert made("show", other, "--include-deleted", "--json").data["reasons"][0]["code"] == "deleted"


# --- mail ------------------------------------------------------------------------------------------------------------


def test_a3_a_message_has_a_short_id_that_every_command_takes(made: Cli) -> None:
    made("agent", "register", "bob")
    sent = made("mail", "send", "bob", "Which port?", "8080 is taken.", "--type", "request", "--actor", "ann")
    assert sent.out.startswith("m1  ")
    whole = made("mail", "sent", "-q", "--actor", "ann").id
    for words in (("get", "m1"), ("get", whole[:13]), ("thread", "m1"), ("thread", whole[:18]), ("history", "m1")):
        assert made("mail", *words).code == 0, words
    assert made("mail", "ack", "m1", "--actor", "bob").code == 0
    assert made("mail", "block", "m1", "no list", "--actor", "bob").code == 0
    assert made("mail", "reply", "m1", "Take 9090.", "--actor", "bob").out.startswith("m2  ")
    assert made("mail", "action", "m1", "--actor", "bob").code == 0
    assert made("mail", "send", "bob", "more", "--thread", "m1", "--actor", "ann").code == 0
    assert [each["short"] for each in made("mail", "thread", "m3", "--json").data] == ["m1", "m2", "m3"]
    assert made("mail", "close", "m1", "--actor", "ann").code == 0
    missing = made("mail", "get", "m9")
    assert (missing.code, "there is no message 'm9'" in missing.err) == (10, True)


def test_a3_a_thread_is_printed_with_its_texts(made: Cli) -> None:
    made("mail", "send", "bob", "Which port?", "8080 is taken.\nSo?", "--actor", "ann")
    made("mail", "reply", "m1", "Take 9090.", "--actor", "bob")
    text = made("mail", "thread", "m1").out
    assert text.index("8080 is taken.\n  So?") < text.index("m2  ") < text.index("Take 9090.")
    assert len(made("mail", "thread", "m1", "-q").out.split()) == 2


def test_a3_an_inbox_says_what_a_message_is_and_what_wants_an_answer(made: Cli) -> None:
    made("mail", "send", "bob", "plain", "--actor", "ann")
    made("mail", "send", "bob", "look", "--ack", "--actor", "ann")
    made("mail", "send", "bob", "which?", "--type", "decision-required", "--actor", "ann")
    lines = made("mail", "inbox", "--actor", "bob").out.splitlines()
    assert re.search(r"decision-required  which\?  unread, wants an answer$", lines[0])
    assert re.search(r"look  unread, wants an ack$", lines[1])
    assert re.search(r"plain  unread$", lines[2])
    made("mail", "ack", "m3", "--actor", "bob")
    made("mail", "ack", "m2", "--actor", "bob")
    lines = made("mail", "inbox", "--actor", "bob").out.splitlines()
    assert lines[0].endswith("which?  wants an answer"), "an acknowledgement is no answer"
    assert lines[1].endswith("look")
    assert re.search(r"1 message  wants your answer|1 message", made("mail", "threads", "--actor", "bob").out)


# --- at any width ----------------------------------------------------------------------------------------------------

WIDE = "漢字" * 30
LONG = "a-name-of-an-agent-that-is-rather-long-" + "x" * 30
NASTY = "\u202eright to left \u200b"


def columns(line: str) -> int:
    """How many columns a terminal uses for a line."""
    return sum(2 if east_asian_width(each) in "WF" else 1 for each in re.sub(r"\x1b\[\d*m", "", line))


@pytest.fixture
def terminal(made: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What a command prints on a terminal of so many columns."""

    def call(words: list[str], width: int) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True)
            answer = made(*words, COLUMNS=str(width), TERM="xterm")
        assert answer.code == 0, answer
        return answer.out

    return call


@pytest.fixture
def crowded(made: Cli) -> str:
    """A workspace whose titles, names and reasons are long, wide and nasty."""
    made("agent", "register", LONG)
    ids = [made("create", f"{WIDE}{NASTY}", "--tag", "t", "-q").id for _ in range(3)]
    made("create", "after", "--depends-on", ids[0])
    for id in ids:
        made("claim", id, "--actor", LONG)
    made("block", ids[0], f"{WIDE} reason", "--actor", LONG)
    made("path", "lock", f"src/{'x' * 80}/**", "--actor", LONG)
    made("lock", "acquire", "l" * 90, "--actor", LONG)
    made("agent", "register", "maya", "--role", "person")
    made("mail", "send", "maya", f"{WIDE}?", "--type", "request", "--task", ids[1], "--actor", LONG)
    return ids[1]


COMMANDS = ("status", "show {}", "resume {}", "mail inbox --actor maya", "mail thread m1", "mail threads --actor maya")


@pytest.mark.parametrize("width", [80, 200])
def test_i3_lists_fit_the_terminal_and_obey_nobody(crowded: str, terminal: Callable[..., str], width: int) -> None:
    for line in COMMANDS:
        words = line.format(crowded).split()
        printed = terminal(words, width)
        assert not {"\u202e", "\u200b"} & set(printed)
        head = 1 if words[0] in ("show", "resume") else 0  # a title is shown whole there
        wide = [each for each in printed.splitlines()[head:] if columns(each) > width]
        if words[0] == "status":
            assert wide == []
        else:
            assert [each for each in wide if "…" in each] == [], "what was cut fits"


def test_an_undo_says_that_it_can_be_done_again_only_where_it_can(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", "a")
    taken = made("undo", "--last", "--actor", "a").out
    assert taken.splitlines()[0] == "took back revision 2, as revision 3"
    assert made("undo", "3", "--actor", "a").code == 11
    made("update", task, "--priority", "0", "--actor", "b")
    assert "took back revision 4, as revision 5; holdfast undo 5 does it again" in made("undo", "4", "--actor", "b").out
    assert made("undo", "5", "--actor", "b").code == 0


def test_an_undo_says_once_that_a_note_stays(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", "a")
    made("done", task, "it parses", "--actor", "a")
    undone = made("undo", "--last", "--actor", "a")
    assert (undone.out + undone.err).count(f"what was noted on {task} stays in its history") == 1
