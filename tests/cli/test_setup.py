"""`holdfast setup` on a project's files (issue 7): what is not ours is left to the byte, and nothing is half done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.errors import Conflict, Invalid, IOFailed
from holdfast.faces.cli.setup import clients, files
from holdfast.faces.cli.setup.clients import CLIENTS, check, install, remove
from holdfast.faces.cli.setup.line import Choice
from tests.cli.calling import Shell

CLIENT_NAMES = list(CLIENTS)
TEXTS = {
    "a line": b"# Mine\n",
    "no line end": b"# Mine",
    "crlf": b"# Mine\r\n\r\n- x\r\n",
    "bom": b"\xef\xbb\xbf# Mine\n",
    "empty": b"",
    "not there": None,
}
JSONS = {
    "settings": b'{\n    "version": 1, "model":"x",\n\t"hooks": { "Stop":[ {"hooks": [] }] }\n}',
    "crlf": b'{\r\n  "version": 1,\r\n  "b": [1,2 , 3]\r\n}\r\n',
    "bom": b'\xef\xbb\xbf{"version": 1, "hooks":{}}',
    "escapes": '{"version": 1, "\\u0068ooks": {}, "é": "\\u00e9\\ud83d\\ude00"}\n'.encode(),
    "not there": None,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    return project


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file of a project with its bytes and mode, but for what git has by itself."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and (not name.startswith(".git/") or name == ".git/hooks/pre-commit"):
            found[name] = path.read_bytes(), path.stat().st_mode & 0o777
    return found


def fill(root: Path, client: str, text: bytes | None, settings: bytes | None) -> None:
    """Give a client's files content of others."""
    folder = CLIENTS[client].folder(root)
    for name in CLIENTS[client].files:
        content = settings if name.endswith(".json") else text
        if client == "git" and content is not None:
            content = b"#!/bin/sh\n" + content
        if content is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o750 if client == "git" else 0o640)


@pytest.mark.parametrize("settings", JSONS)
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_i7_setup_check_and_remove_leave_what_others_wrote_to_the_byte(
    root: Path, client: str, text: str, settings: str
) -> None:
    fill(root, client, TEXTS[text], JSONS[settings])
    before = tree(root)
    assert {problem.path for problem in check(client, root)} == {
        CLIENTS[client].folder(root) / name for name in CLIENTS[client].files
    }
    assert tree(root) == before
    assert {change.what for change in install(client, root)} <= {"made", "changed"}
    assert check(client, root) == []
    there = tree(root)
    assert {name: mode for name, (_, mode) in there.items() if name in before} == {
        name: mode for name, (_, mode) in before.items()
    }
    assert {change.what for change in install(client, root)} == {"unchanged"}
    assert tree(root) == there
    assert {change.what for change in remove(client, root)} <= {"removed", "changed"}
    assert tree(root) == before
    assert {change.what for change in remove(client, root)} == {"unchanged"}


def test_i7_all_clients_share_a_project(root: Path) -> None:
    (root / "AGENTS.md").write_text("# Mine\n")
    before = tree(root)
    for client in CLIENT_NAMES:
        install(client, root)
    assert [check(client, root) for client in CLIENT_NAMES] == [[]] * len(CLIENT_NAMES)
    for client in CLIENT_NAMES:
        remove(client, root)
    assert tree(root) == before


def test_i7_changes_say_what_became_of_each_file(root: Path) -> None:
    (root / "CLAUDE.md").write_text("# Mine\n")
    assert [(change.path, change.what) for change in install("claude", root)] == [
        (root / "CLAUDE.md", "changed"),
        (root / ".claude/settings.json", "made"),
        (root / ".mcp.json", "made"),
    ]
    assert [change.what for change in remove("claude", root)] == ["changed", "removed", "removed"]


def test_i7_check_tells_missing_from_out_of_date_and_from_broken(root: Path) -> None:
    install("claude", root)
    text = root / "CLAUDE.md"
    text.write_text(text.read_text().replace("holdfast next", "holdfast nxt"))
    (root / ".claude/settings.json").write_text("{")
    first, second = check("claude", root)
    assert "not up to date" in first.what
    assert "not JSON" in second.what
    assert "correct it by hand" in second.what
    text.write_text("# Mine\n")
    assert "has nothing of holdfast" in check("claude", root)[0].what


def test_i7_a_stranger_is_no_client(root: Path) -> None:
    with pytest.raises(Invalid, match="no client 'emacs'") as caught:
        install("emacs", root)
    assert "claude" in caught.value.hint


def spoil_not_utf8(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{\0}\0")


def spoil_read_only(path: Path) -> None:
    path.write_text("{}")
    path.chmod(0o444)


def spoil_symlink_out(path: Path) -> None:
    outside = path.parents[2] / "outside.json"
    outside.write_text("{}")
    path.symlink_to(outside)


def spoil_loop(path: Path) -> None:
    path.symlink_to(path.name)


def spoil_folder(path: Path) -> None:
    path.mkdir()


def spoil_json(path: Path) -> None:
    path.write_text('{"a": 1,} // mine')


SPOILS: list[tuple[Callable[[Path], None], str]] = [
    (spoil_not_utf8, "not UTF-8"),
    (spoil_read_only, "read-only"),
    (spoil_symlink_out, "out of the project"),
    (spoil_loop, "cannot be resolved"),
    (spoil_folder, "not a regular file"),
    (spoil_json, "not JSON"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILS, ids=[said for _, said in SPOILS])
def test_i7_a_file_that_cannot_be_edited_is_refused_and_no_other_is_touched(
    root: Path, spoil: Callable[[Path], None], said: str
) -> None:
    (root / ".claude").mkdir()
    spoil(root / ".claude/settings.json")
    (root / "CLAUDE.md").write_text("# Mine\n")
    outside = [path.read_bytes() for path in root.parent.glob("outside*")]
    before = tree(root)
    for act in (install, remove):
        with pytest.raises(Invalid, match=said) as caught:
            act("claude", root)
        assert caught.value.hint
        assert "settings.json" in caught.value.message
    assert [said in problem.what for problem in check("claude", root)] == [False, True, False]
    assert tree(root) == before
    assert [path.read_bytes() for path in root.parent.glob("outside*")] == outside


def test_i7_a_symlink_inside_the_project_stays_one(root: Path) -> None:
    (root / "AGENTS.md").write_text("# Mine\n")
    (root / "CLAUDE.md").symlink_to("AGENTS.md")
    install("claude", root)
    assert (root / "CLAUDE.md").is_symlink()
    assert "holdfast:begin" in (root / "AGENTS.md").read_text()
    assert install("codex", root)[0].what == "unchanged"
    remove("claude", root)
    assert (root / "AGENTS.md").read_text() == "# Mine\n"
    assert (root / "CLAUDE.md").is_symlink()


def test_i7_a_file_that_changes_between_reading_and_writing_is_not_overwritten(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "CLAUDE.md").write_text("# Mine\n")

    def meanwhile(steps: list[files.Step]) -> None:
        (root / "CLAUDE.md").write_text("# Mine, just now\n")
        files.write(steps)

    monkeypatch.setattr(clients, "write", meanwhile)
    with pytest.raises(Conflict, match="changed meanwhile"):
        install("claude", root)
    assert {name: content for name, (content, _) in tree(root).items()} == {"CLAUDE.md": b"# Mine, just now\n"}


@pytest.mark.parametrize("at", range(1, 7))
def test_i7_a_disk_that_fails_leaves_the_old_files_and_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    (root / "CLAUDE.md").write_text("# Mine\n")
    before = tree(root)
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == at:  # a folder, the program, or the content of a file
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(IOFailed, match="No space left"):
        install("claude", root)
    assert tree(root) == before
    assert sorted(path.name for path in root.iterdir()) == [".git", "CLAUDE.md"], "nor a folder"


def test_i7_the_hooks_call_commands_that_their_client_is_named_to(root: Path) -> None:
    for client in ("claude", "codex", "cursor", "gemini"):
        for name, change in zip(CLIENTS[client].files, install(client, root), strict=True):
            if name.endswith(("hooks.json", "settings.json")):
                hooks = json.loads(change.path.read_text())["hooks"]
                text = json.dumps(hooks)
                assert text.count(f"' holdfast guard --hook {client}") == 1
                assert text.count(f"' holdfast prime --hook {client}") == len(hooks) - 1 >= 2


@pytest.mark.parametrize("client", [name for name in CLIENT_NAMES if name != "git"])
def test_i22_setup_registers_the_mcp_server_unless_it_is_not_wanted(root: Path, client: str) -> None:
    install(client, root, Choice(mcp=False))
    assert check(client, root) == [], "which is no fault"
    assert not any("' 'mcp'" in text or '"mcp"' in text for text in texts(root))
    install(client, root)
    assert check(client, root) == []
    (found,) = [text for text in texts(root) if '"holdfast", "mcp"]' in text or "'holdfast', 'mcp']" in text]
    if client == "codex":
        table = tomllib.loads(found)["mcp_servers"]["holdfast"]
    else:
        table = json.loads(found)["mcpServers"]["holdfast"]
    assert (table["command"], table["args"][0], table["args"][2:]) == ("sh", "-c", ["holdfast", "mcp"])
    remove(client, root)
    assert tree(root) == {}
    assert [path.name for path in root.iterdir()] == [".git"], "no folder is left either"


def test_i22_check_misses_what_was_wanted_and_is_gone(root: Path) -> None:
    install("claude", root)
    (root / ".mcp.json").unlink()
    assert [each.what for each in check("claude", root)] == [f"{root / '.mcp.json'} does not exist"]
    install("claude", root, Choice(mcp=False))
    assert check("claude", root) == [], "it was not wanted"


@pytest.mark.parametrize(
    ("client", "event"), [("claude", "SessionEnd"), ("cursor", "sessionEnd"), ("gemini", "SessionEnd")]
)
def test_i22_the_end_of_a_session_releases_only_if_that_was_chosen(root: Path, client: str, event: str) -> None:
    def end() -> str:
        (text,) = [text for text in texts(root) if event in text]
        return text

    for _ in range(2):
        install(client, root)
        assert "--release" not in end(), "it only says that the session acts no more"
        install(client, root, Choice(release=True))
        assert f"prime --hook {client} --release" in end()
        assert check(client, root) == []
    install(client, root, Choice(release=True))
    remove(client, root)
    assert tree(root) == {}


def test_i22_a_client_that_reports_no_end_refuses_to_release_then(root: Path) -> None:
    with pytest.raises(Invalid, match="does not report the end of a session"):
        install("codex", root, Choice(release=True))
    assert tree(root) == {}


def texts(root: Path) -> list[str]:
    """The text of each file that setup wrote."""
    return [content.decode() for name, (content, _) in tree(root).items() if not name.startswith(".holdfast/")]


def test_i22_a_server_of_the_name_that_somebody_else_registered_is_left_alone(root: Path) -> None:
    theirs = '{"mcpServers": {"holdfast": {"command": "holdfast", "args": ["mcp", "--actor", "me"]}}}'
    (root / ".mcp.json").write_text(theirs)
    install("claude", root)
    assert check("claude", root) == []
    assert (root / ".mcp.json").read_text() == theirs
    remove("claude", root)
    assert (root / ".mcp.json").read_text() == theirs
    (root / ".codex").mkdir()
    (root / ".codex" / "config.toml").write_text("[mcp_servers.holdfast]\ncommand = 'x'\n")
    with pytest.raises(Invalid, match="mcp_servers"):
        install("codex", root)
    install("codex", root, Choice(mcp=False))


# --- worktrees that share a workspace --------------------------------------------------------------------------------


@pytest.fixture
def trees(shell: Shell, repository: Path, tmp_path: Path) -> tuple[Shell, Shell]:
    """The main worktree of a repository with a workspace, and a linked one."""
    assert shell("init").code == 0
    shell.git("worktree", "add", "-q", str(tmp_path / "linked"))
    return shell, shell.at(tmp_path / "linked")


@pytest.mark.parametrize("other", ["claude", "codex", "cursor", "gemini"])
def test_what_is_removed_in_one_worktree_stays_for_the_others(trees: tuple[Shell, Shell], other: str) -> None:
    main, linked = trees
    before = tree(main.folder), tree(linked.folder)
    for first, second in (trees, (linked, main)):
        assert first("setup", other).code == 0
        assert second("setup", "claude", "--lenient").code == 0
        assert first("setup", "git", "--remove").code == 0, "what is not here"
        assert second("setup", "claude", "--remove").code == 0
        bare = Shell(first.folder, first.environ | {"PATH": "/usr/bin:/bin"})
        checked = bare("setup", other, "--check")
        assert (checked.code, "the guard refuses as it must" in checked.out) == (0, True), checked
        assert first("setup", other, "--remove").code == 0
        assert not (main.folder / ".holdfast" / "program").exists()
        assert not (main.folder / ".holdfast" / "setup.json").exists()
        left = [name for name in tree(main.folder) if not name.startswith(".holdfast/")]
        assert left == [name for name in before[0] if not name.startswith(".holdfast/")]
        assert tree(linked.folder) == before[1]
        assert not (first.folder / f".{other}").exists()


def test_each_worktree_is_measured_by_how_it_was_set_up(trees: tuple[Shell, Shell]) -> None:
    main, linked = trees
    assert main("setup", "claude").code == 0
    assert linked("setup", "claude", "--lenient").code == 0
    for each in trees:
        assert each("setup", "claude", "--check").code == 0
    assert linked("setup", "claude", "--remove").code == 0
    (main.folder / "CLAUDE.md").unlink()
    assert "CLAUDE.md does not exist" in main("doctor").out, "it is wanted here still"


def test_a_worktree_that_is_gone_needs_nothing(trees: tuple[Shell, Shell]) -> None:
    main, linked = trees
    assert main("setup", "claude").code == 0
    assert linked("setup", "codex").code == 0
    shutil.rmtree(linked.folder)
    assert main("setup", "claude", "--remove").code == 0
    assert not (main.folder / ".holdfast" / "program").exists()


def test_a_file_that_cannot_be_read_as_settings_may_need_the_program(trees: tuple[Shell, Shell]) -> None:
    main, linked = trees
    assert linked("setup", "claude").code == 0
    assert main("setup", "codex").code == 0
    (linked.folder / "CLAUDE.md").unlink()
    (linked.folder / ".mcp.json").unlink()
    settings = linked.folder / ".claude" / "settings.json"
    settings.write_text(f"// mine\n{settings.read_text()}")
    assert main("setup", "codex", "--remove").code == 0
    assert (main.folder / ".holdfast" / "program").exists()


@pytest.mark.parametrize("client", CLIENT_NAMES)
def test_a_lenient_guard_refuses_as_it_must(shell: Shell, repository: Path, client: str) -> None:
    assert shell("init").code == 0
    assert shell("setup", client, "--lenient").code == 0
    checked = shell("setup", client, "--check")
    assert (checked.code, "the guard refuses as it must" in checked.out) == (0, True), checked
    assert "the guard does not work" not in shell("doctor").out
