"""What scripts rely on (issue 7): the JSON envelope, and an exit code for every kind of refusal."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from holdfast.faces.cli.args import options_of
from holdfast.faces.cli.call import GLOBAL
from holdfast.faces.cli.command import all_commands
from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]
HUGE = "9" * 30


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


def test_an_export_to_a_dash_goes_to_standard_output(made: Cli, project: Path) -> None:
    made("create", "x")
    before = sorted(project.iterdir())
    assert made("export", "-").out == made("export").out != ""
    assert sorted(project.iterdir()) == before


def test_an_import_counts_what_it_leaves_out(made: Cli, project: Path) -> None:
    made("create", "x")
    assert made("export", "one.jsonl").out == "1 task in one.jsonl\n"
    assert made("import", "-", "--format", "holdfast", stdin="junk\n").err.startswith(
        "holdfast: 1 line cannot be imported\nline 1: error: "
    )
    skipped = made("import", "-", "--format", "holdfast", "--skip-bad", stdin="junk\n[]\n")
    assert (skipped.code, skipped.out.splitlines()[0]) == (0, "2 lines skipped")
    would = made("import", "-", "--format", "holdfast", "--skip-bad", "--dry-run", stdin="junk\n")
    assert would.out.startswith("1 line would be skipped\n")
    assert "it is neither JSON nor a CSV" in made("import", "-", stdin="junk\n").err
    again = made("import", "one.jsonl", "--dir", "copy")
    assert again.out == "created: 1 task\n"
    made("update", made("list", "-q").id, "--title", "y")
    made("update", made("list", "-q").id, "--title", "z", "--dir", "copy")
    made("export", "two.jsonl")
    left = made("import", "two.jsonl", "--dir", "copy")
    assert (left.code, left.out.splitlines()[0]) == (9, "1 conflict")
    assert made("import", "-", stdin="\n").out == "nothing to import\n"


def test_an_import_that_leaves_a_conflict_alone_is_no_success_unless_told_which_side_wins(made: Cli) -> None:
    made("create", "x")
    made("export", "one.jsonl")
    made("import", "one.jsonl", "--dir", "copy")
    id = made("list", "-q").id
    made("update", id, "--title", "y")
    made("update", id, "--title", "z", "--dir", "copy")
    made("create", "new")
    made("export", "two.jsonl")
    there = ("import", "two.jsonl", "--dir", "copy")
    for more in ((), ("--atomic",)):
        assert made(*there, "--dry-run", "--json", *more).code == 9
    left = made(*there)
    assert left.code == 9
    assert left.err == (
        "holdfast: 1 in conflict; import --prefer theirs takes those in the file, --prefer ours keeps those here\n"
    )
    assert "created: 1 task" in left.out, "the others are imported"
    kept = made(*there, "--prefer", "ours", "--json")
    assert (kept.code, [each["id"] for each in kept.data["conflicts"]]) == (0, [id])
    taken = made(*there, "--prefer", "theirs", "--json")
    assert (taken.code, taken.data["conflicts"], taken.data["updated"]["tasks"]) == (0, [], [id])
    assert made(*there).code == 0


def test_a_task_claimed_here_stays_in_conflict_until_the_claim_ends(made: Cli) -> None:
    id = made("create", "x", "-q").id
    made("export", "one.jsonl")
    made("import", "one.jsonl", "--dir", "copy")
    made("claim", id, "--actor", "a")
    made("done", id, "--actor", "a")
    made("export", "two.jsonl")
    made("claim", id, "--dir", "copy", "--actor", "b")
    there = ("import", "two.jsonl", "--dir", "copy", "--prefer", "theirs")
    left = made(*there)
    assert (left.code, left.err) == (
        9,
        "holdfast: 1 in conflict; they are claimed here: import again when the claims have ended\n",
    )
    made("release", id, "--dir", "copy", "--actor", "b")
    assert made(*there).code == 0


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


def test_no_command_that_writes_to_a_workspace_hides_a_common_option() -> None:
    """The advice to repeat a write names `--key`, which must mean the same in each of them."""
    words = ("--key", "--fence", "--at-least", "--url", "--json", "--quiet", "--actor", "-q", "-v", "-h")
    commands = all_commands()
    hidden = {
        (each.name, name)
        for each in commands
        for name in words
        if options_of(each.arguments, GLOBAL)[name] not in GLOBAL
    }
    # Filters of reads, and the agent that a token is for.
    filters = {(name, "--actor") for name in ("event list", "event refusals", "log", "path check", "token create")}
    assert hidden == filters
    folders = {each.name for each in commands if options_of(each.arguments, GLOBAL)["--dir"] not in GLOBAL}
    files = {"cycle export", "cycle import", "cycle old-keys"}  # the other folder; the workspace's comes before
    assert {name for name in folders if not name.startswith("turn ")} == files


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
        *(f"event compact {HUGE} --yes", f"cell cas r c {HUGE} 1", "lock acquire l --actor a --ttl -1"),
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
    assert made("event", "compact", "4", "--yes").code == 0
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
    from holdfast.faces.cli.commands.help import TOPICS

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


def test_help_fits_a_terminal_of_80_columns(made: Cli) -> None:
    from holdfast.faces.cli.command import PURPOSES, all_commands
    from holdfast.faces.cli.commands.help import TOPICS

    for topic in ("", *TOPICS, *PURPOSES, *(each.name for each in all_commands())):
        lines = made("help", *topic.split()).out.splitlines()
        assert lines
        assert [line for line in lines if len(line) > 80] == [], topic


# --- what a mistake is told ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("task", "--help"), "holdfast create, list, show, claim"),
        (("tasks", "list"), "holdfast create, list, show, claim"),
        (("txn", '[{"if": "nope"}]', "[]"), '"not_exists", "version_equals" with "version"'),
        (("txn", '[{"if": "exists", "kind": "cell", "key": "x"}]', "[]"), "the key of a cell is [run, cell], not 'x'"),
        (("txn", "[]", '[{"op": "cells.set", "args": {"run": "r"}}]'), "its args are run, cell, value, ttl, lease"),
        (("event", "list", "--limit", "5000"), "--after CURSOR"),
        (("bulk", "create"), """--tasks '[{"title": "One"}]'"""),
        (("template", "set", "t", '{"titel": "x"}'), "title, body, type, priority, tags, grimoire_hint, key,"),
        (("template", "set", "t", '{"title": "{v}"}'), """--parameters '{"v": null}'"""),
        (("list", "--dir", "http://localhost:1"), "--url http://localhost:1"),
        (("init", "--dir", "http://localhost:1"), "--url http://localhost:1"),
    ],
)
def test_a_mistake_is_told_what_can_be_typed_instead(
    made: Cli, project: Path, line: tuple[str, ...], told: str
) -> None:
    answer = made(*line)
    assert answer.code != 0
    assert told in answer.err, answer.err
    assert not (project / "http:").exists()


def test_the_help_of_txn_has_every_condition(made: Cli) -> None:
    text = made("help", "txn").out
    assert [each for each in ("exists", "not_exists", "version_equals", "value_equals") if each not in text] == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("path unlock src", "did you mean path release?"),
        ("cell release r x", "did you mean cell unlock?"),
        ("mail send bob hi --from ann", "the sender is --actor"),
        ("mail --actor ann inbox", "needs a subcommand before --actor"),
        ("update hf-1 --status open", "the status changes with holdfast done"),
        ("cell cas r x 9 5", "holdfast cell cas r x none VALUE creates it"),
        ("cell compare-and-delete r x 9", "there is nothing to delete"),
        ("export --out x.jsonl", "the file is a plain word: holdfast export FILE"),
        ("agent register", "this needs the name of the agent"),
        ("restore nope --dir new", "`holdfast restore` without a file lists the backups"),
        ("cell set r x hello", "'hello' is not JSON: text needs double quotes"),
        ("cell set r x txt", "'txt' is not JSON: text needs double quotes"),
        ("cell set r x True", "'True' is not JSON: JSON has true, false and null"),
        ("cell set r x [1,", "'[1,' is not JSON: Input data was truncated"),
        ("update hf-1", "give --title, --body, --priority, --type or --hint"),
        ("update hf-1 --expected 3", "holdfast update needs something to change"),
        ("show hf-1", "holdfast list lists the tasks"),
    ],
)
def test_a_mistake_is_answered_with_what_was_meant(made: Cli, line: str, told: str) -> None:
    answer = made(*line.split())
    assert answer.code != 0
    assert told in answer.err


def test_mail_to_a_name_that_nobody_has_is_sent_with_a_warning(made: Cli) -> None:
    for name in ("ada", "ben"):
        assert made("agent", "register", name).code == 0
    told = "holdfast: bne has not been seen here; known: ada, ben (did you mean ben?)\n"
    sent = made("mail", "send", "bne", "x", "y", "--actor", "ada", "-q")
    assert (sent.code, sent.err) == (0, told)
    assert made("mail", "send", "ben,bne", "x", "y", "--actor", "ada", "--json").err == told
    assert made("mail", "reply", sent.id, "y", "--actor", "ada").err == told, "it goes to the same"
    for names in ("ben", "*", "ada"):
        assert made("mail", "send", names, "x", "y", "--actor", "ada").err == ""


def test_a_routing_file_with_an_error_fails_the_check_and_one_with_warnings_does_not(made: Cli, project: Path) -> None:
    file = project / ".holdfast" / "grimoire-matchers.yaml"
    assert made("route", "check").code == 0
    file.write_text("matchers:\n  - {grimoire: g, match: {type: bug}, colour: red}\n")
    assert (made("route", "check").code, made("route", "reload").code) == (0, 0)
    file.write_text("matchers:\n  - {grimoire: g, match: {any_tag: [a]}}\n")
    for words in (("route", "check"), ("route", "check", "--json"), ("route", "reload"), ("route", "reload", "--json")):
        answer = made(*words)
        assert (answer.code, "any_tags" in answer.out) == (1, True), words
    assert made("create", "x").code == 0
    assert made("route", "decide", '{"title": "x", "type": "bug"}', "--json").data["selected_grimoire"] == "g"


def test_bringing_back_what_is_not_deleted_is_no_failure_but_is_told(made: Cli) -> None:
    task = made("create", "x", "-q").id
    answer = made("undelete", task)
    assert (answer.code, answer.err) == (0, f"holdfast: task {task} is not deleted, so nothing was restored\n")
    made("delete", task)
    assert made("undelete", task).err == ""
    assert made("undelete", "hf-none").code == 10


def test_who_cannot_do_something_is_told_what_works(made: Cli) -> None:
    task, other = made("create", "x", "-q").id, made("create", "y", "-q").id
    assert made("claim", task, "--actor", "ben").code == 0
    for words in (("cancel", task), ("delete", task), ("release", task)):
        assert f"ben holds it: ask ben by mail; holdfast release {task} --force" in made(*words, "--actor", "ada").err
    made("lock", "acquire", "d", "--actor", "ben")
    assert "ask ben by mail, or wait" in made("lock", "release", "d", "--actor", "ada").err
    assert "name another task" in made("dep", "add", task, task).err
    assert made("dep", "add", other, task).code == 0
    assert f"holdfast dep remove {other} {task}" in made("dep", "add", task, other).err


def test_show_says_what_a_task_waits_for_only_while_it_does(made: Cli) -> None:
    task, first, second = (made("create", title, "-q").id for title in ("task", "first", "second"))
    for each in (first, second):
        made("dep", "add", task, each)
    made("claim", first, "--actor", "a")
    made("done", first, "--actor", "a")
    told = made("show", task).out
    assert f"  waits for  {second}  open  second\n" in told
    assert f"  waited for {first}  closed  first\n" in told


def test_releasing_what_nobody_holds_is_no_failure_but_is_told(made: Cli) -> None:
    answer = made("lock", "release", "nope", "--actor", "ann")
    assert answer == (0, "", "holdfast: nobody holds nope, so nothing was released\n")
    assert made("lock", "release", "nope", "--actor", "ann", "--json").err == ""


def test_after_a_wait_in_vain_nobody_is_told_to_wait_as_if_they_had_not(made: Cli) -> None:
    assert made("lock", "acquire", "m", "--actor", "ann").code == 0
    assert "wait for it with --wait SECONDS" in made("lock", "acquire", "m", "--actor", "bob").err
    waited = made("lock", "acquire", "m", "--actor", "bob", "--wait", "0.1").err
    assert "still held after 0.1 s: wait longer with --wait SECONDS" in waited


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("path release lib/**", "there is no path lock with the id or pattern lib/**, so nothing was released"),
        ("path release 123", "there is no path lock with the id or pattern 123, so nothing was released"),
        ("path release", "ann holds no path locks, so nothing was released"),
        ("agent forget ghost", "there is no agent ghost, so nothing was forgotten"),
        ("cell delete run-1 nope", "there is no cell run-1 nope, so nothing was deleted"),
        ("cell delete-run run-1", "the run run-1 has no cells, so nothing was deleted"),
        ("cell refresh-ttl run-1 nope 60", "there is no cell run-1 nope, so nothing was changed"),
        ("cell unlock run-1 nope", "nobody holds run-1 nope, so nothing was released"),
        ("template delete nope", "there is no template nope, so nothing was deleted"),
    ],
)
def test_what_changes_nothing_is_no_failure_but_is_told(made: Cli, line: str, told: str) -> None:
    answer = made(*line.split(), "--actor", "ann")
    assert (answer.code, answer.err) == (0, f"holdfast: {told}\n")
    assert made(*line.split(), "--actor", "ann", "--json").err == ""


def test_removing_a_link_or_tag_that_is_not_there_is_told(made: Cli) -> None:
    one, two = (made("create", title, "-q").id for title in ("one", "two"))
    wrong = f"holdfast: {two} does not depend on {one}, so nothing was removed"
    assert made("dep", "remove", two, one).err == f"{wrong}\n"
    made("dep", "add", one, two)
    reverse = f"; {one} depends on {two}: holdfast dep remove {one} {two} removes that\n"
    answer = made("dep", "remove", two, one)
    assert (answer.code, answer.err) == (0, wrong + reverse)
    other = made("dep", "remove", one, two, "--kind", "related")
    assert other.err == f"holdfast: {one} has no link related to {two}, so nothing was removed\n"
    assert made("dep", "remove", one, two).err == ""
    made("tag", "add", one, "here")
    assert made("tag", "remove", one, "x").err == f"holdfast: {one} has no tag x, so nothing was removed\n"
    assert (
        made("tag", "remove", one, "here", "x").err
        == f"holdfast: {one} has no tag x, so only the others were removed\n"
    )
    trail = made("trail", "create", "t", "-q").id
    assert made("trail", "remove", trail, one).err == (
        f"holdfast: task {one} does not belong to the trail {trail}, so nothing was removed\n"
    )


def test_a_path_lock_is_named_by_its_pattern_from_the_current_folder(
    made: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = ("--actor", "ann")
    lock = made("path", "lock", "sub/lib/**", "--ttl", "60", *ann, "-q").id
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert made("path", "get", "lib/**", "-q").id == made("path", "get", lock, "-q").id == lock
    assert made("path", "refresh", "lib/**", *ann, "-q").id == lock
    assert made("path", "release", "lib/**", *ann) == (0, "released 1 path lock\n", "")
    lost = made("path", "refresh", "lib/**", *ann)
    assert (lost.code, lost.err.splitlines()[0]) == (
        15,
        "holdfast: ann holds no path lock with the id or pattern 'sub/lib/**'",
    )
    assert "holdfast path list lists the locks that are held; if ann had it, it was lost" in lost.err


def test_an_option_that_resembles_none_gets_no_suggestion(made: Cli) -> None:
    assert "did you mean" not in made("export", "--opt", "x").err
    assert "did you mean --priority?" in made("list", "--prio", "3").err
    assert "did you mean --actor?" in made("turn", "tasks", "add", "T1", "first", "--holder", "ada").err


def test_an_export_is_no_backup_and_needs_its_folder(made: Cli, project: Path) -> None:
    answer = made("export", "sub/x.jsonl")
    assert (answer.code, answer.err) == (10, f"holdfast: there is no folder {project}/sub\n  make it first\n")
    assert made("export", "x.jsonl").code == 0
    told = "`holdfast restore` without a file lists the backups; holdfast import reads an export\n"
    assert made("restore", "x.jsonl", "--dir", "new").err.endswith(told)


# --- refusals that newcomers meet ------------------------------------------------------------------------------------


def test_words_that_a_command_has_no_place_for_are_named_with_what_it_takes(made: Cli) -> None:
    assert "holdfast list takes only options, not also 'open'" in made("list", "open").err
    assert "holdfast claim takes only ID, not also 'hf-b'" in made("claim", "hf-a", "hf-b").err
    assert "put quotes around a text of several words" in made("done", "hf-a", "fixed", "it").err


def test_next_says_whether_other_tasks_are_ready(made: Cli) -> None:
    assert made("next", "--tag", "web", "--actor", "ada").err == "holdfast: nothing is ready: there are no tasks yet\n"
    made("create", "x", "--tag", "api")
    answer = made("next", "--tag", "web", "--actor", "ada")
    assert (answer.code, answer.out) == (4, "")
    assert answer.err == "holdfast: no ready task fits the filters; holdfast ready lists every ready task\n"


def test_a_reason_reads_as_a_sentence(made: Cli) -> None:
    task = made("create", "x", "-q").id
    made("claim", task, "--actor", "ada")
    assert re.search(
        rf"^{task} is not ready: it has been claimed by ada for \d+ s, held for another 30 min$",
        made("explain", task).out,
    )


def test_a_file_is_not_a_folder_to_make_a_workspace_in(made: Cli, tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("")
    answer = made("list", "--dir", str(tmp_path / "tasks.jsonl"))
    assert "is a file (--dir)" in answer.err
    assert "init" not in answer.err


# --- Ctrl-C ----------------------------------------------------------------------------------------------------------

_INTERRUPTED_AT: Final = """
import os, runpy, signal, sys
left = [{name!r}]
def interrupt(event, arguments):
    if event == "import" and arguments[0] in left:
        left.clear()
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
sys.argv = ["holdfast", "list"]
{before}
runpy.run_module("holdfast", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["holdfast.faces", "holdfast.faces.cli", "holdfast.faces.cli.relay", "msgspec"])
def test_ctrl_c_while_a_command_is_loaded_ends_it_without_a_word(shell: Shell, name: str) -> None:
    code = _INTERRUPTED_AT.format(name=name, before="")
    assert shell.run([sys.executable, "-c", code]) == (130, "", "")


def test_a_command_that_ignores_ctrl_c_goes_on(shell: Shell) -> None:
    """As one in the background of a shell does."""
    assert shell("init").code == 0
    shell("create", "x")
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = _INTERRUPTED_AT.format(name="holdfast.faces.cli.relay", before=ignored)
    answer = shell.run([sys.executable, "-c", code])
    assert (answer.code, answer.err, len(answer.out.splitlines())) == (0, "", 1)
