"""Completion (I7): what Tab offers, asked of the command itself and of real shells, each in one process."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from time import monotonic

import pytest

from holdfast.faces.cli.command import all_commands
from holdfast.faces.cli.commands.completion import FILES, SCRIPTS
from tests.cli.calling import PATIENCE, Answer, Shell

Cli = Callable[..., Answer]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def filled(made: Cli) -> dict[str, str]:
    """A workspace with something of each kind to complete; answers the ids."""
    task = made("create", "Fix: the login\u202e page", "--tag", "backend", "-q", "--actor", "maya").id
    other = made("create", "Write the manual", "-q", "--actor", "ada").id
    closed = made("create", "Old", "-q").id
    made("close", closed)
    made("mail", "send", "maya", "Which port?", "8080", "--actor", "ada")
    return {"task": task, "other": other, "closed": closed}


def offered(made: Cli, *words: str, shell: str = "bash") -> list[str]:
    answer = made("completion", shell, "--", *words)
    assert (answer.code, answer.err) == (0, "")
    return answer.out.splitlines()


# --- what is offered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("cla", "claim"),
        ("mail in", "inbox"),
        ("turn ma", "mail"),
        ("turn mail se", "send"),
        ("turn mail send --su", "--subject"),
        ("turn --dir x st", "status"),
        ("cell get", "get get-or-init"),
        ("claim hf-7k2q --tt", "--ttl"),
        ("create --parent hf-7k2q --pr", "--priority"),
        ("--actor agent-1 cla", "claim"),
        ("list --status in", "in_progress"),
        ("list --status=in", "--status=in_progress"),
        ("list --status = in", "in_progress"),
        ("create x --type fe", "feature"),
        ("create x -p ", "0 1 2 3 4"),
        ("mail send ada hi --type dec", "decision-required"),
        ("mail threads --box se", "sent"),
        ("agent register --role m", "maintainer"),
        ("completion f", "fish"),
        ("nonsense x", ""),
        ("help --", None),
    ],
)
def test_i7_commands_options_and_enum_values_are_completed(made: Cli, words: str, expected: str | None) -> None:
    found = offered(made, *words.split(" "))
    if expected is None:
        assert "--json" in found
    else:
        assert set(found) == set(expected.split())


def test_i7_every_first_word_and_every_word_of_a_group_is_offered(made: Cli) -> None:
    names = [command.name for command in all_commands()]
    assert {name.partition(" ")[0] for name in names} <= set(offered(made, ""))
    for group in ("cell", "mail", "turn", "dep", "token"):
        members = {name.split()[1] for name in names if name.startswith(f"{group} ")}
        assert set(offered(made, group, "")) == members


def test_i7_ids_tags_actors_and_messages_are_completed(made: Cli, filled: dict[str, str]) -> None:
    task, other, closed = filled["task"], filled["other"], filled["closed"]
    assert set(offered(made, "show", "")) == {task, other}, "what is finished is rarely meant"
    assert offered(made, "show", closed[:-1]) in ([closed], [each for each in (task, other) if closed[:-1] in each])
    assert set(offered(made, "dep", "add", task, "")) == {task, other}
    assert set(offered(made, "create", "x", "--parent", "hf-")) == {task, other}
    assert offered(made, "list", "--tag", "b") == ["backend"]
    assert offered(made, "mail", "send", "ad") == ["ada"]
    assert offered(made, "mail", "send", "ada,ma") == ["ada,maya"]
    assert offered(made, "assign", task, "ma") == ["maya"]
    assert offered(made, "next", "--actor", "ma") == ["maya"]
    assert offered(made, "--actor", "maya", "mail", "reply", "m") == ["m1"]
    assert offered(made, "mail", "thread", "") == ["m1"], "a caller without a name sees the threads"


def test_i7_an_offer_says_what_it_is_and_sends_nothing_to_the_terminal(made: Cli, filled: dict[str, str]) -> None:
    task = filled["task"]
    assert f"{task}:Fix: the login\\u202e page" in offered(made, "show", "", shell="zsh")
    assert f"{task}\tFix: the login\\u202e page" in offered(made, "show", "", shell="fish")


def test_i7_completion_asks_the_shell_for_files_and_never_fails(made: Cli, tmp_path: Path) -> None:
    assert made("completion", "bash", "--", "path", "lock", "sr").code == FILES
    for place in (("--dir", str(tmp_path / "nowhere")), ("--url", "http://127.0.0.1:9"), ("--url", "nonsense")):
        for words in ((*place, "show", "hf"), ("show", *place, "hf"), ("mail", "reply", *place, "")):
            answer = made("completion", "bash", "--", *words)
            assert (answer.code, answer.out, answer.err) == (0, "", ""), words
    assert not (tmp_path / "nowhere").exists()


# --- real shells -----------------------------------------------------------------------------------------------------


def available(shell: str) -> str:
    """The shell; where CI=true a missing one is a failure, unless Debian's packages cannot be reached there."""
    found = shutil.which(shell)
    if found is None:
        unavailable = ROOT / ".venv" / ".unavailable"
        excused = unavailable.exists() and shell in unavailable.read_text().split()
        refuse = pytest.fail if os.environ.get("CI") == "true" and not excused else pytest.skip
        refuse(f"{shell} is not installed: make setup")
    return found


class Terminal:
    """An interactive shell at a terminal of 200 columns."""

    def __init__(self, command: list[str], folder: Path, environ: dict[str, str]) -> None:
        self._own, theirs = pty.openpty()
        subprocess.run(["stty", "cols", "200"], stdin=theirs, check=True)
        self._process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self.seen = ""

    def type(self, keys: str, until: str) -> str:
        """Press keys; answers what the shell writes until something appears in it."""
        os.write(self._own, keys.encode())
        start, end = len(self.seen), monotonic() + PATIENCE
        while not re.search(until, self.seen[start:]):
            ready, _, _ = select.select([self._own], [], [], max(0, end - monotonic()))
            assert ready, f"{until} did not come: {self.seen[start:]!r}"
            self.seen += os.read(self._own, 65536).decode(errors="replace")
        return self.seen[start:]

    def completed(self, line: str) -> list[str]:
        """The words that a line has after Tab: it is printed, not run."""
        shown = self.type(f"{line}\t\x01printf '<%s>' \x05\r", r"<holdfast>[^\r\n]*")
        return re.findall(r"<([^<>]*)>", shown[shown.rindex("<holdfast>") :])

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        os.close(self._own)


def cases(ids: dict[str, str]) -> dict[str, str]:
    """A line that is typed, and the last word that Tab makes of it."""
    return {
        "holdfast expl": "explain",
        f"holdfast show {ids['task'][:-1]}": ids["task"],
        "holdfast list --tag back": "backend",
        "holdfast mail send ma": "maya",
        "holdfast list --status pending": "pending_merge",
        "holdfast create x --type fe": "feature",
        "holdfast guard sr": "src",
    }


def environment_of(shell: Shell, **more: str) -> dict[str, str]:
    """With the program in PATH, as it is where it is installed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{shell.environ['PATH']}"
    return {**shell.environ, "PATH": path, "TERM": "dumb", "HOME": str(shell.folder), **more}


@pytest.mark.parametrize("name", ["bash", "zsh"])
def test_i7_tab_completes_in_a_real_shell(
    name: str, filled: dict[str, str], shell: Shell, project: Path, tmp_path: Path
) -> None:
    program = available(name)
    script = tmp_path / "script"
    script.write_text(SCRIPTS[name] + "\n")
    (project / "src").mkdir()
    (tmp_path / "empty").mkdir()
    flags = ["--norc", "--noprofile", "-i"] if name == "bash" else ["-f", "-i"]
    start = {
        "bash": "bind 'set bell-style none'; ",
        "zsh": "bindkey -e; unsetopt beep; setopt no_prompt_sp; autoload -Uz compinit && compinit -u -D; ",
    }[name]
    terminal = Terminal([program, *flags], project, environment_of(shell, PS1="$ ", HISTFILE="/dev/null"))
    try:
        terminal.type(f"{start}source {quote(str(script))}; echo rea''dy\r", "ready\r")
        found = {line: terminal.completed(line)[-1].rstrip("/") for line in cases(filled)}
        assert found == cases(filled)
        terminal.type(f"cd {quote(str(tmp_path / 'empty'))}; echo the''re\r", "there\r")
        before = len(terminal.seen)
        assert terminal.completed("holdfast show hf-")[-1] == "hf-"
        assert "holdfast:" not in terminal.seen[before:], "no error comes into the prompt"
    finally:
        terminal.close()


def test_i7_fish_offers_the_same_with_what_they_are(
    filled: dict[str, str], shell: Shell, project: Path, tmp_path: Path
) -> None:
    program = available("fish")
    script = tmp_path / "script"
    script.write_text(SCRIPTS["fish"] + "\n")
    (project / "src").mkdir()
    asked = "; ".join(f"echo '>'; complete -C {quote(line)}" for line in cases(filled))
    done = subprocess.run(
        [program, "--no-config", "-c", f"source {quote(str(script))}; {asked}; cd ..; complete -C 'holdfast show hf-'"],
        cwd=project,
        env=environment_of(shell),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    parts = [part.strip().splitlines() for part in done.stdout.split(">\n")[1:]]
    assert [part[0].split("\t")[0].rstrip("/") if part else "" for part in parts] == [*cases(filled).values()]
    assert parts[1] == [f"{filled['task']}\tFix: the login\\u202e page"]
