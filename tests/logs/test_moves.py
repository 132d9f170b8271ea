"""N2: a workspace goes to a log and comes back, with its revisions, tokens and history, or stays where it was.

A process that is killed at any place of a move leaves a folder that opens as one or the other, with all that was
acknowledged; real processes, killed with kill -9, on a real PostgreSQL.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import holdfast
from holdfast import errors
from holdfast.faces.cli import main
from holdfast.filesystem import LOG_URL, MOVE, is_moving, recorded_log
from holdfast.kernel import failpoints
from holdfast.kernel.store import Store
from holdfast.replication.jetstream import JetStreamLog
from holdfast.replication.log import Detached, MemoryLog, Snapshotted
from holdfast.replication.postgres import Server
from holdfast.testing.crowd import LONG
from tests.e2e.failpoint_worker import ROOT
from tests.http.running import Running
from tests.logs.nodes import RUN, Wire, assert_equal, at, entries
from tests.worlds import nats
from tests.worlds.postgres import shared_server

PLACES = [name for name in failpoints.NAMES if name.startswith("move.")]
TO_LOG = [name for name in PLACES if name != "move.ended"]
TO_FILE = [name for name in PLACES if name != "move.seeded"]


@pytest.fixture
def url() -> str:
    """The address of a workspace that is not there yet."""
    return f"{shared_server().url}&workspace=moved-{os.urandom(6).hex()}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace in a file, with a history."""
    make(tmp_path / "store")
    return tmp_path / "store"


def make(folder: Path) -> None:
    """Make a workspace with a history, and a lock whose token is in a cell."""
    with holdfast.open(folder, actor="ann") as ws:
        for number in range(5):
            ws.cells.set(RUN, "cell", number)
        task = ws.tasks.create("bake")
        ws.tasks.claim(task.id, ttl=3600)
        ws.cells.set(RUN, "token", ws.locks.acquire("door", ttl=3600).token)


def state(ws: holdfast.Workspace) -> dict[str, object]:
    """What a move must not change."""
    return {
        "revision": ws.revision,
        "events": ws.events.list(after=0, limit=1000),
        "history": ws.cells.history(RUN, "cell"),
        "locks": ws.locks.list(),
        "tasks": ws.tasks.list(),
    }


def goes_on(ws: holdfast.Workspace) -> None:
    """The token of the lock is still the current one, the next revision follows, and all is sound."""
    before = ws.revision
    token = int(ws.cells.get(RUN, "token").value)
    ws.using(actor="ann", fence=("door", token)).cells.increment(RUN, "cell")
    assert ws.revision == before + 1
    assert ws.check().problems == []


def test_n2_a_workspace_goes_to_a_log_and_back_and_keeps_revisions_tokens_and_history(
    folder: Path, tmp_path: Path, url: str
) -> None:
    others = {*Server._clients}
    with holdfast.open(folder, actor="ann") as ws:
        before = state(ws)
    assert holdfast.replicate(folder, f"{url}&password=s3cret", create=True) == before["revision"]
    assert "s3cret" not in (folder / LOG_URL).read_text()
    with holdfast.open(folder, actor="ann") as a, holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
        assert state(a) == state(b) == before
        goes_on(b)
        assert_equal(a, b)
        before = state(b)
    assert holdfast.detach(folder) == before["revision"]
    assert recorded_log(folder) is None
    with holdfast.open(folder, actor="ann") as ws:
        assert state(ws) == before
        goes_on(ws)
    with pytest.raises(errors.Closed, match=r"left this log at revision .* for .*store"):
        holdfast.open(tmp_path / "b", actor="bob")
    assert {*Server._clients} <= others


def test_n2_a_workspace_goes_to_jetstream_and_back(folder: Path, tmp_path: Path) -> None:
    url = f"{nats.shared_server().url}/moved-{os.urandom(6).hex()}?sync=always"
    with holdfast.open(folder, actor="ann") as ws:
        before = ws.revision
    assert holdfast.replicate(folder, url, create=True) == before
    with holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
        goes_on(b)
    assert holdfast.detach(folder) == before + 1
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)
    with pytest.raises(errors.Closed, match="left this log"):
        holdfast.open(tmp_path / "b", actor="bob")


PAGE = Path(__file__).resolve().parents[2] / "docs" / "engines.md"


def test_a_name_is_free_again_once_its_log_is_deleted_as_the_page_says(folder: Path, tmp_path: Path, url: str) -> None:
    sql = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    purged = re.findall(r"nats stream purge .* --subject '(.*)' --force", PAGE.read_text())
    assert len(sql) == len(purged) == 1
    address, _, name = url.partition("&workspace=")
    holdfast.replicate(folder, url, create=True)
    holdfast.detach(folder)
    with psycopg.connect(address) as connection:
        for statement in sql[0].split(";\n"):
            connection.execute(statement.replace("team-a", name))
        left = connection.execute("SELECT 1 FROM holdfast.workspaces WHERE name = %s", (name,)).fetchone()
    assert left is None
    assert holdfast.replicate(folder, url, create=True) > 0
    holdfast.detach(folder)

    url = f"{nats.shared_server().url}/{name}?sync=always"
    holdfast.replicate(folder, url, create=True)
    holdfast.detach(folder)
    with closing(JetStreamLog(f"{nats.shared_server().url}?sync=always", name)) as log:
        log._api(f"STREAM.PURGE.{log.stream}", filter=purged[0].replace("team-a", name))
    with pytest.raises(errors.NotFound):
        holdfast.replicate(folder, url)
    assert holdfast.replicate(folder, url, create=True) > 0
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


def test_n2_an_unknown_workspace_is_made_only_if_asked_and_the_folder_stays_as_it_was(folder: Path, url: str) -> None:
    with pytest.raises(errors.NotFound, match="no workspace moved-"):
        holdfast.replicate(folder, url, patience=0)
    assert not is_moving(folder)
    assert recorded_log(folder) is None
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


def test_n2_a_folder_without_a_workspace_joins_and_one_that_is_there_already_stays(
    folder: Path, tmp_path: Path, url: str
) -> None:
    revision = holdfast.replicate(folder, url, create=True)
    assert holdfast.replicate(tmp_path / "b", url) == revision
    assert holdfast.replicate(folder, url) == revision
    with pytest.raises(errors.Invalid, match="is a replica of"):
        holdfast.replicate(folder, f"{url}-2", create=True)
    with holdfast.open(folder, actor="ann") as a, holdfast.open(tmp_path / "b", actor="bob") as b:
        assert_equal(a, b)


def test_a_log_that_holds_another_workspace_is_refused_and_left_as_it_is(folder: Path, tmp_path: Path) -> None:
    log = MemoryLog()
    holdfast.open(tmp_path / "theirs", actor="bob", log=log).close()
    before = entries(log)
    with pytest.raises(errors.Exists, match="already holds a workspace"):
        holdfast.replicate(folder, log)
    assert entries(log) == before
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


def test_another_that_is_first_in_the_log_wins_and_this_folder_stays_as_it_was(folder: Path, tmp_path: Path) -> None:
    """It comes between the look at the log and the append."""
    log = MemoryLog()
    with (
        at("move.noted", lambda: holdfast.open(tmp_path / "b", actor="bob", log=log).close()),
        pytest.raises(errors.Exists),
    ):
        holdfast.replicate(folder, log)
    assert not is_moving(folder)
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


@pytest.mark.parametrize("method", ["head", "put", "append"])
def test_over_a_cut_line_nothing_moves_and_it_can_be_repeated(folder: Path, method: str) -> None:
    log = Wire(MemoryLog())
    log.always(method, "unreachable")  # type: ignore[arg-type]
    with pytest.raises(errors.Unreachable):
        holdfast.replicate(folder, log, patience=0)
    assert not is_moving(folder)
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)
    log.heal()
    revision = holdfast.replicate(folder, log)
    log.always("append", "unreachable")
    with pytest.raises(errors.Unreachable):
        holdfast.detach(folder, log=log, patience=0)
    with holdfast.open(folder, actor="ann", log=log, patience=0) as ws:
        assert ws.revision == revision
    log.heal()
    assert holdfast.detach(folder, log=log) == revision


def test_an_append_whose_answer_is_lost_moves_it_once(folder: Path) -> None:
    log = Wire(MemoryLog())
    log.once("append", "answer lost")
    holdfast.replicate(folder, log)
    assert [type(entry) for entry in entries(log)] == [Snapshotted]
    log.once("append", "answer lost")
    holdfast.detach(folder, log=log)
    assert [type(entry) for entry in entries(log)] == [Snapshotted, Detached]
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


def test_a_node_that_leaves_has_what_others_wrote_last(folder: Path, tmp_path: Path) -> None:
    log = MemoryLog()
    holdfast.replicate(folder, log)
    with holdfast.open(tmp_path / "b", actor="bob", log=log) as b:
        b.cells.set(RUN, "theirs", 1)

        def write() -> None:
            b.cells.set(RUN, "theirs", 2)

        with at("move.noted", write):
            holdfast.detach(folder, log=log)
        with pytest.raises(errors.Closed, match="left this log"):
            b.cells.set(RUN, "theirs", 3)
        with pytest.raises(errors.Closed, match="left this log"):
            b.cells.get(RUN, "theirs")
    with holdfast.open(folder, actor="ann") as ws:
        assert ws.cells.get(RUN, "theirs").value == 2
    saved = holdfast.salvage(tmp_path / "b", tmp_path / "b.backup")
    holdfast.restore(saved, tmp_path / "restored")
    with holdfast.open(tmp_path / "restored", actor="bob") as ws:
        assert ws.cells.get(RUN, "theirs").value == 2, "the other replica has everything up to the end of the log"


def test_a_second_node_cannot_leave_too(folder: Path, tmp_path: Path) -> None:
    log = MemoryLog()
    holdfast.replicate(folder, log)
    holdfast.open(tmp_path / "b", actor="bob", log=log).close()
    holdfast.detach(folder, log=log)
    with pytest.raises(errors.Closed, match="left this log"):
        holdfast.detach(tmp_path / "b", log=log)
    assert not is_moving(tmp_path / "b")


def test_a_folder_that_is_no_replica_has_nothing_to_leave(folder: Path, tmp_path: Path) -> None:
    for log in (None, MemoryLog()):
        with pytest.raises(errors.Invalid, match="not a replica"):
            holdfast.detach(folder, log=log)
    with pytest.raises(errors.NotFound):
        holdfast.detach(tmp_path / "nothing", log=MemoryLog())


def test_a_folder_that_is_open_elsewhere_does_not_move(folder: Path) -> None:
    log = MemoryLog()
    with holdfast.open(folder, actor="ann"), pytest.raises(errors.Busy, match="open"):
        holdfast.replicate(folder, log)
    assert entries(log) == []
    other = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(errors.Busy, match=f"another process has the workspace open: {other.pid}") as caught:
            holdfast.replicate(folder, log)
        assert caught.value.details["pids"] == [other.pid]
        other.stdin.close()
    holdfast.replicate(folder, log)
    with holdfast.open(folder, actor="ann", log=log), pytest.raises(errors.Busy):
        holdfast.detach(folder, log=log)


_HOLD = """
import sys, holdfast
with holdfast.open(sys.argv[1], actor="other"):
    print("open", flush=True)
    sys.stdin.read()
"""


def test_nobody_opens_a_folder_while_it_moves(folder: Path) -> None:
    """Whoever comes meanwhile waits for the turn, as long as it waits for any writer."""

    def attempt() -> None:
        with pytest.raises(errors.Busy):
            holdfast.open(folder, actor="late", busy_timeout=0.1)
        with pytest.raises(errors.Busy):  # so does one that had looked for the note before it was there
            Store(str(folder), durable=True, busy_timeout=0.1).connect()

    log = MemoryLog()
    with at("move.stored", attempt):
        holdfast.replicate(folder, log)
    with at("move.ended", attempt):
        holdfast.detach(folder, log=log)


# --- killed ----------------------------------------------------------------------------------------------------------

_MOVE = """
import os, signal, sys, holdfast
from holdfast.kernel import failpoints
from holdfast.kernel.store import Store
place, folder, url = sys.argv[1:]
failpoints.hook = lambda name: os.kill(os.getpid(), signal.SIGKILL) if name == place else None
holdfast.replicate(folder, url, create=True) if url else holdfast.detach(folder)
"""


def killed_at(place: str, folder: Path, url: str) -> None:
    """Have a process killed at a place of a move; without an address it is one out of the log."""
    done = subprocess.run([sys.executable, "-c", _MOVE, place, str(folder), url], cwd=ROOT, timeout=LONG, check=False)
    assert done.returncode == -signal.SIGKILL
    assert is_moving(folder)


@pytest.mark.parametrize("place", TO_LOG)
def test_n2_killed_on_the_way_to_a_log_it_is_there_when_it_is_opened(
    folder: Path, tmp_path: Path, url: str, place: str
) -> None:
    with holdfast.open(folder, actor="ann") as ws:
        before = state(ws)
    killed_at(place, folder, url)
    with holdfast.open(folder, actor="ann") as a:
        assert state(a) == before
        goes_on(a)
        assert not (folder / MOVE).exists()
        with holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
            goes_on(b)
            assert_equal(a, b)


@pytest.mark.parametrize("place", TO_FILE)
def test_n2_killed_on_the_way_out_of_a_log_it_is_out_when_it_is_opened(
    folder: Path, tmp_path: Path, url: str, place: str
) -> None:
    holdfast.replicate(folder, url, create=True)
    with holdfast.open(folder, actor="ann") as ws:
        before = state(ws)
    killed_at(place, folder, "")
    with holdfast.open(folder, actor="ann") as a:
        assert state(a) == before
        goes_on(a)
    assert recorded_log(folder) is None
    with pytest.raises(errors.Closed, match="left this log"):
        holdfast.open(url, folder=tmp_path / "b", actor="bob")


def test_killed_on_the_way_to_a_log_that_others_used_meanwhile_it_joins_them(
    folder: Path, tmp_path: Path, url: str
) -> None:
    killed_at("move.seeded", folder, url)
    with holdfast.open(url, folder=tmp_path / "b", actor="bob") as b:
        b.cells.set(RUN, "theirs", 1)
        holdfast.replicate(folder, url)
        with holdfast.open(folder, actor="ann") as a:
            assert_equal(a, b)


def test_killed_on_the_way_to_a_log_that_others_took_first_it_stays_what_it_was(
    folder: Path, tmp_path: Path, url: str
) -> None:
    killed_at("move.noted", folder, url)
    with holdfast.open(url, folder=tmp_path / "b", actor="bob", create=True) as b:
        b.cells.set(RUN, "theirs", 1)
        with holdfast.open(folder, actor="ann") as a:
            goes_on(a)
            assert a.cells.find(RUN, "theirs") is None
    assert recorded_log(folder) is None


def test_killed_on_the_way_to_a_log_that_is_away_nothing_is_written_until_it_is_back(folder: Path, url: str) -> None:
    killed_at("move.seeded", folder, url)
    note = (folder / MOVE).read_bytes()
    (folder / MOVE).write_bytes(note.replace(str(shared_server().folder).encode(), b"/nowhere"))
    with pytest.raises(errors.Unreachable):
        holdfast.open(folder, actor="ann", patience=0.1)
    assert is_moving(folder), "whether the log has it is not known"
    (folder / MOVE).write_bytes(note)
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


def test_killed_with_a_log_that_has_no_address_the_folder_asks_for_it(folder: Path) -> None:
    log = MemoryLog()
    with at("move.seeded", _die), pytest.raises(_Died):
        holdfast.replicate(folder, log)
    with pytest.raises(errors.Invalid, match="on its way to a log"):
        holdfast.open(folder, actor="ann")
    with holdfast.open(folder, actor="ann", log=log) as ws:
        goes_on(ws)
    with at("move.ended", _die), pytest.raises(_Died):
        holdfast.detach(folder, log=log)
    with pytest.raises(errors.Invalid, match="on its way out of a log"):
        holdfast.open(folder, actor="ann")
    with pytest.raises(errors.Invalid, match="holds a workspace that is not a replica"):
        holdfast.open(folder, actor="ann", log=log)  # it was finished first
    with holdfast.open(folder, actor="ann") as ws:
        goes_on(ws)


class _Died(BaseException):
    """The process ends here, as far as the move can tell."""


def _die() -> None:
    raise _Died


# --- commands --------------------------------------------------------------------------------------------------------


def test_n2_commands_take_it_there_and_back(
    folder: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    where = ["--dir", str(folder)]
    assert main(["replicate", url, *where]) == errors.NotFound.exit_code
    assert "--create" in capsys.readouterr().err
    assert main(["replicate", url, "--create", *where]) == 0
    assert "took the workspace to postgresql://" in capsys.readouterr().out
    assert main(["replicate", url, "--dir", str(tmp_path / "b")]) == 0
    assert "joined postgresql://" in capsys.readouterr().out
    assert main(["list", "--dir", str(tmp_path / "b")]) == 0
    assert "bake" in capsys.readouterr().out
    assert main(["detach", *where]) == 0
    assert "a workspace of its own" in capsys.readouterr().out
    assert main(["detach", *where]) == errors.Invalid.exit_code
    assert main(["list", *where]) == 0
    assert main(["list", "--dir", str(tmp_path / "b")]) == errors.Closed.exit_code


def test_n2_commands_name_the_server_that_has_it_open(
    folder: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Running(folder)
    try:
        assert main(["replicate", url, "--create", "--dir", str(folder)]) == errors.Busy.exit_code
        assert "a server runs on" in capsys.readouterr().err
    finally:
        server.end()
