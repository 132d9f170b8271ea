"""`holdfast turn`: turn files at a shell. What the files then say is tested in tests/turnfile."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import turnfile
from tests.cli.calling import Answer, Shell

Cli = Callable[..., Answer]
MADE = ("turn", "init", "--project", "kiln", "--agent", "ada,bob", "--maintainer", "mia")


@pytest.fixture
def turn(cli: Cli) -> Cli:
    """`holdfast turn WORDS --json` where a session has been made; nothing waits."""
    assert cli(*MADE).code == 0

    def call(*words: str, **more: str) -> Answer:
        return cli("--json", "turn", *words, **more)

    return call


def ledger(project: Path) -> turnfile.Turnfile:
    return turnfile.Session(project / "working-session").read().turnfile


def locked(turn: Cli, *files: str, holder: str = "ada", lease: int = 2) -> str:
    answer = turn("lock", *files, "--holder", holder, "--reason", "work", "--lease-revs", str(lease), "--no-wait")
    assert answer.code == 0, answer.err
    return str(answer.data["id"])


def sent(turn: Cli, *more: str) -> str:
    answer = turn("mail", "send", "--from", "bob", "--to", "ada", "--subject", "Which glaze?", *more)
    assert answer.code == 0, answer.err
    return str(answer.data["id"])


# --- the folder ------------------------------------------------------------------------------------------------------


def test_f13_turn_needs_no_workspace_and_loads_none(shell: Shell, project: Path) -> None:
    assert shell(*MADE).code == 0
    for line in ("status", "mail list", "mail send --from ada --to bob --subject hi", "check"):
        code = (
            "import sys; from holdfast.faces.cli import main; main(['turn', *sys.argv[1:]]);"
            "print(*(name for name in sys.modules if name in ('apsw', 'asyncio', 'httpx')"
            " or name.startswith(('holdfast.kernel', 'holdfast.domains', 'holdfast.workspace'))), file=sys.stderr)"
        )
        answer = shell.run([sys.executable, "-c", code, *line.split()])
        assert (answer.code, answer.err.strip()) == (0, ""), line
    assert not (project / ".holdfast").exists()


def test_f13_what_reads_no_ledger_loads_no_yaml(shell: Shell) -> None:
    assert shell(*MADE).code == 0
    code = (
        "import sys; from holdfast.faces.cli import main; main(['turn', 'mail', 'show', 'MSG-20260101-001']);"
        "print('ruamel' in sys.modules)"
    )
    assert shell.run([sys.executable, "-c", code]).out == "False\n"


def test_f13_the_folder_is_an_option_a_variable_or_the_usual_one(cli: Cli, project: Path) -> None:
    assert cli("turn", "init", "--dir", "session-1", "--json").data["folder"] == str(project / "session-1")
    assert cli("turn", "init", HOLDFAST_TURN_DIR="session-2").code == 0
    assert cli(*MADE).code == 0
    assert sorted(path.name for path in project.iterdir()) == ["session-1", "session-2", "working-session"]

    def project_of(*words: str, **more: str) -> str:
        return str(cli(*words, "--json", **more).data["project"])

    assert project_of("turn", "status") == "kiln"
    assert project_of("turn", "status", "--dir", "session-1") == "project"
    assert project_of("--dir", "session-1", "turn", "status", HOLDFAST_TURN_DIR="working-session") == "project"
    assert project_of("turn", "status", HOLDFAST_TURN_DIR=str(project / "session-2")) == "project"


def test_f13_init_overwrites_nothing(turn: Cli, project: Path) -> None:
    before = (project / "working-session" / "TURNFILE.yaml").read_bytes()
    answer = turn("init")
    assert (answer.code, answer.error["code"]) == (1, "EXISTS")
    assert (project / "working-session" / "TURNFILE.yaml").read_bytes() == before


@pytest.mark.parametrize("option", ["--url http://x", "--key k", "--fence a:1", "--at-least 3"])
def test_f13_options_of_workspaces_have_no_place(turn: Cli, option: str) -> None:
    answer = turn("status", *option.split())
    assert (answer.code, answer.error["code"]) == (2, "USAGE")


def test_f3_the_copy_of_a_linked_worktree_is_warned_about(shell: Shell, repository: Path, tmp_path: Path) -> None:
    assert shell(*MADE).code == 0
    shell.git("add", ".")
    shell.git("commit", "-q", "-m", "session")
    shell.git("worktree", "add", "-q", str(tmp_path / "linked"))
    there = shell.at(tmp_path / "linked")
    assert "linked git worktree" in there("turn", "status").err
    main = there.with_(HOLDFAST_TURN_WORKTREE="main")("turn", "status", "--json")
    assert (main.data["folder"], main.err) == (str(repository / "working-session"), "")


def test_f10_a_mailbox_that_vanished_is_an_error_and_init_brings_it_back(turn: Cli, cli: Cli, project: Path) -> None:
    sent(turn)
    folder = project / "working-session"
    for name in ("MAILBOX.md", "docs/README.md"):
        (folder / name).unlink()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    answer = turn("check")
    (problem,) = answer.data["problems"]
    assert (answer.code, problem["file"], problem["rule"]) == (1, "MAILBOX.md", "missing")
    assert "turn init --missing" in problem["message"]
    assert "there is no MAILBOX.md" in cli("turn", "status").out
    assert turn("init").code == 1
    answer = turn("init", "--missing")
    assert (answer.code, answer.data["files"], answer.data["revision"]) == (0, ["MAILBOX.md", "docs/README.md"], 3)
    assert {path: path.read_bytes() for path in before} == before
    assert "| mia | 0 |" in (folder / "MAILBOX.md").read_text()  # who is there says the ledger
    assert (turn("init", "--missing").data["files"], turn("mail", "list").data) == ([], [])
    assert turn("init", "--missing", "--agent", "eve").code == 2


# --- who acts, and words ---------------------------------------------------------------------------------------------


def test_f3_somebody_must_act_by_an_option_or_the_environment(turn: Cli, project: Path) -> None:
    refused = turn("lock", "WORKLOG.md", "--reason", "x")
    assert (refused.code, refused.error["code"]) == (2, "USAGE")
    assert turn("lock", "WORKLOG.md", "--reason", "x", HOLDFAST_ACTOR="ada").data["holder"] == "ada"
    assert turn("unlock", "--actor", "ada").code == 0
    assert turn("lock", "WORKLOG.md", "--reason", "x", "--holder", "BOB", "--actor", "ada").data["holder"] == "bob"


def test_f13_who_is_new_is_listed_so_that_lint_knows_the_holder(turn: Cli, project: Path) -> None:
    locked(turn, "WORKLOG.md", holder="cyd")
    assert [agent.id for agent in ledger(project).agents] == ["ada", "bob", "cyd"]
    assert turn("lint").data == {"problems": [], "errors": 0, "warnings": 0}


@pytest.mark.parametrize(
    ("line", "told", "hint"),
    [
        ("turn", "needs a subcommand", "mail"),
        ("turn mail", "holdfast turn mail needs a subcommand", "send"),
        ("turn mail --json", "holdfast turn mail needs a subcommand", "send"),
        ("turn mail sned", "no command 'turn mail sned'", "did you mean turn mail send?"),
        ("turn tasks clam x", "no command 'turn tasks clam'", "did you mean turn tasks claim?"),
        ("turn lok", "no command 'turn lok'", "did you mean turn lock?"),
        ("mail sned", "no command 'mail sned'", "did you mean mail send?"),
    ],
)
def test_i7_commands_of_three_words_are_found_or_what_was_meant(cli: Cli, line: str, told: str, hint: str) -> None:
    answer = cli(*line.split(), HOLDFAST_JSON="1")
    assert answer.code == 2
    assert told in answer.error["error"]
    assert hint in answer.error["hint"]


def test_i7_help_tells_of_groups_in_groups(cli: Cli) -> None:
    assert "  turn mail send " in cli("help", "turn").out
    inner = cli("help", "turn", "mail").out
    assert "turn mail close" in inner
    assert "turn lock" not in inner
    assert cli("turn", "mail", "send", "--help").out == cli("help", "turn", "mail", "send").out
    assert "[-- PROGRAM...]" in cli("help", "turn", "transact").out


# --- status, check, lint ---------------------------------------------------------------------------------------------


def test_f13_status_shows_on_one_screen_who_holds_what_and_what_is_unread(cli: Cli, turn: Cli) -> None:
    sent(turn)
    locked(turn, "MAILBOX.md", "docs/README.md", lease=1)
    turn("signal", "ready", "--from", "bob")
    screen = cli("turn", "status").out
    assert len(screen.splitlines()) <= 24
    for part in (
        "kiln at revision 5",
        "LOCK-ada-001  ada  MAILBOX.md, docs/README.md  stale with the next revision",
        "ada: 1",
    ):
        assert part in screen
    turn("signal", "yield", "--from", "bob")
    screen = cli("turn", "status").out
    assert "`holdfast turn clear` removes it" in screen
    assert "TURNFILE.yaml:" in screen
    data = turn("status").data
    assert data["locks"][0]["stale"] is True
    assert data["unread"] == [{"agent": "ada", "unread": 1, "oldest": data["unread"][0]["oldest"]}]
    assert [problem["rule"] for problem in data["problems"]] == ["lock-stale"]


def test_f13_what_others_wrote_cannot_command_the_terminal(cli: Cli, turn: Cli, project: Path) -> None:
    file = project / "working-session" / "TURNFILE.yaml"
    file.write_text(file.read_text().replace('project: "kiln"', 'project: "\\e[31mkiln"'))
    out = cli("turn", "status").out
    assert "\x1b" not in out
    assert "kiln" in out


def test_f10_check_ends_with_0_1_or_2(turn: Cli, project: Path) -> None:
    folder = project / "working-session"
    assert (turn("check").code, turn("check").data["errors"]) == (0, 0)
    mailbox = folder / "MAILBOX.md"
    mailbox.write_text(mailbox.read_text().replace("| ada | 0 |", "| ada | 3 |"))
    answer = turn("check")
    assert (answer.code, answer.data["errors"]) == (1, 2)  # the count, and the projection
    assert {problem["file"] for problem in answer.data["problems"]} == {"MAILBOX.md", "MAILBOX.json"}
    (folder / "TURNFILE.yaml").write_text("a: 1\na: 2\n")
    answer = turn("check")
    assert answer.code == 2
    assert [p["line"] for p in answer.data["problems"] if p["rule"] == "unreadable"] == [2]
    (folder / "TURNFILE.yaml").unlink()
    assert turn("check").code == 2
    assert turn("check", "--dir", "nowhere").code == 2


def test_f13_lint_ends_with_0_1_or_2(turn: Cli, project: Path) -> None:
    file = project / "working-session" / "TURNFILE.yaml"
    assert turn("lint").code == 0
    assert turn("lint", "working-session/TURNFILE.yaml").code == 0
    tidy = file.read_text()
    file.write_text(tidy.replace('role: "agent"', 'role: "boss"'))
    assert (turn("lint").code, {problem["rule"] for problem in turn("lint").data["problems"]}) == (1, {"unknown-word"})
    file.write_text(tidy + "x-more: 1\n")
    assert turn("lint").code == 0
    file.write_text(tidy + "more: 1\n")
    assert (turn("lint").code, turn("lint").data["warnings"]) == (0, 1)
    file.write_text("\tx: 1\n")
    assert turn("lint").code == 2
    assert turn("lint", "no-such-file.yaml").code == 2


# --- locks -----------------------------------------------------------------------------------------------------------


def test_f3_a_lock_is_taken_renewed_and_given_back(turn: Cli, project: Path) -> None:
    lock = locked(turn, "WORKLOG.md", "working-session/MAILBOX.md")
    assert lock == "LOCK-ada-001"
    assert turn("renew", lock, "--holder", "ada").data[0]["acquired_rev"] == 3
    assert turn("unlock", lock, "--holder", "bob").code == 13
    answer = turn("unlock", lock, "--holder", "ada")
    assert answer.data[0]["lock_id"] == lock
    assert answer.data[0]["files"] == ["MAILBOX.md", "WORKLOG.md"]
    assert (ledger(project).revision, ledger(project).locks) == (4, ())
    assert turn("unlock", lock, "--holder", "ada").code == 10
    assert turn("unlock", "--holder", "ada").code == 10


def test_f4_unlocking_a_stale_lock_removes_it_and_says_that_it_did_not_hold(turn: Cli, project: Path) -> None:
    first, second = locked(turn, "WORKLOG.md", lease=1), locked(turn, "MAILBOX.md", lease=9)
    assert turn("signal", "ready", "--from", "bob").code == 0
    answer = turn("unlock", "--holder", "ada")
    assert (answer.code, answer.error["code"]) == (13, "NOT_HOLDER")
    assert f"{first} went stale" in answer.error["error"]
    assert [each["lock_id"] for each in answer.data] == [second]
    assert ledger(project).locks == ()
    assert [each.detail for each in ledger(project).signals if "completed" in each.detail] == [
        f"completed {second}: MAILBOX.md, revision 6"
    ]


def test_f5_unlocking_a_lock_that_lost_precedence_says_so(turn: Cli, project: Path) -> None:
    files = turnfile.Session(project / "working-session")
    for id, holder in (("LOCK-a", "bob"), ("LOCK-b", "ada")):  # a tool that looks at no lock
        lock = turnfile.Lock(id, ("WORKLOG.md",), holder, 2, 5, "raced")
        files.write(lambda ledger, lock=lock: ledger.with_lock(lock), holder)  # type: ignore[misc]
    assert [(each["level"], each["rule"]) for each in turn("check").data["problems"]] == [
        ("warning", "overlapping-locks")
    ]
    answer = turn("unlock", "--holder", "ada")
    assert (answer.code, answer.error["code"]) == (13, "NOT_HOLDER")
    assert "lost to LOCK-a of bob" in answer.error["error"]
    assert ([each.id for each in ledger(project).locks], ledger(project).signals) == (["LOCK-a"], ())


def test_f10_unlocking_after_an_edit_that_broke_the_file_ends_with_1_and_says_so(turn: Cli, project: Path) -> None:
    lock = locked(turn, "MAILBOX.md")
    file = project / "working-session" / "MAILBOX.md"
    file.write_text(file.read_text().replace("| ada | 0 |", "| ada | 7 |"))
    answer = turn("unlock", "--holder", "ada")
    assert (answer.code, ledger(project).locks) == (1, ())
    assert ledger(project).signals[0].detail == f"out of order after {lock}: MAILBOX.md, revision 3"


def test_f3_who_finds_a_lock_writes_nothing_and_is_told_who_has_it(turn: Cli, project: Path) -> None:
    locked(turn, "WORKLOG.md")
    file = project / "working-session" / "TURNFILE.yaml"
    before = file.read_bytes()
    answer = turn("lock", "WORKLOG.md", "--holder", "bob", "--reason", "x", "--no-wait")
    assert (answer.code, answer.error["code"]) == (12, "HELD")
    assert answer.error["details"] == {"holder": "ada", "lock_id": "LOCK-ada-001", "acquired_rev": 2, "revision": 2}
    assert file.read_bytes() == before


def test_f7_two_looks_at_a_ledger_that_stands_still_ask_the_maintainer(turn: Cli) -> None:
    locked(turn, "WORKLOG.md", lease=9)
    answer = turn("lock", "WORKLOG.md", "--holder", "bob", "--reason", "x", "--wait", "0")
    assert (answer.code, answer.error["code"]) == (12, "ESCALATED")
    message = turn("mail", "show", answer.error["details"]["notice"]).data
    assert (message["fields"]["type"], message["fields"]["to"]) == ("decision-required", "mia")
    for fact in ("LOCK-ada-001", "holder: ada", "acquired_rev: 2", "revision: 2"):
        assert fact in message["body"]


@pytest.mark.parametrize("wait", ["--wait 1 --no-wait", "--wait -1", "--wait 2d"])
def test_f7_a_wait_that_makes_no_sense_is_refused(turn: Cli, wait: str) -> None:
    assert turn("lock", "WORKLOG.md", "--holder", "bob", "--reason", "x", *wait.split()).code == 2


def test_f4_a_stale_lock_is_cleared_by_anybody_and_a_valid_one_by_nobody(turn: Cli) -> None:
    lock = locked(turn, "WORKLOG.md", lease=1)
    assert turn("clear", lock, "--actor", "bob").code == 12
    assert turn("clear", "--actor", "bob").data == []
    for _ in range(2):
        turn("signal", "ready", "--from", "bob")
    assert [each["id"] for each in turn("clear", "--actor", "bob").data] == [lock]


def test_f8_an_override_needs_p0_and_leaves_a_trace(turn: Cli, project: Path) -> None:
    lock = locked(turn, "MAILBOX.md")
    assert turn("override", lock, "--reason", "in a hurry", "--actor", "mia").code == 1
    answer = turn("override", lock, "--reason", "P0: ada is gone", "--actor", "mia", "--take")
    assert (answer.data["lock"]["id"], answer.data["replaced_by"]["id"]) == (lock, "LOCK-mia-001")
    worklog = (project / "working-session" / "WORKLOG.md").read_text()
    assert "P0: ada is gone" in worklog
    assert f"{lock}" in worklog


# --- edits -----------------------------------------------------------------------------------------------------------

EDIT = ("--holder", "ada", "--reason", "log it", "--no-wait")


def worklog(project: Path) -> str:
    return (project / "working-session" / "WORKLOG.md").read_text()


def program(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


def test_f6_a_program_edits_copies_and_the_result_is_written_as_one(turn: Cli, project: Path) -> None:
    code = "print('hello'); open('WORKLOG.md', 'a').write('- done\\n'); open('docs/README.md', 'a').write('x\\n')"
    answer = turn("transact", "WORKLOG.md", "docs/README.md", *EDIT, *program(code))
    assert answer.code == 0, answer.err
    assert answer.data == {
        "lock_id": "LOCK-ada-001",
        "files": ["WORKLOG.md", "docs/README.md"],
        "revision": 3,
        "signal": "SIG-001",
        "warnings": [],
    }
    assert worklog(project).endswith("- done\n")
    assert (project / "working-session/docs/README.md").read_text().endswith("x\n")
    assert ledger(project).signals[0].detail == "completed LOCK-ada-001: WORKLOG.md, docs/README.md, revision 3"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("open('WORKLOG.md', 'a').write('- done\\n'); raise SystemExit(3)", "exited with code 3"),
        ("import os; os.unlink('WORKLOG.md')", "removed WORKLOG.md"),
        ("import os; os.unlink('WORKLOG.md'); os.symlink('/etc/hostname', 'WORKLOG.md')", "symlink"),
        ("open('WORKLOG.md', 'wb').write(b'\\xff')", "not UTF-8"),
    ],
)
def test_f6_a_program_that_fails_leaves_every_file_as_it_was(turn: Cli, project: Path, code: str, told: str) -> None:
    before = worklog(project)
    answer = turn("transact", "WORKLOG.md", *EDIT, *program(code))
    assert answer.code == 1
    assert told in answer.error["error"]
    assert worklog(project) == before
    assert ledger(project).locks == ()


def test_f6_f10_an_edit_that_breaks_an_invariant_is_not_written(turn: Cli, project: Path) -> None:
    code = "t = open('MAILBOX.md').read(); open('MAILBOX.md', 'w').write(t.replace('| ada | 0 |', '| ada | 7 |'))"
    answer = turn("transact", "MAILBOX.md", *EDIT, *program(code))
    assert (answer.code, answer.error["code"]) == (1, "INVALID")
    assert answer.error["details"]["problems"][0]["rule"] == "unread-count"
    assert turn("check").code == 0


def test_f6_drift_while_a_program_runs_means_that_it_runs_again(turn: Cli, project: Path, tmp_path: Path) -> None:
    other, runs = project / "working-session" / "WORKLOG.md", tmp_path / "runs"
    code = (
        f"runs = open({str(runs)!r}, 'a+'); runs.write('x'); runs.seek(0); first = len(runs.read()) == 1\n"
        f"if first: open({str(other)!r}, 'a').write('- by hand\\n')\n"
        "open('WORKLOG.md', 'a').write('- by the program\\n')"
    )
    answer = turn("transact", "WORKLOG.md", *EDIT, *program(code))
    assert answer.code == 0, answer.err
    assert runs.read_text() == "xx"
    assert worklog(project).endswith("- by hand\n- by the program\n")


def test_f6_drift_that_does_not_end_is_given_up_after_three_more_tries(
    turn: Cli, project: Path, tmp_path: Path
) -> None:
    other, runs = project / "working-session" / "WORKLOG.md", tmp_path / "runs"
    code = f"open({str(runs)!r}, 'a').write('x'); open({str(other)!r}, 'a').write('- by hand\\n')"
    answer = turn("transact", "WORKLOG.md", *EDIT, *program(code))
    assert (answer.code, answer.error["code"]) == (12, "ESCALATED")
    assert runs.read_text() == "xxxx"
    assert ledger(project).locks == ()


def test_f6_an_editor_edits_and_what_was_typed_is_applied_to_what_is_there(turn: Cli, project: Path) -> None:
    target = project / "working-session" / "WORKLOG.md"
    script = f"sed -i 's/Focus: none/Focus: firing/' \"$1\"; printf -- '- by hand\\n' >> {shlex.quote(str(target))}"
    answer = turn("edit", "WORKLOG.md", *EDIT, "--editor", f"sh -c {shlex.quote(script)} sh")
    assert answer.code == 0, answer.err
    assert "Maintainer Focus: firing" in worklog(project)
    assert worklog(project).endswith("- by hand\n")


def test_f6_what_a_person_typed_is_kept_where_it_cannot_be_written(turn: Cli, project: Path) -> None:
    answer = turn("edit", "MAILBOX.md", *EDIT, EDITOR="sed -i 's/| ada | 0 |/| ada | 7 |/'")
    assert answer.code == 1
    first, told = answer.err.splitlines()
    kept = Path(first.removeprefix("holdfast: your text is kept in "))
    assert "| ada | 7 |" in (kept / "MAILBOX.md").read_text()
    assert json.loads(told)["code"] == "INVALID"
    assert turn("check").code == 0


def test_f6_an_editor_that_changes_nothing_leaves_nothing(turn: Cli, project: Path, tmp_path: Path) -> None:
    answer = turn("edit", "WORKLOG.md", *EDIT, VISUAL="true", TMPDIR=str(tmp_path))
    assert (answer.code, answer.data["files"], answer.data["signal"]) == (0, [], None)
    assert turn("edit", "WORKLOG.md", *EDIT, "--editor", "false").code == 1
    assert turn("edit", "WORKLOG.md", *EDIT, "--editor", "no-such-editor-here").code == 1
    assert ledger(project).locks == ()


def test_f6_a_patch_is_applied_as_one(turn: Cli, project: Path) -> None:
    before = worklog(project)
    after = before.replace("Maintainer Focus: none", "Maintainer Focus: firing") + "- done\n"
    (project / "after").write_text(after)
    made = subprocess.run(
        ["diff", "-u", *("--label", "a/working-session/WORKLOG.md") * 2, "working-session/WORKLOG.md", "after"],
        capture_output=True,
        text=True,
    ).stdout
    (project / "change.patch").write_text(made)
    assert turn("edit", "--patch", "change.patch", *EDIT).data["files"] == ["WORKLOG.md"]
    assert worklog(project) == after
    again = turn("edit", "--patch", "-", *EDIT, stdin=made)
    assert again.code == 1
    assert "already applied" in again.error["error"]
    assert worklog(project) == after


@pytest.mark.parametrize("new", ["new.md", "working-session/WORKLOG.new", "../new.md"])
@pytest.mark.parametrize("here", [".", "working-session", "sub"])
def test_f6_what_diff_u_writes_changes_the_file_of_the_session(
    turn: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, new: str, here: str
) -> None:
    after = worklog(project) + "- done\n"
    (project / new).write_text(after)
    (project / "sub").mkdir()
    monkeypatch.chdir(project / here)
    names = [os.path.relpath(project / name) for name in ("working-session/WORKLOG.md", new)]
    made = subprocess.run(["diff", "-u", *names], capture_output=True, text=True).stdout
    done = turn("edit", "--dir", str(project / "working-session"), "--patch", "-", *EDIT, stdin=made)
    assert done.data["files"] == ["WORKLOG.md"], done.err
    assert worklog(project) == after


def test_f6_the_file_that_a_patch_is_for_can_be_named(turn: Cli, project: Path) -> None:
    after = worklog(project).replace("Maintainer Focus: none", "Maintainer Focus: firing")
    for name, text in (("old.md", worklog(project)), ("new.md", after)):
        (project / name).write_text(text)
    made = subprocess.run(["diff", "-u", "old.md", "new.md"], capture_output=True, text=True).stdout
    (project / "p.diff").write_text(made)
    refused = turn("edit", "--patch", "p.diff", *EDIT).error
    assert refused["error"] == "p.diff, line 1: neither old.md nor new.md is a file of the session"
    assert "diff -u --label WORKLOG.md --label WORKLOG.md OLD NEW" in refused["hint"]
    assert turn("edit", "WORKLOG.md", "--patch", "p.diff", *EDIT).data["files"] == ["WORKLOG.md"]
    assert worklog(project) == after
    again = turn("edit", "WORKLOG.md", "--patch", "p.diff", *EDIT).error
    assert "already applied to WORKLOG.md" in again["error"]


def test_f6_a_patch_does_not_rename(turn: Cli) -> None:
    patch = "rename from working-session/WORKLOG.md\nrename to x\n--- a/WORKLOG.md\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    refused = turn("edit", "--patch", "-", *EDIT, stdin=patch).error
    assert refused["error"] == "the patch, line 1: a patch must not rename a file"


def test_f6_a_patch_cannot_leave_the_folder(turn: Cli, project: Path) -> None:
    patch = "--- a/x\n+++ b/../../victim\n@@ -0,0 +1 @@\n+x\n"
    assert turn("edit", "--patch", "-", *EDIT, stdin=patch).code == 1
    assert not (project.parent / "victim").exists()


def test_f6_one_means_at_a_time_and_some_file(turn: Cli) -> None:
    assert turn("edit", "WORKLOG.md", *EDIT, "--editor", "true", "--", "true").code == 2
    assert turn("edit", *EDIT, "--editor", "true").code == 2
    assert turn("transact", "WORKLOG.md", *EDIT).code == 2
    assert turn("transact", "WORKLOG.md", *EDIT, "--").code == 2


def test_f6_an_edit_under_a_lock_that_stays(turn: Cli, project: Path) -> None:
    lock = locked(turn, "WORKLOG.md", lease=9)
    code = "open('WORKLOG.md', 'a').write('- done\\n')"
    answer = turn("transact", "WORKLOG.md", *EDIT, "--under", lock, *program(code))
    assert answer.data["lock_id"] == lock
    assert [each.id for each in ledger(project).locks] == [lock]


def test_f7_an_own_lock_is_used_and_stays(turn: Cli, project: Path) -> None:
    lock = locked(turn, "MAILBOX.md", "WORKLOG.md", lease=9)
    answer = turn("transact", "WORKLOG.md", *EDIT[:4], *program("open('WORKLOG.md', 'a').write('- done\\n')"))
    assert (answer.code, answer.data["lock_id"], answer.data["revision"]) == (0, lock, 3)
    answer = turn("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x")
    assert (answer.code, answer.data["lock_id"], answer.data["revision"]) == (0, lock, 4)
    assert [each.id for each in ledger(project).locks] == [lock]


@pytest.mark.parametrize(
    ("files", "lease", "words", "code"),
    [
        (["MAILBOX.md"], 9, ("lock", "MAILBOX.md", *EDIT[:4]), (12, "HELD")),
        (["MAILBOX.md"], 9, ("transact", "MAILBOX.md", "WORKLOG.md", *EDIT[:4], *program("pass")), (12, "HELD")),
    ],
)
def test_f7_nobody_waits_for_oneself(
    turn: Cli, project: Path, files: list[str], lease: int, words: tuple[str, ...], code: tuple[int, str]
) -> None:
    lock = locked(turn, *files, lease=lease)
    for _ in range(2):
        assert turn("signal", "--from", "bob", "--to", "all", "ready").code == 0
    before = (project / "working-session" / "TURNFILE.yaml").read_bytes()
    answer = turn(*words)  # which would wait for a minute
    assert (answer.code, answer.error["code"]) == code
    assert f"turn unlock {lock}" in answer.error["hint"]
    assert f"turn renew {lock}" in answer.error["hint"]
    assert (project / "working-session" / "TURNFILE.yaml").read_bytes() == before


# --- what is refused costs nothing -----------------------------------------------------------------------------------

PATCH = "--- a/WORKLOG.md\n+++ b/WORKLOG.md\n@@ -1 +1 @@\n-no such line\n+another\n"
SEND = ("mail", "send", "--from", "bob", "--to", "ada")


@pytest.mark.parametrize(
    "words",
    [
        (*SEND, "--subject", ""),
        (*SEND, "--subject", "x", "--body", "### MSG-20260612-009\n\n**From:** a -> b"),
        ("mail", "ack", "MSG", "--actor", "bob"),
        ("mail", "block", "MSG", "wait\nfor it", "--actor", "ada"),
        ("mail", "close", "MSG", "--actor", "ada"),
        ("mail", "ack", "MSG-19990101-001", "--actor", "ada"),
        ("edit", "--patch", "-", *EDIT),
        ("transact", "MAILBOX.md", *EDIT, *program("raise SystemExit(3)")),
        ("transact", "WORKLOG.md", *EDIT, *program("open('WORKLOG.md', 'w').write('Now Working (ada):\\n')")),
        ("transact", "MAILBOX.md", *EDIT, *program("pass")),
    ],
)
def test_f3_what_is_refused_or_changes_nothing_ages_no_lock(turn: Cli, project: Path, words: tuple[str, ...]) -> None:
    id = sent(turn)
    held = locked(turn, "OPEN_QUESTIONS.md", holder="bob", lease=1)
    before = (project / "working-session" / "TURNFILE.yaml").read_bytes()
    answer = turn(*(id if word == "MSG" else word for word in words), stdin=PATCH)
    assert (answer.code == 0) == ("pass" in words), answer.err
    assert (project / "working-session" / "TURNFILE.yaml").read_bytes() == before
    assert ledger(project).lock(held) is not None


def test_f6_a_program_that_succeeds_runs_once(turn: Cli, project: Path, tmp_path: Path) -> None:
    code = f"open({str(tmp_path / 'runs')!r}, 'a').write('x'); open('WORKLOG.md', 'a').write('- done\\n')"
    assert turn("transact", "WORKLOG.md", *EDIT, *program(code)).data["revision"] == 3
    assert (tmp_path / "runs").read_text() == "x"
    assert worklog(project).endswith("- done\n")


# --- tasks, signals, mail --------------------------------------------------------------------------------------------


def test_f13_tasks_are_claimed_and_done(turn: Cli, project: Path) -> None:
    file = project / "working-session" / "TURNFILE.yaml"
    tasks = (
        "tasks:\n    glaze: {description: Mix, status: pending}\n"
        "    fire: {description: Fire, status: pending, depends_on: [glaze]}"
    )
    file.write_text(file.read_text().replace("tasks: {}", tasks))
    assert turn("tasks", "claim", "fire", "--actor", "ada").code == 11
    assert turn("tasks", "claim", "glaze", "--actor", "ada").data["claim_rev"] == 2
    assert turn("tasks", "claim", "glaze", "--actor", "bob").code == 12
    assert turn("tasks", "done", "glaze", "--actor", "bob").code == 13
    assert turn("tasks", "done", "glaze", "--actor", "ada").data["completed_rev"] == 3
    assert [task["id"] for task in turn("tasks", "list").data] == ["fire"]
    assert [task["id"] for task in turn("tasks", "list", "--all").data] == ["glaze", "fire"]
    assert turn("tasks", "claim", "clay", "--actor", "ada").code == 10


def test_f13_a_signal_has_a_known_word(turn: Cli, project: Path) -> None:
    assert turn("signal", "handoff", "the kiln is hot", "--from", "ada", "--to", "bob").data["id"] == "SIG-001"
    assert turn("signal", "dance", "--from", "ada").code == 2
    [signal] = ledger(project).signals
    assert (signal.sender, signal.receiver, signal.detail) == ("ada", "bob", "the kiln is hot")


def test_f11_mail_is_sent_read_answered_and_closed(cli: Cli, turn: Cli, project: Path) -> None:
    id = sent(turn, "--body", "-", "--type", "request", "--priority", "P0")
    assert [each["id"] for each in turn("mail", "list", "--actor", "ada").data] == [id]
    assert turn("mail", "list", "--actor", "mia").data == []
    assert turn("mail", "list", "--status", "blocked").data == []
    assert turn("mail", "ack", id, "--actor", "bob").code == 13
    assert turn("mail", "ack", id, "--actor", "ada").data["status"] == "acknowledged"
    assert turn("mail", "block", id, "no samples", "--actor", "ada").data["status"] == "blocked"
    assert turn("mail", "ack", id, "--actor", "ada", "--note", "they came").data["status"] == "acknowledged"
    assert turn("mail", "action", id, "--actor", "ada").data["status"] == "actioned"
    assert turn("mail", "action", id, "--actor", "ada").code == 11
    answer = turn("mail", "reply", id, "--body", "Green.", "--actor", "ada").data["id"]
    assert turn("mail", "show", answer).data["fields"]["in_reply_to"] == id
    assert turn("mail", "close", id, "settled", "--actor", "ada").code == 13
    assert (
        turn("mail", "close", id, "settled", "--actor", "bob", "--disposition", "resolved").data["status"] == "closed"
    )
    assert len(turn("mail", "show", id).data["ack"]) == 5
    assert turn("mail", "show", "MSG-20200101-001").code == 10
    assert turn("mail", "ack", "MSG-20200101-001", "--actor", "ada").code == 10
    assert "Which glaze?" in cli("turn", "mail", "show", id).out
    assert turn("check").code == 0


def test_f12_the_projection_is_written_by_hand_too(turn: Cli, project: Path) -> None:
    sent(turn)
    projection = project / "working-session" / "MAILBOX.json"
    projection.write_text("{}")
    assert turn("check").code == 1
    words = ("mail", "export", "working-session/MAILBOX.md", "working-session/MAILBOX.json")
    assert turn(*words).data == {"file": "working-session/MAILBOX.json", "changed": True}
    assert turn(*words).data["changed"] is False
    assert turn("mail", "export").data["changed"] is False
    assert turn("mail", "export", "working-session/MAILBOX.md").code == 2
    assert turn("check").code == 0


# --- a hostile folder ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["TURNFILE.yaml", "MAILBOX.md", "MAILBOX.json", "WORKLOG.md", ".TURNFILE.lock", "docs"]
)
def test_f2_a_symlink_in_the_folder_is_not_followed(turn: Cli, project: Path, tmp_path: Path, name: str) -> None:
    there, victim = project / "working-session" / name, tmp_path / "victim"
    if name == "docs":
        victim.mkdir()
        (victim / "README.md").write_text("keep")
        (there / "README.md").unlink()
        there.rmdir()
    else:
        victim.write_bytes(there.read_bytes() if there.exists() else b"keep")
        there.unlink(missing_ok=True)
    before = _content(victim)
    os.symlink(victim, there)
    code = "open('WORKLOG.md', 'a').write('x\\n'); open('docs/README.md', 'a').write('x\\n')"
    for words in (
        ("mail", "send", "--from", "ada", "--to", "bob", "--subject", "x"),
        ("transact", "WORKLOG.md", "docs/README.md", *EDIT, *program(code)),
        ("override", "LOCK-x", "--reason", "P0: x", "--actor", "mia"),
        ("mail", "export"),
        ("init",),
    ):
        turn(*words)
        assert _content(victim) == before, words
    assert os.path.islink(there)


def _content(path: Path) -> Any:
    return sorted((each.name, each.read_bytes()) for each in path.iterdir()) if path.is_dir() else path.read_bytes()


def test_f2_a_folder_reached_by_a_link_is_the_same_folder(turn: Cli, project: Path) -> None:
    os.symlink("working-session", project / "linked")
    locked(turn, "WORKLOG.md")
    refused = turn("lock", "linked/WORKLOG.md", "--dir", "linked", "--holder", "bob", "--reason", "x", "--no-wait")
    assert refused.code == 12


def test_f2_a_folder_without_write_permission_can_be_looked_at(turn: Cli, project: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    folder = project / "working-session"
    folder.chmod(0o500)
    try:
        assert turn("status").code == 0
        assert turn("lock", "WORKLOG.md", "--holder", "ada", "--reason", "x").code == 16
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize("file", ["TURNFILE.yaml", "MAILBOX.json", "working-session/./MAILBOX.json"])
def test_f3_a_file_that_the_commands_write_themselves_cannot_be_locked(turn: Cli, project: Path, file: str) -> None:
    before = (project / "working-session" / "TURNFILE.yaml").read_bytes()
    refused = turn("lock", file, "--holder", "ada", "--reason", "r")
    assert (refused.code, refused.error["code"]) == (1, "INVALID")
    assert "cannot be locked" in refused.error["error"]
    assert (project / "working-session" / "TURNFILE.yaml").read_bytes() == before


def test_f4_a_lock_in_its_last_revision_is_said_to_be_stale_with_the_next(cli: Cli, turn: Cli) -> None:
    assert turn("lock", "WORKLOG.md", "--holder", "ada", "--reason", "r", "--lease-revs", "1").code == 0
    assert "1 revision left" in cli("turn", "status").out
    assert turn("lock", "MAILBOX.md", "--holder", "bob", "--reason", "r").code == 0
    shown = cli("turn", "status").out
    assert "stale with the next revision" in shown
    assert "0 revisions left" not in shown


@pytest.mark.parametrize("profile", ["turn", "all"])
def test_mcp_says_at_once_that_there_are_no_turn_files(shell: Shell, profile: str) -> None:
    words = ("mcp", "--profile", profile, "--turn-dir", "nope", "--actor", "ada")
    assert shell("init").code == 0
    assert "there is no TURNFILE.yaml in" in shell(*words).err
