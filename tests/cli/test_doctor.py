"""`holdfast doctor` (issue 7): it finds what is wrong, proposes nothing destructive, and changes nothing."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import ManualClock
from tests.cli.calling import HOLDFAST, Answer, Shell
from tests.http.running import Running

Cli = Callable[..., Answer]
DESTRUCTIVE = ("rm ", "delete", "purge", "unlink", "truncate", "overwrite", "drop", "git clean", "reset --hard")


def findings(answer: Answer) -> dict[str, list[dict[str, Any]]]:
    """What was found, by what it is about; no advice destroys anything."""
    assert "Traceback" not in answer.err, answer.err
    found: dict[str, list[dict[str, Any]]] = {}
    for each in answer.data:
        assert each["level"] in ("ok", "note", "bad")
        assert not any(word in each["todo"].lower() for word in DESTRUCTIVE), each
        if each["level"] != "ok" and each["about"] != "permissions":
            assert each["todo"], f"it says what to do: {each}"
        found.setdefault(each["about"], []).append(each)
    bad = any(each["level"] == "bad" for each in answer.data)
    assert answer.code == (1 if bad else 0)
    return found


def levels(answer: Answer) -> dict[str, str]:
    """The worst level of each thing that was looked at."""
    order = ("ok", "note", "bad")
    return {about: max((each["level"] for each in found), key=order.index) for about, found in findings(answer).items()}


def now_at(clock: ManualClock, seconds: float) -> ManualClock:
    """Set a clock to this machine's time and so much more."""
    clock.advance(datetime.now(UTC).timestamp() - clock.wall() / 1e6 + seconds)
    return clock


def test_a_sound_workspace_is_found_sound(made: Cli) -> None:
    made("create", "x")
    made("backup")
    answer = made("doctor", "--actor", "a", "--json")
    assert set(levels(answer).values()) == {"ok"}
    wanted = {"workspace", "actor", "versions", "permissions", "writable", "schema", "integrity", "clock", "stuck"}
    assert levels(answer).keys() >= wanted | {"exposed", "backups", "rules"}
    text = made("doctor", "--actor", "a").out
    assert all(line.startswith("ok ") for line in text.splitlines())


def test_it_changes_nothing(made: Cli, project: Path) -> None:
    made("create", "x")
    before = [made(*line.split(), "--json").data for line in ("event list", "agent list", "list")]
    made("doctor", "--actor", "newcomer")
    assert [made(*line.split(), "--json").data for line in ("event list", "agent list", "list")] == before


def test_what_is_only_worth_knowing_is_a_note(made: Cli) -> None:
    told = levels(made("doctor", "--json"))
    assert (told["actor"], told["backups"]) == ("note", "note")


def test_where_there_is_no_workspace_it_says_so(cli: Cli, project: Path) -> None:
    for words in ((), ("--dir", "missing")):
        answer = cli("doctor", "--json", *words)
        assert answer.code == 1
        found = findings(answer)["workspace"][0]
        assert found["level"] == "bad"
        assert "init" in found["todo"]
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("kept", [0, 100, 4096])
def test_a_damaged_file_is_found_and_left_as_it_is(made: Cli, project: Path, kept: int) -> None:
    made("create", "x")
    store = project / ".holdfast" / "holdfast.db"
    content = store.read_bytes()
    store.write_bytes(damaged := content[:kept] + b"\xa5" * (len(content) - kept))
    told = levels(made("doctor", "--actor", "a", "--json"))
    assert "bad" in (told["integrity"], told["schema"], told["writable"])
    assert store.read_bytes() == damaged


def test_one_cause_that_stops_several_checks_is_told_once(made: Cli, project: Path) -> None:
    made("create", "x")
    (project / ".holdfast" / "commit.mark").unlink()
    answer = made("doctor")
    assert answer.code == 1
    assert answer.out.count("commit.mark in ") == 1
    lines = [line.split() for line in answer.out.splitlines()]
    assert ["bad", "integrity", "as", "writable"] in lines


def test_a_state_that_is_not_what_the_log_says_is_found(made: Cli, project: Path) -> None:
    import apsw

    task = made("create", "x", "-q").id
    connection = apsw.Connection(str(project / ".holdfast" / "holdfast.db"))
    connection.execute("UPDATE tasks SET title = 'forged', version = version + 1 WHERE id = ?", (task,))
    connection.close()
    found = findings(made("doctor", "--actor", "a", "--json"))["integrity"]
    assert [each["level"] for each in found] == ["bad"] * len(found)
    assert "backup" in found[0]["todo"]


def test_files_that_everybody_can_read_are_noted(made: Cli, project: Path) -> None:
    (project / ".holdfast" / "holdfast.db").chmod(0o644)
    found = findings(made("doctor", "--actor", "a", "--json"))["permissions"]
    assert [each["level"] for each in found] == ["note"]
    assert "holdfast.db" in found[0]["text"]
    assert "chmod o=" in found[0]["todo"]


@pytest.fixture
def unwritable(shell: Shell) -> Iterator[Callable[..., Answer]]:
    """Calls where the workspace cannot be written: for root, who may write everywhere, on a mount of its own."""
    shell("create", "x", "--dir", ".holdfast", "--actor", "a")
    store = shell.folder / ".holdfast"
    first = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"']
    if os.getuid() != 0:
        first = []
        store.chmod(0o500)
        (store / "holdfast.db").chmod(0o400)
    else:
        first.append(str(store))
        if shell.run([*first, "true"]).code != 0:
            pytest.skip("root cannot make a mount here")
    yield lambda *words: shell.run([*first, *HOLDFAST, *words, "--actor", "a", "--json"])
    store.chmod(0o700)


def test_a_folder_that_cannot_be_written_from_here_is_found(unwritable: Callable[..., Answer]) -> None:
    refused = unwritable("create", "y")
    assert (refused.code, refused.out, refused.error["code"]) == (16, "", "READ_ONLY")
    told = levels(unwritable("doctor"))
    assert told["writable"] == "bad"
    assert told["workspace"] == "ok"


def test_a_clock_that_is_behind_the_workspace_is_found(made: Cli, project: Path) -> None:
    with holdfast.open(project / ".holdfast", actor="a", clock=now_at(ManualClock(), 3600)) as workspace:
        workspace.tasks.create("from the future")
    found = findings(made("doctor", "--actor", "a", "--json"))["clock"]
    assert [each["level"] for each in found] == ["bad"]
    assert "clock reset" in found[0]["todo"]
    assert made("clock", "reset").code == 0
    assert levels(made("doctor", "--actor", "a", "--json"))["clock"] == "ok", "what it proposes helps"


def test_claims_and_locks_without_end_of_somebody_long_gone_are_noted(made: Cli, project: Path) -> None:
    with holdfast.open(project / ".holdfast", actor="gone", clock=now_at(ManualClock(), -7200)) as workspace:
        task = workspace.tasks.create("x")
        workspace.tasks.claim(task.id)
        workspace.tasks.park(task.id)
        workspace.locks.acquire("deploy")
        gate, other = (workspace.stashes.create(name, "lock").id for name in ("gate", "other"))
        workspace.stashes.acquire(gate)
        workspace.stashes.acquire(other, ttl=1_000_000)
    with holdfast.open(project / ".holdfast", actor="here") as workspace:
        workspace.locks.acquire("mine")
    found = findings(made("doctor", "--actor", "a", "--json"))["stuck"]
    assert [each["level"] for each in found] == ["note", "note", "note"]
    assert task.id in found[0]["text"]
    assert "deploy" in found[1]["text"]
    assert "gate" in found[2]["text"]
    assert gate in found[2]["todo"]
    assert made("release", task.id, "--force", "--actor", "boss").code == 0, "what it proposes works"


def test_a_server_on_this_machine_is_well_and_one_beyond_it_is_noted(made: Cli, project: Path) -> None:
    folder = project / ".holdfast"
    for arguments, level in (((), "ok"), (("--host", "0.0.0.0", "--tls", "auto"), "note")):
        server = Running(folder, *arguments)
        try:
            found = findings(made("doctor", "--actor", "a", "--json"))["exposed"][0]
            assert found["level"] == level, found
            assert str(server.process.pid) in found["text"]
        finally:
            server.stop()
            server.end()
    after = findings(made("doctor", "--actor", "a", "--json"))["exposed"][0]
    assert (after["level"], after["text"]) == ("ok", "no server is running on it")


def test_a_server_that_was_killed_is_not_taken_for_one_that_runs(made: Cli, project: Path) -> None:
    server = Running(project / ".holdfast")
    server.end()
    assert findings(made("doctor", "--actor", "a", "--json"))["exposed"][0]["text"] == "no server is running on it"


def test_rules_that_are_wrong_are_found(made: Cli, project: Path) -> None:
    (project / ".holdfast" / "grimoire-matchers.yaml").write_text("matchers: [\n")
    found = findings(made("doctor", "--actor", "a", "--json"))["rules"]
    assert "bad" in {each["level"] for each in found}


def test_it_ends_also_where_nothing_answers(cli: Cli) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"  # nobody accepts
        answer = cli("doctor", "--url", url, "--actor", "a", "--json", HOLDFAST_TOKEN="x")
    assert levels(answer)["workspace"] == "bad"
