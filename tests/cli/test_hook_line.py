"""The line that hooks run (issue 22), as a client runs it: each shell, a bare environment, a path with spaces.

A client takes every exit code but 2 for consent, so whatever goes wrong must end with 2. The program is a stand-in
where its outcome is what is tested, and the real one at the end.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

import pytest

from holdfast.faces.cli.setup.line import DEADLINE, line, program, write_program
from tests.cli.calling import Shell
from tests.docs.generate import ROOT

SHELLS = [name for name in ("dash", "bash") if shutil.which(name)]
CLIENTS = ("claude", "codex", "cursor", "gemini")
BARE = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project with a workspace, of which the line asks no more than that its file exists."""
    root = tmp_path / 'a project\'s "folder"'
    (root / ".holdfast").mkdir(parents=True)
    (root / ".holdfast" / "holdfast.db").touch()
    (root / "src" / "deep").mkdir(parents=True)
    return root


def stand_in(root: Path, script: str) -> Path:
    """A program of this text, named by the file that setup writes."""
    found = root / "bin with spaces" / "holdfast"
    found.parent.mkdir(exist_ok=True)
    found.write_text(f"#!/bin/sh\n{script}\n")
    found.chmod(0o755)
    (root / ".holdfast" / "program").write_text(f"{found}\n")
    return found


def run(
    at: Path,
    words: str = "guard --hook claude",
    more: dict[str, str] | None = None,
    *,
    shell: str = "sh",
    lenient: bool = False,
    told: str = "{}",
) -> subprocess.CompletedProcess[str]:
    """Run the line as a client does, its text given to a shell; `shell` is also the one that is called sh."""
    env = BARE | (more or {})
    with TemporaryDirectory() as first:
        (Path(first) / "sh").symlink_to(str(shutil.which(shell)))
        env["PATH"] = f"{first}:{env['PATH']}"
        command = [shell, "-c", line(words, lenient)]
        return subprocess.run(command, cwd=at, env=env, input=told, capture_output=True, text=True, timeout=180)


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_the_program_gets_its_words_and_input_and_its_decision_counts(root: Path, shell: str) -> None:
    stand_in(root, 'read -r told; echo "$* $told"; exit 0')
    done = run(root / "src" / "deep", shell=shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "guard --hook claude {}\n", "")
    stand_in(root, "echo somebody has it >&2; exit 2")
    done = run(root, shell=shell)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "somebody has it\n")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("client", CLIENTS)
def test_i22_a_missing_program_refuses_and_says_how_to_mend_it(root: Path, shell: str, client: str) -> None:
    for named in (None, "/nowhere/holdfast\n", "", "\n"):
        if named is not None:
            (root / ".holdfast" / "program").write_text(named)
        done = run(root, f"guard --hook {client}", shell=shell)
        assert done.returncode == 2
        assert "no program holdfast was found" in done.stderr
        assert f"holdfast setup {client}" in done.stderr
        if client == "cursor":
            assert json.loads(done.stdout)["permission"] == "deny"
        else:
            assert done.stdout == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("code", [1, 3, 12, 16, 120, 126, 127, 139, 255])
def test_i22_any_other_exit_code_refuses(root: Path, shell: str, code: int) -> None:
    stand_in(root, f"echo Traceback >&2; exit {code}")
    done = run(root, shell=shell)
    assert done.returncode == 2
    assert "Traceback" in done.stderr
    why = "cannot be started" if code in (126, 127) else f"exit code {code}, after the reason that it printed"
    assert why in done.stderr
    lenient = run(root, shell=shell, lenient=True)
    assert (lenient.returncode, why in lenient.stderr) == (1, True), "which no client blocks for"


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_a_crash_refuses(root: Path, shell: str) -> None:
    stand_in(root, "kill -SEGV $$")
    assert run(root, shell=shell).returncode == 2


@pytest.mark.early
@pytest.mark.parametrize("shell", SHELLS)
def test_i22_a_program_that_hangs_refuses_before_the_client_gives_up(root: Path, shell: str) -> None:
    stand_in(root, "exec sleep 300")
    done = run(root, shell=shell)
    assert done.returncode == 2
    assert f"longer than {DEADLINE} s" in done.stderr


@pytest.mark.early
@pytest.mark.parametrize("shell", SHELLS)
def test_i22_a_program_that_hangs_in_a_child_leaves_no_output_open(root: Path, shell: str) -> None:
    """`run` waits until the output is closed, as some clients do: what the program has started must be gone."""
    stand_in(root, "sh -c 'sleep 90; echo x'; echo y")
    begun = monotonic()
    done = run(root, shell=shell)
    assert (done.returncode, done.stdout, monotonic() - begun < 60) == (2, "", True)


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_without_a_workspace_nothing_is_started_and_everything_is_allowed(
    root: Path, tmp_path: Path, shell: str
) -> None:
    stand_in(root, "exit 2")
    (root / ".holdfast" / "holdfast.db").unlink()
    for client in CLIENTS:
        done = run(root, f"guard --hook {client}", shell=shell)
        nothing = "{}" if client in ("cursor", "gemini") else ""
        assert (done.returncode, done.stdout, done.stderr) == (0, nothing, "")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("HOLDFAST_DIR", "HOLDFAST_URL"):
        done = run(elsewhere, more={name: "x"}, shell=shell)
        assert done.returncode == 2, "one that was named is one"
    (root / ".holdfast" / "holdfast.db").touch()
    for name in ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR"):
        assert run(elsewhere, more={name: str(root)}, shell=shell).returncode == 2
    stand_in(root, "exit 0")
    assert run(elsewhere, more={"HOLDFAST_DIR": str(root)}, shell=shell).returncode == 0
    assert run(elsewhere, more={"HOLDFAST_DIR": str(root / ".holdfast")}, shell=shell).returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_a_linked_worktree_uses_what_lies_beside_the_git_common_directory(
    root: Path, tmp_path: Path, shell: str
) -> None:
    stand_in(root, "echo found; exit 0")
    at = Shell(root, {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)})
    at.git("init", "-q", ".")
    at.git("commit", "-q", "--allow-empty", "-m", "x")
    at.git("worktree", "add", "-q", "-b", "other", str(tmp_path / "the other"))
    (tmp_path / "the other" / "src").mkdir()
    done = run(tmp_path / "the other" / "src", shell=shell)
    assert (done.returncode, done.stdout) == (0, "found\n")
    pointer = tmp_path / "the other" / ".git"  # as git writes it with worktree.useRelativePaths
    name = pointer.read_text().strip().rpartition("/")[2]
    pointer.write_text(f"gitdir: ../{root.name}/.git/worktrees/{name}\n")
    assert run(tmp_path / "the other", shell=shell).stdout == "found\n"
    (root / ".holdfast" / "program").unlink()
    assert run(tmp_path / "the other", shell=shell).returncode == 2


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_the_start_of_a_session_is_never_blocked(root: Path, shell: str) -> None:
    for script in ("exit 1", "exit 2", "exit 12"):
        stand_in(root, script)
        done = run(root, "prime --hook claude", shell=shell)
        assert (done.returncode, "decided nothing" in done.stderr, done.stdout) == (1, True, "")


def test_i22_a_program_on_the_path_is_used_if_none_is_named(root: Path) -> None:
    found = stand_in(root, "echo $*; exit 0")
    (root / ".holdfast" / "program").unlink()
    done = run(root, more={"PATH": f"{found.parent}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (0, "guard --hook claude\n")


def test_i22_a_killed_line_does_not_allow(root: Path) -> None:
    stand_in(root, "echo begun; exec sleep 300")
    process = subprocess.Popen(
        ["sh", "-c", f"exec {line('guard --hook claude')}"],
        cwd=root,
        env=BARE,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.terminate()
    assert process.wait(180) == -signal.SIGTERM
    process.stdout.close()


def test_i22_the_text_is_one_for_all_machines_and_safe_in_every_shell(root: Path) -> None:
    text = line("guard --hook claude")
    assert text.count("'") == 2
    assert "\\\\" not in text
    assert str(Path.home()) not in text
    assert "\n" not in text


@pytest.mark.parametrize("shell", SHELLS)
def test_i22_the_real_program_decides(shell: str, tmp_path: Path) -> None:
    """`write_program` names the program of this installation: it works with nothing on PATH."""
    root = tmp_path / "real project"
    (root / "src").mkdir(parents=True)
    real = Shell(root, BARE | {"HOME": str(tmp_path), "HOLDFAST_ROLLING": "0"})
    named = write_program(root)
    assert named is not None
    assert named.read_text().strip() == program()
    assert (root / ".holdfast" / ".gitignore").exists()
    assert real("init").code == 0
    assert real("path", "lock", "src/**", "--actor", "ada").code == 0

    def edit(path: Path) -> subprocess.CompletedProcess[str]:
        told = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_input": {"file_path": str(path)}}
        return run(root, more={"HOME": str(tmp_path)}, shell=shell, told=json.dumps(told))

    refused = edit(root / "src" / "x.py")
    assert (refused.returncode, "locked by ada" in refused.stderr) == (2, True), refused
    allowed = edit(root / "docs.md")
    assert (allowed.returncode, allowed.stdout, allowed.stderr) == (0, "", "")
    own = edit(root / ".holdfast" / "program")
    assert (own.returncode, "belongs to the workspace" in own.stderr) == (2, True), "an agent does not mend its guard"


@pytest.mark.parametrize("place", ["my venv", "a" * 100])
def test_a_program_whose_script_cannot_start_gets_a_launcher(place: str, tmp_path: Path) -> None:
    """Where the path of an environment has a space, or is long, the system does not find the script's interpreter."""
    venv.create(tmp_path / place, symlinks=True)
    python, script = tmp_path / place / "bin" / "python", tmp_path / place / "bin" / "holdfast"
    packages = next((tmp_path / place).glob("lib/*/site-packages"))
    (packages / "same.pth").write_text("".join(f"{path}\n" for path in sys.path if Path(path).is_dir()))
    script.write_text((ROOT / "bin" / "holdfast").read_text().replace("#!python", f"#!{python}", 1))
    script.chmod(0o755)
    assert len(f"#!{python}") > 127 or " " in str(python)
    root = tmp_path / "project"
    root.mkdir()
    (root / "signal.py").write_text("raise SystemExit(3)")  # what the project has is not loaded
    known = {"HOME": str(tmp_path), "HOLDFAST_ROLLING": "0"}

    def call(*words: str, path: str = f"{script.parent}:/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
        command, env = [str(python), "-P", "-m", "holdfast", *words], known | {"PATH": path}
        return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=180)

    assert call("init").returncode == 0
    assert call("setup", "claude").returncode == 0
    launcher = root / ".holdfast" / "holdfast"
    assert (root / ".holdfast" / "program").read_text() == f"{launcher}\n"
    assert (root / ".holdfast" / ".gitignore").read_text() == "*\n"
    checked = call("setup", "claude", "--check")
    assert (checked.returncode, "the guard refuses as it must" in checked.stdout) == (0, True), checked
    assert str(launcher) in call("prime", "--actor", "ada").stdout, "and an agent calls that"
    assert call("create", "one").returncode == 0
    noting = ("--", "sh", "-c", 'holdfast note "$HOLDFAST_TASK" inside')
    ran = call("run", "--next", "--actor", "ada", *noting, path=BARE["PATH"])
    assert ran.returncode == 0, ran
    assert call("setup", "claude", "--remove").returncode == 0
    assert not launcher.exists()


def test_a_program_that_starts_needs_no_launcher(tmp_path: Path) -> None:
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / "holdfast").write_text("of another environment")
    assert write_program(tmp_path) is not None
    assert (tmp_path / ".holdfast" / "program").read_text().strip() == program()
    assert not (tmp_path / ".holdfast" / "holdfast").exists()
