"""What scripts rely on (issue 7): the JSON envelope, exit codes, and a standard output that has answers alone."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.calling import HOLDFAST, PATIENCE, Answer, Shell, ended

Cli = Callable[..., Answer]
TITLE = "red\u202eback\u2066\u2028\u200b"  # what a line of text may have and a terminal should not get
NASTY = "a\x1b[31mred\x07\x7f\x9b2J\u202eback\r\nsecond\tline"
HUGE = "9" * 30
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # what a terminal would obey


# --- JSON --------------------------------------------------------------------------------------------------------


def test_one_record_a_list_a_number_and_nothing_are_in_one_envelope(made: Cli) -> None:
    task = made("create", "x", "--json")
    assert list(json.loads(task.out)) == ["schema_version", "data"]
    assert task.data["title"] == "x"
    assert made("ready", "--json").data == [task.data]
    assert made("cell", "set", "r", "c", "{}", "--json").data == 1
    assert made("cell", "exists", "r", "nope", "--json").data is False
    assert made("path", "check", "src", "--json").data is None
    assert made("list", "--status", "closed", "--json").data == []


def test_a_page_has_a_cursor_until_the_last_one(made: Cli) -> None:
    wanted = {made("create", f"task {n}", "-q").id for n in range(5)}
    found: list[str] = []
    cursor: list[str] = []
    for _ in range(3):
        page = json.loads(made("list", "--limit", "2", "--total", "--json", *cursor).out)
        assert page["total"] == 5
        found += [task["id"] for task in page["data"]]
        cursor = ["--cursor", page["cursor"]] if "cursor" in page else []
    assert (set(found), len(found), cursor) == (wanted, 5, [])
    text = made("list", "--limit", "2").out
    assert re.search(r"^more: --cursor \S+$", text, re.M), text


def test_a_stream_is_an_envelope_for_each_line(made: Cli) -> None:
    for n in range(3):
        made("cell", "set", "r", "c", str(n))
    answer = made("watch", "--after", "0", "--timeout", "0.1", "--json")
    lines = [json.loads(line) for line in answer.out.splitlines()]
    assert [line["data"]["id"] for line in lines] == ["c"] * 3
    assert {line["schema_version"] for line in lines} == {1}


def test_holdfast_json_asks_for_it_too_and_can_be_taken_back(made: Cli) -> None:
    assert made("list", HOLDFAST_JSON="1").data == []
    assert made("list", HOLDFAST_JSON="0").out == ""
    assert made("list", "--no-json", HOLDFAST_JSON="1").out == ""
    assert made("--json", "list").data == [], "before the command too"


def test_nothing_ready_is_null_with_exit_code_4(made: Cli) -> None:
    answer = made("next", "--actor", "a", "--json")
    assert (answer.code, answer.data) == (4, None)
    text = made("next", "--actor", "a")
    assert (text.code, text.out) == (4, "")
    assert "nothing is ready" in text.err


def test_commands_made_by_hand_answer_in_the_same_envelope(made: Cli, project: Path) -> None:
    made("create", "x")
    calls = ["where", "init", "doctor --actor a", "prime", "log", "log --summary", "tree", "backup", "backup --list"]
    calls += ["restore", "export out.jsonl", "import out.jsonl", "upgrade", "token create", "token list"]
    for line in calls:
        answer = made(*line.split(), "--json")
        assert answer.code == 0, (line, answer)
        assert set(json.loads(answer.out)) <= {"schema_version", "data", "cursor", "total"}, line


def test_an_error_is_json_on_standard_error_with_the_same_code(made: Cli) -> None:
    for words, environ in ((("--json",), {}), ((), {"HOLDFAST_JSON": "1"})):
        answer = made("show", "hf-0000", *words, **environ)
        assert (answer.code, answer.out) == (10, "")
        assert answer.error.keys() == {"schema_version", "error", "code", "hint", "details"}
        assert answer.error["code"] == "TASK_NOT_FOUND"
    plain = made("show", "hf-0000")
    assert plain.out == ""
    assert plain.err.startswith("holdfast: ")


def test_an_error_carries_what_a_program_needs_to_go_on(made: Cli) -> None:
    made("lock", "acquire", "deploy", "--ttl", "60", "--actor", "a")
    held = made("lock", "acquire", "deploy", "--actor", "b", "--json").error
    assert (held["code"], held["details"]["holder"]) == ("HELD", "a")
    assert held["details"]["until"].endswith("Z"), "a time is RFC 3339 here too"
    made("cell", "set", "r", "c", '{"$bytes": "aGk="}')
    conflict = made("cell", "cas", "r", "c", "7", "1", "--json").error
    assert (conflict["code"], conflict["details"]["version"]) == ("VERSION_MISMATCH", 1)
    assert conflict["details"]["value"] == {"$bytes": "aGk="}


def test_json_asked_of_a_command_that_is_run_is_not_asked_of_us(made: Cli) -> None:
    answer = made("run", "--task", "hf-0000", "--actor", "a", "--", "program", "--json")
    assert answer.err.startswith("holdfast: ")


def test_a_usage_error_is_json_too(made: Cli) -> None:
    answer = made("create", "--json")
    assert (answer.code, answer.error["code"]) == (2, "USAGE")


def test_a_value_comes_back_as_it_was_set(made: Cli) -> None:
    for value in ('{"a":[1,2.5,null,true,"é\\u0007"]}', '"text"', "null", "-7"):
        made("cell", "set", "r", "c", value)
        assert json.loads(made("cell", "get", "r", "c").out) == json.loads(value)
        assert made("cell", "get", "r", "c", "--json").data["value"] == json.loads(value)


def test_an_export_comes_back_through_import_whatever_is_in_its_texts(made: Cli, project: Path) -> None:
    for separator in ("\u2028", "\u2029", "\x85", "\r\n", "\x0c", "\x1e", "\x00", '"\\'):
        made("create", f"title {separator!a}", f"first{separator}second")
    made("export", "all.jsonl")
    before = made("export").out
    answer = made("import", "all.jsonl", "--dir", "copy")
    assert answer.code == 0, answer.err
    assert made("export", "--dir", "copy").out == before
    assert made("import", "-", "--dir", "again", stdin=before).code == 0


def test_a_key_lets_a_repeated_call_get_the_first_answer(made: Cli) -> None:
    first, again = (made("create", "once", "--key", "k-1", "-q").id for _ in range(2))
    assert first == again
    assert made("list", "-q").id == first


# --- exit codes --------------------------------------------------------------------------------------------------


def code(answer: Answer) -> tuple[int, str]:
    """The exit code and the code of the error; nothing was printed as an answer."""
    assert answer.out == ""
    return answer.code, answer.error["code"]


def test_exit_codes_of_refusals(made: Cli) -> None:
    def call(line: str) -> tuple[int, str]:
        return code(made(*line.split(), "--json"))

    one, two = (made("create", f"task {n}", "-q").id for n in range(2))
    made("cell", "set", "r", "c", "1")
    assert call("cell cas r c 7 2") == (9, "VERSION_MISMATCH")
    assert call(f"update {one} --title y --expected 99") == (9, "VERSION_MISMATCH")
    assert call("cell get r nope") == (10, "NOT_FOUND")
    assert call("done hf-0000 --actor a")[0] == 10
    assert call(f"approve {one} --actor a")[0] == 11
    made("claim", one, "--actor", "a")
    assert call(f"claim {one} --actor b") == (12, "ALREADY_CLAIMED")
    made("lock", "acquire", "deploy", "--actor", "a")
    assert call("lock acquire deploy --actor b") == (12, "HELD")
    assert call("lock acquire deploy --actor b --wait 0.1")[0] in (3, 12)
    assert call(f"done {one} --actor b") == (13, "NOT_CLAIM_OWNER")
    assert call("lock release deploy --actor b") == (13, "NOT_HOLDER")
    made("dep", "add", one, two)
    assert call(f"dep add {two} {one}") == (14, "WOULD_CREATE_CYCLE")
    assert call(f"done {one} --actor a --token 1") == (15, "FENCED")
    assert call("cell set r c 1 --fence deploy:1") == (15, "FENCED")
    assert call("watch --timeout 0.05") == (3, "TIMEOUT")
    assert call("init --nonsense") == (2, "USAGE")
    assert call("nonsense") == (2, "USAGE")
    assert call("update " + one + " --priority 9") == (1, "INVALID_PRIORITY")
    assert call(f"claim {two}") == (1, "INVALID_HOLDER")
    assert call("list --url http://127.0.0.1:9") == (1, "UNAUTHORIZED"), "without a token it is not even asked"
    assert code(made("list", "--url", "http://127.0.0.1:9", "--json", HOLDFAST_TOKEN="x")) == (16, "UNREACHABLE")


@pytest.mark.parametrize(
    "line",
    [
        *("log --limit -1", f"log --limit {HUGE}", f"list --limit {HUGE}", f"list --priority {HUGE}"),
        *("prime --budget -1", f"cell set r c {HUGE}", f"watch --timeout {HUGE}", "watch --timeout -1"),
        *(
            "watch --timeout nan",
            "next --wait -1 --actor a --tag none",
            f"event list --limit {HUGE}",
            f"tree --limit {HUGE}",
        ),
        *(f"lock check l {HUGE}", f"cell at r c {HUGE}", "tree --limit -1"),
        *(f"event compact {HUGE}", f"cell cas r c {HUGE} 1", "lock acquire l --actor a --ttl -1"),
        *(f"watch --after {HUGE} --timeout 0.1", f"list --at-least {HUGE}", "list --limit 0", "log --limit 0"),
    ],
)
def test_a_number_out_of_range_is_refused_not_a_crash_or_an_empty_answer(made: Cli, line: str) -> None:
    made("cell", "set", "r", "c", "1")
    made("create", "x")
    answer = made(*line.split(), "--json")
    assert answer.code in (1, 2, 3, 9, 10, 15, 16), answer
    assert answer.out == ""
    assert answer.error["error"]


def test_a_history_that_is_gone_is_17(made: Cli) -> None:
    for n in range(4):
        made("cell", "set", "r", "c", str(n))
    assert made("event", "compact", "4").code == 0
    assert code(made("watch", "--after", "1", "--timeout", "1", "--json")) == (17, "COMPACTED")


def damage(store: Path) -> None:
    """Overwrite all but the first page."""
    content = bytearray(store.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    store.write_bytes(content)


def test_a_damaged_store_is_18_never_an_empty_list(made: Cli, project: Path) -> None:
    made("create", "x")
    damage(project / ".holdfast" / "holdfast.db")
    answer = made("list", "--json")
    assert code(answer) == (18, "CORRUPT")
    assert "restore" in answer.error["hint"]


def test_no_class_of_errors_has_an_exit_code_that_is_not_documented() -> None:
    from holdfast import errors
    from holdfast.faces.cli.topics import TOPICS

    documented = {int(number) for number in re.findall(r"(?:^|\s)(\d+)  ", TOPICS["exit-codes"])}
    classes = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]
    assert {each.exit_code for each in classes if issubclass(each, errors.HoldfastError)} <= documented
    assert {0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 130} <= documented


def test_a_command_asked_for_help_does_nothing_else(made: Cli) -> None:
    answer = made("create", "x", "--help")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("usage: holdfast create")
    assert made("list").out == ""
    assert made("run", "--task", "hf-0000", "--actor", "a", "--", "true", "--help").code == 10, (
        "behind -- it is no option"
    )


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
