"""What reaches the streams (issue 7): answers alone on standard output, and nothing that steers a terminal."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pkgutil
import pty
import re
import signal
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import errors, types
from holdfast.faces.cli import mail_views, views
from tests.cli.calling import HOLDFAST, PATIENCE, Answer, Shell, ended

Cli = Callable[..., Answer]
TITLE = "red\u202eback\u2066\u2028\u200b"  # what a line of text may have and a terminal should not get
NASTY = "a\x1b[31mred\x07\x7f\x9b2J\u202eback\r\nsecond\tline"
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # what a terminal would obey


# --- standard output ---------------------------------------------------------------------------------------------


def test_quiet_prints_ids_alone(made: Cli) -> None:
    first = made("create", "x", "-q")
    assert re.fullmatch(r"hf-\w+\n", first.out)
    second = made("create", "y", "--quiet").id
    assert made("list", "-q").out.split() == [first.id, second]
    assert made("next", "--actor", "a", "-q").id == first.id
    assert made("done", first.id, "--actor", "a", "-q").id == first.id
    assert made("search", "y", "-q").id == second
    assert made("lock", "acquire", "deploy", "--actor", "a", "-q").id == "deploy"
    made("agent", "register", "bob")
    sent = made("mail", "send", "bob", "hi", "body", "--actor", "a", "-q").id
    assert made("mail", "inbox", "--actor", "bob", "-q").id == sent
    lock = made("path", "lock", "src/**", "--actor", "a", "-q").id
    assert made("path", "list", "-q").id == lock
    assert made("next", "--actor", "a", "--tag", "none", "-q") == (4, "", "")


def test_json_and_exports_have_no_character_that_a_terminal_obeys_and_mean_the_same(made: Cli, project: Path) -> None:
    made("cell", "set", "r", "c", json.dumps(NASTY))
    task = made("create", "x", "--body", NASTY, "-q").id
    made("stash", "create", "s", "--type", "context", "--value", json.dumps({NASTY: NASTY}))
    shown = made("cell", "get", "r", "c", "--json")
    assert shown.data["value"] == NASTY
    exported = made("export")
    assert json.loads(exported.out)["body"] == NASTY
    made("export", "tasks.jsonl")
    made("stash", "export", "folder")
    texts = [path.read_text() for path in (project / "tasks.jsonl", *(project / "folder").glob("*.jsonl"))]
    for text in (shown.out, exported.out, made("show", task, "--json").out, *texts):
        assert not OBEYED.search(text), text
        assert len(text.splitlines()) == text.count("\n")
    assert made("stash", "import", "folder").code == 0
    assert made("stash", "get", "s", "--json").data["value"] == {NASTY: NASTY}


def test_quiet_prints_the_ids_of_many(made: Cli) -> None:
    made_ids = made("bulk", "create", "--tasks", '[{"title": "a"}, {"title": "b"}]', "-q").out.split()
    assert made_ids == made("list", "-q").out.split()


def test_the_id_that_create_prints_is_in_its_text_too(made: Cli) -> None:
    assert re.match(r"hf-\w+  P2  open +x$", made("create", "x").out)


def test_there_is_no_colour_in_a_pipe(shell: Shell) -> None:
    shell("init")
    task = shell("create", "x", "-q").id
    for words in (("list",), ("show", task), ("log",), ("help",), ("doctor",), ("show", "hf-0000")):
        answer = shell.with_(TERM="xterm-256color")(*words)
        assert "\x1b" not in answer.out + answer.err


def test_there_is_colour_on_a_terminal_unless_it_is_not_wanted(shell: Shell) -> None:
    shell("init")
    shell("create", "x")
    for more, wanted in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)):
        terminal, end = pty.openpty()
        process = shell.with_(**{"TERM": "xterm", **more}).start("list", stdout=end)
        os.close(end)
        assert ended(process).code == 0
        assert (b"\x1b[" in os.read(terminal, 4096)) is wanted
        os.close(terminal)


def on_terminal(shell: Shell, *words: str, columns: int = 80, code: int = 0, stream: str = "stdout") -> list[str]:
    """The lines that a terminal of this width gets."""
    terminal, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in shell.environ.items() if name not in ("COLUMNS", "LINES")}
    process = Shell(shell.folder, environ | {"TERM": "xterm"}).start(*words, **{stream: end})
    os.close(end)
    read = b""
    try:
        while more := os.read(terminal, 4096):
            read += more
    except OSError:  # as Linux reports that the other end is closed
        pass
    os.close(terminal)
    assert ended(process).code == code
    return read.decode().splitlines()


@pytest.mark.parametrize("columns", [40, 80])
def test_errors_fold_at_the_width_of_a_terminal_and_in_no_pipe(shell: Shell, columns: int) -> None:
    shell("init")
    store = Path(shell.folder) / ".holdfast" / "holdfast.db"
    store.rename(store.with_name("elsewhere"))
    for words in (["list"], ["show", "x"]):
        told = on_terminal(shell, *words, columns=columns, code=errors.Corrupt.exit_code, stream="stderr")
        piped = shell(*words).err
        assert len(told) > 2
        assert max(len(line) for line in told if " " in line.strip()) <= columns, told
        assert len(piped.splitlines()) == 2
        assert "".join(" ".join(told).split()) == "".join(piped.split())  # every word is there, in order
    assert json.loads("".join(on_terminal(shell, "list", "--json", code=errors.Corrupt.exit_code, stream="stderr")))
    found = on_terminal(shell, "doctor", columns=columns, code=1)
    assert max(len(line) for line in found if len(line.split()) > 2) <= columns, found


COLOUR = re.compile(r"\x1b\[\d*m")


def test_the_rows_of_mail_are_coloured_and_not_escaped(shell: Shell) -> None:
    shell("init")
    shell("agent", "register", "bob")
    sent = shell("mail", "send", "bob", "hi\u202e", "body", "--actor", "ada", "-q").id
    for words in (("inbox", "--actor", "bob"), ("sent", "--actor", "ada"), ("thread", sent), ("search", "body")):
        row = on_terminal(shell, "mail", *words, columns=200)[0]
        assert row.startswith("\x1b[1mm1\x1b[0m  "), row
        assert "hi\\u202e" in row
        assert "unread" in row


def test_the_rows_of_a_list_fit_the_terminal_and_a_pipe_gets_them_whole(shell: Shell) -> None:
    shell("init")
    title = "The title of this task is so long that no line of an ordinary terminal could hold all of it"
    task = shell("create", title, "--tag", "one", "--tag", "two", "--body", "short words", "-q").id
    for words in (("list",), ("ready",), ("tree",), ("search", "ordinary")):
        [row] = (COLOUR.sub("", line) for line in on_terminal(shell, *words))
        assert len(row) <= 80
        assert row.startswith(f"{task}  P2  open         The title")
        assert "…  #one  #two" in row
        assert title in shell(*words).out
        assert title in on_terminal(shell, *words, columns=200)[0]
    shown = " ".join(COLOUR.sub("", line).strip() for line in on_terminal(shell, "show", task)[:2])
    assert title in shown, "a record is shown whole, wrapped between words"


def test_a_row_counts_the_columns_of_wide_letters(shell: Shell) -> None:
    shell("init")
    task = shell("create", "\u7a93" * 60, "-q").id
    [row] = (COLOUR.sub("", line) for line in on_terminal(shell, "list"))
    assert row == f"{task}  P2  open         {chr(0x7A93) * ((79 - len(task) - 19) // 2)}…"


def test_the_rows_of_the_log_fit_the_terminal(shell: Shell) -> None:
    shell("init")
    shell("create", "x" * 300, "--tag", "one", "--actor", "ada")
    for words in (("event", "list"), ("log",), ("watch", "--after", "0", "--once")):
        [narrow] = (COLOUR.sub("", line) for line in on_terminal(shell, *words))
        assert len(narrow) <= 80
        assert re.search(r"x…  \(\d+\)$", narrow)
        [wide] = (COLOUR.sub("", line) for line in on_terminal(shell, *words, columns=900))
        assert "x" * 300 in wide


def plain(text: str) -> str:
    """A text that is shown to a person, which must not steer their terminal."""
    assert not OBEYED.search(text), ascii(text)
    return text


def test_what_others_wrote_never_steers_the_terminal(made: Cli) -> None:
    task = made("create", TITLE, NASTY, "-q").id
    made("note", task, NASTY)
    made("claim", task, "--actor", "a")
    made("agent", "register", "bob", "--program", TITLE)
    mail = made("mail", "send", "bob", TITLE, NASTY, "--task", task, "--actor", "a", "-q").id
    made("path", "lock", "src/**", "--reason", NASTY, "--actor", "a")
    made("mail", "ack", mail, NASTY, "--actor", "bob")
    for line in (
        *("list", f"show {task}", f"history {task}", "search red", "tree", "log", f"resume {task}", "ready"),
        *("mail inbox --actor bob", f"mail get {mail}", f"mail history {mail}", "path list", "agent list"),
        *("agent get bob", "event list", "prime --actor a", "guard src/x --actor b", "path check src/x --actor b"),
        *("path lock src/x --actor b", "mail search red", f"mail thread {mail}", "log --summary", f"block {task} x"),
    ):
        answer = made(*line.split())
        plain(answer.out)
        plain(answer.err)
    assert r"red\u202eback" in made("list").out, "it is shown, not left out"
    assert made("create", NASTY).code == 1, "a title is a line without control characters"


def test_what_is_in_a_cell_never_steers_the_terminal_and_stays_json(made: Cli) -> None:
    made("cell", "set", "r", "c", json.dumps(NASTY))
    made("cell", "set", "r", "d", json.dumps({NASTY: [NASTY]}))
    for line in ("cell get r c", "cell get r d", "cell history r c", "cell at r c 1", "log", "watch --after 0 --once"):
        plain(made(*line.split()).out)
    assert json.loads(made("cell", "get", "r", "c").out) == NASTY


def test_a_bad_line_of_an_import_never_steers_the_terminal(made: Cli, project: Path) -> None:
    bad = {"id": "hf-\x9b31m", "title": NASTY, "schema": "\x9b2J"}
    (project / "bad.jsonl").write_text(json.dumps(bad, ensure_ascii=False) + "\n" + "\x9b2J not json\n")
    for more in ((), ("--skip-bad",), ("--dry-run", "--skip-bad")):
        answer = made("import", "bad.jsonl", *more)
        plain(answer.out)
        plain(answer.err)


def test_text_beyond_ascii_is_shown_as_it_is(made: Cli) -> None:
    made("create", "Größe 寸法 🚀")
    assert "Größe 寸法 🚀" in made("list").out


def test_a_locale_that_cannot_show_a_title_is_no_crash(shell: Shell) -> None:
    shell("init")
    shell("create", "寸法")
    answer = shell.with_(PYTHONIOENCODING="latin-1")("list")
    assert answer.code == 0, answer.err


# --- processes ---------------------------------------------------------------------------------------------------


def test_a_closed_pipe_ends_it_quietly(shell: Shell) -> None:
    shell("init")
    tasks = [{"title": f"{n} {'x' * 400}"} for n in range(1000)]
    made = shell("bulk", "create", "--tasks", "-", stdin=json.dumps(tasks))
    assert made.code == 0, made.err
    line = " ".join(map(repr, HOLDFAST))
    for command in ("list --limit 1000", "list --limit 1000 --json", "export", "log --limit 1000", "watch --after 0"):
        answer = shell.run(["bash", "-c", f"set -o pipefail; {line} {command} | head -c 10 >/dev/null"])
        assert (answer.out, answer.err) == ("", ""), command
        assert answer.code in (0, 141), command


def test_an_answer_that_cannot_be_written_is_an_error_not_a_crash(shell: Shell) -> None:
    shell("init")
    shell("create", "x")
    line = " ".join(map(repr, HOLDFAST))
    for command in ("list", "list --json", "export", "help"):
        answer = shell.run(["bash", "-c", f"{line} {command} > /dev/full"])
        assert answer.code not in (0, 4), command
        assert "Traceback" not in answer.err, command


@pytest.mark.parametrize(
    ("line", "closed"), [("list", ">&-"), ("cell set r c -", "<&-"), ("show hf-0000", "2>&-"), ("create y", "<&- >&-")]
)
def test_a_stream_that_is_closed_is_no_crash_and_no_error_becomes_an_answer(
    shell: Shell, line: str, closed: str
) -> None:
    shell("init")
    shell("create", "x")
    call = " ".join(map(repr, HOLDFAST))
    answer = shell.run(["bash", "-c", f"{call} {line} {closed}"])
    assert "Traceback" not in answer.err
    assert answer.out == ""


def interrupted(process: subprocess.Popen[str]) -> Answer:
    process.send_signal(signal.SIGINT)
    return ended(process)


def test_ctrl_c_ends_it_quietly(shell: Shell, started: Callable[..., Any]) -> None:
    shell("init")
    shell("cell", "set", "r", "c", "1")
    watch = started("watch", "--after", "0")
    assert watch.stdout.readline(), "it has begun to wait"
    answer = interrupted(watch)
    assert (answer.code, answer.out, answer.err) == (130, "", "")


def test_a_stream_is_read_line_by_line_while_it_goes_on(shell: Shell, started: Callable[..., Any]) -> None:
    shell("init")
    watch = started("watch", "--after", "0", "--kind", "cell", "--json")
    for n in range(3):
        shell("cell", "set", "r", "c", str(n))
        assert json.loads(watch.stdout.readline())["data"]["id"] == "c"
    assert interrupted(watch).code == 130


def test_logs_and_warnings_never_reach_standard_output(shell: Shell) -> None:
    shell("init")
    answer = shell.with_(PYTHONWARNINGS="default", PYTHONDEVMODE="1")("ready", "--json", timeout=2 * PATIENCE)
    assert (answer.code, answer.data, answer.err) == (0, [], "")


# --- what is asked next --------------------------------------------------------------------------------------------


def test_show_tells_what_a_task_waits_for_and_why_it_stands_still(made: Cli, project: Path) -> None:
    first, second = made("create", "first", "-q").id, made("create", "second", "the body", "-q").id
    made("dep", "add", second, first)
    told = made("show", second).out
    assert f"waits for  {first}" in told
    assert "not ready" in told
    assert "\n\nthe body\n\nlinks\n" in told
    assert f"needed by  {second}" in made("show", first).out
    made("claim", first, "--actor", "a")
    made("path", "lock", "src/**", "--task", first, "--actor", "a")
    assert "src/**" in made("show", first).out
    made("block", first, "no grammar\x1b[31m yet", "--actor", "a")
    told = made("show", first).out
    assert "because    no grammar\\u001b[31m yet" in told
    assert "src/**" not in told, "the lock ended with the claim"
    assert made("show", first, "--json").data["status"] == "blocked"
    assert made("show", first, "-q").id == first


def test_every_view_is_of_a_type_that_exists() -> None:
    """Views are known by the names of types; one that is renamed must not lose its own."""
    rooms = [importlib.import_module(f"holdfast.types.{room.name}") for room in pkgutil.iter_modules(types.__path__)]
    names = {name for room in (types, *rooms) for name, each in vars(room).items() if isinstance(each, type)}
    assert {*views._LINES, *views._RECORDS, *views._MAIL, *mail_views.LINES, *mail_views.RECORDS} <= names


# --- a compacted past --------------------------------------------------------------------------------------------


def test_a_compacted_past_is_told_beside_what_is_left_and_fails_no_command(made: Cli) -> None:
    task = made("create", "task", "-q").id
    for priority in "043":
        made("update", task, "--priority", priority)
        made("cell", "set", "run", "cell", priority)
    stash = made("stash", "create", "notes", "--type", "context", "--value", '{"n": 1}', "-q").id
    made("stash", "set", stash, '{"n": 2}')
    assert json.loads(made("log", "--json").out).keys() == {"schema_version", "data"}
    mark = len(made("event", "list", "-q").out.split())
    assert made("event", "compact", str(mark + 1), "--yes").code == 0
    commands = [f"history {task}", "cell history run cell", f"stash history {stash}", "event list", "log"]
    words = f"holdfast: events up to revision {mark} were compacted: of these, this is what is left\n"
    for command in (*commands, f"resume {task}", "log --summary"):
        told = made(*command.split())
        assert (told.code, told.err, "more: " in told.out) == (0, words, False), command
        assert told.out, command
    for command in (*commands, "log --summary"):
        told = made(*command.split(), "--json")
        assert (told.code, told.err, json.loads(told.out)["compacted"]) == (0, "", mark), command
    assert made("resume", task, "--json").data["compacted"] == mark
    cursor = json.loads(made("history", task, "--json").out)["cursor"]
    gone = made("history", task, "--before", cursor, "--json")
    assert (gone.code, gone.error["code"], gone.error["details"]) == (17, "COMPACTED", {"compacted": mark})
    young = made("create", "young", "-q").id
    assert [made(command, young).err for command in ("history", "resume", "show")] == ["", "", ""]
    assert made("log", "--limit", "1").err == ""


def test_a_thousand_warnings_of_an_import_are_shown_in_part_and_counted(made: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    own = {"format": "holdfast.task/1", "title": "task", "mood": "good"}
    lines = [json.dumps({**own, "id": f"a-{number}"}) for number in range(1000)]
    file.write_text("\n".join(lines))
    told = made("import", str(file), "--dry-run")
    first, *warnings, rest = told.out.splitlines()
    assert (told.code, first, len(warnings)) == (0, "would be created: 1000 tasks", 20)
    assert all("warning" in line for line in warnings)
    assert rest == "and 980 more warnings; --json has all"
    assert len(made("import", str(file), "--dry-run", "--json").data["warnings"]) == 1000
