"""What somebody who does not know us yet should see: sentences that fit, warnings, and nothing destroyed by a slip."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import Answer
from tests.cli.test_views import columns

Cli = Callable[..., Answer]
COLOUR = re.compile(r"\x1b\[\d*m")
TITLE = "Write the manual for the payment provider, all nine chapters, the index and the glossary"


class Keyboard(io.TextIOWrapper):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(made: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """A command on a terminal of 80 columns, with what is typed at it."""

    def call(*words: str, typed: str = "") -> Answer:
        with monkeypatch.context() as patch:
            for stream in (sys.stdout, sys.stderr):
                patch.setattr(stream, "isatty", lambda: True)
            patch.setattr(io, "TextIOWrapper", Keyboard)
            answer = made(*words, stdin=typed, COLUMNS="80", TERM="xterm")
        return Answer(answer.code, COLOUR.sub("", answer.out), COLOUR.sub("", answer.err))

    return call


@pytest.fixture
def shop(made: Cli) -> dict[str, str]:
    """A morning's work of maya and ada: an epic with children, mail, locks, a queue, a cycle, a template."""
    ids = {
        "epic": made("create", "Release the second version of the shop, with the new cart", "--type", "epic", "-q").id
    }
    for name, title, *more in (
        ("manual", TITLE, "--parent", ids["epic"], "--tag", "languages", "--tag", "area/documents"),
        ("print", "Print the manual", "--parent", ids["epic"]),
        ("bug", "The cookie is lost after a redirect to the page of the payment provider", "--type", "bug", "-p", "1"),
        ("old", "An old wish"),
    ):
        ids[name] = made("create", title, *more, "-q").id
    for line in (
        f"dep add {ids['print']} {ids['manual']}",
        "agent register maya --role person",
        f"claim {ids['manual']} --actor ada",
        f"note {ids['manual']} 'Chapter one is written.' --actor ada",
        f"claim {ids['bug']} --actor maya",
        f"block {ids['bug']} 'the provider must answer first' --actor maya",
        f"close {ids['old']} 'not any more'",
        f"mail send maya 'Which chapters of the old manual?' Nine. --type request --task {ids['manual']} --actor ada",
        "mail reply m1 'All but the last two.' --actor maya",
        "mail ack m1 --actor maya",
        "path lock 'docs/manual/**' --reason 'new chapters' --actor ada",
        "lock acquire deploy --ttl 60 --actor ada",
        "stash create jobs --type queue",
        "stash create news --type channel",
        "cycle start --spec login --instruction create-spec",
        "cell set run-1 status '\"building\"'",
    ):
        answer = made(*_split(line))
        assert answer.code == 0, (line, answer)
    tree = '{"title": "Release {version}", "children": [{"title": "Tag {version}", "tags": ["git"]}]}'
    assert made("template", "set", "release", tree, "--parameters", '{"version": null}').code == 0
    return ids


def _split(line: str) -> list[str]:
    from shlex import split

    return split(line)


READS = (
    *("list", "list --all", "list --status waiting", "ready", "tree", "graph", "board", "board in_progress", "status"),
    *("timeline", "activity", "log", "log --since today", "log --summary", "event list", "search manual"),
    *("show {manual}", "show {epic}", "show {bug}", "resume {manual}", "resume {bug}", "history {manual}"),
    *("explain {epic}", "explain {manual}", "children {epic}", "ancestors {print}", "dep list {print}"),
    *("mail inbox --actor maya", "mail sent --actor ada", "mail thread m1", "mail threads", "mail get m1"),
    *("mail history m1", "mail about {manual}", "mail search chapters", "agent list", "agent get maya"),
    *("path list", "path get docs/manual/**", "lock list", "lock get deploy", "stash list", "stash get jobs"),
    *("queue size jobs", "cycle list", "cycle get peer:spec:login", "cycle show peer:spec:login", "template list"),
    *("template show release", "cell list run-1", "cell info run-1 status", "cell history run-1 status", "trail list"),
    *("route explain {manual}", "where", "prime", "help", "help create", "mail --help", "reclaim {manual} --actor ada"),
)
WRITES = (
    *("create another --assign maya", "assign {print} ada", "defer {print} tomorrow", "tag add {print} paper"),
    *("bulk set_priority {print} {epic} --priority 1", "queue put jobs 1", "channel publish news 1", "delete {print}"),
    *("cell set run-1 status 2", "cell delete run-1 status", "lock release deploy --actor ada", "agent forget nobody"),
    *("path release --actor ada", "release-stale-claims", "template delete release", "sweep-retention --dry-run"),
    *("release {manual} --actor ada", "close {manual} finished", "undelete {print}", "unblock {bug}"),
)
RAW = re.compile(r'[{\[]"|\bNone\b|\bnull\b|\bTrue\b|\bFalse\b|datetime|^(true|false|\d+|\[\])$|_at:', re.MULTILINE)
TOLD_TO_AGENTS = ("prime", "where", "cycle get")  # longer lines, and what a document holds


@pytest.mark.parametrize("lines", [READS, WRITES], ids=["reads", "writes"])
def test_every_answer_is_text_that_fits_a_terminal_of_80_columns(
    terminal: Callable[..., Answer], shop: dict[str, str], lines: tuple[str, ...]
) -> None:
    problems = [found for line in lines for found in _problems(line, terminal(*_split(line.format(**shop))))]
    assert problems == []


def _problems(line: str, answer: Answer) -> Iterator[Any]:
    """What is wrong with an answer for people."""
    printed = answer.out.splitlines()
    if answer.code:
        yield line, answer
    if not (answer.out + answer.err).strip():
        yield line, "is silent"
    if found := RAW.search(answer.out):
        yield line, "shows raw data", found[0], answer.out
    if not line.startswith(TOLD_TO_AGENTS):
        yield from ((line, "is too wide", each) for each in printed if columns(each) > 80)
    yield from ((line, "ends with blanks", each) for each in printed if each != each.rstrip())


def test_show_and_resume_wrap_a_title_between_words(terminal: Callable[..., Answer], shop: dict[str, str]) -> None:
    for command in ("show", "resume"):
        first, second, *_ = terminal(command, shop["manual"]).out.splitlines()
        assert f"{first.partition('in_progress  ')[2]} {second.strip()}".startswith(f"{TITLE}  #area/documents")


# --- warnings --------------------------------------------------------------------------------------------------------


def test_a_claim_of_a_waiting_task_and_an_unknown_assignee_are_told(made: Cli, shop: dict[str, str]) -> None:
    claimed = made("claim", shop["print"], "--actor", "maya")
    assert (claimed.code, claimed.err) == (
        0,
        f"holdfast: it waits for {shop['manual']}; the claim counts all the same\n",
    )
    assigned = made("assign", shop["bug"], "maja")
    assert assigned.code == 0
    assert "maja has not been seen here" in assigned.err
    assert "did you mean maya?" in assigned.err
    assert made("assign", shop["bug"], "maja", "--json").data["warnings"]


def test_init_below_a_workspace_makes_no_second_one_and_says_how(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "docs" / "deep"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    above = str(project / ".holdfast")
    answer = made("init")
    assert answer.out.splitlines() == [
        f"there is a workspace above this folder, in {above}, and commands here use it",
        "make another one for this folder alone: holdfast init --dir .holdfast",
    ]
    assert made("init", "--json").data == {"folder": above, "made": False, "backups": 0}
    assert not (inner / ".holdfast").exists()
    assert made("init", "--dir", ".holdfast").code == 0
    assert made("where", "--json").data["workspace"] == str(inner / ".holdfast")


# --- nothing is destroyed by a slip ----------------------------------------------------------------------------------


@pytest.fixture
def doomed(made: Cli) -> str:
    id = made("create", "by mistake", "-q").id
    made("delete", id)
    return id


def there(made: Cli, id: str) -> bool:
    return any(task["id"] == id for task in made("list", "--all", "--include-deleted", "--json").data)


def test_purge_is_refused_where_nobody_can_be_asked_unless_yes_is_said(made: Cli, doomed: str) -> None:
    for words in (("purge", doomed), ("purge", doomed, "--json")):
        refused = made(*words)
        assert refused.code == 2
        assert "--yes says that it is meant" in refused.err
        assert f"removes {doomed} and all below it" in refused.err
    assert there(made, doomed)
    assert made("purge", doomed[:-1], "--yes").code == 10, "a part of the id is not enough"
    assert made("purge", doomed, "--yes").out == "purged 1 task\n"
    assert not there(made, doomed)


@pytest.mark.parametrize(("typed", "gone"), [("no\n", False), ("\n", False), ("", False), ("yes\n", True)])
def test_purge_asks_at_a_terminal(
    terminal: Callable[..., Answer], made: Cli, doomed: str, typed: str, gone: bool
) -> None:
    answer = terminal("purge", doomed, typed=typed)
    assert "go on? yes or no:" in answer.err
    assert (answer.code == 0, "nothing was done" not in answer.err, not there(made, doomed)) == (gone, gone, gone)


def test_everything_that_nobody_can_undo_asks(made: Cli) -> None:
    from holdfast.operation import REGISTRY

    lines: dict[str, Any] = {"tasks.purge": "purge hf-0000", "events.compact": "event compact 1"}
    lines |= {"queues.discard": "queue discard jobs", "stashes.delete": "stash delete /jobs"}
    lines |= {"threads.delete": "thread delete chat", "threads.prune": "thread prune chat"}
    lines |= {"threads.delete_runs": "thread delete-runs run-1", "items.delete": "item delete users/ada theme"}
    assert lines.keys() == {op.name for op in REGISTRY.values() if op.route.irreversible}
    for name, line in lines.items():
        assert "--yes says that it is meant" in made(*line.split()).err
        assert "--yes" in made("help", *(REGISTRY[name].command or "").split()).out


# --- words -----------------------------------------------------------------------------------------------------------


def test_list_tells_waiting_tasks_from_ready_ones(made: Cli, shop: dict[str, str]) -> None:
    ids = {state: made("list", "--status", state, "-q").out.split() for state in ("waiting", "ready", "open")}
    assert ids["waiting"] == [shop["epic"], shop["print"]]
    assert ids["ready"] == []
    assert ids["open"] == ids["waiting"]
    both = made("list", "--status", "waiting", "--status", "blocked", "-q").out.split()
    assert sorted(both) == sorted([shop["epic"], shop["print"], shop["bug"]])
    assert made("list", "--status", "waiting", "--tag", "none-has-it").err == "holdfast: no task fits the filters\n"
    limited = made("list", "--status", "waiting", "--limit", "1")
    assert (limited.out.count("\n"), "show more with --limit" in limited.err) == (1, True)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("list --status done", "did you mean closed?"),
        ("list --status todo", "did you mean open?"),
        ("mail list", "did you mean mail inbox?"),
        ("dep hf-7k2q hf-3m9x", "did you mean dep add hf-7k2q?"),
        ("tag hf-7k2q urgent", "did you mean tag add hf-7k2q?"),
        ("lock deploy", "did you mean lock acquire deploy?"),
        ("move hf-7k2q hf-3m9x", "holdfast reparent ID PARENT"),
        ("list --deleted", "did you mean --include-deleted?"),
        ("create x --due tomorrow", "holdfast defer ID TIME"),
    ],
)
def test_words_that_people_try_lead_somewhere(made: Cli, line: str, hint: str) -> None:
    refused = made(*_split(line))
    assert refused.code != 0
    assert hint in refused.err


def test_a_time_of_two_words_needs_no_quotes(made: Cli) -> None:
    id = made("create", "later", "-q").id
    assert "waiting" in made("defer", id, "tomorrow", "9:00").out


def test_a_message_is_m1_wherever_it_is_named(made: Cli, shop: dict[str, str]) -> None:
    told = (
        made("log", "--kind", "message").out + made("watch", "--after", "0", "--timeout", "0", "--kind", "message").out
    )
    assert "maya acknowledged the message m1" in told
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}-", told)
    assert {event["data"]["short"] for event in made("log", "--kind", "message", "--json").data} == {"m1", "m2"}


def test_the_board_and_the_timeline_are_drawn(made: Cli, shop: dict[str, str]) -> None:
    lines = made("board").out.splitlines()
    assert [line for line in lines if line and line[0] != " "] == ["in_progress", "blocked", "waiting", "closed"]
    assert f"  {shop['bug']}  P1  The cookie is lost" in made("board").out
    assert "maya: the provider must answer first" in made("board", "blocked").out
    assert made("board", "--json").code == 2
    assert made("board", "ready").err == "holdfast: no task is in the column ready\n"
    drawn = made("timeline").out
    assert re.search(rf"^ada\n  {shop['manual']} +\[\.*=*>\]  \d+ s, held$", drawn, re.MULTILINE), drawn
    assert re.search(rf"^maya\n  {shop['bug']} +\[\.*=+\.*\]  \d+ s, blocked$", drawn, re.MULTILINE), drawn
    assert "lock deploy" in drawn
    assert "1 message" in drawn


# --- fifteen everyday things -----------------------------------------------------------------------------------------

# As a stranger typed them who had read the README alone; a name stands for the id that a line before has printed.
DAY = (
    ("", "init"),  # 1 a workspace
    ("epic", "create 'Ship version 2' --type epic"),  # 2 create
    ("cart", "create 'Fix the cart' --parent {epic}"),  # 3 below a parent
    ("docs", "create 'Write the docs' --parent {epic} --depends-on {cart} --assign bob"),  # 4 depend, 5 assign
    ("twin", "create 'Cart is broken'"),
    ("call", "create 'Call the provider'"),
    ("", "defer {call} 'next monday 9am'"),  # 6 defer
    ("", "list"),  # 7
    ("", "ready"),  # 8
    ("", "next --actor maya"),  # 9 claim the next
    ("", "note {cart} 'found it' --actor maya"),  # 10
    ("", "block {cart} 'waits for the design' --actor maya"),  # 11
    ("", "unblock {cart} 'the design is there'"),
    ("", "close {cart} 'fixed'"),  # 12 done
    ("", "mail send bob 'When?' 'When can you start?' --actor maya"),  # 13 mail and a reply
    ("", "mail reply m1 Tomorrow. --actor bob"),
    ("", "search cart"),  # 14 find by a word
    ("", "log --since 'last night'"),  # 15 who did what
    ("", "close {twin} 'a duplicate of {cart}'"),  # and a duplicate
    ("", "tree"),  # and the tree
)


def test_fifteen_everyday_things_take_twenty_commands_and_no_refusal(cli: Cli) -> None:
    assert len(DAY) <= 20
    ids: dict[str, str] = {}
    for name, line in DAY:
        answer = cli(*_split(line.format(**ids)))
        assert answer.code == 0, (line, answer)
        assert answer.out, line
        if name:
            ids[name] = answer.out.split()[0]
    assert ids["docs"] in cli("ready", "--actor", "bob").out, "what it waited for is done"
    assert "maya claimed" in cli("log", "--since", "last night").out
