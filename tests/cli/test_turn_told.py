"""`holdfast turn` tells what a person would want to know: new names, files that are not there, edits that get lost."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import turnfile
from holdfast.faces.cli.command import HAND_MADE
from holdfast.hints import TURN_COMMANDS
from tests.cli.calling import Answer

Cli = Callable[..., Answer]
EDIT = ("--holder", "ada", "--reason", "log it", "--no-wait")
SOURCE = Path(turnfile.__file__).parent


@pytest.fixture
def turn(cli: Cli) -> Cli:
    """`holdfast turn WORDS --json` where a session has been made; nothing waits."""
    assert cli("turn", "init", "--project", "kiln", "--agent", "ada,bob", "--maintainer", "mia").code == 0

    def call(*words: str, **more: str) -> Answer:
        return cli("--json", "turn", *words, **more)

    return call


def ledger(project: Path) -> turnfile.Turnfile:
    return turnfile.Session(project / "working-session").read().turnfile


def program(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


# --- names -----------------------------------------------------------------------------------------------------------

APPEND = program("open('WORKLOG.md', 'a').write('- x\\n')")


@pytest.mark.parametrize(
    "words",
    [
        ("lock", "WORKLOG.md", "--reason", "x", "--no-wait", "--holder", "adda"),
        ("transact", "WORKLOG.md", "--reason", "x", "--holder", "adda", *APPEND),
        ("mail", "send", "--from", "adda", "--to", "bob", "--subject", "x"),
        ("tasks", "add", "glaze", "Mix it", "--actor", "adda"),
    ],
    ids=lambda words: words[0],
)
def test_f3_a_name_that_the_ledger_does_not_know_joins_and_is_told(turn: Cli, project: Path, words: list[str]) -> None:
    answer = turn(*words)
    assert answer.code == 0, answer.err
    [warning] = answer.data["warnings"]
    assert "adda is new, and is added to the ledger; known: ada, bob, mia (did you mean ada?)" in warning
    assert warning in answer.err
    assert [agent.id for agent in ledger(project).agents] == ["ada", "bob", "adda"]
    again = turn("mail", "send", "--from", "ADDA", "--to", "Bob,all,MIA,maintainer", "--subject", "y")
    assert "adda was not" not in again.err + again.out


def test_f3_a_known_name_is_not_told(turn: Cli) -> None:
    answer = turn("lock", "WORKLOG.md", "--reason", "x", "--holder", "ada")
    assert (answer.data["warnings"], answer.err) == ([], "")
    assert turn("lock", "MAILBOX.md", "--reason", "x", "--holder", "maintainer").data["warnings"] == []


def test_f3_a_new_name_claims_a_task_and_is_told(turn: Cli) -> None:
    assert turn("tasks", "add", "glaze", "Mix it", "--actor", "ada").data["warnings"] == []
    [warning] = turn("tasks", "claim", "glaze", "--actor", "bbo").data["warnings"]
    assert "bbo is new, and is added to the ledger" in warning
    assert turn("tasks", "done", "glaze", "--actor", "bbo").data["warnings"] == []


def test_f11_a_receiver_whom_nobody_knows_is_told(turn: Cli) -> None:
    answer = turn("mail", "send", "--from", "ada", "--to", "bob,carl,all", "--subject", "x")
    [warning] = answer.data["warnings"]
    assert "carl is not in the ledger; known: ada, bob, mia" in warning
    assert warning in answer.err
    answer = turn("signal", "ready", "--from", "ada", "--to", "carl")
    assert "carl is not in the ledger" in answer.data["warnings"][0]
    assert turn("signal", "ready", "--from", "ada").data["warnings"] == []


def test_f3_who_holds_a_file_already_is_told_to_edit_it(turn: Cli) -> None:
    lock = turn("lock", "WORKLOG.md", "--holder", "ada", "--reason", "x").data["id"]
    again = turn("lock", "WORKLOG.md", "--holder", "ada", "--reason", "x").error["hint"]
    assert "this lock is your own: edit the file" in again
    assert f"`holdfast turn renew {lock}`" in again
    assert "all files at once" not in again
    more = turn("lock", "WORKLOG.md", "docs/README.md", "--holder", "ada", "--reason", "x").error["hint"]
    assert "all files at once" in more
    assert "ask ada" in turn("unlock", lock, "--holder", "bob").error["hint"]


@pytest.mark.parametrize("name", ["a|b", "a,b", "a*", "<a>", "`a`", "a -> b", "a → b", "a" * 81])
@pytest.mark.parametrize(
    "words",
    [
        ("lock", "WORKLOG.md", "--reason", "x", "--no-wait", "--holder"),
        ("transact", "WORKLOG.md", "--reason", "x", "--holder"),
        ("override", "LOCK-ada-001", "--reason", "P0: it is urgent", "--take", "--actor"),
        ("clear", "--actor"),
        ("tasks", "add", "glaze", "Mix it", "--actor"),
        ("tasks", "claim", "fire", "--actor"),
        ("signal", "ready", "--from"),
        ("signal", "ready", "--from", "ada", "--to"),
        ("mail", "send", "--to", "bob", "--subject", "x", "--from"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_f3_a_name_that_no_card_can_hold_does_not_enter_the_ledger(
    turn: Cli, project: Path, words: tuple[str, ...], name: str
) -> None:
    assert turn("tasks", "add", "fire", "Fire it", "--actor", "ada").code == 0
    assert turn("lock", "OPEN_QUESTIONS.md", "--reason", "x", "--holder", "ada").code == 0
    before = (project / "working-session" / "TURNFILE.yaml").read_text()
    answer = turn(*words, name, *(APPEND if words[0] == "transact" else ()))
    assert (answer.code, answer.error["code"]) == (1, "INVALID_NAME")
    assert "none of | , * < > ` and no arrow" in answer.error["hint"]
    assert (project / "working-session" / "TURNFILE.yaml").read_text() == before


# --- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "told"), [("*.md", "pattern"), ("docs/[ab].md", "pattern"), ("docs", "folder")])
def test_f3_what_is_no_file_is_not_locked(turn: Cli, project: Path, name: str, told: str) -> None:
    refused = turn("lock", name, "--reason", "x", "--holder", "ada")
    assert (refused.code, ledger(project).revision) == (1, 1)
    assert told in refused.error["error"]
    assert turn("transact", name, *EDIT, *APPEND).code == 1


def test_f3_a_file_whose_name_has_such_characters_is_a_file(turn: Cli, project: Path) -> None:
    (project / "working-session" / "a[1].md").write_text("x\n")
    assert turn("lock", "a[1].md", "--reason", "x", "--holder", "ada").code == 0


def test_f3_a_lock_on_a_file_that_is_not_there_or_needs_none_is_told(turn: Cli, project: Path) -> None:
    answer = turn("lock", "WORKLGO.md", "--reason", "x", "--holder", "ada")
    [warning] = answer.data["warnings"]
    assert "WORKLGO.md does not exist, and needs no lock (did you mean WORKLOG.md?)" in warning
    assert warning in answer.err
    (project / "working-session" / "notes.md").write_text("x\n")
    answer = turn("lock", "notes.md", "--reason", "x", "--holder", "ada")
    assert "notes.md needs no lock" in answer.data["warnings"][0]
    (project / "working-session" / "WORKLOG.md").unlink()
    locked = turn("lock", "WORKLOG.md", "--reason", "x", "--holder", "ada")
    assert "WORKLOG.md does not exist" in locked.data["warnings"][0]


def test_f3_the_ledger_says_which_files_need_a_lock(turn: Cli, project: Path) -> None:
    folder = project / "working-session"
    (folder / "plan.md").write_text("x\n")
    text = (folder / "TURNFILE.yaml").read_text()
    listed = 'workspace: "working-session/"\n  x-registry: ["plan.md", working-session/WORKLOG.md]\n'
    (folder / "TURNFILE.yaml").write_text(text.replace('workspace: "working-session/"\n', listed))
    assert turn("lint").data["problems"] == []
    code = "open('plan.md', 'a').write('- x\\n')"
    assert turn("transact", "plan.md", *EDIT, *program(code)).data["lock_id"] == "LOCK-ada-001"
    assert turn("lock", "plan.md", "--reason", "x", "--holder", "bob").data["warnings"] == []
    assert turn("transact", "plan.md", *EDIT, *program(code)).code == 12
    code = "open('docs/README.md', 'a').write('- x\\n')"
    assert turn("transact", "docs/README.md", *EDIT, *program(code)).data["lock_id"] is None
    assert turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x").data["lock_id"] == "LOCK-ada-002"


def test_f3_a_registry_that_leaves_the_folder_is_reported_and_frees_no_file(turn: Cli, project: Path) -> None:
    file = project / "working-session" / "TURNFILE.yaml"
    file.write_text(file.read_text().replace("turnfile:\n", "turnfile:\n  x-registry: [../secrets.md]\n"))
    answer = turn("lint")
    assert (answer.code, [problem["rule"] for problem in answer.data["problems"]]) == (1, ["registry"])
    written = turn("transact", "WORKLOG.md", *EDIT, *APPEND)
    assert (written.code, written.data["lock_id"]) == (0, "LOCK-ada-001")
    assert "x-registry" in written.data["warnings"][0]
    file.write_text(file.read_text().replace("[../secrets.md]", "everything"))
    assert turn("lint").code == 2


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["transact", "edit"])
@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("open('notes.md', 'w').write('x')", "notes.md"),
        ("open('MAILBOX.md', 'a').write('x'); open('a.txt', 'w')", "MAILBOX.md, a.txt"),
        ("import os; os.mkdir('docs'); open('docs/new.md', 'w').write('x')", "docs/new.md"),
        ("import os; os.symlink('/', 'root')", "root"),
    ],
)
def test_f6_what_a_program_wrote_elsewhere_is_not_lost_in_silence(
    turn: Cli, project: Path, command: str, code: str, named: str
) -> None:
    before = (project / "working-session" / "WORKLOG.md").read_text()
    refused = turn(command, "WORKLOG.md", *EDIT, *program(f"open('WORKLOG.md', 'a').write('- x\\n'); {code}"))
    assert refused.code == 1
    assert f"also wrote {named}" in refused.error["error"]
    assert f"WORKLOG.md {named.replace(',', '')}" in refused.error["hint"]
    assert (project / "working-session" / "WORKLOG.md").read_text() == before
    assert ledger(project).revision == 1


# --- one word for one thing ------------------------------------------------------------------------------------------


def test_f10_f13_check_and_lint_name_a_stale_lock_alike(turn: Cli) -> None:
    assert turn("lock", "WORKLOG.md", "--reason", "x", "--holder", "ada", "--lease-revs", "1").code == 0
    for _ in range(2):
        assert turn("signal", "ready", "--from", "bob").code == 0
    check, lint = turn("check"), turn("lint")
    assert [problem["rule"] for problem in (*check.data["problems"], *lint.data["problems"])] == ["lock-stale"] * 2
    assert (check.code, lint.code) == (1, 0)  # left uncleared it fails the check; the ledger by itself is in order


def test_f11_a_status_that_there_is_not_is_refused_with_those_that_there_are(turn: Cli) -> None:
    refused = turn("mail", "list", "--status", "unred")
    assert refused.code == 1
    assert "unread, acknowledged, actioned, blocked, deferred, closed" in refused.error["hint"]
    assert turn("mail", "list", "--status", "unread").data == []


def test_f13_the_hints_name_commands_that_exist() -> None:
    told = [
        (path.name, words)
        for path in sorted(SOURCE.rglob("*.py"))
        for words in re.findall(r"(?:holdfast |`)(turn [a-z ]+|mail [a-z]+)", path.read_text())
    ]
    told += [(call, f"turn {words}") for call, words in TURN_COMMANDS.items()]
    assert len(told) > 15
    groups = {name.rpartition(" ")[0] for name in HAND_MADE}
    assert [
        (file, words)
        for file, words in told
        if words.strip() not in groups and not any(f"{words} ".startswith(f"{name} ") for name in HAND_MADE)
    ] == []


def test_f13_a_lost_ledger_is_restored_and_no_command_sends_in_a_circle(turn: Cli, project: Path) -> None:
    (project / "working-session" / "TURNFILE.yaml").unlink()
    for words in (("status",), ("init",), ("init", "--missing"), ("lint",), ("lock", "x.md", *EDIT)):
        answer = turn(*words)
        assert answer.code in (1, 2, 10)
        hint = "the ledger is lost: restore TURNFILE.yaml from version control, or move the folder away and begin a new"
        assert answer.error["hint"] == f"{hint} session with `holdfast turn init`"
    answer = turn("check")
    assert (answer.code, "restore TURNFILE.yaml" in answer.data["problems"][0]["message"]) == (2, True)
    (project / "working-session").rename(project / "away")
    new = "`holdfast turn init` begins a session here; if there is one, go to the folder that has it"
    assert turn("status").error["hint"] == new
    (project / "working-session").mkdir()
    assert turn("status").error["hint"] == "`holdfast turn init` creates it"
    assert turn("init").code == 0
    assert "--missing" in turn("init").error["hint"]


def test_f13_a_lost_mailbox_comes_back_from_its_last_copy(turn: Cli, project: Path) -> None:
    turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "the only copy", "--body", "text")
    (project / "working-session" / "MAILBOX.md").unlink()
    made = turn("init", "--missing")
    [warning] = made.data["warnings"]
    assert "MAILBOX.json still has the old messages: `holdfast turn tidy` brings them back" in warning
    [problem] = [each for each in turn("check").data["problems"] if each["rule"] == "only-projected"]
    assert problem["message"].endswith("only this file has it; `holdfast turn tidy` brings it back")
    turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "another")
    turn("tidy", "--actor", "ada")
    assert [each["fields"]["subject"] for each in turn("mail", "list").data] == ["another", "the only copy"]
    assert turn("check").code == 0


def test_f13_a_caller_who_is_too_deep_learns_where_the_session_is(
    turn: Cli, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = project / "working-session"
    for deep in (project / "src" / "parser", session):
        deep.mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(deep)
        hint = f"there is a session in {session}: use that folder; `holdfast turn init` begins another here"
        assert turn("status").error["hint"] == hint


def test_f13_a_command_that_is_proposed_names_the_folder_too(turn: Cli, cli: Cli) -> None:
    assert "`holdfast turn init --dir 'no ne'` begins another here" in cli("turn", "status", "--dir", "no ne").err
    assert "`holdfast turn init --dir none` begins another here" in cli("--dir=none", "turn", "status").err
    assert "next: holdfast turn status --dir here" in cli("turn", "init", "--dir", "here", "--agent", "ada").out
    cli("turn", "lock", "WORKLOG.md", *EDIT, "--dir", "here")
    assert (
        "`holdfast turn unlock LOCK-ada-001 --dir here`" in cli("turn", "lock", "WORKLOG.md", *EDIT, "--dir=here").err
    )
    for _ in range(3):
        cli("turn", "signal", "ready", "--from", "ada", "--dir", "here")
    for words in (("check",), ("lint",), ("status",)):
        assert "`holdfast turn clear --dir here`" in cli("turn", *words, "--dir", "here").out
    [problem] = cli("turn", "check", "--dir", "here", "--json").data["problems"]
    assert "`holdfast turn clear --dir here` removes it" in problem["message"]
    assert (
        "`holdfast turn tasks list --all --dir here`"
        in cli("turn", "tasks", "claim", "x", "--actor", "ada", "--dir", "here").err
    )


def test_f13_a_text_of_a_file_is_not_taken_for_a_hint(turn: Cli, project: Path) -> None:
    file = project / "working-session" / "MAILBOX.md"
    file.write_text(file.read_text().replace("| bob | 0 |", '| bob | wait=60 tasks.claim("x") |'))
    found = [problem["message"] for problem in turn("check").data["problems"]]
    assert any('wait=60 tasks.claim("x")' in message for message in found), found


def test_a_broken_ledger_gets_a_hint(turn: Cli, project: Path) -> None:
    with open(project / "working-session" / "TURNFILE.yaml", "a") as file:
        file.write("  : [\n")
    refused = turn("status").error
    assert (
        "repair that line, or one just above it, in an editor, or restore TURNFILE.yaml from version control"
        in refused["hint"]
    )


def test_f11_an_empty_body_is_told(turn: Cli) -> None:
    message = ("mail", "send", "--to", "bob", "--subject", "x", "--actor", "ada")
    assert turn(*message, "--body", "-").err == "holdfast: the body of this message is empty\n"
    assert turn(*message).err == "", "a subject may be all there is to say"


def test_f6_a_patch_that_is_not_there_is_named_as_a_file(turn: Cli) -> None:
    answer = turn("edit", "--patch", "nope", *EDIT)
    assert (answer.code, answer.error["error"]) == (10, "there is no file nope")


def test_f8_help_says_what_the_reason_of_an_override_is(cli: Cli) -> None:
    assert "starts with P0 and says what is at stake" in cli("help", "turn", "override").out


# --- tasks and leases ------------------------------------------------------------------------------------------------


def test_f13_a_task_that_nobody_has_claimed_is_claimed_first(turn: Cli) -> None:
    assert turn("tasks", "add", "glaze", "Mix the glaze", "--actor", "ada").code == 0
    refused = turn("tasks", "done", "glaze", "--actor", "ada")
    assert (refused.error["code"], refused.error["error"]) == ("NOT_HOLDER", "nobody has claimed glaze")
    assert refused.error["hint"] == "claim it first: `holdfast turn tasks claim glaze`"
    assert turn("tasks", "done", "glaze", "--actor", "mia").code == 0  # a maintainer need not
    assert "owned by unassigned" in turn("tasks", "done", "glaze", "--actor", "ada").error["error"]


def test_f13_a_task_is_added_by_anybody(turn: Cli, project: Path) -> None:
    task = turn("tasks", "add", "glaze", "Mix the glaze", "--actor", "ada").data
    assert (task["status"], task["owner"], task["priority"]) == ("pending", "unassigned", "P1")
    assert (task["created_by"], task["created_rev"], ledger(project).revision) == ("ada", 2, 2)
    fire = ("tasks", "add", "fire", "Fire it", "--priority", "P0", "--depends-on", "glaze", "--actor", "bob")
    assert turn(*fire).data["depends_on"] == ["glaze"]
    assert turn(*fire).error["code"] == "EXISTS"
    assert turn("tasks", "claim", "fire", "--actor", "ada").code == 11
    for words in (("x", "y", "--depends-on", "clay"), ("x", "y", "--priority", "P9"), ("x", "y\nz"), (" ", "y")):
        assert turn("tasks", "add", *words, "--actor", "ada").code in (1, 10), words
    assert (ledger(project).revision, turn("lint").data["problems"]) == (3, [])


def test_f3_renew_without_an_id_renews_all_of_ones_own_in_one_write(turn: Cli, project: Path) -> None:
    for name, holder in (("WORKLOG.md", "ada"), ("MAILBOX.md", "ada"), ("OPEN_QUESTIONS.md", "bob")):
        assert turn("lock", name, "--holder", holder, "--reason", "x").code == 0
    renewed = turn("renew", "--holder", "ada").data
    assert [(lock["id"], lock["acquired_rev"]) for lock in renewed] == [("LOCK-ada-001", 5), ("LOCK-ada-002", 5)]
    assert [lock.acquired_rev for lock in ledger(project).locks] == [5, 5, 4]
    assert turn("renew", "LOCK-bob-001", "--holder", "ada").code == 13
    assert turn("renew", "LOCK-ada-001", "LOCK-bob-001", "--holder", "ada").code == 13
    refused = turn("renew", "--holder", "mia")
    assert (refused.code, ledger(project).revision) == (10, 5)


# --- files that nobody edits, and files that cannot be read ----------------------------------------------------------

OWN = [".TURNFILE.lock", ".TURNFILE.journal", ".turn-1.tmp", ".turnfile.LOCK", "docs/../.TURNFILE.lock"]


@pytest.mark.parametrize("name", OWN)
def test_f2_the_files_that_writers_take_turns_by_are_never_edited(turn: Cli, project: Path, name: str) -> None:
    folder = project / "working-session"
    before = {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir() if path.is_file()}
    for words in (("transact", name, *EDIT, *program("pass")), ("lock", name, *EDIT)):
        answer = turn(*words)
        assert (answer.code, answer.error["code"]) == (1, "INVALID")
        assert "internal file" in answer.err
    assert {path.name: (path.stat().st_ino, path.read_bytes()) for path in folder.iterdir() if path.is_file()} == before


def test_f10_a_file_that_is_no_text_is_told_and_hides_nothing(turn: Cli, project: Path) -> None:
    folder = project / "working-session"
    (folder / "WORKLOG.md").write_bytes(b"# Worklog \xff\n")
    (folder / "OPEN_QUESTIONS.md").unlink()
    (folder / "OPEN_QUESTIONS.md").symlink_to("WORKLOG.md")
    (folder / "MAILBOX.json").write_text("{}")
    answer = turn("check")
    assert answer.code == 1
    found = {(each["file"], each["rule"]) for each in answer.data["problems"]}
    assert found >= {
        ("WORKLOG.md", "unreadable"),
        ("OPEN_QUESTIONS.md", "unreadable"),
        ("MAILBOX.json", "projection-stale"),
    }
    status = turn("status")
    assert (status.code, len(status.data["problems"])) == (0, 3)
    assert turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x").code == 0  # which needs neither
    assert turn("check").code == 1


def test_f12_a_lost_projection_is_made_from_the_mailbox(turn: Cli, project: Path) -> None:
    assert turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x").code == 0
    (project / "working-session" / "MAILBOX.json").unlink()
    assert turn("init", "--missing").data["files"] == ["MAILBOX.json"]
    assert turn("check").data["problems"] == []


def test_f3_a_registered_file_that_is_not_there_is_told(turn: Cli, project: Path) -> None:
    path = project / "working-session" / "TURNFILE.yaml"
    path.write_text(path.read_text().replace("turnfile:\n", 'turnfile:\n  x-registry: ["WORKLOG.md", "WORKLOOG.md"]\n'))
    answer = turn("check")
    [problem] = answer.data["problems"]
    assert (answer.code, problem["rule"], problem["level"]) == (0, "registry", "warning")
    assert "WORKLOOG.md" in problem["message"]
    [warning] = turn("lock", "WORKLOOG.md", *EDIT).data["warnings"]
    assert "WORKLOOG.md does not exist" in warning
    assert "--missing" not in warning  # which does not make it


def test_f11_a_closed_card_that_was_kept_is_listed_only_by_its_status(turn: Cli) -> None:
    sent = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x").data["id"]
    assert turn("mail", "close", sent, "--actor", "ada", "--keep", "a lesson").code == 0
    assert turn("mail", "list").data == []
    assert [each["id"] for each in turn("mail", "list", "--status", "closed").data] == [sent]


def test_f9_a_subject_cannot_turn_the_text_around_it(turn: Cli) -> None:
    answer = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "paid \u202e000,1")
    assert (answer.code, answer.error["code"]) == (1, "INVALID_VALUE")


def test_f6_without_a_terminal_no_editor_is_guessed(turn: Cli) -> None:
    answer = turn("edit", "WORKLOG.md", *EDIT, VISUAL="", EDITOR="")
    assert answer.code == 2
    assert "--editor" in answer.error["hint"]


def test_f10_an_id_that_is_archived_is_never_given_again(turn: Cli, project: Path) -> None:
    sent = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x").data["id"]
    assert turn("mail", "close", sent, "--actor", "ada").code == 0
    (project / "working-session" / "MAILBOX.md").unlink()
    answer = turn("init", "--missing")
    assert "turn tidy" in answer.err
    again = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "y").data["id"]
    assert (sent[-3:], again[-3:]) == ("001", "002")
    reply = turn("mail", "reply", again, "--actor", "bob", "--body", "z").data["id"]
    assert reply.endswith("-003")


@pytest.mark.parametrize("name", ["MAILBOX.md", "OPEN_QUESTIONS.md", "MAILBOX.json"])
def test_f8_a_file_that_is_no_text_does_not_stop_an_override(turn: Cli, project: Path, name: str) -> None:
    held = turn("lock", "MAILBOX.md", "OPEN_QUESTIONS.md", *EDIT).data["id"]
    (project / "working-session" / name).write_bytes(b"\xff")
    answer = turn("override", held, "--reason", "P0: it is broken", "--actor", "bob")
    assert answer.code == 0, answer.err
    assert ("unreadable", name) in {(each["rule"], each["file"]) for each in answer.data["problems"]}
    assert ledger(project).locks == ()
    assert held in (project / "working-session" / "WORKLOG.md").read_text()


def test_f8_an_override_that_cannot_be_logged_is_refused(turn: Cli, project: Path) -> None:
    held = turn("lock", "OPEN_QUESTIONS.md", *EDIT).data["id"]
    (project / "working-session" / "WORKLOG.md").write_bytes(b"\xff")
    answer = turn("override", held, "--reason", "P0: release", "--actor", "bob")
    assert (answer.code, "logged in WORKLOG.md" in answer.error["hint"]) == (1, True)
    assert [each.id for each in ledger(project).locks] == [held]


def test_f6_without_an_id_no_lock_of_a_transaction_is_given_back(turn: Cli, project: Path) -> None:
    session = turnfile.Session(project / "working-session")
    by_hand = turn("lock", "WORKLOG.md", *EDIT).data["id"]
    with turnfile.transaction(["OPEN_QUESTIONS.md"], "ada", "x", folder=session) as edit:
        edit.write("OPEN_QUESTIONS.md", (edit.read("OPEN_QUESTIONS.md") or "") + "\n")
        assert [each["lock_id"] for each in turn("unlock", "--holder", "ada").data] == [by_hand]
        answer = turn("unlock", "--holder", "ada")
        assert (answer.code, "name the id" in answer.error["hint"]) == (10, True)
    assert edit.completion is not None


def test_f5_who_lost_yields_with_its_next_edit(turn: Cli, project: Path) -> None:
    first = turn("lock", "WORKLOG.md", *EDIT, "--lease-revs", "9").data["id"]
    path = project / "working-session" / "TURNFILE.yaml"
    text = path.read_text()
    start = text.index(f"  {first}:")
    entry = text[start : text.index("turn_queue:")].rstrip() + "\n"
    path.write_text(text.replace(entry, entry + entry.replace(first, "LOCK-bob-001").replace('"ada"', '"bob"')))
    assert len(ledger(project).locks) == 2
    answer = turn("transact", "WORKLOG.md", "--holder", "bob", "--reason", "x", "--no-wait", *APPEND)
    assert (answer.code, answer.error["code"], answer.error["details"]["lock_id"]) == (12, "HELD", first)
    assert [each.id for each in ledger(project).locks] == [first]


def test_r8_all_files_of_a_message_are_shown(turn: Cli, cli: Cli, project: Path) -> None:
    for name in ("one.md", "two.md", "three.md"):
        (project / name).write_text(name)
    files = [word for name in ("one.md", "two.md", "three.md") for word in ("--attach", name)]
    sent = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "files", "--body", "x", *files).data["id"]
    mailbox = project / "working-session" / "MAILBOX.md"
    mailbox.write_text(mailbox.read_text().replace("**Payload:** two.md sha256:", "**Payload:** two.md sha256:x"))
    shown = cli("turn", "mail", "show", sent).out.splitlines()
    assert [line.split()[1] for line in shown if line.startswith("  file:")] == ["one.md", "three.md", "two.md"]
    assert turn("mail", "verify", sent).code == 1


@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_f10_tidy_does_not_say_that_all_is_in_order_where_it_cannot_read(
    turn: Cli, cli: Cli, project: Path, dry: list[str]
) -> None:
    (project / "working-session" / "MAILBOX.md").write_bytes(b"\xff")
    told = cli("turn", "tidy", "--actor", "ada", *dry)
    assert told.code == 1
    assert "is not UTF-8" in told.out
    assert told.out.splitlines()[-1] == "nothing here that tidy can repair"
