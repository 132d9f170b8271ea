"""`create` and `edit` as people use them (issue 23): words without quotes, priorities by name, a text in an editor."""

from __future__ import annotations

import os
import pty
import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.calling import HOLDFAST, PATIENCE, Answer, Shell
from tests.cli.test_output import on_terminal

Cli = Callable[..., Answer]


# --- create ----------------------------------------------------------------------------------------------------------


def test_words_without_quotes_are_refused_with_the_two_commands_that_can_be_meant(made: Cli) -> None:
    refused = made("create", "fix", "login", "-p", "1", "--tag", "web")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines()[1:] == [
        "  holdfast create 'fix login' -p 1 --tag web",
        "  holdfast create fix --body login -p 1 --tag web",
    ]
    assert made("list", "--all", "--json").data == [], "nothing was made"
    for line in refused.err.splitlines()[1:]:
        assert made(*shlex.split(line)[1:]).code == 0
    assert [(task["title"], task["body"]) for task in made("list", "--json").data] == [
        ("fix login", ""),
        ("fix", "login"),
    ]


def test_the_two_commands_repeat_the_options_before_the_command(made: Cli, project: Path) -> None:
    folder = str(project / ".holdfast")
    refused = made("--dir", folder, "create", "fix", "the", "login", "--json")
    commands = refused.error["details"]["commands"]
    assert commands == [
        f"holdfast create 'fix the login' --json --dir {folder}",
        f"holdfast create fix --body 'the login' --json --dir {folder}",
    ]


@pytest.mark.parametrize(
    ("words", "title", "body"),
    [
        (("Fix login", "It crashes"), "Fix login", "It crashes"),
        (("Login", "It crashes"), "Login", "It crashes"),
        (("Fix login", "crash"), "Fix login", "crash"),
        (("Login",), "Login", ""),
        (("--", "fix", "login"), "fix", "login"),
    ],
)
def test_quoted_texts_are_a_title_and_a_body(made: Cli, words: tuple[str, ...], title: str, body: str) -> None:
    task = made("create", "--json", *words).data
    assert (task["title"], task["body"]) == (title, body)


def asked(shell: Shell, answer: str, *words: str) -> tuple[int, str]:
    """What a command in a terminal ends with, and what it printed, when the person there types an answer."""
    terminal, end = pty.openpty()
    process = shell.start(*words, stdin=end, stdout=end, stderr=end)
    os.close(end)
    os.write(terminal, f"{answer}\n".encode())
    read = b""
    with suppress(OSError):  # as Linux reports that the other end is closed
        while more := os.read(terminal, 4096):
            read += more
    os.close(terminal)
    return process.wait(PATIENCE), read.decode()


def test_a_person_at_a_terminal_is_asked_which_is_meant(shell: Shell) -> None:
    shell("init")
    code, shown = asked(shell, "1", "create", "fix", "login")
    assert (code, "2  holdfast create fix --body login" in shown) == (0, True), shown
    assert [task["title"] for task in shell("list", "--json").data] == ["fix login"]
    assert asked(shell, "neither", "create", "fix", "login")[0] == 130
    assert len(shell("list", "--json").data) == 1


@pytest.mark.parametrize(
    ("text", "priority"), [("P1", 1), ("p1", 1), ("1", 1), ("critical", 0), ("High", 1), ("low", 3), ("backlog", 4)]
)
def test_a_priority_has_its_number_and_its_names(made: Cli, text: str, priority: int) -> None:
    assert made("create", "x", "-p", text, "--json").data["priority"] == priority
    assert [task["priority"] for task in made("list", "--priority", text, "--json").data] == [priority]


def test_a_priority_that_is_none_says_which_there_are(made: Cli) -> None:
    for wrong in ("P", "soon", "1.5"):
        assert "P0 to P4, or critical, high, medium, low or backlog" in made("create", "x", "-p", wrong).err
    assert made("create", "x", "-p", "P7").code == 1


def test_create_reads_a_title_and_a_body_from_standard_input(made: Cli) -> None:
    task = made("create", "-", "--tag", "web", "--json", stdin="Fix login\n\nIt crashes.\n\n- always\n").data
    assert (task["title"], task["body"], task["tags"]) == ("Fix login", "It crashes.\n\n- always", ["web"])
    assert made("create", "-", stdin=" \n").code == 2
    assert made("create", "-", "--body", "x", stdin="Title\n").code == 2


# --- edit ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def editor(tmp_path: Path) -> Callable[[str], str]:
    """An editor that runs a line of Python on the text `t`, and prints it: `editor("t = t.replace('a', 'b')")`."""

    def make(line: str) -> str:
        script = tmp_path / "editor.py"
        script.write_text(
            "import subprocess, sys\nt = open(sys.argv[1], newline='').read()\n"
            f"open({str(tmp_path / 'seen')!r}, 'w', newline='').write(t)\n{line}\n"
            "open(sys.argv[1], 'w', newline='').write(t)\n"
        )
        return shlex.join([HOLDFAST[0], str(script)])

    return make


def test_edit_opens_the_task_as_a_text_and_stores_what_was_changed(
    made: Cli, editor: Callable[[str], str], tmp_path: Path
) -> None:
    id = made("create", "Fix login", "It crashes.", "--tag", "web", "-q").id
    change = "t = t.replace('Fix', 'Mend').replace('priority: 2', 'priority: high').replace('tags: web', 'tags: a, b')"
    change += ".replace('assign:', 'assign: bob').replace('type: task', 'type: bug').replace('crashes', 'hangs')"
    assert made("edit", id, EDITOR=editor(change)).code == 0
    seen = (tmp_path / "seen").read_text()
    fields = "title: Fix login\ntype: task\npriority: 2\ntags: web\nassign:\nhint:\n\nIt crashes.\n"
    assert seen.endswith(fields), seen
    task = made("show", id, "--json").data
    assert {name: task[name] for name in ("title", "type", "priority", "tags", "assigned_to", "body")} == {
        "title": "Mend login",
        "type": "bug",
        "priority": 1,
        "tags": ["a", "b"],
        "assigned_to": "bob",
        "body": "It hangs.",
    }


@pytest.mark.parametrize("body", ["", "one line", "ends with a line\n", "two\n\nparagraphs", "# a heading\n\n- x"])
def test_a_text_that_is_left_as_it_is_changes_nothing(made: Cli, editor: Callable[[str], str], body: str) -> None:
    id = made("create", "Fix login", f"--body={body}", "--tag", "a,b", "-q").id
    before = made("show", id, "--json").data
    for line in ("pass", "t = t.rstrip('\\n') + '\\n'"):
        answer = made("edit", id, EDITOR=editor(line))
        assert (answer.code, "nothing was changed" in answer.err) == (0, True), answer
    assert made("show", id, "--json").data == before
    assert [each["op"] for each in made("log", "--json").data if each["id"] == id] == ["create"]


def test_a_task_that_changed_meanwhile_is_left_alone_and_the_text_is_kept(
    made: Cli, editor: Callable[[str], str]
) -> None:
    id = made("create", "Fix login", "-q").id
    other = shlex.join([*HOLDFAST, "note", id, "I am on it", "--actor", "bob"])
    line = f"t = t.replace('Fix', 'Mend'); subprocess.run({other!r}, shell=True, check=True)"
    refused = made("edit", id, "--json", EDITOR=editor(line))
    assert (refused.code, refused.error["code"]) == (9, "VERSION_MISMATCH")
    assert refused.error["details"]["expected"] == 1
    kept = Path(refused.error["details"]["file"])
    assert "title: Mend login" in kept.read_text()
    assert str(kept) in refused.error["hint"]
    assert made("show", id, "--json").data["title"] == "Fix login"
    kept.unlink()


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("t = t.replace('priority: 2', 'priority: soon')", "priority must be"),
        ("t = t.replace('hint:', 'mood: good')", "is none of the fields"),
        ("t = t.replace('title: Fix login', 'title:')", "title is empty"),
    ],
)
def test_a_text_that_cannot_be_stored_is_kept_and_nothing_of_it_is_stored(
    made: Cli, editor: Callable[[str], str], line: str, wrong: str
) -> None:
    id = made("create", "Fix login", "-q").id
    refused = made("edit", id, EDITOR=editor(f"{line}.replace('tags:', 'tags: web')"))
    assert refused.code != 0
    assert wrong in refused.err
    (kept,) = re.findall(r"your text is kept in (\S+)", refused.err)
    Path(kept).unlink()
    assert made("show", id, "--json").data["version"] == 1


def test_an_editor_that_fails_or_is_not_there_changes_nothing(made: Cli, editor: Callable[[str], str]) -> None:
    id = made("create", "Fix login", "-q").id
    for program in (editor("sys.exit(3)"), "no-such-editor"):
        refused = made("edit", id, EDITOR=program)
        assert (refused.code != 0, "kept in" in refused.err) == (True, False), refused
    assert "there is no editor" in made("edit", id).err
    assert made("edit", id, VISUAL=editor("t = t.replace('Fix', 'Mend')")).code == 0
    assert made("show", id, "--json").data["title"] == "Mend login"


def test_create_and_edit_help_fit_a_terminal(shell: Shell) -> None:
    for name in ("create", "edit"):
        assert all(len(line) <= 80 for line in on_terminal(shell, "help", name))


# --- undo ------------------------------------------------------------------------------------------------------------


def test_an_undo_says_what_it_took_back_and_how_to_do_that_again(made: Cli) -> None:
    id = made("create", "Write the lexer", "-q").id
    assert made("update", id, "--title", "Write the parser", "--priority", "0").code == 0
    would = made("undo", "--last", "--dry-run").out
    assert would.splitlines() == [
        "would take back revision 2",
        f"  task {id}: title Write the parser -> Write the lexer, priority 0 -> 2",
    ]
    done = made("undo", "--last").out
    assert done.splitlines()[0] == "took back revision 2, as revision 3; holdfast undo 3 does it again"
    assert done.splitlines()[1:] == would.splitlines()[1:]
    assert f"task {id}: deleted" in made("undo", "--last").out
    assert "brought back" in made("undo", "4").out
    assert made("cell", "set", "run", "a", '{"n": 1}').code == 0
    assert '  cell run/a: value {"n":1} -> none, deleted' in made("undo", "--last").out
    assert f"took back revision 2 of {id}: title from Write the parser to Write the lexer, priority from 0 to 2" in (
        made("event", "list").out
    )
    assert "took back revision 2\x20" in made("event", "list").out


def test_a_wrong_use_of_undo_is_a_wrong_use(made: Cli) -> None:
    id = made("create", "one", "-q").id
    for words in ((), ("1", "--last"), ("0",), ("--", "-3"), ("abc",)):
        refused = made("undo", *words)
        assert (refused.code, refused.out) == (2, ""), words
    assert made("undo", "99").code == 1
    made("note", id, "said")
    refused = made("undo", "--last")
    assert (refused.code, "revision 1 is your change before it" in refused.err) == (11, True)
